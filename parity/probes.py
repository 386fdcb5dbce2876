"""The probe grid: points that reach every branch of every objective, and keep off the kinks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from parity import oracle
from parity.points import INPUTS, Points

__all__ = ["KINK_DISTANCE", "core", "grid", "kink_distance"]

KINK_DISTANCE = 1e-5  # frameworks disagree at the clip's edges; the lesson's closest is 8e-5

State = tuple[str, dict[str, Any]]


def kink_distance(points: Points) -> float:
    """Returns how near a PPO ratio comes to an edge of its clip interval."""
    inputs = points.inputs
    logps = oracle.log_softmax(inputs["logits"])
    ratios = np.exp(oracle.pick(logps, inputs["actions"]) - inputs["old_logps"])
    edges = 1 + np.stack([-inputs["clip"], inputs["clip"]])[..., None]
    return float(np.abs(ratios - edges).min())


def _stack(objective: str, name: str, states: Sequence[State]) -> Points:
    """Stacks states of one shape; floats are rounded to float32 first.

    Raises:
        ValueError: a PPO state lies on a kink.
    """
    inputs = {}
    for key in INPUTS[objective]:
        array = np.stack([np.asarray(state[key]) for _, state in states])
        real = array.dtype.kind == "f"
        inputs[key] = array.astype(np.float32).astype(np.float64) if real else array
    points = Points(objective, name, tuple(label for label, _ in states), inputs)
    if objective == "ppo" and kink_distance(points) <= KINK_DISTANCE:
        raise ValueError(f"{name}: a point lies within {KINK_DISTANCE} of a clip edge")
    return points


def _ppo(
    label: str,
    logits: ArrayLike,
    actions: ArrayLike,
    ratios: ArrayLike,
    advantages: ArrayLike,
    *,
    reference: ArrayLike = (-0.4, 0.5, 0.1),
    beta: float = 0.3,
    clip: float = 0.2,
) -> State:
    """A PPO state from the ratios that it is to show; `reference` holds logits."""
    logps = oracle.log_softmax(np.asarray(logits, np.float32).astype(np.float64))
    return label, {
        "logits": np.asarray(logits, float),
        "old_logps": logps[np.asarray(actions)] - np.log(np.asarray(ratios, float)),
        "actions": np.asarray(actions, np.int64),
        "advantages": np.asarray(advantages, float),
        "reference": oracle.log_softmax(np.asarray(reference, float)),
        "beta": float(beta),
        "clip": float(clip),
    }


def _ppo_core() -> list[State]:
    """Three actions, four samples: every sign of the advantage in every part of the ratio."""
    logits, actions = (0.7, -0.2, 0.1), (0, 1, 2, 0)
    parts = {
        "far below": (0.25, 0.4, 0.1, 0.3),
        "just below": (0.79, 0.75, 0.798, 0.77),
        "inside": (0.95, 1.1, 1.0, 0.85),
        "just above": (1.21, 1.25, 1.203, 1.23),
        "far above": (4.0, 1.9, 7.0, 2.5),
    }
    signs = {"A > 0": (1.7, 0.6, 2.3, 0.9), "A < 0": (-0.6, -1.7, -2.1, -0.3), "A = 0": (0.0,) * 4}
    cells = [
        _ppo(f"{sign}, ratio {part} the interval", logits, actions, ratios, advantages)
        for sign, advantages in signs.items()
        for part, ratios in parts.items()
    ]
    mixed = (1.7, -0.6, 0.4, -2.2)
    ratios = (1.5, 0.5, 0.9, 1.3)
    return [
        *cells,
        _ppo("worked example of lesson 04", logits, actions, (1.5, 0.5) * 2, (2.0, -2.0) * 2),
        _ppo("worked example of the card", logits, actions, (1.4,) * 4, (2.0, -2.0) * 2),
        _ppo("signs and sides mixed", logits, actions, ratios, mixed),
        _ppo("policy at the reference", logits, actions, ratios, mixed, reference=logits),
        _ppo("KL near 1e-10", logits, actions, ratios, mixed, reference=(0.70002, -0.2, 0.1)),
        _ppo("peaked policy", (9.0, -3.0, 0.0), actions, ratios, mixed),
        _ppo("log-probability -80", (40.0, 0.0, -40.0), (0, 1, 2, 2), ratios, mixed),
        _ppo("every sample the same action", logits, (1,) * 4, ratios, mixed),
        _ppo("an action never sampled", logits, (0, 2, 0, 2), ratios, mixed),
        _ppo("behaviour far from policy", logits, actions, (30.0, 0.02, 12.0, 0.1), mixed),
        _ppo("log-ratio of 30 either way", logits, actions, (1e13, 1e-13, 1e13, 1e-13), mixed),
        _ppo("log-ratio of 30, not clipped", logits, actions, (1e-13, 1e13, 1e-13, 1e13), mixed),
        _ppo("beta above 1", logits, actions, ratios, mixed, beta=2.5),
        _ppo("beta zero", logits, actions, ratios, mixed, beta=0.0),
        _ppo("narrow clip", logits, actions, (1.02, 0.97, 1.004, 0.9), mixed, clip=0.01),
        _ppo("clip above 1", logits, actions, (3.0, 0.05, 1.9, 0.5), mixed, clip=1.5),
    ]


def _ppo_random(seed: int, actions: int, samples: int, count: int) -> list[State]:
    """Random states of one size, from near-equal policies to peaked ones."""
    random = np.random.default_rng(seed)
    states: list[State] = []
    while len(states) < count:
        scale = (0.1, 1.0, 4.0)[len(states) % 3]
        state = _ppo(
            f"{actions} actions, {samples} samples, logits of scale {scale}",
            random.normal(size=actions) * scale,
            random.integers(actions, size=samples),
            np.exp(random.normal(size=samples) * 0.3),
            random.normal(size=samples),
            reference=random.normal(size=actions) * scale,
            beta=random.choice([0.05, 0.2, 1.5]),
        )
        try:
            _stack("ppo", "candidate", [state])
        except ValueError:
            continue
        states.append(state)
    return states


_SEVEN = (0.7, -0.2, 0.1, -1.1, 0.4, 1.3, -0.6)  # logits of the extreme states
_NEAR = (0.701, -0.2, 0.1, -1.1, 0.4, 1.301, -0.602)  # of a reference beside them
_FAR = (-78.0, 0.0, -60.0, -70.0, -75.0, -80.0, -65.0)  # and of one far away, none of it 0
_PEAKED = (40.0, 0.0, -36.0, 3.0, -20.0, 10.0, -8.0)  # a log-probability of -76


def _ppo_far() -> list[State]:
    """Seven actions, two samples: what no ordinary run reaches, and where a clamp would show."""
    state, inside, outside = partial(_ppo, reference=_SEVEN), (0.9, 1.1), (1.5, 0.5)
    above, below = np.exp([75.0, 75.0]), np.exp([-75.0, -75.0])
    return [
        state("advantages of hundreds", _SEVEN, (0, 5), inside, (700.0, -300.0)),
        state("advantages of a thousand, clipped", _SEVEN, (3, 1), outside, (1700.0, -2200.0)),
        state("advantages of ten thousand", _SEVEN, (4, 4), outside, (-17000.0, 6000.0)),
        state("KL above 50", _SEVEN, (2, 6), outside, (-0.6, 1.7), reference=_FAR),
        state("log-ratio of 75, clipped", _SEVEN, (0, 5), above, (1.7, 0.6)),
        state("log-ratio of 75, not clipped", _SEVEN, (0, 5), above, (-0.6, -1.7)),
        state("log-ratio of -75, clipped", _PEAKED, (2, 2), below, (-0.6, -1.7)),
        state("log-ratio of -75, not clipped", _PEAKED, (2, 2), below, (1.7, 0.6), beta=0.0),
    ]


def _dpo(
    label: str,
    logits: ArrayLike,
    pairs: ArrayLike,
    *,
    reference: ArrayLike = (-0.4, 0.5, 0.1),
    beta: float = 0.3,
) -> State:
    """A DPO state; `reference` holds logits."""
    chosen, rejected = np.asarray(pairs, np.int64).T
    return label, {
        "logits": np.asarray(logits, float),
        "reference": oracle.log_softmax(np.asarray(reference, float)),
        "chosen": chosen,
        "rejected": rejected,
        "beta": float(beta),
    }


def _dpo_core() -> list[State]:
    """Three actions, three pairs: margins from -1000 to 1000."""
    pairs = ((0, 1), (0, 2), (1, 2))
    ordinary = (0.7, -0.2, 0.1)
    return [
        _dpo("ordinary margins", ordinary, pairs),
        _dpo("policy at the reference", ordinary, pairs, reference=ordinary),
        _dpo("near the reference", ordinary, pairs, reference=(0.70002, -0.2, 0.1)),
        _dpo("margins of opposite signs", (-1.5, 0.5, 2.0), pairs, beta=1.5),
        _dpo("scaled margin near 20", (25.0, 2.0, 0.0), pairs, beta=0.9),
        _dpo("scaled margin near -20", (-25.0, -2.0, 0.0), pairs, beta=0.9),
        _dpo("scaled margin near 100", (60.0, -60.0, 0.0), pairs, beta=0.9),
        _dpo("scaled margin near -100", (-60.0, 60.0, 0.0), pairs, beta=0.9),
        _dpo("scaled margin near 1000", (500.0, -500.0, 0.0), pairs, beta=1.0),
        _dpo("scaled margin near -1000", (-500.0, 500.0, 0.0), pairs, beta=1.0),
        _dpo("one pair three times", ordinary, ((2, 0),) * 3),
        _dpo("a pair and its opposite", ordinary, ((2, 0), (0, 2), (1, 0))),
        _dpo("beta above 1", ordinary, pairs, beta=2.5),
    ]


def _dpo_far() -> list[State]:
    """Seven actions, two pairs: what preferences should not hold, and large β."""
    return [
        _dpo("a pair of one action twice", _SEVEN, ((2, 2), (0, 5)), reference=_PEAKED),
        _dpo("only pairs of one action twice", _SEVEN, ((2, 2), (5, 5)), reference=_NEAR),
        _dpo("reference far away, both ways", _SEVEN, ((0, 1), (1, 0)), reference=_FAR),
        _dpo("beta of thousands", _SEVEN, ((0, 1), (5, 2)), reference=_NEAR, beta=3000.0),
    ]


def _dpo_random(seed: int, actions: int, pairs: int, count: int) -> list[State]:
    random = np.random.default_rng(seed)
    states = []
    for position in range(count):
        scale = (0.1, 1.0, 4.0)[position % 3]
        chosen = random.integers(actions, size=pairs)
        rejected = (chosen + random.integers(1, actions, size=pairs)) % actions
        states.append(
            _dpo(
                f"{actions} actions, {pairs} pairs, logits of scale {scale}",
                random.normal(size=actions) * scale,
                np.stack([chosen, rejected], axis=1),
                reference=random.normal(size=actions) * scale,
                beta=random.choice([0.05, 0.3, 1.5]),
            )
        )
    return states


def _reward(label: str, weights: ArrayLike, chosen: Any, rejected: Any) -> State:
    arrays = (weights, chosen, rejected)
    return label, dict(zip(INPUTS["reward"], (np.asarray(a, float) for a in arrays), strict=True))


def _reward_core() -> list[State]:
    """Two features, three pairs: score differences from -1000 to 1000."""
    chosen = ((1.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    rejected = ((0.0, 1.0), (-1.0, -1.0), (-1.0, -1.0))
    return [
        _reward("zero weights", (0.0, 0.0), chosen, rejected),
        _reward("ordinary weights", (0.8, -0.3), chosen, rejected),
        _reward("weights that contradict", (-0.8, 0.3), chosen, rejected),
        _reward("score difference near 20", (20.5, 0.2), chosen, rejected),
        _reward("score difference near -20", (-20.5, 0.2), chosen, rejected),
        _reward("score difference near 100", (50.0, -52.0), chosen, rejected),
        _reward("score difference near -100", (-50.0, 52.0), chosen, rejected),
        _reward("score difference near 1000", (500.0, -500.0), chosen, rejected),
        _reward("score difference near -1000", (-500.0, 500.0), chosen, rejected),
        _reward("one pair three times", (0.8, -0.3), (chosen[0],) * 3, (rejected[0],) * 3),
        _reward("equal features", (0.8, -0.3), chosen, (chosen[0], *rejected[1:])),
    ]


def _reward_far() -> list[State]:
    """Seven features, two pairs: features of thousands, with weights that make up for it."""
    random = np.random.default_rng(11)
    weights, (chosen, rejected) = random.normal(size=7) / 4000, random.normal(size=(2, 2, 7)) * 4000
    return [
        _reward("features of thousands", weights, chosen, rejected),
        _reward("features of thousands, and equal ones", weights, chosen, (rejected[0], chosen[1])),
    ]


def _reward_random(seed: int, features: int, pairs: int, count: int) -> list[State]:
    random = np.random.default_rng(seed)
    return [
        _reward(
            f"{features} features, {pairs} pairs, weights of scale {scale}",
            random.normal(size=features) * scale,
            random.normal(size=(pairs, features)),
            random.normal(size=(pairs, features)),
        )
        for scale in (0.1, 1.0, 3.0)[:count]
    ]


def _reinforce(
    label: str,
    logits: ArrayLike,
    actions: ArrayLike,
    advantages: ArrayLike,
    *,
    reference: ArrayLike = (-0.4, 0.5, 0.1),
    beta: float = 0.3,
) -> State:
    """A REINFORCE state; `reference` holds logits."""
    return label, {
        "logits": np.asarray(logits, float),
        "actions": np.asarray(actions, np.int64),
        "advantages": np.asarray(advantages, float),
        "reference": oracle.log_softmax(np.asarray(reference, float)),
        "beta": float(beta),
    }


def _reinforce_core() -> list[State]:
    """Three actions, four samples: every sign of the advantage, log-probs down to -1000."""
    logits, actions = (0.7, -0.2, 0.1), (0, 1, 2, 0)
    mixed = (1.7, -0.6, 0.4, -2.2)
    return [
        _reinforce("A > 0", logits, actions, (1.7, 0.6, 2.3, 0.9)),
        _reinforce("A < 0", logits, actions, (-0.6, -1.7, -2.1, -0.3)),
        _reinforce("A = 0", logits, actions, (0.0,) * 4),
        _reinforce("signs mixed", logits, actions, mixed),
        _reinforce("advantages that cancel", logits, (0, 0, 1, 1), (0.9, -0.9, 1.3, -1.3)),
        _reinforce("advantages of a thousand", logits, actions, (1700.0, -600.0, 400.0, -2200.0)),
        _reinforce("policy at the reference", logits, actions, mixed, reference=logits),
        _reinforce("KL near 1e-10", logits, actions, mixed, reference=(0.70002, -0.2, 0.1)),
        _reinforce("reference far away", logits, actions, mixed, reference=(-9.0, 3.0, 0.0)),
        _reinforce("peaked policy", (9.0, -3.0, 0.0), actions, mixed),
        _reinforce("log-probability -80", (40.0, 0.0, -40.0), (0, 1, 2, 2), mixed),
        _reinforce("log-probability -1000", (500.0, 0.0, -500.0), (0, 1, 2, 2), mixed),
        _reinforce("every sample the same", logits, (1,) * 4, (0.6,) * 4),
        _reinforce("an action never sampled", logits, (0, 2, 0, 2), mixed),
        _reinforce("beta above 1", logits, actions, mixed, beta=2.5),
        _reinforce("beta zero", logits, actions, mixed, beta=0.0),
    ]


def _reinforce_far() -> list[State]:
    """Seven actions, two samples: what no ordinary run reaches, and where a clamp would show."""
    return [
        _reinforce("advantages of 10,000", _SEVEN, (0, 5), (17000.0, -6000.0), reference=_NEAR),
        _reinforce("KL above 50", _SEVEN, (2, 6), (-0.6, 1.7), reference=_FAR),
    ]


def _reinforce_random(seed: int, actions: int, samples: int, count: int) -> list[State]:
    random = np.random.default_rng(seed)
    states = []
    for position in range(count):
        scale = (0.1, 1.0, 4.0)[position % 3]
        states.append(
            _reinforce(
                f"{actions} actions, {samples} samples, logits of scale {scale}",
                random.normal(size=actions) * scale,
                random.integers(actions, size=samples),
                random.normal(size=samples),
                reference=random.normal(size=actions) * scale,
                beta=random.choice([0.05, 0.2, 1.5]),
            )
        )
    return states


def core() -> tuple[Points, ...]:
    """The small part of the grid that already covers every branch: one shape an objective."""
    return (
        _stack("reward", "core", _reward_core()),
        _stack("ppo", "core", _ppo_core()),
        _stack("dpo", "core", _dpo_core()),
        _stack("reinforce", "core", _reinforce_core()),
    )


def grid() -> tuple[Points, ...]:
    """The whole grid: the core, random states of sizes from 2 to 128 actions, and extreme ones."""
    stacks = [*core()]
    for objective, (random, far) in _DRAWN.items():
        for wide, long in ((2, 1), _SIZE_FAR, (128, 1000)):
            states = random(wide, long) + (far() if (wide, long) == _SIZE_FAR else [])
            stacks.append(_stack(objective, f"{wide} x {long}", states))
    return tuple(stacks)


_SIZE_FAR = (7, 2)  # a stack of their own would be one more shape to compile
_DRAWN: dict[str, tuple[Callable[[int, int], list[State]], Callable[[], list[State]]]] = {
    "reward": (partial(_reward_random, 3, count=3), _reward_far),
    "ppo": (partial(_ppo_random, 5, count=6), _ppo_far),
    "dpo": (partial(_dpo_random, 7, count=6), _dpo_far),
    "reinforce": (partial(_reinforce_random, 9, count=6), _reinforce_far),
}
