"""Bradley-Terry preference loss and the fitting of a linear reward by gradient descent."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from parity.jax_impl.derivative import differentiate

__all__ = [
    "DERIVED",
    "PIECES",
    "History",
    "Pieces",
    "State",
    "Terms",
    "preference_loss",
    "train",
    "update",
]


class State(NamedTuple):
    """What gradient descent carries: the weights and the gradient that was last applied."""

    weights: Float[Array, "feature"]
    gradient: Float[Array, "feature"]


class Terms(NamedTuple):
    """The parts of the loss: it has none."""


class History(NamedTuple):
    """One row per update: loss and gradient before it, weights after it."""

    loss: Float[Array, "update"]
    gradient: Float[Array, "update feature"]
    weights: Float[Array, "update feature"]


class Pieces(NamedTuple):
    """The replaceable parts of training."""

    loss: Callable[..., tuple[Float[Array, ""], Terms]]
    update: Callable[..., State]


def preference_loss(
    weights: Float[Array, "feature"],
    chosen: Float[Array, "pair feature"],
    rejected: Float[Array, "pair feature"],
) -> tuple[Float[Array, ""], Terms]:
    """Negative log-likelihood of the preferences under a linear reward.

    L = mean softplus(-(x_chosen - x_rejected) . w)

    Args:
        weights: reward weights, one per feature.
        chosen: features of the preferred action of each pair.
        rejected: features of the other action of each pair.

    Returns:
        The mean loss in nats, and no parts.

    Source: Ouyang et al. 2022, "Training language models to follow instructions with human
    feedback", equation 1 (https://arxiv.org/abs/2203.02155).
    """
    margins = (chosen - rejected) @ weights
    return jnp.mean(jax.nn.softplus(-margins)), Terms()


def update(state: State, gradient: Float[Array, "feature"], rate: Float[Array, ""]) -> State:
    """One step of gradient descent.

    Args:
        state: weights before the step.
        gradient: gradient of the loss at those weights.
        rate: step size.

    Returns:
        The state after the step, with the gradient that was applied.
    """
    return State(state.weights - rate * gradient, gradient)


PIECES = Pieces(preference_loss, update)
DERIVED = (0,)  # weights


@partial(jax.jit, static_argnames=("updates", "pieces"))
def train(
    weights: Float[Array, "feature"],
    chosen: Float[Array, "pair feature"],
    rejected: Float[Array, "pair feature"],
    features: Float[Array, "action feature"],
    rate: Float[Array, ""],
    *,
    updates: int,
    pieces: Pieces = PIECES,
) -> dict[str, Array]:
    """Fits the reward by full-batch gradient descent.

    Args:
        weights: starting weights.
        chosen: features of the preferred action of each pair.
        rejected: features of the other action of each pair.
        features: one row of features per action.
        rate: step size.
        updates: number of steps.
        pieces: the parts to train with.

    Returns:
        Name of a quantity to its values: the history, and the fitted score of every action.
    """

    def step(state: State, _: None) -> tuple[State, History]:
        loss, _, (gradient,) = differentiate(
            pieces.loss, (state.weights, chosen, rejected), DERIVED
        )
        state = pieces.update(state, gradient, rate)
        return state, History(loss, state.gradient, state.weights)

    start = State(weights, jnp.zeros_like(weights))
    state, history = jax.lax.scan(step, start, None, length=updates)
    return {**history._asdict(), "scores": features @ state.weights}
