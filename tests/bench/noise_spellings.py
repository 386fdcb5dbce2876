"""What needs both frameworks in one process: wasteful spellings of PPO, and errors of functions.

    python tests/bench/noise_spellings.py FOLDER

Reads the points files of a folder and leaves beside each the traces of two legal but wasteful
spellings of log π(a); and the largest float32 error of exp, log and log1p, in functions.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import parity.jax_impl.backend
import parity.jax_impl.ppo
import parity.torch_impl.backend
import parity.torch_impl.ppo
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
        return -surrogate + beta * penalty, parity.jax_impl.ppo.Terms(ratios, surrogate, penalty)

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
        return -surrogate + beta * penalty, parity.torch_impl.ppo.Terms(ratios, surrogate, penalty)

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


FUNCTIONS: dict[str, tuple[Any, Any, Any, list[tuple[float, float]]]] = {
    "exp": (np.exp, jnp.exp, torch.exp, [(-87, -1), (-1, 1), (1, 80)]),
    "log": (np.log, jnp.log, torch.log, [(1e-3, 0.9), (0.9, 1.1), (1.1, 2), (2, 1000)]),
    "log1p": (np.log1p, jnp.log1p, torch.log1p, [(0, 1e-3), (1e-3, 0.1), (0.1, 1)]),
}


def functions() -> dict[str, dict[str, float]]:
    """The largest error of each function against float64, in float32 roundoffs of its result."""
    random, found = np.random.default_rng(0), {}
    for name, (exact, of_jax, of_torch, ranges) in FUNCTIONS.items():
        found[name] = {"jax": 0.0, "torch": 0.0}
        for low, high in ranges:
            x = random.uniform(low, high, 2**18).astype(np.float32)
            wanted = exact(x.astype(np.float64))
            results = {"jax": np.asarray(jax.jit(of_jax)(x)), "torch": of_torch(torch.tensor(x))}
            for backend, values in results.items():
                error = np.abs(np.float64(values) - wanted) / np.abs(wanted)
                found[name][backend] = max(found[name][backend], float(error.max() / 2.0**-24))
    return found


def main() -> None:
    torch.set_num_threads(1)
    Path(sys.argv[1], "functions.json").write_text(json.dumps(functions()))
    backends = {"jax": parity.jax_impl.backend, "torch": parity.torch_impl.backend}
    for file in sorted(Path(sys.argv[1]).glob("*.points")):
        points = Points.load(file)
        for number, losses in enumerate(SPELLINGS.values()):
            for name, backend in backends.items():
                trace = backend.evaluate(points, "float32", losses[name])
                trace.save(file.with_suffix(f".{number}.{name}"))


if __name__ == "__main__":
    main()
