"""The Python interface: what `import parity` offers, each a few lines away from its command."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from parity import gate
from parity.checks import Target
from parity.checks import check as check_target
from parity.comparison import blame, worst_verdict
from parity.convention import Kl, Policy, Reduction, Shape, Sign, stated
from parity.errors import InputError
from parity.judging import CheckReport
from parity.problem import Problem, lessons, load_problem
from parity.report import LessonReport, Report
from parity.runs import Settings
from parity.runs import run as run_problems
from parity.samples import Samples
from parity.targets import named
from parity.trace import Trace

__all__ = ["check", "compare", "load_trace", "run"]


def run(
    *problems: str | Path | Problem,
    out: str | Path | None = None,
    dtype: str = "float32",
    timeout: float = 600.0,
) -> Report:
    """Replays problems in JAX and PyTorch and judges both against the oracle.

    Args:
        *problems: lessons, files or problems; all recorded lessons when none is given.
        out: where report and traces go; nowhere when left out.
        dtype: float32 or float64.
        timeout: seconds for the backends.

    Raises:
        InputError: a problem or its tape is unusable.
        BackendError: an implementation failed.
    """
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype: got {dtype!r}; expected float32 or float64")
    loaded = [_problem(problem) for problem in problems or lessons()]
    settings = Settings(dtype, timeout)
    if out is not None:
        return run_problems(loaded, Path(out), settings, _silent).report
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        return run_problems(loaded, Path(folder), settings, _silent).report


def check(
    target: str | Callable[..., Any],
    objective: str,
    *,
    framework: str = "",
    adapter: str = "",
    mapping: Mapping[str, str] | None = None,
    choices: Mapping[str, str] | None = None,
    sign: Sign | None = None,
    reduction: Reduction | None = None,
    policy: Policy | None = None,
    shape: Shape | None = None,
    kl: Kl | None = None,
    detached: bool = False,
    constants: Mapping[str, float] | None = None,
    train: bool = False,
    quick: bool = False,
    timeout: float = 600.0,
) -> CheckReport:
    """Judges a loss of yours against the oracle, in a process of its own.

    Args:
        target: a function at the top of a module, or its name: `package.module:function` or
            `file.py:function`.
        objective: its name, or where you declare it: `file.py:NAME`.
        framework: jax, torch or numpy; recognised when left out.
        adapter: name of a function that takes our inputs and calls the target.
        mapping: the function's parameter to our input.
        choices: choice to option, as `parity objectives NAME` lists them.
        sign: the choice of that name, and so are the next four.
        reduction: over samples or pairs.
        policy: what an argument for `logits` receives.
        shape: of what has one entry a sample.
        kl: whether β KL(π ‖ π_ref) is part of it.
        detached: the choice frozen=caller.
        constants: constants that it has built in.
        train: also train a recorded lesson with it.
        quick: at the core of the probe grid only.
        timeout: seconds for its processes.

    Raises:
        InputError: it cannot be called as asked.
        BackendError: its process died or did not answer.
    """
    convention = stated(
        choices or {},
        constants or {},
        detached=detached,
        sign=sign,
        reduction=reduction,
        policy=policy,
        shape=shape,
        kl=kl,
    )
    name = target if isinstance(target, str) else named(target)
    asked = Target(name, objective, framework, adapter, mapping or {}, convention, train)
    return check_target(asked, timeout, _silent, quick=quick)


def compare(
    problem: str | Path | Problem, *traces: Trace, samples: Samples | None = None
) -> LessonReport:
    """Judges runs of one problem that are already there: each by the oracle, and pair by pair.

    The verdict is about what was compared. What the runs exercised stands in `coverage`: without
    the probes of `run` that is never everything.

    Args:
        problem: a lesson, a file or a problem.
        *traces: runs of it, one for each implementation, of one dtype.
        samples: the tape that they replayed; by default the problem's own.

    Raises:
        InputError: a trace is of another problem, or two have one name or different dtypes.
    """
    solved = _problem(problem)
    if not traces:
        raise InputError("traces: got none; expected at least one")
    named = {trace.implementation: trace for trace in traces}
    if len(named) < len(traces):
        names = ", ".join(trace.implementation for trace in traces)
        raise InputError(f"traces: got implementations {names}; expected different names")
    for name, trace in named.items():
        if trace.dtype != traces[0].dtype:
            raise InputError(
                f"traces: {name}: got {trace.dtype}; expected {traces[0].dtype} like the first"
            )
        if trace.problem_digest not in ("", solved.digest):
            raise InputError(
                f"traces: {name}: problem_digest: got {trace.problem_digest[:12]}…; "
                f"expected {solved.digest[:12]}… of {solved.name}"
            )
    if samples is None and solved.samples and solved.tape:
        samples = Samples.load(Path(solved.samples))
    dtype = traces[0].dtype
    case = gate.Case(
        problem=solved,
        samples=samples,
        dtype=dtype,
        traces=named,
        steps={n: gate.rederive(solved, samples, trace, dtype) for n, trace in named.items()},
        trajectory=gate.whole_run(solved, samples, dtype),
    )
    report = gate.judge(case)
    held = report.invariants
    verdict = worst_verdict([*(c.verdict for c in report.comparisons), *(i.verdict for i in held)])
    failed = [i.implementation for i in held if i.verdict == verdict]
    blamed = blame(report.comparisons, failed, verdict)
    return msgspec.structs.replace(report, verdict=verdict, blamed=blamed)


def load_trace(path: str | Path) -> Trace:
    """Reads the trace of a run.

    Raises:
        InputError: missing, truncated or altered.
    """
    return Trace.load(Path(path))


def _problem(source: str | Path | Problem) -> Problem:
    return source if isinstance(source, Problem) else load_problem(str(source))


def _silent(_who: str, _stage: str) -> None:
    pass
