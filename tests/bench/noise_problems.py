"""Random problems for the study of the noise: states at points, training runs, and hard cases."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.arithmetic import operations as op
from parity.lessons.probes import KINK_DISTANCE, kink_distance
from parity.objectives import categorical, find, trained
from parity.objectives.dpo import DPO
from parity.objectives.ppo import PPO
from parity.objectives.reinforce import REINFORCE
from parity.objectives.reward import Reward
from parity.points import Points
from parity.problem import Problem
from parity.samples import Samples

__all__ = [
    "LATTICE",
    "SCALES",
    "TRAINED",
    "Run",
    "draw",
    "hard_cases",
    "random_points",
    "random_runs",
]

ACTIONS, SAMPLES = (2, 8, 32, 128), (16, 64, 256, 1024)
LATTICE = tuple((actions, samples) for actions in ACTIONS for samples in SAMPLES)
"""Shapes of points: actions (of a reward: features) and samples or pairs."""

TRAINED = ((3, 16), (8, 64), (32, 256), (128, 1024))
"""Shapes of training runs: few, for JAX compiles each of them four times."""

SCALES = (0.1, 0.3, 1.0, 2.0, 4.0)
"""Standard deviations of the logits, of their reference, and of a reward's weights."""

ROLLOUTS, EPOCHS, UPDATES, FEATURES = 4, 3, 10, 3
EDGES = 8  # stacks of problems at the edge of the clip interval: alarms are rare there
_REWARD_ENTRIES = 2**18  # pairs times features of a stack: the oracle has 64 replicas of each

Random = np.random.Generator
State = dict[str, Any]


def _single(values: Any) -> NDArray[np.float64]:
    """Float32 values held as float64."""
    return np.asarray(values, np.float32).astype(np.float64)


def _policy(random: Random, actions: int, scale: float) -> State:
    reference = op.log_softmax(random.normal(size=actions) * scale)
    return {
        "logits": _single(random.normal(size=actions) * scale),
        "reference": _single(reference),
    }


def _reward(random: Random, features: int, pairs: int, scale: float) -> State:
    return {
        "weights": _single(random.normal(size=features) * scale),
        "chosen": _single(random.normal(size=(pairs, features))),
        "rejected": _single(random.normal(size=(pairs, features))),
    }


def _ppo(random: Random, actions: int, samples: int, scale: float) -> State:
    """On policy, so that samples of one action are equal, or every sample with a ratio of its own.

    Drawn again until no ratio is near an edge of the clip interval.
    """
    while True:
        state = _policy(random, actions, scale)
        clip, distance = random.choice([0.1, 0.2, 0.3]), random.choice([0.01, 0.2, 1.0])
        state |= {"beta": _single(random.choice([0, 0.05, 0.2, 1])), "clip": _single(clip)}
        if random.integers(2):
            behaviour = op.log_softmax(state["logits"] + random.normal(size=actions) * distance)
            taken = random.choice(actions, size=samples, p=np.exp(behaviour))
            scores = random.normal(size=actions)
            advantages = scores[taken] - np.exp(behaviour) @ scores
            old_logps = behaviour[taken]
        else:
            taken = random.integers(0, actions, samples)
            advantages = random.normal(size=samples)
            logps = op.log_softmax(state["logits"])
            old_logps = logps[taken] + random.normal(size=samples) * distance
        state |= {"actions": taken, "advantages": _single(advantages)}
        state |= {"old_logps": _single(old_logps)}
        if kink_distance(stack("ppo", "candidate", [state]), find("ppo"))[0] > KINK_DISTANCE:
            return state


def _dpo(random: Random, actions: int, pairs: int, scale: float) -> State:
    chosen = random.integers(0, actions, pairs)
    return _policy(random, actions, scale) | {
        "chosen": chosen,
        "rejected": (chosen + random.integers(1, actions, pairs)) % actions,
        "beta": _single(random.choice([0.1, 0.3, 1])),
    }


def _reinforce(random: Random, actions: int, samples: int, scale: float) -> State:
    state = _policy(random, actions, scale)
    taken = random.integers(0, actions, samples)
    logps = op.log_softmax(state["logits"])
    advantages = categorical.advantages(logps, random.normal(size=actions), taken)
    return state | {
        "actions": taken,
        "advantages": _single(advantages),
        "beta": _single(random.choice([0, 0.05, 0.2, 1])),
    }


_STATES: dict[str, Callable[[Random, int, int, float], State]] = {
    "reward": _reward,
    "ppo": _ppo,
    "dpo": _dpo,
    "reinforce": _reinforce,
}


