"""What runs in a backend's own process: it reads an order, does its jobs and says how far it is.

Started as `python -P -m parity.worker ORDER.json`. Events leave on standard output, one JSON
object a line; whatever else prints goes to standard error. The process ends with its parent.
"""

import gc
import importlib
import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from parity.calling import Call, answer
from parity.deriving import Derive, Gather, derive, gather
from parity.problem import Problem

__all__ = [
    "Draw",
    "Evaluate",
    "Event",
    "Job",
    "Order",
    "Plant",
    "Rerun",
    "Show",
    "Train",
    "main",
]


class Train(msgspec.Struct, frozen=True, tag=True):
    """Replay a problem and save its trace."""

    problem: Problem
    samples: str | None
    output: str


class Evaluate(msgspec.Struct, frozen=True, tag=True):
    """Evaluate an objective at the points of a file and save the trace."""

    points: str
    output: str


class Draw(msgspec.Struct, frozen=True, tag=True):
    """Draw a tape and save it."""

    problem: Problem
    seed: int
    output: str


class Plant(msgspec.Struct, frozen=True, tag=True):
    """Train and evaluate with a known bug in place of one piece; save all traces.

    Attributes:
        objective: of the bug.
        fault: name of one; empty for none, the honest twin.
        problem: to be trained.
        samples: the tape to replay.
        points: files of points.
        compiled: how many of the files to evaluate compiled, like a run; the others op by op.
        output: prefix of the traces: `.run`, and `.0`, `.1`, … for the points.
    """

    objective: str
    fault: str
    problem: Problem
    samples: str | None
    points: list[str]
    compiled: int
    output: str


class Rerun(msgspec.Struct, frozen=True):
    """A run that a mechanic reads, honest or with a known bug.

    Attributes:
        problem: to be trained.
        samples: the tape to replay.
        objective: of the bug.
        fault: name of one; empty for none.
    """

    problem: Problem
    samples: str | None
    objective: str = ""
    fault: str = ""


class Show(msgspec.Struct, frozen=True, tag=True):
    """Compute the table of one mechanic and save it.

    Attributes:
        module: the twin's mechanics.
        name: which.
        given: its numbers.
        runs: the runs that it reads.
        output: one array for each group of rows; the header holds the versions.
    """

    module: str
    name: str
    given: dict[str, Any]
    runs: dict[str, Rerun]
    output: str


Job = Train | Evaluate | Draw | Plant | Call | Show | Derive | Gather


class Order(msgspec.Struct, frozen=True):
    """Everything that one process is to do.

    Attributes:
        module: the backend's module; empty where the jobs bring their own.
        dtype: float32 or float64.
        jobs: done one after the other.
    """

    module: str
    dtype: str
    jobs: list[Job]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says: the stage that begins, the job that is done, or why it gives up."""

    stage: str = ""
    done: int | None = None
    failed: str = ""


def main() -> None:
    """Does the jobs of the order that the command line names."""
    # Frameworks print at will: events keep the real standard output to themselves.
    with os.fdopen(os.dup(1), "wb", buffering=0) as events:
        os.dup2(2, 1)
        threading.Thread(target=_end_with_parent, daemon=True).start()

        def say(event: Event) -> None:
            events.write(msgspec.json.encode(event) + b"\n")

        order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order)
        say(Event(stage="importing"))
        gc.disable()  # an import leaves next to no garbage, and every search for it takes longer
        try:
            backend = importlib.import_module(order.module) if order.module else None
        except ModuleNotFoundError as error:
            say(Event(failed=_missing(error.name or "")))
            raise
        gc.freeze()
        gc.enable()
        for position, job in enumerate(order.jobs):
            _do(job, backend, order.dtype, say)
            say(Event(done=position))
    os._exit(0)  # at once: to take a framework apart costs time that the other worker needs


def _missing(name: str) -> str:
    extra = f" (pip install 'rlhf-parity[{name}]')" if name in ("jax", "torch") else ""
    return f"{name} is not installed{extra}"


def _do(job: Job, backend: Any, dtype: str, say: Any) -> None:
    import numpy as np

    from parity.files import write_arrays
    from parity.points import Points
    from parity.samples import Samples

    output = Path(job.output)
    match job:
        case Train(problem, samples):
            say(Event(stage=f"training {problem.name}"))
            tape = Samples.load(Path(samples)) if samples else None
            backend.train(problem, tape, dtype).save(output)
        case Evaluate(points):
            grid = Points.load(Path(points))
            say(Event(stage=f"evaluating {grid.objective} points"))
            backend.evaluate(grid, dtype).save(output)
        case Call(target=target):
            say(Event(stage=f"calling {target}"))
            answer(job, dtype)
        case Derive(target=target):
            say(Event(stage=f"calling {target}"))
            derive(job, dtype)
        case Gather():
            gather(job)
        case Plant(objective, fault, problem, samples, files, compiled, prefix):
            say(Event(stage=f"planting {fault}" if fault else f"training {problem.name}"))
            pieces = {objective: backend.planted(objective, fault)} if fault else {}
            tape = Samples.load(Path(samples)) if samples else None
            backend.train(problem, tape, dtype, pieces).save(Path(f"{prefix}.run"))
            for position, file in enumerate(files):
                grid = Points.load(Path(file))
                loss = pieces[objective].loss if grid.objective in pieces else None
                with nullcontext() if position < compiled or not loss else backend.op_by_op():
                    evaluated = backend.evaluate(grid, dtype, loss)
                evaluated.save(Path(f"{prefix}.{position}"))
        case Show(module, name, given, runs):
            say(Event(stage=f"computing {name}"))
            traces = {key: _rerun(run, backend, dtype) for key, run in runs.items()}
            rows = importlib.import_module(module).show(name, given, traces)
            arrays = {group: np.asarray(values) for group, values in rows.items()}
            write_arrays(output, backend.environment(), arrays)
        case Draw(problem, seed):
            say(Event(stage=f"drawing samples of {problem.name}"))
            backend.draw(problem, seed).save(output)


def _rerun(run: Rerun, backend: Any, dtype: str) -> dict[str, Any]:
    from parity.samples import Samples

    pieces = {run.objective: backend.planted(run.objective, run.fault)} if run.fault else {}
    tape = Samples.load(Path(run.samples)) if run.samples else None
    trace = backend.train(run.problem, tape, dtype, pieces)
    return {name: trace[name] for name in trace.quantities}


def _end_with_parent() -> None:
    """Standard input is a pipe that the parent never writes to: it ends when the parent does."""
    while os.read(0, 1):  # not sys.stdin, whose lock would be held while the interpreter ends
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
