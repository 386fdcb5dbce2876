"""What known bugs and harmless rewrites compute; faults/reinforce.toml has their words."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import categorical as bandit
from parity.objectives import faulty
from parity.objectives.catalogue import collect, edit, unfreeze, update

__all__ = ["EDITS"]


def _discounts(x: Any) -> Any:
    """γ^i of every sample, counted from 0; γ = exp(-0.01)."""
    return op.exp(-0.01 * (op.cumulative(0.0 * x + 1.0) - 1.0))


def _averaged(x: Any) -> Any:
    return 0.0 * x + op.mean(x)


def _totals(actions: Any, advantages: Any, length: int) -> Any:
    """Sums of the advantages of each action."""
    return op.sum(op.one_hot(actions, length) * advantages[:, None])


EDITS = {
    "reinforce-loss-negated": edit(loss=faulty.LOSS["negated"]),
    "reinforce-surrogate-negated": edit(loss=faulty.LOSS["surrogate-negated"]),
    "reinforce-sum-for-mean": edit(surrogate=lambda logps, advantages: op.sum(logps * advantages)),
    "reinforce-mean-times-mean": edit(
        surrogate=lambda logps, advantages: op.mean(logps) * op.mean(advantages)
    ),
    "reinforce-broadcast-pairs": edit(
        surrogate=lambda logps, advantages: op.mean(logps[None] * advantages[:, None], axis=(0, 1))
    ),
    "reinforce-last-sample-only": edit(
        surrogate=lambda logps, advantages: (logps * advantages)[logps.shape[0] - 1]
    ),
    "reinforce-log-forgotten": edit(
        surrogate=lambda logps, advantages: op.mean(op.exp(logps) * advantages)
    ),
    "reinforce-probabilities-for-logps": edit(policy_logps=faulty.POLICY_LOGPS["probabilities"]),
    "reinforce-logits-for-logps": edit(policy_logps=faulty.POLICY_LOGPS["logits"]),
    "reinforce-double-softmax": edit(policy_logps=faulty.POLICY_LOGPS["twice"]),
    "reinforce-softmax-epsilon": edit(policy_logps=faulty.POLICY_LOGPS["epsilon"]),
    "reinforce-probabilities-clamped": edit(policy_logps=faulty.POLICY_LOGPS["clamped"]),
    "reinforce-bfloat16-logps": edit(policy_logps=faulty.POLICY_LOGPS["bfloat16"]),
    "reinforce-temperature-scoring": edit(policy_logps=faulty.POLICY_LOGPS["temperature"]),
    "reinforce-action-shifted": edit(logps=faulty.LOGPS["shifted"]),
    "reinforce-greedy-action": edit(logps=faulty.LOGPS["greedy"]),
    "reinforce-one-hot-lost": edit(logps=faulty.LOGPS["of-all-actions"]),
    "reinforce-logps-detached": edit(
        surrogate=lambda logps, advantages: op.mean(op.stop_gradient(logps) * advantages)
    ),
    "reinforce-ratio-for-logp": edit(
        surrogate=lambda logps, advantages: op.mean(
            op.exp(logps - op.stop_gradient(logps)) * advantages
        )
    ),
    "reinforce-discount-twice": edit(
        surrogate=lambda logps, advantages: op.mean(_discounts(advantages) * logps * advantages)
    ),
    "reinforce-loss-divided": edit(loss=faulty.LOSS["divided"]),
    "reinforce-advantage-absolute": edit(
        surrogate=lambda logps, advantages: op.mean(logps * op.abs(advantages))
    ),
    "reinforce-kl-sign": edit(loss=faulty.LOSS["kl-sign"]),
    "reinforce-kl-reversed": edit(kl_penalty=faulty.KL["reversed"]),
    "reinforce-kl-k1": edit(kl_penalty=faulty.KL["k1"]),
    "reinforce-kl-k2": edit(kl_penalty=faulty.KL["k2"]),
    "reinforce-kl-k3": edit(kl_penalty=faulty.KL["k3"]),
    "reinforce-kl-over-actions": edit(kl_penalty=faulty.KL["over-actions"]),
    "reinforce-kl-of-itself": edit(kl_penalty=faulty.KL["of-itself"]),
    "reinforce-kl-detached": edit(kl_penalty=faulty.KL["detached"]),
    "reinforce-beta-squared": edit(loss=faulty.LOSS["beta-squared"]),
    "reinforce-beta-lost": edit(loss=faulty.LOSS["beta-lost"]),
    "reinforce-entropy-bonus": edit(kl_penalty=faulty.KL["entropy-bonus"]),
    "reinforce-entropy-penalised": edit(kl_penalty=faulty.KL["entropy-penalised"]),
    "reinforce-advantage-averaged": collect(
        advantages=lambda policy_logps, scores, actions: _averaged(
            bandit.advantages(policy_logps, scores, actions)
        )
    ),
    "reinforce-baseline-lost": collect(advantages=faulty.ADVANTAGES["no-baseline"]),
    "reinforce-baseline-of-the-batch": collect(advantages=faulty.ADVANTAGES["of-the-batch"]),
    "reinforce-baseline-leave-one-out": collect(
        advantages=lambda scores, actions: (
            faulty.centred(op.gather(scores, actions))
            * actions.shape[0]
            / max(actions.shape[0] - 1, 1)
        )
    ),
    "reinforce-baseline-of-the-first": collect(
        advantages=lambda scores, actions: (
            op.gather(scores, actions) - op.gather(scores, actions)[0]
        )
    ),
    "reinforce-baseline-unweighted": collect(advantages=faulty.ADVANTAGES["unweighted"]),
    "reinforce-advantage-not-detached": unfreeze("advantages"),
    "reinforce-advantage-negated": collect(
        advantages=lambda policy_logps, scores, actions: (
            -bandit.advantages(policy_logps, scores, actions)
        )
    ),
    "reinforce-whitened-by-n": collect(advantages=faulty.ADVANTAGES["whitened-by-n"]),
    "reinforce-whitened-by-n-minus-1": collect(
        advantages=faulty.ADVANTAGES["whitened-by-n-minus-1"]
    ),
    "reinforce-scaled-not-centred": collect(
        advantages=lambda scores, actions: faulty.scaled(op.gather(scores, actions), 0)
    ),
    "reinforce-rewards-by-max": collect(
        advantages=lambda policy_logps, scores, actions: (
            bandit.advantages(policy_logps, scores, actions)
            / op.sort(op.abs(op.gather(scores, actions)))[actions.shape[0] - 1]
        )
    ),
    "reinforce-kl-in-reward": edit(
        surrogate=lambda logps, reference_logps, advantages, beta: op.mean(
            logps * (advantages - beta * (op.stop_gradient(logps) - reference_logps))
        ),
        loss=lambda surrogate: -surrogate,
    ),
    "reinforce-reference-not-detached": unfreeze("reference"),
    "reinforce-reference-follows": update(faulty.UPDATE["reference-follows"]),
    "reinforce-ascent": update(faulty.UPDATE["ascent"]),
    "reinforce-gradients-accumulate": update(faulty.UPDATE["accumulated"]),
    "reinforce-momentum": update(faulty.UPDATE["momentum"]),
    "reinforce-weight-decay": update(faulty.UPDATE["weight-decay"]),
    "reinforce-gradient-clipped": update(
        lambda logits, gradient, rate: {
            "logits": logits
            - rate * gradient * 0.05 / op.maximum(op.sqrt(op.sum(gradient * gradient)), 0.05)
        }
    ),
    "reinforce-cross-entropy": edit(
        logps=lambda logits, actions: (
            -op.sum(op.one_hot(actions, logits.shape[0]) * -op.log_softmax(logits)[None], axis=1)
        )
    ),
    "reinforce-softmax-of-logps": edit(kl_penalty=faulty.KL["softmax-of-logps"]),
    "reinforce-log-softmax-twice": edit(policy_logps=faulty.POLICY_LOGPS["normalised-twice"]),
    "reinforce-advantage-carries-sign": edit(
        surrogate=lambda logps, advantages: -op.mean(logps * -advantages)
    ),
    "reinforce-rewards-shifted": collect(advantages=faulty.ADVANTAGES["rewards-shifted"]),
    "reinforce-by-action": edit(
        surrogate=lambda policy_logps, actions, advantages: (
            op.sum(_totals(actions, advantages, policy_logps.shape[0]) * policy_logps)
            / actions.shape[0]
        )
    ),
    "reinforce-kl-split": edit(kl_penalty=faulty.KL["split"]),
    "reinforce-logsumexp-spelling": edit(policy_logps=faulty.POLICY_LOGPS["logsumexp"])
    | collect(policy_logps=faulty.POLICY_LOGPS["logsumexp"]),
}
"""Name of a fault to what it edits."""
