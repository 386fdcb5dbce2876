"""A function of the user's in place of an objective's loss."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["arrays", "copied", "deriver", "restore", "same", "settings"]

arrays: type = Array
"""What a function of this framework returns."""


def copied(value: Array) -> Array:
    """What a function may be given without harm to ours; gradients pass through it."""
    return value


def same(value: Array, other: Array) -> bool:
    """Whether a function left its input as it was."""
    return value is other


def settings() -> dict[str, Any]:
    """The global settings that a loss has no business to change."""
    return {"JAX's default dtype": str(jnp.asarray(0.0).dtype)}


def restore(before: Mapping[str, Any]) -> None:
    """Undoes what matters to the next call."""
    wide = before["JAX's default dtype"] == "float64"
    jax.config.update("jax_enable_x64", wide)  # type: ignore[no-untyped-call]  # JAX's own


def deriver(
    function: Callable[[dict[str, Any]], Any], names: tuple[str, ...]
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """A function's value, and the derivatives of its sum, or a multiple, in some of its inputs.

    Args:
        function: takes its inputs by name.
        names: the inputs to differentiate in.
    """

    def total(variables: dict[str, Any], others: dict[str, Any], weight: float) -> tuple[Any, Any]:
        value = function({**others, **variables})
        return weight * jnp.sum(value), value

    compiled = jax.jit(jax.value_and_grad(total, has_aux=True))

    def derive(inputs: Mapping[str, Any], weight: float = 1.0) -> tuple[Any, dict[str, Any]]:
        given = {name: jnp.asarray(value) for name, value in inputs.items()}
        variables = {name: given.pop(name) for name in names}
        (_, value), gradients = compiled(variables, given, weight)
        return value, gradients

    return derive
