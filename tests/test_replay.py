"""The oracle's three modes: step mode returns an exact trajectory, and sees what was corrupted."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity import oracle, replay, stepwise
from parity.points import Points
from parity.problem import DPO, PPO, REINFORCE, Problem, Reward, lessons
from parity.quantities import TRAINED, expected
from parity.replay import Emission
from parity.samples import Samples
from parity.trace import Trace, quantities_from

EXACT = 1e-12  # float64 on values of order 1, computed once and twice from the same inputs
TIME_AXES = ("rollout", "epoch", "update", "checkpoint")

# Nothing like the lessons: four actions, a start away from zero, a reference unlike the policy.
GENERAL = Problem(
    name="general",
    reward=Reward(
        features=((1.0, 0.5, 0.0), (0.0, 1.0, -1.0), (-1.0, -1.0, 0.5), (0.3, 0.2, 0.1)),
        preferences=((0, 1), (0, 1), (2, 3), (3, 0), (1, 2)),
        updates=4,
        rate=0.5,
        weights=(0.1, -0.2, 0.3),
    ),
    ppo=PPO(
        logits=(0.4, 0.0, -0.2, 0.1),
        reference_logits=(0.0, 0.3, 0.1, -0.5),
        rollouts=4,
        samples=12,
        epochs=3,
        rate=0.3,
        beta=0.3,
        clip=0.02,
    ),
    dpo=DPO(
        logits=(0.4, 0.0, -0.2, 0.1),
        reference_logits=(0.0, 0.3, 0.1, -0.5),
        preferences=((0, 1), (2, 1), (2, 1), (3, 0)),
        updates=5,
        rate=0.7,
        beta=0.5,
    ),
)
GENERAL_ACTIONS = np.random.default_rng(8).integers(0, 4, (4, 12))
SCORED = Problem(  # apart, because a tape belongs to one objective
    name="scored",
    reinforce=REINFORCE(
        logits=(0.4, 0.0, -0.2, 0.1),
        reference_logits=(0.0, 0.3, 0.1, -0.5),
        scores=(1.0, -0.5, 2.0, 0.3),
        rollouts=4,
        samples=12,
        rate=0.3,
        beta=0.3,
    ),
)


def gather(emissions: Iterable[Emission], problem: Problem) -> dict[str, np.ndarray]:
    """Puts emissions into arrays that start as NaN, which no comparison forgives."""
    shapes = {spec.name: shape for spec, shape in expected(problem).items()}
    values = {name: np.full(shape, np.nan) for name, shape in shapes.items()}
    for where, emitted in emissions:
        for name, value in emitted.items():
            values[name][where] = value
    return values


def exact_trace(problem: Problem, actions: np.ndarray | None) -> Trace:
    """The oracle's own float64 run, as if an implementation had recorded it."""
    run = replay.trajectory(problem, actions, "float64", np.asarray)
    return Trace("oracle", "float64", quantities_from(gather(run, problem), TRAINED))


def steps(problem: Problem, actions: np.ndarray | None, trace: Trace) -> dict[str, np.ndarray]:
    return gather(stepwise.steps(problem, actions, trace, np.asarray), problem)


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
    monkeypatch.setattr(stepwise, "BATCH", 1)  # one rollout at a time
    for name, values in steps(GENERAL, GENERAL_ACTIONS, general).items():
        np.testing.assert_array_equal(values, whole[name], err_msg=name)


