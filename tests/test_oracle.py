"""The float64 reference against worked numbers, laws, and independent implementations."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.arithmetic import operations as op
from parity.arithmetic.measure import Expected, time_first
from parity.lessons.oracle import at_points
from parity.objectives import categorical, find
from parity.objectives.evaluation import Scope, descend, differentiated
from parity.points import Points
from parity.trace import Trace

FLOAT64_ERROR = 2e-13  # u = 1.1e-16 times a thousand operations on values of order 1

SIZES = [(2, 16), (7, 64), (128, 128)]  # actions, samples: fewest, the lessons' order, large


def array(*values: float) -> np.ndarray:
    return np.asarray(values, np.float64)


def logps(*logits: float) -> np.ndarray:
    return op.log_softmax(array(*logits))


def evaluated(objective: str, *inputs: Any) -> dict[str, Any]:
    """Values and gradients at one state."""
    spec = find(objective)
    given = (np.asarray(value) for value in inputs)
    return differentiated(spec, dict(zip(spec.axes, given, strict=True)))


def at_each(points: Points) -> dict[str, np.ndarray]:
    """Values and gradients at points, without the objective's name."""
    ((_, batch, values),) = at_points(points, np.asarray)
    named = {name.partition("/")[2]: value for name, value in values.items()}
    return {name: time_first(value, batch) for name, value in named.items()}


def measured(logits: Any, scores: Any, reference: Any) -> tuple[Any, Any]:
    """Expected score, and KL to the reference, of a policy."""
    given = {"logits": logits, "scores": scores, "reference": reference}
    more = {value.name: value.of for value in categorical.MEASURED}
    scope = Scope(find("ppo"), given, more=more)
    return scope["expected_reward"], scope["reference_kl"]


@pytest.mark.parametrize(
    ("objective", "actions", "samples"),
    [  # a shape takes JAX a second: all of them where both the actions and the samples branch
        *((objective, *size) for objective in ("ppo", "dpo") for size in SIZES),
        ("reward", *SIZES[1]),
        ("reinforce", *SIZES[1]),
    ],
)
def test_both_frameworks_agree_in_float64(
    draw_points: Callable[..., Points],
    evaluate: Callable[..., Trace],
    implementation: str,
    objective: str,
    actions: int,
    samples: int,
) -> None:
    points = draw_points(objective, 3, 12 if actions < 100 else 4, actions, samples)
    trace = evaluate(implementation, points, "float64")
    for name, value in at_each(points).items():
        found = trace[f"{objective}/{name}"]
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, value, rtol=FLOAT64_ERROR, atol=FLOAT64_ERROR)


def test_random_points_reach_every_cell_of_the_clip(draw_points: Callable[..., Points]) -> None:
    points = draw_points("ppo", 3, 12, 7, 64)
    ratios = at_each(points)["ratios"]
    clip, positive = points.inputs["clip"][:, None], points.inputs["advantages"] > 0
    for side in (positive, ~positive):
        for reached in (ratios < 1 - clip, np.abs(ratios - 1) < clip, ratios > 1 + clip):
            assert (side & reached).sum() >= 10
    policies = op.log_softmax(points.inputs["logits"], axis=1)
    assert (np.abs(policies - points.inputs["reference"]).max(-1) > 0.01).all()


def test_random_pairs_repeat_and_conflict(draw_points: Callable[..., Points]) -> None:
    points = draw_points("dpo", 3, 12, 7, 64)
    for chosen, rejected in zip(points.inputs["chosen"], points.inputs["rejected"], strict=True):
        pairs = list(zip(chosen.tolist(), rejected.tolist(), strict=True))
        assert len(set(pairs)) < len(pairs)
        assert {(r, c) for c, r in pairs} & set(pairs)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.5, 2.0, 2.4),  # lesson 04, worked example of the clip
        (0.5, -2.0, -1.6),  # the same
        (1.4, 2.0, 2.4),  # policy-gradient-kl-control: ratio 0.7/0.5, ε 0.2
        (1.4, -2.0, -2.8),  # the same: the clip must not bind
        (0.5, 2.0, 1.0),  # by hand: min(0.5·2, 0.8·2)
        (1.1, -2.0, -2.2),  # by hand: inside the interval both terms are ρA
    ],
)
def test_worked_clip_examples(ratio: float, advantage: float, expected: float) -> None:
    given = {"ratios": array(ratio), "advantages": array(advantage), "clip": 0.2}
    found = Scope(find("ppo"), given)["surrogate"]
    assert found == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("ratio", "advantage", "active"),
    [(1.5, 2.0, 0), (0.5, -2.0, 0), (1.5, -2.0, 1), (0.5, 2.0, 1), (1.1, 2.0, 1), (0.9, -2.0, 1)],
)
def test_clipped_samples_have_no_gradient(ratio: float, advantage: float, active: int) -> None:
    """Closed form for one sample without KL: -ρA (e_a - π) where active, else exactly 0."""
    logits, action = array(0.3, -0.1, 0.2), np.array([1])
    old = op.log_softmax(logits)[action] - np.log(ratio)
    result = evaluated("ppo", logits, old, action, array(advantage), logps(0, 0, 0), 0.0, 0.2)
    expected = -active * ratio * advantage * (np.eye(3)[1] - np.exp(op.log_softmax(logits)))
    np.testing.assert_allclose(result["gradient"], expected, rtol=1e-14, atol=0)


