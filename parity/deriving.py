"""What a worker does for `parity check --against`: a function's values and gradients at inputs."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.calling import Answer, signature_of
from parity.convention import bind
from parity.errors import InputError
from parity.files import read_arrays, write_arrays, write_whole
from parity.targets import load
from parity.watch import MisbehaviourError, Watch, limit_memory, on_guard, raised, severed

__all__ = ["Derive", "Gather", "InputsHeader", "derive", "gather", "load_inputs", "prepared"]

Inputs = dict[str, NDArray[Any]]
Run = Callable[..., tuple[Any, dict[str, Any]]]
MOVED = 2.0**-18  # 64 roundoffs: re-draws what float32 rounds; half precision (2⁻¹¹) hardly moves


class InputsHeader(msgspec.Struct, frozen=True):
    """The JSON header of one point: its label."""

    label: str


class Gather(msgspec.Struct, frozen=True, tag=True):
    """Call a function of the user's that makes points; save them as `output.0` and so on."""

    points: str
    output: str


class Derive(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Evaluate a function of the user's, and its gradients, at points; save an answer and values.

    Attributes:
        target: the function.
        modules: framework to the modules that adapt a function and evaluate it.
        mapping: the function's parameter to a name of the points.
        points: files of one point each.
        gradients: inputs to differentiate in.
        masks: floats that choose, and are not to be moved.
        replicas: how many more runs at inputs moved by a rounding.
        lenient: an exception is the answer of that point, not of the whole.
        output: prefix of what is saved: `.json`, and `.0`, `.1`, … for the points.
    """

    target: str
    modules: dict[str, tuple[str, str]]
    mapping: dict[str, str]
    points: list[str]
    gradients: list[str]
    masks: list[str]
    replicas: int
    lenient: bool = False
    output: str


def gather(job: Gather) -> None:
    """Saves the points that a function of the user's makes, or says why there are none."""
    with on_guard():
        try:
            made = load(job.points, "--points")()
            given = [made] if isinstance(made, Mapping) else list(made)
            points = [_point(number, point) for number, point in enumerate(given)]
            if not points:
                raise InputError("made no points; expected one dictionary of inputs or several")
            for number, point in enumerate(points):
                write_arrays(Path(f"{job.output}.{number}"), InputsHeader(f"point {number}"), point)
            answer = Answer(notes=[str(len(points))])
        except InputError as error:
            answer = Answer(refused=str(error))
        except BaseException as error:  # it may do anything, sys.exit too
            answer = Answer(refused=f"{type(error).__name__}: {error}")
    write_whole(Path(f"{job.output}.json"), msgspec.json.encode(answer))


def _point(number: int, point: Any) -> Inputs:
    if not isinstance(point, Mapping) or not point:
        raise InputError(
            f"point {number}: got {type(point).__name__}; expected a dictionary of inputs"
        )
    return {str(name): prepared(str(name), value) for name, value in point.items()}


def prepared(name: str, value: Any) -> NDArray[Any]:
    """An input as it is saved: floats as float32 numbers held in float64, integers in int64.

    Raises:
        InputError: it holds no numbers, NaN, or what float32 cannot hold.
    """
    if str(getattr(value, "dtype", "")).endswith("bfloat16"):
        raise InputError(f"{name}: got bfloat16, which NumPy lacks; expected float32 or float64")
    array = np.asarray(value.detach() if hasattr(value, "detach") else value)  # torch's
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: got {array.dtype}; expected real numbers, integers or booleans")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        wrong = np.argwhere(np.isnan(array) | (np.isinf(single) & ~np.isinf(array)))
        if len(wrong):
            place = tuple(int(i) for i in wrong[0])
            raise InputError(
                f"{name}{list(place) or ''}: got {array[place]:g}; expected a number within float32"
            )
        return single.astype(np.float64)
    return array if array.dtype.kind == "b" else array.astype(np.int64)


def load_inputs(path: Path) -> tuple[str, Inputs]:
    """One point: its label and its inputs."""
    header, arrays = read_arrays(path, InputsHeader)
    return header.label, arrays


def derive(job: Derive, dtype: str) -> None:
    """Does the job; whatever the function does short of ending the process becomes an answer."""
    write_whole(Path(f"{job.output}.json"), msgspec.json.encode(_derived(job, dtype)))


def _derived(job: Derive, dtype: str) -> Answer:
    watch = Watch()
    with on_guard():
        try:
            function = load(job.target)
            signature = signature_of(function, job.target)
            _, first = load_inputs(Path(job.points[0]))
            matched = _matched(job, signature, first)
        except InputError as error:
            return Answer(refused=str(error))
        loaded = [name for name in job.modules if name in sys.modules and name != "numpy"]
        framework = loaded[0] if loaded else "numpy"
        for name in loaded[1:] and loaded:  # of several, the one that takes it
            adapt = importlib.import_module(job.modules[name][0])
            trial = adapt.deriver(_caller(function, signature, matched, adapt, Watch()), ())
            with suppress(Exception):
                trial(_typed(first, dtype))
                framework = name
                break
        adapt = importlib.import_module(job.modules[framework][0])
        limit_memory()
        known = Answer(framework=framework, signature=f"{job.target.rpartition(':')[2]}{signature}")
        called = _caller(function, signature, matched, adapt, watch)
        for number, file in enumerate(job.points):
            label, inputs = load_inputs(Path(file))
            watch.cells(label, ())
            names = tuple(n for n in job.gradients if framework != "numpy")
            run = adapt.deriver(called, names)
            try:
                with watch.settings(adapt):
                    if number == 0 and dtype == "float64" and not job.lenient:
                        _repeated((run, adapt.deriver(called, names)), inputs)
                    arrays = _evaluated(run, inputs, dtype, job)
            except Exception as error:
                if job.lenient:
                    continue
                what = error if isinstance(error, MisbehaviourError) else raised(error, function)
                fault = f"{what} ({label})"
                return msgspec.structs.replace(known, fault=fault, notes=watch.notes())
            write_arrays(Path(f"{job.output}.{number}"), InputsHeader(label), arrays)
    return msgspec.structs.replace(known, severed=watch.severed, notes=watch.notes())


def _caller(
    function: Callable[..., Any],
    signature: inspect.Signature,
    matched: dict[str, str],
    adapt: Any,
    watch: Watch,
) -> Callable[[dict[str, Any]], Any]:
    """The function, called with the inputs by its own names, and what it returns looked at."""

    def called(inputs: dict[str, Any]) -> Any:
        given = {name: adapt.copied(value) for name, value in inputs.items()}
        result = watch.call(function, *bind(signature, matched, given))
        for name, value in given.items():
            if not adapt.same(value, inputs[name]):
                raise MisbehaviourError(f"changed its input {name} in place")
        result = watch.first(result)
        if not isinstance(result, adapt.arrays) or "float" not in str(result.dtype):
            raise MisbehaviourError(
                f"returned {type(result).__name__}; expected an array of floats"
            )
        watch.severed = watch.severed or severed(result, given)
        return result

    return called


def _matched(job: Derive, signature: Any, inputs: Inputs) -> dict[str, str]:
    """Parameter to name of an input; every input must go somewhere."""
    matched = {}
    for parameter in signature.parameters.values():
        name = job.mapping.get(parameter.name, parameter.name)
        if name in inputs:
            matched[parameter.name] = name
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise InputError(
                f"argument {parameter.name!r} is not among the points: found "
                f"{job.target}{signature}; expected arguments among {', '.join(inputs)}"
            )
    lost = inputs.keys() - set(matched.values())
    if lost:
        raise InputError(
            f"no argument takes {', '.join(sorted(lost))}: found {job.target}{signature}; "
            f"expected arguments {', '.join(inputs)} (--map THEIRS=OURS)"
        )
    return matched


def _repeated(runs: Iterable[Run], inputs: Inputs) -> None:
    """Refuses a function that computes something else when it is called again."""
    once, again = (_named(*run(dict(inputs))) for run in runs)
    if not all(np.array_equal(once[name], again[name], equal_nan=True) for name in once):
        raise MisbehaviourError("gives another value when called again")


def _evaluated(run: Run, inputs: Inputs, dtype: str, job: Derive) -> Inputs:
    """The values at the inputs and, stacked, at inputs moved at random, the same in every dtype.

    What a float32 run there adds to the float64 run is a rounding drawn again. Backwards too: each
    differentiates another multiple of the sum, since constants (1 / N) do not move with the inputs.
    """
    centre = _named(*run(_typed(inputs, dtype)))
    random, moved = np.random.default_rng(20), []
    for _ in range(job.replicas):
        weight = float(np.float32(1 + MOVED * random.uniform(-1, 1)))
        value, gradients = run(_typed(_moved(inputs, job.masks, random), dtype), weight)
        wide = {name: np.array(g, np.float64) / weight for name, g in gradients.items()}
        moved.append(_named(value, wide))
    stacked = {f"replicas/{n}": np.stack([m[n] for m in moved]) for n in centre if moved}
    return {**centre, **stacked}


def _typed(inputs: Inputs, dtype: str) -> Inputs:
    return {n: v.astype(dtype) if v.dtype.kind == "f" else v for n, v in inputs.items()}


def _named(value: Any, gradients: Mapping[str, Any]) -> Inputs:
    by_name: Iterable[tuple[str, Any]] = ((f"gradient/{n}", g) for n, g in gradients.items())
    return {"value": np.array(value), **{name: np.array(array) for name, array in by_name}}


def _moved(inputs: Inputs, masks: Iterable[str], random: np.random.Generator) -> Inputs:
    """Every float moved by a random part of itself, to a float32 number; masks stay.

    A zero moves upwards, by a part of the largest entry or of 1: equal terms all round alike.
    """
    moved = dict(inputs)
    for name, values in sorted(inputs.items()):  # a file forgets their order
        if values.dtype.kind != "f" or name in masks:
            continue
        size = np.where(np.isfinite(values), np.abs(values), 0.0)
        least = 0.0 if values.all() else size.max(initial=0.0) or 1.0
        shift = MOVED * random.uniform(-1, 1, values.shape)
        other = np.where(values == 0, np.abs(shift) * least, values + shift * size)
        moved[name] = other.astype(np.float32).astype(np.float64)
    return moved
