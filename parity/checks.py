"""`parity check`: a function of the user's as an objective's loss, judged by the oracle."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity import gate
from parity.arithmetic.measure import Expected
from parity.backends import CALLED, Progress, Workers, load_trace
from parity.calling import Answer, Call
from parity.comparison import ORACLE, Verdict, worst_verdict
from parity.convention import Convention
from parity.coverage import of_points
from parity.errors import BackendError, InputError
from parity.followup import Failure, follow_up
from parity.judging import CheckReport, Scene, judged, probed, trained
from parity.lessons.probes import grid_of
from parity.lessons.rehearsal import rehearse
from parity.objectives import find
from parity.points import Points
from parity.problem import Problem, load_problem
from parity.report import LessonReport
from parity.snippet import snippet
from parity.states import normalised, with_constants, within
from parity.targets import split
from parity.widening import Widened, applied

__all__ = ["DTYPES", "Target", "check", "check_all"]

DTYPES = ("float32", "float64")


class Target(NamedTuple):
    """A function to check, and how.

    Attributes:
        target: `package.module:function` or `file.py:function`.
        objective: its name, another name of it, or where a user declares it.
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
        for target in targets:
            if not grounds[_key(target)].oracle:
                _measure(grounds[_key(target)], target.convention.choices)
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
            report,
            diagnosis=diagnosis,
            repro=snippet(report, targets[number].convention, cell, scene),
        )
    return results


def _validated(target: Target) -> None:
    split(target.target)
    if target.adapter:
        split(target.adapter, "--adapter")
    objective = find(target.objective)
    target.convention.validate(objective, target.objective)
    scalars = [i.name for i in objective.inputs if i.role == "constant" and not i.axes]
    for name in target.within:
        if name not in scalars:
            known = " or ".join(scalars) or "none"
            raise InputError(f"within: got {name!r}; expected {known}, as {target.objective} has")


def _key(target: Target) -> str:
    choices, constants = target.convention.choices, target.convention.constants
    sorted_items = (sorted(each.items()) for each in (choices, constants, target.within))
    return repr((target.objective, *sorted_items))


def _states(target: Target, *, quick: bool) -> _Ground:
    """The whole probe grid of an objective, or its core; less what the target is not asked."""
    objective, constants = find(target.objective), target.convention.constants
    locator = "" if target.objective in (objective.name, *objective.known_as) else target.objective
    if locator:
        rehearse(objective, locator)
    grids = [within(grid, target.within) for grid in grid_of(objective, locator)]
    chosen = [grid for grid in grids if grid.labels][: 1 if quick else None]
    if not chosen:
        raise InputError(f"within: got {target.within}; expected ranges in which probes lie")
    single = [with_constants(grid, constants, "float32") for grid in chosen]
    double = [with_constants(normalised(grid), constants, "float64") for grid in chosen]
    alike = not constants and not any(each.normalised for each in objective.inputs)
    return _Ground({"float32": single, "float64": double}, {}, alike)


def _measure(ground: _Ground, choices: Mapping[str, str]) -> None:
    """Where both dtypes have the same points, float64 changes the allowances alone."""
    single = [gate.evaluate_points(grid, "float32", choices) for grid in ground.grids["float32"]]
    ground.oracle["float32"] = single
    ground.oracle["float64"] = (
        [measured.narrowed() for measured in single]
        if ground.alike
        else [gate.evaluate_points(grid, "float64", choices) for grid in ground.grids["float64"]]
    )


def _problem(target: Target) -> Problem:
    """The recorded lesson with which a function of this objective is trained."""
    objective, constants = find(target.objective), target.convention.constants
    if objective.training is None:
        raise InputError(f"--train: got {target.objective}; expected an objective with a lesson")
    problem = load_problem(objective.training.lesson).only(objective)
    part = getattr(problem, objective.name)
    changed = {objective.name: msgspec.structs.replace(part, **constants)} if constants else {}
    return msgspec.structs.replace(problem, **changed)


def _call(target: Target, files: list[str], output: Path) -> Call:
    problem = _problem(target) if target.train else None
    return Call(
        target=target.target,
        adapter=target.adapter,
        framework=target.framework,
        modules=CALLED,
        objective=target.objective,
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
        convention=target.convention.told(find(target.objective)),
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
            objective, choices = find(target.objective), target.convention.choices
            scenes[dtype] += trained(call.problem, objective, run, dtype, choices)
    lessons, found = judged(target.target, scenes, target.widened)
    lessons = [_covered(lesson, target, ground) for lesson in lessons]
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


def _covered(lesson: LessonReport, target: Target, ground: _Ground) -> LessonReport:
    """Which branches the probes went through; where one was missed, nothing is a match."""
    grids, oracle = ground.grids[lesson.dtype], ground.oracle[lesson.dtype]
    played = {ORACLE: [each.values for each in oracle]}
    coverage = of_points(target.objective, grids, played)
    missed = {cell.cell for cell in coverage.cells if not cell.exercised}
    if missed and (target.within or target.convention.constants):  # excused where these forbid it
        whole = grid_of(find(target.objective), grids[0].objective)
        reached = of_points(target.objective, whole, {ORACLE: [{} for _ in whole]})
        missed -= {cell.cell for cell in reached.cells if cell.exercised}
    verdict: Verdict = lesson.verdict
    if missed:
        verdict = worst_verdict([verdict, "inconclusive"])
    return msgspec.structs.replace(lesson, coverage=coverage, verdict=verdict)
