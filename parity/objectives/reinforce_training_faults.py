"""Known bugs of REINFORCE's rollouts, frozen inputs and updates, and rewrites that are none."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import categorical as bandit
from parity.objectives import faulty
from parity.objectives.faulty import UNKNOWN as _UNKNOWN
from parity.objectives.spec import Fault

__all__ = ["REWRITES", "TRAINING"]

_START = {"rollout": 0}
_SECOND = {"rollout": 1}


def _averaged(x: Any) -> Any:
    return 0.0 * x + op.mean(x)


def _totals(actions: Any, advantages: Any, length: int) -> Any:
    """Sums of the advantages of each action."""
    return op.sum(op.one_hot(actions, length) * advantages[:, None])


TRAINING: tuple[Fault, ...] = (
    Fault(
        "reinforce-advantage-averaged",
        "Every sample gets the mean advantage of the batch instead of its own.",
        "A_i = mean(A)",
        "https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/pull/9",
        "reinforce/advantages",
        _START,
        collects={
            "advantages": lambda policy_logps, scores, actions: _averaged(
                bandit.advantages(policy_logps, scores, actions)
            )
        },
    ),
    Fault(
        "reinforce-baseline-lost",
        "The score itself stands for the advantage.",
        "A = r(a)",
        "https://github.com/jachiam/rl-intro/issues/1",
        "reinforce/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["no-baseline"]},
    ),
    Fault(
        "reinforce-baseline-of-the-batch",
        "The baseline is the mean score of the batch, the sample's own included, "
        "instead of the exact expectation.",
        "A = r(a) - mean(r)",
        "https://github.com/jsboige/CoursIA/pull/15256",
        "reinforce/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["of-the-batch"]},
    ),
    Fault(
        "reinforce-baseline-leave-one-out",
        "The baseline of a sample is the mean score of the others.",
        "A = N/(N-1)·(r(a) - mean(r))",
        "https://github.com/redai-studio/Relax/pull/189",
        "reinforce/advantages",
        _START,
        collects={
            "advantages": lambda scores, actions: (
                faulty.centred(op.gather(scores, actions))
                * actions.shape[0]
                / max(actions.shape[0] - 1, 1)
            )
        },
    ),
    Fault(
        "reinforce-baseline-of-the-first",
        "The baseline is the score of the first sample alone.",
        "A = r(a) - r(a_1)",
        "https://github.com/ServiceNow/PipelineRL/pull/54",
        "reinforce/advantages",
        _START,
        collects={
            "advantages": lambda scores, actions: (
                op.gather(scores, actions) - op.gather(scores, actions)[0]
            )
        },
    ),
    Fault(
        "reinforce-baseline-unweighted",
        "The baseline averages the scores of the actions without their probabilities.",
        "A = r(a) - mean_a r",
        _UNKNOWN,
        "reinforce/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["unweighted"]},
    ),
    Fault(
        "reinforce-advantage-not-detached",
        "A gradient flows into the advantages, and so into the baseline; every value agrees.",
        "∂L/∂A ≠ 0",
        "https://github.com/ChenRocks/fast_abs_rl/issues/49",
        "reinforce/gradient_advantages",
        _START,
        unfrozen=("advantages",),
    ),
    Fault(
        "reinforce-advantage-negated",
        "The advantage is the baseline less the score.",
        "A = Σ π r - r(a)",
        _UNKNOWN,
        "reinforce/advantages",
        _START,
        collects={
            "advantages": lambda policy_logps, scores, actions: (
                -bandit.advantages(policy_logps, scores, actions)
            )
        },
    ),
    Fault(
        "reinforce-whitened-by-n",
        "Advantages are whitened, with the biased deviation.",
        "(A - mean A)/std_n",
        "https://github.com/breeko/Simple-Reinforcement-Learning-with-Tensorflow/issues/3",
        "reinforce/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["whitened-by-n"]},
    ),
    Fault(
        "reinforce-whitened-by-n-minus-1",
        "Advantages are whitened, with the unbiased deviation.",
        "(A - mean A)/std_{n-1}",
        "https://github.com/NVIDIA/TorchFort/issues/38",
        "reinforce/advantages",
        _START,
        collects={"advantages": faulty.ADVANTAGES["whitened-by-n-minus-1"]},
    ),
    Fault(
        "reinforce-scaled-not-centred",
        "Scores are divided by their deviation, and the mean is subtracted only inside it.",
        "A = r/std_n(r)",
        "https://github.com/keon/policy-gradient/issues/5",
        "reinforce/advantages",
        _START,
        collects={
            "advantages": lambda scores, actions: faulty.scaled(op.gather(scores, actions), 0)
        },
    ),
    Fault(
        "reinforce-rewards-by-max",
        "Scores are divided by the largest of the batch.",
        "A = (r(a) - Σ π r)/max|r|",
        _UNKNOWN,
        "reinforce/advantages",
        _START,
        collects={
            "advantages": lambda policy_logps, scores, actions: (
                bandit.advantages(policy_logps, scores, actions)
                / op.sort(op.abs(op.gather(scores, actions)))[actions.shape[0] - 1]
            )
        },
    ),
    Fault(
        "reinforce-kl-in-reward",
        "The penalty is taken from the score of each sample instead of added to the loss.",
        "A ← A - β(log π(a) - log π_ref(a)), L = -mean(log π(a)·A)",
        "https://github.com/huggingface/trl/issues/4967",
        "reinforce/surrogate",
        _START,
        edits={
            "surrogate": lambda logps, reference_logps, advantages, beta: op.mean(
                logps * (advantages - beta * (op.stop_gradient(logps) - reference_logps))
            ),
            "loss": lambda surrogate: -surrogate,
        },
    ),
    Fault(
        "reinforce-reference-not-detached",
        "A gradient flows into the reference; every value agrees.",
        "∂L/∂log π_ref ≠ 0",
        _UNKNOWN,
        "reinforce/gradient_reference",
        _START,
        unfrozen=("reference",),
    ),
    Fault(
        "reinforce-reference-follows",
        "The reference is replaced by the policy after every update.",
        "log π_ref ← log π",
        "https://github.com/aburkov/theLMbook/issues/8",
        "reinforce/reference_kl",
        {"checkpoint": 1},  # measured before the second update shows the reference itself
        update=faulty.UPDATE["reference-follows"],
    ),
    Fault(
        "reinforce-ascent",
        "The update climbs the loss.",
        "θ ← θ + η∇L",
        "https://github.com/strands-labs/robots/pull/2028",
        "reinforce/logits",
        _START,
        update=faulty.UPDATE["ascent"],
    ),
    Fault(
        "reinforce-gradients-accumulate",
        "Gradients are not cleared between updates.",
        "g_t = Σ_{s ≤ t} ∇L_s",
        "https://github.com/meta-pytorch/torchforge/pull/71",
        "reinforce/gradient",
        _SECOND,
        update=faulty.UPDATE["accumulated"],
    ),
    Fault(
        "reinforce-momentum",
        "The update adds momentum that the problem does not have.",
        "θ ← θ - η(g + 0.9 g_{t-1})",
        _UNKNOWN,
        "reinforce/logits",
        _SECOND,
        update=faulty.UPDATE["momentum"],
    ),
    Fault(
        "reinforce-weight-decay",
        "The update shrinks the logits.",
        "θ ← θ - η(g + 0.01θ)",
        _UNKNOWN,
        "reinforce/logits",
        _START,
        update=faulty.UPDATE["weight-decay"],
    ),
    Fault(
        "reinforce-gradient-clipped",
        "The update is shortened to a largest length that the problem does not have.",
        "g ← g·min(1, 0.05/‖g‖)",
        "https://github.com/ikostrikov/pytorch-a2c-ppo-acktr-gail/issues/160",
        "reinforce/logits",
        _START,
        update=lambda logits, gradient, rate: {
            "logits": logits
            - rate * gradient * 0.05 / op.maximum(op.sqrt(op.sum(gradient * gradient)), 0.05)
        },
    ),
)

REWRITES: tuple[Fault, ...] = (
    Fault(
        "reinforce-cross-entropy",
        "The log-prob is spelled as the cross-entropy with a one-hot row, and its "
        "sign carried by the loss.",
        "mean(CE(one_hot(a), θ)·A)",
        "https://github.com/MorvanZhou/Reinforcement-learning-with-tensorflow/issues/6",
        edits={
            "logps": lambda logits, actions: (
                -op.sum(
                    op.one_hot(actions, logits.shape[0]) * -op.log_softmax(logits)[None], axis=1
                )
            )
        },
        equivalent=True,
    ),
    Fault(
        "reinforce-softmax-of-logps",
        "The probabilities of the penalty are the softmax of the log-probs instead of"
        " their exponential.",
        "π = softmax(log_softmax(θ))",
        "https://github.com/google/tunix/issues/1386",
        edits={"kl_penalty": faulty.KL["softmax-of-logps"]},
        equivalent=True,
    ),
    Fault(
        "reinforce-log-softmax-twice",
        "Log-probs are passed where logits are asked for, and normalised once more.",
        "log_softmax(log_softmax(θ))",
        "https://github.com/pytorch/pytorch/issues/50378",
        edits={"policy_logps": faulty.POLICY_LOGPS["normalised-twice"]},
        equivalent=True,
    ),
    Fault(
        "reinforce-advantage-carries-sign",
        "The minus sign is carried by the advantage instead of the loss.",
        "mean(log π(a)·(-A)) + β·KL",
        "https://github.com/hongzimao/decima-sim/issues/28",
        edits={"surrogate": lambda logps, advantages: -op.mean(logps * -advantages)},
        equivalent=True,
    ),
    Fault(
        "reinforce-rewards-shifted",
        "A constant of their own size is added to all rewards, and leaves with the baseline.",
        "A = (r + 1/2) - Σ π (r + 1/2)",
        _UNKNOWN,
        collects={"advantages": faulty.ADVANTAGES["rewards-shifted"]},
        equivalent=True,
    ),
    Fault(
        "reinforce-by-action",
        "The samples are first gathered by action, and each log-prob is weighed by "
        "its action's total advantage.",
        "Σ_a (Σ_{i: a_i = a} A_i)·log π(a)/N",
        _UNKNOWN,
        edits={
            "surrogate": lambda policy_logps, actions, advantages: (
                op.sum(_totals(actions, advantages, policy_logps.shape[0]) * policy_logps)
                / actions.shape[0]
            )
        },
        equivalent=True,
    ),
    Fault(
        "reinforce-kl-split",
        "The KL is written as negative entropy plus cross-entropy.",
        "Σ π log π - Σ π log π_ref",
        _UNKNOWN,
        edits={"kl_penalty": faulty.KL["split"]},
        equivalent=True,
    ),
    Fault(
        "reinforce-logsumexp-spelling",
        "Log-softmax is spelled as logits less their logsumexp.",
        "θ - logsumexp(θ)",
        _UNKNOWN,
        edits={"policy_logps": faulty.POLICY_LOGPS["logsumexp"]},
        collects={"policy_logps": faulty.POLICY_LOGPS["logsumexp"]},
        equivalent=True,
    ),
)
