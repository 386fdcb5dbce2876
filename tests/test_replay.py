"""The oracle's three modes: step mode returns an exact trajectory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from closed_gradients import CLOSED
from helpers_replay import EXACT, GENERAL, GENERAL_ACTIONS, SCORED, exact_trace, gather, steps
from parity.arithmetic.measure import time_first
from parity.lessons import oracle
from parity.points import Points
from parity.problem import Problem, lessons
from parity.quantities import of_runs
from parity.samples import Samples
from parity.trace import Trace, quantities_from

# The objectives of one state, written out in NumPy.


def logps_of(logits: Any) -> Any:
    return logits - np.logaddexp.reduce(logits)


def kl(logps: Any, reference: Any) -> Any:
    return np.exp(logps) @ (logps - reference)


def ppo(
    logits: Any, old: Any, actions: Any, advantages: Any, reference: Any, beta: Any, clip: Any
) -> dict[str, Any]:
    ratios = np.exp(logps_of(logits)[actions] - old)
    clipped = np.clip(ratios, 1 - clip, 1 + clip)
    surrogate = np.minimum(ratios * advantages, clipped * advantages).mean()
    penalty = kl(logps_of(logits), reference)
    loss = -surrogate + beta * penalty
    return {"ratios": ratios, "surrogate": surrogate, "kl_penalty": penalty, "loss": loss}


def reinforce(
    logits: Any, actions: Any, advantages: Any, reference: Any, beta: Any
) -> dict[str, Any]:
    taken = logps_of(logits)[actions]
    surrogate, penalty = (taken * advantages).mean(), kl(logps_of(logits), reference)
    loss = -surrogate + beta * penalty
    return {"logps": taken, "surrogate": surrogate, "kl_penalty": penalty, "loss": loss}


def dpo(logits: Any, reference: Any, chosen: Any, rejected: Any, beta: Any) -> dict[str, Any]:
    correction = logps_of(logits) - reference
    margins = correction[chosen] - correction[rejected]
    return {"margins": margins, "loss": np.logaddexp(0, -beta * margins).mean()}


def preference(weights: Any, chosen: Any, rejected: Any) -> dict[str, Any]:
    return {"loss": np.logaddexp(0, -(chosen - rejected) @ weights).mean()}


VALUES = {"reward": preference, "ppo": ppo, "dpo": dpo, "reinforce": reinforce}


@pytest.fixture(scope="module")
def general() -> Trace:
    return exact_trace(GENERAL, GENERAL_ACTIONS)


@pytest.fixture(scope="module")
def scored() -> Trace:
    return exact_trace(SCORED, GENERAL_ACTIONS)


@pytest.fixture(params=["general", "scored", *lessons()])
def case(
    request: pytest.FixtureRequest, problems: dict[str, Problem], tapes: dict[str, Samples]
) -> tuple[Problem, np.ndarray | None]:
    if request.param in problems:
        tape = tapes.get(request.param)
        return problems[request.param], tape.actions if tape else None
    return {"general": GENERAL, "scored": SCORED}[request.param], GENERAL_ACTIONS


def test_steps_return_an_exact_trajectory(case: tuple[Problem, np.ndarray | None]) -> None:
    trace = exact_trace(*case)
    derived = steps(*case, trace)
    assert list(derived) == list(trace.quantities)
    for name, values in derived.items():
        np.testing.assert_allclose(values, trace[name], rtol=0, atol=EXACT, err_msg=name)


def test_steps_in_parts_are_the_steps_in_one(
    general: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = steps(GENERAL, GENERAL_ACTIONS, general)
    monkeypatch.setattr(oracle, "BATCH", 1)  # one rollout at a time
    for name, values in steps(GENERAL, GENERAL_ACTIONS, general).items():
        np.testing.assert_array_equal(values, whole[name], err_msg=name)


def test_trajectory_is_the_loop_written_out(general: Trace) -> None:
    """The closed forms in the plain order of the lesson, one update after another."""
    problem, run = GENERAL.ppo, general
    assert problem is not None
    logits = np.array(problem.logits)
    reference = logps_of(np.array(problem.reference_logits))
    scores = np.array(GENERAL.reward.features) @ run["reward/weights"][-1]
    np.testing.assert_allclose(run["reward/scores"], scores, rtol=1e-15)
    rewards, kls = [], []
    for rollout, actions in enumerate(GENERAL_ACTIONS):
        policy = np.exp(logps_of(logits))
        rewards.append(policy @ scores)
        kls.append(policy @ (np.log(policy) - reference))
        old_logps, advantages = np.log(policy)[actions], scores[actions] - policy @ scores
        for epoch in range(problem.epochs):
            state = (logits, old_logps, actions, advantages, reference, problem.beta, problem.clip)
            by_hand = {**ppo(*state), "gradient": CLOSED["ppo"](*state)}
            for name in ("loss", "gradient", "ratios"):
                found = run[f"ppo/{name}"][rollout, epoch]
                np.testing.assert_allclose(found, by_hand[name], atol=EXACT)
            logits = logits - problem.rate * by_hand["gradient"]
            np.testing.assert_allclose(run["ppo/logits"][rollout, epoch], logits, atol=EXACT)
    np.testing.assert_allclose(run["ppo/expected_reward"][:-1], rewards, atol=EXACT)
    np.testing.assert_allclose(run["ppo/reference_kl"][:-1], kls, atol=EXACT)
    np.testing.assert_allclose(run["ppo/probabilities"], np.exp(logps_of(logits)))


def test_general_problem_clips_some_samples(general: Trace) -> None:
    """Otherwise the tests above and below would say nothing about clipping."""
    outside = np.abs(general["ppo/ratios"] - 1) > GENERAL.ppo.clip
    assert outside.any()
    assert not outside.all()


def test_actions_are_those_of_the_tape_and_not_of_the_trace(general: Trace) -> None:
    derived = steps(GENERAL, GENERAL_ACTIONS[:, ::-1], general)
    np.testing.assert_array_equal(derived["ppo/actions"], GENERAL_ACTIONS[:, ::-1])
    assert (np.abs(derived["ppo/ratios"] - general["ppo/ratios"]) > EXACT).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_are_those_that_the_run_sees(dtype: str) -> None:
    """float32(0.3) is not 0.3: the rate, β, ε and the starting policy are rounded first."""
    run = gather(oracle.trajectory(GENERAL, GENERAL_ACTIONS, dtype, np.asarray), GENERAL)
    trace = Trace("oracle", dtype, quantities_from(run, of_runs()))
    start = np.asarray(GENERAL.ppo.reference_logits, dtype).astype(np.float64)
    for values in (run, steps(GENERAL, GENERAL_ACTIONS, trace)):
        np.testing.assert_array_equal(values["ppo/reference"][0, 0], logps_of(start))
        moved = run["ppo/logits"][1, 0] - run["ppo/logits"][0, 2]
        rate = -moved / run["ppo/gradient"][1, 0]
        np.testing.assert_allclose(rate, float(np.dtype(dtype).type(0.3)), rtol=1e-11)
        np.testing.assert_allclose(values["ppo/logits"][1, 0], run["ppo/logits"][1, 0], atol=EXACT)
    assert float(np.float32(0.3)) != 0.3


@pytest.mark.parametrize(("objective", "function"), VALUES.items())
def test_points_are_those_of_the_closed_forms(
    draw_points: Callable[..., Points], objective: str, function: Callable[..., Any]
) -> None:
    points = draw_points(objective, 4, 5, 7, 16)
    ((where, batch, emitted),) = oracle.at_points(points, np.asarray)
    assert (where, batch) == ((slice(None),), 1)
    states = list(zip(*points.inputs.values(), strict=True))
    by_hand = [{**function(*state), "gradient": CLOSED[objective](*state)} for state in states]
    frozen = {name for name in emitted if "gradient_" in name}
    assert emitted.keys() - frozen == {f"{objective}/{name}" for name in by_hand[0]}
    assert not any(np.any(emitted[name]) for name in frozen)
    for name in by_hand[0]:
        found = time_first(emitted[f"{objective}/{name}"], batch)
        values = np.array([state[name] for state in by_hand])
        np.testing.assert_allclose(found, values, rtol=EXACT, atol=EXACT)