def stack(objective: str, grid: str, states: list[State]) -> Points:
    """Stacks states of one shape."""
    inputs = {name: np.stack([state[name] for state in states]) for name in find(objective).axes}
    return Points(objective, grid, tuple(f"point {n}" for n in range(len(states))), inputs)


def draw(objective: str, grid: str, seed: list[int], shape: tuple[int, int], count: int) -> Points:
    """Draws a stack of one objective and shape: actions (or features) and samples (or pairs)."""
    random = np.random.default_rng(seed)
    states = [_STATES[objective](random, *shape, SCALES[n % len(SCALES)]) for n in range(count)]
    return stack(objective, grid, states)


def random_points(seed: int, count: int, size: int) -> Iterator[Points]:
    """Draws stacks of one size for each objective and shape of the lattice.

    Args:
        seed: of everything.
        count: problems of each objective and shape; fewer of rewards that are large.
        size: problems in a stack, which bounds the memory of the oracle's replicas.
    """
    for number, objective in enumerate(trained()):
        for actions, samples in LATTICE:
            wanted, most = count, size
            if objective == "reward":
                wanted = max(2, min(count, _REWARD_ENTRIES // (actions * samples)))
                most = min(size, wanted)
            for first in range(0, wanted, most):
                yield draw(
                    objective,
                    f"{actions} x {samples}",
                    [seed, number, actions, samples, first],
                    (actions, samples),
                    most,
                )


def _changed(points: Points, grid: str, **inputs: NDArray[Any]) -> Points:
    return Points(points.objective, grid, points.labels, {**points.inputs, **inputs})


def _ordered(points: Points, grid: str, order: NDArray[np.int64]) -> Points:
    """Puts the samples or pairs of every point into an order, [point, sample]."""
    objective = find(points.objective)
    of_samples = [name for name, axes in objective.axes.items() if objective.counted in axes]
    inputs = {}
    for name in of_samples:
        values = points.inputs[name]
        places = order.reshape(*order.shape, *(1,) * (values.ndim - 2))
        inputs[name] = np.take_along_axis(values, places, axis=1)
    return _changed(points, grid, **inputs)


def _peaked(objective: str, seed: int, gap: float, count: int) -> Points:
    """Two actions, all samples of the first; the log-prob of the second is about -gap."""
    random, states = np.random.default_rng([seed, int(gap)]), []
    for _ in range(count):
        logits = _single([gap / 2, -gap / 2] + random.normal(size=2) * 0.3)
        reference = _single(op.log_softmax(random.normal(size=2)))
        states.append(
            {
                "logits": logits,
                "reference": reference,
                "actions": np.zeros(16, np.int64),
                "old_logps": _single(random.normal(size=16) * 0.05),
                "advantages": _single(random.normal(size=16)),
                "beta": _single(1.0),
                "clip": _single(0.2),
            }
        )
    return stack(objective, f"a log-prob of -{gap:g}", states)


def _at_the_edge(seed: int, distance: float, count: int) -> Points:
    """Eight actions; the ratio of one of them is so near to an edge of the clip interval."""
    random = np.random.default_rng([seed, 93, int(1e9 * distance)])
    points = draw("ppo", "plain", [seed, 93], (8, 64), count)
    inputs, actions = points.inputs, points.inputs["actions"]
    edges = 1 + random.choice([-1, 1], size=(count, 1)) * inputs["clip"][:, None]
    ratio = edges + random.choice([-1, 1], size=(count, 1)) * distance
    here = actions == actions[:, :1]
    logps = np.take_along_axis(op.log_softmax(inputs["logits"], axis=1), actions, axis=1)
    old_logps = _single(np.where(here, logps - np.log(ratio), inputs["old_logps"]))
    return _changed(points, f"a ratio {distance:g} off a clip edge", old_logps=old_logps)


def hard_cases(seed: int, count: int) -> Iterator[Points]:
    """Data that a random draw does not show: ordered, all alike, peaked, flat, far out.

    Args:
        seed: of everything.
        count: problems of each case and shape.
    """
    for samples in (64, 1024):
        shape = (8, samples)
        ppo, dpo, reinforce, reward = (
            draw(objective, "plain", [seed, 99, samples], shape, count)
            for objective in ("ppo", "dpo", "reinforce", "reward")
        )
        same = np.zeros((count, samples), np.int64)
        for points in (ppo, reinforce):
            for key in ("actions", "advantages"):
                order = points.inputs[key].argsort(-1, kind="stable")
                yield _ordered(points, f"samples in order of {key}", order)
            yield _ordered(points, "one sample many times", same)
        yield _ordered(dpo, "pairs in order of chosen", dpo.inputs["chosen"].argsort(-1))
        yield _ordered(dpo, "one pair many times", same)
        apart = reward.inputs["chosen"] - reward.inputs["rejected"]
        order = (apart * reward.inputs["weights"][:, None]).sum(-1).argsort(-1)
        yield _ordered(reward, "pairs in order of margin", order)
        yield _ordered(reward, "one pair many times", same)
    random, shape = np.random.default_rng([seed, 98]), (8, 64)
    for objective in ("ppo", "dpo", "reinforce"):
        points = draw(objective, "plain", [seed, 97], shape, count)
        near = _single(points.inputs["logits"] + 1e-5 * random.normal(size=(count, 8)))
        yield _changed(
            points,
            "policy within 1e-5 of the reference",
            reference=_single(op.log_softmax(near, axis=1)),
        )
    for objective in ("dpo", "reinforce"):
        points = draw(objective, "plain", [seed, 96], shape, count)
        yield _changed(points, "logits + 1000", logits=_single(points.inputs["logits"] + 1000))
    points = draw("dpo", "plain", [seed, 95], shape, count)
    yield _changed(points, "logits x 30", logits=_single(points.inputs["logits"] * 30))
    points = draw("reward", "plain", [seed, 94], shape, count)
    yield _changed(points, "weights x 30", weights=_single(points.inputs["weights"] * 30))
    for distance in (1e-5, 1e-6, 1e-7, 0.0):
        for part in range(EDGES):
            yield _at_the_edge(seed + part, distance, count)
    for gap in (80, 88, 90, 92, 95):
        for objective in ("ppo", "reinforce"):
            yield _peaked(objective, seed, gap, count)


class Run(NamedTuple):
    """A problem to be trained, and its tape."""

    problem: Problem
    samples: Samples | None


def _pairs(random: Random, actions: int, count: int) -> tuple[tuple[int, int], ...]:
    chosen = random.integers(0, actions, count)
    rejected = (chosen + random.integers(1, actions, count)) % actions
    return tuple(zip(chosen.tolist(), rejected.tolist(), strict=True))


def _numbers(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(np.asarray(values, np.float32).tolist())


def _tape(problem: Problem, random: Random) -> Samples:
    """A tape drawn from the starting policy: no sampler is needed to replay it."""
    assert problem.tape is not None
    logps = op.log_softmax(np.asarray(problem.tape.logits))
    shape = (problem.tape.rollouts, problem.tape.samples)
    return Samples(
        actions=random.choice(len(logps), size=shape, p=np.exp(logps)),
        behaviour=np.tile(logps.astype(np.float32), (shape[0], 1)),
        problem=problem.name,
        problem_digest=problem.digest,
        seed=0,
        sampler="numpy",
        versions={"numpy": np.__version__},
    )


def random_runs(seed: int, counts: dict[int, int]) -> Iterator[Run]:
    """Draws small training problems: a reward with PPO and DPO beside it, and REINFORCE.

    Args:
        seed: of everything.
        counts: actions of a shape to how many of each of the two to draw of it.
    """
    for actions, samples in TRAINED:
        for number in range(counts.get(actions, 0)):
            random = np.random.default_rng([seed, 50, actions, samples, number])
            yield from _runs(random, actions, samples, number)


def _runs(random: Random, actions: int, samples: int, number: int) -> Iterator[Run]:
    name, scale = f"{actions}x{samples}-{number}", SCALES[number % len(SCALES)]

    def logits() -> tuple[float, ...]:
        return _numbers(random.normal(size=actions) * scale)

    rate, beta = (float(random.choice(values)) for values in ((0.05, 0.2, 0.8), (0.05, 0.2, 1.0)))
    problem = Problem(
        name=f"trained-{name}",
        reward=Reward(
            features=tuple(_numbers(random.normal(size=FEATURES)) for _ in range(actions)),
            preferences=_pairs(random, actions, samples),
            updates=UPDATES,
            rate=rate,
        ),
        ppo=PPO(
            logits=logits(),
            reference_logits=logits(),
            rollouts=ROLLOUTS,
            samples=samples,
            epochs=EPOCHS,
            rate=rate,
            beta=beta,
            clip=0.2,
        ),
        dpo=DPO(
            logits=logits(),
            reference_logits=logits(),
            preferences=_pairs(random, actions, samples),
            updates=UPDATES,
            rate=rate,
            beta=beta,
        ),
    )
    yield Run(problem, _tape(problem, random))
    alone = Problem(
        name=f"reinforced-{name}",
        reinforce=REINFORCE(
            logits=logits(),
            reference_logits=logits(),
            scores=_numbers(random.normal(size=actions)),
            rollouts=2 * ROLLOUTS,
            samples=samples,
            rate=rate,
            beta=beta,
        ),
    )
    yield Run(alone, _tape(alone, random))
