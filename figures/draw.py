"""The drawing of a record: panels on axes, and the whole figure as SVG or PNG."""

from collections.abc import Iterator, Sequence
from itertools import chain, count

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from parity.figures.canvas import STEPS, Image, heading, label, paint
from parity.figures.document import Record
from parity.figures.panels import BarPanel, LinePanel, Panel
from parity.figures.style import COLOURS, MUTED, NAMES, SIZES
from parity.figures.text import few_digits

__all__ = ["draw_bar", "draw_line", "render"]

_GROUP = 0.64  # width of a group of bars; groups are 1 apart
_SMALL = 8  # points, as the tick labels
_EM = 0.58  # width of DejaVu Sans' average character, in font sizes


def draw_line(axes: Axes, panel: LinePanel) -> Axes:
    """Draws the curves of a panel.

    Args:
        axes: where to draw.
        panel: what to draw.

    Returns:
        The same axes.
    """
    marker = "o" if len(panel.x) == 1 else ""  # a curve through one point is invisible
    for series, colour in zip(panel.series, _colours(panel), strict=True):
        axes.plot(series.x, series.y, color=colour, marker=marker, label=series.label)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=STEPS, integer=True, min_n_ticks=1))
    axes.margins(x=0.02)
    if len(panel.series) > 1:
        axes.legend(loc="best")
    return label(axes, panel.xlabel, panel.ylabel)


def draw_bar(axes: Axes, panel: BarPanel) -> Axes:
    """Draws the groups of bars of a panel; where they are many, only some carry their names.

    Args:
        axes: where to draw; its width decides which names and numbers fit.
        panel: what to draw.

    Returns:
        The same axes.
    """
    groups, width = len(panel.x), _GROUP / len(panel.series)
    spacing = axes.bbox.width / axes.figure.dpi * 72 / groups  # points from group to group
    for number, (series, colour) in enumerate(zip(panel.series, _colours(panel), strict=True)):
        left = np.asarray(panel.x) - _GROUP / 2 + number * width
        heights = np.full(2 * groups - 1, np.nan)  # NaN leaves the gaps in one outline of all bars
        heights[::2] = series.y
        edges = np.column_stack([left, left + width]).ravel()
        axes.stairs(heights, edges, fill=True, color=colour, label=series.label)
        _write_values(axes, (left + width / 2).tolist(), series.y, spacing * width)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    step, names = _thin(panel.labels, spacing)
    axes.set_xticks(panel.x[::step], names)
    axes.tick_params(axis="x", length=0)
    gap = max(0.6, 0.02 * groups)
    axes.set_xlim(panel.x[0] - gap, panel.x[-1] + gap)
    axes.margins(y=0.14)  # room for the values
    axes.yaxis.set_major_formatter(lambda value, _: few_digits(value, 6))
    axes.set_title(panel.title, loc="left", y=1.0, pad=19)
    if len(panel.series) > 1:
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=len(panel.series), borderpad=0.2
        )
    return label(axes, panel.xlabel, panel.ylabel)


def _colours(panel: Panel) -> Iterator[str]:
    """Returns a colour per series; the last series is the trained one, always in the first."""
    last = len(panel.series) - 1
    return (COLOURS[(last - number) % len(COLOURS)] for number in range(last + 1))


def _room(points: float) -> int:
    """Returns how many characters of small text fit, one of them for the gap to the next text."""
    return int(points / (_EM * _SMALL)) - 1


def _write_values(axes: Axes, centres: Sequence[float], y: Sequence[float], width: float) -> None:
    """Writes each value at the end of its bar, if all of them fit side by side."""
    texts = [few_digits(value) for value in y]
    if max(map(len, texts)) > _room(width):
        return
    for x, value, text in zip(centres, y, texts, strict=True):
        upwards = value >= 0
        axes.annotate(
            text,
            (x, value),
            (0, 2 if upwards else -2),
            textcoords="offset points",
            ha="center",
            va="bottom" if upwards else "top",
            fontsize=_SMALL,
        )


