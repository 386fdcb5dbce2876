"""Value, parts and gradients of a loss."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["differentiate"]


def differentiate(
    loss: Callable[..., Any], inputs: Sequence[Tensor], places: Sequence[int]
) -> tuple[Float[Tensor, ""], Any, Any]:
    """Value, parts and gradients of a loss.

    Args:
        loss: returns a scalar, or a scalar and its parts.
        inputs: its arguments, in their order.
        places: positions of those to differentiate in.

    Returns:
        The loss, its parts (an empty tuple where there are none), and one gradient for each place.
    """
    given = list(inputs)
    for place in places:
        given[place] = given[place].detach().requires_grad_()
    result = loss(*given)
    value, terms = result if isinstance(result, tuple) else (result, ())
    variables = [given[place] for place in places]
    gradients = torch.autograd.grad(value, variables, allow_unused=True, materialize_grads=True)
    if hasattr(terms, "_fields"):
        terms = type(terms)(*(term.detach() for term in terms))
    return value.detach(), terms, gradients
