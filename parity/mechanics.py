"""The mechanics of the lessons: predicted, then shown in closed form and in both frameworks."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity import faults
from parity.arithmetic.measure import Emission, Expected, Lift, measure
from parity.backends import MECHANIC_MODULES, Progress, Workers
from parity.comparison import Number, number
from parity.errors import BackendError, InputError
from parity.files import read_arrays, read_bytes
from parity.lessons import oracle
from parity.objectives.closed_forms import FORMS, Replayed
from parity.problem import Problem, load_problem
from parity.samples import Samples
from parity.worker import Job, Rerun, Show

__all__ = ["Cell", "Group", "Mechanic", "Row", "RunOf", "Shown", "catalogue", "chosen", "show"]

_HERE = Path(__file__).parent


class RunOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A real run that a mechanic reads: a lesson, perhaps with another β or with a known bug."""

    lesson: str
    beta: float | None = None
    fault: str = ""


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rows of a table that are computed together.

    Attributes:
        name: of the array that holds them.
        labels: one for each row.
        dtype: in which the frameworks compute it; counts are exempt.
        closed: in words, where no closed form decides; every framework is then documented.
        documented: framework to {version: values}: what it returns from that version on, where
            that is not what the closed form says.
    """

    name: str
    labels: tuple[str, ...]
    dtype: Literal["float32", "float64"] = "float32"
    closed: str = ""
    documented: dict[str, dict[str, tuple[float, ...]]] = {}


class Mechanic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One entry of the catalogue.

    Attributes:
        name: for the command line, and in both twins' `mechanics.py`.
        title: what is shown.
        question: to be answered before looking.
        options: answers to choose from.
        answer: position of the right one.
        lesson: the sentence to take home.
        source: where it comes from.
        given: numbers handed to the closed form and to both twins; whole numbers are indices.
        runs: real runs that it reads.
        rows: the table.
        note: how to read it.
    """

    name: str
    title: str
    question: str
    options: tuple[str, ...]
    answer: int
    lesson: str
    source: str
    given: dict[str, Any] = {}
    runs: dict[str, RunOf] = {}
    rows: tuple[Group, ...]
    note: str = ""


class _Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mechanic: tuple[Mechanic, ...]


class Cell(msgspec.Struct, frozen=True):
    """What one framework computed.

    Attributes:
        value: the number.
        documented: what this framework is documented to return; None where the closed form counts.
        agree: whether it is what is expected.
    """

    value: Number
    documented: Number | None
    agree: bool


class Row(msgspec.Struct, frozen=True):
    """One line of a table.

    Attributes:
        quantity: what it is.
        closed: the closed form, or in words what it leaves open.
        allowed: how far float32 rounding may move it; None where no closed form decides.
        cells: framework to what it computed.
    """

    quantity: str
    closed: Number | str
    allowed: Number | None
    cells: dict[str, Cell]

    @property
    def agree(self) -> bool:
        """Whether every framework computed what is expected of it."""
        return all(cell.agree for cell in self.cells.values())


class Shown(msgspec.Struct, frozen=True):
    """A mechanic with its table.

    Attributes:
        mechanic: what was asked.
        rows: the table.
        agree: whether all rows do.
        environment: framework to its versions.
    """

    mechanic: Mechanic
    rows: list[Row]
    agree: bool
    environment: dict[str, dict[str, str]]


def catalogue() -> tuple[Mechanic, ...]:
    """Loads the catalogue that ships with the package."""
    return msgspec.toml.decode(read_bytes(_HERE / "mechanics.toml"), type=_Catalogue).mechanic


def chosen(names: Sequence[str]) -> list[Mechanic]:
    """Finds mechanics by name.

    Raises:
        InputError: no such mechanic.
    """
    known = {mechanic.name: mechanic for mechanic in catalogue()}
    for name in names:
        if name not in known:
            raise InputError(f"mechanic: got {name!r}; expected one of {', '.join(known)}")
    return [known[name] for name in names]


