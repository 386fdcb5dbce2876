"""Known bugs of PPO; here those of clipping."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import faulty
from parity.objectives.faulty import UNKNOWN as _UNKNOWN
from parity.objectives.ppo_penalty_faults import PENALTY
from parity.objectives.ppo_ratio_faults import RATIOS, terms
from parity.objectives.ppo_training_faults import REWRITES, TRAINING
from parity.objectives.spec import Fault

__all__ = ["FAULTS"]

_START = {"rollout": 0, "epoch": 0}
_SECOND = {"rollout": 0, "epoch": 1}


def _dual(ratios: Any, clipped: Any, advantages: Any) -> Any:
    return op.maximum(terms(ratios, clipped, advantages), 3 * advantages)


def _shared_minimum(a: Any, b: Any) -> Any:
    """The smaller one; at a tie half of the gradient goes to each, as in both frameworks."""
    tie = op.stop_gradient(a) == op.stop_gradient(b)
    return op.where(tie, (a + b) / 2, op.minimum(a, b))


_CLIPPING: tuple[Fault, ...] = (
    Fault(
        "clip-only",
        "The ratio is clipped but the minimum with the unclipped term is gone.",
        "-mean(clip(ρ)·A)",
        "https://github.com/takuseno/ppo/issues/3",
        "ppo/surrogate",
        edits={"terms": lambda clipped, advantages: clipped * advantages},
    ),
    Fault(
        "min-of-ratios",
        "The minimum is taken over the ratios, before the sign of the advantage.",
        "-mean(A·min(ρ, clip(ρ)))",
        "https://github.com/kscalelabs/minppo/pull/19",
        "ppo/surrogate",
        _SECOND,
        edits={
            "terms": lambda ratios, clipped, advantages: advantages * op.minimum(ratios, clipped)
        },
    ),
    Fault(
        "max-for-min",
        "The maximum of the two terms is taken instead of the minimum.",
        "-mean(max(ρA, clip(ρ)A))",
        "https://github.com/openai/baselines/issues/1156",
        "ppo/surrogate",
        _SECOND,
        edits={
            "terms": lambda ratios, clipped, advantages: op.maximum(
                ratios * advantages, clipped * advantages
            )
        },
    ),
    Fault(
        "clip-lost",
        "The surrogate is not clipped at all.",
        "-mean(ρA)",
        _UNKNOWN,
        "ppo/surrogate",
        _SECOND,
        edits={"terms": lambda ratios, advantages: ratios * advantages},
    ),
    Fault(
        "clip-above-only",
        "Only the upper end of the interval clips.",
        "min(ρA, min(ρ, 1+ε)A)",
        _UNKNOWN,
        "ppo/surrogate",
        _SECOND,
        edits={"clipped": lambda ratios, clip: op.minimum(ratios, 1 + clip)},
    ),
    Fault(
        "clip-below-only",
        "Only the lower end of the interval clips.",
        "min(ρA, max(ρ, 1-ε)A)",
        _UNKNOWN,
        "ppo/surrogate",
        _SECOND,
        edits={"clipped": lambda ratios, clip: op.maximum(ratios, 1 - clip)},
    ),
    Fault(
        "clip-doubled",
        "The interval is twice as wide as asked for.",
        "clip(ρ, 1-2ε, 1+2ε)",
        _UNKNOWN,
        "ppo/surrogate",
        _SECOND,
        edits={"clipped": lambda ratios, clip: op.clip(ratios, 1 - 2 * clip, 1 + 2 * clip)},
    ),
    Fault(
        "clip-reciprocal",
        "The lower end is 1/(1+ε) instead of 1-ε.",
        "clip(ρ, 1/(1+ε), 1+ε)",
        _UNKNOWN,
        "ppo/surrogate",
        _SECOND,
        edits={"clipped": lambda ratios, clip: op.clip(ratios, 1 / (1 + clip), 1 + clip)},
    ),
    Fault(
        "dual-clip",
        "A second clip bounds the loss of bad actions whose ratio is large, which the"
        " textbook objective does not.",
        "A < 0: max(min(ρA, clip(ρ)A), 3A)",
        "https://github.com/volcengine/verl",
        "ppo/surrogate",
        edits={
            "terms": lambda ratios, clipped, advantages: op.where(
                advantages < 0,
                _dual(ratios, clipped, advantages),
                terms(ratios, clipped, advantages),
            )
        },
    ),
    Fault(
        "dual-clip-everywhere",
        "The second clip, meant for negative advantages, also applies to positive ones.",
        "max(min(ρA, clip(ρ)A), 3A)",
        "https://github.com/thu-ml/tianshou/issues/433",
        "ppo/surrogate",
        _START,
        edits={"terms": _dual},
    ),
    Fault(
        "clip-of-the-product",
        "The clip is applied to ratio times advantage instead of to the ratio.",
        "min(ρA, clip(ρA, 1-ε, 1+ε))",
        "https://github.com/alexis-jacq/Pytorch-DPPO/issues/3",
        "ppo/surrogate",
        _SECOND,
        edits={
            "terms": lambda ratios, advantages, clip: op.minimum(
                ratios * advantages, op.clip(ratios * advantages, 1 - clip, 1 + clip)
            )
        },
    ),
    Fault(
        "broadcast-pairs",
        "Ratios [N] meet advantages [N, 1], and every sample is paired with every advantage.",
        "mean_{ij} min(ρ_i A_j, clip(ρ_i) A_j)",
        "https://github.com/RITCHIEHuang/DeepRL_Algorithms/issues/13",
        "ppo/gradient",
        _START,
        edits={
            "surrogate": lambda ratios, clipped, advantages: op.mean(
                terms(ratios[None], clipped[None], advantages[:, None]), axis=(0, 1)
            )
        },
    ),
    Fault(
        "unclipped-branch-detached",
        "The ratio of the unclipped term carries no gradient; every value of the "
        "first update agrees.",
        "min(stop(ρ)A, clip(ρ)A)",
        _UNKNOWN,
        "ppo/gradient",
        _START,
        edits={
            "terms": lambda ratios, clipped, advantages: _shared_minimum(
                op.stop_gradient(ratios) * advantages, clipped * advantages
            )
        },
    ),
    Fault(
        "clipped-branch-detached",
        "The ratio of the clipped term carries no gradient; every value of the first "
        "update agrees.",
        "min(ρA, stop(clip(ρ))A)",
        _UNKNOWN,
        "ppo/gradient",
        _START,
        edits={
            "terms": lambda ratios, clipped, advantages: _shared_minimum(
                ratios * advantages, op.stop_gradient(clipped) * advantages
            )
        },
    ),
    Fault(
        "clipped-weight",
        "The clipped ratio is a constant weight on the log-prob: clipped samples keep"
        " their gradient, and the minimum is gone.",
        "mean(stop(clip(ρ))·A·log π(a))",
        "https://github.com/areal-project/AReaL/pull/1412",
        "ppo/surrogate",
        _START,
        edits={
            "terms": lambda logps, clipped, advantages: (
                op.stop_gradient(clipped) * advantages * logps
            )
        },
    ),
    Fault(
        "mean-before-min",
        "The two terms are averaged over the samples before the minimum is taken.",
        "min(mean(ρA), mean(clip(ρ)A))",
        "https://github.com/Omegastick/pytorch-cpp-rl/issues/14",
        "ppo/surrogate",
        edits={
            "surrogate": lambda ratios, clipped, advantages: op.minimum(
                op.mean(ratios * advantages), op.mean(clipped * advantages)
            )
        },
    ),
    Fault(
        "whitened-in-one-branch",
        "Advantages are whitened after the unclipped term was made of them and before"
        " the clipped one.",
        "min(ρA, clip(ρ)·(A - mean A)/std)",
        "https://github.com/pytorch/rl/pull/1033",
        "ppo/surrogate",
        _START,
        edits={
            "terms": lambda ratios, clipped, advantages: op.minimum(
                ratios * advantages, clipped * faulty.scaled(faulty.centred(advantages), 1)
            )
        },
    ),
    Fault(
        "clip-from-epsilon",
        "The lower end of the interval is ε instead of 1-ε.",
        "clip(ρ, ε, 1+ε)",
        "https://github.com/ChenmienTan/RL2/pull/21",
        "ppo/surrogate",
        _SECOND,
        edits={"clipped": lambda ratios, clip: op.clip(ratios, clip, 1 + clip)},
    ),
    Fault(
        "clip-higher",
        "The upper end of the interval is wider than the lower one.",
        "clip(ρ, 1-ε, 1+1.4ε)",
        "https://github.com/areal-project/AReaL/pull/285",
        "ppo/surrogate",
        _SECOND,
        edits={"clipped": lambda ratios, clip: op.clip(ratios, 1 - clip, 1 + 1.4 * clip)},
    ),
    Fault(
        "kl-twice",
        "The penalty is taken from the score of each sample and added to the loss as well.",
        "A ← A - β(log π_old(a) - log π_ref(a)), and + β·KL",
        "https://github.com/verl-project/verl/issues/211",
        "ppo/surrogate",
        _START,
        edits={
            "terms": lambda ratios, clipped, advantages, beta, old_logps, reference_logps: terms(
                ratios, clipped, advantages - beta * (old_logps - reference_logps)
            )
        },
    ),
)

FAULTS: tuple[Fault, ...] = (*_CLIPPING, *PENALTY, *RATIOS, *TRAINING, *REWRITES)
