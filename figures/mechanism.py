"""The drawing of diagrams: graphs, and the whole picture with the words around it."""

from collections.abc import Iterator, Sequence
from functools import cache

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from parity.figures.canvas import Image, heading, paint, place, shortened
from parity.figures.diagram import Diagram, Edge, GraphPanel, Node, TablePanel, Tone
from parity.figures.document import Record
from parity.figures.style import INK, MUTED, SIZES, TONES
from parity.figures.table import LINE, PADDING, SIZE, draw_table, sheet, table_height, write
from parity.figures.text import width, wrap

__all__ = ["border", "draw_graph", "draw_mechanism", "render_mechanism"]

_LEGEND = 26.0  # points below a graph
_TITLE = 10.0


def draw_graph(axes: Axes, panel: GraphPanel) -> Axes:
    """Draws boxes, arrows from border to border, and below them what the tones mean.

    Args:
        axes: where to draw; the last 26 points of its height are for the tones.
        panel: what to draw.

    Returns:
        The same axes.
    """
    across, down = sheet(axes)
    scale = (across / panel.width, (down - _LEGEND) / panel.height)
    places = {node.id: node for node in panel.nodes}
    for edge in panel.edges:
        start, end = _ends(edge, places)
        axes.add_artist(
            FancyArrowPatch(
                (start[0] * scale[0], start[1] * scale[1]),
                (end[0] * scale[0], end[1] * scale[1]),
                arrowstyle="-|>",
                mutation_scale=9,
                shrinkA=0,
                shrinkB=TONES[places[edge.target].tone]["weight"] / 2,  # up to the outline
                linewidth=1.1,
                color=INK,
            )
        )
    for node in panel.nodes:
        wide, high = node.w * scale[0], node.h * scale[1]
        middle = (node.x * scale[0], node.y * scale[1])
        _box(axes, node.tone, middle[0] - wide / 2, middle[1] - high / 2, wide, high)
        write(axes, *middle, _fitted(node.label, wide, high), align="center")
    _explain_tones(axes, panel, down - _LEGEND / 2)
    return axes


def border(node: Node, towards: Node) -> tuple[float, float]:
    """Returns where the straight line from a node's middle to another's leaves its box."""
    step = (towards.x - node.x, towards.y - node.y)
    share = min(
        half / abs(part) for half, part in zip((node.w / 2, node.h / 2), step, strict=True) if part
    )
    return node.x + share * step[0], node.y + share * step[1]


def _ends(edge: Edge, places: dict[str, Node]) -> tuple[tuple[float, float], tuple[float, float]]:
    source, target = places[edge.source], places[edge.target]
    return border(source, target), border(target, source)


def _box(axes: Axes, tone: Tone, left: float, top: float, wide: float, high: float) -> None:
    style = TONES[tone]
    line = {"edgecolor": style["edge"], "linestyle": style["line"]}
    line["linewidth"] = style["weight"]
    axes.add_artist(Rectangle((left, top), wide, high, facecolor=style["face"], **line))
    if style["inner"]:
        inner = style["inner"]
        corner = (left + inner, top + inner)
        sides = (wide - 2 * inner, high - 2 * inner)
        axes.add_artist(Rectangle(corner, *sides, fill=False, **line))


def _fitted(label: str, wide: float, high: float) -> list[str]:
    """Wraps a label into its box; what has no room there ends in …."""
    room = wide - 2 * PADDING
    lines = wrap(label, room, SIZE)
    most = max(1, int((high - PADDING) / LINE))
    if len(lines) > most:
        lines = [*lines[: most - 1], shortened(" ".join(lines[most - 1 :]), room, SIZE)]
    return lines


def _explain_tones(axes: Axes, panel: GraphPanel, middle: float) -> None:
    used = {node.tone for node in panel.nodes}
    left = 2.0
    for tone, style in TONES.items():
        if tone in used:
            _box(axes, tone, left, middle - 6, 20, 12)
            axes.text(left + 26, middle + 3, style["meaning"], fontsize=8, color=MUTED)
            left += 26 + width(style["meaning"], 8) + 14


def render_mechanism(record: Record, image: Image = "svg") -> bytes:
    """Draws the diagram of a record: question, picture, reading.

    Args:
        record: the document; it must have a diagram.
        image: svg, or png to look at.

    Returns:
        The file's content. Same diagram, same bytes, as long as
        `parity.figures.style.renderer_hash` is the same.

    Raises:
        ValueError: the document has no diagram.
    """
    diagram = record.diagram
    if diagram is None:
        raise ValueError(f"{record.lesson_id}: got no diagram; expected one to draw")
    return draw_mechanism(record.lesson_id, diagram, image)


@cache
def draw_mechanism(lesson: str, diagram: Diagram, image: Image = "svg") -> bytes:
    """Draws a diagram; it depends on no result, so that a run can draw it while it waits.

    Args:
        lesson: its name, the heading.
        diagram: what is drawn.
        image: svg, or png to look at.
    """
    return paint(
        lambda: _figure(lesson, diagram),
        image,
        f"{lesson}: {diagram.title}",
        _sentences(diagram),
    )


def _sentences(diagram: Diagram) -> Iterator[str]:
    yield diagram.alt
    panel = diagram.panel
    if isinstance(panel, TablePanel):
        for row in panel.rows:
            yield ", ".join(f"{h}: {cell}" for h, cell in zip(panel.headers, row, strict=True))
    else:
        labels = {node.id: " ".join(node.label.split()) for node in panel.nodes}
        for edge in panel.edges:
            yield f"Arrow from {labels[edge.source]} to {labels[edge.target]}"
    yield diagram.reading
    yield diagram.scope


def _figure(name: str, diagram: Diagram) -> Figure:
    across = SIZES["width"] - 2 * SIZES["right"]
    title = wrap(diagram.title, 72 * across, _TITLE, bold=True)
    question = wrap(f"Predict first: {diagram.prediction}", 72 * across, SIZE)
    reading = wrap(diagram.reading, 72 * across, SIZE)
    above = (len(title) * 1.3 * _TITLE + len(question) * LINE + 16) / 72
    below = (len(reading) * LINE + 12) / 72
    words = SIZES["header"] + above + below + SIZES["footer"]
    panel = diagram.panel
    least = 1.0
    if isinstance(panel, TablePanel):
        least = table_height(panel, 72 * across) / 72
    down = max(diagram.height, words + least)
    figure = Figure(figsize=(SIZES["width"], down))
    heading(figure, name, diagram.scope)
    top = SIZES["header"]
    for lines, size, weight in ((title, _TITLE, "bold"), (question, SIZE, "normal")):
        top = _paragraph(figure, lines, top, size, weight) + 2 / 72
    axes = place(figure, SIZES["right"], top + 10 / 72, across, down - words)
    if isinstance(panel, TablePanel):
        draw_table(axes, panel)
    else:
        draw_graph(axes, panel)
    _paragraph(figure, reading, down - SIZES["footer"] - below + 8 / 72, SIZE, "normal")
    return figure


def _paragraph(figure: Figure, lines: Sequence[str], top: float, size: float, weight: str) -> float:
    """Writes lines from the given inch on and returns the inch below them."""
    across, down = figure.get_size_inches()
    for line in lines:
        top += 1.3 * size / 72
        at = (SIZES["right"] / across, 1 - top / down)
        figure.text(*at, line, fontsize=size, fontweight=weight)
    return top
