"""Score-function policy gradient with an exact categorical KL on a one-step bandit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from parity.torch_impl.derivative import differentiate
from parity.torch_impl.ppo import Measures, State, measure, update

__all__ = [
    "DERIVED",
    "PIECES",
    "Batch",
    "History",
    "Measures",
    "Pieces",
    "State",
    "Terms",
    "collect",
    "measure",
    "reinforce_loss",
    "train",
    "update",
]


class Batch(NamedTuple):
    """One rollout: the actions and what was frozen when they were collected."""

    actions: Int[Tensor, "sample"]
    advantages: Float[Tensor, "sample"]


class Terms(NamedTuple):
    """The parts of the loss."""

    logps: Float[Tensor, "sample"]
    surrogate: Float[Tensor, ""]
    kl_penalty: Float[Tensor, ""]


class History(NamedTuple):
    """One row per rollout: everything before its update, and the logits after it."""

    reference: Float[Tensor, "rollout action"]
    scores: Float[Tensor, "rollout action"]
    actions: Int[Tensor, "rollout sample"]
    advantages: Float[Tensor, "rollout sample"]
    logps: Float[Tensor, "rollout sample"]
    surrogate: Float[Tensor, "rollout"]
    kl_penalty: Float[Tensor, "rollout"]
    loss: Float[Tensor, "rollout"]
    gradient: Float[Tensor, "rollout action"]
    gradient_advantages: Float[Tensor, "rollout sample"]
    gradient_reference: Float[Tensor, "rollout action"]
    logits: Float[Tensor, "rollout action"]


class Pieces(NamedTuple):
    """The replaceable parts of training."""

    loss: Callable[..., tuple[Float[Tensor, ""], Terms]]
    collect: Callable[..., Batch]
    update: Callable[..., State]


def reinforce_loss(
    logits: Float[Tensor, "action"],
    actions: Int[Tensor, "sample"],
    advantages: Float[Tensor, "sample"],
    reference: Float[Tensor, "action"],
    beta: Float[Tensor, ""],
) -> tuple[Float[Tensor, ""], Terms]:
    """Negative score-function surrogate plus the KL to the reference.

    L = -mean(log pi(a) A) + beta KL(pi || pi_ref)

    Its gradient, not its value, is of interest: -mean(A grad log pi(a)) estimates that of the
    negative expected reward.

    Args:
        logits: current policy, which also drew the actions.
        actions: sampled actions.
        advantages: reward of each sample less a baseline; frozen.
        reference: log-probs of the reference policy; frozen.
        beta: weight of the KL.

    Returns:
        The loss, and its parts: log-probs of the samples, surrogate, KL in nats.

    Source: Williams 1992, "Simple statistical gradient-following algorithms for connectionist
    reinforcement learning", section 4 (https://doi.org/10.1007/BF00992696); the KL is exact over
    the actions.
    """
    advantages = advantages.detach()
    reference = reference.detach()
    logps = torch.log_softmax(logits, dim=0)
    taken = logps[actions]
    surrogate = torch.mean(taken * advantages)
    kl_penalty = torch.sum(torch.exp(logps) * (logps - reference))
    return -surrogate + beta * kl_penalty, Terms(taken, surrogate, kl_penalty)


def collect(actions: Int[Tensor, "sample"], state: State) -> Batch:
    """Replays one rollout and freezes what its update must not change.

    The baseline of the advantage is exact: the expected score under the policy that acts.

    Args:
        actions: the rollout's actions, from the tape.
        state: the policy that acts, and the scores.

    Returns:
        The rollout with its advantages.
    """
    logps = torch.log_softmax(state.logits, dim=0)
    baseline = torch.sum(torch.exp(logps) * state.scores)
    advantages = state.scores[actions] - baseline
    return Batch(actions, advantages)


PIECES = Pieces(reinforce_loss, collect, update)
DERIVED = (0, 2, 3)  # logits, advantages, reference


def train(
    logits: Float[Tensor, "action"],
    reference_logits: Float[Tensor, "action"],
    scores: Float[Tensor, "action"],
    tape: Any,
    rate: Float[Tensor, ""],
    beta: Float[Tensor, ""],
    *,
    pieces: Pieces = PIECES,
) -> dict[str, Tensor]:
    """Trains the policy: per rollout one collection and one update on it.

    Args:
        logits: starting policy.
        reference_logits: reference policy.
        scores: reward of each action; frozen.
        tape: one entry per rollout, handed to `pieces.collect`: actions, or what draws them.
        rate: step size.
        beta: weight of the KL.
        pieces: the parts to train with.

    Returns:
        Name of a quantity to its values: both histories, and the final probabilities.
    """
    reference = torch.log_softmax(reference_logits, dim=0)
    state = State(logits, reference, scores, torch.zeros_like(logits))
    rows, checkpoints = [], [measure(state)]
    for entry in tape:
        before = state
        batch = pieces.collect(entry, before)
        loss, terms, gradients = differentiate(
            pieces.loss, (before.logits, *batch, before.reference, beta), DERIVED
        )
        state = pieces.update(before, gradients[0], rate)
        rows.append(
            History._make(
                (
                    before.reference,
                    before.scores,
                    *batch,
                    *terms,
                    loss,
                    state.gradient,
                    *gradients[1:],
                    state.logits,
                )
            )
        )
        checkpoints.append(measure(state))
    history = History(*(torch.stack(column) for column in zip(*rows, strict=True)))
    measures = Measures(*(torch.stack(column) for column in zip(*checkpoints, strict=True)))
    probabilities = torch.exp(torch.log_softmax(state.logits, dim=0))
    return {**history._asdict(), **measures._asdict(), "probabilities": probabilities}
