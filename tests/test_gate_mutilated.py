"""Mutilated and spoiled traces, missing and unexpected quantities, other precisions."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers_gate import TWINS, in_mode, problem_of, trajectory_of, with_quantity, with_values
from parity import gate
from parity.gate import Case
from parity.lessons.probes import core
from parity.objectives import find
from parity.report import LessonReport
from parity.trace import Quantity, Trace


def mutilated(trace: Trace, name: str) -> Iterator[tuple[str, str, Trace]]:
    """Yields what was done to a quantity, the verdict that it deserves, and the trace."""
    quantity = trace.quantities[name]
    values = quantity.values
    wider = np.int32 if values.dtype.kind == "i" else np.float64
    yield "removed", "inconclusive", with_quantity(trace, name, None)
    yield "emptied", "inconclusive", with_values(trace, name, values[:0])
    yield "given another axis", "divergent", with_values(trace, name, values[None])
    yield "given another dtype", "divergent", with_values(trace, name, values.astype(wider))
    yield "made longer", "divergent", with_values(trace, name, values[:1].repeat(99, axis=0))
    kind = "count" if quantity.kind != "count" else "value"
    yield "another kind", "divergent", with_quantity(trace, name, replace(quantity, kind=kind))
    axes = tuple(reversed(("odd", *quantity.axes[1:])))
    yield "other axes", "divergent", with_quantity(trace, name, replace(quantity, axes=axes))


def spoiled(trace: Trace, name: str) -> Iterator[tuple[str, Trace]]:
    """Yields one bad value, in the entry computed last, that keeps the quantity's form."""
    values = trace[name]
    bad = (1,) if values.dtype.kind == "i" else (np.nan, values.flat[-1] + 0.01)
    for value in bad:  # 0.01 is far beyond any allowance of these small problems, 1e-4 at most
        changed = values.copy()
        changed.flat[-1] = (values.flat[-1] + 1) % 3 if values.dtype.kind == "i" else value
        yield str(value), with_values(trace, name, changed)


@pytest.mark.parametrize("name", ["ppo", "dpo", "reinforce"])  # ppo fits its reward first
def test_no_mutilated_run_matches(case_of: Callable[..., Case], name: str) -> None:
    case = replace(case_of(name), grids=(), evaluations={})  # points are compared apart from runs
    honest = case.traces["torch"]
    for quantity in honest.quantities:
        for what, deserved, trace in mutilated(honest, quantity):
            assert gate.rederive(case.problem, case.samples, trace, "float32") is None
            report = gate.judge(
                replace(
                    case,
                    traces={**case.traces, "torch": trace},
                    steps={**case.steps, "torch": None},
                )
            )
            assert report.verdict == deserved, (quantity, what)
            assert report.blamed == ["torch"], (quantity, what)
            reasons = {c.reason for c in report.comparisons if c.quantity == quantity}
            assert any("torch" in reason for reason in reasons), (quantity, what)
            steps = [c for c in report.comparisons if c.mode == "step" and c.left == "torch"]
            assert {c.verdict for c in steps} == {"inconclusive"}, (quantity, what)


def test_an_invariant_alone_turns_the_gate_red(case_of: Callable[..., Case]) -> None:
    """One ULP is allowed everywhere but where ratios are exactly 1."""
    case = replace(case_of("ppo"), grids=(), evaluations={})
    trace = case.traces["torch"]
    ratios = trace["ppo/ratios"].copy()
    ratios[-1, 0, -1] = np.nextafter(np.float32(1), np.float32(2))
    moved = with_values(trace, "ppo/ratios", ratios)
    report = gate.judge(
        replace(
            case,
            traces={**case.traces, "torch": moved},
            steps={
                **case.steps,
                "torch": gate.rederive(case.problem, case.samples, moved, "float32"),
            },
        )
    )
    assert {c.verdict for c in report.comparisons} == {"match"}
    failed = [i for i in report.invariants if i.verdict != "match"]
    assert [(i.name, i.verdict) for i in failed] == [
        ("ppo/ratios exactly 1 at the first epoch", "divergent")
    ]
    assert (report.verdict, report.blamed) == ("divergent", ["torch"])


@pytest.mark.parametrize("name", ["ppo", "dpo", "reinforce"])
def test_no_spoiled_run_matches_though_the_twins_agree(
    case_of: Callable[..., Case], name: str
) -> None:
    case = replace(case_of(name), grids=(), evaluations={})
    for quantity in case.traces["jax"].quantities:
        pairs = zip(*(spoiled(case.traces[twin], quantity) for twin in TWINS), strict=True)
        for (what, left), (_, right) in pairs:
            traces = {"jax": left, "torch": right}
            steps = {
                twin: gate.rederive(case.problem, case.samples, trace, "float32")
                for twin, trace in traces.items()
            }
            report = gate.judge(replace(case, traces=traces, steps=steps))
            assert report.verdict == "divergent", (quantity, what)
            assert report.blamed == ["jax", "torch"], (quantity, what)
            for mode in ("step", "trajectory"):
                _, first, _, blamed = in_mode(report, mode)
                assert blamed == ["jax", "torch"], (quantity, what, mode)
                if mode == "trajectory":  # where nothing is re-derived from what was spoiled
                    assert first == quantity, what


