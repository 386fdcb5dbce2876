"""The lessons' objectives in closed form, with gradients derived by hand: what the tape is held to.

Deliberately unlike the definitions in `parity.objectives`: no tape, no definitions. Every function
works on the last axis and takes any number of leading axes; scalars of a state (β, ε, a loss) have
only the leading ones. `log_softmax` and `scatter_add` are where float32 programs differ in spelling
or order; a test may give them further meanings.
"""

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DPO",
    "PPO",
    "REINFORCE",
    "Preference",
    "advantages",
    "dpo",
    "expected_score",
    "kl",
    "log_softmax",
    "optimum",
    "pick",
    "ppo",
    "preference",
    "reinforce",
    "scatter_add",
    "softplus",
    "surrogate",
]

Reals = Any  # float64 arrays, or others that compute alike
Indices = NDArray[np.int64]


@singledispatch
def log_softmax(logits: Reals) -> Reals:
    """Log-probs from logits: x - max - log Σ exp(x - max)."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1))[..., None]


@singledispatch
def scatter_add(base: Reals, index: Indices, terms: Reals) -> Reals:
    """Adds terms[..., i] to base[..., index[..., i]]."""
    added = np.array(base, dtype=np.float64)
    rows = added.reshape(-1, added.shape[-1])
    flat = np.broadcast_to(index, terms.shape).reshape(len(rows), -1)
    at = (flat + np.arange(len(rows))[:, None] * added.shape[-1]).ravel()
    rows += np.bincount(at, terms.ravel(), added.size).reshape(rows.shape)
    return added


def pick(values: Reals, index: Indices) -> Reals:
    """values[..., index[..., i]] for every i."""
    leading = np.indices(values.shape[:-1], sparse=True)
    return values[(*(axis[..., None] for axis in leading), index)]


def softplus(x: Reals) -> Reals:
    """log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.absolute(x)))


def _through_log_softmax(policy: Reals, by_logps: Reals) -> Reals:
    """Gradient in the logits from the gradient in the log-probs: g - π Σ g."""
    return by_logps - policy * by_logps.sum(-1)[..., None]


class Preference(NamedTuple):
    """Bradley-Terry loss [...] and its gradient in the weights [..., feature]."""

    loss: Reals
    gradient: Reals


def preference(weights: Reals, chosen: Reals, rejected: Reals) -> Preference:
    """Mean softplus(-(x_chosen - x_rejected)·w) over [..., pair, feature].

    Gradient: -mean σ(-m) (x_chosen - x_rejected).
    Source: Ouyang et al. 2022, equation 1 (https://arxiv.org/abs/2203.02155).
    """
    pairs = chosen.shape[-2]
    difference = chosen - rejected
    opposed = -(difference * weights[..., None, :]).sum(-1)
    losses = softplus(opposed)
    share = np.exp(opposed - losses) / pairs
    gradient = -(difference * share[..., None]).swapaxes(-1, -2).sum(-1)
    return Preference(losses.sum(-1) / pairs, gradient)


def expected_score(logits: Reals, scores: Reals) -> Reals:
    """Σ π(a) r(a)."""
    return (np.exp(log_softmax(logits)) * scores).sum(-1)


def advantages(logits: Reals, scores: Reals, actions: Indices) -> Reals:
    """r(a) - Σ π r for every sampled action."""
    return pick(scores, actions) - expected_score(logits, scores)[..., None]


def kl(logits: Reals, reference: Reals) -> Reals:
    """KL(π ‖ π_ref) in nats, exact over the actions; `reference` holds log-probs."""
    logps = log_softmax(logits)
    return (np.exp(logps) * (logps - reference)).sum(-1)


def _sampled_gradient(
    policy: Reals, deviation: Reals, actions: Indices, weights: Reals, beta: Reals
) -> Reals:
    """Gradient in the logits of what samples weigh, plus β KL(π ‖ π_ref).

    In the log-probs: the weights at the sampled actions, and β π (log π - log π_ref + 1), where
    `deviation` holds log π - log π_ref.
    """
    from_kl = beta[..., None] * deviation * policy + beta[..., None] * policy
    return _through_log_softmax(policy, scatter_add(from_kl, actions, weights))


class PPO(NamedTuple):
    """Parts, loss and gradient in the logits of the PPO objective."""

    ratios: Reals
    surrogate: Reals
    kl_penalty: Reals
    loss: Reals
    gradient: Reals


