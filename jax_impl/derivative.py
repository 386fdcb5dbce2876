"""Value, parts and gradients of a loss."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import Array, Float

__all__ = ["differentiate"]


def differentiate(
    loss: Callable[..., Any], inputs: Sequence[Array], places: Sequence[int]
) -> tuple[Float[Array, ""], Any, Any]:
    """Value, parts and gradients of a loss.

    Args:
        loss: returns a scalar, or a scalar and its parts.
        inputs: its arguments, in their order.
        places: positions of those to differentiate in.

    Returns:
        The loss, its parts (an empty tuple where there are none), and one gradient for each place.
    """

    def parted(*given: Array) -> tuple[Array, Any]:
        result = loss(*given)
        return result if isinstance(result, tuple) else (result, ())

    derive = jax.value_and_grad(parted, argnums=tuple(places), has_aux=True)
    (value, terms), gradients = derive(*inputs)
    return value, terms, gradients
