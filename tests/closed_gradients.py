"""Gradients derived by hand, one state at a time: what the tape's must agree with.

In the log-probs a sample weighs -w/N at its action, a pair -(β/P) σ(-βm) at the chosen one and the
opposite at the rejected one, the KL β π (log π - log π_ref + 1); through log-softmax g becomes
g - π Σ g.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLOSED"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max()
    result: Array = shifted - np.log(np.exp(shifted).sum())
    return result


def _through_log_softmax(policy: Array, by_logps: Array) -> Array:
    return by_logps - policy * by_logps.sum()


def _scattered(size: int, index: Indices, terms: Array) -> Array:
    return np.bincount(index, terms, size)


def _opposed(margins: Array) -> Array:
    """The logistic function of -m, σ(-m), without overflow."""
    return np.exp(-np.logaddexp(0.0, margins))


def preference(weights: Array, chosen: Array, rejected: Array) -> Array:
    """-mean σ(-m) (x_chosen - x_rejected): Ouyang et al. 2022, equation 1."""
    difference = chosen - rejected
    share = _opposed((difference * weights).sum(-1)) / len(chosen)
    result: Array = -(difference * share[:, None]).sum(0)
    return result


def _sampled(
    logits: Array, reference: Array, actions: Indices, weights: Array, beta: Array
) -> Array:
    logps = _log_softmax(logits)
    policy = np.exp(logps)
    by_logps = beta * policy * (logps - reference + 1) + _scattered(len(logits), actions, weights)
    return _through_log_softmax(policy, by_logps)


def ppo(
    logits: Array,
    old_logps: Array,
    actions: Indices,
    advantages: Array,
    reference: Array,
    beta: Array,
    clip: Array,
) -> Array:
    """Samples count, with ρA, where the unclipped term is the smaller one or ρ lies inside.

    Source: Schulman et al. 2017, equation 7.
    """
    ratios = np.exp(_log_softmax(logits)[actions] - old_logps)
    clipped = np.clip(ratios, 1 - clip, 1 + clip)
    active = (ratios * advantages < clipped * advantages) | (clipped == ratios)
    weights = np.where(active, -ratios * advantages, 0.0) / len(actions)
    return _sampled(logits, reference, actions, weights, beta)


def reinforce(
    logits: Array, actions: Indices, advantages: Array, reference: Array, beta: Array
) -> Array:
    """Williams 1992, section 4."""
    return _sampled(logits, reference, actions, -advantages / len(actions), beta)


def dpo(logits: Array, reference: Array, chosen: Indices, rejected: Indices, beta: Array) -> Array:
    """Rafailov et al. 2023, equation 7."""
    logps, size = _log_softmax(logits), len(logits)
    margins = (logps[chosen] - logps[rejected]) - (reference[chosen] - reference[rejected])
    weights = -beta * _opposed(beta * margins) / len(chosen)
    by_logps = _scattered(size, chosen, weights) + _scattered(size, rejected, -weights)
    return _through_log_softmax(np.exp(logps), by_logps)


CLOSED = {"reward": preference, "ppo": ppo, "reinforce": reinforce, "dpo": dpo}
