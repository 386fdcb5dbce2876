"""What known bugs and harmless rewrites compute; faults/dpo.toml has their words."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import faulty
from parity.objectives.catalogue import edit, unfreeze, update

__all__ = ["EDITS"]


def _swapped(
    chosen_logps: Any,
    rejected_logps: Any,
    reference_chosen_logps: Any,
    reference_rejected_logps: Any,
) -> Any:
    corrections = reference_rejected_logps - reference_chosen_logps
    return (rejected_logps - chosen_logps) - corrections


def _by_sides(
    chosen_logps: Any,
    rejected_logps: Any,
    reference_chosen_logps: Any,
    reference_rejected_logps: Any,
) -> Any:
    chosen = chosen_logps - reference_chosen_logps
    return chosen - (rejected_logps - reference_rejected_logps)


def _every_pair(
    chosen_logps: Any,
    rejected_logps: Any,
    reference_chosen_logps: Any,
    reference_rejected_logps: Any,
    beta: Any,
) -> Any:
    policy = chosen_logps - rejected_logps
    reference = reference_chosen_logps - reference_rejected_logps
    z = beta * (policy[None] - reference[:, None])
    return op.mean(op.softplus(-z), axis=(0, 1))


EDITS = {
    "dpo-negated": edit(losses=lambda z: -op.softplus(-z)),
    "dpo-pair-swapped": edit(margins=_swapped),
    "dpo-reference-free": edit(
        margins=lambda chosen_logps, rejected_logps: chosen_logps - rejected_logps
    ),
    "dpo-reference-added": edit(
        reference_chosen_logps=lambda reference, chosen: -op.gather(reference, chosen),
        reference_rejected_logps=lambda reference, rejected: -op.gather(reference, rejected),
    ),
    "dpo-beta-squared": edit(z=lambda beta, margins: beta * beta * margins),
    "dpo-beta-lost": edit(z=lambda margins: margins),
    "dpo-sum-for-mean": edit(loss=lambda losses: op.sum(losses)),
    "dpo-squared": edit(losses=lambda z: (z - 0.5) ** 2),
    "dpo-hinge": edit(losses=lambda z: op.maximum(1 - z, 0.0)),
    "dpo-smoothed": edit(losses=lambda z: 0.9 * op.softplus(-z) + 0.1 * op.softplus(z)),
    "dpo-log-of-sigmoid": edit(losses=lambda z: -op.log(1 / (1 + op.exp(-z)))),
    "dpo-log-one-plus-exp": edit(losses=lambda z: op.log(1 + op.exp(-z))),
    "dpo-margin-clamped": edit(losses=lambda z: op.softplus(-op.clip(z, -10.0, 10.0))),
    "dpo-reference-not-detached": unfreeze("reference"),
    "dpo-rejected-detached": edit(
        rejected_logps=lambda policy_logps, rejected: op.stop_gradient(
            op.gather(policy_logps, rejected)
        )
    ),
    "dpo-reference-follows": update(faulty.UPDATE["reference-follows"]),
    "dpo-ascent": update(faulty.UPDATE["ascent"]),
    "dpo-logaddexp": edit(losses=lambda z: op.logaddexp(0.0, -z)),
    "dpo-by-sides": edit(margins=_by_sides),
    "dpo-log-sigmoid": edit(losses=lambda z: -op.log_sigmoid(z)),
    "dpo-sigmoid-without-log": edit(losses=lambda z: -op.sigmoid(z)),
    "dpo-bfloat16-logps": edit(policy_logps=faulty.POLICY_LOGPS["bfloat16"]),
    "dpo-broadcast-pairs": edit(loss=_every_pair),
    "dpo-mean-before-sigmoid": edit(loss=lambda z: op.softplus(-op.mean(z))),
    "dpo-rejected-lost": edit(
        margins=lambda chosen_logps, reference_chosen_logps: chosen_logps - reference_chosen_logps
    ),
    "dpo-detached": edit(z=lambda beta, margins: beta * op.stop_gradient(margins) + 0.0 * margins),
    "dpo-ipo": edit(losses=lambda margins, beta: (margins - 1 / (2 * beta)) ** 2),
    "dpo-beta-halved": edit(z=lambda beta, margins: beta * margins / 2),
    "dpo-beta-outside": edit(loss=lambda beta, margins: beta * op.mean(op.softplus(-margins))),
    "dpo-positive-term": edit(
        losses=lambda z, chosen_logps, reference_chosen_logps: (
            op.softplus(-z) + 0.1 * op.maximum(reference_chosen_logps - chosen_logps, 0.0)
        )
    ),
    "dpo-temperature": edit(policy_logps=faulty.POLICY_LOGPS["temperature"]),
    "dpo-logits-for-logps": edit(policy_logps=faulty.POLICY_LOGPS["logits"]),
}
"""Name of a fault to what it edits."""
