"""What objectives of a categorical policy on a one-step bandit share."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from parity.arithmetic import operations as op
from parity.objectives.spec import Claim, Input, Value

__all__ = [
    "ADVANTAGES",
    "BETA",
    "FAR",
    "KL_PENALTY",
    "LOGITS",
    "LOGPS",
    "MEASURED",
    "NEAR",
    "PEAKED",
    "POLICY_LOGPS",
    "PROBABILITIES",
    "REFERENCE",
    "REFERENCE_CARRIED",
    "REFERENCE_LOGPS",
    "SCORES_CARRIED",
    "SEVEN",
    "SIGNS",
    "Bandit",
    "Count",
    "Misfits",
    "NonNegative",
    "Positive",
    "Seed",
    "Vector",
    "actions",
    "advantages",
    "at_most_optimal",
    "centred",
    "expected_reward",
    "kl_at_probes",
    "optimum",
    "probe_reference",
    "short_reference",
]

Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, lt=2**31)]  # what both frameworks take as a seed
Vector = tuple[float, ...]
Misfits = Iterator[tuple[str, Any, str]]

SIGNS = {"A > 0": np.greater, "A < 0": np.less, "A = 0": np.equal}


# Logits of extreme states of seven actions.
SEVEN = (0.7, -0.2, 0.1, -1.1, 0.4, 1.3, -0.6)
NEAR = (0.701, -0.2, 0.1, -1.1, 0.4, 1.301, -0.602)  # of a reference beside them
FAR = (-78.0, 0.0, -60.0, -70.0, -75.0, -80.0, -65.0)  # and of one far away, none of it 0
PEAKED = (40.0, 0.0, -36.0, 3.0, -20.0, 10.0, -8.0)  # a log-probability of -76


def probe_reference(logits: Any) -> Any:
    """Log-probs of a reference policy, for a probe."""
    return op.log_softmax(np.asarray(logits, float))


LOGITS = Input("logits", ("action",), "differentiated", "current policy", shiftable=True)
REFERENCE = Input(
    "reference",
    ("action",),
    "frozen",
    "log-probs of the reference policy, in nats",
    known_as=("reference_policy", "ref_policy_logps"),
    high=0.0,
    draw=lambda random, shape, scale: probe_reference(random.normal(size=shape) * scale),
    normalised=True,
)
ADVANTAGES = Input(
    "advantages",
    ("sample",),
    "frozen",
    "reward of each sample less a baseline",
    known_as=("advantage", "adv", "advs"),
    draw=lambda random, shape: random.normal(size=shape),
    padding=2.0,
)
BETA = Input(
    "beta",
    (),
    "constant",
    "weight of KL(policy ‖ reference)",
    known_as=("kl_coef", "kl_coeff", "kl_weight"),
    low=0.0,
    draw=lambda random: random.choice([0.05, 0.2, 1.5]),
)


def actions(says: str = "sampled actions") -> Input:
    """Indices of actions, one a sample."""
    return Input("actions", ("sample",), "index", says, known_as=("action",), of="action")


def _kl(policy_logps: Any, reference: Any) -> Any:
    return op.sum(op.exp(policy_logps) * (policy_logps - reference))


def advantages(policy_logps: Any, scores: Any, actions: Any) -> Any:
    """r(a) - Σ π r of every sampled action."""
    return op.gather(scores, actions) - op.sum(op.exp(policy_logps) * scores)


def expected_reward(policy_logps: Any, scores: Any) -> Any:
    """Σ π(a) r(a)."""
    return op.sum(op.exp(policy_logps) * scores)


POLICY_LOGPS = Value(
    "policy_logps",
    ("action",),
    lambda logits: op.log_softmax(logits),
    "log-probs of all actions",
    recorded=False,
    offered=True,
    text="log_softmax(logits)",
    normalised=True,
)
LOGPS = Value(
    "logps",
    ("sample",),
    lambda policy_logps, actions: op.gather(policy_logps, actions),
    "log-probs of the samples",
    recorded=False,
    offered=True,
    known_as=("log_probs", "log_prob", "logprobs", "logprob", "logp", "new_logps"),
    text="log_softmax(logits)[actions]",
    padding=-0.5,
)
REFERENCE_LOGPS = Value(
    "reference_logps",
    ("sample",),
    lambda reference, actions: op.gather(reference, actions),
    "log-probs of the samples under the reference",
    recorded=False,
    offered=True,
    known_as=("ref_logps", "ref_log_probs", "ref_log_prob", "ref_logprobs"),
    text="reference[actions]",
    padding=-1.3,
)
KL_PENALTY = Value("kl_penalty", (), _kl, "KL(π ‖ π_ref) in nats", nonnegative=True)

REFERENCE_CARRIED = Value(
    "reference",
    ("action",),
    lambda reference_logits: op.log_softmax(reference_logits),
    "log-probs of the reference policy",
    kind="carried state",
    normalised=True,
)
SCORES_CARRIED = Value(
    "scores",
    ("action",),
    lambda scores: scores,
    "reward of each action",
    kind="carried state",
    law="frozen during policy training",
)
MEASURED = (
    Value("expected_reward", (), expected_reward, "Σ π r", kind="history"),
    Value("reference_kl", (), _kl, "KL(π ‖ π_ref) in nats", kind="history", nonnegative=True),
)
PROBABILITIES = Value(
    "probabilities",
    ("action",),
    lambda policy_logps: op.exp(policy_logps),
    "final policy",
    kind="probability",
)


def short_reference(name: str, table: Any) -> Misfits:
    """Says where a reference has not as many logits as the policy."""
    if len(table.reference) != len(table.logits):
        expectation = f"{len(table.logits)} logits, as many as {name}.logits"
        yield f"{name}.reference_logits", table.reference_logits, expectation


class Bandit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every table of a categorical policy has.

    Attributes:
        logits: starting policy, one per action.
        reference_logits: reference policy; the starting policy when left out.
    """

    logits: Annotated[Vector, Meta(min_length=2)]
    reference_logits: Vector | None = None

    @property
    def reference(self) -> Vector:
        """Logits of the reference policy, one per action."""
        return self.logits if self.reference_logits is None else self.reference_logits


