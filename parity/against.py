"""`parity check A --against B`: two functions of the user's, of any objective and framework.

The judge is each function's own float64 run. How far its float32 runs, at inputs moved at random,
scatter about it gives the allowance: what they all miss it by is no rounding. The two float64 runs
against each other say whether the functions compute the same thing at all.
"""

import io
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.arithmetic.rounded import REPLICAS
from parity.backends import CALLED, Progress, Workers
from parity.calling import Answer
from parity.deriving import Derive, Gather, InputsHeader, load_inputs, prepared
from parity.errors import BackendError, InputError
from parity.files import read_bytes, write_arrays
from parity.parting import (
    DTYPES,
    SIDES,
    AgainstReport,
    Broken,
    Pair,
    Played,
    judge_pair,
    parted,
)
from parity.targets import split
from parity.worker import Job

__all__ = ["Pair", "compare_functions"]

Inputs = dict[str, NDArray[Any]]
LONGEST = 64  # rows tried one by one


def compare_functions(pair: Pair, timeout: float, progress: Progress) -> AgainstReport:
    """Compares two functions.

    Args:
        pair: the functions and their inputs.
        timeout: seconds for each round of processes.
        progress: called with who and what stage.

    Raises:
        InputError: one cannot be called as asked, or the inputs are unusable.
        BackendError: a process died or did not answer.
    """
    split(pair.left)
    split(pair.right, "--against")
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        points = _points(pair.points, folder, timeout, progress)
        _uniform(pair.points, points)
        masks = _masks(points)
        gradients = _differentiated(pair, points[0][1], masks)
        played = _play(pair, points, gradients, masks, folder / "all", timeout, progress)
        report = judge_pair(pair, points, gradients, played)
        if not pair.gradients:
            taken = [name for name in masks if name not in gradients]
            advice = "not differentiated, it is a mask: {0} (--gradients {0})"
            notes = [*report.notes, *(advice.format(name) for name in taken)]
            report = msgspec.structs.replace(report, notes=notes)
        if report.fault or not report.broken:
            return report
        broken = [
            _shrunk(b, pair, points, gradients, masks, folder / f"less-{n}", timeout, progress)
            for n, b in enumerate(report.broken[:1])
        ]
        return msgspec.structs.replace(report, broken=[*broken, *report.broken[1:]])


def _points(
    source: str, folder: Path, timeout: float, progress: Progress
) -> list[tuple[str, Inputs]]:
    if Path(source).suffix not in (".npz", ".safetensors"):
        split(source, "--points")
        jobs: list[Job] = [Gather(source, str(folder / "made"))]
        with Workers({"points": jobs}, "float32", timeout, progress) as workers:
            for _ in workers.finished():
                pass
        answer = msgspec.json.decode((folder / "made.json").read_bytes(), type=Answer)
        if answer.refused:
            raise InputError(f"--points: {source}: {answer.refused}")
        return [load_inputs(folder / f"made.{n}") for n in range(int(answer.notes[0]))]
    arrays = _read(Path(source))
    labels = dict.fromkeys(name.rpartition("/")[0] for name in arrays)
    points = [
        (
            label or "the point",
            {
                name.rpartition("/")[2]: prepared(f"{source}: {name}", values)
                for name, values in arrays.items()
                if name.rpartition("/")[0] == label
            },
        )
        for label in labels
    ]
    if not points:
        raise InputError(f"--points: {source}: holds nothing; expected one array an argument")
    return points


def _read(path: Path) -> Inputs:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    content = read_bytes(path)
    try:
        if path.suffix == ".safetensors":
            return load(content)
        with zipfile.ZipFile(io.BytesIO(content)):  # NumPy takes anything else for a pickle
            archive = np.load(io.BytesIO(content), allow_pickle=False)
    except (SafetensorError, zipfile.BadZipFile) as error:
        raise InputError(f"--points: {path}: not a readable {path.suffix} file: {error}") from error
    found = {}
    for name in archive.files:
        try:
            found[name] = archive[name]
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(
                f"--points: {path}: {name}: not readable; expected an array of numbers"
            ) from error
    return found


def _uniform(source: str, points: Sequence[tuple[str, Inputs]]) -> None:
    """Refuses points that hold other arrays than the first does, or of another kind, or no floats.

    Raises:
        InputError: they do.
    """
    start, first = points[0]
    if not any(values.dtype.kind == "f" for values in first.values()):
        found = ", ".join(f"{name} {values.dtype}" for name, values in first.items())
        raise InputError(f"--points: {source}: {start}: got {found}; expected an array of floats")
    for label, inputs in points[1:]:
        for name in dict.fromkeys([*first, *inputs]):
            here, there = (str(i[name].dtype) if name in i else "nothing" for i in (inputs, first))
            if here != there:
                raise InputError(
                    f"--points: {source}: {label}: {name}: got {here}; expected {there}, "
                    f"as in {start}"
                )