def _thin(labels: Sequence[str], spacing: float) -> tuple[int, list[str]]:
    """Returns every how many labels to show one, and those: on one line, else folded into two."""
    folded = [_fold(label) for label in labels]
    for step in (unit * 10**power for power in count() for unit in (1, 2, 5)):
        room = _room(step * spacing)
        if max(map(len, labels)) <= room:
            return step, list(labels[::step])
        if step >= len(labels) or all(len(line) <= room for pair in folded for line in pair):
            break
    return step, ["\n".join(pair) for pair in folded[::step]]


def _fold(label: str) -> tuple[str, ...]:
    """Breaks a label at the space nearest to its middle, if it has one."""
    spaces = [place for place, character in enumerate(label) if character == " "]
    if not spaces:
        return (label,)
    middle = min(spaces, key=lambda place: abs(2 * place - len(label)))
    return label[:middle], label[middle + 1 :]


def render(record: Record, image: Image = "svg") -> bytes:
    """Draws a record: curves side by side, bars below them, the verdict at the foot.

    Args:
        record: what to draw.
        image: svg, or png to look at.

    Returns:
        The file's content. Same record, same bytes, as long as
        `parity.figures.style.renderer_hash` is the same.
    """
    sentences = [*chain.from_iterable(map(_sentences, record.data.panels)), _footer(record)]
    return paint(lambda: _figure(record), image, record.lesson_id, sentences)


def _figure(record: Record) -> Figure:
    """Places every panel by hand, in inches: a layout engine would draw everything twice."""
    rows = list(_rows(record.data.panels))
    above = [SIZES["above_bar" if isinstance(row[0], BarPanel) else "above_line"] for row in rows]
    heights = [top + SIZES["axes"] + SIZES["below"] for top in above]
    width, height = SIZES["width"], SIZES["header"] + sum(heights) + SIZES["footer"]
    figure = Figure(figsize=(width, height))
    top = height - SIZES["header"]
    for row, space, used in zip(rows, above, heights, strict=True):
        column = width / len(row)
        for number, panel in enumerate(row):
            bottom = top - space - SIZES["axes"]
            inner = column - SIZES["left"] - SIZES["right"]
            left = number * column + SIZES["left"]
            axes = figure.add_axes(
                (left / width, bottom / height, inner / width, SIZES["axes"] / height)
            )
            if isinstance(panel, LinePanel):
                draw_line(axes, panel)
            else:
                draw_bar(axes, panel)
        top -= used
    heading(figure, record.lesson_id, _footer(record))
    return figure


def _rows(panels: Sequence[Panel]) -> Iterator[list[Panel]]:
    """Yields rows: up to two curves side by side, bars alone."""
    row: list[Panel] = []
    for panel in panels:
        if row and (len(row) == 2 or isinstance(panel, BarPanel) or isinstance(row[0], BarPanel)):
            yield row
            row = []
        row.append(panel)
    yield row


def _footer(record: Record) -> str:
    parity = record.parity
    largest = max(panel.largest_difference for panel in parity.panels)
    names = [NAMES.get(name, name) for name in (parity.reference, parity.other)]
    return (
        f"{names[0]} and {names[1]} agree: largest difference {largest:.2g} · "
        f"report {parity.report_digest[:8]}"
    )


def _sentences(panel: Panel) -> Iterator[str]:
    if isinstance(panel, LinePanel):
        for curve in panel.series:
            yield (
                f"Curve: {panel.ylabel}, {curve.label}: from {curve.y[0]:.4g} to "
                f"{curve.y[-1]:.4g} while {panel.xlabel} goes from {curve.x[0]} to {curve.x[-1]}"
            )
    else:
        yield f"Bars: {panel.title}: {panel.ylabel} by {panel.xlabel}"
        for series in panel.series:
            values = zip(panel.labels, series.y, strict=True)
            yield f"{series.label}: " + ", ".join(f"{label} {y:.4g}" for label, y in values)
