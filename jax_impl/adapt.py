"""A function of the user's in place of an objective's loss."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jax_impl import ppo, reinforce
from jax_impl.backend import PIECES, Pieces

__all__ = ["arrays", "copied", "deriver", "pieces", "restore", "same", "settings"]

Call = Callable[[dict[str, Any], tuple[int, ...]], Any]

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


def pieces(
    call: Call,
    objective: str,
    *,
    sign: str,
    reduction: str,
    policy: str,
    shape: str,
    kl: str,
    detached: bool,
) -> Pieces:
    """The backend's pieces with a user's function as the loss of one objective.

    Args:
        call: takes our inputs by name and the shape of one value a sample; returns what the
            function returned.
        objective: reward, ppo, dpo or reinforce.
        sign: loss or objective.
        reduction: mean, sum or per-sample.
        policy: what is offered as `logits`: logits or logps.
        shape: N, N,1 or B,T.
        kl: inside or absent; an absent one is added.
        detached: the caller detaches what is frozen.
    """

    def value(inputs: dict[str, Array], samples: int, per_sample: Mapping[str, float]) -> Array:
        laid, places, outer = _laid_out(inputs, samples, per_sample, shape)
        result = call(laid, outer)
        if reduction == "per-sample":
            result = jnp.mean(result.reshape(-1)[places])
        elif reduction == "sum":
            result = result / samples
        loss: Array = -result if sign == "objective" else result
        return loss

    def kept(frozen: Array) -> Array:
        return jax.lax.stop_gradient(frozen) if detached else frozen

    def offered(logits: Array) -> tuple[Array, dict[str, Array]]:
        logps = jax.nn.log_softmax(logits)
        return logps, {
            "logits": logps if policy == "logps" else logits,
            "policy_logps": logps,
        }

    def penalty(logps: Array, reference: Array, beta: Array) -> Any:
        if kl == "inside":
            return 0.0
        return beta * jnp.sum(jnp.exp(logps) * (logps - jax.lax.stop_gradient(reference)))

    def reward_loss(weights: Array, chosen: Array, rejected: Array) -> Array:
        inputs = {
            "weights": weights,
            "chosen": chosen,
            "rejected": rejected,
            "chosen_scores": chosen @ weights,
            "rejected_scores": rejected @ weights,
        }
        return value(inputs, len(chosen), {"chosen_scores": 0.7, "rejected_scores": -0.4})

    def ppo_loss(
        logits: Array,
        old_logps: Array,
        actions: Array,
        advantages: Array,
        reference: Array,
        beta: Array,
        clip: Array,
    ) -> tuple[Array, ppo.Terms]:
        logps, inputs = offered(logits)
        inputs |= {
            "logps": logps[actions],
            "old_logps": kept(old_logps),
            "actions": actions,
            "advantages": kept(advantages),
            "reference": kept(reference),
            "reference_logps": kept(reference)[actions],
            "beta": beta,
            "clip": clip,
        }
        loss = value(inputs, len(actions), _PADDING) + penalty(logps, reference, beta)
        zero = jnp.zeros_like(beta)
        return loss, ppo.Terms(jnp.zeros_like(advantages), zero, zero)

    def dpo_loss(
        logits: Array, reference: Array, chosen: Array, rejected: Array, beta: Array
    ) -> tuple[Array, Array]:
        logps, inputs = offered(logits)
        inputs |= {
            "reference": kept(reference),
            "chosen": chosen,
            "rejected": rejected,
            "chosen_logps": logps[chosen],
            "rejected_logps": logps[rejected],
            "reference_chosen_logps": kept(reference)[chosen],
            "reference_rejected_logps": kept(reference)[rejected],
            "beta": beta,
        }
        loss = value(inputs, len(chosen), _PADDING_OF_PAIRS)
        return loss, jnp.zeros_like(logps[chosen])

    def reinforce_loss(
        logits: Array, actions: Array, advantages: Array, reference: Array, beta: Array
    ) -> tuple[Array, reinforce.Terms]:
        logps, inputs = offered(logits)
        inputs |= {
            "logps": logps[actions],
            "actions": actions,
            "advantages": kept(advantages),
            "reference": kept(reference),
            "reference_logps": kept(reference)[actions],
            "beta": beta,
        }
        loss = value(inputs, len(actions), _PADDING) + penalty(logps, reference, beta)
        zero = jnp.zeros_like(beta)
        return loss, reinforce.Terms(jnp.zeros_like(advantages), zero, zero)

    losses: dict[str, Any] = {
        "reward": reward_loss,
        "ppo": ppo_loss,
        "dpo": dpo_loss,
        "reinforce": reinforce_loss,
    }
    ours = getattr(PIECES, objective)
    return PIECES._replace(**{objective: ours._replace(loss=losses[objective])})


# What stands in padded places must change the result where a mask is forgotten.
_PADDING = {
    "logps": -0.5,
    "old_logps": -0.9,
    "actions": 0,
    "advantages": 2.0,
    "reference_logps": -1.3,
}
_PADDING_OF_PAIRS = {
    "chosen": 0,
    "rejected": 1,
    "chosen_logps": -0.5,
    "rejected_logps": -0.9,
    "reference_chosen_logps": -1.3,
    "reference_rejected_logps": -0.2,
}


def _laid_out(
    inputs: dict[str, Array], samples: int, per_sample: Mapping[str, float], shape: str
) -> tuple[dict[str, Array], Array, tuple[int, ...]]:
    """Gives what has one entry a sample its shape; with the places of the samples in it."""
    width = (2 * samples + 2) // 3  # of the second row, which is full; the first is mostly padding
    first = samples - width
    places = jnp.arange(samples)
    outer: tuple[int, ...] = (samples,)
    mask = jnp.ones(samples, dtype=next(iter(inputs.values())).dtype)
    if shape == "N,1":
        outer = (samples, 1)
    elif shape == "B,T":
        places = jnp.where(places < first, places, places - first + width)
        outer = (2, width)
        mask = jnp.zeros(2 * width, dtype=mask.dtype).at[places].set(mask)

    def laid(name: str, values: Array) -> Array:
        if shape == "B,T":
            full = jnp.full((2 * width,), per_sample[name], dtype=values.dtype)
            values = full.at[places].set(values)
        return values.reshape(outer)

    shaped = {name: laid(name, v) if name in per_sample else v for name, v in inputs.items()}
    return {**shaped, "mask": mask.reshape(outer)}, places, outer
