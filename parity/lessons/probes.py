"""The probe grid: points that reach every branch of every objective, and keep off the kinks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.objectives import Objective, built_in
from parity.objectives.evaluation import Scope, called, parameters
from parity.objectives.spec import Input, State
from parity.points import Points

__all__ = ["KINK_DISTANCE", "core", "drawn", "grid", "grid_of", "kink_distance", "stack"]

KINK_DISTANCE = 1e-5  # frameworks disagree at a clip's edges; the lesson's closest is 8e-5
SCALES = (0.1, 1.0, 4.0)  # of drawn inputs, from near-equal policies to peaked ones
EXTREME = 1000.0  # what a drawn core multiplies one input by
FAR = (7, 2)
SIZES = ((2, 1), FAR, (128, 1000))  # of the other axes, and of the counted one
CORE = (3, 4)
COUNT = 6  # states drawn of each size
_TRIES = 100


def kink_distance(points: Points, objective: Objective) -> NDArray[np.float64]:
    """How near each point comes to where the derivative jumps; infinite where it nowhere does."""
    if objective.kinks is None:
        return np.full(len(points.labels), np.inf)
    given = {name: np.moveaxis(values, 0, -1) for name, values in points.inputs.items()}
    distance = np.asarray(called(objective.kinks, Scope(objective, given)))
    nearest: NDArray[np.float64] = distance.reshape(-1, distance.shape[-1]).min(0)
    return nearest


def stack(objective: Objective, name: str, states: Sequence[State], locator: str = "") -> Points:
    """Stacks states of one shape; floats are rounded to float32 first.

    Args:
        objective: of the states.
        name: of the stack.
        states: labels and inputs.
        locator: where a user declares the objective; its name when left out.

    Raises:
        ValueError: a state lies on a kink.
    """
    inputs = {}
    for each in objective.inputs:
        array = np.stack([np.asarray(state[each.name]) for _, state in states])
        integer = each.role == "index"
        kind = np.int64 if integer else np.float32
        inputs[each.name] = array.astype(kind).astype(np.int64 if integer else np.float64)
    labels = tuple(label for label, _ in states)
    points = Points(locator or objective.name, name, labels, inputs)
    if (kink_distance(points, objective) <= KINK_DISTANCE).any():
        raise ValueError(f"{name}: a point lies within {KINK_DISTANCE} of a kink")
    return points


class _Drawn:
    """Inputs by name, each drawn when it is first asked for, and quantities made of them."""

    def __init__(
        self,
        objective: Objective,
        sizes: Mapping[str, int],
        random: np.random.Generator,
        scale: float,
        fixed: Mapping[str, Any],
    ) -> None:
        self._objective, self._sizes, self._random = objective, sizes, random
        self.scale, self.state = scale, dict(fixed)

    def __getitem__(self, name: str) -> Any:
        if name in self.state:
            return self.state[name]
        each = self._objective.by_input.get(name)
        if each is None:  # a quantity: of the inputs that it depends on
            definition = self._objective.definitions[name].of
            return definition(**{n: self[n] for n in parameters(definition)})
        shape = tuple(self._sizes[axis] for axis in each.axes)
        own: dict[str, Any] = {"random": self._random, "shape": shape, "scale": self.scale}
        if each.draw is None:
            self.state[name] = _plainly(each, self._sizes, **own)
        else:
            wanted = parameters(each.draw)
            self.state[name] = each.draw(**{n: own[n] if n in own else self[n] for n in wanted})
        return self.state[name]


def _plainly(
    each: Input, sizes: Mapping[str, int], random: Any, shape: tuple[int, ...], scale: float
) -> Any:
    if each.role == "index":
        return random.integers(sizes[each.of], size=shape)
    if each.role == "constant" and np.isfinite([each.low, each.high]).all():
        return random.uniform(each.low, each.high, size=shape)
    if each.role == "constant":
        return np.clip(random.choice([0.05, 0.3, 1.5], size=shape), each.low, each.high)
    return np.clip(random.normal(size=shape) * scale, each.low, each.high)


def drawn(
    objective: Objective,
    sizes: Mapping[str, int],
    random: np.random.Generator,
    scale: float,
    fixed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One random state that keeps off the kinks.

    Args:
        objective: whose inputs are drawn.
        sizes: length of every axis.
        random: the dice.
        scale: of what is drawn around 0.
        fixed: inputs that are not drawn.

    Raises:
        ValueError: a hundred states in a row lay on a kink.
    """
    for _ in range(_TRIES):
        draw = _Drawn(objective, sizes, random, scale, fixed or {})
        state = {name: draw[name] for name in objective.axes}
        try:
            stack(objective, "candidate", [("", state)])
        except ValueError:
            continue
        return state
    raise ValueError(f"{objective.name}: {_TRIES} drawn states in a row lay on a kink")


def _sizes(objective: Objective, wide: int, long: int) -> dict[str, int]:
    axes = {axis for each in objective.inputs for axis in each.axes}
    return {axis: long if axis == objective.counted else wide for axis in axes}


def _random(objective: Objective, wide: int, long: int) -> list[State]:
    random = np.random.default_rng([wide, long])
    sizes = _sizes(objective, wide, long)
    shown = ", ".join(f"{length} {axis}s" for axis, length in sorted(sizes.items()))
    return [
        (f"{shown}, scale {scale}", drawn(objective, sizes, random, scale))
        for scale in (SCALES * COUNT)[:COUNT]
    ]


def _drawn_core(objective: Objective) -> list[State]:
    """Where nobody picked states by hand: ordinary ones, and every input at its extremes."""
    random, sizes = np.random.default_rng(CORE), _sizes(objective, *CORE)
    states = _random(objective, *CORE)
    for each in objective.inputs:
        if each.role == "index":
            continue
        shape = tuple(sizes[axis] for axis in each.axes)
        ends = [end for end in (each.low, each.high) if np.isfinite(end)]
        if each.role != "constant":
            base = drawn(objective, sizes, random, 1.0)[each.name]
            states += [
                (
                    f"{each.name} times {factor:g}",
                    drawn(
                        objective,
                        sizes,
                        random,
                        1.0,
                        {each.name: np.clip(base * factor, each.low, each.high)},
                    ),
                )
                for factor in (30.0, -30.0, EXTREME, -EXTREME)
            ]
            ends = [*ends, 0.0]
        states += [
            (
                f"{each.name} {end:g}",
                drawn(objective, sizes, random, 1.0, {each.name: np.full(shape, end)}),
            )
            for end in ends
        ]
    return states


def core(objective: Objective, locator: str = "") -> Points:
    """The small part of the grid that already covers every branch: one shape."""
    states = objective.core() if objective.core else _drawn_core(objective)
    return stack(objective, "core", states, locator)


def grid_of(objective: Objective, locator: str = "") -> list[Points]:
    """The whole grid of an objective: the core, random states of several sizes, extreme ones."""
    stacks = [core(objective, locator)]
    for wide, long in SIZES:
        states = _random(objective, wide, long)
        if objective.far and (wide, long) == FAR:  # a stack of their own would be one more shape
            states += objective.far()
        stacks.append(stack(objective, f"{wide} x {long}", states, locator))
    return stacks


def grid(objectives: Iterable[Objective] | None = None) -> list[Points]:
    """The whole grid, of all built-in objectives or of some: the cores first."""
    every = [grid_of(each) for each in objectives or built_in().values()]
    return [stacks[0] for stacks in every] + [each for stacks in every for each in stacks[1:]]
