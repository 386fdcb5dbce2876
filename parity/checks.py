"""`parity check`: a function of the user's as an objective's loss, judged by the oracle."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from parity import gate, points, probes
from parity.backends import CALLED, Progress, Workers, load_trace
from parity.calling import Answer, Call
from parity.comparison import worst_verdict
from parity.convention import Convention
from parity.errors import BackendError, InputError
from parity.followup import Failure, follow_up
from parity.judging import CheckReport, Scene, judged, probed, trained
from parity.noise import FLOAT64_SCALE, Expected
from parity.points import Points
from parity.problem import Problem, load_problem
from parity.snippet import snippet
from parity.states import normalised, with_constants, within
from parity.targets import split
from parity.widening import Widened, applied

__all__ = ["DTYPES", "OBJECTIVES", "Target", "check", "check_all"]

DTYPES = ("float32", "float64")
OBJECTIVES = {"preference": "reward", "ppo": "ppo", "dpo": "dpo", "reinforce": "reinforce"}
"""The user's word for an objective to ours."""

_TRAINED_ON = {
    "reward": "posttraining-04",
    "ppo": "posttraining-04",
    "dpo": "posttraining-05",
    "reinforce": "policy-gradient-kl-control",
}
_KL_OF = ("ppo", "reinforce")


class Target(NamedTuple):
    """A function to check, and how.

    Attributes:
        target: `package.module:function` or `file.py:function`.
        objective: preference, ppo, dpo or reinforce.
        framework: jax, torch or numpy; empty to recognise it.
        adapter: a function of the user's that takes our inputs and calls the target.
        mapping: the function's parameter to our input.
        convention: how it states the objective.
        train: also train a recorded lesson with it.
        widened: allowances that are wider for a time.
        within: an input to the range [low, high) outside of which it is not asked.
        followed: where it diverges, find out which fault it behaves like, and on how little.
    """

    target: str
    objective: str
    framework: str = ""
    adapter: str = ""
    mapping: Mapping[str, str] = {}
    convention: Convention = Convention()
    train: bool = False
    widened: Sequence[Widened] = ()
    within: Mapping[str, tuple[float, float]] = {}
    followed: bool = True


class _Ground(NamedTuple):
    """What a target is held against, by dtype: the states, and the oracle's values there."""

    grids: dict[str, list[Points]]
    oracle: dict[str, list[Expected]]
    alike: bool  # the dtypes have the same points


def check(
    target: Target, timeout: float, progress: Progress, *, quick: bool = False
) -> CheckReport:
    """Checks one function.

    Args:
        target: the function, and how to check it.
        timeout: seconds for its processes.
        progress: called with who and what stage.
        quick: at the core of the probe grid only.

    Raises:
        InputError: it cannot be called as asked.
        BackendError: its process died or did not answer.
    """
    (report,) = check_all([target], timeout, progress, quick=quick)
    if isinstance(report, InputError):
        raise report
    return report


