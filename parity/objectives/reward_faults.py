"""Known bugs of reward fitting, and rewrites that are none."""

from parity.arithmetic import operations as op
from parity.objectives.faulty import UNKNOWN as _UNKNOWN
from parity.objectives.spec import Fault

__all__ = ["FAULTS"]

_START = {"update": 0}

FAULTS: tuple[Fault, ...] = (
    Fault(
        "reward-pair-swapped",
        "Chosen and rejected are exchanged.",
        "softplus(+m)",
        _UNKNOWN,
        "reward/loss",
        _START,
        edits={"losses": lambda z: op.softplus(z)},
    ),
    Fault(
        "reward-log-of-sigmoid",
        "The sigmoid is computed first and its logarithm after: infinite for large "
        "negative margins.",
        "-log(1/(1+exp(-m)))",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1278",
        "reward/loss",
        edits={"losses": lambda z: -op.log(1 / (1 + op.exp(-z)))},
    ),
    Fault(
        "reward-log-one-plus-exp",
        "log(1+exp) is computed as it stands: overflows for large negative margins.",
        "log(1+exp(-m))",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1278",
        "reward/loss",
        edits={"losses": lambda z: op.log(1 + op.exp(-z))},
    ),
    Fault(
        "reward-sum-for-mean",
        "The pairs are summed instead of averaged.",
        "Σ softplus(-m)",
        "https://github.com/volcengine/verl/pull/931",
        "reward/loss",
        _START,
        edits={"loss": lambda losses: op.sum(losses)},
    ),
    Fault(
        "reward-hinge",
        "The logistic loss is replaced by a hinge.",
        "mean max(1 - m, 0)",
        _UNKNOWN,
        "reward/loss",
        _START,
        edits={"losses": lambda z: op.maximum(1 - z, 0.0)},
    ),
    Fault(
        "reward-squared",
        "The logistic loss is replaced by a squared one.",
        "mean (m - 1)²",
        _UNKNOWN,
        "reward/loss",
        _START,
        edits={"losses": lambda z: (z - 1) ** 2},
    ),
    Fault(
        "reward-margin-added",
        "A margin that nobody asked for is subtracted from the score difference.",
        "softplus(-(m - 0.1))",
        _UNKNOWN,
        "reward/loss",
        _START,
        edits={"losses": lambda z: op.softplus(-(z - 0.1))},
    ),
    Fault(
        "reward-ascent",
        "The update climbs the loss.",
        "w ← w + η∇L",
        _UNKNOWN,
        "reward/weights",
        _START,
        update=lambda weights, gradient, rate: {"weights": weights + rate * gradient},
    ),
    Fault(
        "reward-weight-decay",
        "The update shrinks the weights.",
        "w ← w - η(g + 0.01w)",
        _UNKNOWN,
        "reward/weights",
        _START,
        update=lambda weights, gradient, rate: {
            "weights": weights - rate * (gradient + 0.01 * weights)
        },
    ),
    Fault(
        "reward-log-sigmoid",
        "The loss is spelled as minus log-sigmoid.",
        "-logsigmoid(m)",
        _UNKNOWN,
        edits={"losses": lambda z: -op.log_sigmoid(z)},
        equivalent=True,
    ),
    Fault(
        "reward-sigmoid-without-log",
        "The probability of the preference is maximised instead of its logarithm.",
        "-mean σ(m)",
        "https://github.com/HarderThenHarder/transformers_tasks/issues/15",
        "reward/loss",
        _START,
        edits={"losses": lambda z: -op.sigmoid(z)},
    ),
    Fault(
        "reward-bfloat16-scores",
        "The scores of chosen and rejected pass through bfloat16.",
        "s_c, s_r rounded to 8 bits",
        "https://github.com/NVIDIA/NeMo-Aligner/pull/361",
        "reward/loss",
        _START,
        edits={
            "z": lambda chosen_scores, rejected_scores: (
                op.as_bfloat16(chosen_scores) - op.as_bfloat16(rejected_scores)
            )
        },
    ),
    Fault(
        "reward-broadcast-pairs",
        "Chosen scores [N] meet rejected scores [N, 1], and every chosen is compared "
        "with every rejected.",
        "mean_{ij} softplus(-(s_c,i - s_r,j))",
        "https://github.com/modelscope/ms-swift/pull/9927",
        "reward/loss",
        _START,
        edits={
            "loss": lambda chosen_scores, rejected_scores: op.mean(
                op.softplus(-(chosen_scores[None] - rejected_scores[:, None])), axis=(0, 1)
            )
        },
    ),
    Fault(
        "reward-mean-before-softplus",
        "The margins are averaged before the sigmoid.",
        "softplus(-mean m)",
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/401",
        "reward/loss",
        _START,
        edits={"loss": lambda z: op.softplus(-op.mean(z))},
    ),
    Fault(
        "reward-scores-squashed",
        "The scores pass through a sigmoid before their difference is taken.",
        "softplus(-(σ(s_c) - σ(s_r)))",
        "https://github.com/zheng-yuwei/RankIQA.PyTorch/issues/11",
        "reward/loss",
        _START,
        edits={
            "z": lambda chosen_scores, rejected_scores: (
                op.sigmoid(chosen_scores) - op.sigmoid(rejected_scores)
            )
        },
    ),
    Fault(
        "reward-margin-outside",
        "A margin is subtracted outside of the sigmoid: a constant, which the "
        "gradient does not see.",
        "softplus(-m) + 0.1",
        "https://github.com/natolambert/rlhf-book/pull/96",
        "reward/loss",
        _START,
        edits={"losses": lambda z: op.softplus(-z) + 0.1},
    ),
    Fault(
        "reward-sigmoid-epsilon",
        "A small constant is added to the sigmoid before its logarithm.",
        "-log(σ(m) + 1e-4)",
        "https://github.com/catalyst-team/catalyst/pull/1253",
        "reward/loss",
        _START,
        edits={"losses": lambda z: -op.log(op.sigmoid(z) + 1e-4)},
    ),
    Fault(
        "reward-l2",
        "A penalty on the size of the scores that nobody asked for is added.",
        "mean(softplus(-m) + 0.01·(s_c² + s_r²))",
        "https://github.com/LAION-AI/Open-Assistant/issues/3675",
        "reward/loss",
        _START,
        edits={
            "losses": lambda z, chosen_scores, rejected_scores: (
                op.softplus(-z) + 0.01 * (chosen_scores**2 + rejected_scores**2)
            )
        },
    ),
    Fault(
        "reward-centred",
        "A penalty on the sum of each pair's scores that nobody asked for is added.",
        "mean(softplus(-m) + 0.01·(s_c + s_r)²)",
        "https://github.com/huggingface/trl/pull/1932",
        "reward/loss",
        _START,
        edits={
            "losses": lambda z, chosen_scores, rejected_scores: (
                op.softplus(-z) + 0.01 * (chosen_scores + rejected_scores) ** 2
            )
        },
    ),
    Fault(
        "reward-count-off",
        "The sum is divided by the count of all pairs, those that were skipped included.",
        "Σ softplus(-m)/(N+1)",
        "https://github.com/pytorch/rl/pull/3886",
        "reward/loss",
        _START,
        edits={"loss": lambda losses: op.sum(losses) / (losses.shape[0] + 1)},
    ),
)
