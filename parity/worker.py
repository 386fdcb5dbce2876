"""What runs in a backend's own process: it reads an order, does its jobs and says how far it is.

Started as `python -P -m parity.worker ORDER.json`. Events leave on standard output, one JSON
object a line; whatever else prints goes to standard error. The process ends with its parent.
"""

import importlib
import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from parity.problem import Problem

__all__ = ["Draw", "Evaluate", "Event", "Job", "Order", "Plant", "Train", "main"]


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
        module: the twin's known bugs.
        fault: name of one; empty for none, the honest twin.
        problem: to be trained.
        samples: the tape to replay.
        points: files of points.
        compiled: how many of the files to evaluate compiled, like a run; the others op by op.
        output: prefix of the traces: `.run`, and `.0`, `.1`, … for the points.
    """

    module: str
    fault: str
    problem: Problem
    samples: str | None
    points: list[str]
    compiled: int
    output: str


Job = Train | Evaluate | Draw | Plant


class Order(msgspec.Struct, frozen=True):
    """Everything that one process is to do.

    Attributes:
        module: the backend's module.
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
        try:
            backend = importlib.import_module(order.module)
        except ModuleNotFoundError as error:
            say(Event(failed=f"{error.name} is not installed"))
            raise
        for position, job in enumerate(order.jobs):
            _do(job, backend, order.dtype, say)
            say(Event(done=position))


def _do(job: Job, backend: Any, dtype: str, say: Any) -> None:
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
        case Plant(module, fault, problem, samples, files, compiled, prefix):
            say(Event(stage=f"planting {fault}" if fault else f"training {problem.name}"))
            pieces = importlib.import_module(module).FAULTS[fault] if fault else backend.PIECES
            tape = Samples.load(Path(samples)) if samples else None
            backend.train(problem, tape, dtype, pieces).save(Path(f"{prefix}.run"))
            for position, file in enumerate(files):
                with nullcontext() if position < compiled else backend.op_by_op():
                    evaluated = backend.evaluate(Points.load(Path(file)), dtype, pieces)
                evaluated.save(Path(f"{prefix}.{position}"))
        case Draw(problem, seed):
            say(Event(stage=f"drawing samples of {problem.name}"))
            backend.draw(problem, seed).save(output)


def _end_with_parent() -> None:
    """Standard input is a pipe that the parent never writes to: it ends when the parent does."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