def test_kl_of_the_worked_example() -> None:
    # policy-gradient-kl-control: KL([0.7, 0.3] ‖ [0.5, 0.5]) = 0.082283 nats, six decimals printed
    _, found = measured(np.log(array(0.7, 0.3)), array(0, 0), np.log(array(0.5, 0.5)))
    assert found == pytest.approx(0.082283, abs=5e-7)
    assert found == pytest.approx(0.7 * np.log(1.4) + 0.3 * np.log(0.6), rel=1e-14)  # closed form


# Section 0 of peers.md, "The one tiny problem every peer was called on": inputs and a textbook
# float64 oracle of its own, with twelve decimals for values and gradients by central differences.
PEERS_ACTIONS = np.array([0, 1, 2, 0, 1, 2, 0, 2])
PEERS_REWARDS = array(1, -0.5, 0.25)
PEERS_BEHAVIOUR = logps(0.1, 0.2, -0.1)
PEERS_REFERENCE = logps(0, 0, 0.3)
PEERS_CASES = {
    "A": {
        "logits": array(0.7, -0.2, 0.1),
        "ratios": (1.495, 0.550, 1.002),
        "policy_loss": -0.215175093869,
        "kl": 0.098601274577,
        "loss": -0.205314966412,
        "policy_gradient": (0.005185701, 0.002108349, -0.007294050),
        "kl_gradient": (0.224883, -0.095701, -0.129182),
        "dpo": 0.543223504638,
    },
    "B": {
        "logits": array(-0.6, 0.7, 0),
        "ratios": (0.450, 1.495, 1.002),
        "policy_loss": 0.128934134380,
        "kl": 0.157476417794,
        "loss": 0.144681776159,
        "policy_gradient": (-0.151101, 0.197434, -0.046332),
        "kl_gradient": (-0.126173, 0.271865, -0.145692),
        "dpo": 0.971286175844,
    },
}
TWELVE, SIX, THREE = 5e-13, 5e-7, 5e-4  # half of the last printed decimal


def peers_ppo(case: str, beta: float, advantages: np.ndarray) -> dict[str, Any]:
    return evaluated(
        "ppo",
        PEERS_CASES[case]["logits"],
        PEERS_BEHAVIOUR[PEERS_ACTIONS],
        PEERS_ACTIONS,
        advantages,
        PEERS_REFERENCE,
        beta,
        0.2,
    )


@pytest.mark.parametrize("case", PEERS_CASES)
def test_ppo_of_the_peers_table(case: str) -> None:
    printed = PEERS_CASES[case]
    advantages = categorical.advantages(PEERS_BEHAVIOUR, PEERS_REWARDS, PEERS_ACTIONS)
    baseline = PEERS_REWARDS[PEERS_ACTIONS] - advantages
    np.testing.assert_allclose(baseline, 0.223022968, rtol=0, atol=5e-10)  # nine decimals printed
    result = peers_ppo(case, 0.1, advantages)
    np.testing.assert_allclose(result["ratios"][:3], printed["ratios"], rtol=0, atol=THREE)
    assert -result["surrogate"] == pytest.approx(printed["policy_loss"], abs=TWELVE)
    assert result["kl_penalty"] == pytest.approx(printed["kl"], abs=TWELVE)
    assert result["loss"] == pytest.approx(printed["loss"], abs=TWELVE)
    alone = peers_ppo(case, 0.0, advantages)["gradient"]
    np.testing.assert_allclose(alone, printed["policy_gradient"], rtol=0, atol=SIX)
    of_kl = peers_ppo(case, 1.0, 0 * advantages)["gradient"]
    np.testing.assert_allclose(of_kl, printed["kl_gradient"], rtol=0, atol=SIX)
    np.testing.assert_allclose(result["gradient"], alone + 0.1 * of_kl, rtol=0, atol=1e-15)


@pytest.mark.parametrize("case", PEERS_CASES)
def test_dpo_of_the_peers_table(case: str) -> None:
    chosen, rejected = np.array([0, 0, 2, 0]), np.array([1, 2, 1, 1])
    logits = PEERS_CASES[case]["logits"]
    loss = evaluated("dpo", logits, PEERS_REFERENCE, chosen, rejected, 0.5)["loss"]
    assert loss == pytest.approx(PEERS_CASES[case]["dpo"], abs=TWELVE)


def test_preference_loss_of_the_peers_table() -> None:
    chosen, rejected = array(1.2, -0.3, 0.4, 2)[:, None], array(0.2, 0.5, 0.4, -1)[:, None]
    found = evaluated("reward", array(1), chosen, rejected)  # the scores are the only feature
    assert found["loss"] == pytest.approx(0.556524221400, abs=TWELVE)