def check_all(
    targets: Sequence[Target], timeout: float, progress: Progress, *, quick: bool = False
) -> list[CheckReport | InputError]:
    """Checks functions, all in one process a dtype: they must trust each other.

    Raises:
        InputError: a target is not named as a function is.
        BackendError: the process died or did not answer.
    """
    for target in targets:
        try:
            _validated(target)
        except InputError as error:
            raise InputError(f"{target.target}: {error}" if targets[1:] else str(error)) from error
    with tempfile.TemporaryDirectory(prefix="parity-") as name, ExitStack() as stack:
        folder = Path(name)
        files: dict[tuple[str, str], list[str]] = {}
        grounds: dict[str, _Ground] = {}
        for target in targets:
            key = _key(target)
            if key in grounds:
                continue
            grounds[key] = _states(target, quick=quick)
            for dtype, grids in grounds[key].grids.items():
                names = [folder / f"{len(files)}-{i}" for i in range(len(grids))]
                files[key, dtype] = [str(name) for name in names]
                for path, grid in zip(names, grids, strict=True):
                    grid.save(path)
        calls = {
            dtype: [
                _call(target, files[_key(target), dtype], folder / f"{dtype}-{n}")
                for n, target in enumerate(targets)
            ]
            for dtype in DTYPES
        }
        workers = [
            stack.enter_context(Workers({dtype: [*calls[dtype]]}, dtype, timeout, progress))
            for dtype in DTYPES
        ]
        progress("oracle", "allowances")
        for ground in grounds.values():
            _measure(ground)
        for block in workers:
            _finish(block, targets)
        answers = {
            dtype: [
                msgspec.json.decode(Path(f"{c.output}.json").read_bytes(), type=Answer)
                for c in each
            ]
            for dtype, each in calls.items()
        }
        results: list[CheckReport | InputError] = []
        failures: dict[int, Failure] = {}
        for number, target in enumerate(targets):
            report = _answered(target, {dtype: answers[dtype][number] for dtype in DTYPES})
            if isinstance(report, CheckReport) and not report.fault:
                ground = grounds[_key(target)]
                places = {dtype: calls[dtype][number] for dtype in DTYPES}
                report, failure = _compared(report, target, ground, places)
                if failure and target.followed:
                    failures[number] = failure
            results.append(report)
    followed = follow_up(list(failures.values()), timeout, progress)
    for number, (diagnosis, cell, scene) in zip(failures, followed, strict=True):
        report = results[number]
        assert isinstance(report, CheckReport)
        results[number] = msgspec.structs.replace(
            report, diagnosis=diagnosis, repro=snippet(report, cell, scene)
        )
    return results


def _validated(target: Target) -> None:
    split(target.target)
    if target.adapter:
        split(target.adapter, "--adapter")
    if target.objective not in OBJECTIVES:
        raise InputError(
            f"--objective: got {target.objective!r}; expected one of {', '.join(OBJECTIVES)}"
        )
    inputs = points.INPUTS[OBJECTIVES[target.objective]]
    for name, value in target.convention.constants.items():
        if name not in ("beta", "clip") or name not in inputs:
            known = " or ".join(n for n in ("beta", "clip") if n in inputs) or "none"
            raise InputError(f"--constant: got {name!r}; expected {known} for {target.objective}")
        if not 0 <= value < np.inf or (name == "clip" and value == 0):
            raise InputError(f"--constant: {name}: got {value}; expected a positive number")
    for name in target.within:
        if name not in ("beta", "clip") or name not in inputs:
            raise InputError(
                f"within: got {name!r}; expected beta or clip, as {target.objective} has"
            )
    if target.convention.kl == "absent" and OBJECTIVES[target.objective] not in _KL_OF:
        raise InputError(f"--kl: got absent; {target.objective} has no KL to be absent")


def _key(target: Target) -> str:
    constants, ranges = target.convention.constants, target.within
    return repr((target.objective, sorted(constants.items()), sorted(ranges.items())))


def _states(target: Target, *, quick: bool) -> _Ground:
    """The whole probe grid of an objective, or its core; less what the target is not asked."""
    objective, constants = OBJECTIVES[target.objective], target.convention.constants
    grids = [within(grid, target.within) for grid in probes.grid() if grid.objective == objective]
    chosen = [grid for grid in grids if grid.labels][: 1 if quick else None]
    if not chosen:
        raise InputError(f"within: got {target.within}; expected ranges in which probes lie")
    single = [with_constants(grid, constants, "float32") for grid in chosen]
    double = [with_constants(normalised(grid), constants, "float64") for grid in chosen]
    alike = not constants and "reference" not in points.INPUTS[objective]
    return _Ground({"float32": single, "float64": double}, {}, alike)


def _measure(ground: _Ground) -> None:
    """Where both dtypes have the same points, float64 changes the allowances alone."""
    single = [gate.evaluate_points(grid, "float32") for grid in ground.grids["float32"]]
    ground.oracle["float32"] = single
    ground.oracle["float64"] = (
        [_narrowed(measured) for measured in single]
        if ground.alike
        else [gate.evaluate_points(grid, "float64") for grid in ground.grids["float64"]]
    )


def _narrowed(measured: Expected) -> Expected:
    return Expected(
        measured.values,
        {name: FLOAT64_SCALE * allowed for name, allowed in measured.allowed.items()},
        {name: FLOAT64_SCALE * bound for name, bound in measured.bound.items()},
    )


