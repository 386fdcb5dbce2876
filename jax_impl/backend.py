"""The only NumPy boundary of the JAX twin: problems, tapes and points in, traces out."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_impl import dpo, ppo, reinforce, reward, sampling
from jax_impl.dpo import Pieces as DPOPieces
from jax_impl.ppo import Pieces as PPOPieces
from jax_impl.reinforce import Pieces as ReinforcePieces
from jax_impl.reward import Pieces as RewardPieces
from parity.points import Points
from parity.problem import Problem
from parity.quantities import EVALUATED, TRAINED
from parity.samples import Samples
from parity.trace import Trace, quantities_from

__all__ = [
    "IMPLEMENTATION",
    "PIECES",
    "Pieces",
    "draw",
    "environment",
    "evaluate",
    "op_by_op",
    "train",
]

IMPLEMENTATION = "jax"


Loss = Callable[..., Any]


class Pieces(NamedTuple):
    """The replaceable parts of every objective."""

    reward: RewardPieces = reward.PIECES
    ppo: PPOPieces = ppo.PIECES
    dpo: DPOPieces = dpo.PIECES
    reinforce: ReinforcePieces = reinforce.PIECES


PIECES = Pieces()


def environment() -> dict[str, str]:
    """Returns the versions and the device that computed."""
    return {
        "jax": jax.__version__,
        "numpy": np.__version__,
        "backend": jax.default_backend(),
        "deviceCount": str(jax.device_count()),
    }


def _floats(values: Any, dtype: str) -> jax.Array:
    return jnp.asarray(np.asarray(values, dtype))


def _indices(values: Any) -> jax.Array:
    return jnp.asarray(np.asarray(values, np.int32))


def _numpy(value: jax.Array) -> NDArray[Any]:
    array = np.asarray(value)
    return array.astype(np.int64) if array.dtype.kind == "i" else array


def _named(objective: str, history: Any) -> dict[str, NDArray[Any]]:
    return {f"{objective}/{name}": _numpy(rows) for name, rows in history._asdict().items()}


def _train_reward(
    problem: Problem, dtype: str, pieces: Pieces
) -> tuple[jax.Array, dict[str, NDArray[Any]]]:
    assert problem.reward is not None
    chosen, rejected = zip(*problem.reward.preferences, strict=True)
    scores, history = reward.train(
        _floats(problem.reward.initial_weights, dtype),
        _floats(problem.reward.features, dtype),
        _indices(chosen),
        _indices(rejected),
        _floats(problem.reward.rate, dtype),
        updates=problem.reward.updates,
        pieces=pieces.reward,
    )
    return scores, {**_named("reward", history), "reward/scores": _numpy(scores)}


def _train_ppo(
    problem: Problem, scores: jax.Array, tape: Any, dtype: str, pieces: ppo.Pieces
) -> dict[str, NDArray[Any]]:
    assert problem.ppo is not None
    probabilities, actions, history, measures = ppo.train(
        _floats(problem.ppo.logits, dtype),
        _floats(problem.ppo.reference, dtype),
        scores,
        tape,
        _floats(problem.ppo.rate, dtype),
        _floats(problem.ppo.beta, dtype),
        _floats(problem.ppo.clip, dtype),
        epochs=problem.ppo.epochs,
        pieces=pieces,
    )
    return {
        **_named("ppo", history),
        **_named("ppo", measures),
        "ppo/actions": _numpy(actions),
        "ppo/probabilities": _numpy(probabilities),
    }


def _train_dpo(problem: Problem, dtype: str, pieces: Pieces) -> dict[str, NDArray[Any]]:
    assert problem.dpo is not None
    chosen, rejected = zip(*problem.dpo.preferences, strict=True)
    probabilities, margins, history = dpo.train(
        _floats(problem.dpo.logits, dtype),
        _floats(problem.dpo.reference, dtype),
        _indices(chosen),
        _indices(rejected),
        _floats(problem.dpo.rate, dtype),
        _floats(problem.dpo.beta, dtype),
        updates=problem.dpo.updates,
        pieces=pieces.dpo,
    )
    return {
        **_named("dpo", history),
        "dpo/final_margins": _numpy(margins),
        "dpo/probabilities": _numpy(probabilities),
    }


def _train_reinforce(
    problem: Problem, tape: Any, dtype: str, pieces: reinforce.Pieces
) -> dict[str, NDArray[Any]]:
    assert problem.reinforce is not None
    probabilities, history, measures = reinforce.train(
        _floats(problem.reinforce.logits, dtype),
        _floats(problem.reinforce.reference, dtype),
        _floats(problem.reinforce.scores, dtype),
        tape,
        _floats(problem.reinforce.rate, dtype),
        _floats(problem.reinforce.beta, dtype),
        pieces=pieces,
    )
    return {
        **_named("reinforce", history),
        **_named("reinforce", measures),
        "reinforce/probabilities": _numpy(probabilities),
    }


def op_by_op() -> AbstractContextManager[None]:
    """Runs primitive by primitive, without compiling a program for every planted fault."""
    return jax.disable_jit()


def train(
    problem: Problem, samples: Samples | None, dtype: str = "float32", pieces: Pieces = PIECES
) -> Trace:
    """Runs every part of a problem and records it.

    Args:
        problem: what is to be solved.
        samples: the tape to replay; None where no part of the problem is sampled.
        dtype: float32 or float64.
        pieces: the parts to train with.

    Returns:
        The quantities of the whole run, as the catalogue names them.
    """
    values: dict[str, NDArray[Any]] = {}
    if problem.reward:
        scores, values = _train_reward(problem, dtype, pieces)
    if problem.ppo:
        assert samples is not None
        tape = _indices(samples.actions)
        values |= _train_ppo(problem, scores, tape, dtype, pieces.ppo)
    if problem.dpo:
        values |= _train_dpo(problem, dtype, pieces)
    if problem.reinforce:
        assert samples is not None
        tape = _indices(samples.actions)
        values |= _train_reinforce(problem, tape, dtype, pieces.reinforce)
    return Trace(
        implementation=IMPLEMENTATION,
        dtype=dtype,
        quantities=quantities_from(values, TRAINED),
        problem_digest=problem.digest,
        samples_digest=samples.digest if samples else "",
        environment=environment(),
    )


def draw(problem: Problem, seed: int) -> Samples:
    """Draws a tape: trains in float32 with a `collect` that samples the current policy.

    Args:
        problem: a problem with a part that is sampled.
        seed: seed of the draw.

    Returns:
        The actions and the log-probs of the policy that drew each rollout.
    """
    assert problem.tape is not None
    tape = sampling.tape(seed, problem.tape.rollouts)
    if problem.ppo:
        scores, _ = _train_reward(problem, "float32", PIECES)
        collect = sampling.drawing(problem.ppo.samples, ppo.collect)
        pieces = ppo.PIECES._replace(collect=collect)
        values = _train_ppo(problem, scores, tape, "float32", pieces)
        actions, after = values["ppo/actions"], values["ppo/logits"][:, -1]
    else:
        drawing = sampling.drawing(problem.tape.samples, reinforce.collect)
        drawn = reinforce.PIECES._replace(collect=drawing)
        values = _train_reinforce(problem, tape, "float32", drawn)
        actions, after = values["reinforce/actions"], values["reinforce/logits"]
    start = np.asarray([problem.tape.logits], np.float32)
    logits = np.concatenate([start, after[:-1]])
    return Samples(
        actions=actions,
        behaviour=_numpy(jax.nn.log_softmax(_floats(logits, "float32"), axis=-1)),
        problem=problem.name,
        problem_digest=problem.digest,
        seed=seed,
        sampler=IMPLEMENTATION,
        versions=environment(),
    )


def evaluate(points: Points, dtype: str = "float32", pieces: Pieces = PIECES) -> Trace:
    """Evaluates an objective's value and gradients at fixed states.

    Args:
        points: the states; each stack compiles once.
        dtype: float32 or float64.
        pieces: the parts whose loss is evaluated.

    Returns:
        The quantities at every point, as the catalogue names them.
    """
    inputs = {
        name: _indices(values) if values.dtype.kind == "i" else _floats(values, dtype)
        for name, values in points.inputs.items()
    }
    loss = getattr(pieces, points.objective).loss
    values = _compiled(points.objective, loss)(*inputs.values())
    return Trace(
        implementation=IMPLEMENTATION,
        dtype=dtype,
        quantities=quantities_from(
            {f"{points.objective}/{name}": _numpy(value) for name, value in values.items()},
            EVALUATED,
        ),
        problem_digest=points.digest,
        environment=environment(),
    )


def _reward_at(function: Loss) -> Any:
    def at(*inputs: jax.Array) -> dict[str, jax.Array]:
        loss, gradient = jax.value_and_grad(function)(*inputs)
        return {"loss": loss, "gradient": gradient}

    return at


def _ppo_at(function: Loss) -> Any:
    def at(
        logits: jax.Array,
        old_logps: jax.Array,
        actions: jax.Array,
        advantages: jax.Array,
        reference: jax.Array,
        beta: jax.Array,
        clip: jax.Array,
    ) -> dict[str, jax.Array]:
        batch = ppo.Batch(actions, old_logps, advantages)
        loss, terms, gradients = ppo.differentiate(function, logits, batch, reference, beta, clip)
        return {
            **terms._asdict(),
            "loss": loss,
            "gradient": gradients.logits,
            "gradient_old_logps": gradients.old_logps,
            "gradient_advantages": gradients.advantages,
            "gradient_reference": gradients.reference,
        }

    return at


def _dpo_at(function: Loss) -> Any:
    def at(*inputs: jax.Array) -> dict[str, jax.Array]:
        loss, margins, gradients = dpo.differentiate(function, *inputs)
        return {
            "margins": margins,
            "loss": loss,
            "gradient": gradients.logits,
            "gradient_reference": gradients.reference,
        }

    return at


def _reinforce_at(function: Loss) -> Any:
    def at(
        logits: jax.Array,
        actions: jax.Array,
        advantages: jax.Array,
        reference: jax.Array,
        beta: jax.Array,
    ) -> dict[str, jax.Array]:
        batch = reinforce.Batch(actions, advantages)
        loss, terms, gradients = reinforce.differentiate(function, logits, batch, reference, beta)
        return {
            **terms._asdict(),
            "loss": loss,
            "gradient": gradients.logits,
            "gradient_advantages": gradients.advantages,
            "gradient_reference": gradients.reference,
        }

    return at


_AT = {"reward": _reward_at, "ppo": _ppo_at, "dpo": _dpo_at, "reinforce": _reinforce_at}


@cache
def _compiled(objective: str, loss: Loss) -> Any:
    return jax.jit(jax.vmap(_AT[objective](loss)))
