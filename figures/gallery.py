"""All pictures of one lesson, under the names of their files."""

from collections.abc import Iterator

from parity.figures.canvas import Image
from parity.figures.document import Record
from parity.figures.draw import render
from parity.figures.mechanism import render_mechanism
from parity.gate import Case

__all__ = ["drawings"]


def drawings(
    record: Record, case: Case, image: Image = "svg", *, everything: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Draws a lesson.

    Args:
        record: its document.
        case: everything that was computed for it.
        image: svg or png.
        everything: also agreement, margins and, for PPO, clipping; else only what the record holds.

    Yields:
        Name of the file, and its content.
    """
    name = record.lesson_id
    yield f"{name}.{image}", render(record, image)
    if record.diagram:
        yield f"{name}-mechanism.{image}", render_mechanism(record, image)
    if not everything:
        return
    from parity.figures.agreement import (
        render_agreement,  # a run that does not ask does not pay for them
    )
    from parity.figures.clipping import render_clipping
    from parity.figures.margins import render_margins

    yield f"{name}-agreement.{image}", render_agreement(case, image)
    yield f"{name}-margins.{image}", render_margins(case, image)
    if case.problem.ppo:
        yield f"{name}-clipping.{image}", render_clipping(case, image)
