"""Problems unlike the lessons, their exact traces, and their steps."""

from collections.abc import Iterable

import numpy as np

from parity.arithmetic.measure import Emission, time_first
from parity.lessons import oracle
from parity.objectives.dpo import DPO
from parity.objectives.ppo import PPO
from parity.objectives.reinforce import REINFORCE
from parity.objectives.reward import Reward
from parity.problem import Problem
from parity.quantities import expected, of_runs
from parity.trace import Trace, quantities_from

EXACT = 1e-12  # float64 on values of order 1, computed once and twice from the same inputs

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
    for where, batch, emitted in emissions:
        for name, value in emitted.items():
            values[name][where] = time_first(value, batch)
    return values


def exact_trace(problem: Problem, actions: np.ndarray | None) -> Trace:
    """The oracle's own float64 run, as if an implementation had recorded it."""
    run = oracle.trajectory(problem, actions, "float64", np.asarray)
    return Trace("oracle", "float64", quantities_from(gather(run, problem), of_runs()))


def steps(problem: Problem, actions: np.ndarray | None, trace: Trace) -> dict[str, np.ndarray]:
    return gather(oracle.steps(problem, actions, trace, np.asarray), problem)
