"""rlax's losses, called with our inputs."""

import jax.numpy as jnp
import rlax
from jax import Array

__all__ = ["ppo", "reinforce"]


def ppo(
    logits: Array,
    old_logps: Array,
    actions: Array,
    advantages: Array,
    reference: Array,
    beta: Array,
    clip: Array,
) -> Array:
    """`clipped_surrogate_pg_loss` + beta `categorical_kl_divergence`.

    The ratios are the caller's. `categorical_importance_sampling_ratios` would want the whole
    behaviour policy; a tape holds the log-probs of what was drawn.
    """
    ratios = jnp.exp(rlax.softmax().logprob(actions, _rows(logits, actions)) - old_logps)
    surrogate = rlax.clipped_surrogate_pg_loss(ratios, advantages, clip)
    loss: Array = surrogate + beta * rlax.categorical_kl_divergence(logits, reference)
    return loss


def reinforce(
    logits: Array, actions: Array, advantages: Array, reference: Array, beta: Array
) -> Array:
    """`policy_gradient_loss`, every step of weight 1, + beta `categorical_kl_divergence`."""
    weights = jnp.ones_like(advantages)
    score = rlax.policy_gradient_loss(_rows(logits, actions), actions, advantages, weights)
    loss: Array = score + beta * rlax.categorical_kl_divergence(logits, reference)
    return loss


def _rows(logits: Array, actions: Array) -> Array:
    """One state for each action, as rlax wants it."""
    return jnp.tile(logits, (len(actions), 1))