@pytest.mark.parametrize(
    ("policy", "printed"),
    [
        # design.md, posttraining-04: regularised objective at β = 0.2
        ("reference", 0.28191882),
        ("trained", 1.76204932),
        ("optimum", 1.79879117),
    ],
)
def test_objective_at_the_reference_the_trained_policy_and_the_optimum(
    expected_of: Callable[[str], Expected], policy: str, printed: float
) -> None:
    expected = expected_of("posttraining-04")
    run = expected.values
    scores, reference, beta = run["reward/scores"], run["ppo/reference"][0, 0], 0.2
    logits = {
        "reference": reference,
        "trained": run["ppo/logits"][-1, -1],
        "optimum": categorical.optimum(reference, scores, beta),
    }[policy]
    reward, kl = measured(logits, scores, reference)
    found = reward - beta * kl
    # Printed by a float32 run, whose scores are off by less than this; the slope in them is ≤ 1.
    assert found == pytest.approx(printed, abs=expected.allowed["reward/scores"].max())


def test_nothing_beats_the_optimum() -> None:
    """Closed form of the optimum's value: β log Σ π_ref exp(r/β)."""
    random = np.random.default_rng(5)
    reference, scores, beta = logps(*random.normal(size=6)), random.normal(size=6), 0.7

    def objective(logits: np.ndarray) -> np.ndarray:
        reward, kl = measured(logits, scores[:, None], reference[:, None])
        return reward - beta * kl

    best = categorical.optimum(reference, scores, beta)
    closed = beta * np.log(np.sum(np.exp(reference + scores / beta)))
    assert objective(best[:, None]) == pytest.approx(closed, rel=1e-13)
    others = best + 0.1 * random.normal(size=(200, 6))
    assert (objective(others.T) < closed).all()


@pytest.mark.parametrize("x", [0.0, 1.0, -1.0, 21.0, 40.0, -40.0, 1000.0, -1000.0])
def test_softplus_neither_overflows_nor_turns_linear(x: float) -> None:
    assert op.softplus(np.float64(x)) == pytest.approx(np.logaddexp(0, x), rel=1e-15)


@pytest.mark.parametrize("margin", [-1000.0, 1000.0])
def test_preference_losses_at_extreme_margins(margin: float) -> None:
    """Closed form: softplus(∓1000) is 0 or 1000 in float64, and its slope is 0 or 1."""
    found = evaluated("reward", array(margin), array(1)[None], array(0)[None])
    assert (found["loss"], *found["gradient"]) == (max(-margin, 0), -1.0 if margin < 0 else 0.0)
    found = evaluated("dpo", array(margin, 0), logps(0, 0), np.array([0]), np.array([1]), 1.0)
    assert found["loss"] == max(-margin, 0)
    np.testing.assert_array_equal(found["gradient"], array(-1, 1) if margin < 0 else array(0, 0))


def test_gradients_are_blind_to_a_constant_in_the_logits(
    draw_points: Callable[..., Points],
) -> None:
    """Softmax does not change when a constant is added, so a gradient sums to 0."""
    for objective in ("ppo", "dpo", "reinforce"):
        points = draw_points(objective, 3, 12, 7, 64)
        gradient = at_each(points)["gradient"]
        np.testing.assert_allclose(gradient.sum(-1), 0, atol=FLOAT64_ERROR)


def test_score_function_estimates_the_gradient_of_the_expected_score() -> None:
    """design.md: Σ π(a) ∇log π(a) (r(a) - c) = ∇ Σ π(a) r(a) for every constant c.

    The sum over a policy of tenths is an average over ten samples; ∇ Σ π r = π (r - Σ π r).
    """
    policy, scores = array(0.2, 0.5, 0.3), array(1, -2, 4)
    actions = np.array([0] * 2 + [1] * 5 + [2] * 3)
    expected = policy * (scores - policy @ scores)
    for baseline in (0, -3, policy @ scores, 100):
        advantages = scores[actions] - baseline
        result = evaluated("reinforce", np.log(policy), actions, advantages, logps(0, 0, 0), 0.0)
        np.testing.assert_allclose(-result["gradient"], expected, rtol=0, atol=FLOAT64_ERROR)


def test_advantages_average_to_nothing_under_the_policy() -> None:
    logits, scores = array(0.3, -1, 2, 0), array(1, 5, -2, 0.25)
    found = categorical.advantages(op.log_softmax(logits), scores, np.arange(4))
    assert np.exp(op.log_softmax(logits)) @ found == pytest.approx(0, abs=1e-15)
    np.testing.assert_allclose(found - found[0], scores - scores[0], atol=1e-15)


def test_log_softmax_survives_large_logits() -> None:
    found = op.log_softmax(array(1e4, 1e4, 1e4 - 1000))
    np.testing.assert_allclose(found, [-np.log(2), -np.log(2), -1000 - np.log(2)], rtol=1e-15)


def test_descend_moves_against_the_gradient() -> None:
    found = descend(array(1, 2), array(4, -8), 0.25)
    np.testing.assert_array_equal(found, [0, 4])  # by hand
