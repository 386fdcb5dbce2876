"""Both frameworks over the oracle: the curves, and their distance from it inside the allowance."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from parity.figures.canvas import STEPS, Image, heading, label, paint, place
from parity.figures.panels import LinePanel, plan
from parity.figures.style import BAND, INK, NAMES, SIZES, SKETCHES
from parity.figures.text import few_digits
from parity.gate import Case

__all__ = ["Curve", "curves", "draw_curves", "draw_distances", "render_agreement"]

Array = NDArray[np.float64]


class Curve(NamedTuple):
    """One curve of a run, by everyone who computed it.

    Attributes:
        xlabel: what is counted.
        ylabel: what is shown.
        x: counts [point].
        oracle: the exact values [point].
        allowed: how far rounding may move each [point].
        others: implementation to its values [point].
    """

    xlabel: str
    ylabel: str
    x: Array
    oracle: Array
    allowed: Array
    others: dict[str, Array]


def curves(case: Case) -> Iterator[Curve]:
    """Yields the curves that the record of a case would show."""
    expected = case.trajectory
    for panel, sources in plan(case.problem):
        if isinstance(panel, LinePanel):
            for source in sources:
                yield Curve(
                    panel.xlabel.removesuffix(" when the loss was taken"),  # no room for it
                    panel.ylabel,
                    np.asarray(panel.x, np.float64),
                    source.values(expected.values).astype(np.float64),
                    source.allowance(expected.allowed, expected.values),
                    {
                        name: source.values(trace).astype(np.float64)
                        for name, trace in case.traces.items()
                    },
                )


def draw_curves(axes: Axes, curve: Curve) -> Axes:
    """Draws the oracle's curve, broad and grey, and the others on it.

    Args:
        axes: where to draw.
        curve: what to draw.

    Returns:
        The same axes.
    """
    marker = _marker(curve)
    axes.plot(curve.x, curve.oracle, color="#BBBBBB", linewidth=5, label="oracle", marker=marker)
    for number, (name, values) in enumerate(curve.others.items()):
        sketch = SKETCHES[number % len(SKETCHES)]
        axes.plot(curve.x, values, label=NAMES.get(name, name), marker=marker, **sketch)
    return _finish(axes, curve, curve.ylabel)


def draw_distances(axes: Axes, curve: Curve) -> Axes:
    """Draws the difference of each implementation from the oracle, in the band of the allowance.

    Args:
        axes: where to draw.
        curve: what to draw.

    Returns:
        The same axes.
    """
    x, band = curve.x, curve.allowed
    if len(x) == 1:  # a band over one point is invisible
        x, band = x + np.array([-0.3, 0.3]), np.repeat(band, 2)
    axes.fill_between(x, -band, band, label="allowance", **BAND)
    axes.axhline(0, color=INK, linewidth=0.8)
    marker = _marker(curve)
    for number, (name, values) in enumerate(curve.others.items()):
        sketch = SKETCHES[number % len(SKETCHES)]
        apart = values - curve.oracle
        axes.plot(curve.x, apart, label=NAMES.get(name, name), marker=marker, **sketch)
    return _finish(axes, curve, "difference from the oracle")


def _marker(curve: Curve) -> str:
    return "o" if len(curve.x) == 1 else ""  # a curve through one point is invisible


def _finish(axes: Axes, curve: Curve, ylabel: str) -> Axes:
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=STEPS, integer=True, min_n_ticks=1))
    axes.margins(x=0.02)
    return label(axes, curve.xlabel, ylabel)


def render_agreement(case: Case, image: Image = "svg") -> bytes:
    """Draws, for every curve of a case, the curve and the distances from the oracle.

    Args:
        case: a problem and everything that was computed for it.
        image: svg, or png to look at.

    Returns:
        The file's content. Same case, same bytes.
    """
    drawn = list(curves(case))
    name = case.problem.name
    return paint(
        lambda: _figure(name, drawn), image, f"{name}: agreement with the oracle", _words(drawn)
    )


def _words(drawn: list[Curve]) -> Iterator[str]:
    for curve in drawn:
        ends = [few_digits(float(value), 4) for value in curve.oracle[[0, -1]]]
        yield f"Curve: {curve.ylabel} over {curve.xlabel}: oracle from {ends[0]} to {ends[1]}"
        for other, values in curve.others.items():
            yield f"{NAMES.get(other, other)}: {_nearest(curve, values)}"


def _nearest(curve: Curve, values: Array) -> str:
    apart = np.abs(values - curve.oracle)
    ratios = np.divide(apart, curve.allowed, out=np.zeros_like(apart), where=apart != 0)
    worst = int(np.argmax(ratios))  # a NaN comes first
    return (
        f"at most {few_digits(float(ratios[worst]), 2)} of the allowance, "
        f"{few_digits(float(apart[worst]), 2)} after {curve.x[worst]:g}"
    )


def _figure(name: str, drawn: list[Curve]) -> Figure:
    row = SIZES["above_line"] + SIZES["axes"] + SIZES["below"]
    wide, inner = SIZES["width"], SIZES["width"] / 2 - SIZES["left"] - SIZES["right"]
    figure = Figure(figsize=(wide, SIZES["header"] + 0.3 + len(drawn) * row + SIZES["footer"]))
    heading(figure, name, "Right: exact values are 0; the band is what rounding is allowed.")
    for number, curve in enumerate(drawn):
        top = SIZES["header"] + 0.3 + number * row + SIZES["above_line"]
        left = draw_curves(place(figure, SIZES["left"], top, inner, SIZES["axes"]), curve)
        right = place(figure, wide / 2 + SIZES["left"], top, inner, SIZES["axes"])
        draw_distances(right, curve)
        if number == 0:
            _legend(figure, left, right)
    return figure


def _legend(figure: Figure, left: Axes, right: Axes) -> None:
    """Names everyone once, below the heading."""
    handles, names = left.get_legend_handles_labels()
    band, allowance = right.get_legend_handles_labels()
    figure.legend(
        [*handles, band[0]],
        [*names, allowance[0]],
        loc="upper left",
        bbox_to_anchor=(0.02, 1 - SIZES["header"] / figure.get_size_inches()[1]),
        ncols=len(handles) + 1,
        borderpad=0.2,
    )
