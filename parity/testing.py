"""Assertions for any test suite: a loss is right, or two functions compute the same."""

import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parity.against import Pair, compare_functions
from parity.api import check
from parity.config import check_configured, load_config
from parity.deriving import prepared
from parity.errors import BackendError, InputError, ParityError
from parity.judging import CheckReport
from parity.parting import AgainstReport
from parity.report.words import (
    about_check,
    about_pair,
    check_behaviour,
    check_failure,
    pair_failure,
    summary,
)
from parity.targets import named

__all__ = ["assert_configured", "assert_parity", "assert_same"]

T = TypeVar("T")
Function = str | Callable[..., Any]
WIDTH = 88  # of a line; pytest sets it off by eight


def assert_parity(function: Function, objective: str, **options: Any) -> CheckReport:
    """Asserts that a loss computes its objective, and the right gradients, wherever it is probed.

    Args:
        function: at the top of a module, or its name: `package.module:function` or
            `file.py:function`.
        objective: its name, or where you declare it: `file.py:NAME`.
        **options: those of `parity.check`.

    Raises:
        AssertionError: it does not.
        InputError: it cannot be called as asked.
        BackendError: its process died or did not answer.
    """
    __tracebackhide__ = True
    report = _asked(partial(check, function, objective, **options))
    _require([report])
    return report


def assert_same(
    f: Function,
    g: Function,
    *,
    points: Function | Mapping[str, Any],
    gradients: Sequence[str] = (),
    frozen: Sequence[str] = (),
    mapping: Mapping[str, str] | None = None,
    timeout: float = 600.0,
) -> AgainstReport:
    """Asserts that two functions compute the same values and gradients, in any two frameworks.

    Args:
        f: at the top of a module, or its name: `package.module:function` or `file.py:function`.
        g: the other.
        points: their inputs by the names of the arguments: a dictionary of arrays, several such
            by a label for each, a function that makes some, its name, or a file `.npz` or
            `.safetensors`.
        gradients: inputs to differentiate in; by default all floats that are no masks.
        frozen: inputs whose gradient must be exactly 0.
        mapping: parameter of either function to a name of the inputs.
        timeout: seconds for each round of processes.

    Raises:
        AssertionError: they do not.
        InputError: one cannot be called as asked, or the inputs are unusable.
        BackendError: a process died or did not answer.
    """
    __tracebackhide__ = True

    def compared() -> AgainstReport:
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            pair = Pair(
                left=_name(f, "f"),
                right=_name(g, "g"),
                points=_saved(points, Path(folder) / "points.npz"),
                gradients=tuple(gradients),
                frozen=tuple(frozen),
                mapping=mapping or {},
            )
            return compare_functions(pair, timeout, _silent)

    report = _asked(compared)
    _require([report])
    return report


def assert_configured(
    *names: str,
    pyproject: str | Path = "pyproject.toml",
    quick: bool = False,
    timeout: float = 600.0,
) -> list[CheckReport | AgainstReport]:
    """Asserts that what the `[tool.parity]` of a pyproject.toml names is right.

    Args:
        *names: which targets; all when none is given.
        pyproject: the file.
        quick: at the core of the probe grid only.
        timeout: seconds for each round of processes.

    Raises:
        AssertionError: something is not.
        InputError: no such target, or one cannot be called as asked.
        BackendError: a process died or did not answer.
    """
    __tracebackhide__ = True
    reports = _asked(
        lambda: check_configured(load_config(Path(pyproject)), names, timeout, _silent, quick=quick)
    )
    _require(reports)
    return reports


def _asked(ask: Callable[[], T]) -> T:
    """Asks; what cannot be answered points at the caller, not at how we found out."""
    __tracebackhide__ = True
    try:
        return ask()
    except ParityError as error:
        if isinstance(error, BackendError) and error.details:
            error.add_note(error.details)
        raise error.with_traceback(None) from None


def _require(reports: Sequence[CheckReport | AgainstReport]) -> None:
    """Raises what all reports that are no match have to say."""
    __tracebackhide__ = True
    failed = [_words(report) for report in reports if report.verdict != "match"]
    if failed:
        raise AssertionError("\n\n".join(failed))


def _words(report: CheckReport | AgainstReport) -> str:
    """The verdict first, a program to paste last."""
    program = ""
    if isinstance(report, AgainstReport):
        count = sum(c.compared for c in report.comparisons)
        lines = [
            f"{report.verdict}: {report.sentence}",
            *pair_failure(report),
            *about_pair(report),
            f"{count:,} values compared",
        ]
    elif report.fault:
        lines = [f"{report.verdict}: {summary(report)}"]
    else:
        first = f", first in {report.first.quantity}" if report.first else ""
        lines = [
            f"{report.verdict}: {report.target}{first}",
            *check_failure(report),
            summary(report),
            *check_behaviour(report),
            *about_check(report),
        ]
        if report.repro:
            program = f"\nsmallest failing input:\n\n{report.repro}"
    return "\n".join(_wrapped(line) for line in lines) + program


def _wrapped(line: str) -> str:
    return textwrap.fill(
        line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _name(function: Function, option: str) -> str:
    return function if isinstance(function, str) else named(function, option)


def _saved(points: Function | Mapping[str, Any], place: Path) -> str:
    """Where inputs are to be found: arrays are saved, by label and name, in their order."""
    if not isinstance(points, Mapping):
        return _name(points, "points")
    nested = {isinstance(value, Mapping) for value in points.values()}
    if len(nested) != 1:
        got = "arrays beside dictionaries" if nested else "nothing"
        raise InputError(f"points: got {got}; expected arrays, or labels to dictionaries of arrays")
    labelled = points if True in nested else {"the point": points}
    arrays: dict[str, NDArray[Any]] = {}
    for label, point in labelled.items():
        if not point:
            raise InputError(f"points: {label}: got nothing; expected arrays by name")
        for name, value in point.items():
            key = f"{label}/{name}"
            if key in arrays:
                raise InputError(
                    f"points: {key}: got it twice; expected labels that differ as text"
                )
            arrays[key] = _array(f"points: {name}", value)
    np.savez(place, allow_pickle=False, **arrays)
    return str(place)


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        return prepared(name, value)
    except (RuntimeError, TypeError, ValueError) as error:  # a framework's, or a ragged list
        raise InputError(f"{name}: {error}; expected an array") from error


def _silent(_who: str, _stage: str) -> None:
    pass
