"""A NumPy function of the user's: it has values and no gradients."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity import oracle
from parity.points import Points
from parity.quantities import EVALUATED
from parity.trace import Trace, quantities_from

__all__ = [
    "arrays",
    "copied",
    "deriver",
    "evaluate",
    "op_by_op",
    "pieces",
    "restore",
    "same",
    "settings",
]

Array = NDArray[Any]
Call = Callable[[dict[str, Any], tuple[int, ...]], Any]

arrays = (np.ndarray, np.floating, np.integer, np.complexfloating)


class Pieces(NamedTuple):
    """What `evaluate` needs: the function and how it states its objective."""

    call: Call
    sign: str
    reduction: str
    policy: str
    shape: str
    kl: str


def copied(value: Array) -> Array:
    """What a function may be given without harm to ours."""
    return np.array(value)[()]


def same(value: Array, other: Array) -> bool:
    """Whether a function left its input as it was."""
    return np.array_equal(value, other, equal_nan=True)


def settings() -> dict[str, Any]:
    """The global settings that a loss has no business to change."""
    return {"NumPy's treatment of errors": np.geterr()}


def restore(before: Mapping[str, Any]) -> None:
    """Undoes what matters to the next call."""
    np.seterr(**before["NumPy's treatment of errors"])


def op_by_op() -> AbstractContextManager[None]:
    """NumPy has no other way."""
    return nullcontext()


def deriver(
    function: Callable[[dict[str, Any]], Any], names: tuple[str, ...]
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """A function's value; `names` must be empty, there are no gradients."""
    assert not names
    return lambda inputs, _weight=1.0: (function(dict(inputs)), {})


def pieces(
    call: Call,
    objective: str,  # noqa: ARG001  # the twins' signature: the points say which
    *,
    sign: str,
    reduction: str,
    policy: str,
    shape: str,
    kl: str,
    detached: bool,  # noqa: ARG001  # there are no gradients
) -> Pieces:
    """A user's function as `evaluate` wants it; arguments as in the twins' `adapt.pieces`."""
    return Pieces(call, sign, reduction, policy, shape, kl)


def evaluate(points: Points, dtype: str, pieces: Pieces) -> Trace:
    """Evaluates a function's value at fixed states.

    Args:
        points: the states.
        dtype: float32 or float64.
        pieces: the function.
    """
    inputs = {
        name: values if values.dtype.kind == "i" else values.astype(dtype)
        for name, values in points.inputs.items()
    }
    losses = []
    for row in zip(*inputs.values(), strict=True):
        with np.errstate(all="ignore"):
            losses.append(_loss(dict(zip(inputs, row, strict=True)), points.objective, pieces))
    values = {f"{points.objective}/loss": np.asarray(losses, dtype)}
    return Trace(
        implementation="numpy",
        dtype=dtype,
        quantities=quantities_from(values, EVALUATED),
        problem_digest=points.digest,
        environment={"numpy": np.__version__},
    )


def _loss(state: dict[str, Array], objective: str, pieces: Pieces) -> Any:
    inputs, padding, length = _OFFER[objective](state)
    if pieces.policy == "logps" and "logits" in inputs:
        inputs["logits"] = inputs["policy_logps"]
    places = np.arange(length)
    outer: tuple[int, ...] = (length,)
    mask = np.ones(length, next(iter(inputs.values())).dtype)
    if pieces.shape == "N,1":
        outer = (length, 1)
    elif pieces.shape == "B,T":
        width = (2 * length + 2) // 3
        outer = (2, width)
        places = np.where(places < length - width, places, places + 2 * width - length)
        mask = _padded(mask, 0.0, places, outer)
    for name, fill in padding.items():
        values = inputs[name]
        if pieces.shape == "B,T":
            values = _padded(values, fill, places, outer)
        inputs[name] = values.reshape(outer)
    inputs["mask"] = mask.reshape(outer)
    result = pieces.call(inputs, outer)
    if pieces.reduction == "per-sample":
        result = np.mean(result.reshape(-1)[places])
    elif pieces.reduction == "sum":
        result = result / length
    loss = -result if pieces.sign == "objective" else result
    if pieces.kl == "absent":
        logps = inputs["policy_logps"]
        loss = loss + state["beta"] * np.sum(np.exp(logps) * (logps - state["reference"]))
    return loss


def _padded(values: Array, fill: float, places: Array, outer: tuple[int, ...]) -> Array:
    full = np.full(int(np.prod(outer)), fill, values.dtype)
    full[places] = values
    return full


_Offer = tuple[dict[str, Array], dict[str, float], int]


def _offer_reward(state: dict[str, Array]) -> _Offer:
    scores = {f"{side}_scores": state[side] @ state["weights"] for side in ("chosen", "rejected")}
    padding = {"chosen_scores": 0.7, "rejected_scores": -0.4}
    return {**state, **scores}, padding, len(state["chosen"])


def _offer_sampled(state: dict[str, Array]) -> _Offer:
    logps, actions = oracle.log_softmax(state["logits"]), state["actions"]
    more = {
        "policy_logps": logps,
        "logps": logps[actions],
        "reference_logps": state["reference"][actions],
    }
    padding = {
        "logps": -0.5,
        "old_logps": -0.9,
        "actions": 0,
        "advantages": 2.0,
        "reference_logps": -1.3,
    }
    inputs = {**state, **more}
    return inputs, {name: fill for name, fill in padding.items() if name in inputs}, len(actions)


def _offer_pairs(state: dict[str, Array]) -> _Offer:
    logps, reference = oracle.log_softmax(state["logits"]), state["reference"]
    chosen, rejected = state["chosen"], state["rejected"]
    sided = {
        "chosen_logps": logps[chosen],
        "rejected_logps": logps[rejected],
        "reference_chosen_logps": reference[chosen],
        "reference_rejected_logps": reference[rejected],
    }
    padding = dict(zip(("chosen", "rejected", *sided), (0, 1, -0.5, -0.9, -1.3, -0.2), strict=True))
    return {**state, "policy_logps": logps, **sided}, padding, len(chosen)


_OFFER = {
    "reward": _offer_reward,
    "ppo": _offer_sampled,
    "dpo": _offer_pairs,
    "reinforce": _offer_sampled,
}
