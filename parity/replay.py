"""The oracle at work in its three modes: whole runs, single steps, fixed points.

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
from parity.problem import PPO, REINFORCE, Problem
from parity.trace import Trace

__all__ = ["BATCH", "Emission", "Lift", "at_points", "steps", "trajectory"]

Lift = Callable[[NDArray[np.float64]], Any]
Emission = tuple[tuple[Any, ...], dict[str, Any]]

_ALL = slice(None)
BATCH = 2**14  # sample-updates handled at once in step mode: bounds the replicas' memory

_FROZEN = {  # these gradients are zero by definition of the objective
    "reward": (),
    "ppo": ("gradient_old_logps", "gradient_advantages", "gradient_reference"),
    "dpo": ("gradient_reference",),
    "reinforce": ("gradient_advantages", "gradient_reference"),
}


def _rounded(values: Any, dtype: str) -> NDArray[np.float64]:
    """A constant of the problem as the run sees it: float32(0.2) is not 0.2."""
    return np.asarray(values, dtype).astype(np.float64)


def _pairs(preferences: tuple[tuple[int, int], ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    chosen, rejected = np.asarray(preferences, np.int64).T
    return chosen, rejected


def _evaluated(objective: str, result: Any) -> dict[str, Any]:
    """An objective's parts, loss and gradients, as the catalogue names them."""
    values = result._asdict() | dict.fromkeys(_FROZEN[objective], 0.0)
    return {f"{objective}/{name}": value for name, value in values.items()}


def _measures(objective: str, logits: Any, scores: Any, reference: Any) -> dict[str, Any]:
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
        return lift(_rounded(values, dtype))

    if problem.reward:
        weights, rate = constant(problem.reward.initial_weights), constant(problem.reward.rate)
        features = constant(problem.reward.features)
        chosen, rejected = _pairs(problem.reward.preferences)
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
    yield (0,), _measures("ppo", logits, scores, reference)
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
                    **_evaluated("ppo", result),
                    "ppo/logits": logits,
                },
            )
        yield (rollout + 1,), _measures("ppo", logits, scores, reference)
    yield (), {"ppo/probabilities": np.exp(oracle.log_softmax(logits))}


def _dpo_trajectory(problem: Problem, constant: Callable[[Any], Any]) -> Iterator[Emission]:
    assert problem.dpo is not None
    logits = constant(problem.dpo.logits)
    reference = oracle.log_softmax(constant(problem.dpo.reference))
    rate, beta = constant(problem.dpo.rate), constant(problem.dpo.beta)
    chosen, rejected = _pairs(problem.dpo.preferences)
    for update in range(problem.dpo.updates):
        result = oracle.dpo(logits, reference, chosen, rejected, beta)
        logits = oracle.descend(logits, result.gradient, rate)
        yield (
            (update,),
            {
                "dpo/reference": reference,
                **_evaluated("dpo", result),
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
    yield (0,), _measures("reinforce", logits, scores, reference)
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
                **_evaluated("reinforce", result),
                "reinforce/logits": logits,
            },
        )
        yield (rollout + 1,), _measures("reinforce", logits, scores, reference)
    yield (), {"reinforce/probabilities": np.exp(oracle.log_softmax(logits))}


def steps(
    problem: Problem, actions: NDArray[np.int64] | None, trace: Trace, lift: Lift
) -> Iterator[Emission]:
    """Re-derives each recorded quantity from those that the trace recorded just before it.

    Args:
        problem: what was solved.
        actions: the tape that was to be replayed, [rollout, sample].
        trace: the run; it must hold every quantity of the catalogue.
        lift: applied to every recorded input and constant.
    """
    if problem.reward:
        yield from _reward_steps(problem, trace, lift)
    if problem.ppo:
        assert actions is not None
        for part in _batches(problem.ppo.rollouts, problem.ppo.epochs * problem.ppo.samples):
            yield from _ppo_steps(problem, actions, trace, part, lift)
        scores = _recorded(trace, "reward/scores")
        yield from _policy_ends("ppo", problem.ppo, scores, trace, lift)
    if problem.dpo:
        yield from _dpo_steps(problem, trace, lift)
    if problem.reinforce:
        assert actions is not None
        for part in _batches(problem.reinforce.rollouts, problem.reinforce.samples):
            yield from _reinforce_steps(problem.reinforce, actions, trace, part, lift)
        scores = _rounded(problem.reinforce.scores, trace.dtype)
        yield from _policy_ends("reinforce", problem.reinforce, scores, trace, lift)


