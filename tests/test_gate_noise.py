"""Noise that is accepted, and what is never accepted; nothing is never a match."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers_gate import planted, with_quantity, with_values
from parity import gate
from parity.gate import Case
from parity.report import AllowedNoise

# Noise that is accepted, and what is never accepted.


def noisy_evaluation(case: Case, name: str) -> Case:
    """Moves one entry of torch's evaluation to between its allowance and its bound."""
    objective = name.partition("/")[0]
    position, (_, oracle) = next(
        (i, pair) for i, pair in enumerate(case.grids) if pair[0].objective == objective
    )
    room = oracle.bound[name] / oracle.allowed[name]
    entry = np.unravel_index(np.argmax(room), room.shape)
    assert room[entry] > 3  # twice the allowance is then outside it and well inside the bound
    values = case.evaluations["torch"][position][name].copy()
    values[entry] = oracle.values[name][entry] + 2.5 * oracle.allowed[name][entry]
    evaluations = {twin: list(traces) for twin, traces in case.evaluations.items()}
    evaluations["torch"][position] = with_values(evaluations["torch"][position], name, values)
    return replace(case, evaluations=evaluations)


def test_noise_is_noisy_and_only_a_matching_pattern_accepts_it(
    case_of: Callable[..., Case],
) -> None:
    case = noisy_evaluation(case_of("all"), "ppo/gradient")
    report = gate.judge(case)
    assert (report.verdict, report.blamed) == ("noisy", ["torch"])
    first = report.first_divergence
    assert first is not None
    assert (first.quantity, first.mode) == ("ppo/gradient", "points")

    def accepted(pattern: str) -> tuple[str, list[str]]:
        noise = AllowedNoise(pattern=pattern, reason="summed in another order")
        judged = gate.judge(case, noise)
        listed = gate.with_accepted(noise, [judged])
        assert (listed.pattern, listed.reason) == (pattern, noise.reason)
        return judged.verdict, listed.quantities

    for pattern in ("ppo/gradient", "ppo/grad*", "*", "p?o/gradient", "[op]po/gradient"):
        assert accepted(pattern) == ("match", ["ppo/gradient"])
    for pattern in ("ppo/gradients", "dpo/gradient", "gradient", "PPO/GRADIENT", "ppo/gradient_*"):
        assert accepted(pattern) == ("noisy", [])


def test_every_noisy_quantity_must_be_accepted(case_of: Callable[..., Case]) -> None:
    case = noisy_evaluation(noisy_evaluation(case_of("all"), "ppo/gradient"), "dpo/gradient")
    one = AllowedNoise(pattern="ppo/*", reason="so")
    report = gate.judge(case, one)
    assert (report.verdict, report.blamed) == ("noisy", ["torch"])
    assert gate.with_accepted(one, [report]).quantities == ["ppo/gradient"]
    both = AllowedNoise(pattern="*/gradient", reason="so")
    report = gate.judge(case, both)
    assert (report.verdict, report.blamed) == ("match", [])
    assert gate.with_accepted(both, [report]).quantities == ["dpo/gradient", "ppo/gradient"]


@pytest.mark.parametrize("objective", ["ppo", "dpo"])
def test_noise_of_one_sign_in_every_entry_breaks_no_invariant(
    case_of: Callable[..., Case], objective: str
) -> None:
    """A gradient in logits sums to 0, within what its bound lets each entry move."""
    case, name = case_of("all"), f"{objective}/gradient"
    position, oracle = next(
        (i, oracle) for i, (grid, oracle) in enumerate(case.grids) if grid.objective == objective
    )
    allowed = oracle.allowed[name]
    roomy = (oracle.bound[name] > 3 * allowed).all(-1)
    assert roomy.any()
    values = case.evaluations["torch"][position][name].copy()
    values[roomy] = (oracle.values[name] + 2.5 * allowed)[roomy]
    evaluations = {twin: list(traces) for twin, traces in case.evaluations.items()}
    evaluations["torch"][position] = with_values(evaluations["torch"][position], name, values)
    report = gate.judge(replace(case, evaluations=evaluations))
    assert (report.verdict, report.blamed) == ("noisy", ["torch"])


