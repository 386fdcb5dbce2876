"""The drawing of tables, and the sheet of points on which diagrams are written."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from parity.figures.diagram import TablePanel
from parity.figures.style import INK, TONES
from parity.figures.text import width, wrap

__all__ = ["LINE", "PADDING", "SIZE", "draw_table", "sheet", "table_height", "write"]

SIZE = 8.5  # points
LINE = 1.3 * SIZE  # from line to line
PADDING = 5.0  # points between words and the edge of their box or cell


def draw_table(axes: Axes, panel: TablePanel) -> Axes:
    """Draws a table that fills its axes; cells wrap.

    Args:
        axes: where to draw; its width decides where words break.
        panel: what to draw.

    Returns:
        The same axes.
    """
    across, down = sheet(axes)
    columns, cells = _cells(panel, across)
    heights = [_row_height(row) for row in cells]
    spare = max(0.0, down - sum(heights)) / len(heights)
    top = 0.0
    for number, (row, height) in enumerate(zip(cells, heights, strict=True)):
        height += spare
        if number % 2:
            stripe = Rectangle((0, top), across, height, facecolor=TONES["data"]["stripe"])
            axes.add_artist(stripe)
        left = 0.0
        for column, (room, lines) in enumerate(zip(columns, row, strict=True)):
            bold = number == 0 or column == 0
            write(axes, left + PADDING, top + height / 2, lines, align="left", bold=bold)
            left += room
        top += height
        weight, colour = (1.4, INK) if number == 0 else (0.8, "#CCCCCC")
        axes.add_artist(Line2D([0, across], [top, top], linewidth=weight, color=colour))
    return axes


def sheet(axes: Axes) -> tuple[float, float]:
    """Turns axes into a sheet counted in points from the upper left corner."""
    scale = 72 / axes.figure.dpi
    across, down = axes.bbox.width * scale, axes.bbox.height * scale
    axes.set(xlim=(0, across), ylim=(down, 0))
    axes.set_axis_off()
    return across, down  # drawn with add_artist: add_patch and plot would measure what is known


def _cells(panel: TablePanel, across: float) -> tuple[list[float], list[list[list[str]]]]:
    """Returns the width of each column, and the lines of each cell, headers first."""
    rows = [panel.headers, *panel.rows]
    whole, least = [], []
    for column in range(len(panel.headers)):
        texts = [(row[column], number == 0 or column == 0) for number, row in enumerate(rows)]
        whole.append(max(width(text, SIZE, bold=bold) for text, bold in texts))
        words = [(word, bold) for text, bold in texts for word in text.split()]
        least.append(max((width(word, SIZE, bold=bold) for word, bold in words), default=0.0))
    padding = 2 * PADDING * len(whole)
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
            wrap(text, columns[column], SIZE, bold=number == 0 or column == 0)
            for column, text in enumerate(row)
        ]
        for number, row in enumerate(rows)
    ]
    return [column + 2 * PADDING for column in columns], cells


def table_height(panel: TablePanel, across: float) -> float:
    """Returns how many points a table of the given width needs downwards."""
    return sum(map(_row_height, _cells(panel, across)[1]))


def _row_height(row: Sequence[Sequence[str]]) -> float:
    return max(map(len, row)) * LINE + 2 * PADDING


def write(
    axes: Axes, x: float, y: float, lines: Sequence[str], *, align: str, bold: bool = False
) -> None:
    """Writes lines one below the other, together centred at y."""
    weight = "bold" if bold else "normal"
    first = y - (len(lines) - 1) * LINE / 2 + 0.36 * SIZE  # capitals are 0.73 high
    for number, line in enumerate(lines):
        at = first + number * LINE
        axes.text(x, at, line, ha=align, va="baseline", fontsize=SIZE, fontweight=weight)
