"""Honest float32 gradients of PPO and REINFORCE, which add in other orders."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.points import Points

__all__ = ["PROGRAMS"]


def loss(xp: Any, log_softmax: Any, i: dict[str, Any], picked: Callable[..., Any]) -> Any:
    """PPO's loss where there are old log-probs, else REINFORCE's."""
    logps = log_softmax(i["logits"])
    terms = taken = picked(i["logits"], logps, i["actions"])
    if "old_logps" in i:
        terms = ratios = xp.exp(taken - i["old_logps"])
        clipped = xp.clip(ratios, 1 - i["clip"], 1 + i["clip"])
        terms = xp.minimum(ratios * i["advantages"], clipped * i["advantages"])
    else:
        terms = taken * i["advantages"]
    return i["beta"] * (xp.exp(logps) * (logps - i["reference"])).sum() - terms.mean()


def _states(points: Points, convert: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    for at in range(len(points.labels)):
        yield {
            k: convert(np.asarray(v[at], np.float32 if v.dtype.kind == "f" else np.int64))
            for k, v in points.inputs.items()
        }


def of_jax(picked: Callable[..., Any], *, compiled: bool = True) -> Callable[[Points], Any]:
    """Compiled, or primitive by primitive."""
    function = jax.grad(lambda x, i: loss(jnp, jax.nn.log_softmax, {**i, "logits": x}, picked))

    def gradients(points: Points) -> Any:
        with jax.disable_jit(not compiled):
            run = jax.jit(function) if compiled else function
            return np.stack([run(i["logits"], i) for i in _states(points, jnp.asarray)])

    return gradients


def of_torch(picked: Callable[..., Any]) -> Callable[[Points], Any]:
    """Eager."""

    def gradient(i: dict[str, Any]) -> Any:
        i["logits"].requires_grad_()
        value = loss(torch, lambda x: torch.log_softmax(x, 0), i, picked)
        return torch.autograd.grad(value, i["logits"])[0].numpy()

    return lambda points: np.stack([gradient(i) for i in _states(points, torch.tensor)])


def of_numpy(
    *, onto_kl: bool = False, late: bool = False, block: int = 0, rows: bool = False
) -> Callable[[Points], Any]:
    """The closed form in float32, sample by sample from left to right.

    Args:
        onto_kl: whether samples are added to the gradient of the KL (N times it, if late), or to 0.
        late: whether the sum is divided by N, or each of its terms.
        block: samples of a part; parts are added up in turn. 0 for one part.
        rows: whether each sample's share of every logit is formed first, then added.
    """

    def gradient(i: dict[str, Any]) -> Any:
        shifted = i["logits"] - i["logits"].max()
        logps = shifted - np.log(np.exp(shifted).cumsum()[-1])
        policy, count, taken = np.exp(logps), np.float32(len(i["actions"])), i["actions"]
        weights = -i["advantages"]
        if "old_logps" in i:
            ratios = np.exp(logps[taken] - i["old_logps"])
            clipped = np.clip(ratios, 1 - i["clip"], 1 + i["clip"])
            lower = ratios * i["advantages"] < clipped * i["advantages"]
            weights = weights * ratios * (lower | (ratios == clipped))
        weights = weights if late else weights / count
        of_kl = i["beta"] * (logps - i["reference"]) * policy + i["beta"] * policy
        total = of_kl * (count if late else np.float32(1)) if onto_kl else np.zeros_like(policy)
        if rows:
            shares = weights[:, None] * (np.eye(len(policy), dtype=np.float32)[taken] - policy)
            total = shares.cumsum(0)[-1] / (count if late else np.float32(1))
            return total + (of_kl - policy * of_kl.cumsum()[-1])
        for part in np.array_split(np.arange(len(taken)), max(1, len(taken) // (block or 2**31))):
            added = total if onto_kl else np.zeros_like(policy)
            np.add.at(added, taken[part], weights[part])
            total = added if onto_kl else total + added
        total = total / count if late else total
        total = total if onto_kl else total + of_kl
        return total - policy * total.cumsum()[-1]

    return lambda points: np.stack([gradient(i) for i in _states(points, np.asarray)])


def _rows(xp: Any, log_softmax: Any) -> Callable[..., Any]:
    return lambda x, _, a: log_softmax(xp.broadcast_to(x, (len(a), len(x))))[xp.arange(len(a)), a]


PROGRAMS: dict[str, Callable[[Points], Any]] = {
    "JAX, compiled": of_jax(lambda _, logps, a: logps[a]),
    "JAX, op by op": of_jax(lambda _, logps, a: logps[a], compiled=False),
    "JAX, compiled, one-hot": of_jax(lambda _, p, a: (jax.nn.one_hot(a, len(p)) * p).sum(-1)),
    "JAX, compiled, logsumexp": of_jax(lambda x, _, a: x[a] - jax.nn.logsumexp(x)),
    "JAX, compiled, rows": of_jax(_rows(jnp, jax.nn.log_softmax)),
    "PyTorch": of_torch(lambda _, logps, a: logps[a]),
    "PyTorch, logsumexp": of_torch(lambda x, _, a: x[a] - torch.logsumexp(x, 0)),
    "PyTorch, rows": of_torch(_rows(torch, lambda x: torch.log_softmax(x, -1))),
    "NumPy, onto the KL": of_numpy(onto_kl=True),
    "NumPy, onto N x KL, then / N": of_numpy(onto_kl=True, late=True),
    "NumPy, onto 0": of_numpy(),
    "NumPy, onto 0, then / N": of_numpy(late=True),
    "NumPy, blocks of 64": of_numpy(block=64),
    "NumPy, rows": of_numpy(rows=True),
    "NumPy, rows, then / N": of_numpy(rows=True, late=True),
}
