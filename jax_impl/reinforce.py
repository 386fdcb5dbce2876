"""Score-function policy gradient with an exact categorical KL on a one-step bandit."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from parity.jax_impl.derivative import differentiate
from parity.jax_impl.ppo import Measures, State, measure, update

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

    actions: Int[Array, "sample"]
    advantages: Float[Array, "sample"]


class Terms(NamedTuple):
    """The parts of the loss."""

    logps: Float[Array, "sample"]
    surrogate: Float[Array, ""]
    kl_penalty: Float[Array, ""]


class History(NamedTuple):
    """One row per rollout: everything before its update, and the logits after it."""

    reference: Float[Array, "rollout action"]
    scores: Float[Array, "rollout action"]
    actions: Int[Array, "rollout sample"]
    advantages: Float[Array, "rollout sample"]
    logps: Float[Array, "rollout sample"]
    surrogate: Float[Array, "rollout"]
    kl_penalty: Float[Array, "rollout"]
    loss: Float[Array, "rollout"]
    gradient: Float[Array, "rollout action"]
    gradient_advantages: Float[Array, "rollout sample"]
    gradient_reference: Float[Array, "rollout action"]
    logits: Float[Array, "rollout action"]


class Pieces(NamedTuple):
    """The replaceable parts of training."""

    loss: Callable[..., tuple[Float[Array, ""], Terms]]
    collect: Callable[..., Batch]
    update: Callable[..., State]


def reinforce_loss(
    logits: Float[Array, "action"],
    actions: Int[Array, "sample"],
    advantages: Float[Array, "sample"],
    reference: Float[Array, "action"],
    beta: Float[Array, ""],
) -> tuple[Float[Array, ""], Terms]:
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
    advantages = jax.lax.stop_gradient(advantages)
    reference = jax.lax.stop_gradient(reference)
    logps = jax.nn.log_softmax(logits)
    taken = logps[actions]
    surrogate = jnp.mean(taken * advantages)
    kl_penalty = jnp.sum(jnp.exp(logps) * (logps - reference))
    return -surrogate + beta * kl_penalty, Terms(taken, surrogate, kl_penalty)


def collect(actions: Int[Array, "sample"], state: State) -> Batch:
    """Replays one rollout and freezes what its update must not change.

    The baseline of the advantage is exact: the expected score under the policy that acts.

    Args:
        actions: the rollout's actions, from the tape.
        state: the policy that acts, and the scores.

    Returns:
        The rollout with its advantages.
    """
    logps = jax.nn.log_softmax(state.logits)
    baseline = jnp.sum(jnp.exp(logps) * state.scores)
    advantages = state.scores[actions] - baseline
    return Batch(actions, advantages)


PIECES = Pieces(reinforce_loss, collect, update)
DERIVED = (0, 2, 3)  # logits, advantages, reference


@partial(jax.jit, static_argnames=("pieces",))
def train(
    logits: Float[Array, "action"],
    reference_logits: Float[Array, "action"],
    scores: Float[Array, "action"],
    tape: Any,
    rate: Float[Array, ""],
    beta: Float[Array, ""],
    *,
    pieces: Pieces = PIECES,
) -> dict[str, Array]:
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

    def rollout(before: State, entry: Any) -> tuple[State, tuple[History, Measures]]:
        batch = pieces.collect(entry, before)
        loss, terms, gradients = differentiate(
            pieces.loss, (before.logits, *batch, before.reference, beta), DERIVED
        )
        state = pieces.update(before, gradients[0], rate)
        row = History._make(
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
        return state, (row, measure(state))

    reference = jax.nn.log_softmax(reference_logits)
    start = State(logits, reference, scores, jnp.zeros_like(logits))
    state, (history, measures) = jax.lax.scan(rollout, start, tape)
    first = measure(start)
    measures = Measures(*(jnp.append(at, rest) for at, rest in zip(first, measures, strict=True)))
    probabilities = jnp.exp(jax.nn.log_softmax(state.logits))
    return {**history._asdict(), **measures._asdict(), "probabilities": probabilities}
