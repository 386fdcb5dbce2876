"""States made of others: with built-in constants, of fewer samples, or as a run recorded them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.arithmetic import operations as op
from parity.lessons.probes import KINK_DISTANCE, kink_distance
from parity.objectives import Objective, find
from parity.points import Points
from parity.problem import Problem
from parity.samples import Samples
from parity.trace import Quantity, Trace

__all__ = ["normalised", "recorded_points", "reduced", "selected", "with_constants", "within"]

MANY = 32  # parts of one state


def selected(points: Points, which: NDArray[Any]) -> Points:
    """Some of the points."""
    return Points(
        points.objective,
        points.grid,
        tuple(points.labels[i] for i in which),
        {name: values[which] for name, values in points.inputs.items()},
    )


def within(points: Points, ranges: Mapping[str, tuple[float, float]]) -> Points:
    """The points at which inputs lie in [low, high); there may be none."""
    inside = np.ones(len(points.labels), bool)
    for name, (low, high) in ranges.items():
        inside &= (points.inputs[name] >= low) & (points.inputs[name] < high)
    return selected(points, np.flatnonzero(inside))


def normalised(points: Points) -> Points:
    """The points with log-probs whose probabilities sum to 1 in float64 too.

    Rounded to float32 they do so nearly; a function that takes them for logits, as
    `Categorical(logits=reference)` does, would differ in float64 by what is missing.
    """
    inputs = dict(points.inputs)
    for each in find(points.objective).inputs:
        if each.normalised:
            inputs[each.name] = op.log_softmax(inputs[each.name], axis=1)
    return Points(points.objective, points.grid, points.labels, inputs)


def with_constants(points: Points, constants: Mapping[str, float], dtype: str) -> Points:
    """The points with constants set everywhere, less those that this puts on a kink.

    A function that has them built in rounds them to the dtype in which it computes.
    """
    if not constants:
        return points
    inputs = dict(points.inputs)
    for name, value in constants.items():
        inputs[name] = np.full_like(inputs[name], np.dtype(dtype).type(value))
    changed = Points(points.objective, points.grid, points.labels, inputs)
    apart = kink_distance(changed, find(points.objective)) > KINK_DISTANCE
    return selected(changed, np.flatnonzero(apart))


def reduced(points: Points, size: int) -> Points:
    """The same states, of `size` of their samples or pairs at a time."""
    objective = find(points.objective)
    axes, word = objective.axes, objective.counted
    total = points.sizes[word]
    groups = [list(range(at, at + size)) for at in range(0, total - size + 1, size)][:MANY]
    labels: list[str] = []
    inputs: dict[str, list[NDArray[Any]]] = {name: [] for name in axes}
    for i, label in enumerate(points.labels):
        for group in groups:
            labels.append(f"{label}; only {word} {' and '.join(map(str, group))}")
            for name, values in points.inputs.items():
                part = values[i]
                if word in axes[name]:
                    part = np.take(part, group, axis=axes[name].index(word))
                inputs[name].append(part)
    stacked = {name: np.stack(values) for name, values in inputs.items()}
    words = f"one {word}" if size == 1 else f"{size} {word}s"
    return Points(points.objective, words, tuple(labels), stacked)


def recorded_points(
    problem: Problem, objective: Objective, run: Trace, samples: Samples | None
) -> tuple[Points, Trace]:
    """Every update of a run as a state of its own, and what the run computed there.

    Args:
        problem: what was trained.
        objective: which of its parts.
        run: its trace.
        samples: the tape that it replayed.

    Raises:
        KeyError: the run lacks a quantity.
    """
    training = objective.training
    assert training is not None
    table = getattr(problem, objective.name)
    given, depth = training.given(table), len(training.loops)

    def rows(name: str) -> NDArray[Any]:
        array = run[f"{objective.name}/{name}"]
        return array.reshape(-1, *array.shape[depth:])

    moved = objective.parameter
    after = rows(moved)
    states = {moved: np.concatenate([np.asarray([given[moved]], after.dtype), after[:-1]])}
    count = len(after)
    for value in (*training.carried, *training.collected):
        if value.name in objective.axes:
            states[value.name] = rows(value.name)
    if training.tape:
        assert samples is not None
        repeats = count // len(samples.actions)
        states[training.tape] = samples.actions.repeat(repeats, axis=0)
    inputs = {}
    for each in objective.inputs:
        integer = each.role == "index"
        if each.name not in states:
            constant = np.asarray(given[each.name], np.int64 if integer else run.dtype)
            states[each.name] = np.broadcast_to(constant, (count, *constant.shape))
        inputs[each.name] = np.array(states[each.name], np.int64 if integer else np.float64)
    values = {}
    for declared in objective.at_points:
        if declared.name not in run:  # a user's function reports no parts
            continue
        array = run[declared.name]
        flat = array.reshape(count, *array.shape[depth:])
        values[declared.name] = Quantity(declared.name, declared.axes, declared.kind, flat)
    labels = tuple(
        ", ".join(f"{axis} {i}" for axis, i in zip(training.loops, index, strict=True))
        for index in np.ndindex(*run[f"{objective.name}/{moved}"].shape[:depth])
    )
    flat_run = Trace(run.implementation, run.dtype, values, environment=run.environment)
    return Points(objective.name, "run", labels, inputs), flat_run
