"""All of it -> verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations
from typing import NamedTuple

import msgspec

from parity.arithmetic.measure import Expected, measure
from parity.comparison import (
    ORACLE,
    Comparison,
    Mode,
    Verdict,
    blame,
    compare,
    first_divergence,
    worst_verdict,
)
from parity.coverage import cover
from parity.invariants import Invariant, hold
from parity.lessons import oracle as modes
from parity.points import Points
from parity.problem import Problem
from parity.quantities import Declared, evaluated, expected
from parity.report import AllowedNoise, LessonReport
from parity.samples import Samples
from parity.structure import structure, uncompared
from parity.trace import Quantity, Trace

__all__ = [
    "Case",
    "evaluate_points",
    "judge",
    "rederive",
    "whole_run",
    "with_accepted",
    "worst_verdict",
]

Structure = Mapping[Declared, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """One problem and everything that was computed for it.

    Attributes:
        problem: what was solved.
        samples: the tape that was replayed; None where there is none.
        dtype: of the runs.
        traces: implementation to its run.
        steps: implementation to what the oracle re-derives from its run.
        trajectory: the oracle's whole run, and its allowances.
        grids: the points, each with the oracle's values.
        evaluations: implementation to its evaluation of each of the grids, in their order.
    """

    problem: Problem
    samples: Samples | None
    dtype: str
    traces: Mapping[str, Trace]
    steps: Mapping[str, Expected | None]
    trajectory: Expected
    grids: Sequence[tuple[Points, Expected]] = ()
    evaluations: Mapping[str, Sequence[Trace]] = field(default_factory=dict)


def whole_run(
    problem: Problem,
    samples: Samples | None,
    dtype: str,
    choices: Mapping[str, str] | None = None,
) -> Expected:
    """The oracle's trajectory and its allowances; needs no trace, so it can start first."""
    actions = samples.actions if samples else None
    shapes = {declared.name: shape for declared, shape in expected(problem).items()}
    return measure(
        lambda lift: modes.trajectory(problem, actions, dtype, lift, choices),
        shapes,
        dtype,
        rigorous=False,
    )


def evaluate_points(
    points: Points, dtype: str, choices: Mapping[str, str] | None = None
) -> Expected:
    """The oracle's values at fixed states, with allowances and bounds."""
    shapes = {d.name: shape for d, shape in evaluated(points.objective, points.sizes).items()}
    return measure(
        lambda lift: modes.at_points(points, lift, choices), shapes, dtype, rigorous=True
    )


def rederive(
    problem: Problem, samples: Samples | None, trace: Trace, dtype: str
) -> Expected | None:
    """The oracle's step mode over a trace; None where the trace's structure forbids it."""
    declared = expected(problem)
    if structure(trace, declared, dtype):
        return None
    actions = samples.actions if samples else None
    return measure(
        lambda lift: modes.steps(problem, actions, trace, lift),
        {each.name: shape for each, shape in declared.items()},
        dtype,
        rigorous=True,
    )


class _Scene(NamedTuple):
    """What is compared where: the expected structure and the oracle's values."""

    mode: Mode
    grid: str
    specs: Structure
    oracle: Expected
    dtype: str


def judge(case: Case, allowed_noise: AllowedNoise | None = None) -> LessonReport:
    """Compares every implementation with the oracle and with every other, in every mode.

    Args:
        case: a problem with its traces.
        allowed_noise: noisy quantities that do not count against the verdict.
    """
    comparisons = [*_run(case), *_points(case)]
    counted = [c for c in comparisons if not _accepted(c, allowed_noise)]
    invariants = _invariants(case)
    grids = [points for points, _ in case.grids]
    coverage = cover(case.problem, case.samples, case.traces, grids, case.evaluations)
    covered: Verdict = "match" if coverage.exercised == len(coverage.cells) else "inconclusive"
    held = [invariant.verdict for invariant in invariants]
    verdict = worst_verdict([*(c.verdict for c in counted), *held, covered])
    samples = case.samples
    foreign = samples is not None and samples.problem_digest != case.problem.digest
    return LessonReport(
        lesson=case.problem.name,
        verdict=verdict,
        dtype=case.dtype,
        problem_digest=case.problem.digest,
        samples_digest=samples.digest if samples else "",
        samples_note=f"drawn for another problem, {samples.problem}" if samples and foreign else "",
        first_divergence=first_divergence(comparisons),
        blamed=blame(
            counted, [i.implementation for i in invariants if i.verdict == verdict], verdict
        ),
        comparisons=comparisons,
        invariants=invariants,
        coverage=coverage,
    )


