"""A function of the user's in place of an objective's loss."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["arrays", "copied", "deriver", "restore", "same", "settings"]

arrays: type = Tensor
"""What a function of this framework returns."""


def copied(value: Tensor) -> Tensor:
    """What a function may be given without harm to ours; gradients pass through it."""
    return value.clone()


def same(value: Tensor, other: Tensor) -> bool:
    """Whether a function left its input as it was."""
    return value.shape == other.shape and torch.equal(
        torch.nan_to_num(value.detach()), torch.nan_to_num(other.detach())
    )


def settings() -> dict[str, Any]:
    """The global settings that a loss has no business to change."""
    return {
        "torch's random state": torch.get_rng_state().tolist(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's gradient mode": torch.is_grad_enabled(),
    }


def restore(before: Mapping[str, Any]) -> None:
    """Undoes what matters to the next call."""
    torch.set_default_dtype(before["torch's default dtype"])
    torch.set_grad_enabled(before["torch's gradient mode"])


def deriver(
    function: Callable[[dict[str, Any]], Any], names: tuple[str, ...]
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """A function's value, and the derivatives of its sum, or a multiple, in some of its inputs.

    Args:
        function: takes its inputs by name.
        names: the inputs to differentiate in.
    """

    def derive(inputs: Mapping[str, Any], weight: float = 1.0) -> tuple[Any, dict[str, Any]]:
        given = {name: torch.from_numpy(value) for name, value in inputs.items()}
        variables = {name: given[name].requires_grad_() for name in names}
        value = function({**given, **{name: v.clone() for name, v in variables.items()}})
        if not value.requires_grad:  # of nothing, or of nothing that it depends on
            return value, {name: torch.zeros_like(v) for name, v in variables.items()}
        total = weight * torch.sum(value)
        gradients = torch.autograd.grad(
            total, tuple(variables.values()), allow_unused=True, materialize_grads=True
        )
        return value.detach(), dict(zip(names, gradients, strict=True))

    return derive
