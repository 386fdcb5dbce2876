"""What known bugs and harmless rewrites compute; faults/reward.toml has their words."""

from parity.arithmetic import operations as op
from parity.objectives.catalogue import edit, update

__all__ = ["EDITS"]


EDITS = {
    "reward-pair-swapped": edit(losses=lambda z: op.softplus(z)),
    "reward-log-of-sigmoid": edit(losses=lambda z: -op.log(1 / (1 + op.exp(-z)))),
    "reward-log-one-plus-exp": edit(losses=lambda z: op.log(1 + op.exp(-z))),
    "reward-sum-for-mean": edit(loss=lambda losses: op.sum(losses)),
    "reward-hinge": edit(losses=lambda z: op.maximum(1 - z, 0.0)),
    "reward-squared": edit(losses=lambda z: (z - 1) ** 2),
    "reward-margin-added": edit(losses=lambda z: op.softplus(-(z - 0.1))),
    "reward-ascent": update(lambda weights, gradient, rate: {"weights": weights + rate * gradient}),
    "reward-weight-decay": update(
        lambda weights, gradient, rate: {"weights": weights - rate * (gradient + 0.01 * weights)}
    ),
    "reward-log-sigmoid": edit(losses=lambda z: -op.log_sigmoid(z)),
    "reward-sigmoid-without-log": edit(losses=lambda z: -op.sigmoid(z)),
    "reward-bfloat16-scores": edit(
        z=lambda chosen_scores, rejected_scores: (
            op.as_bfloat16(chosen_scores) - op.as_bfloat16(rejected_scores)
        )
    ),
    "reward-broadcast-pairs": edit(
        loss=lambda chosen_scores, rejected_scores: op.mean(
            op.softplus(-(chosen_scores[None] - rejected_scores[:, None])), axis=(0, 1)
        )
    ),
    "reward-mean-before-softplus": edit(loss=lambda z: op.softplus(-op.mean(z))),
    "reward-scores-squashed": edit(
        z=lambda chosen_scores, rejected_scores: (
            op.sigmoid(chosen_scores) - op.sigmoid(rejected_scores)
        )
    ),
    "reward-margin-outside": edit(losses=lambda z: op.softplus(-z) + 0.1),
    "reward-sigmoid-epsilon": edit(losses=lambda z: -op.log(op.sigmoid(z) + 1e-4)),
    "reward-l2": edit(
        losses=lambda z, chosen_scores, rejected_scores: (
            op.softplus(-z) + 0.01 * (chosen_scores**2 + rejected_scores**2)
        )
    ),
    "reward-centred": edit(
        losses=lambda z, chosen_scores, rejected_scores: (
            op.softplus(-z) + 0.01 * (chosen_scores + rejected_scores) ** 2
        )
    ),
    "reward-count-off": edit(loss=lambda losses: op.sum(losses) / (losses.shape[0] + 1)),
}
"""Name of a fault to what it edits."""
