"""The matrix of planted faults: which layer of the gate saw which fault in whose twin."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parity.faults import LAYERS, Outcome
from parity.figures.canvas import Image, heading, paint, place, shortened
from parity.figures.style import COLOURS, INK, MUTED, NAMES, SIZES
from parity.figures.text import width

__all__ = ["draw_faults", "render_faults"]

_SIZE = 8.0  # points
_ROW = 12.5  # points from fault to fault
_SQUARE = 8.0  # points
_COLUMN = 42.0  # points from layer to layer
_AS_EXPECTED = 54.0  # points for the last column
_HEADER = 20.0  # points for the names of the layers
_FILLS = (COLOURS[0], COLOURS[1])  # differ in lightness, for grey print
_LAYERS = {"trajectory": "traject."}


def draw_faults(axes: Axes, outcomes: Sequence[Outcome]) -> Axes:
    """Draws a row per fault and a column per layer: a full square where the layer saw the fault.

    Args:
        axes: where to draw; its width decides how long names may be.
        outcomes: what the gate said, in the order of the rows.

    Returns:
        The same axes.
    """
    scale = 72 / axes.figure.dpi
    across, down = axes.bbox.width * scale, axes.bbox.height * scale
    axes.set(xlim=(0, across), ylim=(down, 0))
    axes.set_axis_off()
    frameworks = _frameworks(outcomes)
    first = across - _AS_EXPECTED - len(LAYERS) * _COLUMN
    for number, layer in enumerate(LAYERS):
        middle = first + (number + 0.5) * _COLUMN
        axes.text(middle, 12, _LAYERS.get(layer, layer), ha="center", fontsize=_SIZE)
    axes.text(across, 12, "as expected", ha="right", fontsize=_SIZE)
    full: dict[str, list[tuple[float, float]]] = {name: [] for name in frameworks}
    empty: list[tuple[float, float]] = []
    for row, (name, mine) in enumerate(_rows(outcomes)):
        middle = _HEADER + (row + 0.5) * _ROW
        good = all(outcome.as_expected for outcome in mine)
        style = "italic" if mine[0].fault.equivalent else "normal"
        label = shortened(name, first - 6, _SIZE)
        axes.text(0, middle + 3, label, fontsize=_SIZE, fontstyle=style)
        weight = "normal" if good else "bold"
        said = "yes" if good else "NO"
        axes.text(across, middle + 3, said, ha="right", fontsize=_SIZE, fontweight=weight)
        for column, layer in enumerate(LAYERS):
            for outcome in mine:
                shift = frameworks.index(outcome.framework) - (len(frameworks) - 1) / 2
                place = (first + (column + 0.5) * _COLUMN + shift * (_SQUARE + 3), middle)
                (full[outcome.framework] if layer in outcome.layers else empty).append(place)
    _squares(axes, empty, "none", "seen by nobody")
    for number, framework in enumerate(frameworks):
        _squares(axes, full[framework], _FILLS[number % 2], framework)
    return axes


def _squares(axes: Axes, places: Sequence[tuple[float, float]], fill: str, name: str) -> None:
    """Draws all squares of a kind as one artist, which is cheap."""
    edge = "#BBBBBB" if fill == "none" else INK
    axes.plot(
        [x for x, _ in places],
        [y for _, y in places],
        linestyle="",
        marker="s",
        markersize=_SQUARE,
        markerfacecolor=fill,
        markeredgecolor=edge,
        markeredgewidth=0.7,
        label=name,
    )


def _frameworks(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns whose twins were spoilt: always in the same order, whoever was first to finish."""
    return sorted({outcome.framework for outcome in outcomes})


def _rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    """Yields faults by objective and name, rewrites last, each with its outcomes."""
    known = {o.fault.name: (o.fault.equivalent, o.known.objective.name) for o in outcomes}
    for name in sorted(known, key=lambda name: (*known[name], name)):
        mine = [outcome for outcome in outcomes if outcome.fault.name == name]
        yield name, sorted(mine, key=lambda outcome: outcome.framework)


def render_faults(outcomes: Sequence[Outcome], image: Image = "svg") -> bytes:
    """Draws the matrix of planted faults with its key and its sum.

    Args:
        outcomes: what the gate said of each planted fault; at least one.
        image: svg, or png to look at.

    Returns:
        The file's content. Same outcomes in whatever order, same bytes.

    Raises:
        ValueError: there are no outcomes.
    """
    if not outcomes:
        raise ValueError("outcomes: got none; expected at least one planted fault")
    return paint(lambda: _figure(outcomes), image, "Planted faults", _words(outcomes))


def _summary(outcomes: Sequence[Outcome]) -> str:
    bugs = [outcome for outcome in outcomes if not outcome.fault.equivalent]
    rewrites = [outcome for outcome in outcomes if outcome.fault.equivalent]
    alarms = sum(outcome.report.verdict != "match" for outcome in rewrites)
    return (
        f"{sum(bug.caught for bug in bugs)} of {len(bugs)} planted bugs caught; "
        f"{alarms} alarms in {len(rewrites)} rewrites that are no bugs (in italics)"
    )


def _words(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield _summary(outcomes)
    for name, mine in _rows(outcomes):
        seen = (
            f"in {NAMES.get(o.framework, o.framework)} by {', '.join(o.layers) or 'no layer'}"
            for o in mine
        )
        expected = "as expected" if all(o.as_expected for o in mine) else "not as expected"
        yield f"{name}: seen {'; '.join(seen)}; {expected}"


def _figure(outcomes: Sequence[Outcome]) -> Figure:
    rows = len(list(_rows(outcomes)))
    high = (_HEADER + rows * _ROW + 4) / 72
    down = SIZES["header"] + 0.3 + high + SIZES["footer"]
    figure = Figure(figsize=(SIZES["width"], down))
    heading(figure, "Planted faults: who saw them", _summary(outcomes))
    across = SIZES["width"] - 2 * SIZES["right"]
    key = place(figure, SIZES["right"], SIZES["header"], across, 0.25)
    key.set(xlim=(0, across * 72), ylim=(18, 0))
    key.set_axis_off()
    left = 6.0
    keys = [(fill, f"seen in {NAMES.get(name, name)}") for fill, name in _key(outcomes)]
    for fill, words in (*keys, ("none", "not seen by this layer")):
        _squares(key, [(left, 8)], fill, words)
        key.text(left + 9, 11, words, fontsize=_SIZE, color=MUTED)
        left += 9 + width(words, _SIZE) + 22
    draw_faults(place(figure, SIZES["right"], SIZES["header"] + 0.3, across, high), outcomes)
    return figure


def _key(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str]]:
    for number, framework in enumerate(_frameworks(outcomes)):
        yield _FILLS[number % 2], framework
