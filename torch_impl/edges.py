"""Single samples of the PPO loss, and what happens at the edges: kinks, overflow, thresholds."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from parity.torch_impl import ppo, reward
from parity.torch_impl.backend import planted
from parity.torch_impl.derivative import differentiate

__all__ = ["Rows", "cells", "float32_edge", "gradient", "kinks", "softplus"]

Rows = dict[str, Tensor]


def gradient(function: Callable[..., Tensor], x: Float[Tensor, ""] | Float[Tensor, "n"]) -> Tensor:
    """Derivative of a scalar function of one input.

    Args:
        function: returns a scalar.
        x: where.

    Returns:
        The derivative, of the shape of x.
    """
    variable = x.detach().requires_grad_()
    (derivative,) = torch.autograd.grad(function(variable), variable)
    return derivative


def cells(
    loss: Callable[..., Any],
    logits: Float[Tensor, "action"],
    old_logps: Float[Tensor, "cell"],
    actions: Int[Tensor, "cell"],
    advantages: Float[Tensor, "cell"],
    clip: Float[Tensor, ""],
) -> tuple[Float[Tensor, "cell"], Float[Tensor, "cell"]]:
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
    reference = torch.log_softmax(logits, dim=0)

    def cell(old: Tensor, action: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
        sample = (old[None], action[None], advantage[None])
        given = (logits, *sample, reference, torch.zeros_like(clip), clip)
        _, parts, gradients = differentiate(loss, given, ppo.DERIVED)
        return parts.surrogate, -gradients[0][action]

    rows = [cell(*given) for given in zip(old_logps, actions, advantages, strict=True)]
    terms, pushes = (torch.stack(column) for column in zip(*rows, strict=True))
    return terms, pushes


def kinks(
    bounds: Float[Tensor, "2"],
    logits: Float[Tensor, "action"],
    actions: Int[Tensor, "1"],
    advantages: Float[Tensor, "1"],
    clip: Float[Tensor, ""],
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
    old_logps = torch.log_softmax(logits, dim=0)[actions]  # so that the ratio is exactly 1
    edges = [
        cells(ppo.ppo_loss, logits, old_logps, actions, advantages, width)
        for width in (clip, torch.zeros_like(clip))
    ]
    return {
        "inside": edges[0][1],
        "clip": torch.stack([gradient(lambda x: torch.clamp(x, low, high), at) for at in bounds]),
        "tie": gradient(lambda x: torch.minimum(x, high), high),
        "absolute": gradient(torch.abs, torch.zeros_like(low)),
        "edge": edges[1][1],
    }


def softplus(margins: Float[Tensor, "margin"], beyond: Float[Tensor, ""]) -> Rows:
    """The preference loss where naive spellings overflow, and the tail of softplus in float64.

    Args:
        margins: where the loss is taken in float32; the last one is for the naive spelling too.
        beyond: a number above the threshold at which a softplus may turn into a straight line.

    Returns:
        The rows of `softplus`.
    """

    def loss(function: Callable[..., Any], margin: Float[Tensor, ""]) -> Tensor:
        ones = torch.ones_like(margin)
        value: Tensor = function(ones[None], margin[None, None], 0 * margin[None, None])[0]
        return value

    naive = planted("reward", "reward-log-one-plus-exp").loss
    wide = beyond.double()
    tails = [
        torch.nn.functional.softplus(wide) - wide,
        loss(reward.preference_loss, -wide) - wide,
    ]
    return {
        "stable": torch.stack([loss(reward.preference_loss, margin) for margin in margins]),
        "naive": loss(naive, margins[-1]),
        "builtin": tails[0],
        "ours": tails[1],
    }


def float32_edge(
    logits: Float[Tensor, "action"],
    log_ratios: Float[Tensor, "cell"],
    actions: Int[Tensor, "cell"],
    advantages: Float[Tensor, "cell"],
    clip: Float[Tensor, ""],
    tiny: Float[Tensor, ""],
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
    old_logps = torch.log_softmax(logits, dim=0)[actions] - log_ratios
    terms, pushes = cells(ppo.ppo_loss, logits, old_logps, actions, advantages, clip)
    return {"terms": terms, "held": pushes[:1], "lost": pushes[1:], "flushed": torch.exp(tiny)}
