"""Direct preference optimisation of a categorical policy."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from parity.jax_impl.derivative import differentiate

__all__ = [
    "DERIVED",
    "PIECES",
    "History",
    "Pieces",
    "State",
    "Terms",
    "dpo_loss",
    "train",
    "update",
]


class State(NamedTuple):
    """What training carries: the policy, what must not move, and the gradient last applied."""

    logits: Float[Array, "action"]
    reference: Float[Array, "action"]
    gradient: Float[Array, "action"]


class Terms(NamedTuple):
    """The parts of the loss."""

    margins: Float[Array, "pair"]


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

    loss: Callable[..., tuple[Float[Array, ""], Terms]]
    update: Callable[..., State]


def dpo_loss(
    logits: Float[Array, "action"],
    reference: Float[Array, "action"],
    chosen: Int[Array, "pair"],
    rejected: Int[Array, "pair"],
    beta: Float[Array, ""],
) -> tuple[Float[Array, ""], Terms]:
    """Negative log-likelihood of the preferences under the reference-corrected margins.

    m = (log pi(c) - log pi(r)) - (log pi_ref(c) - log pi_ref(r)), L = mean softplus(-beta m)

    Args:
        logits: current policy.
        reference: log-probs of the reference policy; frozen.
        chosen: preferred action of each pair.
        rejected: other action of each pair.
        beta: scale of the margin.

    Returns:
        The mean loss in nats, and its parts: the margins.

    Source: Rafailov et al. 2023, "Direct Preference Optimization", equation 7
    (https://arxiv.org/abs/2305.18290).
    """
    reference = jax.lax.stop_gradient(reference)
    logps = jax.nn.log_softmax(logits)
    margins = (logps[chosen] - logps[rejected]) - (reference[chosen] - reference[rejected])
    return jnp.mean(jax.nn.softplus(-beta * margins)), Terms(margins)


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
DERIVED = (0, 1)  # logits, reference


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
) -> dict[str, Array]:
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
        Name of a quantity to its values: the history, the final margins and probabilities.
    """

    def step(before: State, _: None) -> tuple[State, History]:
        loss, terms, gradients = differentiate(
            pieces.loss, (before.logits, before.reference, chosen, rejected, beta), DERIVED
        )
        state = pieces.update(before, gradients[0], rate)
        return state, History._make(
            (
                before.reference,
                *terms,
                loss,
                state.gradient,
                gradients[1],
                state.logits,
            )
        )

    reference = jax.nn.log_softmax(reference_logits)
    start = State(logits, reference, jnp.zeros_like(logits))
    state, history = jax.lax.scan(step, start, None, length=updates)
    _, terms = pieces.loss(state.logits, state.reference, chosen, rejected, beta)
    probabilities = jnp.exp(jax.nn.log_softmax(state.logits))
    return {
        **history._asdict(),
        "final_margins": terms.margins,
        "probabilities": probabilities,
    }
