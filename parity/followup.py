"""When a user's function diverges: which known fault it behaves like, and on how little input."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from parity import gate
from parity.arithmetic.measure import Expected
from parity.backends import Progress, Workers, load_trace
from parity.calling import Answer, Call
from parity.diagnosis import alike, faulty_points, measured_points
from parity.errors import BackendError
from parity.judging import Cell, Scene, judged, probed
from parity.objectives import find
from parity.objectives.spec import Fault
from parity.points import Points
from parity.report import Diagnosis
from parity.states import reduced, selected
from parity.trace import Trace
from parity.worker import Job

__all__ = ["Failure", "Followed", "follow_up"]

SIZES = (1, 2)  # samples or pairs, of the four or three that a point of the core has


class Failure(NamedTuple):
    """A function that diverges.

    Attributes:
        call: how it was called.
        framework: its own.
        dtype: in which it diverges.
        core: the core of the probe grid, and what the function computed there.
        cell: its first failing cell.
        scene: the points among which that is.
    """

    call: Call
    framework: str
    dtype: str
    core: Scene
    cell: Cell
    scene: Scene


class Followed(NamedTuple):
    """What is known of it: a diagnosis, and its smallest failing input with its scene."""

    diagnosis: Diagnosis
    cell: Cell
    scene: Scene


def follow_up(failures: Sequence[Failure], timeout: float, progress: Progress) -> list[Followed]:
    """Calls functions again on less, and evaluates the known faults beside them.

    A failure in here changes no verdict.

    Args:
        failures: the functions.
        timeout: seconds for each dtype.
        progress: called with who and what stage.
    """
    followed: dict[int, Followed] = {}
    for dtype in dict.fromkeys(failure.dtype for failure in failures):
        mine = {n: failure for n, failure in enumerate(failures) if failure.dtype == dtype}
        try:
            found = _followed(list(mine.values()), dtype, timeout, progress)
        except BackendError as error:
            found = [_given_up(failure, str(error)) for failure in mine.values()]
        followed |= dict(zip(mine, found, strict=True))
    return [followed[n] for n in range(len(failures))]


def _given_up(failure: Failure, reason: str) -> Followed:
    diagnosis = Diagnosis(implementation=failure.call.target, reason=reason)
    return Followed(diagnosis, failure.cell, failure.scene)


def _followed(
    failures: list[Failure], dtype: str, timeout: float, progress: Progress
) -> list[Followed]:
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        again: list[Job] = []
        smaller: list[list[Points]] = []
        for number, failure in enumerate(failures):
            smaller.append(_smaller(failure))
            files = [folder / f"less-{number}-{i}" for i in range(len(smaller[-1]))]
            for file, grid in zip(files, smaller[-1], strict=True):
                grid.save(file)
            again.append(
                msgspec.structs.replace(
                    failure.call,
                    points=[str(file) for file in files],
                    compiled=len(files),
                    problem=None,
                    output=str(folder / f"again-{number}"),
                )
            )
        with Workers({dtype: again}, dtype, timeout, progress) as workers:
            progress("oracle", "known faults")
            known: dict[str, list[_Known]] = {}
            for failure in failures:
                if _key(failure) not in known:
                    known[_key(failure)] = _faults_at(failure)
            for _ in workers.finished():
                pass
        return [
            Followed(
                _diagnosis(failure, known[_key(failure)]),
                *_smallest(failure, smaller[number], folder / f"again-{number}"),
            )
            for number, failure in enumerate(failures)
        ]


def _key(failure: Failure) -> str:
    assert failure.core.points is not None
    return f"{failure.core.points.digest} {sorted(failure.call.convention.choices.items())}"


class _Known(NamedTuple):
    """A fault at the core: what it computes, and how far rounding may move that, once for all."""

    fault: Fault
    trace: Trace
    measured: Callable[[], Expected]


def _faults_at(failure: Failure) -> list[_Known]:
    """The faults that show in the loss at the core: any right function behaves like the others."""
    points, dtype, choices = failure.core.points, failure.dtype, failure.call.convention.choices
    assert points is not None
    objective = find(points.objective)
    seen = {declared.name for declared in objective.at_points}
    bugs = [f for f in objective.faults if not f.equivalent and not f.update and f.first in seen]
    known = [
        _Known(
            fault,
            faulty_points(points, fault, dtype, choices),
            cache(partial(measured_points, points, fault, dtype, choices)),
        )
        for fault in bugs
    ]
    return [each for each in known if _wrong(failure.core, each.trace, dtype)]


def _smaller(failure: Failure) -> list[Points]:
    """The failing point in fewer of its samples or pairs at a time."""
    points = failure.scene.points
    assert points is not None
    point = selected(points, np.array([failure.cell.entry.index[0]]))
    counted = point.sizes[find(point.objective).counted]
    return [reduced(point, size) for size in SIZES if size < counted]


def _wrong(core: Scene, planted: Trace, dtype: str) -> bool:
    """Whether a fault shows in what a user's function reports."""
    assert core.points is not None
    names = [declared.name for declared in core.specs]
    quantities = {
        n: replace(core.trace.quantities[n], values=planted[n]) for n in names if n in core.trace
    }
    seen = Trace("fault", dtype, quantities)
    _, found = judged("fault", {dtype: [core._replace(trace=seen)]})
    return bool(found)


def _diagnosis(failure: Failure, known: Sequence[_Known]) -> Diagnosis:
    core = failure.core
    like = [each.fault for each in known if _behaves(core, each)]
    return Diagnosis(
        implementation=failure.call.target,
        fault=like[0].name if like else "",
        sentence=like[0].sentence if like else "",
        indistinguishable=[fault.name for fault in like[1:]],
        tried=len(known),
    )


def _behaves(core: Scene, known: _Known) -> bool:
    """Frozen gradients are alike where both are 0: frameworks split them differently at ties."""
    mine, planted = core.trace, known.trace
    assert core.points is not None
    objective = find(core.points.objective)
    leaks = {n for n, of in objective.gradients.items() if objective.by_input[of].role == "frozen"}
    frozen = [n for n in planted.quantities if n.partition("/")[2] in leaks and n in mine]
    kept = {name: q for name, q in planted.quantities.items() if name not in frozen}
    bare = Trace(planted.implementation, planted.dtype, kept)
    leak = [(bool(mine[name].any()), bool(planted[name].any())) for name in frozen]
    same = all(ours == theirs for ours, theirs in leak)
    return same and alike(mine, bare, core.oracle, known.measured)


def _smallest(failure: Failure, grids: list[Points], place: Path) -> tuple[Cell, Scene]:
    """The first failing point of the fewest samples; the cell itself where less does not fail."""
    answer = msgspec.json.decode(Path(f"{place}.json").read_bytes(), type=Answer)
    name, dtype = failure.call.target, failure.dtype
    for position, grid in enumerate(grids if not answer.fault else []):
        trace = load_trace(name, Path(f"{place}.{position}"))
        oracle = gate.evaluate_points(grid, dtype, failure.call.convention.choices)
        scene = probed(grid, oracle, trace, failure.framework)
        _, found = judged(name, {dtype: [scene]})
        divergent = [f for f in found if f.verdict == "divergent"]
        if divergent:
            return min(divergent, key=lambda f: f.position).cell, scene
    return failure.cell, failure.scene
