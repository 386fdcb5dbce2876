"""`parity run`: problems through both frameworks, judged, written down."""

import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity import gate
from parity.arithmetic.measure import Expected
from parity.arithmetic.rounded import REPLICAS
from parity.backends import MODULES, Progress, Workers, draw_samples, load_trace
from parity.comparison import worst_verdict
from parity.errors import InputError
from parity.lessons.oracle import BATCH
from parity.lessons.probes import core
from parity.objectives import built_in
from parity.points import Points
from parity.problem import Problem
from parity.quantities import expected
from parity.report import AllowedNoise, Diagnosis, LessonReport, Report
from parity.samples import Samples
from parity.trace import Trace
from parity.worker import Evaluate, Job, Train

__all__ = ["Finished", "Lesson", "Settings", "memory_needed", "run"]

_BYTES_PER_ENTRY = 104  # two traces and their file images; oracle, allowance, bound in two modes
_BYTES_PER_DRAW = 8 * 12  # replicas: a dozen float64 arrays of a batch alive at once


class Settings(NamedTuple):
    """How to run.

    Attributes:
        dtype: float32 or float64.
        timeout: seconds for the backends.
        reuse_samples: accept a tape that was drawn for another problem.
        allowed_noise: noise that does not count against the verdict.
    """

    dtype: str = "float32"
    timeout: float = 600.0
    reuse_samples: bool = False
    allowed_noise: AllowedNoise | None = None


@dataclass(frozen=True)
class Lesson:
    """A problem that is ready to run: its tape, and the file that holds it."""

    problem: Problem
    samples: Samples | None
    tape: Path | None


@dataclass(frozen=True)
class Finished:
    """What a run leaves for those who draw: the cases, and the report of all of them."""

    cases: list[gate.Case]
    report: Report


def memory_needed(problem: Problem) -> int:
    """Estimates the bytes that a run of the problem needs in this process."""
    entries = 0
    for shape in expected(problem).values():
        size = 1
        for length in shape:
            size *= length
        entries += size
    widest = BATCH
    for objective, training, table in problem.parts():
        sizes = training.sizes(table)
        inner = sizes[training.loops[-1]]
        for each in objective.inputs:
            axes = [sizes[axis] for axis in each.axes]
            widest = max(widest, inner * math.prod(axes) if axes else 0)
    return _BYTES_PER_ENTRY * entries + _BYTES_PER_DRAW * REPLICAS * widest


def run(
    problems: Sequence[Problem],
    out: Path,
    settings: Settings,
    progress: Progress,
    draw: Callable[[Finished], None] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Finished:
    """Runs problems and leaves traces, figures and the report in a folder.

    Old figures and traces are removed first, the report is renamed into place last. If a backend
    or anything else fails, the report that stays says inconclusive and why.

    Args:
        problems: what to solve; their names must differ.
        out: the folder.
        settings: how to run.
        progress: called with who and what stage.
        draw: called with the finished run before the report is written.
        meanwhile: called once, when the first backend is done and the others are still at work.

    Raises:
        InputError: a problem or its tape is unusable; nothing in the folder was touched.
        BackendError: an implementation failed.
    """
    lessons = _ready(problems, out, settings)
    _clear(out)
    try:
        lessons = [_with_tape(lesson, out, settings, progress) for lesson in lessons]
        cases = _replay(lessons, out, settings, progress, meanwhile)
        judgements = []
        for case in cases:
            progress("gate", f"judging {case.problem.name}")
            judgement = gate.judge(case, settings.allowed_noise)
            if judgement.verdict == "divergent":
                diagnosed = _diagnosed(case, judgement, progress)
                judgement = msgspec.structs.replace(judgement, diagnosis=diagnosed)
            judgements.append(judgement)
        report = _report(judgements, cases, settings)
        finished = Finished(cases, report)
        if draw:
            draw(finished)
        report.save(out / "report.json")
    except BaseException as error:
        kind = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        _inconclusive(lessons, settings, kind or type(error).__name__).save(out / "report.json")
        _remove(out / "figures")
        _remove(out / "traces", ("part",))  # of a worker that was ended while it wrote
        raise
    return finished


def _ready(problems: Sequence[Problem], out: Path, settings: Settings) -> list[Lesson]:
    """Checks everything that can be wrong before anything is touched."""
    names = [problem.name for problem in problems]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"name: got {name!r} twice; expected different names of problems")
    nearest = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"--out: got {out}, which is not a folder; expected a folder")
    for name in ("figures", "samples", "traces"):
        if (out / name).exists() and not (out / name).is_dir():
            raise InputError(f"--out: got {out / name}, which is not a folder; expected a folder")
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lessons = []
    for problem in problems:
        needed = memory_needed(problem)
        if needed > available:
            raise InputError(
                f"{problem.name}: needs about {needed / 2**30:.1f} GiB of memory for its rollouts, "
                f"epochs, samples and updates; expected at most {available / 2**30:.1f} GiB, "
                "what this machine has"
            )
        tape = Path(problem.samples) if problem.samples else None
        if problem.tape and tape is None and _drawn(out, problem).exists():
            drawn = Samples.load(_drawn(out, problem))
            if drawn.problem_digest == problem.digest and drawn.seed == problem.tape.seed:
                tape = _drawn(out, problem)
        samples = Samples.load(tape) if tape else None
        if samples and tape:
            samples.check(problem, tape, reuse=settings.reuse_samples)
        lessons.append(Lesson(problem, samples, tape))
    return lessons


