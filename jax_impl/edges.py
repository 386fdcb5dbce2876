"""Single samples of the PPO loss, and what happens at the edges: kinks, overflow, thresholds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from parity.jax_impl import ppo, reward
from parity.jax_impl.backend import planted
from parity.jax_impl.derivative import differentiate

__all__ = ["Rows", "cells", "float32_edge", "gradient", "kinks", "softplus"]

Rows = dict[str, Array]


def gradient(function: Callable[..., Array], x: Float[Array, ""] | Float[Array, "n"]) -> Array:
    """Derivative of a scalar function of one input.

    Args:
        function: returns a scalar.
        x: where.

    Returns:
        The derivative, of the shape of x.
    """
    derivative: Array = jax.grad(function)(x)
    return derivative


def cells(
    loss: Callable[..., Any],
    logits: Float[Array, "action"],
    old_logps: Float[Array, "cell"],
    actions: Int[Array, "cell"],
    advantages: Float[Array, "cell"],
    clip: Float[Array, ""],
) -> tuple[Float[Array, "cell"], Float[Array, "cell"]]:
    """Each sample alone: its surrogate term, and how hard a step pushes its logit up.

    Args:
        loss: a function like `ppo.ppo_loss`.
        logits: current policy.
        old_logps: log-prob of each sample under the behaviour policy.
        actions: sampled actions.
        advantages: advantage of each sample.
        clip: half-width of the ratio interval.

    Returns:
        The terms min(rho A, clip(rho) A), and minus the gradient in the sampled action's logit.
    """
    reference = jax.nn.log_softmax(logits)

    def cell(old: Array, action: Array, advantage: Array) -> tuple[Array, Array]:
        sample = (old[None], action[None], advantage[None])
        given = (logits, *sample, reference, jnp.zeros_like(clip), clip)
        _, parts, gradients = differentiate(loss, given, ppo.DERIVED)
        return parts.surrogate, -gradients[0][action]

    terms, pushes = jax.vmap(cell)(old_logps, actions, advantages)
    return terms, pushes


def kinks(
    bounds: Float[Array, "2"],
    logits: Float[Array, "action"],
    actions: Int[Array, "1"],
    advantages: Float[Array, "1"],
    clip: Float[Array, ""],
) -> Rows:
    """Slopes at corners, and the push of a sample whose ratio is exactly 1.

    Args:
        bounds: of the clip whose slopes are taken, at those bounds.
        logits: current policy, which is the old one too.
        actions: the sampled action.
        advantages: its advantage.
        clip: half-width of the interval inside which the ratio lies; at width 0 it is on both
            bounds.

    Returns:
        The rows of `kinks`.
    """
    low, high = bounds
    old_logps = jax.nn.log_softmax(logits)[actions]  # so that the ratio is exactly 1
    edges = [
        cells(ppo.ppo_loss, logits, old_logps, actions, advantages, width)
        for width in (clip, jnp.zeros_like(clip))
    ]
    return {
        "inside": edges[0][1],
        "clip": jnp.stack([gradient(lambda x: jnp.clip(x, low, high), at) for at in bounds]),
        "tie": gradient(lambda x: jnp.minimum(x, high), high),
        "absolute": gradient(jnp.abs, jnp.zeros_like(low)),
        "edge": edges[1][1],
    }


def softplus(margins: Float[Array, "margin"], beyond: Float[Array, ""]) -> Rows:
    """The preference loss where naive spellings overflow, and the tail of softplus in float64.

    Args:
        margins: where the loss is taken in float32; the last one is for the naive spelling too.
        beyond: a number above the threshold at which a softplus may turn into a straight line.

    Returns:
        The rows of `softplus`.
    """

    def loss(function: Callable[..., Any], margin: Float[Array, ""]) -> Array:
        ones = jnp.ones_like(margin)
        value: Array = function(ones[None], margin[None, None], 0 * margin[None, None])[0]
        return value

    naive = planted("reward", "reward-log-one-plus-exp").loss
    with jax.enable_x64(True):
        wide = jnp.asarray(beyond, jnp.float64)
        tails = [jax.nn.softplus(wide) - wide, loss(reward.preference_loss, -wide) - wide]
    return {
        "stable": jnp.stack([loss(reward.preference_loss, margin) for margin in margins]),
        "naive": loss(naive, margins[-1]),
        "builtin": tails[0],
        "ours": tails[1],
    }


def float32_edge(
    logits: Float[Array, "action"],
    log_ratios: Float[Array, "cell"],
    actions: Int[Array, "cell"],
    advantages: Float[Array, "cell"],
    clip: Float[Array, ""],
    tiny: Float[Array, ""],
) -> Rows:
    """Log-ratios below and beyond what float32 can hold.

    Args:
        logits: current policy.
        log_ratios: of each sample to the behaviour policy: first below, then beyond.
        actions: sampled actions.
        advantages: advantage of each sample.
        clip: half-width of the ratio interval.
        tiny: a number whose exp is subnormal.

    Returns:
        The rows of `float32-edge`.
    """
    old_logps = jax.nn.log_softmax(logits)[actions] - log_ratios
    terms, pushes = cells(ppo.ppo_loss, logits, old_logps, actions, advantages, clip)
    return {"terms": terms, "held": pushes[:1], "lost": pushes[1:], "flushed": jnp.exp(tiny)}
