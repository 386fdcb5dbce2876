"""What is solved: features, preferences, logits, rates, β, clip and counts."""

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from parity.errors import InputError
from parity.files import digest, read_bytes
from parity.objectives import Objective, trained
from parity.objectives.spec import Training
from parity.validation import explain

__all__ = ["Problem", "lessons", "load_problem", "parse_problem"]

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

_PROBLEMS = Path(__file__).parent / "problems"
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_FLOAT32_TINY = float(np.finfo(np.float32).tiny)


if TYPE_CHECKING:

    class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        def __getattr__(self, name: str) -> Any: ...

else:  # one field an objective
    _Tables = msgspec.defstruct(
        "_Tables",
        [(name, each.training.table | None, None) for name, each in trained().items()],
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )


class Problem(_Tables, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One problem, complete; immutable. Every objective that is trained may have a table in it.

    Attributes:
        name: names its files and its place in the report.
        title: one line for people.
        samples: the recorded tape, relative to the problem's own file.
    """

    name: Name
    title: str = ""
    samples: str | None = None

    def parts(self) -> Iterator[tuple[Objective, Training, Any]]:
        """The objectives that have a table, with it, in the order in which they are trained."""
        for name, objective in trained().items():
            table = getattr(self, name)
            if table is not None and objective.training is not None:
                yield objective, objective.training, table

    def only(self, objective: Objective) -> "Problem":
        """The tables that one objective needs: its own, and what it takes quantities of."""
        training = objective.training
        taken = training.takes.values() if training else ()
        needed = {objective.name, *(quantity.partition("/")[0] for quantity in taken)}
        absent = dict.fromkeys(name for name in trained() if name not in needed)
        problem: Problem = msgspec.structs.replace(self, **absent)
        return problem

    @property
    def digest(self) -> str:
        """SHA-256 of what is solved: names, titles and places of files do not count."""
        tables: dict[str, Any] = {}
        for name, objective in trained().items():
            table = getattr(self, name)
            old = objective.training is not None and objective.training.digested_when_absent
            if table is not None or old:
                tables[name] = table
        return digest(tables)

    @property
    def tape(self) -> Any:
        """The table that a tape belongs to, whose actions are sampled; None where there is none."""
        return next((table for _, training, table in self.parts() if training.tape), None)


def lessons() -> dict[str, Path]:
    """Returns the recorded lessons that ship with the package: name to file."""
    return {path.stem: path for path in sorted(_PROBLEMS.glob("*.toml"))}


def load_problem(source: str | Path) -> Problem:
    """Loads a recorded lesson by name, or a problem from a TOML file.

    Raises:
        InputError: no such lesson or file, or its content is not a problem.
    """
    path = lessons().get(str(source), Path(source))
    if not path.suffix and not path.exists():
        raise InputError(
            f"{source}: no such lesson or file; expected one of {', '.join(lessons())} or FILE.toml"
        )
    problem = parse_problem(read_bytes(path), str(path))
    if problem.samples is not None:
        problem = msgspec.structs.replace(problem, samples=str(path.parent / problem.samples))
    return problem


def parse_problem(content: bytes, source: str) -> Problem:
    """Reads a problem from TOML text.

    Args:
        content: the TOML document, UTF-8.
        source: the file's name, which opens every error.

    Raises:
        InputError: one line that names file, field, value and expectation.
    """
    try:
        raw = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too long or too deep
        raise InputError(f"{source}: not TOML: {error}") from error
    raw.setdefault("name", Path(source).stem)
    try:
        problem = msgspec.convert(raw, Problem)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {explain(error, raw, 'problem')}") from error
    for field, value, expectation in _misfits(problem):
        raise InputError(f"{source}: {field}: got {value!r}; expected {expectation}")
    return problem


def _misfits(problem: Problem) -> Iterator[tuple[str, Any, str]]:
    """Yields what the types alone cannot say: finite values, ranges, lengths, parts that fit."""
    yield from _unrepresentable("", msgspec.to_builtins(problem))
    parts = list(problem.parts())
    if not parts:
        known = ", ".join(f"[{name}]" for name in trained())
        yield "problem", {}, f"at least one of the tables {known}"
    sampled = [objective.name for objective, training, _ in parts if training.tape]
    if problem.samples is not None and not sampled:
        known = " or ".join(
            f"[{n}]" for n, o in trained().items() if o.training and o.training.tape
        )
        yield "samples", problem.samples, f"none without a {known} table"
    for other in sampled[1:]:
        expectation = f"[{sampled[0]}] or [{other}] alone: a tape belongs to one of them"
        yield other, f"a [{sampled[0]}] table beside it", expectation
    for _, training, table in parts:
        if training.misfits:
            yield from training.misfits(table, problem)


def _unrepresentable(field: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the numbers that float32 cannot hold: NaN, infinities, overflow, underflow to 0."""
    if isinstance(value, float):
        if not math.isfinite(value) or abs(value) > _FLOAT32_MAX:
            yield field, value, "a finite number within float32"
        elif 0 < abs(value) < _FLOAT32_TINY:
            yield field, value, "0 or a magnitude of at least 2**-126 (float32's smallest normal)"
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _unrepresentable(f"{field}.{key}".lstrip("."), entry)
    elif isinstance(value, list | tuple):
        for position, entry in enumerate(value):
            yield from _unrepresentable(f"{field}[{position}]", entry)
