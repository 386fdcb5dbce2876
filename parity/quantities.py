"""What a trace must hold, and in what order it is computed, as the objectives declare it."""

from collections.abc import Mapping
from functools import cache

import numpy as np

from parity.objectives import built_in, find
from parity.objectives.spec import STEP_AXES, Declared, Kind
from parity.problem import Problem

__all__ = ["STEP_AXES", "Declared", "Kind", "Moment", "evaluated", "expected", "moment", "of_runs"]

Moment = tuple[int, ...]  # sorts like the computation does

_END = np.iinfo(np.int64).max  # later than any step


def expected(problem: Problem) -> dict[Declared, tuple[int, ...]]:
    """Returns what a run of the problem records: quantity to shape, in order of computation.

    `checkpoint` counts the states after each rollout and once before the first; values and
    gradients are taken before the update of their step, parameters after it.
    """
    shapes: dict[Declared, tuple[int, ...]] = {}
    for objective, training, table in problem.parts():
        sizes = dict(training.sizes(table))
        sizes["checkpoint"] = sizes[training.loops[0]] + 1
        shapes |= {q: tuple(sizes[axis] for axis in q.axes) for q in objective.in_a_run}
    return shapes


def evaluated(objective: str, sizes: Mapping[str, int]) -> dict[Declared, tuple[int, ...]]:
    """Returns what an evaluation of points records: quantity to shape, in order of computation.

    Args:
        objective: its name, or where a user declares it.
        sizes: length of every axis of the points.
    """
    return {q: tuple(sizes[axis] for axis in q.axes) for q in find(objective).at_points}


@cache
def of_runs() -> tuple[Declared, ...]:
    """What runs of the built-in objectives record."""
    return tuple(q for objective in built_in().values() for q in objective.in_a_run)


@cache
def _order() -> dict[str, tuple[int, int]]:
    """Quantity to the objective's place in lists and its own in the order of computation."""
    places = {name: stage for stage, name in enumerate(built_in())}
    return {q.name: (places[q.objective], n) for n, q in enumerate(of_runs())}


def moment(name: str, axes: tuple[str, ...], index: tuple[int, ...]) -> Moment:
    """Says when an entry is computed, as a tuple that sorts like the computation.

    Step by step first, then by the order of quantities within a step. A quantity that is not in
    the catalogue comes after those that are.
    """
    order = _order()
    stages = {stage for stage, _ in order.values()}
    objective = name.partition("/")[0]
    known = [stage for q, (stage, _) in order.items() if q.partition("/")[0] == objective]
    stage, position = order.get(name, (known[0] if known else len(stages), len(order)))
    at = dict(zip(axes, index, strict=False))
    if "point" in at:
        step = (at["point"], 0)
    elif "checkpoint" in at:
        step = (at["checkpoint"] - 1, _END)
    elif "rollout" in at:
        step = (at["rollout"], at.get("epoch", 0))
    else:
        step = (at.get("update", _END), 0)
    return (stage, *step, position)
