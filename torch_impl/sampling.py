"""A `collect` that draws actions from a seed: drawing is training with this piece."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from parity.torch_impl import ppo

__all__ = ["drawing", "tape"]

Batch = TypeVar("Batch")


def tape(seed: int, rollouts: int) -> Any:
    """Returns what draws each rollout, in order.

    One generator serves all rollouts, one after the other.

    Args:
        seed: seed of the run.
        rollouts: how many to draw.

    Returns:
        One source of randomness per rollout.
    """
    generator = torch.Generator().manual_seed(seed)
    return [generator] * rollouts


def drawing(samples: int, collect: Callable[..., Batch]) -> Callable[[Any, ppo.State], Batch]:
    """Makes a `collect` that draws from the current policy.

    Args:
        samples: actions per rollout.
        collect: what freezes the drawn actions, e.g. `ppo.collect`.

    Returns:
        A function of one tape entry and the state, in the place of `collect`.
    """

    def drawn(draw: Any, state: ppo.State) -> Batch:
        logps = torch.log_softmax(state.logits, dim=0)
        actions = torch.multinomial(logps.exp(), samples, replacement=True, generator=draw)
        return collect(actions, state)

    return drawn