def evaluated_as(case: Case, position: int, **changed: Trace) -> Case:
    """The case with some evaluations of one grid replaced."""
    evaluations = {twin: list(traces) for twin, traces in case.evaluations.items()}
    for twin, trace in changed.items():
        evaluations[twin][position] = trace
    return replace(case, evaluations=evaluations)


def own_grid(case_of: Callable[..., Case], name: str) -> tuple[Case, int]:
    """A case, and which of its grids is that of the objective itself."""
    case = case_of(name)
    return case, [grid.objective for grid, _ in case.grids].index(name)


OBJECTIVES = ["reward", "ppo", "dpo", "reinforce"]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_mutilated_evaluation_matches(case_of: Callable[..., Case], name: str) -> None:
    case, position = own_grid(case_of, name)
    honest = case.evaluations["torch"][position]
    assert gate.judge(replace(case, traces={}, steps={})).verdict == "match"
    for quantity in honest.quantities:
        for number, (what, deserved, trace) in enumerate(mutilated(honest, quantity)):
            # The run is judged again only now and then, to save time.
            runs = {} if number % 3 else {"traces": case.traces, "steps": case.steps}
            report = gate.judge(
                replace(
                    evaluated_as(case, position, torch=trace),
                    **({"traces": {}, "steps": {}} | runs),
                )
            )
            assert report.verdict == deserved, (quantity, what)
            assert report.blamed == ["torch"], (quantity, what)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_spoiled_evaluation_matches_though_the_twins_agree(
    case_of: Callable[..., Case], name: str
) -> None:
    case, position = own_grid(case_of, name)
    last = {"point": case.grids[position][0].sizes["point"] - 1}
    honest = {twin: case.evaluations[twin][position] for twin in TWINS}
    for quantity in honest["jax"].quantities:
        pairs = zip(*(spoiled(honest[twin], quantity) for twin in TWINS), strict=True)
        for (what, left), (_, right) in pairs:
            report = gate.judge(evaluated_as(case, position, jax=left, torch=right))
            assert (report.verdict, report.blamed) == ("divergent", ["jax", "torch"]), what
            first = report.first_divergence
            assert first is not None
            assert (first.quantity, first.mode, first.at) == (quantity, "points", last)


def test_an_unexpected_quantity_and_another_order_are_divergent(
    case_of: Callable[..., Case],
) -> None:
    case = case_of("dpo")
    honest = case.traces["torch"]
    extra = Quantity("dpo/accuracy", ("update",), "value", np.ones(6, np.float32))
    names = list(honest.quantities)
    for quantities in (
        dict(honest.quantities) | {"dpo/accuracy": extra},
        {name: honest.quantities[name] for name in reversed(names)},
    ):
        trace = replace(honest, quantities=quantities)
        assert gate.rederive(case.problem, None, trace, "float32") is None
        steps = {**case.steps, "torch": None}
        report = gate.judge(replace(case, traces={**case.traces, "torch": trace}, steps=steps))
        assert (report.verdict, report.blamed) == ("divergent", ["torch"])


def test_a_run_in_another_precision_is_divergent(
    case_of: Callable[..., Case], backend: Callable[[str], Any]
) -> None:
    """However well its values agree: a run is asked for in one dtype."""
    case = case_of("dpo")
    wide = backend("torch").train(case.problem, None, "float64")
    assert gate.rederive(case.problem, None, wide, "float32") is None
    steps = {**case.steps, "torch": None}
    report = gate.judge(replace(case, traces={**case.traces, "torch": wide}, steps=steps))
    assert (report.verdict, report.blamed) == ("divergent", ["torch"])


def test_float64_is_held_to_its_own_allowance(backend: Callable[[str], Any]) -> None:
    problem, name = problem_of("dpo"), "dpo/final_margins"
    grid = core(find("dpo"))
    run = backend("torch").train(problem, None, "float64")
    evaluated = backend("torch").evaluate(grid, "float64")

    def judged(trace: Trace) -> LessonReport:
        return gate.judge(
            Case(
                problem=problem,
                samples=None,
                dtype="float64",
                traces={"torch": trace},
                steps={"torch": gate.rederive(problem, None, trace, "float64")},
                trajectory=trajectory_of("dpo", "float64"),
                grids=[(grid, gate.evaluate_points(grid, "float64"))],
                evaluations={"torch": [evaluated]},
            )
        )

    assert judged(run).verdict == "match"
    # A thousandth of float32's roundoff, but a million times float64's.
    report = judged(with_values(run, name, run[name] * (1 + 1e-10)))
    assert (report.verdict, report.blamed) == ("divergent", ["torch"])
    assert report.first_divergence is not None
    assert report.first_divergence.quantity == name