def _drawn(out: Path, problem: Problem) -> Path:
    return out / "samples" / f"{problem.name}.safetensors"


def _clear(out: Path) -> None:
    for folder in ("figures", "traces"):
        _remove(out / folder)


def _remove(
    folder: Path, suffixes: Sequence[str] = ("json", "svg", "png", "safetensors", "part")
) -> None:
    """Removes what earlier runs left; files of other kinds are not ours."""
    for suffix in suffixes:
        for path in folder.glob(f"*.{suffix}"):
            path.unlink()


def _with_tape(lesson: Lesson, out: Path, settings: Settings, progress: Progress) -> Lesson:
    """Draws the tape of a problem that has none, once, and keeps it."""
    problem = lesson.problem
    if problem.tape is None or lesson.samples:
        return lesson
    samples = draw_samples(problem, "jax", problem.tape.seed, settings.timeout, progress)
    path = _drawn(out, problem)
    samples.save(path)
    samples.check(problem, path)
    return Lesson(problem, samples, path)


def _replay(
    lessons: Sequence[Lesson],
    out: Path,
    settings: Settings,
    progress: Progress,
    meanwhile: Callable[[], None] | None,
) -> list[gate.Case]:
    """Both frameworks at work, each in its process, while this one measures the allowances."""
    dtype = settings.dtype
    objectives = {o.name: o for lesson in lessons for o, _, _ in lesson.problem.parts()}
    grids = [core(objective) for objective in built_in().values() if objective.name in objectives]
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        for position, grid in enumerate(grids):
            grid.save(folder / f"{position}.safetensors")
        jobs = {backend: _jobs(backend, lessons, grids, out, folder) for backend in MODULES}
        with Workers(jobs, dtype, settings.timeout, progress) as workers:
            trajectories: list[Expected] = []
            for lesson in lessons:
                progress("oracle", f"allowances of {lesson.problem.name}")
                trajectories.append(gate.whole_run(lesson.problem, lesson.samples, dtype))
            measured = [gate.evaluate_points(grid, dtype) for grid in grids]
            traces: dict[str, list[Trace]] = {backend: [] for backend in jobs}
            steps: dict[str, list[Expected | None]] = {backend: [] for backend in jobs}
            for backend, job in workers.finished():
                trace = load_trace(backend, Path(jobs[backend][job].output))
                traces[backend].append(trace)
                if job < len(lessons):
                    lesson = lessons[job]
                    steps[backend].append(
                        gate.rederive(lesson.problem, lesson.samples, trace, dtype)
                    )
                if meanwhile and len(traces[backend]) == len(jobs[backend]):
                    meanwhile()
                    meanwhile = None
    cases = []
    for position, lesson in enumerate(lessons):
        mine = [i for i, grid in enumerate(grids) if getattr(lesson.problem, grid.objective)]
        cases.append(
            gate.Case(
                problem=lesson.problem,
                samples=lesson.samples,
                dtype=dtype,
                traces={backend: every[position] for backend, every in traces.items()},
                steps={backend: every[position] for backend, every in steps.items()},
                trajectory=trajectories[position],
                grids=[(grids[i], measured[i]) for i in mine],
                evaluations={
                    backend: [every[len(lessons) + i] for i in mine]
                    for backend, every in traces.items()
                },
            )
        )
    return cases


def _jobs(
    backend: str, lessons: Sequence[Lesson], grids: Sequence[Points], out: Path, folder: Path
) -> list[Job]:
    trained: list[Job] = [
        Train(
            lesson.problem,
            str(lesson.tape) if lesson.tape else None,
            str(out / "traces" / f"{lesson.problem.name}.{backend}.safetensors"),
        )
        for lesson in lessons
    ]
    evaluated: list[Job] = [
        Evaluate(str(folder / f"{i}.safetensors"), str(folder / f"{i}.{backend}.safetensors"))
        for i in range(len(grids))
    ]
    return trained + evaluated


def _diagnosed(case: gate.Case, judgement: LessonReport, progress: Progress) -> list[Diagnosis]:
    """Compares whoever is to blame with the known faults."""
    from parity.diagnosis import diagnose

    found = []
    for name in judgement.blamed:
        progress("oracle", f"comparing {name} with known faults")
        found.append(diagnose(case, judgement.comparisons, name))
    return found


def _environment() -> dict[str, str]:
    return {
        "parity": metadata.version("rlhf-parity"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }


def _report(
    judgements: list[LessonReport], cases: Sequence[gate.Case], settings: Settings
) -> Report:
    environment = _environment()
    for case in cases:
        for trace in case.traces.values():
            environment |= trace.environment
    noise = settings.allowed_noise
    if noise:
        noise = gate.with_accepted(noise, judgements)
    return Report(
        verdict=worst_verdict(judgement.verdict for judgement in judgements),
        environment=environment,
        allowed_noise=noise,
        lessons=judgements,
    )


def _inconclusive(lessons: Sequence[Lesson], settings: Settings, reason: str) -> Report:
    return Report(
        verdict="inconclusive",
        reason=reason,
        environment=_environment(),
        allowed_noise=settings.allowed_noise,
        lessons=[
            LessonReport(
                lesson=lesson.problem.name,
                verdict="inconclusive",
                reason=reason,
                dtype=settings.dtype,
                problem_digest=lesson.problem.digest,
            )
            for lesson in lessons
        ],
    )
