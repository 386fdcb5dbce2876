"""Signed, clipped PPO with an exact categorical KL on a one-step bandit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from parity.torch_impl.derivative import differentiate

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
    "ppo_loss",
    "train",
    "update",
]


class State(NamedTuple):
    """What training carries: the policy, what must not move, and the gradient last applied."""

    logits: Float[Tensor, "action"]
    reference: Float[Tensor, "action"]
    scores: Float[Tensor, "action"]
    gradient: Float[Tensor, "action"]


class Batch(NamedTuple):
    """One rollout: the actions and what was frozen when they were collected."""

    actions: Int[Tensor, "sample"]
    old_logps: Float[Tensor, "sample"]
    advantages: Float[Tensor, "sample"]


class Terms(NamedTuple):
    """The parts of the loss."""

    ratios: Float[Tensor, "sample"]
    surrogate: Float[Tensor, ""]
    kl_penalty: Float[Tensor, ""]


class History(NamedTuple):
    """One row per update: everything before it, and the logits after it."""

    reference: Float[Tensor, "rollout epoch action"]
    scores: Float[Tensor, "rollout epoch action"]
    old_logps: Float[Tensor, "rollout epoch sample"]
    advantages: Float[Tensor, "rollout epoch sample"]
    ratios: Float[Tensor, "rollout epoch sample"]
    surrogate: Float[Tensor, "rollout epoch"]
    kl_penalty: Float[Tensor, "rollout epoch"]
    loss: Float[Tensor, "rollout epoch"]
    gradient: Float[Tensor, "rollout epoch action"]
    gradient_old_logps: Float[Tensor, "rollout epoch sample"]
    gradient_advantages: Float[Tensor, "rollout epoch sample"]
    gradient_reference: Float[Tensor, "rollout epoch action"]
    logits: Float[Tensor, "rollout epoch action"]


class Measures(NamedTuple):
    """Exact expectations of the policy, once before the first rollout and after each."""

    expected_reward: Float[Tensor, "checkpoint"]
    reference_kl: Float[Tensor, "checkpoint"]


class Pieces(NamedTuple):
    """The replaceable parts of training."""

    loss: Callable[..., tuple[Float[Tensor, ""], Terms]]
    collect: Callable[..., Batch]
    update: Callable[..., State]


def ppo_loss(
    logits: Float[Tensor, "action"],
    old_logps: Float[Tensor, "sample"],
    actions: Int[Tensor, "sample"],
    advantages: Float[Tensor, "sample"],
    reference: Float[Tensor, "action"],
    beta: Float[Tensor, ""],
    clip: Float[Tensor, ""],
) -> tuple[Float[Tensor, ""], Terms]:
    """Negative signed clipped surrogate plus the KL to the reference.

    L = -mean(min(rho A, clip(rho, 1 - eps, 1 + eps) A)) + beta KL(pi || pi_ref),
    rho = pi(a) / pi_old(a)

    Args:
        logits: current policy.
        old_logps: log-probs of the samples under the behaviour policy; frozen.
        actions: sampled actions.
        advantages: advantage of each sample; frozen.
        reference: log-probs of the reference policy; frozen.
        beta: weight of the KL.
        clip: half-width eps of the ratio interval.

    Returns:
        The loss, and its parts: ratios, surrogate, KL in nats.

    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7
    (https://arxiv.org/abs/1707.06347); the KL is exact over the actions.
    """
    old_logps = old_logps.detach()
    advantages = advantages.detach()
    reference = reference.detach()
    logps = torch.log_softmax(logits, dim=0)
    ratios = torch.exp(logps[actions] - old_logps)
    clipped = torch.clamp(ratios, 1 - clip, 1 + clip)
    surrogate = torch.mean(torch.minimum(ratios * advantages, clipped * advantages))
    kl_penalty = torch.sum(torch.exp(logps) * (logps - reference))
    return -surrogate + beta * kl_penalty, Terms(ratios, surrogate, kl_penalty)


def collect(actions: Int[Tensor, "sample"], state: State) -> Batch:
    """Replays one rollout and freezes what its updates must not change.

    The advantage is the score less the exact expected score under the policy that acts.

    Args:
        actions: the rollout's actions, from the tape.
        state: the policy that acts, and the scores.

    Returns:
        The rollout with its old log-probs and advantages.
    """
    logps = torch.log_softmax(state.logits, dim=0)
    baseline = torch.sum(torch.exp(logps) * state.scores)
    advantages = state.scores[actions] - baseline
    return Batch(actions, logps[actions], advantages)


def update(state: State, gradient: Float[Tensor, "action"], rate: Float[Tensor, ""]) -> State:
    """One step of gradient descent; reference and scores stay as they are.

    Args:
        state: the state before the step.
        gradient: gradient of the loss in the logits.
        rate: step size.

    Returns:
        The state after the step, with the gradient that was applied.
    """
    logits = state.logits - rate * gradient
    return State(logits, state.reference, state.scores, gradient)


def measure(state: State) -> Measures:
    """Expected score and KL to the reference, exact over the actions.

    Args:
        state: the policy to be measured, with scores and reference.

    Returns:
        Expected score (in units of the score) and KL in nats.
    """
    logps = torch.log_softmax(state.logits, dim=0)
    expected_reward = torch.sum(torch.exp(logps) * state.scores)
    reference_kl = torch.sum(torch.exp(logps) * (logps - state.reference))
    return Measures(expected_reward, reference_kl)


PIECES = Pieces(ppo_loss, collect, update)
DERIVED = (0, 1, 3, 4)  # logits, old log-probs, advantages, reference


def train(
    logits: Float[Tensor, "action"],
    reference_logits: Float[Tensor, "action"],
    scores: Float[Tensor, "action"],
    tape: Any,
    rate: Float[Tensor, ""],
    beta: Float[Tensor, ""],
    clip: Float[Tensor, ""],
    *,
    epochs: int,
    pieces: Pieces = PIECES,
) -> dict[str, Tensor]:
    """Trains the policy: per rollout one collection, then `epochs` updates on it.

    Args:
        logits: starting policy.
        reference_logits: reference policy.
        scores: reward of each action; frozen.
        tape: one entry per rollout, handed to `pieces.collect`: actions, or what draws them.
        rate: step size.
        beta: weight of the KL.
        clip: half-width of the ratio interval.
        epochs: updates per rollout.
        pieces: the parts to train with.

    Returns:
        Name of a quantity to its values: the actions of every rollout, both histories, and the
        final probabilities.
    """
    reference = torch.log_softmax(reference_logits, dim=0)
    state = State(logits, reference, scores, torch.zeros_like(logits))
    actions, steps, checkpoints = [], [], [measure(state)]
    for entry in tape:
        batch = pieces.collect(entry, state)
        actions.append(batch.actions)
        for _ in range(epochs):
            before = state
            loss, terms, gradients = differentiate(
                pieces.loss,
                (
                    before.logits,
                    batch.old_logps,
                    batch.actions,
                    batch.advantages,
                    before.reference,
                    beta,
                    clip,
                ),
                DERIVED,
            )
            state = pieces.update(before, gradients[0], rate)
            steps.append(
                History._make(
                    (
                        before.reference,
                        before.scores,
                        batch.old_logps,
                        batch.advantages,
                        *terms,
                        loss,
                        state.gradient,
                        *gradients[1:],
                        state.logits,
                    )
                )
            )
        checkpoints.append(measure(state))
    stacked = (torch.stack(rows) for rows in zip(*steps, strict=True))
    history = History(*(rows.reshape(-1, epochs, *rows.shape[1:]) for rows in stacked))
    measures = Measures(*(torch.stack(rows) for rows in zip(*checkpoints, strict=True)))
    return {
        "actions": torch.stack(actions),
        **history._asdict(),
        **measures._asdict(),
        "probabilities": torch.exp(torch.log_softmax(state.logits, dim=0)),
    }