def _problem(target: Target) -> Problem:
    """The recorded lesson with which a function of this objective is trained."""
    objective, constants = OBJECTIVES[target.objective], target.convention.constants
    problem = load_problem(_TRAINED_ON[objective])
    kept = {"ppo": ("reward", "ppo")}.get(objective, (objective,))
    absent = dict.fromkeys(o for o in OBJECTIVES.values() if o not in kept)
    part = getattr(problem, objective)
    changed = {objective: msgspec.structs.replace(part, **constants)} if constants else {}
    return msgspec.structs.replace(problem, **absent, **changed)


def _call(target: Target, files: list[str], output: Path) -> Call:
    problem = _problem(target) if target.train else None
    return Call(
        target=target.target,
        adapter=target.adapter,
        framework=target.framework,
        modules=CALLED,
        objective=OBJECTIVES[target.objective],
        convention=target.convention,
        mapping=dict(target.mapping),
        points=files,
        compiled=len(files),
        problem=problem,
        samples=problem.samples if problem and problem.tape else None,
        output=str(output),
    )


def _finish(workers: Workers, targets: Sequence[Target]) -> None:
    """Waits for a worker; names the target at which it ended."""
    done = 0
    try:
        for _ in workers.finished():
            done += 1
    except BackendError as error:
        reason = str(error).removeprefix(f"{error.backend}: ")
        name = targets[min(done, len(targets) - 1)].target
        raise BackendError(f"{name} ({error.backend})", reason, error.details) from error


def _answered(target: Target, answers: Mapping[str, Answer]) -> CheckReport | InputError:
    """What became of the calls, before any value is looked at."""
    for answer in answers.values():
        if answer.refused:
            return InputError(f"{target.target}: {answer.refused}")
    first = answers["float32"]
    wrong = [f"in {dtype}: {a.fault}" for dtype, a in answers.items() if a.fault]
    return CheckReport(
        verdict="divergent",
        target=target.target,
        objective=target.objective,
        framework=first.framework,
        adapter=target.adapter,
        signature=first.signature,
        matched=first.matched,
        convention=target.convention,
        fault=wrong[0] if wrong else "",
        notes=list(dict.fromkeys(note for a in answers.values() for note in a.notes)),
    )


def _compared(
    report: CheckReport, target: Target, ground: _Ground, calls: Mapping[str, Call]
) -> tuple[CheckReport, Failure | None]:
    """Holds what a function computed against the oracle; a failure wants to be followed up."""
    scenes: dict[str, list[Scene]] = {}
    for dtype, call in calls.items():
        states = zip(ground.grids[dtype], ground.oracle[dtype], strict=True)
        traces = [
            load_trace(target.target, Path(f"{call.output}.{i}")) for i in range(len(call.points))
        ]
        scenes[dtype] = [
            probed(grid, oracle, trace, report.framework)
            for trace, (grid, oracle) in zip(traces, states, strict=True)
        ]
        if call.problem:
            run = load_trace(target.target, Path(f"{call.output}.run"))
            scenes[dtype] += trained(call.problem, run, dtype)
    lessons, found = judged(target.target, scenes, target.widened)
    verdict = worst_verdict(lesson.verdict for lesson in lessons)
    comparisons = [c for lesson in lessons for c in lesson.comparisons]
    environment = dict(scenes["float32"][0].trace.environment)
    report = msgspec.structs.replace(
        report,
        verdict=verdict,
        lessons=lessons,
        environment=environment,
        widened=applied(comparisons, target.widened),
    )
    worst = min((f for f in found if f.verdict == verdict), key=lambda f: f.position, default=None)
    if worst is None:
        return report, None
    cell = worst.cell
    report = msgspec.structs.replace(report, first=cell)
    if verdict != "divergent" or cell.mode != "points":
        return report, None
    mine = scenes[cell.dtype]
    failure = Failure(
        calls[cell.dtype], report.framework, cell.dtype, mine[0], cell, mine[worst.position[1]]
    )
    return report, failure
