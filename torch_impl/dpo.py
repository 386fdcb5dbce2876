"""Direct preference optimisation of a categorical policy."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from parity.torch_impl.derivative import differentiate

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

    logits: Float[Tensor, "action"]
    reference: Float[Tensor, "action"]
    gradient: Float[Tensor, "action"]


class Terms(NamedTuple):
    """The parts of the loss."""

    margins: Float[Tensor, "pair"]


class History(NamedTuple):
    """One row per update: everything before it, and the logits after it."""

    reference: Float[Tensor, "update action"]
    margins: Float[Tensor, "update pair"]
    loss: Float[Tensor, "update"]
    gradient: Float[Tensor, "update action"]
    gradient_reference: Float[Tensor, "update action"]
    logits: Float[Tensor, "update action"]


class Pieces(NamedTuple):
    """The replaceable parts of training."""

    loss: Callable[..., tuple[Float[Tensor, ""], Terms]]
    update: Callable[..., State]


def dpo_loss(
    logits: Float[Tensor, "action"],
    reference: Float[Tensor, "action"],
    chosen: Int[Tensor, "pair"],
    rejected: Int[Tensor, "pair"],
    beta: Float[Tensor, ""],
) -> tuple[Float[Tensor, ""], Terms]:
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
    reference = reference.detach()
    logps = torch.log_softmax(logits, dim=0)
    margins = (logps[chosen] - logps[rejected]) - (reference[chosen] - reference[rejected])
    return torch.mean(-torch.nn.functional.logsigmoid(beta * margins)), Terms(margins)


def update(state: State, gradient: Float[Tensor, "action"], rate: Float[Tensor, ""]) -> State:
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


def train(
    logits: Float[Tensor, "action"],
    reference_logits: Float[Tensor, "action"],
    chosen: Int[Tensor, "pair"],
    rejected: Int[Tensor, "pair"],
    rate: Float[Tensor, ""],
    beta: Float[Tensor, ""],
    *,
    updates: int,
    pieces: Pieces = PIECES,
) -> dict[str, Tensor]:
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
    reference = torch.log_softmax(reference_logits, dim=0)
    state = State(logits, reference, torch.zeros_like(logits))
    steps = []
    for _ in range(updates):
        before = state
        loss, terms, gradients = differentiate(
            pieces.loss, (before.logits, before.reference, chosen, rejected, beta), DERIVED
        )
        state = pieces.update(before, gradients[0], rate)
        steps.append(
            History._make(
                (
                    before.reference,
                    *terms,
                    loss,
                    state.gradient,
                    gradients[1],
                    state.logits,
                )
            )
        )
    history = History(*(torch.stack(rows) for rows in zip(*steps, strict=True)))
    _, terms = pieces.loss(state.logits, state.reference, chosen, rejected, beta)
    probabilities = torch.exp(torch.log_softmax(state.logits, dim=0))
    return {
        **history._asdict(),
        "final_margins": terms.margins,
        "probabilities": probabilities,
    }
