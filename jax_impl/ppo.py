"""Signed, clipped PPO with an exact categorical KL on a one-step bandit."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from parity.jax_impl.derivative import differentiate

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

    logits: Float[Array, "action"]
    reference: Float[Array, "action"]
    scores: Float[Array, "action"]
    gradient: Float[Array, "action"]


class Batch(NamedTuple):
    """One rollout: the actions and what was frozen when they were collected."""

    actions: Int[Array, "sample"]
    old_logps: Float[Array, "sample"]
    advantages: Float[Array, "sample"]


class Terms(NamedTuple):
    """The parts of the loss."""

    ratios: Float[Array, "sample"]
    surrogate: Float[Array, ""]
    kl_penalty: Float[Array, ""]


class History(NamedTuple):
    """One row per update: everything before it, and the logits after it."""

    reference: Float[Array, "rollout epoch action"]
    scores: Float[Array, "rollout epoch action"]
    old_logps: Float[Array, "rollout epoch sample"]
    advantages: Float[Array, "rollout epoch sample"]
    ratios: Float[Array, "rollout epoch sample"]
    surrogate: Float[Array, "rollout epoch"]
    kl_penalty: Float[Array, "rollout epoch"]
    loss: Float[Array, "rollout epoch"]
    gradient: Float[Array, "rollout epoch action"]
    gradient_old_logps: Float[Array, "rollout epoch sample"]
    gradient_advantages: Float[Array, "rollout epoch sample"]
    gradient_reference: Float[Array, "rollout epoch action"]
    logits: Float[Array, "rollout epoch action"]


class Measures(NamedTuple):
    """Exact expectations of the policy, once before the first rollout and after each."""

    expected_reward: Float[Array, "checkpoint"]
    reference_kl: Float[Array, "checkpoint"]


class Pieces(NamedTuple):
    """The replaceable parts of training."""

    loss: Callable[..., tuple[Float[Array, ""], Terms]]
    collect: Callable[..., Batch]
    update: Callable[..., State]


def ppo_loss(
    logits: Float[Array, "action"],
    old_logps: Float[Array, "sample"],
    actions: Int[Array, "sample"],
    advantages: Float[Array, "sample"],
    reference: Float[Array, "action"],
    beta: Float[Array, ""],
    clip: Float[Array, ""],
) -> tuple[Float[Array, ""], Terms]:
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
    old_logps = jax.lax.stop_gradient(old_logps)
    advantages = jax.lax.stop_gradient(advantages)
    reference = jax.lax.stop_gradient(reference)
    logps = jax.nn.log_softmax(logits)
    ratios = jnp.exp(logps[actions] - old_logps)
    clipped = jnp.clip(ratios, 1 - clip, 1 + clip)
    surrogate = jnp.mean(jnp.minimum(ratios * advantages, clipped * advantages))
    kl_penalty = jnp.sum(jnp.exp(logps) * (logps - reference))
    return -surrogate + beta * kl_penalty, Terms(ratios, surrogate, kl_penalty)


def collect(actions: Int[Array, "sample"], state: State) -> Batch:
    """Replays one rollout and freezes what its updates must not change.

    The advantage is the score less the exact expected score under the policy that acts.

    Args:
        actions: the rollout's actions, from the tape.
        state: the policy that acts, and the scores.

    Returns:
        The rollout with its old log-probs and advantages.
    """
    logps = jax.nn.log_softmax(state.logits)
    baseline = jnp.sum(jnp.exp(logps) * state.scores)
    advantages = state.scores[actions] - baseline
    return Batch(actions, logps[actions], advantages)


def update(state: State, gradient: Float[Array, "action"], rate: Float[Array, ""]) -> State:
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
    logps = jax.nn.log_softmax(state.logits)
    expected_reward = jnp.sum(jnp.exp(logps) * state.scores)
    reference_kl = jnp.sum(jnp.exp(logps) * (logps - state.reference))
    return Measures(expected_reward, reference_kl)


PIECES = Pieces(ppo_loss, collect, update)
DERIVED = (0, 1, 3, 4)  # logits, old log-probs, advantages, reference


@partial(jax.jit, static_argnames=("epochs", "pieces"))
def train(
    logits: Float[Array, "action"],
    reference_logits: Float[Array, "action"],
    scores: Float[Array, "action"],
    tape: Any,
    rate: Float[Array, ""],
    beta: Float[Array, ""],
    clip: Float[Array, ""],
    *,
    epochs: int,
    pieces: Pieces = PIECES,
) -> dict[str, Array]:
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

    def epoch(carry: tuple[State, Batch], _: None) -> tuple[tuple[State, Batch], History]:
        before, batch = carry
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
        return (state, batch), History._make(
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

    def rollout(state: State, entry: Any) -> tuple[State, Any]:
        batch = pieces.collect(entry, state)
        (state, batch), steps = jax.lax.scan(epoch, (state, batch), None, length=epochs)
        return state, (batch.actions, steps, measure(state))

    reference = jax.nn.log_softmax(reference_logits)
    start = State(logits, reference, scores, jnp.zeros_like(logits))
    state, (actions, history, measures) = jax.lax.scan(rollout, start, tape)
    first = measure(start)
    measures = Measures(*(jnp.append(at, rest) for at, rest in zip(first, measures, strict=True)))
    return {
        "actions": actions,
        **history._asdict(),
        **measures._asdict(),
        "probabilities": jnp.exp(jax.nn.log_softmax(state.logits)),
    }
