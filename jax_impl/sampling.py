"""A `collect` that draws actions from a seed: drawing is training with this piece."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

from parity.jax_impl import ppo

__all__ = ["drawing", "tape"]

Batch = TypeVar("Batch")


def tape(seed: int, rollouts: int) -> Any:
    """Returns what draws each rollout, in order.

    The key is split once per rollout; the second half draws.

    Args:
        seed: seed of the run.
        rollouts: how many to draw.

    Returns:
        One source of randomness per rollout.
    """
    key = jax.random.key(seed)

    def split(key: Any, _: None) -> tuple[Any, Any]:
        following, draw = jax.random.split(key)
        return following, draw

    return jax.lax.scan(split, key, None, length=rollouts)[1]


def drawing(samples: int, collect: Callable[..., Batch]) -> Callable[[Any, ppo.State], Batch]:
    """Makes a `collect` that draws from the current policy.

    Args:
        samples: actions per rollout.
        collect: what freezes the drawn actions, e.g. `ppo.collect`.

    Returns:
        A function of one tape entry and the state, in the place of `collect`.
    """

    def drawn(draw: Any, state: ppo.State) -> Batch:
        logps = jax.nn.log_softmax(state.logits)
        actions = jax.random.categorical(draw, logps, shape=(samples,))
        return collect(actions, state)

    return drawn
