"""Known bugs of PPO's rollouts and updates, and the rewrites that are none."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import categorical as bandit
from parity.objectives import faulty
from parity.objectives.faulty import UNKNOWN as _UNKNOWN
from parity.objectives.spec import Fault

__all__ = ["REWRITES", "TRAINING"]

_START = {"rollout": 0, "epoch": 0}
_SECOND = {"rollout": 0, "epoch": 1}


def _brackets_lost(advantages: Any) -> Any:
    return advantages - op.mean(advantages) / (faulty.deviation(advantages, 1) + 1e-5)


def _by_halves(terms: Any) -> Any:
    half = terms.shape[0] // 2
    second = op.sum(terms[half:])
    return (op.sum(terms[:half]) + second if half else second) / terms.shape[0]


TRAINING: tuple[Fault, ...] = (
    Fault(
        "baseline-lost",
        "The score itself stands for the advantage.",
        "A = r(a)",
        _UNKNOWN,
        "ppo/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["no-baseline"]},
    ),
    Fault(
        "baseline-of-the-batch",
        "The baseline is the mean score of the batch instead of the exact expectation.",
        "A = r(a) - mean(r)",
        _UNKNOWN,
        "ppo/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["of-the-batch"]},
    ),
    Fault(
        "baseline-unweighted",
        "The baseline averages the scores of the actions without their probabilities.",
        "A = r(a) - mean_a r",
        _UNKNOWN,
        "ppo/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["unweighted"]},
    ),
    Fault(
        "whitened-by-n",
        "Advantages are whitened, with the biased deviation.",
        "(A - mean A)/std_n",
        "https://github.com/NVIDIA/TorchFort/issues/38",
        "ppo/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["whitened-by-n"]},
    ),
    Fault(
        "whitened-by-n-minus-1",
        "Advantages are whitened, with the unbiased deviation.",
        "(A - mean A)/std_{n-1}",
        "https://github.com/NVIDIA/TorchFort/issues/38",
        "ppo/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["whitened-by-n-minus-1"]},
    ),
    Fault(
        "old-of-the-reference",
        "The reference's log-probs stand for those of the behaviour policy.",
        "old = log π_ref(a)",
        "https://github.com/huggingface/trl/pull/4454",
        "ppo/old_logps",
        _START,
        collects={"old_logps": lambda reference, actions: op.gather(reference, actions)},
    ),
    Fault(
        "old-of-other-rows",
        "The cached old log-probs belong to other samples.",
        "old_i = log π(a_{i-1})",
        "https://github.com/huggingface/trl/pull/4454",
        "ppo/old_logps",
        _START,
        collects={
            "old_logps": lambda policy_logps, actions: op.roll(op.gather(policy_logps, actions), 1)
        },
    ),
    Fault(
        "temperature-sampling",
        "Old log-probs and baseline come from logits divided by a temperature.",
        "old = log_softmax(θ/0.7)(a)",
        "https://github.com/huggingface/trl/pull/3029",
        "ppo/old_logps",
        _START,
        collects={"policy_logps": lambda logits: op.log_softmax(logits / 0.7)},
    ),
    Fault(
        "actions-off-by-one",
        "The tape's actions are shifted by one.",
        "a + 1",
        _UNKNOWN,
        "ppo/actions",
        {"rollout": 0},
        collects={"actions": lambda actions, logits: (actions + 1) % logits.shape[0]},
    ),
    Fault(
        "reference-follows",
        "The reference is replaced by the policy after every update.",
        "log π_ref ← log π",
        "https://github.com/CarperAI/trlx/issues/517",
        "ppo/reference",
        _SECOND,
        update=faulty.UPDATE["reference-follows"],
    ),
    Fault(
        "reference-drifts",
        "The reference follows the policy slowly.",
        "log π_ref ← 0.99 log π_ref + 0.01 log π",
        "https://github.com/CarperAI/trlx/issues/517",
        "ppo/reference",
        _SECOND,
        update=lambda logits, reference: {
            "reference": 0.99 * reference + 0.01 * op.log_softmax(logits)
        },
    ),
    Fault(
        "reward-drifts",
        "The scores shrink with every update instead of staying frozen.",
        "r ← 0.999 r",
        _UNKNOWN,
        "ppo/scores",
        _SECOND,
        update=lambda scores: {"scores": scores * (1 - 1e-3)},
    ),
    Fault(
        "ascent",
        "The update climbs the loss.",
        "θ ← θ + η∇L",
        _UNKNOWN,
        "ppo/logits",
        _START,
        update=faulty.UPDATE["ascent"],
    ),
    Fault(
        "gradients-accumulate",
        "Gradients are not cleared between updates.",
        "g_t = Σ_{s ≤ t} ∇L_s",
        _UNKNOWN,
        "ppo/gradient",
        _SECOND,
        update=faulty.UPDATE["accumulated"],
    ),
    Fault(
        "momentum",
        "The update adds momentum that the problem does not have.",
        "θ ← θ - η(g + 0.9 g_{t-1})",
        _UNKNOWN,
        "ppo/logits",
        _SECOND,
        update=faulty.UPDATE["momentum"],
    ),
    Fault(
        "weight-decay",
        "The update shrinks the logits.",
        "θ ← θ - η(g + 0.01θ)",
        _UNKNOWN,
        "ppo/logits",
        _START,
        update=faulty.UPDATE["weight-decay"],
    ),
    Fault(
        "gradient-normalised",
        "The gradient is rescaled to a fixed length.",
        "g ← 0.05 g/‖g‖",
        _UNKNOWN,
        "ppo/logits",
        _START,
        update=lambda logits, gradient, rate: {
            "logits": logits
            - rate * gradient / op.maximum(op.sqrt(op.sum(gradient * gradient)), 0.05) * 0.05
        },
    ),
    Fault(
        "whitening-precedence",
        "A missing bracket subtracts the mean over the deviation, and divides nothing.",
        "A - mean(A)/(std + 1e-5)",
        "https://github.com/Omegastick/pytorch-cpp-rl/issues/14",
        "ppo/advantages",
        _START,
        collects={
            "advantages": lambda policy_logps, scores, actions: _brackets_lost(
                bandit.advantages(policy_logps, scores, actions)
            )
        },
    ),
    Fault(
        "scaled-not-centred",
        "Advantages are divided by their deviation, but their mean stays.",
        "A/(std_n + 1e-8)",
        "https://github.com/YunzhuLi/InfoGAIL/issues/5",
        "ppo/advantages",
        _START,
        collects={
            "advantages": lambda policy_logps, scores, actions: faulty.scaled(
                bandit.advantages(policy_logps, scores, actions), 0
            )
        },
    ),
    Fault(
        "bfloat16-old-logps",
        "Only the stored old log-probs pass through bfloat16, so that the first ratio is not 1.",
        "old rounded to 8 bits",
        "https://github.com/THUDM/slime/pull/892",
        "ppo/old_logps",
        _START,
        collects={
            "old_logps": lambda policy_logps, actions: op.as_bfloat16(
                op.gather(policy_logps, actions)
            )
        },
    ),
)

REWRITES: tuple[Fault, ...] = (
    Fault(
        "max-of-negated",
        "The loss is the maximum of the negated terms.",
        "mean(max(-ρA, -clip(ρ)A))",
        "https://github.com/openai/baselines/issues/1156",
        edits={
            "terms": lambda ratios, clipped, advantages: (
                -op.maximum(-advantages * ratios, -advantages * clipped)
            )
        },
        equivalent=True,
    ),
    Fault(
        "clamp-by-sign",
        "One end of the interval is clamped, chosen by the sign of the advantage.",
        "A·min(ρ, 1+ε) or A·max(ρ, 1-ε)",
        "https://github.com/pytorch/rl/pull/786",
        edits={
            "terms": lambda ratios, advantages, clip: (
                advantages
                * op.where(
                    advantages > 0, op.minimum(ratios, 1 + clip), op.maximum(ratios, 1 - clip)
                )
            )
        },
        equivalent=True,
    ),
    Fault(
        "kl-split",
        "The KL is written as negative entropy plus cross-entropy.",
        "Σ π log π - Σ π log π_ref",
        _UNKNOWN,
        edits={"kl_penalty": faulty.KL["split"]},
        equivalent=True,
    ),
    Fault(
        "ratio-swapped",
        "The difference inside the ratio is swapped and negated.",
        "exp(-(old - log π))",
        _UNKNOWN,
        edits={"ratios": lambda logps, old_logps: op.exp(-(old_logps - logps))},
        equivalent=True,
    ),
    Fault(
        "one-hot-gather",
        "Log-probs are gathered by a product with one-hot rows.",
        "one_hot(a)·log π",
        _UNKNOWN,
        edits={"logps": faulty.LOGPS["one-hot"]},
        equivalent=True,
    ),
    Fault(
        "samples-reversed",
        "The samples are averaged in reverse order.",
        "mean over i = N…1",
        _UNKNOWN,
        edits={"surrogate": lambda terms: op.mean(op.flip(terms))},
        equivalent=True,
    ),
    Fault(
        "sum-over-halves",
        "The mean is assembled from the sums of two halves.",
        "(Σ first + Σ second)/N",
        _UNKNOWN,
        edits={"surrogate": _by_halves},
        equivalent=True,
    ),
    Fault(
        "logsumexp-spelling",
        "Log-softmax is spelled as logits less their logsumexp.",
        "θ - logsumexp(θ)",
        _UNKNOWN,
        edits={"policy_logps": faulty.POLICY_LOGPS["logsumexp"]},
        collects={"policy_logps": faulty.POLICY_LOGPS["logsumexp"]},
        equivalent=True,
    ),
    Fault(
        "rewards-shifted",
        "A constant of their own size is added to all rewards, and leaves with the baseline.",
        "A = (r + 1/2) - Σ π (r + 1/2)",
        _UNKNOWN,
        collects={"advantages": faulty.ADVANTAGES["rewards-shifted"]},
        equivalent=True,
    ),
    Fault(
        "negated-ascent",
        "The update climbs the negated gradient.",
        "θ ← θ - (η·(-g))·(-1)",
        _UNKNOWN,
        update=lambda logits, gradient, rate: {"logits": logits + rate * -gradient},
        equivalent=True,
    ),
)
