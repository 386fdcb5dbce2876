"""What known bugs and harmless rewrites compute; faults/ppo.toml has their words."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import categorical as bandit
from parity.objectives import faulty
from parity.objectives.catalogue import collect, edit, unfreeze, update

__all__ = ["EDITS"]


def terms(ratios: Any, clipped: Any, advantages: Any) -> Any:
    """What is right: the smaller of the two terms."""
    return op.minimum(ratios * advantages, clipped * advantages)


def _dual(ratios: Any, clipped: Any, advantages: Any) -> Any:
    return op.maximum(terms(ratios, clipped, advantages), 3 * advantages)


def _shared_minimum(a: Any, b: Any) -> Any:
    """The smaller one; at a tie half of the gradient goes to each, as in both frameworks."""
    tie = op.stop_gradient(a) == op.stop_gradient(b)
    return op.where(tie, (a + b) / 2, op.minimum(a, b))


def _brackets_lost(advantages: Any) -> Any:
    return advantages - op.mean(advantages) / (faulty.deviation(advantages, 1) + 1e-5)


def _by_halves(terms: Any) -> Any:
    half = terms.shape[0] // 2
    second = op.sum(terms[half:])
    return (op.sum(terms[:half]) + second if half else second) / terms.shape[0]


EDITS = {
    "sum-for-mean": edit(surrogate=lambda terms: op.sum(terms)),
    "mean-of-n-minus-1": edit(surrogate=lambda terms: op.sum(terms) / max(terms.shape[0] - 1, 1)),
    "old-recomputed": edit(ratios=lambda logps: op.exp(logps - op.stop_gradient(logps))),
    "old-not-detached": unfreeze("old_logps"),
    "advantage-not-detached": unfreeze("advantages"),
    "reference-not-detached": unfreeze("reference"),
    "ratio-inverted": edit(ratios=lambda logps, old_logps: op.exp(old_logps - logps)),
    "ratio-detached": edit(
        ratios=lambda logps, old_logps: op.stop_gradient(op.exp(logps - old_logps))
    ),
    "ratio-linear": edit(ratios=lambda logps, old_logps: 1 + (logps - old_logps)),
    "ratio-clamped": edit(
        ratios=lambda logps, old_logps: op.exp(op.clip(logps - old_logps, -20.0, 20.0))
    ),
    "action-shifted": edit(logps=faulty.LOGPS["shifted"]),
    "logits-for-logps": edit(policy_logps=faulty.POLICY_LOGPS["logits"]),
    "bfloat16-logps": edit(policy_logps=faulty.POLICY_LOGPS["bfloat16"]),
    "temperature-scoring": edit(policy_logps=faulty.POLICY_LOGPS["temperature"]),
    "softmax-epsilon": edit(policy_logps=faulty.POLICY_LOGPS["epsilon"]),
    "advantage-negated": edit(
        terms=lambda ratios, clipped, advantages: terms(ratios, clipped, -advantages)
    ),
    "advantage-absolute": edit(
        terms=lambda ratios, clipped, advantages: terms(ratios, clipped, op.abs(advantages))
    ),
    "entropy-bonus": edit(kl_penalty=faulty.KL["entropy-bonus"]),
    "advantage-clamped": edit(
        terms=lambda ratios, clipped, advantages: terms(
            ratios, clipped, op.clip(advantages, -5.0, 5.0)
        )
    ),
    "ratio-epsilon": edit(
        ratios=lambda logps, old_logps: op.exp(logps) / (op.exp(old_logps) + 1e-5)
    ),
    "double-softmax": edit(policy_logps=faulty.POLICY_LOGPS["twice"]),
    "greedy-action": edit(logps=faulty.LOGPS["greedy"]),
    "clip-only": edit(terms=lambda clipped, advantages: clipped * advantages),
    "min-of-ratios": edit(
        terms=lambda ratios, clipped, advantages: advantages * op.minimum(ratios, clipped)
    ),
    "max-for-min": edit(
        terms=lambda ratios, clipped, advantages: op.maximum(
            ratios * advantages, clipped * advantages
        )
    ),
    "clip-lost": edit(terms=lambda ratios, advantages: ratios * advantages),
    "clip-above-only": edit(clipped=lambda ratios, clip: op.minimum(ratios, 1 + clip)),
    "clip-below-only": edit(clipped=lambda ratios, clip: op.maximum(ratios, 1 - clip)),
    "clip-doubled": edit(clipped=lambda ratios, clip: op.clip(ratios, 1 - 2 * clip, 1 + 2 * clip)),
    "clip-reciprocal": edit(clipped=lambda ratios, clip: op.clip(ratios, 1 / (1 + clip), 1 + clip)),
    "dual-clip": edit(
        terms=lambda ratios, clipped, advantages: op.where(
            advantages < 0,
            _dual(ratios, clipped, advantages),
            terms(ratios, clipped, advantages),
        )
    ),
    "dual-clip-everywhere": edit(terms=_dual),
    "clip-of-the-product": edit(
        terms=lambda ratios, advantages, clip: op.minimum(
            ratios * advantages, op.clip(ratios * advantages, 1 - clip, 1 + clip)
        )
    ),
    "broadcast-pairs": edit(
        surrogate=lambda ratios, clipped, advantages: op.mean(
            terms(ratios[None], clipped[None], advantages[:, None]), axis=(0, 1)
        )
    ),
    "unclipped-branch-detached": edit(
        terms=lambda ratios, clipped, advantages: _shared_minimum(
            op.stop_gradient(ratios) * advantages, clipped * advantages
        )
    ),
    "clipped-branch-detached": edit(
        terms=lambda ratios, clipped, advantages: _shared_minimum(
            ratios * advantages, op.stop_gradient(clipped) * advantages
        )
    ),
    "clipped-weight": edit(
        terms=lambda logps, clipped, advantages: op.stop_gradient(clipped) * advantages * logps
    ),
    "mean-before-min": edit(
        surrogate=lambda ratios, clipped, advantages: op.minimum(
            op.mean(ratios * advantages), op.mean(clipped * advantages)
        )
    ),
    "whitened-in-one-branch": edit(
        terms=lambda ratios, clipped, advantages: op.minimum(
            ratios * advantages, clipped * faulty.scaled(faulty.centred(advantages), 1)
        )
    ),
    "clip-from-epsilon": edit(clipped=lambda ratios, clip: op.clip(ratios, clip, 1 + clip)),
    "clip-higher": edit(clipped=lambda ratios, clip: op.clip(ratios, 1 - clip, 1 + 1.4 * clip)),
    "kl-twice": edit(
        terms=lambda ratios, clipped, advantages, beta, old_logps, reference_logps: terms(
            ratios, clipped, advantages - beta * (old_logps - reference_logps)
        )
    ),
    "loss-negated": edit(loss=faulty.LOSS["negated"]),
    "surrogate-negated": edit(loss=faulty.LOSS["surrogate-negated"]),
    "kl-sign": edit(loss=faulty.LOSS["kl-sign"]),
    "beta-squared": edit(loss=faulty.LOSS["beta-squared"]),
    "beta-lost": edit(loss=faulty.LOSS["beta-lost"]),
    "kl-reversed": edit(kl_penalty=faulty.KL["reversed"]),
    "kl-k1": edit(kl_penalty=faulty.KL["k1"]),
    "kl-k2": edit(kl_penalty=faulty.KL["k2"]),
    "kl-k3": edit(kl_penalty=faulty.KL["k3"]),
    "kl-of-itself": edit(kl_penalty=faulty.KL["of-itself"]),
    "kl-detached": edit(kl_penalty=faulty.KL["detached"]),
    "kl-unweighted": edit(kl_penalty=faulty.KL["unweighted"]),
    "kl-over-actions": edit(kl_penalty=faulty.KL["over-actions"]),
    "kl-k2-unhalved": edit(kl_penalty=faulty.KL["k2-unhalved"]),
    "kl-k3-inverted": edit(kl_penalty=faulty.KL["k3-inverted"]),
    "kl-k3-of-the-ratio": edit(kl_penalty=faulty.KL["k3-of-the-ratio"]),
    "entropy-penalised": edit(kl_penalty=faulty.KL["entropy-penalised"]),
    "baseline-lost": collect(advantages=faulty.ADVANTAGES["no-baseline"]),
    "baseline-of-the-batch": collect(advantages=faulty.ADVANTAGES["of-the-batch"]),
    "baseline-unweighted": collect(advantages=faulty.ADVANTAGES["unweighted"]),
    "whitened-by-n": collect(advantages=faulty.ADVANTAGES["whitened-by-n"]),
    "whitened-by-n-minus-1": collect(advantages=faulty.ADVANTAGES["whitened-by-n-minus-1"]),
    "old-of-the-reference": collect(
        old_logps=lambda reference, actions: op.gather(reference, actions)
    ),
    "old-of-other-rows": collect(
        old_logps=lambda policy_logps, actions: op.roll(op.gather(policy_logps, actions), 1)
    ),
    "temperature-sampling": collect(policy_logps=lambda logits: op.log_softmax(logits / 0.7)),
    "actions-off-by-one": collect(actions=lambda actions, logits: (actions + 1) % logits.shape[0]),
    "reference-follows": update(faulty.UPDATE["reference-follows"]),
    "reference-drifts": update(
        lambda logits, reference: {"reference": 0.99 * reference + 0.01 * op.log_softmax(logits)}
    ),
    "reward-drifts": update(lambda scores: {"scores": scores * (1 - 1e-3)}),
    "ascent": update(faulty.UPDATE["ascent"]),
    "gradients-accumulate": update(faulty.UPDATE["accumulated"]),
    "momentum": update(faulty.UPDATE["momentum"]),
    "weight-decay": update(faulty.UPDATE["weight-decay"]),
    "gradient-normalised": update(
        lambda logits, gradient, rate: {
            "logits": logits
            - rate * gradient / op.maximum(op.sqrt(op.sum(gradient * gradient)), 0.05) * 0.05
        }
    ),
    "whitening-precedence": collect(
        advantages=lambda policy_logps, scores, actions: _brackets_lost(
            bandit.advantages(policy_logps, scores, actions)
        )
    ),
    "scaled-not-centred": collect(
        advantages=lambda policy_logps, scores, actions: faulty.scaled(
            bandit.advantages(policy_logps, scores, actions), 0
        )
    ),
    "bfloat16-old-logps": collect(
        old_logps=lambda policy_logps, actions: op.as_bfloat16(op.gather(policy_logps, actions))
    ),
    "max-of-negated": edit(
        terms=lambda ratios, clipped, advantages: (
            -op.maximum(-advantages * ratios, -advantages * clipped)
        )
    ),
    "clamp-by-sign": edit(
        terms=lambda ratios, advantages, clip: (
            advantages
            * op.where(advantages > 0, op.minimum(ratios, 1 + clip), op.maximum(ratios, 1 - clip))
        )
    ),
    "kl-split": edit(kl_penalty=faulty.KL["split"]),
    "ratio-swapped": edit(ratios=lambda logps, old_logps: op.exp(-(old_logps - logps))),
    "one-hot-gather": edit(logps=faulty.LOGPS["one-hot"]),
    "samples-reversed": edit(surrogate=lambda terms: op.mean(op.flip(terms))),
    "sum-over-halves": edit(surrogate=_by_halves),
    "logsumexp-spelling": edit(policy_logps=faulty.POLICY_LOGPS["logsumexp"])
    | collect(policy_logps=faulty.POLICY_LOGPS["logsumexp"]),
    "rewards-shifted": collect(advantages=faulty.ADVANTAGES["rewards-shifted"]),
    "negated-ascent": update(lambda logits, gradient, rate: {"logits": logits + rate * -gradient}),
}
"""Name of a fault to what it edits."""
