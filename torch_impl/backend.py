"""The only NumPy boundary of the PyTorch twin: problems, tapes and points in, traces out."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parity.points import Points
from parity.problem import Problem
from parity.quantities import EVALUATED, TRAINED
from parity.samples import Samples
from parity.trace import Trace, quantities_from
from torch_impl import dpo, ppo, reinforce, reward, sampling
from torch_impl.dpo import Pieces as DPOPieces
from torch_impl.ppo import Pieces as PPOPieces
from torch_impl.reinforce import Pieces as ReinforcePieces
from torch_impl.reward import Pieces as RewardPieces

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

IMPLEMENTATION = "torch"


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
        "torch": torch.__version__.partition("+")[0],
        "numpy": np.__version__,
        "backend": "cpu",
        "threads": str(torch.get_num_threads()),
    }


def _floats(values: Any, dtype: str) -> Tensor:
    return torch.from_numpy(np.array(values, dtype))


def _indices(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, np.int64))


def _numpy(value: Tensor) -> NDArray[Any]:
    return value.detach().numpy()


def _named(objective: str, history: Any) -> dict[str, NDArray[Any]]:
    return {f"{objective}/{name}": _numpy(rows) for name, rows in history._asdict().items()}


def _train_reward(
    problem: Problem, dtype: str, pieces: Pieces
) -> tuple[Tensor, dict[str, NDArray[Any]]]:
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
    problem: Problem, scores: Tensor, tape: Any, dtype: str, pieces: ppo.Pieces
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
    return nullcontext()


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
        behaviour=_numpy(torch.log_softmax(_floats(logits, "float32"), dim=-1)),
        problem=problem.name,
        problem_digest=problem.digest,
        seed=seed,
        sampler=IMPLEMENTATION,
        versions=environment(),
    )


def evaluate(points: Points, dtype: str = "float32", pieces: Pieces = PIECES) -> Trace:
    """Evaluates an objective's value and gradients at fixed states.

    Args:
        points: the states; each stack has one shape.
        dtype: float32 or float64.
        pieces: the parts whose loss is evaluated.

    Returns:
        The quantities at every point, as the catalogue names them.
    """
    inputs = {
        name: _indices(values) if values.dtype.kind == "i" else _floats(values, dtype)
        for name, values in points.inputs.items()
    }
    at = _AT[points.objective](getattr(pieces, points.objective).loss)
    rows = [at(*point) for point in zip(*inputs.values(), strict=True)]
    values = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
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
    def at(*inputs: Tensor) -> dict[str, Tensor]:
        variable = inputs[0].detach().requires_grad_()
        loss = function(variable, *inputs[1:])
        (gradient,) = torch.autograd.grad(loss, variable)
        return {"loss": loss, "gradient": gradient}

    return at


def _ppo_at(function: Loss) -> Any:
    def at(
        logits: Tensor,
        old_logps: Tensor,
        actions: Tensor,
        advantages: Tensor,
        reference: Tensor,
        beta: Tensor,
        clip: Tensor,
    ) -> dict[str, Tensor]:
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
    def at(*inputs: Tensor) -> dict[str, Tensor]:
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
        logits: Tensor, actions: Tensor, advantages: Tensor, reference: Tensor, beta: Tensor
    ) -> dict[str, Tensor]:
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
