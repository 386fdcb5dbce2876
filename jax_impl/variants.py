"""The objectives with one part exchanged: what known bugs and rewrites are made of."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl import ppo

__all__ = [
    "Loss",
    "clipped",
    "collect_with",
    "descend",
    "dpo_loss_with",
    "kept",
    "kl",
    "log_softmax",
    "margins",
    "ppo_loss_with",
    "ratio",
    "reward_loss_with",
    "softplus",
    "stopped",
    "terms",
    "total",
]

Loss = Callable[..., Any]


def stopped(value: Any) -> Any:
    """A value through which no gradient passes."""
    return jax.lax.stop_gradient(value)


def kept(value: Any) -> Any:
    """Lets a gradient through where it must not pass."""
    return value


def ratio(logps: Any, actions: Any, old: Any) -> Any:
    """Probability ratios of the samples."""
    return jnp.exp(logps[actions] - old)


def clipped(ratios: Any, clip: Any) -> Any:
    """Ratios clipped to the interval."""
    return jnp.clip(ratios, 1 - clip, 1 + clip)


def terms(ratios: Any, advantages: Any, clip: Any) -> Any:
    """Surrogate of each sample."""
    return jnp.minimum(ratios * advantages, clipped(ratios, clip) * advantages)


def kl(logps: Any, reference: Any, _actions: Any) -> Any:
    """Exact KL to the reference."""
    return jnp.sum(jnp.exp(logps) * (logps - reference))


def total(surrogate: Any, kl: Any, beta: Any) -> Any:
    """The loss from its parts."""
    return -surrogate + beta * kl


def log_softmax(logits: Any) -> Any:
    """Log-probs from logits."""
    return jax.nn.log_softmax(logits)


def ppo_loss_with(
    *,
    logps: Callable[..., Any] = log_softmax,
    ratio: Callable[..., Any] = ratio,
    terms: Callable[..., Any] = terms,
    reduce: Callable[..., Any] = jnp.mean,
    kl: Callable[..., Any] = kl,
    total: Callable[..., Any] = total,
    freeze_old: Callable[..., Any] = stopped,
    freeze_advantages: Callable[..., Any] = stopped,
    freeze_reference: Callable[..., Any] = stopped,
) -> Loss:
    """Makes a PPO loss with one part exchanged."""

    def loss(
        logits: Any,
        old_logps: Any,
        actions: Any,
        advantages: Any,
        reference: Any,
        beta: Any,
        clip: Any,
    ) -> tuple[Any, ppo.Terms]:
        current = logps(logits)
        ratios = ratio(current, actions, freeze_old(old_logps))
        surrogate = reduce(terms(ratios, freeze_advantages(advantages), clip))
        penalty = kl(current, freeze_reference(reference), actions)
        return total(surrogate, penalty, beta), ppo.Terms(ratios, surrogate, penalty)

    return loss


def collect_with(
    *,
    logps: Callable[..., Any] = log_softmax,
    baseline: Callable[..., Any] = lambda lp, scores, _: jnp.sum(jnp.exp(lp) * scores),
    whiten: Callable[..., Any] = kept,
    old: Callable[..., Any] = lambda lp, actions, _: lp[actions],
    replayed: Callable[..., Any] = lambda actions, _: actions,
) -> Callable[..., ppo.Batch]:
    """Makes a `collect` with one part exchanged."""

    def collect(actions: Any, state: ppo.State) -> ppo.Batch:
        taken = replayed(actions, state)
        current = logps(state.logits)
        advantages = state.scores[taken] - baseline(current, state.scores, taken)
        return ppo.Batch(taken, old(current, taken, state), whiten(advantages))

    return collect


def descend(state: Any, step: Any, **changes: Any) -> Any:
    """The state after a step, with what else has changed."""
    return state._replace(logits=state.logits - step, **changes)


def margins(logps: Any, reference: Any, chosen: Any, rejected: Any) -> Any:
    """Reference-corrected margins of the pairs."""
    return (logps[chosen] - logps[rejected]) - (reference[chosen] - reference[rejected])


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return jax.nn.softplus(x)


def dpo_loss_with(
    *,
    margins: Callable[..., Any] = margins,
    losses: Callable[..., Any] = lambda z: softplus(-z),
    scale: Callable[..., Any] = lambda beta: beta,
    reduce: Callable[..., Any] = jnp.mean,
    freeze_reference: Callable[..., Any] = stopped,
) -> Loss:
    """Makes a DPO loss with one part exchanged."""

    def loss(logits: Any, reference: Any, chosen: Any, rejected: Any, beta: Any) -> tuple[Any, Any]:
        m = margins(log_softmax(logits), freeze_reference(reference), chosen, rejected)
        return reduce(losses(scale(beta) * m)), m

    return loss


def reward_loss_with(
    losses: Callable[..., Any] = lambda m: softplus(-m), reduce: Callable[..., Any] = jnp.mean
) -> Loss:
    """Makes a preference loss with one part exchanged."""
    return lambda weights, chosen, rejected: reduce(losses((chosen - rejected) @ weights))