def optimum(reference: Any, scores: Any, beta: Any) -> Any:
    """Log-probs that maximise Σ π r - β KL(π ‖ π_ref): log_softmax(log π_ref + r/β)."""
    return op.log_softmax(reference + scores / beta)


def at_most_optimal(name: str) -> Any:
    """The law that no training gets above the analytic optimum."""

    def law(
        scores: Any,
        reference: Any,
        beta: Any,
        expected_reward: Any,
        reference_kl: Any,
        allowed: Any,
    ) -> Iterator[Claim]:
        rewards = scores.reshape(-1, scores.shape[-1])[0]
        first = reference.reshape(-1, len(rewards))[0]
        best = rewards.max()  # without a KL, all mass on the best action
        if beta:
            policy = optimum(first, rewards, beta)
            best = np.exp(policy) @ rewards - beta * _kl(policy, first)
        yield Claim(
            f"{name}: trained objective at most the analytic optimum",
            expected_reward[-1:] - beta * reference_kl[-1:],
            np.atleast_1d(best),
            allowed("expected_reward")[-1:] + beta * allowed("reference_kl")[-1:],
            at_most=True,
        )

    return law


def centred(name: str) -> Any:
    """The law Σ π_old(a) A(a) = 0, A(a) = r(a) - baseline, the baseline read off each sample."""

    def law(
        actions: Any, scores: Any, logits: Any, start: Any, advantages: Any, allowed: Any
    ) -> Iterator[Claim]:
        rollouts, width = len(actions), logits.shape[-1]  # one update a rollout, or epochs of them
        rewards = scores.reshape(rollouts, -1, width)[:, 0]
        after = logits.reshape(rollouts, -1, width)[:, -1]
        before = np.concatenate([start[None], after[:-1]])
        first = advantages.reshape(rollouts, -1, actions.shape[-1])[:, 0]
        baselines = np.take_along_axis(rewards, actions, axis=-1) - first
        policy = np.exp(op.log_softmax(before, axis=1))
        expected = (policy * rewards).sum(-1)[:, None] - baselines
        limit = allowed("advantages").reshape(rollouts, -1, actions.shape[-1])[:, 0]
        yield Claim(
            f"{name}: expected advantage under the old policy 0",
            expected,
            np.zeros_like(expected),
            limit,
        )

    return law


def kl_at_probes(name: str) -> Any:
    """The law that a KL is not negative, and 0 where the policy is the reference."""

    def law(kl_penalty: Any, logits: Any, reference: Any, allowed: Any) -> Iterator[Claim]:
        limit, zeros = allowed("kl_penalty"), np.zeros_like(kl_penalty)
        mass = np.log(np.exp(reference).sum(-1))  # of a float32 reference: not quite 0
        yield Claim(
            f"{name}/kl_penalty not negative at the probes",
            -(kl_penalty + mass),
            zeros,
            limit,
            at_most=True,
        )
        spacing = np.spacing(np.abs(reference).astype(np.float32)).astype(np.float64)
        at = (np.abs(op.log_softmax(logits, axis=1) - reference) <= spacing).all(-1)
        if at.any():
            rounding = (np.exp(reference) * spacing).sum(-1)
            statement = f"{name}/kl_penalty 0 at the reference"
            yield Claim(statement, kl_penalty[at], zeros[at], (limit + rounding)[at])

    return law
