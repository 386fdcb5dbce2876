"""Two wasteful but legal spellings of log π(a) in PPO, in both frameworks, in a process of its own.

    python tests/bench/noise_spellings.py FOLDER

Reads the points files of a folder and leaves beside each the traces of both spellings.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import torch

import jax_impl.backend
import jax_impl.ppo
import torch_impl.backend
import torch_impl.ppo
from parity.points import Points

__all__ = ["SPELLINGS"]


def _jax_loss(pick: Any) -> Any:
    def loss(
        logits: Any, old: Any, actions: Any, advantages: Any, reference: Any, beta: Any, clip: Any
    ) -> Any:
        old, advantages, reference = map(jax.lax.stop_gradient, (old, advantages, reference))
        logps = jax.nn.log_softmax(logits)
        ratios = jnp.exp(pick(logits, actions) - old)
        clipped = jnp.clip(ratios, 1 - clip, 1 + clip)
        surrogate = jnp.mean(jnp.minimum(ratios * advantages, clipped * advantages))
        penalty = jnp.sum(jnp.exp(logps) * (logps - reference))
        return -surrogate + beta * penalty, jax_impl.ppo.Terms(ratios, surrogate, penalty)

    return loss


def _torch_loss(pick: Any) -> Any:
    def loss(
        logits: Any, old: Any, actions: Any, advantages: Any, reference: Any, beta: Any, clip: Any
    ) -> Any:
        old, advantages, reference = old.detach(), advantages.detach(), reference.detach()
        logps = torch.log_softmax(logits, dim=0)
        ratios = torch.exp(pick(logits, actions) - old)
        clipped = torch.clamp(ratios, 1 - clip, 1 + clip)
        surrogate = torch.mean(torch.minimum(ratios * advantages, clipped * advantages))
        penalty = torch.sum(torch.exp(logps) * (logps - reference))
        return -surrogate + beta * penalty, torch_impl.ppo.Terms(ratios, surrogate, penalty)

    return loss


def _jax_rows(logits: Any, actions: Any) -> Any:
    rows = jnp.broadcast_to(logits, (len(actions), len(logits)))
    return jnp.take_along_axis(jax.nn.log_softmax(rows, axis=1), actions[:, None], 1)[:, 0]


def _torch_rows(logits: Any, actions: Any) -> Any:
    rows = torch.log_softmax(logits.expand(len(actions), -1), dim=1)
    return rows.gather(1, actions[:, None])[:, 0]


SPELLINGS: dict[str, dict[str, Any]] = {
    "logits[a] - logsumexp(logits)": {
        "jax": _jax_loss(lambda logits, a: logits[a] - jax.nn.logsumexp(logits)),
        "torch": _torch_loss(lambda logits, a: logits[a] - torch.logsumexp(logits, 0)),
    },
    "log_softmax of logits repeated to (N, K)": {
        "jax": _jax_loss(_jax_rows),
        "torch": _torch_loss(_torch_rows),
    },
}


def main() -> None:
    torch.set_num_threads(1)
    backends = {"jax": jax_impl.backend, "torch": torch_impl.backend}
    for file in sorted(Path(sys.argv[1]).glob("*.points")):
        points = Points.load(file)
        print(f"spellings at {points.grid} ({file.stem})", file=sys.stderr, flush=True)
        for number, losses in enumerate(SPELLINGS.values()):
            for name, backend in backends.items():
                pieces = backend.PIECES
                pieces = pieces._replace(ppo=pieces.ppo._replace(loss=losses[name]))
                trace = backend.evaluate(points, "float32", pieces)
                trace.save(file.with_suffix(f".{number}.{name}"))


if __name__ == "__main__":
    main()
