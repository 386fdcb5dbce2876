"""A function of the user's in place of an objective's loss."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from torch_impl import ppo, reinforce
from torch_impl.backend import PIECES, Pieces

__all__ = ["arrays", "copied", "deriver", "pieces", "restore", "same", "settings"]

Call = Callable[[dict[str, Any], tuple[int, ...]], Any]

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

    def value(inputs: dict[str, Tensor], samples: int, per_sample: Mapping[str, float]) -> Tensor:
        laid, places, outer = _laid_out(inputs, samples, per_sample, shape)
        result = call(laid, outer)
        if reduction == "per-sample":
            result = torch.mean(result.reshape(-1)[places])
        elif reduction == "sum":
            result = result / samples
        loss: Tensor = -result if sign == "objective" else result
        return loss

    def kept(frozen: Tensor) -> Tensor:
        return frozen.detach() if detached else frozen

    def offered(logits: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logps = torch.log_softmax(logits, dim=0)
        return logps, {
            "logits": logps if policy == "logps" else logits,
            "policy_logps": logps,
        }

    def penalty(logps: Tensor, reference: Tensor, beta: Tensor) -> Any:
        if kl == "inside":
            return 0.0
        return beta * torch.sum(torch.exp(logps) * (logps - reference.detach()))

    def reward_loss(weights: Tensor, chosen: Tensor, rejected: Tensor) -> Tensor:
        inputs = {
            "weights": weights,
            "chosen": chosen,
            "rejected": rejected,
            "chosen_scores": chosen @ weights,
            "rejected_scores": rejected @ weights,
        }
        return value(inputs, len(chosen), {"chosen_scores": 0.7, "rejected_scores": -0.4})

    def ppo_loss(
        logits: Tensor,
        old_logps: Tensor,
        actions: Tensor,
        advantages: Tensor,
        reference: Tensor,
        beta: Tensor,
        clip: Tensor,
    ) -> tuple[Tensor, ppo.Terms]:
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
        zero = torch.zeros_like(beta)
        return loss, ppo.Terms(torch.zeros_like(advantages), zero, zero)

    def dpo_loss(
        logits: Tensor, reference: Tensor, chosen: Tensor, rejected: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
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
        return loss, torch.zeros_like(logps[chosen])

    def reinforce_loss(
        logits: Tensor, actions: Tensor, advantages: Tensor, reference: Tensor, beta: Tensor
    ) -> tuple[Tensor, reinforce.Terms]:
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
        zero = torch.zeros_like(beta)
        return loss, reinforce.Terms(torch.zeros_like(advantages), zero, zero)

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
    inputs: dict[str, Tensor], samples: int, per_sample: Mapping[str, float], shape: str
) -> tuple[dict[str, Tensor], Tensor, tuple[int, ...]]:
    """Gives what has one entry a sample its shape; with the places of the samples in it."""
    width = (2 * samples + 2) // 3  # of the second row, which is full; the first is mostly padding
    first = samples - width
    places = torch.arange(samples)
    outer: tuple[int, ...] = (samples,)
    mask = torch.ones(samples, dtype=next(iter(inputs.values())).dtype)
    if shape == "N,1":
        outer = (samples, 1)
    elif shape == "B,T":
        places = torch.where(places < first, places, places - first + width)
        outer = (2, width)
        mask = torch.zeros(2 * width, dtype=mask.dtype).index_put((places,), mask)

    def laid(name: str, values: Tensor) -> Tensor:
        if shape == "B,T":
            full = torch.full((2 * width,), per_sample[name], dtype=values.dtype)
            values = full.index_put((places,), values)
        return values.reshape(outer)

    shaped = {name: laid(name, v) if name in per_sample else v for name, v in inputs.items()}
    return {**shaped, "mask": mask.reshape(outer)}, places, outer
