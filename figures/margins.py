"""How near each step comes to its allowance, in the mode in which nothing compounds."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from parity.arithmetic.measure import Expected
from parity.figures.canvas import STEPS, Image, heading, label, paint, place
from parity.figures.style import INK, NAMES, SIZES, SKETCHES
from parity.figures.text import few_digits
from parity.gate import Case
from parity.quantities import Declared, expected
from parity.trace import Trace

__all__ = ["Margins", "draw_margins", "margins", "render_margins"]

FLOOR = 1e-3  # of the allowance; what is nearer is drawn there


class Margins(NamedTuple):
    """How near one implementation comes to its allowance at each step of one objective.

    Attributes:
        ratios: largest difference over allowance, of all quantities [update]; infinite for NaN.
        worst: the quantity that comes nearest of all.
    """

    ratios: NDArray[np.float64]
    worst: str

    @property
    def largest(self) -> float:
        """The largest of the ratios."""
        return float(self.ratios.max())


def margins(case: Case) -> dict[str, dict[str, Margins]]:
    """Returns the margins in step mode: objective to implementation to its margins.

    A quantity without a step of its own counts at the update after which it is taken. An
    implementation that could not be re-derived is left out.

    Args:
        case: a problem and everything that was computed for it.
    """
    specs = [spec for spec in expected(case.problem) if not spec.integer]
    found: dict[str, dict[str, Margins]] = {}
    for objective in dict.fromkeys(spec.objective for spec in specs):
        mine = [spec for spec in specs if spec.objective == objective]
        given: Any = getattr(case.problem, objective)
        epochs = getattr(given, "epochs", 1)
        updates = given.rollouts * epochs if hasattr(given, "rollouts") else given.updates
        found[objective] = {
            name: _margins(mine, trace, derived, updates, epochs)
            for name, trace in case.traces.items()
            if (derived := case.steps[name]) is not None
        }
    return found


def _margins(
    specs: list[Declared], trace: Trace, derived: Expected, updates: int, epochs: int
) -> Margins:
    ratios, worst, largest = np.zeros(updates), specs[0].name, -1.0
    for spec in specs:
        values = trace[spec.name].astype(np.float64)
        exact, allowed = derived.values[spec.name], derived.allowed[spec.name]
        with np.errstate(invalid="ignore", divide="ignore"):
            entries = np.where(values == exact, 0.0, np.abs(values - exact) / allowed)
        entries[np.isnan(entries)] = np.inf
        steps = _steps(spec, entries.shape, epochs, updates)
        np.maximum.at(ratios, steps, entries)
        here = float(entries.max(initial=0.0))
        if here > largest:
            worst, largest = spec.name, here
    return Margins(ratios, worst)


def _steps(spec: Declared, shape: tuple[int, ...], epochs: int, updates: int) -> NDArray[Any]:
    """Returns the update to which every entry of a quantity belongs."""
    at = dict(zip(spec.axes, np.indices(shape, sparse=True), strict=True))
    if "checkpoint" in at:
        steps = np.maximum(at["checkpoint"] * epochs - 1, 0)
    elif "rollout" in at:
        steps = at["rollout"] * epochs + at.get("epoch", np.zeros(1, np.int64))
    else:
        steps = at.get("update", np.full(1, updates - 1))
    return np.broadcast_to(steps, shape)


def draw_margins(axes: Axes, objective: str, found: Mapping[str, Margins]) -> Axes:
    """Draws the ratio of every step to its allowance, and the limit.

    Args:
        axes: where to draw.
        objective: reward, ppo, dpo or reinforce.
        found: implementation to its margins.

    Returns:
        The same axes.
    """
    top = max((m.largest for m in found.values()), default=1.0)
    top = max(1.0, min(top, 1e30))
    high = FLOOR * (top / FLOOR) ** (4 / 3)  # a quarter of the height is for the key
    axes.axhline(1, color=INK, linewidth=1.2, linestyle=(0, (5, 2)))
    for number, (name, margin) in enumerate(found.items()):
        heights = np.clip(margin.ratios, FLOOR, high)
        axes.plot(
            np.arange(len(heights)),
            heights,
            label=(
                f"{NAMES.get(name, name)}: at most {few_digits(margin.largest, 2)} ({margin.worst})"
            ),
            marker="o" if len(heights) == 1 else "",
            **(SKETCHES[number % len(SKETCHES)] | {"linewidth": 1.3}),
        )
    label(axes, f"{_called(objective)} updates completed before the step", _YLABEL)
    axes.set(yscale="log", ylim=(FLOOR / 1.5, high))
    powers = [10.0**power for power in range(-3, int(np.log10(high)) + 1)]
    step = -(-len(powers) // 8)
    axes.yaxis.set_major_locator(FixedLocator(powers[3 % step :: step]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: few_digits(value))
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=STEPS, integer=True, min_n_ticks=1))
    axes.margins(x=0.02)
    axes.annotate(
        "limit",
        (1, 1),
        (-2, 3),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )
    if found:
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.02), ncols=1, borderpad=0.2)
    return axes


def _called(objective: str) -> str:
    return objective if objective == "reward" else objective.upper()


_YLABEL = "largest difference from the oracle / allowance"


def render_margins(case: Case, image: Image = "svg") -> bytes:
    """Draws the margins of every objective of a case, one below the other.

    Args:
        case: a problem and everything that was computed for it.
        image: svg, or png to look at.

    Returns:
        The file's content. Same case, same bytes.
    """
    found = margins(case)
    name = case.problem.name
    return paint(lambda: _figure(name, found), image, f"{name}: margins", _words(found))


def _words(found: Mapping[str, Mapping[str, Margins]]) -> Iterator[str]:
    for objective, everyone in found.items():
        for name, margin in everyone.items():
            yield (
                f"{_called(objective)}, {NAMES.get(name, name)}: over {len(margin.ratios)} steps "
                f"at most {few_digits(margin.largest, 2)} of the allowance, in {margin.worst}"
            )


def _figure(name: str, found: Mapping[str, Mapping[str, Margins]]) -> Figure:
    high = 2.0
    row = SIZES["above_line"] + high + SIZES["below"]
    down = SIZES["header"] + len(found) * row + SIZES["footer"]
    figure = Figure(figsize=(SIZES["width"], down))
    footer = f"Step mode: each step from its own start. Nearer than {FLOOR:g}: drawn at {FLOOR:g}."
    heading(figure, name, footer)
    inner = SIZES["width"] - SIZES["left"] - SIZES["right"]
    for number, (objective, everyone) in enumerate(found.items()):
        top = SIZES["header"] + number * row + SIZES["above_line"]
        draw_margins(place(figure, SIZES["left"], top, inner, high), objective, everyone)
    return figure
