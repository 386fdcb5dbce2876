"""Honest twins match; a planted fault of one twin or of both is found, placed and blamed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers_gate import PROBLEMS, TWINS, in_mode, planted, problem_of, tape_of
from parity import gate
from parity.comparison import ORACLE
from parity.gate import Case
from parity.trace import Trace


@pytest.mark.parametrize("name", PROBLEMS)
def test_honest_twins_match(case_of: Callable[..., Case], name: str) -> None:
    report = gate.judge(case_of(name))
    assert report.verdict == "match"
    assert (report.first_divergence, report.blamed, report.samples_note) == (None, [], "")
    assert {c.verdict for c in report.comparisons} == {"match"}
    assert {c.mode for c in report.comparisons} == {"points", "step", "trajectory"}
    pairs = {(c.left, c.right) for c in report.comparisons}
    assert pairs == {("jax", ORACLE), ("torch", ORACLE), ("jax", "torch")}
    for comparison in report.comparisons:
        assert comparison.compared == np.prod(comparison.shape, dtype=int) > 0
        assert comparison.worst is not None
        assert float(comparison.worst.ratio) <= 1
    assert report.problem_digest == problem_of(name).digest
    tape = tape_of(name)
    assert report.samples_digest == (tape.digest if tape else "")


@planted
@pytest.mark.parametrize("twin", TWINS)
def test_a_planted_fault_is_found_and_placed(
    case_of: Callable[..., Case],
    played: Callable[..., Any],
    twin: str,
    name: str,
    fault: str,
    quantity: str,
    where: Callable[[Trace], dict[str, int]],
) -> None:
    at = where(played(name, twin)[0])
    report = gate.judge(case_of(name, **{twin: fault}))
    assert in_mode(report, "step") == ("divergent", quantity, at, [twin])
    assert in_mode(report, "trajectory") == ("divergent", quantity, at, [twin])
    assert (report.verdict, report.blamed) == ("divergent", [twin])
    first = report.first_divergence
    assert first is not None
    assert (first.quantity, first.at, first.mode) == (quantity, at, "step")
    assert (first.left, first.right) == (twin, ORACLE)
    honest = [c for c in report.comparisons if twin not in (c.left, c.right)]
    assert {c.verdict for c in honest} == {"match"}


@planted
def test_a_fault_of_both_twins_is_blamed_on_both(
    case_of: Callable[..., Case],
    played: Callable[..., Any],
    name: str,
    fault: str,
    quantity: str,
    where: Callable[[Trace], dict[str, int]],
) -> None:
    at = where(played(name, "jax")[0])
    report = gate.judge(case_of(name, jax=fault, torch=fault))
    for mode in ("step", "trajectory"):
        assert in_mode(report, mode) == ("divergent", quantity, at, ["jax", "torch"])
    assert (report.verdict, report.blamed) == ("divergent", ["jax", "torch"])
    between = [c for c in report.comparisons if ORACLE not in (c.left, c.right)]
    assert {c.verdict for c in between} == {"match"}  # they agree, and both are wrong
