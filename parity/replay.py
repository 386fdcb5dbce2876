"""The oracle at work on whole runs and at fixed points; `stepwise.py` has the third mode.

Each mode is a generator that computes with whatever `lift` makes of its inputs, and yields
(where, {quantity: value}): the exact oracle, the random replicas and the rigorous bound of
`noise.py` all come from the same lines.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity import oracle
from parity.points import Points
from parity.problem import REINFORCE, Problem

__all__ = [
    "Emission",
    "Lift",
    "at_points",
    "evaluated",
    "measures",
    "pairs",
    "rounded",
    "trajectory",
]

Lift = Callable[[NDArray[np.float64]], Any]
Emission = tuple[tuple[Any, ...], dict[str, Any]]

_ALL = slice(None)

_FROZEN = {  # these gradients are zero by definition of the objective
    "reward": (),
    "ppo": ("gradient_old_logps", "gradient_advantages", "gradient_reference"),
    "dpo": ("gradient_reference",),
    "reinforce": ("gradient_advantages", "gradient_reference"),
}


def rounded(values: Any, dtype: str) -> NDArray[np.float64]:
    """A constant of the problem as the run sees it: float32(0.2) is not 0.2."""
    return np.asarray(values, dtype).astype(np.float64)


def pairs(preferences: tuple[tuple[int, int], ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Chosen and rejected actions of each pair."""
    chosen, rejected = np.asarray(preferences, np.int64).T
    return chosen, rejected


def evaluated(objective: str, result: Any) -> dict[str, Any]:
    """An objective's parts, loss and gradients, as the catalogue names them."""
    values = result._asdict() | dict.fromkeys(_FROZEN[objective], 0.0)
    return {f"{objective}/{name}": value for name, value in values.items()}


def measures(objective: str, logits: Any, scores: Any, reference: Any) -> dict[str, Any]:
    """Exact expectations of a policy, as the catalogue names them."""
    return {
        f"{objective}/expected_reward": oracle.expected_score(logits, scores),
        f"{objective}/reference_kl": oracle.kl(logits, reference),
    }


def trajectory(
    problem: Problem, actions: NDArray[np.int64] | None, dtype: str, lift: Lift
) -> Iterator[Emission]:
    """Runs the whole problem from its start.

    Args:
        problem: what is solved.
        actions: the tape, [rollout, sample]; None where no part of the problem is sampled.
        dtype: the dtype to which the runs round the problem's constants.
        lift: applied to every input.
    """

    def constant(values: Any) -> Any:
        return lift(rounded(values, dtype))

    if problem.reward:
        weights, rate = constant(problem.reward.initial_weights), constant(problem.reward.rate)
        features = constant(problem.reward.features)
        chosen, rejected = pairs(problem.reward.preferences)
        for update in range(problem.reward.updates):
            loss, gradient = oracle.preference(
                weights, features[..., chosen, :], features[..., rejected, :]
            )
            weights = oracle.descend(weights, gradient, rate)
            yield (
                (update,),
                {"reward/loss": loss, "reward/gradient": gradient, "reward/weights": weights},
            )
        scores = oracle.scores(weights, features)
        yield (), {"reward/scores": scores}
    if problem.ppo:
        assert actions is not None
        yield from _ppo_trajectory(problem, actions, scores, constant)
    if problem.dpo:
        yield from _dpo_trajectory(problem, constant)
    if problem.reinforce:
        assert actions is not None
        yield from _reinforce_trajectory(problem.reinforce, actions, constant)


def _ppo_trajectory(
    problem: Problem, tape: NDArray[np.int64], scores: Any, constant: Callable[[Any], Any]
) -> Iterator[Emission]:
    assert problem.ppo is not None
    logits = constant(problem.ppo.logits)
    reference = oracle.log_softmax(constant(problem.ppo.reference))
    rate, beta, clip = (
        constant(value) for value in (problem.ppo.rate, problem.ppo.beta, problem.ppo.clip)
    )
    yield (0,), measures("ppo", logits, scores, reference)
    for rollout, actions in enumerate(tape):
        yield (rollout,), {"ppo/actions": actions}
        old_logps = oracle.pick(oracle.log_softmax(logits), actions)
        advantages = oracle.advantages(logits, scores, actions)
        for epoch in range(problem.ppo.epochs):
            result = oracle.ppo(logits, old_logps, actions, advantages, reference, beta, clip)
            logits = oracle.descend(logits, result.gradient, rate)
            yield (
                (rollout, epoch),
                {
                    "ppo/reference": reference,
                    "ppo/scores": scores,
                    "ppo/old_logps": old_logps,
                    "ppo/advantages": advantages,
                    **evaluated("ppo", result),
                    "ppo/logits": logits,
                },
            )
        yield (rollout + 1,), measures("ppo", logits, scores, reference)
    yield (), {"ppo/probabilities": np.exp(oracle.log_softmax(logits))}


def _dpo_trajectory(problem: Problem, constant: Callable[[Any], Any]) -> Iterator[Emission]:
    assert problem.dpo is not None
    logits = constant(problem.dpo.logits)
    reference = oracle.log_softmax(constant(problem.dpo.reference))
    rate, beta = constant(problem.dpo.rate), constant(problem.dpo.beta)
    chosen, rejected = pairs(problem.dpo.preferences)
    for update in range(problem.dpo.updates):
        result = oracle.dpo(logits, reference, chosen, rejected, beta)
        logits = oracle.descend(logits, result.gradient, rate)
        yield (
            (update,),
            {
                "dpo/reference": reference,
                **evaluated("dpo", result),
                "dpo/logits": logits,
            },
        )
    final = oracle.dpo(logits, reference, chosen, rejected, beta)
    yield (
        (),
        {
            "dpo/final_margins": final.margins,
            "dpo/probabilities": np.exp(oracle.log_softmax(logits)),
        },
    )


def _reinforce_trajectory(
    problem: REINFORCE, tape: NDArray[np.int64], constant: Callable[[Any], Any]
) -> Iterator[Emission]:
    logits, scores = constant(problem.logits), constant(problem.scores)
    reference = oracle.log_softmax(constant(problem.reference))
    rate, beta = constant(problem.rate), constant(problem.beta)
    yield (0,), measures("reinforce", logits, scores, reference)
    for rollout, actions in enumerate(tape):
        advantages = oracle.advantages(logits, scores, actions)
        result = oracle.reinforce(logits, actions, advantages, reference, beta)
        logits = oracle.descend(logits, result.gradient, rate)
        yield (
            (rollout,),
            {
                "reinforce/reference": reference,
                "reinforce/scores": scores,
                "reinforce/actions": actions,
                "reinforce/advantages": advantages,
                **evaluated("reinforce", result),
                "reinforce/logits": logits,
            },
        )
        yield (rollout + 1,), measures("reinforce", logits, scores, reference)
    yield (), {"reinforce/probabilities": np.exp(oracle.log_softmax(logits))}


def at_points(points: Points, lift: Lift) -> Iterator[Emission]:
    """Evaluates an objective at fixed states."""
    inputs = [
        values if values.dtype.kind == "i" else lift(values) for values in points.inputs.values()
    ]
    objective: dict[str, Callable[..., Any]] = {
        "reward": oracle.preference,
        "ppo": oracle.ppo,
        "dpo": oracle.dpo,
        "reinforce": oracle.reinforce,
    }
    yield (_ALL,), evaluated(points.objective, objective[points.objective](*inputs))