def _clipped(ratios: Reals, advantages: Reals, clip: Reals) -> tuple[Reals, Reals, Reals]:
    """ρA, clip(ρ)A, and whether ρ lies inside the interval."""
    low, high = 1 - clip[..., None], 1 + clip[..., None]
    clipped = np.minimum(np.maximum(ratios, low), high)
    return ratios * advantages, clipped * advantages, (low <= ratios) & (ratios <= high)


def surrogate(ratios: Reals, advantages: Reals, clip: Reals) -> Reals:
    """mean(min(ρA, clip(ρ, 1 - ε, 1 + ε) A)) over the samples."""
    unclipped, clipped, _ = _clipped(ratios, advantages, clip)
    return np.minimum(unclipped, clipped).sum(-1) / ratios.shape[-1]


def ppo(
    logits: Reals,
    old_logps: Reals,
    actions: Indices,
    advantages: Reals,
    reference: Reals,
    beta: Reals,
    clip: Reals,
) -> PPO:
    """-mean(min(ρA, clip(ρ)A)) + β KL(π ‖ π_ref), ρ = exp(log π(a) - old).

    A sample contributes to the gradient where the unclipped term is the smaller one or ρ lies
    inside the interval: w = ρA there, else 0. In the log-probs that is -w/N at the sample's
    action, beside what comes from the KL.
    Source: Schulman et al. 2017, equation 7 (https://arxiv.org/abs/1707.06347).
    """
    samples = advantages.shape[-1]
    logps = log_softmax(logits)
    policy = np.exp(logps)
    ratios = np.exp(pick(logps, actions) - old_logps)
    unclipped, clipped, inside = _clipped(ratios, advantages, clip)
    value = np.minimum(unclipped, clipped).sum(-1) / samples
    deviation = logps - reference
    penalty = (policy * deviation).sum(-1)
    active = (unclipped < clipped) | inside
    weights = (-advantages / samples) * active * ratios
    gradient = _sampled_gradient(policy, deviation, actions, weights, beta)
    return PPO(ratios, value, penalty, -value + beta * penalty, gradient)


class REINFORCE(NamedTuple):
    """Parts, loss and gradient in the logits of the score-function objective."""

    logps: Reals
    surrogate: Reals
    kl_penalty: Reals
    loss: Reals
    gradient: Reals


def reinforce(
    logits: Reals, actions: Indices, advantages: Reals, reference: Reals, beta: Reals
) -> REINFORCE:
    """-mean(log π(a) A) + β KL(π ‖ π_ref).

    In the log-probs the gradient is -A/N at the sampled action, beside what comes from the KL.
    Source: Williams 1992, section 4, REINFORCE with a baseline
    (https://doi.org/10.1007/BF00992696).
    """
    samples = advantages.shape[-1]
    logps = log_softmax(logits)
    policy = np.exp(logps)
    taken = pick(logps, actions)
    value = (taken * advantages).sum(-1) / samples
    deviation = logps - reference
    penalty = (policy * deviation).sum(-1)
    gradient = _sampled_gradient(policy, deviation, actions, -advantages / samples, beta)
    return REINFORCE(taken, value, penalty, -value + beta * penalty, gradient)


class DPO(NamedTuple):
    """Margins, loss and gradient in the logits of the DPO objective."""

    margins: Reals
    loss: Reals
    gradient: Reals


def dpo(logits: Reals, reference: Reals, chosen: Indices, rejected: Indices, beta: Reals) -> DPO:
    """Mean softplus(-βm), m = (log π(c) - log π(r)) - (log π_ref(c) - log π_ref(r)).

    In the log-probs the gradient is -(β/P) σ(-βm) at the chosen action and its opposite at the
    rejected one.
    Source: Rafailov et al. 2023, equation 7 (https://arxiv.org/abs/2305.18290).
    """
    pairs = chosen.shape[-1]
    logps = log_softmax(logits)
    policy = np.exp(logps)
    corrections = pick(reference, chosen) - pick(reference, rejected)
    margins = (pick(logps, chosen) - pick(logps, rejected)) - corrections
    opposed = -beta[..., None] * margins
    losses = softplus(opposed)
    weights = (-beta[..., None] / pairs) * np.exp(opposed - losses)
    by_logps = scatter_add(scatter_add(policy * 0.0, chosen, weights), rejected, -weights)
    gradient = _through_log_softmax(policy, by_logps)
    return DPO(margins, losses.sum(-1) / pairs, gradient)


def optimum(reference: Reals, scores: Reals, beta: Reals) -> Reals:
    """Log-probs that maximise Σ π r - β KL(π ‖ π_ref): log_softmax(log π_ref + r/β)."""
    return log_softmax(reference + scores / beta[..., None])
