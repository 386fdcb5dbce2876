"""Known bugs of DPO, and rewrites that are none."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import faulty
from parity.objectives.faulty import UNKNOWN as _UNKNOWN
from parity.objectives.spec import Fault

__all__ = ["FAULTS"]

_START = {"update": 0}


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


FAULTS: tuple[Fault, ...] = (
    Fault(
        "dpo-negated",
        "The loss has the wrong sign.",
        "-mean softplus(-βm)",
        "https://github.com/fla-org/flash-linear-attention/issues/1073",
        "dpo/loss",
        _START,
        edits={"losses": lambda z: -op.softplus(-z)},
    ),
    Fault(
        "dpo-pair-swapped",
        "Chosen and rejected are exchanged.",
        "m(r, c)",
        _UNKNOWN,
        "dpo/margins",
        _START,
        edits={"margins": _swapped},
    ),
    Fault(
        "dpo-reference-free",
        "The reference correction is gone.",
        "m = log π(c) - log π(r)",
        _UNKNOWN,
        "dpo/margins",
        _START,
        edits={"margins": lambda chosen_logps, rejected_logps: chosen_logps - rejected_logps},
    ),
    Fault(
        "dpo-reference-added",
        "The reference correction has the wrong sign.",
        "m = Δlog π + Δlog π_ref",
        _UNKNOWN,
        "dpo/margins",
        _START,
        edits={
            "reference_chosen_logps": lambda reference, chosen: -op.gather(reference, chosen),
            "reference_rejected_logps": lambda reference, rejected: -op.gather(reference, rejected),
        },
    ),
    Fault(
        "dpo-beta-squared",
        "β is applied twice.",
        "softplus(-β²m)",
        "https://github.com/AI-Hypercomputer/maxtext/issues/1530",
        "dpo/loss",
        _START,
        edits={"z": lambda beta, margins: beta * beta * margins},
    ),
    Fault(
        "dpo-beta-lost",
        "β is not applied.",
        "softplus(-m)",
        _UNKNOWN,
        "dpo/loss",
        _START,
        edits={"z": lambda margins: margins},
    ),
    Fault(
        "dpo-sum-for-mean",
        "The pairs are summed instead of averaged.",
        "Σ softplus(-βm)",
        "https://github.com/volcengine/verl/pull/931",
        "dpo/loss",
        _START,
        edits={"loss": lambda losses: op.sum(losses)},
    ),
    Fault(
        "dpo-squared",
        "The logistic loss is replaced by a squared one.",
        "mean (βm - 1/2)²",
        _UNKNOWN,
        "dpo/loss",
        _START,
        edits={"losses": lambda z: (z - 0.5) ** 2},
    ),
    Fault(
        "dpo-hinge",
        "The logistic loss is replaced by a hinge.",
        "mean max(1 - βm, 0)",
        _UNKNOWN,
        "dpo/loss",
        _START,
        edits={"losses": lambda z: op.maximum(1 - z, 0.0)},
    ),
    Fault(
        "dpo-smoothed",
        "Labels are smoothed though nobody asked for it.",
        "0.9 softplus(-βm) + 0.1 softplus(βm)",
        _UNKNOWN,
        "dpo/loss",
        _START,
        edits={"losses": lambda z: 0.9 * op.softplus(-z) + 0.1 * op.softplus(z)},
    ),
    Fault(
        "dpo-log-of-sigmoid",
        "The sigmoid is computed first and its logarithm after: infinite for large "
        "negative margins.",
        "-log(1/(1+exp(-βm)))",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1278",
        "dpo/gradient",
        edits={"losses": lambda z: -op.log(1 / (1 + op.exp(-z)))},
    ),
    Fault(
        "dpo-log-one-plus-exp",
        "log(1+exp) is computed as it stands: overflows for large negative margins.",
        "log(1+exp(-βm))",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1278",
        "dpo/loss",
        edits={"losses": lambda z: op.log(1 + op.exp(-z))},
    ),
    Fault(
        "dpo-margin-clamped",
        "The scaled margin is clamped; a normal run never reaches the clamp.",
        "softplus(-clamp(βm, -10, 10))",
        "https://github.com/huggingface/trl/issues/3015",
        "dpo/loss",
        edits={"losses": lambda z: op.softplus(-op.clip(z, -10.0, 10.0))},
    ),
    Fault(
        "dpo-reference-not-detached",
        "A gradient flows into the reference; every value agrees.",
        "∂L/∂log π_ref ≠ 0",
        _UNKNOWN,
        "dpo/gradient_reference",
        _START,
        unfrozen=("reference",),
    ),
    Fault(
        "dpo-rejected-detached",
        "The rejected side carries no gradient; every value of the first update agrees.",
        "∂m/∂log π(r) = 0",
        _UNKNOWN,
        "dpo/gradient",
        _START,
        edits={
            "rejected_logps": lambda policy_logps, rejected: op.stop_gradient(
                op.gather(policy_logps, rejected)
            )
        },
    ),
    Fault(
        "dpo-reference-follows",
        "The reference is replaced by the policy after every update.",
        "log π_ref ← log π",
        "https://github.com/CarperAI/trlx/issues/517",
        "dpo/reference",
        {"update": 1},
        update=faulty.UPDATE["reference-follows"],
    ),
    Fault(
        "dpo-ascent",
        "The update climbs the loss.",
        "θ ← θ + η∇L",
        _UNKNOWN,
        "dpo/logits",
        _START,
        update=faulty.UPDATE["ascent"],
    ),
    Fault(
        "dpo-logaddexp",
        "The softplus is spelled as logaddexp.",
        "logaddexp(0, -βm)",
        _UNKNOWN,
        edits={"losses": lambda z: op.logaddexp(0.0, -z)},
        equivalent=True,
    ),
    Fault(
        "dpo-by-sides",
        "The margin is the difference of the two sides' log-ratios.",
        "(log π(c) - log π_ref(c)) - (log π(r) - log π_ref(r))",
        _UNKNOWN,
        edits={"margins": _by_sides},
        equivalent=True,
    ),
    Fault(
        "dpo-log-sigmoid",
        "The loss is spelled as minus log-sigmoid.",
        "-logsigmoid(βm)",
        _UNKNOWN,
        edits={"losses": lambda z: -op.log_sigmoid(z)},
        equivalent=True,
    ),
    Fault(
        "dpo-sigmoid-without-log",
        "The probability of the preference is maximised instead of its logarithm.",
        "-mean σ(βm)",
        _UNKNOWN,
        "dpo/loss",
        _START,
        edits={"losses": lambda z: -op.sigmoid(z)},
    ),
    Fault(
        "dpo-bfloat16-logps",
        "Log-probs of the policy pass through bfloat16; the reference's do not.",
        "log π rounded to 8 bits",
        "https://github.com/huggingface/trl/pull/7084",
        "dpo/margins",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["bfloat16"]},
    ),
    Fault(
        "dpo-broadcast-pairs",
        "Log-ratios of the policy [N] meet those of the reference [N, 1], and every "
        "pair meets every other.",
        "mean_{ij} softplus(-β(Δlog π_i - Δlog π_ref,j))",
        "https://github.com/verl-project/verl-omni/pull/270",
        "dpo/loss",
        _START,
        edits={"loss": _every_pair},
    ),
    Fault(
        "dpo-mean-before-sigmoid",
        "The margins are averaged before the sigmoid.",
        "softplus(-β·mean m)",
        _UNKNOWN,
        "dpo/loss",
        _START,
        edits={"loss": lambda z: op.softplus(-op.mean(z))},
    ),
    Fault(
        "dpo-rejected-lost",
        "The rejected side is missing from the margin.",
        "m = log π(c) - log π_ref(c)",
        "https://github.com/haozheji/exact-optimization/issues/2",
        "dpo/margins",
        _START,
        edits={
            "margins": lambda chosen_logps, reference_chosen_logps: (
                chosen_logps - reference_chosen_logps
            )
        },
    ),
    Fault(
        "dpo-detached",
        "The log-probs are computed outside of what is differentiated: every value of"
        " the first update agrees, and nothing is learnt.",
        "∇L = 0",
        "https://github.com/Goekdeniz-Guelmez/mlx-lm-lora/pull/25",
        "dpo/gradient",
        _START,
        # 0·m: what is differentiated must depend on something, even where it is detached
        edits={"z": lambda beta, margins: beta * op.stop_gradient(margins) + 0.0 * margins},
    ),
    Fault(
        "dpo-ipo",
        "The logistic loss is replaced by the squared distance of the margin from 1/(2β).",
        "mean (m - 1/(2β))²",
        "https://github.com/eric-mitchell/direct-preference-optimization/issues/64",
        "dpo/loss",
        _START,
        edits={"losses": lambda margins, beta: (margins - 1 / (2 * beta)) ** 2},
    ),
    Fault(
        "dpo-beta-halved",
        "A half from another derivation is left before β.",
        "softplus(-βm/2)",
        "https://github.com/huggingface/diffusers/pull/6788",
        "dpo/loss",
        _START,
        edits={"z": lambda beta, margins: beta * margins / 2},
    ),
    Fault(
        "dpo-beta-outside",
        "β weighs the loss instead of the margin.",
        "β·mean softplus(-m)",
        "https://github.com/mindspore-lab/mindrlhf/pull/102",
        "dpo/loss",
        _START,
        edits={"loss": lambda beta, margins: beta * op.mean(op.softplus(-margins))},
    ),
    Fault(
        "dpo-positive-term",
        "A term that nobody asked for keeps the chosen log-prob above the reference's.",
        "softplus(-βm) + 0.1·max(0, log π_ref(c) - log π(c))",
        "https://github.com/abacusai/smaug/issues/2",
        "dpo/loss",
        _START,
        edits={
            "losses": lambda z, chosen_logps, reference_chosen_logps: (
                op.softplus(-z) + 0.1 * op.maximum(reference_chosen_logps - chosen_logps, 0.0)
            )
        },
    ),
    Fault(
        "dpo-temperature",
        "The policy's logits are divided by a temperature and the reference's are not.",
        "log π = log_softmax(θ/0.9)",
        "https://github.com/databricks/compose-rl/pull/105",
        "dpo/margins",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["temperature"]},
    ),
    Fault(
        "dpo-logits-for-logps",
        "Logits stand for the policy's log-probs; their normalisation cancels within each pair.",
        "m = (θ_c - θ_r) - Δlog π_ref",
        _UNKNOWN,
        edits={"policy_logps": faulty.POLICY_LOGPS["logits"]},
        equivalent=True,
    ),
)