def test_trajectory_is_the_loop_written_out(general: Trace) -> None:
    """The objectives of `oracle` in the plain order of the lesson, one update after another."""
    problem, run = GENERAL.ppo, general
    assert problem is not None
    logits = np.array(problem.logits)
    reference = oracle.log_softmax(np.array(problem.reference_logits))
    scores = np.array(GENERAL.reward.features) @ run["reward/weights"][-1]
    np.testing.assert_allclose(run["reward/scores"], scores, rtol=1e-15)
    rewards, kls = [], []
    for rollout, actions in enumerate(GENERAL_ACTIONS):
        policy = np.exp(oracle.log_softmax(logits))
        rewards.append(policy @ scores)
        kls.append(policy @ (np.log(policy) - reference))
        old_logps, advantages = np.log(policy)[actions], scores[actions] - policy @ scores
        for epoch in range(problem.epochs):
            result = oracle.ppo(
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
    np.testing.assert_allclose(run["ppo/probabilities"], np.exp(oracle.log_softmax(logits)))


def test_general_problem_clips_some_samples(general: Trace) -> None:
    """Otherwise the tests above and below would say nothing about clipping."""
    outside = np.abs(general["ppo/ratios"] - 1) > GENERAL.ppo.clip
    assert outside.any()
    assert not outside.all()


Place = tuple[int, ...]
Found = dict[str, set[Place]]


def changed(corrupted: str, at: Place, problem: Problem, trace: Trace) -> Found:
    """Which entries of time step mode derives anew after one recorded step is corrupted."""
    values = trace[corrupted].copy()
    if values.dtype.kind == "i":
        values[at] = (values[at] + 1) % 4
    else:  # no two entries by the same amount: softmax is blind to that
        step = values[at]
        values[at] = step * 1.001 + 1e-4 * np.arange(1, step.size + 1).reshape(step.shape)
    quantities = dict(trace.quantities)
    quantities[corrupted] = replace(quantities[corrupted], values=values)
    before = steps(problem, GENERAL_ACTIONS, trace)
    after = steps(problem, GENERAL_ACTIONS, replace(trace, quantities=quantities))
    found: Found = {}
    for name, quantity in trace.quantities.items():
        times = sum(axis in TIME_AXES for axis in quantity.axes)
        differs = np.abs(after[name] - before[name]) > EXACT
        places = differs.any(axis=tuple(range(times, differs.ndim))) if times else differs.any()
        if places.any():
            found[name] = {tuple(place) for place in np.argwhere(places).tolist()}
    return found


# What each recorded quantity is used for, from the formulas: corrupted (quantity, step), then the
# derived entries that must change, and no others.
DEPENDENTS: list[tuple[str, Place, Found]] = [
    ("reward/loss", (1,), {}),
    ("reward/gradient", (1,), {"reward/weights": {(1,)}}),
    (
        "reward/weights",
        (1,),
        {"reward/loss": {(2,)}, "reward/gradient": {(2,)}, "reward/weights": {(2,)}},
    ),
    ("reward/weights", (3,), {"reward/scores": {()}}),
    ("reward/scores", (), {"ppo/scores": {(0, 0)}}),
    (
        "ppo/reference",
        (1, 1),
        {"ppo/kl_penalty": {(1, 1)}, "ppo/gradient": {(1, 1)}, "ppo/reference": {(1, 2)}},
    ),
    (
        "ppo/reference",
        (1, 2),
        {
            "ppo/kl_penalty": {(1, 2)},
            "ppo/gradient": {(1, 2)},
            "ppo/reference": {(2, 0)},
            "ppo/reference_kl": {(2,)},
        },
    ),
    (
        "ppo/reference",
        (0, 0),
        {
            "ppo/kl_penalty": {(0, 0)},
            "ppo/gradient": {(0, 0)},
            "ppo/reference": {(0, 1)},
            "ppo/reference_kl": {(0,)},
        },
    ),
    ("ppo/scores", (1, 0), {"ppo/advantages": {(1, 0)}, "ppo/scores": {(1, 1)}}),
    ("ppo/scores", (1, 1), {"ppo/scores": {(1, 2)}}),
    ("ppo/scores", (1, 2), {"ppo/scores": {(2, 0)}, "ppo/expected_reward": {(2,)}}),
    ("ppo/actions", (1,), {}),
    (
        "ppo/old_logps",
        (1, 1),
        {"ppo/ratios": {(1, 1)}, "ppo/gradient": {(1, 1)}, "ppo/old_logps": {(1, 2)}},
    ),
    ("ppo/old_logps", (1, 2), {"ppo/ratios": {(1, 2)}, "ppo/gradient": {(1, 2)}}),
    (
        "ppo/advantages",
        (1, 1),
        {"ppo/surrogate": {(1, 1)}, "ppo/gradient": {(1, 1)}, "ppo/advantages": {(1, 2)}},
    ),
    ("ppo/advantages", (1, 2), {"ppo/surrogate": {(1, 2)}, "ppo/gradient": {(1, 2)}}),
    ("ppo/ratios", (1, 1), {"ppo/surrogate": {(1, 1)}}),
    ("ppo/surrogate", (1, 1), {"ppo/loss": {(1, 1)}}),
    ("ppo/kl_penalty", (1, 1), {"ppo/loss": {(1, 1)}}),
    ("ppo/loss", (1, 1), {}),
    ("ppo/gradient", (1, 1), {"ppo/logits": {(1, 1)}}),
    ("ppo/gradient_old_logps", (1, 1), {}),
    ("ppo/gradient_advantages", (1, 1), {}),
    ("ppo/gradient_reference", (1, 1), {}),
    (
        "ppo/logits",
        (1, 1),
        {
            "ppo/ratios": {(1, 2)},
            "ppo/kl_penalty": {(1, 2)},
            "ppo/gradient": {(1, 2)},
            "ppo/logits": {(1, 2)},
        },
    ),
    (
        "ppo/logits",
        (1, 2),
        {
            "ppo/old_logps": {(2, 0)},
            "ppo/advantages": {(2, 0)},
            "ppo/ratios": {(2, 0)},
            "ppo/kl_penalty": {(2, 0)},
            "ppo/gradient": {(2, 0)},
            "ppo/logits": {(2, 0)},
            "ppo/expected_reward": {(2,)},
            "ppo/reference_kl": {(2,)},
        },
    ),
    (
        "ppo/logits",
        (3, 2),
        {
            "ppo/expected_reward": {(4,)},
            "ppo/reference_kl": {(4,)},
            "ppo/probabilities": {()},
        },
    ),
    ("ppo/expected_reward", (1,), {}),
    ("ppo/reference_kl", (1,), {}),
    ("ppo/probabilities", (), {}),
    (
        "dpo/reference",
        (2,),
        {"dpo/margins": {(2,)}, "dpo/gradient": {(2,)}, "dpo/reference": {(3,)}},
    ),
    (
        "dpo/reference",
        (4,),
        {"dpo/margins": {(4,)}, "dpo/gradient": {(4,)}, "dpo/final_margins": {()}},
    ),
    ("dpo/margins", (2,), {"dpo/loss": {(2,)}}),
    ("dpo/loss", (2,), {}),
    ("dpo/gradient", (2,), {"dpo/logits": {(2,)}}),
    ("dpo/gradient_reference", (2,), {}),
    (
        "dpo/logits",
        (2,),
        {"dpo/margins": {(3,)}, "dpo/gradient": {(3,)}, "dpo/logits": {(3,)}},
    ),
    ("dpo/logits", (4,), {"dpo/final_margins": {()}, "dpo/probabilities": {()}}),
    ("dpo/final_margins", (), {}),
    ("dpo/probabilities", (), {}),
    (
        "reinforce/reference",
        (1,),
        {
            "reinforce/kl_penalty": {(1,)},
            "reinforce/gradient": {(1,)},
            "reinforce/reference": {(2,)},
            "reinforce/reference_kl": {(2,)},
        },
    ),
    (
        "reinforce/scores",
        (1,),
        {
            "reinforce/advantages": {(1,)},
            "reinforce/scores": {(2,)},
            "reinforce/expected_reward": {(2,)},
        },
    ),
    ("reinforce/actions", (1,), {}),
    (
        "reinforce/advantages",
        (1,),
        {"reinforce/surrogate": {(1,)}, "reinforce/gradient": {(1,)}},
    ),
    ("reinforce/logps", (1,), {"reinforce/surrogate": {(1,)}}),
    ("reinforce/surrogate", (1,), {"reinforce/loss": {(1,)}}),
    ("reinforce/kl_penalty", (1,), {"reinforce/loss": {(1,)}}),
    ("reinforce/loss", (1,), {}),
    ("reinforce/gradient", (1,), {"reinforce/logits": {(1,)}}),
    ("reinforce/gradient_advantages", (1,), {}),
    ("reinforce/gradient_reference", (1,), {}),
    (
        "reinforce/logits",
        (1,),
        {
            "reinforce/advantages": {(2,)},
            "reinforce/logps": {(2,)},
            "reinforce/kl_penalty": {(2,)},
            "reinforce/gradient": {(2,)},
            "reinforce/logits": {(2,)},
            "reinforce/expected_reward": {(2,)},
            "reinforce/reference_kl": {(2,)},
        },
    ),
    (
        "reinforce/logits",
        (3,),
        {
            "reinforce/expected_reward": {(4,)},
            "reinforce/reference_kl": {(4,)},
            "reinforce/probabilities": {()},
        },
    ),
    ("reinforce/expected_reward", (1,), {}),
    ("reinforce/reference_kl", (1,), {}),
    ("reinforce/probabilities", (), {}),
]


@pytest.mark.parametrize(("corrupted", "at", "dependents"), DEPENDENTS)
def test_corruption_reaches_exactly_what_depends_on_it(
    general: Trace, scored: Trace, corrupted: str, at: Place, dependents: Found
) -> None:
    problem, trace = (SCORED, scored) if corrupted in scored else (GENERAL, general)
    assert changed(corrupted, at, problem, trace) == dependents


def test_every_quantity_of_the_catalogue_is_corrupted() -> None:
    assert {name for name, _, _ in DEPENDENTS} == {spec.name for spec in TRAINED}


def test_actions_are_those_of_the_tape_and_not_of_the_trace(general: Trace) -> None:
    derived = steps(GENERAL, GENERAL_ACTIONS[:, ::-1], general)
    np.testing.assert_array_equal(derived["ppo/actions"], GENERAL_ACTIONS[:, ::-1])
    assert (np.abs(derived["ppo/ratios"] - general["ppo/ratios"]) > EXACT).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_are_those_that_the_run_sees(dtype: str) -> None:
    """float32(0.3) is not 0.3: the rate, β, ε and the starting policy are rounded first."""
    run = gather(replay.trajectory(GENERAL, GENERAL_ACTIONS, dtype, np.asarray), GENERAL)
    trace = Trace("oracle", dtype, quantities_from(run, TRAINED))
    start = np.asarray(GENERAL.ppo.reference_logits, dtype).astype(np.float64)
    for values in (run, steps(GENERAL, GENERAL_ACTIONS, trace)):
        np.testing.assert_array_equal(values["ppo/reference"][0, 0], oracle.log_softmax(start))
        moved = run["ppo/logits"][1, 0] - run["ppo/logits"][0, 2]
        rate = -moved / run["ppo/gradient"][1, 0]
        np.testing.assert_allclose(rate, float(np.dtype(dtype).type(0.3)), rtol=1e-11)
        np.testing.assert_allclose(values["ppo/logits"][1, 0], run["ppo/logits"][1, 0], atol=EXACT)
    assert float(np.float32(0.3)) != 0.3


@pytest.mark.parametrize(
    ("objective", "function"),
    [
        ("reward", oracle.preference),
        ("ppo", oracle.ppo),
        ("dpo", oracle.dpo),
        ("reinforce", oracle.reinforce),
    ],
)
def test_points_are_evaluated_by_the_objective_itself(
    draw_points: Callable[..., Points], objective: str, function: Callable[..., Any]
) -> None:
    points = draw_points(objective, 4, 5, 7, 16)
    ((where, emitted),) = replay.at_points(points, np.asarray)
    assert where == (slice(None),)
    values = function(*points.inputs.values())._asdict()
    frozen = {name for name in emitted if "gradient_" in name}
    assert emitted.keys() - frozen == {f"{objective}/{name}" for name in values}
    assert all(emitted[name] == 0.0 for name in frozen)
    for name, value in values.items():
        np.testing.assert_array_equal(emitted[f"{objective}/{name}"], value)
