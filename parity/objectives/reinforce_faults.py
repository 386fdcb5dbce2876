"""Known bugs of REINFORCE; here those of the loss."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import faulty
from parity.objectives.faulty import UNKNOWN as _UNKNOWN
from parity.objectives.reinforce_training_faults import REWRITES, TRAINING
from parity.objectives.spec import Fault

__all__ = ["FAULTS"]

_START = {"rollout": 0}
_SECOND = {"rollout": 1}


def _discounts(x: Any) -> Any:
    """γ^i of every sample, counted from 0; γ = exp(-0.01)."""
    return op.exp(-0.01 * (op.cumulative(0.0 * x + 1.0) - 1.0))


_LOSS: tuple[Fault, ...] = (
    Fault(
        "reinforce-loss-negated",
        "The whole loss has the wrong sign.",
        "mean(log π(a)·A) - β·KL",
        "https://github.com/ikostrikov/pytorch-a3c/issues/30",
        "reinforce/loss",
        _START,
        edits={"loss": faulty.LOSS["negated"]},
    ),
    Fault(
        "reinforce-surrogate-negated",
        "The surrogate is minimised instead of maximised; the penalty is right.",
        "mean(log π(a)·A) + β·KL",
        "https://github.com/natolambert/rlhf-book/issues/125",
        "reinforce/loss",
        _START,
        edits={"loss": faulty.LOSS["surrogate-negated"]},
    ),
    Fault(
        "reinforce-sum-for-mean",
        "The terms are summed instead of averaged.",
        "-Σ log π(a)·A",
        "https://github.com/NVIDIA-NeMo/RL/issues/84",
        "reinforce/surrogate",
        _START,
        edits={"surrogate": lambda logps, advantages: op.sum(logps * advantages)},
    ),
    Fault(
        "reinforce-mean-times-mean",
        "The mean log-prob is multiplied by the mean advantage, so that no sample keeps its own.",
        "-mean(log π(a))·mean(A)",
        "https://github.com/Farama-Foundation/Gymnasium/issues/1336",
        "reinforce/surrogate",
        _START,
        edits={"surrogate": lambda logps, advantages: op.mean(logps) * op.mean(advantages)},
    ),
    Fault(
        "reinforce-broadcast-pairs",
        "Log-probs [N] meet advantages [N, 1], and every sample is paired with every advantage.",
        "-mean_{ij}(log π(a_i)·A_j)",
        "https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/33",
        "reinforce/surrogate",
        _START,
        edits={
            "surrogate": lambda logps, advantages: op.mean(
                logps[None] * advantages[:, None], axis=(0, 1)
            )
        },
    ),
    Fault(
        "reinforce-last-sample-only",
        "An assignment in a loop overwrites the terms, and only the last sample counts.",
        "-log π(a_N)·A_N",
        "https://github.com/yanji84/deep-recurrent-attention-model/issues/1",
        "reinforce/surrogate",
        _START,
        edits={"surrogate": lambda logps, advantages: (logps * advantages)[logps.shape[0] - 1]},
    ),
    Fault(
        "reinforce-log-forgotten",
        "The probability stands where its logarithm belongs; log-probs and KL are right.",
        "-mean(π(a)·A) + β·KL",
        "https://github.com/shariqiqbal2810/MAAC/issues/20",
        "reinforce/surrogate",
        _START,
        edits={"surrogate": lambda logps, advantages: op.mean(op.exp(logps) * advantages)},
    ),
    Fault(
        "reinforce-probabilities-for-logps",
        "Probabilities are used as if they were log-probs, in surrogate and penalty alike.",
        "log π = softmax(θ)",
        _UNKNOWN,
        "reinforce/logps",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["probabilities"]},
    ),
    Fault(
        "reinforce-logits-for-logps",
        "Logits are used as if they were log-probs.",
        "log π = θ",
        _UNKNOWN,
        "reinforce/logps",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["logits"]},
    ),
    Fault(
        "reinforce-double-softmax",
        "Probabilities are passed where logits are asked for, so that softmax is applied twice.",
        "log π = log_softmax(softmax(θ))",
        "https://github.com/ekapolc/RL_course_2019/pull/6",
        "reinforce/logps",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["twice"]},
    ),
    Fault(
        "reinforce-softmax-epsilon",
        "A small constant is added to the softmax before its logarithm.",
        "log(softmax(θ) + 1e-4)",
        "https://github.com/awjuliani/DeepRL-Agents/issues/34",
        "reinforce/logps",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["epsilon"]},
    ),
    Fault(
        "reinforce-probabilities-clamped",
        "Probabilities are floored before the logarithm, so that a rare action has no"
        " gradient and never recovers.",
        "log(max(softmax(θ), 1e-8))",
        "https://github.com/SlopDotCash/asi/pull/2738",
        "reinforce/logps",
        edits={"policy_logps": faulty.POLICY_LOGPS["clamped"]},
    ),
    Fault(
        "reinforce-bfloat16-logps",
        "Log-probs pass through bfloat16.",
        "log π rounded to 8 bits",
        "https://github.com/billy-enrizky/openbrowser-ai/pull/63",
        "reinforce/logps",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["bfloat16"]},
    ),
    Fault(
        "reinforce-temperature-scoring",
        "The logits are divided by a temperature when scoring but not when sampling.",
        "log_softmax(θ/0.9)",
        "https://github.com/NVIDIA/NeMo-Aligner/issues/46",
        "reinforce/logps",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["temperature"]},
    ),
    Fault(
        "reinforce-action-shifted",
        "The log-prob of the next action is gathered.",
        "log π(a+1)",
        "https://github.com/lucidrains/PaLM-rlhf-pytorch/issues/31",
        "reinforce/logps",
        _START,
        edits={"logps": faulty.LOGPS["shifted"]},
    ),
    Fault(
        "reinforce-greedy-action",
        "The log-prob of the most probable action stands for that of the action taken.",
        "max_a log π(a)",
        "https://github.com/henrywoo/chatllama/issues/7",
        "reinforce/logps",
        _START,
        edits={"logps": faulty.LOGPS["greedy"]},
    ),
    Fault(
        "reinforce-one-hot-lost",
        "The log-probs of all actions are summed, as the one-hot row of the action "
        "taken is missing.",
        "Σ_a log π(a)",
        "https://github.com/muupan/async-rl/issues/12",
        "reinforce/logps",
        _START,
        edits={"logps": faulty.LOGPS["of-all-actions"]},
    ),
    Fault(
        "reinforce-logps-detached",
        "The log-probs of the samples are copied out of the graph: every value is "
        "right, only the penalty has a gradient.",
        "-mean(stop(log π(a))·A) + β·KL",
        "https://github.com/kengz/SLM-Lab/pull/133",
        "reinforce/gradient",
        _START,
        edits={
            "surrogate": lambda logps, advantages: op.mean(op.stop_gradient(logps) * advantages)
        },
    ),
    Fault(
        "reinforce-ratio-for-logp",
        "A ratio that is always 1 stands for the log-prob: the gradient is the same, "
        "the value is the mean advantage.",
        "-mean(exp(log π(a) - stop(log π(a)))·A)",
        "https://github.com/SeungyounShin/minimal-r1/issues/2",
        "reinforce/surrogate",
        _START,
        edits={
            "surrogate": lambda logps, advantages: op.mean(
                op.exp(logps - op.stop_gradient(logps)) * advantages
            )
        },
    ),
    Fault(
        "reinforce-discount-twice",
        "Discounts that the returns already hold weigh the terms once more.",
        "-mean(γ^i·log π(a_i)·A_i)",
        "https://github.com/mimoralea/gdrl/issues/38",
        "reinforce/surrogate",
        _START,
        edits={
            "surrogate": lambda logps, advantages: op.mean(
                _discounts(advantages) * logps * advantages
            )
        },
    ),
    Fault(
        "reinforce-loss-divided",
        "The loss, a mean already, is divided once more by the number of accumulation steps.",
        "(-mean(log π(a)·A) + β·KL)/4",
        "https://github.com/modelscope/ms-swift/pull/10116",
        "reinforce/loss",
        _START,
        edits={"loss": faulty.LOSS["divided"]},
    ),
    Fault(
        "reinforce-advantage-absolute",
        "The sign of the advantage is lost.",
        "-mean(log π(a)·|A|)",
        _UNKNOWN,
        "reinforce/surrogate",
        _START,
        edits={"surrogate": lambda logps, advantages: op.mean(logps * op.abs(advantages))},
    ),
    Fault(
        "reinforce-kl-sign",
        "The penalty is subtracted from a loss that is minimised.",
        "-mean(log π(a)·A) - β·KL",
        "https://github.com/marin-community/marin/issues/1742",
        "reinforce/loss",
        _START,
        edits={"loss": faulty.LOSS["kl-sign"]},
    ),
    Fault(
        "reinforce-kl-reversed",
        "The divergence is taken in the other direction.",
        "KL(π_ref‖π)",
        "https://github.com/google-deepmind/rlax/issues/14",
        "reinforce/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["reversed"]},
    ),
    Fault(
        "reinforce-kl-k1",
        "The exact KL is replaced by the mean log-ratio of the samples, whose "
        "gradient ignores the reference.",
        "mean(log π - log π_ref)",
        "https://github.com/allenai/open-instruct/pull/535",
        "reinforce/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["k1"]},
    ),
    Fault(
        "reinforce-kl-k2",
        "The exact KL is replaced by half the mean squared log-ratio of the samples.",
        "mean((log π - log π_ref)²)/2",
        "https://github.com/marin-community/marin/pull/4620",
        "reinforce/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["k2"]},
    ),
    Fault(
        "reinforce-kl-k3",
        "The exact KL is replaced by the low-variance estimator on the samples.",
        "mean(exp(-x) - 1 + x), x = log π - log π_ref",
        "https://github.com/huggingface/trl/issues/5889",
        "reinforce/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["k3"]},
    ),
    Fault(
        "reinforce-kl-over-actions",
        "The terms of the divergence are averaged over the actions instead of summed.",
        "KL/K",
        "https://github.com/pytorch/pytorch/pull/14457",
        "reinforce/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["over-actions"]},
    ),
    Fault(
        "reinforce-kl-of-itself",
        "The policy is compared with itself, so the KL is 0.",
        "KL(π‖π)",
        "https://github.com/ajlangley/cpo-pytorch/issues/10",
        "reinforce/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["of-itself"]},
    ),
    Fault(
        "reinforce-kl-detached",
        "The penalty has the right value and no gradient.",
        "β·stop(KL)",
        "https://github.com/NovaSky-AI/SkyRL/issues/1340",
        "reinforce/gradient",
        _START,
        edits={"kl_penalty": faulty.KL["detached"]},
    ),
    Fault(
        "reinforce-beta-squared",
        "β is applied twice.",
        "-mean(log π(a)·A) + β²·KL",
        "https://github.com/AI-Hypercomputer/maxtext/issues/1530",
        "reinforce/loss",
        _START,
        edits={"loss": faulty.LOSS["beta-squared"]},
    ),
    Fault(
        "reinforce-beta-lost",
        "β is not applied.",
        "-mean(log π(a)·A) + KL",
        "https://github.com/Lightning-Universe/lightning-bolts/issues/328",
        "reinforce/loss",
        _START,
        edits={"loss": faulty.LOSS["beta-lost"]},
    ),
    Fault(
        "reinforce-entropy-bonus",
        "A negative entropy that nobody asked for is part of the penalty.",
        "KL - 0.01·H(π)",
        "https://github.com/chingyaoc/pytorch-REINFORCE/issues/1",
        "reinforce/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["entropy-bonus"]},
    ),
    Fault(
        "reinforce-entropy-penalised",
        "An entropy bonus enters with the wrong sign and punishes exploration.",
        "KL + 0.01·H(π)",
        "https://github.com/MrSyee/pg-is-all-you-need/issues/37",
        "reinforce/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["entropy-penalised"]},
    ),
)

FAULTS: tuple[Fault, ...] = (*_LOSS, *TRAINING, *REWRITES)