def show(mechanics: Sequence[Mechanic], timeout: float, progress: Progress) -> Iterator[Shown]:
    """Computes the tables of mechanics, in closed form here and live in one worker a framework.

    Args:
        mechanics: which.
        timeout: seconds for the workers.
        progress: called with who and what stage.

    Raises:
        BackendError: a worker failed.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        jobs = {
            framework: [_job(mechanic, framework, folder) for mechanic in mechanics]
            for framework in MECHANIC_MODULES
        }
        with Workers(jobs, "float32", timeout, progress) as workers:
            expected = []
            for mechanic in mechanics:
                progress("oracle", f"closed form of {mechanic.name}")
                expected.append({dtype: _expected(mechanic, dtype) for dtype in _dtypes(mechanic)})
            progress("oracle", "done")
            done: dict[int, dict[str, _Table]] = {}
            for framework, job in workers.finished():
                tables = done.setdefault(job, {})
                tables[framework] = _table(framework, mechanics[job], folder)
                if len(tables) == len(jobs):
                    yield _shown(mechanics[job], expected[job], done.pop(job))


def _job(mechanic: Mechanic, framework: str, folder: Path) -> Job:
    runs = {}
    for key, run in mechanic.runs.items():
        problem = _problem(run)
        broken = faults.chosen([run.fault])[0].objective.name if run.fault else ""
        runs[key] = Rerun(problem, problem.samples, broken, run.fault)
    output = str(folder / f"{mechanic.name}.{framework}")
    return Show(MECHANIC_MODULES[framework], mechanic.name, mechanic.given, runs, output)


def _problem(run: RunOf) -> Problem:
    problem = load_problem(run.lesson)
    if run.beta is None:
        return problem
    sampled = next(o.name for o, training, _ in problem.parts() if training.tape)
    other = msgspec.structs.replace(problem.tape, beta=run.beta)
    return msgspec.structs.replace(problem, **{sampled: other})


def _dtypes(mechanic: Mechanic) -> list[str]:
    return list(dict.fromkeys(group.dtype for group in mechanic.rows if not group.closed))


def _expected(mechanic: Mechanic, dtype: str) -> Expected:
    """The closed form of every row that has one, and how far rounding may move it."""
    shapes = {group.name: (len(group.labels),) for group in mechanic.rows if not group.closed}
    return measure(lambda lift: _closed_form(mechanic, lift), shapes, dtype, rigorous=False)


def _closed_form(mechanic: Mechanic, lift: Lift) -> Iterator[Emission]:
    given = {}
    for key, value in mechanic.given.items():
        plain = np.asarray(value)
        integer = plain.dtype.kind == "i"
        given[key] = lift(plain if integer else plain.astype(np.float32).astype(float))
    runs = {key: _replayed(run, lift) for key, run in mechanic.runs.items() if not run.fault}
    return FORMS[mechanic.name](**given, **runs)


def _replayed(run: RunOf, lift: Lift) -> Replayed:
    problem = _problem(run)
    actions = Samples.load(Path(problem.samples)).actions if problem.samples else None
    return {
        (name, where): value
        for where, _, values in oracle.trajectory(problem, actions, "float32", lift)
        for name, value in values.items()
    }


class _Table(msgspec.Struct, frozen=True):
    """What one framework computed, and its versions."""

    arrays: dict[str, NDArray[Any]]
    environment: dict[str, str]


def _table(framework: str, mechanic: Mechanic, folder: Path) -> _Table:
    """Reads back a worker's table; what is missing or of another make is never shown as agreeing.

    Raises:
        BackendError: the table is not as the catalogue declares.
    """
    environment, arrays = read_arrays(folder / f"{mechanic.name}.{framework}", dict)
    if set(arrays) != {group.name for group in mechanic.rows}:
        raise BackendError(framework, f"{mechanic.name}: computed {sorted(arrays)} only")
    flat = {name: np.atleast_1d(values).ravel() for name, values in arrays.items()}
    for group in mechanic.rows:
        values = flat[group.name]
        right = values.dtype.kind == "i" or values.dtype == group.dtype
        if len(values) != len(group.labels) or not right:
            raise BackendError(
                framework,
                f"{mechanic.name}: {group.name}: got {values.dtype}[{len(values)}]; "
                f"expected {group.dtype}[{len(group.labels)}]",
            )
    return _Table(flat, environment)


def _shown(
    mechanic: Mechanic, expected: Mapping[str, Expected], tables: Mapping[str, _Table]
) -> Shown:
    ordered = {framework: tables[framework] for framework in MECHANIC_MODULES}
    rows = [
        _row(group, index, None if group.closed else expected[group.dtype], ordered)
        for group in mechanic.rows
        for index in range(len(group.labels))
    ]
    return Shown(
        mechanic,
        rows,
        all(row.agree for row in rows),
        {framework: table.environment for framework, table in ordered.items()},
    )


def _row(group: Group, index: int, expected: Expected | None, tables: Mapping[str, _Table]) -> Row:
    closed: Any = group.closed
    allowed = None
    if expected is not None:
        closed = expected.values[group.name][index]
        allowed = float(expected.allowed[group.name][index])
    cells = {}
    for framework, table in tables.items():
        value = table.arrays[group.name][index]
        documented = _documented(group, framework, table.environment[framework])
        if documented is not None:
            said = documented[index]
            cells[framework] = Cell(number(value), number(said), _same(value, said))
        else:
            within = allowed is not None and bool(abs(float(value) - float(closed)) <= allowed)
            cells[framework] = Cell(number(value), None, within)
    shown = closed if isinstance(closed, str) else number(closed)
    return Row(group.labels[index], shown, None if allowed is None else number(allowed), cells)


def _documented(group: Group, framework: str, version: str) -> tuple[float, ...] | None:
    """What the framework is documented to return from the newest version up to this one."""
    known = group.documented.get(framework, {})
    reached = [since for since in known if _ordinal(since) <= _ordinal(version)]
    return known[max(reached, key=_ordinal)] if reached else None


def _ordinal(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _same(value: Any, documented: float) -> bool:
    """Equal, or one ULP apart; NaN is NaN."""
    if np.isnan(documented) or np.isinf(documented):
        return bool(np.array_equal(value, documented, equal_nan=True))
    ulp = np.spacing(np.abs(np.asarray(documented, value.dtype)))
    return bool(abs(float(value) - documented) <= float(ulp))
