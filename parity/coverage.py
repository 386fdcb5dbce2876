"""Which branches of the objectives the traces exercised, counted from the traces themselves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.points import Points
from parity.problem import Problem
from parity.trace import Trace

__all__ = ["Cell", "Coverage", "cover"]

Counts = dict[str, int]

_SIGNS = {"A > 0": np.greater, "A < 0": np.less, "A = 0": np.equal}
_RATIOS = ("far below", "just below", "inside", "just above", "far above")
_MARGINS = ("z < -20", "-20 <= z < 0", "0 <= z < 20", "z >= 20")
_EDGES = (-20.0, 0.0, 20.0)  # where softplus and its naive spellings begin to differ


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One branch of an objective, and how often each implementation went through it.

    Attributes:
        objective: reward, ppo, dpo or reinforce.
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


@np.errstate(all="ignore")  # infinities are the comparison's business
def cover(
    problem: Problem,
    traces: Mapping[str, Trace],
    grids: Sequence[Points],
    evaluations: Mapping[str, Sequence[Trace]],
) -> Coverage:
    """Counts the branches that the run and the probes went through.

    Args:
        problem: what was solved.
        traces: implementation to its run; a run that lacks a quantity exercised nothing.
        grids: the probe points.
        evaluations: implementation to its evaluation of each of the grids, in their order.
    """
    cells = []
    for objective, names in _BRANCHES.items():
        if getattr(problem, objective, None) is None:
            continue
        run = {name: _of_run(problem, objective, trace) for name, trace in traces.items()}
        probes = {
            name: _of_probes(objective, grids, traces) for name, traces in evaluations.items()
        }
        cells += [
            Cell(
                objective=objective,
                cell=cell,
                run={name: counts.get(cell, 0) for name, counts in run.items()},
                probes={name: counts.get(cell, 0) for name, counts in probes.items()},
            )
            for cell in names
        ]
    return Coverage(
        cells=cells,
        exercised=sum(cell.exercised for cell in cells),
        by_run=sum(bool(cell.run) and all(cell.run.values()) for cell in cells),
    )


_BRANCHES = {
    "reward": _MARGINS,
    "ppo": tuple(f"{sign}, ratio {part}" for sign in _SIGNS for part in _RATIOS),
    "dpo": _MARGINS,
    "reinforce": tuple(_SIGNS),
}


def _of_run(problem: Problem, objective: str, trace: Trace) -> Counts:
    try:
        if objective == "ppo":
            assert problem.ppo is not None
            clip = np.float64(np.asarray(problem.ppo.clip, trace.dtype))
            return dict(_clipping(trace["ppo/ratios"], trace["ppo/advantages"], clip))
        if objective == "dpo":
            assert problem.dpo is not None
            return dict(_margins(problem.dpo.beta * trace["dpo/margins"]))
        if objective == "reinforce":
            return dict(_signs(trace["reinforce/advantages"]))
        assert problem.reward is not None
        features = np.asarray(problem.reward.features)
        chosen, rejected = np.asarray(problem.reward.preferences).T
        before = np.vstack([problem.reward.initial_weights, trace["reward/weights"][:-1]])
        return dict(_margins(before @ (features[chosen] - features[rejected]).T))
    except (KeyError, ValueError):  # the structure is broken, and reported as such
        return {}


def _of_probes(objective: str, grids: Sequence[Points], traces: Sequence[Trace]) -> Counts:
    total: Counts = {}
    for points, trace in zip(grids, traces, strict=True):
        if points.objective != objective:
            continue
        inputs = points.inputs
        try:
            if objective == "ppo":
                clip = inputs["clip"][:, None]
                counts = _clipping(trace["ppo/ratios"], inputs["advantages"], clip)
            elif objective == "dpo":
                counts = _margins(inputs["beta"][:, None] * trace["dpo/margins"])
            elif objective == "reinforce":
                counts = _signs(inputs["advantages"])
            else:
                difference = inputs["chosen"] - inputs["rejected"]
                counts = _margins((difference * inputs["weights"][:, None]).sum(-1))
            for cell, count in counts:
                total[cell] = total.get(cell, 0) + count
        except (KeyError, ValueError):
            continue
    return total


def _clipping(
    ratios: NDArray[Any], advantages: NDArray[Any], clip: Any
) -> Iterator[tuple[str, int]]:
    """Sign of the advantage times part of the ratio; `far` is beyond twice the half-width."""
    low, high = 1 - clip, 1 + clip
    parts = (
        ratios < 1 - 2 * clip,
        (ratios >= 1 - 2 * clip) & (ratios < low),
        (ratios >= low) & (ratios <= high),
        (ratios > high) & (ratios <= 1 + 2 * clip),
        ratios > 1 + 2 * clip,
    )
    for sign, holds in _SIGNS.items():
        for part, where in zip(_RATIOS, parts, strict=True):
            yield f"{sign}, ratio {part}", int((holds(advantages, 0) & where).sum())


def _margins(margins: NDArray[Any]) -> Iterator[tuple[str, int]]:
    part = np.digitize(margins[~np.isnan(margins)], _EDGES)
    yield from zip(_MARGINS, np.bincount(part, minlength=len(_MARGINS)).tolist(), strict=True)


def _signs(advantages: NDArray[Any]) -> Iterator[tuple[str, int]]:
    for sign, holds in _SIGNS.items():
        yield sign, int(holds(advantages, 0).sum())
