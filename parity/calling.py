"""What a worker does with a function of the user's: it loads, recognises, calls and watches it."""

import importlib
import inspect
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from parity.convention import Convention, bind, match
from parity.errors import InputError
from parity.files import write_whole
from parity.objectives import find
from parity.points import Points
from parity.problem import Problem
from parity.recognition import recognised
from parity.samples import Samples
from parity.stating import loss_of
from parity.targets import load
from parity.watch import (
    MisbehaviourError,
    Watch,
    checked,
    limit_memory,
    on_guard,
    printable,
    raised,
    severed,
)

__all__ = ["Answer", "Call", "answer", "signature_of"]


class Call(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Evaluate, and perhaps train with, a function of the user's; save an answer and traces.

    Attributes:
        target: the function.
        adapter: a function of the user's that builds it from a target; empty for none.
        framework: jax, torch or numpy; empty to recognise it.
        modules: framework to the modules that adapt a function and evaluate it.
        objective: its name, or where a user declares it.
        convention: how the function states it.
        mapping: parameter to our input.
        points: files of points.
        compiled: how many of them to evaluate compiled; the others op by op.
        problem: to be trained; None not to train.
        samples: the tape to replay.
        output: prefix of what is saved: `.json`, `.run`, and `.0`, `.1`, … for the points.
    """

    target: str
    adapter: str = ""
    framework: str = ""
    modules: dict[str, tuple[str, str]]
    objective: str
    convention: Convention
    mapping: dict[str, str] = {}
    points: list[str]
    compiled: int
    problem: Problem | None = None
    samples: str | None = None
    output: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call.

    Attributes:
        framework: of the function.
        signature: as it was found.
        matched: parameter to our input.
        refused: why the function cannot be called as asked; empty otherwise.
        fault: what it did wrong, beside its values; empty otherwise.
        severed: why its values have no gradients; empty where they have, or that is its fault.
        notes: what is remarkable and harmless.
    """

    framework: str = ""
    signature: str = ""
    matched: dict[str, str] = {}
    refused: str = ""
    fault: str = ""
    severed: str = ""
    notes: list[str] = []

    def __post_init__(self) -> None:
        """Makes text from the user's code printable: it may hold what no file can."""
        for name in ("signature", "refused", "fault", "severed"):
            msgspec.structs.force_setattr(self, name, printable(getattr(self, name)))
        shown = [printable(note) for note in self.notes]
        msgspec.structs.force_setattr(self, "notes", shown)


def answer(job: Call, dtype: str) -> None:
    """Does the job; whatever the function does short of ending the process becomes an answer."""
    write_whole(Path(f"{job.output}.json"), msgspec.json.encode(_answer(job, dtype)))


def _answer(job: Call, dtype: str) -> Answer:
    watch = Watch()
    with on_guard():
        try:
            function = load(job.adapter or job.target, "--adapter" if job.adapter else "TARGET")
            signature = signature_of(function, job.adapter or job.target)
            name = (job.adapter or job.target).rpartition(":")[2]
            matched = match(signature, name, find(job.objective), job.convention, job.mapping)
        except InputError as error:
            return Answer(refused=str(error))
        framework = job.framework or recognised(
            function,
            job.modules,
            partial(_accepts, job, dtype, function, signature, matched),
        )
        adapt, backend = (importlib.import_module(module) for module in job.modules[framework])
        if job.problem and not hasattr(backend, "train"):
            return Answer(
                refused=f"--train: {name}: got a {framework} function; expected gradients"
            )
        limit_memory()
        known = Answer(framework=framework, signature=f"{name}{signature}", matched=dict(matched))
        call = _call(function, signature, matched, adapt, job.convention, watch)
        loss = loss_of(call, find(job.objective), job.convention, {*matched.values()})
        fault = ""
        try:
            for position, file in enumerate(job.points):
                points = Points.load(Path(file))
                watch.cells(points.grid, points.labels)
                with (
                    watch.settings(adapt),
                    nullcontext() if position < job.compiled else backend.op_by_op(),
                ):
                    trace = backend.evaluate(points, dtype, loss)
                trace.save(Path(f"{job.output}.{position}"))
            if job.problem:
                watch.cells(f"training {job.problem.name}", ())
                tape = Samples.load(Path(job.samples)) if job.samples else None
                with watch.settings(adapt):
                    trace = backend.train_with(job.problem, tape, dtype, job.objective, loss)
                trace.save(Path(f"{job.output}.run"))
        except MisbehaviourError as error:
            fault = f"{error} ({watch.where()})"
        except Exception as error:  # past the call: in the derivative
            fault = f"differentiating it {raised(error, function)} ({watch.where()})"
    return msgspec.structs.replace(known, fault=fault, notes=watch.notes())


def signature_of(function: Callable[..., Any], name: str) -> inspect.Signature:
    """The parameters of a function.

    Raises:
        InputError: Python cannot tell.
    """
    try:
        signature = inspect.signature(function)
        str(signature)  # the words of its defaults are the user's
        return signature
    except Exception as error:
        raise InputError(
            f"{name}: has no signature that Python can read; expected a function of its own "
            "(--adapter FILE.py:FUNCTION)"
        ) from error


def _accepts(
    job: Call,
    dtype: str,
    function: Callable[..., Any],
    signature: inspect.Signature,
    matched: dict[str, str],
    framework: str,
) -> bool:
    """Whether the function takes a framework's arrays at the first point, and returns one."""
    points = Points.load(Path(job.points[0]))
    single = {name: values[:1] for name, values in points.inputs.items()}
    first = Points(points.objective, points.grid, points.labels[:1], single)
    adapt, backend = (importlib.import_module(module) for module in job.modules[framework])
    watch = Watch()
    call = _call(function, signature, matched, adapt, job.convention, watch)
    loss = loss_of(call, find(job.objective), job.convention, {*matched.values()})
    with suppress(Exception), watch.settings(adapt):
        backend.evaluate(first, dtype, loss)
        return True
    return False


def _call(
    function: Callable[..., Any],
    signature: inspect.Signature,
    matched: dict[str, str],
    adapt: Any,
    convention: Convention,
    watch: "Watch",
) -> Callable[[dict[str, Any], tuple[int, ...]], Any]:
    """The function, called with our inputs by its own names, and what it returns looked at."""

    def call(inputs: dict[str, Any], outer: tuple[int, ...]) -> Any:
        given = {ours: adapt.copied(inputs[ours]) for ours in dict.fromkeys(matched.values())}
        result = watch.call(function, *bind(signature, matched, given))
        for ours, value in given.items():
            if not adapt.same(value, inputs[ours]):
                raise MisbehaviourError(f"changed its input {ours} in place; expected it untouched")
        result = watch.first(result)
        shape = outer if convention.choices.get("reduction") == "per-sample" else ()
        dtypes = [str(v.dtype) for v in inputs.values() if "int" not in str(v.dtype)]
        checked(result, adapt.arrays, shape, dtypes[0])
        if why := severed(result, given):
            raise MisbehaviourError(why)
        return result

    return call