def _batches(rollouts: int, width: int) -> Iterator[slice]:
    """Parts of so many rollouts, each of `width` sample-updates, as are handled at once."""
    size = max(1, BATCH // width)
    for start in range(0, rollouts, size):
        yield slice(start, min(start + size, rollouts))


def _recorded(trace: Trace, name: str) -> NDArray[np.float64]:
    return trace[name].astype(np.float64)


def _before(start: Any, after: NDArray[np.float64], axes: int = 1) -> NDArray[np.float64]:
    """Shifts a recorded parameter by one update: what it was before each, the start first."""
    flat = after.reshape(-1, *after.shape[axes:])
    first = np.broadcast_to(start, after.shape[axes:])
    return np.concatenate([first[None], flat[:-1]]).reshape(after.shape)


def _reward_steps(problem: Problem, trace: Trace, lift: Lift) -> Iterator[Emission]:
    assert problem.reward is not None
    features = _rounded(problem.reward.features, trace.dtype)
    chosen, rejected = _pairs(problem.reward.preferences)
    after = _recorded(trace, "reward/weights")
    weights = lift(_before(_rounded(problem.reward.initial_weights, trace.dtype), after))
    loss, gradient = oracle.preference(
        weights, lift(features[None, chosen]), lift(features[None, rejected])
    )
    rate = lift(_rounded([problem.reward.rate], trace.dtype))
    moved = oracle.descend(weights, lift(_recorded(trace, "reward/gradient")), rate)
    yield (_ALL,), {"reward/loss": loss, "reward/gradient": gradient, "reward/weights": moved}
    yield (), {"reward/scores": oracle.scores(lift(after[-1]), lift(features))}


def _ppo_steps(
    problem: Problem, tape: NDArray[np.int64], trace: Trace, part: slice, lift: Lift
) -> Iterator[Emission]:
    assert problem.ppo is not None

    def recorded(name: str) -> Any:
        return lift(_recorded(trace, f"ppo/{name}")[part])

    def constant(value: float) -> Any:
        return lift(_rounded([[value]], trace.dtype))

    start = _rounded(problem.ppo.logits, trace.dtype)
    before = _before(start, _recorded(trace, "ppo/logits"), axes=2)[part]
    logits, first = lift(before), lift(before[:, 0])
    old_logps, reference = recorded("old_logps"), recorded("reference")
    kept = {name: _recorded(trace, f"ppo/{name}") for name in ("reference", "scores")}
    yield (
        (part,),
        {
            f"ppo/{name}": lift(_before(rows[0, 0], rows, axes=2)[part])
            for name, rows in kept.items()
        },
    )
    yield (part,), {"ppo/actions": tape[part]}
    actions = tape[part]
    yield (
        (part, 0),
        {
            "ppo/old_logps": oracle.pick(oracle.log_softmax(first), actions),
            "ppo/advantages": oracle.advantages(first, lift(kept["scores"][part, 0]), actions),
        },
    )
    yield (
        (part, slice(1, None)),
        {
            f"ppo/{name}": lift(_recorded(trace, f"ppo/{name}")[part, :-1])
            for name in ("old_logps", "advantages")
        },
    )
    beta, clip, rate = (
        constant(value) for value in (problem.ppo.beta, problem.ppo.clip, problem.ppo.rate)
    )
    result = oracle.ppo(
        logits, old_logps, actions[:, None], recorded("advantages"), reference, beta, clip
    )
    yield (
        (part,),
        {
            "ppo/ratios": result.ratios,
            "ppo/surrogate": oracle.surrogate(recorded("ratios"), recorded("advantages"), clip),
            "ppo/kl_penalty": result.kl_penalty,
            "ppo/loss": -recorded("surrogate") + beta * recorded("kl_penalty"),
            "ppo/gradient": result.gradient,
            "ppo/gradient_old_logps": 0.0,
            "ppo/gradient_advantages": 0.0,
            "ppo/gradient_reference": 0.0,
            "ppo/logits": oracle.descend(logits, recorded("gradient"), rate),
        },
    )


def _policy_ends(
    objective: str, policy: PPO | REINFORCE, scores: Any, trace: Trace, lift: Lift
) -> Iterator[Emission]:
    """The first carried state, and what is measured at the end of each rollout."""

    def by_epoch(name: str) -> NDArray[np.float64]:
        """[rollout, epoch, action]; REINFORCE has one update per rollout."""
        rows = _recorded(trace, f"{objective}/{name}")
        return rows.reshape(policy.rollouts, -1, len(policy.logits))

    updates = trace[f"{objective}/reference"].ndim - 1
    start = lift(_rounded(policy.reference, trace.dtype))
    yield (
        (0,) * updates,
        {
            f"{objective}/reference": oracle.log_softmax(start),
            f"{objective}/scores": lift(scores),
        },
    )
    after = by_epoch("logits")[:, -1]
    logits = lift(np.concatenate([[_rounded(policy.logits, trace.dtype)], after]))
    measured, reference = (
        lift(np.concatenate([kept[:1, 0], kept[:, -1]]))
        for kept in (by_epoch("scores"), by_epoch("reference"))
    )
    yield (_ALL,), _measures(objective, logits, measured, reference)
    yield (), {f"{objective}/probabilities": np.exp(oracle.log_softmax(lift(after[-1])))}


def _dpo_steps(problem: Problem, trace: Trace, lift: Lift) -> Iterator[Emission]:
    assert problem.dpo is not None
    chosen, rejected = _pairs(problem.dpo.preferences)
    after, kept = _recorded(trace, "dpo/logits"), _recorded(trace, "dpo/reference")
    logits = lift(_before(_rounded(problem.dpo.logits, trace.dtype), after))
    beta, rate = (
        lift(_rounded([value], trace.dtype)) for value in (problem.dpo.beta, problem.dpo.rate)
    )
    result = oracle.dpo(logits, lift(kept), chosen, rejected, beta)
    opposed = -beta[..., None] * lift(_recorded(trace, "dpo/margins"))
    yield (_ALL,), {"dpo/reference": lift(_before(kept[0], kept))}
    start = lift(_rounded(problem.dpo.reference, trace.dtype))
    yield (0,), {"dpo/reference": oracle.log_softmax(start)}
    yield (
        (_ALL,),
        {
            "dpo/margins": result.margins,
            "dpo/loss": oracle.softplus(opposed).sum(-1) / len(chosen),
            "dpo/gradient": result.gradient,
            "dpo/gradient_reference": 0.0,
            "dpo/logits": oracle.descend(logits, lift(_recorded(trace, "dpo/gradient")), rate),
        },
    )
    final = oracle.dpo(lift(after[-1]), lift(kept[-1]), chosen, rejected, beta[..., 0])
    yield (
        (),
        {
            "dpo/final_margins": final.margins,
            "dpo/probabilities": np.exp(oracle.log_softmax(lift(after[-1]))),
        },
    )


def _reinforce_steps(
    problem: REINFORCE, tape: NDArray[np.int64], trace: Trace, part: slice, lift: Lift
) -> Iterator[Emission]:
    def recorded(name: str) -> Any:
        return lift(_recorded(trace, f"reinforce/{name}")[part])

    start = _rounded(problem.logits, trace.dtype)
    logits = lift(_before(start, _recorded(trace, "reinforce/logits"))[part])
    actions, advantages = tape[part], recorded("advantages")
    beta, rate = (lift(_rounded([value], trace.dtype)) for value in (problem.beta, problem.rate))
    for name in ("reference", "scores"):
        kept = _recorded(trace, f"reinforce/{name}")
        yield (part,), {f"reinforce/{name}": lift(_before(kept[0], kept)[part])}
    result = oracle.reinforce(logits, actions, advantages, recorded("reference"), beta)
    yield (
        (part,),
        {
            "reinforce/actions": actions,
            "reinforce/advantages": oracle.advantages(logits, recorded("scores"), actions),
            **_evaluated("reinforce", result),
            "reinforce/surrogate": (recorded("logps") * advantages).sum(-1) / problem.samples,
            "reinforce/loss": -recorded("surrogate") + beta * recorded("kl_penalty"),
            "reinforce/logits": oracle.descend(logits, recorded("gradient"), rate),
        },
    )


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
    yield (_ALL,), _evaluated(points.objective, objective[points.objective](*inputs))
