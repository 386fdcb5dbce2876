"""The oracle in step mode: each recorded quantity from those that were recorded just before it.

Nothing compounds, so that a fault is seen where it is made.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity import oracle
from parity.problem import PPO, REINFORCE, Problem
from parity.replay import Emission, Lift, evaluated, measures, pairs, rounded
from parity.trace import Trace

__all__ = ["BATCH", "steps"]

BATCH = 2**14  # sample-updates handled at once: bounds the replicas' memory

_ALL = slice(None)


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
        scores = rounded(problem.reinforce.scores, trace.dtype)
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
    features = rounded(problem.reward.features, trace.dtype)
    chosen, rejected = pairs(problem.reward.preferences)
    after = _recorded(trace, "reward/weights")
    weights = lift(_before(rounded(problem.reward.initial_weights, trace.dtype), after))
    loss, gradient = oracle.preference(
        weights, lift(features[None, chosen]), lift(features[None, rejected])
    )
    rate = lift(rounded([problem.reward.rate], trace.dtype))
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
        return lift(rounded([[value]], trace.dtype))

    start = rounded(problem.ppo.logits, trace.dtype)
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
    start = lift(rounded(policy.reference, trace.dtype))
    yield (
        (0,) * updates,
        {
            f"{objective}/reference": oracle.log_softmax(start),
            f"{objective}/scores": lift(scores),
        },
    )
    after = by_epoch("logits")[:, -1]
    logits = lift(np.concatenate([[rounded(policy.logits, trace.dtype)], after]))
    measured, reference = (
        lift(np.concatenate([kept[:1, 0], kept[:, -1]]))
        for kept in (by_epoch("scores"), by_epoch("reference"))
    )
    yield (_ALL,), measures(objective, logits, measured, reference)
    yield (), {f"{objective}/probabilities": np.exp(oracle.log_softmax(lift(after[-1])))}


def _dpo_steps(problem: Problem, trace: Trace, lift: Lift) -> Iterator[Emission]:
    assert problem.dpo is not None
    chosen, rejected = pairs(problem.dpo.preferences)
    after, kept = _recorded(trace, "dpo/logits"), _recorded(trace, "dpo/reference")
    logits = lift(_before(rounded(problem.dpo.logits, trace.dtype), after))
    beta, rate = (
        lift(rounded([value], trace.dtype)) for value in (problem.dpo.beta, problem.dpo.rate)
    )
    result = oracle.dpo(logits, lift(kept), chosen, rejected, beta)
    opposed = -beta[..., None] * lift(_recorded(trace, "dpo/margins"))
    yield (_ALL,), {"dpo/reference": lift(_before(kept[0], kept))}
    start = lift(rounded(problem.dpo.reference, trace.dtype))
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

    start = rounded(problem.logits, trace.dtype)
    logits = lift(_before(start, _recorded(trace, "reinforce/logits"))[part])
    actions, advantages = tape[part], recorded("advantages")
    beta, rate = (lift(rounded([value], trace.dtype)) for value in (problem.beta, problem.rate))
    for name in ("reference", "scores"):
        kept = _recorded(trace, f"reinforce/{name}")
        yield (part,), {f"reinforce/{name}": lift(_before(kept[0], kept)[part])}
    result = oracle.reinforce(logits, actions, advantages, recorded("reference"), beta)
    yield (
        (part,),
        {
            "reinforce/actions": actions,
            "reinforce/advantages": oracle.advantages(logits, recorded("scores"), actions),
            **evaluated("reinforce", result),
            "reinforce/surrogate": (recorded("logps") * advantages).sum(-1) / problem.samples,
            "reinforce/loss": -recorded("surrogate") + beta * recorded("kl_penalty"),
            "reinforce/logits": oracle.descend(logits, recorded("gradient"), rate),
        },
    )
