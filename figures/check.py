"""Whether the committed figures still are what their numbers say, and their numbers what we get."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.figures.document import Record, load
from parity.figures.panels import Panel
from parity.figures.style import renderer_hash
from parity.files import read_bytes

__all__ = ["compare", "recorded", "redraw"]

_RECORDED = Path(__file__).parent / "recorded"


def recorded() -> dict[str, Path]:
    """Returns the committed documents that ship with the package: lesson to JSON file."""
    return {path.stem: path for path in sorted(_RECORDED.glob("*.json"))}


def redraw(path: Path) -> str | None:
    """Draws a document again and compares it, byte for byte, with the SVGs beside it.

    Args:
        path: the document, LESSON.json; its figures are LESSON.svg and LESSON-mechanism.svg.

    Returns:
        None if they are the same, else one line that says what differs first.

    Raises:
        InputError: the document is broken, or a figure cannot be read.
    """
    document = load(path)
    figures = {path.with_suffix(".svg"): "parity.figures.draw:render"}
    if document.diagram:
        figures[path.with_name(f"{path.stem}-mechanism.svg")] = (
            "parity.figures.mechanism:render_mechanism"
        )
    for figure in figures:
        if not figure.exists():
            return f"{figure.name}: missing; expected the drawing of {path.name}"
    here = renderer_hash()
    if document.renderer_hash != here:
        return (
            f"rendererHash: got {document.renderer_hash[:12]}… (matplotlib "
            f"{document.environment.matplotlib}); expected {here[:12]}…, this renderer's"
        )
    for figure, renderer in figures.items():
        module, _, function = renderer.partition(":")
        drawn: bytes = getattr(import_module(module), function)(document)  # matplotlib only now
        message = _differing(figure.name, read_bytes(figure), drawn)
        if message:
            return message
    return None


def _differing(name: str, committed: bytes, drawn: bytes) -> str | None:
    if committed == drawn:
        return None
    offset = next(
        (at for at, (old, new) in enumerate(zip(committed, drawn, strict=False)) if old != new),
        min(len(committed), len(drawn)),
    )
    return (
        f"{name}: differs from its drawing at byte {offset} "
        f"({len(committed)} bytes committed, {len(drawn)} drawn)"
    )


def compare(
    committed: Record, fresh: Record, allowances: Sequence[Sequence[NDArray[np.float64]]]
) -> list[str]:
    """Compares the numbers of two runs of one lesson; structure first.

    Two runs may differ by the sum of their allowances: each may be off by one, to either side.

    Args:
        committed: the recorded document.
        fresh: the document of a run just made.
        allowances: of every value of one run, [panel][series][point]; see `panel_allowances`.

    Returns:
        One line for each mismatch; none if all agree. Where the structure differs no number is
        looked at. NaN agrees with nothing.

    Raises:
        ValueError: the allowances are not those of the fresh document.
    """
    misfits = list(_structure(committed, fresh))
    return misfits or list(_numbers(committed, fresh, allowances))


def _structure(committed: Record, fresh: Record) -> Iterator[str]:
    if committed.lesson_id != fresh.lesson_id:
        yield f"lessonId: committed {committed.lesson_id!r}, fresh {fresh.lesson_id!r}"
    diagrams = [
        dict(_leaves("", msgspec.to_builtins(record.diagram))) for record in (committed, fresh)
    ]
    for field in diagrams[0] | diagrams[1]:
        left, right = (diagram.get(field) for diagram in diagrams)
        if left != right:
            yield f"diagram: {field}: committed {left!r}, fresh {right!r}"
            break
    old, new = committed.data.panels, fresh.data.panels
    if len(old) != len(new):
        yield f"data.panels: committed {len(old)}, fresh {len(new)}"
        return
    for number, (ours, theirs) in enumerate(zip(map(_frame, old), map(_frame, new), strict=True)):
        for field in ours | theirs:
            if ours.get(field) != theirs.get(field):
                yield (
                    f"panel {number}: {field}: "
                    f"committed {ours.get(field)!r}, fresh {theirs.get(field)!r}"
                )
                break  # what follows is often the same difference again


def _frame(panel: Panel) -> dict[str, Any]:
    """Returns everything about a panel but its values, of which only the count stays."""
    frame: dict[str, Any] = msgspec.to_builtins(panel)
    for series in frame["series"]:
        series["y"] = f"{len(series['y'])} values"
    return dict(_leaves("", frame))


def _leaves(field: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _leaves(f"{field}.{key}".lstrip("."), entry)
    elif isinstance(value, list | tuple):
        for position, entry in enumerate(value):
            yield from _leaves(f"{field}[{position}]", entry)
    else:
        yield field, value


def _numbers(
    committed: Record, fresh: Record, allowances: Sequence[Sequence[NDArray[np.float64]]]
) -> Iterator[str]:
    panels = zip(committed.data.panels, fresh.data.panels, allowances, strict=True)
    for number, (old_panel, new_panel, rows) in enumerate(panels):
        for old, new, row in zip(old_panel.series, new_panel.series, rows, strict=True):
            if row.shape != (len(new.y),):
                raise ValueError(
                    f"panel {number}, {new.label!r}: got allowances of shape {row.shape}; "
                    f"expected ({len(new.y)},)"
                )
            for index, (left, right, one) in enumerate(zip(old.y, new.y, row, strict=True)):
                allowed = 2 * float(one)
                if not abs(left - right) <= allowed:  # so that NaN fails
                    yield (
                        f"panel {number}, {new.label!r}[{index}]: "
                        f"committed {left!r}, fresh {right!r}; allowed {allowed:.2g} apart"
                    )
