"""`parity check A --against B`: two functions of the user's, of any objective and framework.

The judge is each function's own float64 run. How far its float32 runs, at inputs rounded at random,
lie from it gives the allowance; the two float64 runs against each other say whether the functions
compute the same thing at all.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.backends import CALLED, Progress, Workers
from parity.calling import Answer
from parity.deriving import Derive, Gather, InputsHeader, is_mask, load_inputs, prepared
from parity.errors import BackendError, InputError
from parity.files import read_bytes, write_arrays
from parity.noise import REPLICAS
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
        gradients = _differentiated(pair, points)
        played = _play(pair, points, gradients, folder / "all", timeout, progress)
        report = judge_pair(pair, points, gradients, played)
        if report.fault or not report.broken:
            return report
        broken = [
            _shrunk(b, pair, points, gradients, folder / f"less-{n}", timeout, progress)
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
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (SafetensorError, ValueError, OSError, EOFError) as error:
        raise InputError(f"--points: {path}: not a readable {path.suffix} file: {error}") from error


def _differentiated(pair: Pair, points: Sequence[tuple[str, Inputs]]) -> list[str]:
    _, first = points[0]
    for option, names in (("--gradients", pair.gradients), ("--frozen", pair.frozen)):
        for name in names:
            if name not in first or first[name].dtype.kind != "f":
                floats = ", ".join(n for n, v in first.items() if v.dtype.kind == "f")
                raise InputError(f"{option}: got {name!r}; expected one of {floats}")
    every = sorted(n for n, v in first.items() if v.dtype.kind == "f" and not is_mask(v))
    return list(dict.fromkeys([*(pair.gradients or every), *pair.frozen]))


def _play(
    pair: Pair,
    points: Sequence[tuple[str, Inputs]],
    gradients: list[str],
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
    played = Played({}, {})
    for dtype in dtypes:
        jobs: dict[str, list[Job]] = {
            side: [
                Derive(
                    target=target,
                    modules=CALLED,
                    mapping=dict(pair.mapping),
                    points=files,
                    gradients=gradients,
                    replicas=REPLICAS if dtype == "float32" else 0,
                    lenient=len(dtypes) == 1,
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
        played = _play(pair, less, gradients, place, timeout, progress, dtypes=("float64",))
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
