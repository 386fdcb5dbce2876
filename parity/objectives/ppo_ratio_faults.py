"""Known bugs of PPO's means, ratios, log-probs and advantages, and of what is detached."""

from typing import Any

from parity.arithmetic import operations as op
from parity.objectives import faulty
from parity.objectives.faulty import UNKNOWN as _UNKNOWN
from parity.objectives.spec import Fault

__all__ = ["RATIOS", "terms"]

_START = {"rollout": 0, "epoch": 0}
_SECOND = {"rollout": 0, "epoch": 1}


def terms(ratios: Any, clipped: Any, advantages: Any) -> Any:
    """What is right: the smaller of the two terms."""
    return op.minimum(ratios * advantages, clipped * advantages)


RATIOS: tuple[Fault, ...] = (
    Fault(
        "sum-for-mean",
        "The terms are summed instead of averaged.",
        "-Σ min(ρA, clip(ρ)A)",
        "https://github.com/volcengine/verl/pull/931",
        "ppo/surrogate",
        _START,
        edits={"surrogate": lambda terms: op.sum(terms)},
    ),
    Fault(
        "mean-of-n-minus-1",
        "The sum is divided by N - 1.",
        "-Σ min(…)/(N-1)",
        _UNKNOWN,
        "ppo/surrogate",
        _START,
        edits={"surrogate": lambda terms: op.sum(terms) / max(terms.shape[0] - 1, 1)},
    ),
    Fault(
        "old-recomputed",
        "The old log-probs are recomputed at every epoch, so that the ratio stays 1.",
        "ρ = exp(log π - stop(log π))",
        "https://github.com/PrimeIntellect-ai/verifiers/pull/320",
        "ppo/ratios",
        _SECOND,
        edits={"ratios": lambda logps: op.exp(logps - op.stop_gradient(logps))},
    ),
    Fault(
        "old-not-detached",
        "A gradient flows into the old log-probs; every value agrees.",
        "∂L/∂old ≠ 0",
        _UNKNOWN,
        "ppo/gradient_old_logps",
        _START,
        unfrozen=("old_logps",),
    ),
    Fault(
        "advantage-not-detached",
        "A gradient flows into the advantages; every value agrees.",
        "∂L/∂A ≠ 0",
        "https://github.com/pytorch/rl/pull/322",
        "ppo/gradient_advantages",
        _START,
        unfrozen=("advantages",),
    ),
    Fault(
        "reference-not-detached",
        "A gradient flows into the reference; every value agrees.",
        "∂L/∂log π_ref ≠ 0",
        _UNKNOWN,
        "ppo/gradient_reference",
        _START,
        unfrozen=("reference",),
    ),
    Fault(
        "ratio-inverted",
        "The ratio is old over new: at the first epoch the value is still 1, the "
        "gradient has the wrong sign.",
        "ρ = exp(old - log π(a))",
        _UNKNOWN,
        "ppo/gradient",
        _START,
        edits={"ratios": lambda logps, old_logps: op.exp(old_logps - logps)},
    ),
    Fault(
        "ratio-detached",
        "The ratio carries no gradient; every value of the first update agrees.",
        "ρ = stop(exp(log π(a) - old))",
        _UNKNOWN,
        "ppo/gradient",
        _START,
        edits={"ratios": lambda logps, old_logps: op.stop_gradient(op.exp(logps - old_logps))},
    ),
    Fault(
        "ratio-linear",
        "The exponential is replaced by its first-order expansion.",
        "ρ = 1 + log π(a) - old",
        _UNKNOWN,
        "ppo/ratios",
        _SECOND,
        edits={"ratios": lambda logps, old_logps: 1 + (logps - old_logps)},
    ),
    Fault(
        "ratio-clamped",
        "The log-ratio is clamped before the exponential; a normal run never reaches the clamp.",
        "ρ = exp(clamp(log π(a) - old, -20, 20))",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1335",
        "ppo/ratios",
        edits={"ratios": lambda logps, old_logps: op.exp(op.clip(logps - old_logps, -20.0, 20.0))},
    ),
    Fault(
        "action-shifted",
        "The log-prob of the next action is gathered.",
        "log π(a+1)",
        "https://github.com/lucidrains/PaLM-rlhf-pytorch/issues/31",
        "ppo/ratios",
        _START,
        edits={"logps": faulty.LOGPS["shifted"]},
    ),
    Fault(
        "logits-for-logps",
        "Logits are used as if they were log-probs.",
        "log π = θ",
        _UNKNOWN,
        "ppo/ratios",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["logits"]},
    ),
    Fault(
        "bfloat16-logps",
        "Log-probs pass through bfloat16.",
        "log π rounded to 8 bits",
        "https://github.com/OpenRLHF/OpenRLHF/pull/620",
        "ppo/ratios",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["bfloat16"]},
    ),
    Fault(
        "temperature-scoring",
        "The logits are divided by a temperature when scoring but not when sampling.",
        "log_softmax(θ/0.9)",
        "https://github.com/huggingface/trl/pull/3029",
        "ppo/ratios",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["temperature"]},
    ),
    Fault(
        "softmax-epsilon",
        "The logarithm of a softmax with a small constant added stands for log-softmax.",
        "log(softmax(θ) + 1e-4)",
        _UNKNOWN,
        "ppo/ratios",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["epsilon"]},
    ),
    Fault(
        "advantage-negated",
        "The advantage has the wrong sign.",
        "A = Σ π r - r(a)",
        _UNKNOWN,
        "ppo/surrogate",
        _START,
        edits={"terms": lambda ratios, clipped, advantages: terms(ratios, clipped, -advantages)},
    ),
    Fault(
        "advantage-absolute",
        "The sign of the advantage is lost.",
        "|A|",
        _UNKNOWN,
        "ppo/surrogate",
        _START,
        edits={
            "terms": lambda ratios, clipped, advantages: terms(ratios, clipped, op.abs(advantages))
        },
    ),
    Fault(
        "entropy-bonus",
        "A negative entropy that nobody asked for is part of the penalty.",
        "KL - 0.01·H(π)",
        _UNKNOWN,
        "ppo/kl_penalty",
        _START,
        edits={"kl_penalty": faulty.KL["entropy-bonus"]},
    ),
    Fault(
        "advantage-clamped",
        "Advantages are clamped; a normal run never reaches the clamp.",
        "clamp(A, -5, 5)",
        "https://github.com/kvablack/ddpo-pytorch/issues/12",
        "ppo/surrogate",
        edits={
            "terms": lambda ratios, clipped, advantages: terms(
                ratios, clipped, op.clip(advantages, -5.0, 5.0)
            )
        },
    ),
    Fault(
        "ratio-epsilon",
        "A small constant is added to the old probability in the denominator.",
        "ρ = π(a)/(π_old(a) + 1e-5)",
        "https://github.com/MorvanZhou/Reinforcement-learning-with-tensorflow/issues/163",
        "ppo/ratios",
        _START,
        edits={"ratios": lambda logps, old_logps: op.exp(logps) / (op.exp(old_logps) + 1e-5)},
    ),
    Fault(
        "double-softmax",
        "Probabilities are passed where logits are asked for, so that softmax is applied twice.",
        "log π = log_softmax(softmax(θ))",
        "https://github.com/suragnair/alpha-zero-general/issues/45",
        "ppo/ratios",
        _START,
        edits={"policy_logps": faulty.POLICY_LOGPS["twice"]},
    ),
    Fault(
        "greedy-action",
        "The log-prob of the most probable action stands for that of the action taken.",
        "ρ = exp(max_a log π(a) - old)",
        "https://github.com/henrywoo/chatllama/issues/7",
        "ppo/ratios",
        _START,
        edits={"logps": faulty.LOGPS["greedy"]},
    ),
)