def _masks(points: Sequence[tuple[str, Inputs]]) -> list[str]:
    """Floats that choose: 0 or 1 at every point, and both of them or a mask by name."""
    found = []
    for name in points[0][1]:
        arrays = [inputs[name] for _, inputs in points]
        values = np.unique(np.concatenate([array.ravel() for array in arrays]))
        binary = arrays[0].dtype.kind == "f" and bool(np.isin(values, (0.0, 1.0)).all())
        if binary and ("mask" in name.lower() or len(values) == 2):
            found.append(name)
    return found


def _differentiated(pair: Pair, first: Inputs, masks: Sequence[str]) -> list[str]:
    for option, names in (("--gradients", pair.gradients), ("--frozen", pair.frozen)):
        for name in names:
            if name not in first or first[name].dtype.kind != "f":
                floats = ", ".join(n for n, v in first.items() if v.dtype.kind == "f")
                raise InputError(f"{option}: got {name!r}; expected one of {floats}")
    every = sorted(n for n, v in first.items() if v.dtype.kind == "f" and n not in masks)
    return list(dict.fromkeys([*(pair.gradients or every), *pair.frozen]))


def _play(
    pair: Pair,
    points: Sequence[tuple[str, Inputs]],
    gradients: list[str],
    masks: list[str],
    place: Path,
    timeout: float,
    progress: Progress,
    *,
    dtypes: Sequence[str] = DTYPES,
) -> Played:
    """Both functions side by side, in one dtype after the other; one dtype alone is lenient."""
    files = []
    for number, (label, inputs) in enumerate(points):
        files.append(f"{place}-{number}")
        write_arrays(Path(files[-1]), InputsHeader(label), inputs)
    played, lenient = Played({}, {}), len(dtypes) == 1
    for dtype in dtypes:
        jobs: dict[str, list[Job]] = {
            side: [
                Derive(
                    target=target,
                    modules=CALLED,
                    mapping=dict(pair.mapping),
                    points=files,
                    gradients=gradients,
                    masks=masks,
                    replicas=0 if lenient else REPLICAS,
                    lenient=lenient,
                    output=f"{place}-{side}-{dtype}",
                )
            ]
            for side, target in zip(SIDES, (pair.left, pair.right), strict=True)
        }
        with Workers(jobs, dtype, timeout, progress) as workers:
            try:
                for _ in workers.finished():
                    pass
            except BackendError as error:
                target = pair.left if error.backend == "A" else pair.right
                reason = str(error).removeprefix(f"{error.backend}: ")
                raise BackendError(f"{target} ({dtype})", reason, error.details) from error
        for side, target in zip(SIDES, (pair.left, pair.right), strict=True):
            output = f"{place}-{side}-{dtype}"
            answer = msgspec.json.decode(Path(f"{output}.json").read_bytes(), type=Answer)
            if answer.refused:
                raise InputError(f"{target}: {answer.refused}")
            played.answers[side, dtype] = answer
            for number in range(len(points)):
                path = Path(f"{output}.{number}")
                if path.exists():
                    played.values[side, dtype, number] = load_inputs(path)[1]
    return played


def _shrunk(
    broken: Broken,
    pair: Pair,
    points: Sequence[tuple[str, Inputs]],
    gradients: list[str],
    masks: list[str],
    place: Path,
    timeout: float,
    progress: Progress,
) -> Broken:
    """How little of the leading axis suffices: single rows, then halves of what is left.

    The float64 runs alone are compared here, by what float32 could explain.
    """
    inputs = next(given for label, given in points if label == broken.point)
    lengths = [v.shape[0] for v in inputs.values() if v.ndim]
    if not lengths:
        return broken
    total = max(dict.fromkeys(lengths), key=lengths.count)
    rows = list(range(min(total, LONGEST)))
    halves = [list(range(total >> k)) for k in range(total.bit_length() - 2, 0, -1)]
    candidates = [*([row] for row in rows), *halves]
    less = [(str(c), _rows(inputs, c, total)) for c in candidates]
    try:
        played = _play(pair, less, gradients, masks, place, timeout, progress, dtypes=("float64",))
    except (BackendError, InputError):  # of less than it needs, a function may well break
        return broken
    for number, candidate in enumerate(candidates):
        sides = [played.values.get((side, "float64", number)) for side in SIDES]
        if parted(sides[0], sides[1], broken.quantities):
            return msgspec.structs.replace(broken, rows=candidate, of=total)
    return msgspec.structs.replace(broken, rows=list(range(total)), of=total)


def _rows(inputs: Inputs, rows: list[int], total: int) -> Inputs:
    return {
        name: values[rows] if values.ndim and values.shape[0] == total else values
        for name, values in inputs.items()
    }
