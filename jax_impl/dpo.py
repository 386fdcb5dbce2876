"""Direct preference optimisation of a categorical policy."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

__all__ = [
    "PIECES",
    "Gradients",
    "History",
    "Pieces",
    "State",
    "differentiate",
    "dpo_loss",
    "train",
    "update",
]


class State(NamedTuple):
    """What training carries: the policy, what must not move, and the gradient last applied."""

    logits: Float[Array, "action"]
    reference: Float[Array, "action"]
    gradient: Float[Array, "action"]


class Gradients(NamedTuple):
    """Derivatives of the loss: in the policy, and in the reference, which must be frozen."""

    logits: Float[Array, "action"]
    reference: Float[Array, "action"]


class History(NamedTuple):
    """One row per update: everything before it, and the logits after it."""

    reference: Float[Array, "update action"]
    margins: Float[Array, "update pair"]
    loss: Float[Array, "update"]
    gradient: Float[Array, "update action"]
    gradient_reference: Float[Array, "update action"]
    logits: Float[Array, "update action"]


class Pieces(NamedTuple):
    """The replaceable parts of training."""

    loss: Callable[..., tuple[Float[Array, ""], Float[Array, "pair"]]]
    update: Callable[..., State]


def dpo_loss(
    logits: Float[Array, "action"],
    reference: Float[Array, "action"],
    chosen: Int[Array, "pair"],
    rejected: Int[Array, "pair"],
    beta: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, "pair"]]:
    """Negative log-likelihood of the preferences under the reference-corrected margins.

    m = (log pi(c) - log pi(r)) - (log pi_ref(c) - log pi_ref(r)), L = mean softplus(-beta m)

    Args:
        logits: current policy.
        reference: log-probs of the reference policy; frozen.
        chosen: preferred action of each pair.
        rejected: other action of each pair.
        beta: scale of the margin.

    Returns:
        The mean loss in nats, and the margins.

    Source: Rafailov et al. 2023, "Direct Preference Optimization", equation 7
    (https://arxiv.org/abs/2305.18290).
    """
    reference = jax.lax.stop_gradient(reference)
    logps = jax.nn.log_softmax(logits)
    margins = (logps[chosen] - logps[rejected]) - (reference[chosen] - reference[rejected])
    return jnp.mean(jax.nn.softplus(-beta * margins)), margins


def update(state: State, gradient: Float[Array, "action"], rate: Float[Array, ""]) -> State:
    """One step of gradient descent; the reference stays as it is.

    Args:
        state: the state before the step.
        gradient: gradient of the loss in the logits.
        rate: step size.

    Returns:
        The state after the step, with the gradient that was applied.
    """
    logits = state.logits - rate * gradient
    return State(logits, state.reference, gradient)


PIECES = Pieces(dpo_loss, update)


def differentiate(
    loss: Callable[..., tuple[Float[Array, ""], Float[Array, "pair"]]],
    logits: Float[Array, "action"],
    reference: Float[Array, "action"],
    chosen: Int[Array, "pair"],
    rejected: Int[Array, "pair"],
    beta: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, "pair"], Gradients]:
    """Value, margins and gradients of a DPO loss.

    Args:
        loss: a function like `dpo_loss`.
        logits: current policy.
        reference: log-probs of the reference policy.
        chosen: preferred action of each pair.
        rejected: other action of each pair.
        beta: scale of the margin.

    Returns:
        The loss, the margins, and the gradients in logits and reference.
    """
    (value, margins), gradients = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(
        logits, reference, chosen, rejected, beta
    )
    return value, margins, Gradients(*gradients)


@partial(jax.jit, static_argnames=("updates", "pieces"))
def train(
    logits: Float[Array, "action"],
    reference_logits: Float[Array, "action"],
    chosen: Int[Array, "pair"],
    rejected: Int[Array, "pair"],
    rate: Float[Array, ""],
    beta: Float[Array, ""],
    *,
    updates: int,
    pieces: Pieces = PIECES,
) -> tuple[Float[Array, "action"], Float[Array, "pair"], History]:
    """Trains the policy by full-batch gradient descent.

    Args:
        logits: starting policy.
        reference_logits: reference policy.
        chosen: preferred action of each pair.
        rejected: other action of each pair.
        rate: step size.
        beta: scale of the margin.
        updates: number of steps.
        pieces: the parts to train with.

    Returns:
        The final probabilities, the final margins, and the history.
    """

    def step(before: State, _: None) -> tuple[State, History]:
        loss, margins, gradients = differentiate(
            pieces.loss, before.logits, before.reference, chosen, rejected, beta
        )
        state = pieces.update(before, gradients.logits, rate)
        return state, History(
            before.reference, margins, loss, state.gradient, gradients.reference, state.logits
        )

    reference = jax.nn.log_softmax(reference_logits)
    start = State(logits, reference, jnp.zeros_like(logits))
    state, history = jax.lax.scan(step, start, None, length=updates)
    _, margins = pieces.loss(state.logits, state.reference, chosen, rejected, beta)
    return jnp.exp(jax.nn.log_softmax(state.logits)), margins, history