def _accepted(comparison: Comparison, noise: AllowedNoise | None) -> bool:
    return (
        noise is not None
        and comparison.verdict == "noisy"
        and fnmatchcase(comparison.quantity, noise.pattern)
    )


def with_accepted(noise: AllowedNoise, judgements: Sequence[LessonReport]) -> AllowedNoise:
    """Adds the quantities that an acceptance of noise really let pass."""
    passed = {
        comparison.quantity
        for judgement in judgements
        for comparison in judgement.comparisons
        if _accepted(comparison, noise)
    }
    return msgspec.structs.replace(noise, quantities=sorted(passed))


def _run(case: Case) -> list[Comparison]:
    """Step mode against the oracle, then trajectory mode against the oracle and each other."""
    specs = expected(case.problem)
    traces = list(case.traces.values())
    comparisons: list[Comparison] = []
    for trace in traces:
        oracle = case.steps[trace.implementation]
        if oracle is not None:
            comparisons += _compare_all(_Scene("step", "run", specs, oracle, case.dtype), [trace])
            continue
        name, (_, reason) = next(iter(structure(trace, specs, case.dtype).items()))
        comparisons += [
            uncompared(
                spec,
                shape,
                mode="step",
                grid="run",
                sides=(trace.implementation, ORACLE),
                verdict="inconclusive",
                reason=f"not re-derived: {name}: {reason}",
            )
            for spec, shape in specs.items()
        ]
    return comparisons + _compare_all(
        _Scene("trajectory", "run", specs, case.trajectory, case.dtype), traces
    )


def _invariants(case: Case) -> list[Invariant]:
    tape = case.samples.actions if case.samples else None
    held = []
    for name, trace in case.traces.items():
        probes = [
            (points, oracle, evaluated)
            for (points, oracle), evaluated in zip(
                case.grids, case.evaluations.get(name, ()), strict=True
            )
        ]
        held += hold(case.problem, trace, case.steps[name], tape, probes)
    return held


def _points(case: Case) -> list[Comparison]:
    comparisons = []
    for position, (points, oracle) in enumerate(case.grids):
        specs = evaluated(points.objective, points.sizes)
        scene = _Scene("points", points.grid, specs, oracle, case.dtype)
        traces = [evaluations[position] for evaluations in case.evaluations.values()]
        comparisons += _compare_all(scene, traces)
    return comparisons


def _compare_all(scene: _Scene, traces: Sequence[Trace]) -> list[Comparison]:
    """Every implementation against the oracle, and every pair of implementations.

    Two implementations may differ by the sum of their allowances.
    """
    oracle = Trace(
        ORACLE,
        scene.dtype,
        {
            spec.name: Quantity(spec.name, spec.axes, spec.kind, scene.oracle.values[spec.name])
            for spec in scene.specs
        },
    )
    complaints = {t.implementation: structure(t, scene.specs, scene.dtype) for t in traces}
    complaints[ORACLE] = {}
    comparisons = []
    for left, right in [*((trace, oracle) for trace in traces), *combinations(traces, 2)]:
        sides = (left.implementation, right.implementation)
        complained = {**complaints[sides[1]], **complaints[sides[0]]}
        parties = 1 if right is oracle else 2
        strangers = {
            Declared(name, quantity.axes, quantity.kind): quantity.values.shape
            for trace in (right, left)
            for name, quantity in trace.quantities.items()
            if name in complained and name not in oracle
        }
        for spec, shape in {**scene.specs, **strangers}.items():
            name = spec.name
            if name in complained:
                verdict, reason = complained[name]
                comparison = uncompared(
                    spec,
                    shape,
                    mode=scene.mode,
                    grid=scene.grid,
                    sides=sides,
                    verdict=verdict,
                    reason=reason,
                )
            else:
                bound = scene.oracle.bound.get(name)
                comparison = compare(
                    left.quantities[name],
                    right.quantities[name],
                    parties * scene.oracle.allowed[name],
                    mode=scene.mode,
                    grid=scene.grid,
                    sides=sides,
                    bound=None if bound is None else parties * bound,
                    oracle=oracle[name],
                    dtype=scene.dtype,
                )
            comparisons.append(comparison)
    return comparisons
