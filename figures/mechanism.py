"""The drawing of diagrams: tables, graphs, and the whole picture with the words around it."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from figures.canvas import Image, heading, paint, place, shortened
from figures.diagram import Diagram, Edge, GraphPanel, Node, TablePanel, Tone
from figures.document import Record
from figures.style import INK, MUTED, SIZES, TONES
from figures.text import width, wrap

__all__ = ["border", "draw_graph", "draw_table", "render_mechanism"]

_SIZE = 8.5  # points
_LINE = 1.3 * _SIZE  # from line to line
_PADDING = 5.0  # points between words and the edge of their box or cell
_LEGEND = 26.0  # points below a graph
_TITLE = 10.0


def draw_table(axes: Axes, panel: TablePanel) -> Axes:
    """Draws a table that fills its axes; cells wrap.

    Args:
        axes: where to draw; its width decides where words break.
        panel: what to draw.

    Returns:
        The same axes.
    """
    across, down = _canvas(axes)
    columns, cells = _cells(panel, across)
    heights = [_row_height(row) for row in cells]
    spare = max(0.0, down - sum(heights)) / len(heights)
    top = 0.0
    for number, (row, height) in enumerate(zip(cells, heights, strict=True)):
        height += spare
        if number % 2:
            stripe = Rectangle((0, top), across, height, facecolor=TONES["data"]["stripe"])
            axes.add_patch(stripe)
        left = 0.0
        for column, (room, lines) in enumerate(zip(columns, row, strict=True)):
            bold = number == 0 or column == 0
            _write(axes, left + _PADDING, top + height / 2, lines, align="left", bold=bold)
            left += room
        top += height
        weight, colour = (1.4, INK) if number == 0 else (0.8, "#CCCCCC")
        axes.plot([0, across], [top, top], linewidth=weight, color=colour)
    return axes


def _canvas(axes: Axes) -> tuple[float, float]:
    """Turns axes into a sheet counted in points from the upper left corner."""
    scale = 72 / axes.figure.dpi
    across, down = axes.bbox.width * scale, axes.bbox.height * scale
    axes.set(xlim=(0, across), ylim=(down, 0))
    axes.set_axis_off()
    return across, down


def _cells(panel: TablePanel, across: float) -> tuple[list[float], list[list[list[str]]]]:
    """Returns the width of each column, and the lines of each cell, headers first."""
    rows = [panel.headers, *panel.rows]
    whole, least = [], []
    for column in range(len(panel.headers)):
        texts = [(row[column], number == 0 or column == 0) for number, row in enumerate(rows)]
        whole.append(max(width(text, _SIZE, bold=bold) for text, bold in texts))
        words = [(word, bold) for text, bold in texts for word in text.split()]
        least.append(max((width(word, _SIZE, bold=bold) for word, bold in words), default=0.0))
    padding = 2 * _PADDING * len(whole)
    spare = across - padding - sum(least)
    wanted = sum(whole) - sum(least)
    if spare <= 0:  # words have to break
        columns = [(across - padding) * part / (sum(least) or 1) for part in least]
    else:  # every column takes its longest word, and of the rest what it would like to
        columns = [
            part + spare * ((full - part) / wanted if wanted else 1 / len(whole))
            for part, full in zip(least, whole, strict=True)
        ]
    cells = [
        [
            wrap(text, columns[column], _SIZE, bold=number == 0 or column == 0)
            for column, text in enumerate(row)
        ]
        for number, row in enumerate(rows)
    ]
    return [column + 2 * _PADDING for column in columns], cells


def _row_height(row: Sequence[Sequence[str]]) -> float:
    return max(map(len, row)) * _LINE + 2 * _PADDING


def draw_graph(axes: Axes, panel: GraphPanel) -> Axes:
    """Draws boxes, arrows from border to border, and below them what the tones mean.

    Args:
        axes: where to draw; the last 26 points of its height are for the tones.
        panel: what to draw.

    Returns:
        The same axes.
    """
    across, down = _canvas(axes)
    scale = (across / panel.width, (down - _LEGEND) / panel.height)
    places = {node.id: node for node in panel.nodes}
    for edge in panel.edges:
        start, end = _ends(edge, places)
        axes.add_patch(
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
        _write(axes, *middle, _fitted(node.label, wide, high), align="center")
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
    axes.add_patch(Rectangle((left, top), wide, high, facecolor=style["face"], **line))
    if style["inner"]:
        inner = style["inner"]
        corner = (left + inner, top + inner)
        sides = (wide - 2 * inner, high - 2 * inner)
        axes.add_patch(Rectangle(corner, *sides, fill=False, **line))


def _fitted(label: str, wide: float, high: float) -> list[str]:
    """Wraps a label into its box; what has no room there ends in …."""
    room = wide - 2 * _PADDING
    lines = wrap(label, room, _SIZE)
    most = max(1, int((high - _PADDING) / _LINE))
    if len(lines) > most:
        lines = [*lines[: most - 1], shortened(" ".join(lines[most - 1 :]), room, _SIZE)]
    return lines


def _write(
    axes: Axes, x: float, y: float, lines: Sequence[str], *, align: str, bold: bool = False
) -> None:
    """Writes lines one below the other, together centred at y."""
    weight = "bold" if bold else "normal"
    first = y - (len(lines) - 1) * _LINE / 2 + 0.36 * _SIZE  # capitals are 0.73 high
    for number, line in enumerate(lines):
        at = first + number * _LINE
        axes.text(x, at, line, ha=align, va="baseline", fontsize=_SIZE, fontweight=weight)


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
        The file's content. Same diagram, same bytes, as long as `figures.style.renderer_hash` is
        the same.

    Raises:
        ValueError: the document has no diagram.
    """
    diagram = record.diagram
    if diagram is None:
        raise ValueError(f"{record.lesson_id}: got no diagram; expected one to draw")
    return paint(
        lambda: _figure(record.lesson_id, diagram),
        image,
        f"{record.lesson_id}: {diagram.title}",
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
    question = wrap(f"Predict first: {diagram.prediction}", 72 * across, _SIZE)
    reading = wrap(diagram.reading, 72 * across, _SIZE)
    above = (len(title) * 1.3 * _TITLE + len(question) * _LINE + 16) / 72
    below = (len(reading) * _LINE + 12) / 72
    words = SIZES["header"] + above + below + SIZES["footer"]
    panel = diagram.panel
    least = 1.0
    if isinstance(panel, TablePanel):
        _, cells = _cells(panel, 72 * across)
        least = sum(map(_row_height, cells)) / 72
    down = max(diagram.height, words + least)
    figure = Figure(figsize=(SIZES["width"], down))
    heading(figure, name, diagram.scope)
    top = SIZES["header"]
    for lines, size, weight in ((title, _TITLE, "bold"), (question, _SIZE, "normal")):
        top = _paragraph(figure, lines, top, size, weight) + 2 / 72
    axes = place(figure, SIZES["right"], top + 10 / 72, across, down - words)
    if isinstance(panel, TablePanel):
        draw_table(axes, panel)
    else:
        draw_graph(axes, panel)
    _paragraph(figure, reading, down - SIZES["footer"] - below + 8 / 72, _SIZE, "normal")
    return figure


def _paragraph(figure: Figure, lines: Sequence[str], top: float, size: float, weight: str) -> float:
    """Writes lines from the given inch on and returns the inch below them."""
    across, down = figure.get_size_inches()
    for line in lines:
        top += 1.3 * size / 72
        at = (SIZES["right"] / across, 1 - top / down)
        figure.text(*at, line, fontsize=size, fontweight=weight)
    return top
