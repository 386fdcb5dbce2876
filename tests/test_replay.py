"""The oracle's three modes: step mode returns an exact trajectory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import closed_gradients as closed
from helpers_replay import EXACT, GENERAL, GENERAL_ACTIONS, SCORED, exact_trace, gather, steps
from parity.arithmetic.measure import time_first
from parity.lessons import oracle
from parity.points import Points
from parity.problem import Problem, lessons
from parity.quantities import of_runs
from parity.samples import Samples
from parity.trace import Trace, quantities_from


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
    reference = closed.log_softmax(np.array(problem.reference_logits))
    scores = np.array(GENERAL.reward.features) @ run["reward/weights"][-1]
    np.testing.assert_allclose(run["reward/scores"], scores, rtol=1e-15)
    rewards, kls = [], []
    for rollout, actions in enumerate(GENERAL_ACTIONS):
        policy = np.exp(closed.log_softmax(logits))
        rewards.append(policy @ scores)
        kls.append(policy @ (np.log(policy) - reference))
        old_logps, advantages = np.log(policy)[actions], scores[actions] - policy @ scores
        for epoch in range(problem.epochs):
            result = closed.ppo(
                logits,
                old_logps,
                actions,
                advantages,
                reference,
                np.float64(problem.beta),
                np.float64(problem.clip),
            )
            at = rollout, epoch
            np.testing.assert_allclose(run["ppo/loss"][at], result.loss, atol=EXACT)
            np.testing.assert_allclose(run["ppo/gradient"][at], result.gradient, atol=EXACT)
            np.testing.assert_allclose(run["ppo/ratios"][at], result.ratios, atol=EXACT)
            logits = logits - problem.rate * result.gradient
            np.testing.assert_allclose(run["ppo/logits"][at], logits, atol=EXACT)
    np.testing.assert_allclose(run["ppo/expected_reward"][:-1], rewards, atol=EXACT)
    np.testing.assert_allclose(run["ppo/reference_kl"][:-1], kls, atol=EXACT)
    np.testing.assert_allclose(run["ppo/probabilities"], np.exp(closed.log_softmax(logits)))


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
        np.testing.assert_array_equal(values["ppo/reference"][0, 0], closed.log_softmax(start))
        moved = run["ppo/logits"][1, 0] - run["ppo/logits"][0, 2]
        rate = -moved / run["ppo/gradient"][1, 0]
        np.testing.assert_allclose(rate, float(np.dtype(dtype).type(0.3)), rtol=1e-11)
        np.testing.assert_allclose(values["ppo/logits"][1, 0], run["ppo/logits"][1, 0], atol=EXACT)
    assert float(np.float32(0.3)) != 0.3


@pytest.mark.parametrize(
    ("objective", "function"),
    [
        ("reward", closed.preference),
        ("ppo", closed.ppo),
        ("dpo", closed.dpo),
        ("reinforce", closed.reinforce),
    ],
)
def test_points_are_those_of_the_closed_forms(
    draw_points: Callable[..., Points], objective: str, function: Callable[..., Any]
) -> None:
    points = draw_points(objective, 4, 5, 7, 16)
    ((where, batch, emitted),) = oracle.at_points(points, np.asarray)
    assert (where, batch) == ((slice(None),), 1)
    values = function(*points.inputs.values())._asdict()
    frozen = {name for name in emitted if "gradient_" in name}
    assert emitted.keys() - frozen == {f"{objective}/{name}" for name in values}
    assert all(emitted[name] == 0.0 for name in frozen)
    for name, value in values.items():
        found = time_first(emitted[f"{objective}/{name}"], batch)
        np.testing.assert_allclose(found, value, rtol=EXACT, atol=EXACT)
