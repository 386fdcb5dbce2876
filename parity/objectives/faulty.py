"""Definitions that known bugs, or rewrites that are none, of several objectives share."""

from collections.abc import Callable, Mapping
from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import categorical as bandit

__all__ = [
    "ADVANTAGES",
    "KL",
    "LOGPS",
    "LOSS",
    "POLICY_LOGPS",
    "UNKNOWN",
    "UPDATE",
    "centred",
    "deviation",
    "scaled",
]

UNKNOWN = "no public report known; from the equations"

Definitions = Mapping[str, Callable[..., Any]]

_kl: Callable[..., Any] = bandit.KL_PENALTY.of


def centred(x: Any) -> Any:
    """Less the mean of the samples."""
    return x - op.mean(x)


def deviation(x: Any, correction: int) -> Any:
    """Standard deviation of the samples."""
    return op.sqrt(op.sum(centred(x) ** 2) / max(x.shape[0] - correction, 1))


def scaled(x: Any, correction: int) -> Any:
    """Over the standard deviation of the samples."""
    return x / (deviation(x, correction) + 1e-8)


def _softmax(x: Any) -> Any:
    return op.exp(op.log_softmax(x))


def _plus(surrogate: Any, penalty: Any, kl: str) -> Any:
    return surrogate if kl == "absent" else surrogate + penalty


def _negative_entropy(policy_logps: Any) -> Any:
    return op.sum(op.exp(policy_logps) * policy_logps)


POLICY_LOGPS: Definitions = {
    "logits": lambda logits: logits,
    "probabilities": lambda logits: _softmax(logits),
    "bfloat16": lambda logits: op.as_bfloat16(op.log_softmax(logits)),
    "temperature": lambda logits: op.log_softmax(logits / 0.9),
    "epsilon": lambda logits: op.log(_softmax(logits) + 1e-4),
    "clamped": lambda logits: op.log(op.maximum(_softmax(logits), 1e-8)),
    "twice": lambda logits: op.log_softmax(_softmax(logits)),
    "normalised-twice": lambda logits: op.log_softmax(op.log_softmax(logits)),
    "logsumexp": lambda logits: logits - op.logsumexp(logits),
}
LOGPS: Definitions = {
    "shifted": lambda policy_logps, actions: op.gather(op.roll(policy_logps, -1), actions),
    "greedy": lambda policy_logps, actions: op.gather(op.flip(op.sort(policy_logps)), 0 * actions),
    "of-all-actions": lambda policy_logps, actions: op.gather(
        op.sum(policy_logps)[None], 0 * actions
    ),
    "one-hot": lambda policy_logps, actions: op.sum(
        op.one_hot(actions, policy_logps.shape[0]) * policy_logps[None], axis=1
    ),
}
KL: Definitions = {
    "reversed": lambda policy_logps, reference: _kl(reference, policy_logps),
    "k1": lambda logps, reference_logps: op.mean(logps - reference_logps),
    "k2": lambda logps, reference_logps: op.mean((logps - reference_logps) ** 2) / 2,
    "k2-unhalved": lambda logps, reference_logps: op.mean((logps - reference_logps) ** 2),
    "k3": lambda logps, reference_logps: op.mean(
        op.exp(reference_logps - logps) - 1 + (logps - reference_logps)
    ),
    "k3-inverted": lambda logps, reference_logps: op.mean(
        op.exp(logps - reference_logps) - 1 - (logps - reference_logps)
    ),
    "k3-of-the-ratio": lambda logps, reference_logps: op.mean(
        op.exp(op.exp(reference_logps - logps)) - 1 - op.exp(reference_logps - logps)
    ),
    "of-itself": lambda policy_logps: _kl(policy_logps, op.stop_gradient(policy_logps)),
    "detached": lambda policy_logps, reference: op.stop_gradient(_kl(policy_logps, reference)),
    "unweighted": lambda policy_logps, reference: op.mean(policy_logps - reference),
    "over-actions": lambda policy_logps, reference: (
        _kl(policy_logps, reference) / reference.shape[0]
    ),
    "entropy-bonus": lambda policy_logps, reference: (
        _kl(policy_logps, reference) + 0.01 * _negative_entropy(policy_logps)
    ),
    "entropy-penalised": lambda policy_logps, reference: (
        _kl(policy_logps, reference) - 0.01 * _negative_entropy(policy_logps)
    ),
    "split": lambda policy_logps, reference: (
        _negative_entropy(policy_logps) - op.sum(op.exp(policy_logps) * reference)
    ),
    "softmax-of-logps": lambda policy_logps, reference: op.sum(
        _softmax(policy_logps) * (policy_logps - reference)
    ),
}
LOSS: Definitions = {
    "negated": lambda surrogate, kl_penalty, beta, kl: _plus(surrogate, -beta * kl_penalty, kl),
    "surrogate-negated": lambda surrogate, kl_penalty, beta, kl: _plus(
        surrogate, beta * kl_penalty, kl
    ),
    "kl-sign": lambda surrogate, kl_penalty, beta, kl: _plus(-surrogate, -beta * kl_penalty, kl),
    "beta-squared": lambda surrogate, kl_penalty, beta, kl: _plus(
        -surrogate, beta * beta * kl_penalty, kl
    ),
    "beta-lost": lambda surrogate, kl_penalty, kl: _plus(-surrogate, kl_penalty, kl),
    "divided": lambda surrogate, kl_penalty, beta, kl: _plus(-surrogate, beta * kl_penalty, kl) / 4,
}
ADVANTAGES: Definitions = {
    "no-baseline": lambda scores, actions: op.gather(scores, actions),
    "of-the-batch": lambda scores, actions: centred(op.gather(scores, actions)),
    "unweighted": lambda scores, actions: op.gather(scores, actions) - op.mean(scores),
    "whitened-by-n": lambda policy_logps, scores, actions: scaled(
        centred(bandit.advantages(policy_logps, scores, actions)), 0
    ),
    "whitened-by-n-minus-1": lambda policy_logps, scores, actions: scaled(
        centred(bandit.advantages(policy_logps, scores, actions)), 1
    ),
    "rewards-shifted": lambda policy_logps, scores, actions: (
        op.gather(scores, actions) - (op.sum(op.exp(policy_logps) * (scores + 0.5)) - 0.5)
    ),
}
UPDATE: Definitions = {
    "reference-follows": lambda logits, gradient, rate: {
        "reference": op.log_softmax(logits - rate * gradient)
    },
    "ascent": lambda logits, gradient, rate: {"logits": logits + rate * gradient},
    "accumulated": lambda logits, gradient, rate, last: {
        "logits": logits - rate * (last + gradient),
        "gradient": last + gradient,
    },
    "momentum": lambda logits, gradient, rate, last: {
        "logits": logits - rate * (gradient + 0.9 * last)
    },
    "weight-decay": lambda logits, gradient, rate: {
        "logits": logits - rate * (gradient + 0.01 * logits)
    },
}