def test_noise_in_step_mode_is_noisy(case_of: Callable[..., Case]) -> None:
    """Where the trajectory's allowance is wide enough not to call it divergent."""
    case, name = case_of("all"), "ppo/probabilities"
    steps = case.steps["torch"]
    assert steps is not None
    oracle = case.trajectory
    honest = steps.values[name]
    limit = np.minimum(
        steps.bound[name], oracle.allowed[name] - np.abs(honest - oracle.values[name])
    )
    entry = int(np.argmax(limit / steps.allowed[name]))
    assert limit[entry] > 1.2 * steps.allowed[name][entry]  # or this problem cannot show it
    values = case.traces["torch"][name].copy()
    values[entry] = honest[entry] + (steps.allowed[name][entry] + limit[entry]) / 2
    trace = with_values(case.traces["torch"], name, values)
    report = gate.judge(replace(case, traces={**case.traces, "torch": trace}))
    assert (report.verdict, report.blamed) == ("noisy", ["torch"])
    noise = AllowedNoise(pattern=name, reason="so")
    assert gate.judge(replace(case, traces={**case.traces, "torch": trace}), noise).verdict == (
        "match"
    )


@planted
def test_what_is_divergent_or_missing_is_never_accepted(
    case_of: Callable[..., Case], name: str, fault: str, quantity: str, where: Any
) -> None:
    del quantity, where
    everything = AllowedNoise(pattern="*", reason="no")
    report = gate.judge(case_of(name, torch=fault), everything)
    assert (report.verdict, report.blamed) == ("divergent", ["torch"])
    case = case_of(name)
    trace = with_quantity(case.traces["torch"], f"{name}/loss", None)
    mutilated_case = replace(
        case, traces={**case.traces, "torch": trace}, steps={**case.steps, "torch": None}
    )
    report = gate.judge(mutilated_case, everything)
    assert (report.verdict, report.blamed) == ("inconclusive", ["torch"])


# Nothing is never a match.


def test_nothing_compared_is_not_a_match(case_of: Callable[..., Case]) -> None:
    case = case_of("dpo")
    for nothing in (
        replace(case, traces={}, steps={}, grids=(), evaluations={}),
        replace(case, traces={}, steps={}, evaluations={}),
        replace(case, grids=(), evaluations={}),  # the run alone leaves branches unexercised
        replace(
            case,
            traces={"torch": replace(case.traces["torch"], quantities={})},
            steps={"torch": None},
            grids=(),
            evaluations={},
        ),
    ):
        report = gate.judge(nothing)
        assert report.verdict == "inconclusive"
        assert report.first_divergence is None


def test_a_tape_of_another_problem_is_mentioned(case_of: Callable[..., Case]) -> None:
    case = case_of("ppo")
    assert case.samples is not None
    foreign = replace(case.samples, problem="other", problem_digest="0" * 64)
    report = gate.judge(replace(case, samples=foreign))
    assert report.samples_note == "drawn for another problem, other"
    assert report.samples_digest == foreign.digest


def test_actions_that_are_not_the_tape_are_divergent(case_of: Callable[..., Case]) -> None:
    """Both twins replay the same wrong tape, consistently: only the tape itself can tell."""
    case = case_of("ppo")
    assert case.samples is not None
    other = replace(case.samples, actions=(case.samples.actions + 1) % 3)
    steps = {
        twin: gate.rederive(case.problem, other, trace, "float32")
        for twin, trace in case.traces.items()
    }
    trajectory = gate.whole_run(case.problem, other, "float32")
    report = gate.judge(replace(case, samples=other, steps=steps, trajectory=trajectory))
    assert (report.verdict, report.blamed) == ("divergent", ["jax", "torch"])
    first = report.first_divergence
    assert first is not None
    assert (first.quantity, first.at, first.mode) == ("ppo/actions", {"rollout": 0}, "step")
