"""Bradley-Terry preference loss and the fitting of a linear reward by gradient descent."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from parity.torch_impl.derivative import differentiate

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

    weights: Float[Tensor, "feature"]
    gradient: Float[Tensor, "feature"]


class Terms(NamedTuple):
    """The parts of the loss: it has none."""


class History(NamedTuple):
    """One row per update: loss and gradient before it, weights after it."""

    loss: Float[Tensor, "update"]
    gradient: Float[Tensor, "update feature"]
    weights: Float[Tensor, "update feature"]


class Pieces(NamedTuple):
    """The replaceable parts of training."""

    loss: Callable[..., tuple[Float[Tensor, ""], Terms]]
    update: Callable[..., State]


def preference_loss(
    weights: Float[Tensor, "feature"],
    chosen: Float[Tensor, "pair feature"],
    rejected: Float[Tensor, "pair feature"],
) -> tuple[Float[Tensor, ""], Terms]:
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
    return torch.mean(-torch.nn.functional.logsigmoid(margins)), Terms()


def update(state: State, gradient: Float[Tensor, "feature"], rate: Float[Tensor, ""]) -> State:
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


def train(
    weights: Float[Tensor, "feature"],
    chosen: Float[Tensor, "pair feature"],
    rejected: Float[Tensor, "pair feature"],
    features: Float[Tensor, "action feature"],
    rate: Float[Tensor, ""],
    *,
    updates: int,
    pieces: Pieces = PIECES,
) -> dict[str, Tensor]:
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
    state = State(weights, torch.zeros_like(weights))
    steps = []
    for _ in range(updates):
        loss, _, (gradient,) = differentiate(
            pieces.loss, (state.weights, chosen, rejected), DERIVED
        )
        state = pieces.update(state, gradient, rate)
        steps.append(History(loss, state.gradient, state.weights))
    history = History(*(torch.stack(rows) for rows in zip(*steps, strict=True)))
    return {**history._asdict(), "scores": features @ state.weights}
