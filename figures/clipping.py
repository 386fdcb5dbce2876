"""The clipped surrogate for both signs of the advantage, and where a run's samples lie on it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import NDArray

from parity.figures.canvas import Image, heading, label, paint, place
from parity.figures.style import BAND, COLOURS, INK, MUTED, NAMES, SIZES
from parity.figures.text import few_digits
from parity.gate import Case

__all__ = ["Clipped", "clipped", "draw_counts", "draw_surrogate", "render_clipping"]

Array = NDArray[np.float64]

_BINS = 120  # across the picture
_SIGNS = ((1, COLOURS[0], "-", "o", "A > 0"), (-1, COLOURS[3], (0, (4, 1.5)), "s", "A < 0"))


class Clipped(NamedTuple):
    """The sample-updates of one run.

    Attributes:
        name: lesson.
        implementation: whose run.
        clip: half-width ε of the interval.
        ratios: of policy to behaviour policy [sample-update].
        advantages: divided by the largest magnitude [sample-update].
    """

    name: str
    implementation: str
    clip: float
    ratios: Array
    advantages: Array

    def outside(self, sign: int) -> tuple[int, int, int]:
        """Counts the samples of a sign: all, below the interval, above it."""
        ratios = self.ratios[np.sign(self.advantages) == sign]
        low, high = 1 - self.clip, 1 + self.clip
        return len(ratios), int((ratios < low).sum()), int((ratios > high).sum())

    @property
    def limits(self) -> tuple[float, float]:
        """From where to where ratios are shown: three intervals, or more where samples are."""
        reach = float(np.abs(self.ratios - 1).max())
        reach = min(max(3 * self.clip, 1.1 * reach), 10 * self.clip)
        return max(0.0, 1 - reach), 1 + reach


def clipped(case: Case, implementation: str = "jax") -> Clipped:
    """Returns the sample-updates of a run.

    Args:
        case: a problem with PPO and everything that was computed for it.
        implementation: whose run.

    Raises:
        ValueError: the problem has no PPO.
    """
    if case.problem.ppo is None:
        raise ValueError(f"{case.problem.name}: got no ppo; expected a clipped objective")
    trace = case.traces[implementation]
    advantages = trace["ppo/advantages"].astype(np.float64).ravel()
    return Clipped(
        case.problem.name,
        implementation,
        case.problem.ppo.clip,
        trace["ppo/ratios"].astype(np.float64).ravel(),
        advantages / (np.abs(advantages).max() or 1.0),
    )


def draw_surrogate(axes: Axes, drawn: Clipped) -> Axes:
    """Draws min(ρA, clip(ρ)A) for A = ±1, the largest; and the samples, each at its own A.

    Args:
        axes: where to draw.
        drawn: what to draw.

    Returns:
        The same axes.
    """
    low, high = drawn.limits
    _interval(axes, drawn.clip, 0.88)
    _name_edges(axes, drawn.clip)
    edges = (1 - drawn.clip, 1 + drawn.clip)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    corners = np.array(sorted({low, *(e for e in edges if low < e < high), high}))
    columns = _columns(drawn)
    for sign, colour, dashes, marker, name in _SIGNS:
        curve = _surrogate(corners, sign, drawn.clip)
        axes.plot(corners, curve, color=colour, linestyle=dashes, label=name)
        mine = np.flatnonzero(np.sign(drawn.advantages) == sign)
        levels = np.round(drawn.advantages[mine] * 10)
        # of the samples of one bin and about one advantage, one is marked
        _, kept = np.unique(np.column_stack([columns[mine], levels]), axis=0, return_index=True)
        x = np.clip(drawn.ratios[mine][kept], low, high)
        axes.plot(
            x,
            _surrogate(x, drawn.advantages[mine][kept], drawn.clip),
            color=colour,
            linestyle="",
            marker=marker,
            markersize=3.2,
            markerfacecolor="none",
            label=f"samples, {name}",
        )
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top + 0.16 * (top - bottom))  # room for the key
    axes.set_xlim(low, high)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.02), ncols=4, borderpad=0.2)
    return label(axes, "ratio ρ", "min(ρA, clip(ρ)A), A in units of the largest |A|")


def _surrogate(ratios: Array, advantages: Array | float, clip: float) -> Array:
    return np.minimum(ratios * advantages, np.clip(ratios, 1 - clip, 1 + clip) * advantages)


def _columns(drawn: Clipped) -> NDArray[np.int64]:
    """Returns the bin of every sample; the outermost ones also hold what lies beyond."""
    low, high = drawn.limits
    columns = np.floor((drawn.ratios - low) / (high - low) * _BINS)
    return np.clip(columns, 0, _BINS - 1).astype(np.int64)


def _interval(axes: Axes, clip: float, top: float) -> None:
    """Marks the interval up to a share of the height; the rest is for the key."""
    edges = (1 - clip, 1 + clip)
    axes.axvspan(*edges, ymax=top, **BAND)
    for edge in edges:
        axes.axvline(edge, ymax=top, color=INK, linewidth=0.8)


def _name_edges(axes: Axes, clip: float) -> None:
    for edge, name in ((1 - clip, "1 − ε"), (1 + clip, "1 + ε")):
        axes.annotate(
            name,
            (edge, 0),
            (3, 3),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            fontsize=8,
        )


def draw_counts(axes: Axes, drawn: Clipped) -> Axes:
    """Draws how many samples have which ratio, log scale, for both signs.

    Args:
        axes: where to draw.
        drawn: what to draw.

    Returns:
        The same axes.
    """
    low, high = drawn.limits
    _interval(axes, drawn.clip, 0.76)
    columns = _columns(drawn)
    borders = np.linspace(low, high, _BINS + 1)
    tallest = 2
    for sign, colour, dashes, _, name in _SIGNS:
        counts = np.bincount(columns[np.sign(drawn.advantages) == sign], minlength=_BINS)
        tallest = max(tallest, int(counts.max()))
        total, below, above = drawn.outside(sign)
        axes.stairs(
            np.maximum(counts, 0.5),  # an empty bin lies on the floor
            borders,
            baseline=0.5,
            color=colour,
            linestyle=dashes,
            linewidth=1.2,
            label=f"{name}: {total:,} samples, {below:,} below the interval, {above:,} above",
        )
    label(axes, "ratio ρ", "samples per bin, log scale")
    axes.set(xlim=(low, high), yscale="log", ylim=(0.5, 0.5 * (2 * tallest) ** 1.36))
    axes.yaxis.set_major_locator(FixedLocator([10**p for p in range(len(str(tallest)))]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.02), borderpad=0.2)
    return axes


def render_clipping(case: Case, image: Image = "svg") -> bytes:
    """Draws the clipped surrogate with JAX's samples on it, and how many leave the interval.

    Args:
        case: a problem with PPO and everything that was computed for it.
        image: svg, or png to look at.

    Returns:
        The file's content. Same case, same bytes.

    Raises:
        ValueError: the problem has no PPO.
    """
    drawn = clipped(case)
    return paint(lambda: _figure(drawn), image, f"{drawn.name}: clipping", _words(drawn))


def _words(drawn: Clipped) -> Iterator[str]:
    yield (
        "For A > 0 the surrogate rises with the ratio and is level above 1 + ε; for A < 0 it is "
        f"level below 1 − ε and falls from there on; ε = {few_digits(drawn.clip)}"
    )
    for sign, *_, name in _SIGNS:
        total, below, above = drawn.outside(sign)
        yield f"{name}: {total} samples, {below} below the interval, {above} above"


def _figure(drawn: Clipped) -> Figure:
    inner = SIZES["width"] - SIZES["left"] - SIZES["right"]
    highs = (2.4, 1.7)
    rows = [SIZES["above_line"] + high + SIZES["below"] for high in highs]
    figure = Figure(figsize=(SIZES["width"], SIZES["header"] + sum(rows) + SIZES["footer"]))
    reach = "Ratios beyond the picture are counted in its outermost bins."
    whose = NAMES.get(drawn.implementation, drawn.implementation)
    heading(figure, drawn.name, f"{whose}'s samples, once per update. {reach}")
    top = SIZES["header"] + SIZES["above_line"]
    draw_surrogate(place(figure, SIZES["left"], top, inner, highs[0]), drawn)
    draw_counts(place(figure, SIZES["left"], top + rows[0], inner, highs[1]), drawn)
    return figure
