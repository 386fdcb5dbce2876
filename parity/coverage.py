"""Which branches of the objectives the traces exercised, counted from the traces themselves."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from parity.objectives import Objective, find
from parity.objectives.evaluation import Scope, called
from parity.points import Points
from parity.problem import Problem
from parity.samples import Samples
from parity.states import recorded_points
from parity.trace import Trace

__all__ = ["Cell", "Coverage", "cover", "of_points"]

Counts = dict[str, int]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One branch of an objective, and how often each implementation went through it.

    Attributes:
        objective: its name.
        cell: the branch, in words.
        run: implementation to sample-updates in the run.
        probes: implementation to samples at the probe points.
    """

    objective: str
    cell: str
    run: Counts
    probes: Counts

    @property
    def exercised(self) -> bool:
        """Whether every implementation went through it, in the run or at a probe."""
        names = self.run.keys() | self.probes.keys()
        return bool(names) and all(
            self.run.get(name, 0) + self.probes.get(name, 0) for name in names
        )


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The branches of every objective of a problem.

    Attributes:
        cells: all branches.
        exercised: how many of them every implementation went through.
        by_run: how many the run alone went through.
    """

    cells: list[Cell]
    exercised: int
    by_run: int


def cover(
    problem: Problem,
    samples: Samples | None,
    traces: Mapping[str, Trace],
    grids: Sequence[Points],
    evaluations: Mapping[str, Sequence[Trace]],
) -> Coverage:
    """Counts the branches that the run and the probes went through.

    Args:
        problem: what was solved.
        samples: the tape that was replayed.
        traces: implementation to its run; a run that lacks a quantity exercised nothing.
        grids: the probe points.
        evaluations: implementation to its evaluation of each of the grids, in their order.
    """
    cells = []
    for objective, _, _ in problem.parts():
        run = {name: _of_run(problem, samples, objective, trace) for name, trace in traces.items()}
        mine = [n for n, points in enumerate(grids) if points.objective == objective.name]
        probes = {
            name: _added(_of_points(objective, grids[n], played[n]) for n in mine)
            for name, played in evaluations.items()
        }
        cells += _cells(objective, run, probes)
    return _coverage(cells)


def of_points(
    locator: str, grids: Sequence[Points], evaluations: Mapping[str, Sequence[Any]]
) -> Coverage:
    """Counts the branches that points went through.

    Args:
        locator: the objective's name, or where a user declares it.
        grids: the points.
        evaluations: implementation to values by quantity at each of the grids.
    """
    objective = find(locator)
    probes = {
        name: _added(_of_points(objective, *each) for each in zip(grids, played, strict=True))
        for name, played in evaluations.items()
    }
    return _coverage(_cells(objective, {}, probes))


def _cells(
    objective: Objective, run: Mapping[str, Counts], probes: Mapping[str, Counts]
) -> list[Cell]:
    return [
        Cell(
            objective=objective.name,
            cell=cell,
            run={name: counts.get(cell, 0) for name, counts in run.items()},
            probes={name: counts.get(cell, 0) for name, counts in probes.items()},
        )
        for cell in objective.branches
    ]


def _coverage(cells: list[Cell]) -> Coverage:
    return Coverage(
        cells=cells,
        exercised=sum(cell.exercised for cell in cells),
        by_run=sum(bool(cell.run) and all(cell.run.values()) for cell in cells),
    )


def _added(counts: Any) -> Counts:
    total: Counts = {}
    for each in counts:
        for cell, count in each.items():
            total[cell] = total.get(cell, 0) + count
    return total


def _of_run(
    problem: Problem, samples: Samples | None, objective: Objective, trace: Trace
) -> Counts:
    if any(declared.name not in trace for declared in objective.at_points):
        return {}
    try:
        points, flat = recorded_points(problem, objective, trace, samples)
    except (KeyError, ValueError):  # the structure is broken, and reported as such
        return {}
    return _of_points(objective, points, flat)


@np.errstate(all="ignore")  # infinities are the comparison's business
def _of_points(objective: Objective, points: Points, values: Any) -> Counts:
    """What an implementation recorded counts before what is computed from the inputs."""
    recorded = [v.name for v in objective.values if v.recorded]
    seen = {name: f"{objective.name}/{name}" for name in recorded}
    try:
        given = {n: np.moveaxis(v, 0, -1) for n, v in points.inputs.items()}
        given |= {n: np.moveaxis(values[q], 0, -1) for n, q in seen.items() if q in values}
        scope = Scope(objective, given)
        return {
            cell: int(np.sum(called(branch, scope))) for cell, branch in objective.branches.items()
        }
    except (KeyError, ValueError):
        return {}
