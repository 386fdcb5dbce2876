"""The only NumPy boundary of the PyTorch twin: problems, tapes and points in, traces out."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parity.objectives import find
from parity.objectives.planting import planted_pieces
from parity.points import Points
from parity.problem import Problem
from parity.samples import Samples
from parity.torch_impl import sampling
from parity.torch_impl.derivative import differentiate
from parity.trace import Trace, quantities_from

__all__ = [
    "IMPLEMENTATION",
    "draw",
    "environment",
    "evaluate",
    "op_by_op",
    "planted",
    "train",
    "train_with",
]

IMPLEMENTATION = "torch"

Loss = Callable[..., Any]
Pieces = Mapping[str, Any]
"""Objective to the parts to train it with; the honest ones where it is not named."""

_HONEST: Pieces = {}


def environment() -> dict[str, str]:
    """Returns the versions and the device that computed."""
    return {
        "torch": torch.__version__.partition("+")[0],
        "numpy": np.__version__,
        "backend": "cpu",
        "threads": str(torch.get_num_threads()),
    }


def _twin(objective: str) -> Any:
    """The module of an objective."""
    return importlib.import_module(f"{__package__}.{objective}")


def _array(values: Any, dtype: str) -> Tensor:
    array = np.asarray(values)
    return torch.from_numpy(np.array(array, np.int64 if array.dtype.kind == "i" else dtype))


def _numpy(value: Tensor) -> NDArray[Any]:
    return value.detach().numpy()


def op_by_op() -> AbstractContextManager[None]:
    """Runs primitive by primitive, without compiling a program for every planted fault."""
    return nullcontext()


def planted(objective: str, fault: str) -> Any:
    """The parts of an objective with a known bug in one of them.

    Args:
        objective: its name.
        fault: the bug's.

    Returns:
        What `train` takes in place of the honest parts.
    """
    return planted_pieces(_twin(objective), objective, fault)


def _trained(
    problem: Problem, tape: Any, dtype: str, pieces: Pieces
) -> dict[str, dict[str, Tensor]]:
    """Every part of a problem: objective to quantity to values."""
    found: dict[str, dict[str, Tensor]] = {}
    for objective, training, table in problem.parts():
        twin = _twin(objective.name)
        given: dict[str, Any] = {n: _array(v, dtype) for n, v in training.given(table).items()}
        for name, quantity in training.takes.items():
            of, _, taken = quantity.partition("/")
            given[name] = found[of][taken]
        given |= {"tape": tape, "pieces": pieces.get(objective.name, twin.PIECES)}
        wanted = inspect.signature(twin.train).parameters
        given |= {name: getattr(table, name) for name in wanted if name not in given}
        found[objective.name] = twin.train(**{name: given[name] for name in wanted})
    return found


def train(
    problem: Problem, samples: Samples | None, dtype: str = "float32", pieces: Pieces = _HONEST
) -> Trace:
    """Runs every part of a problem and records it.

    Args:
        problem: what is to be solved.
        samples: the tape to replay; None where no part of the problem is sampled.
        dtype: float32 or float64.
        pieces: the parts to train with.

    Returns:
        The quantities of the whole run, as the objectives declare them.
    """
    tape = _array(samples.actions, dtype) if samples else None
    found = _trained(problem, tape, dtype, pieces)
    values = {f"{o}/{name}": _numpy(v) for o, rows in found.items() for name, v in rows.items()}
    declared = [q for objective, _, _ in problem.parts() for q in objective.in_a_run]
    return Trace(
        implementation=IMPLEMENTATION,
        dtype=dtype,
        quantities=quantities_from(values, declared),
        problem_digest=problem.digest,
        samples_digest=samples.digest if samples else "",
        environment=environment(),
    )


def train_with(
    problem: Problem, samples: Samples | None, dtype: str, objective: str, loss: Loss
) -> Trace:
    """Trains with another loss in the place of an objective's own.

    Args:
        problem: what is to be solved.
        samples: the tape to replay.
        dtype: float32 or float64.
        objective: whose loss is replaced.
        loss: takes the objective's inputs in their order and returns a scalar.

    Returns:
        As `train`; the parts of the loss are those of the honest one.
    """
    name = find(objective).name
    ours = _twin(name).PIECES

    def with_terms(*inputs: Tensor) -> tuple[Tensor, Any]:
        return loss(*inputs), ours.loss(*inputs)[1]

    return train(problem, samples, dtype, {name: ours._replace(loss=with_terms)})


def draw(problem: Problem, seed: int) -> Samples:
    """Draws a tape: trains in float32 with a `collect` that samples the current policy.

    Args:
        problem: a problem with a part that is sampled.
        seed: seed of the draw.

    Returns:
        The actions and the log-probs of the policy that drew each rollout.
    """
    sampled = next(objective for objective, training, _ in problem.parts() if training.tape)
    table, twin = problem.tape, _twin(sampled.name)
    drawing = twin.PIECES._replace(collect=sampling.drawing(table.samples, twin.collect))
    tape = sampling.tape(seed, table.rollouts)
    found = _trained(problem, tape, "float32", {sampled.name: drawing})[sampled.name]
    after = _numpy(found["logits"]).reshape(table.rollouts, -1, len(table.logits))[:, -1]
    logits = np.concatenate([np.asarray([table.logits], np.float32), after[:-1]])
    return Samples(
        actions=_numpy(found["actions"]),
        behaviour=_numpy(torch.log_softmax(_array(logits, "float32"), dim=-1)),
        problem=problem.name,
        problem_digest=problem.digest,
        seed=seed,
        sampler=IMPLEMENTATION,
        versions=environment(),
    )


def evaluate(points: Points, dtype: str = "float32", loss: Loss | None = None) -> Trace:
    """Evaluates an objective's value and gradients at fixed states.

    Args:
        points: the states; each stack has one shape.
        dtype: float32 or float64.
        loss: evaluated in place of the twin's own; returns a scalar, or one with its terms.

    Returns:
        The quantities at every point, as the objective declares them.
    """
    objective = find(points.objective)
    at = _evaluated(loss or _twin(objective.name).PIECES.loss, objective)
    inputs = [_array(values, dtype) for values in points.inputs.values()]
    rows = [at(*point) for point in zip(*inputs, strict=True)]
    values = {f"{objective.name}/{n}": _numpy(torch.stack([r[n] for r in rows])) for n in rows[0]}
    return Trace(
        implementation=IMPLEMENTATION,
        dtype=dtype,
        quantities=quantities_from(values, objective.at_points),
        problem_digest=points.digest,
        environment=environment(),
    )


def _evaluated(loss: Loss, objective: Any) -> Callable[..., dict[str, Tensor]]:
    """Value, terms and gradients of a loss at one state."""
    places = [list(objective.axes).index(of) for of in objective.gradients.values()]

    def at(*inputs: Tensor) -> dict[str, Tensor]:
        value, terms, gradients = differentiate(loss, inputs, places)
        named = terms._asdict() if hasattr(terms, "_asdict") else {}
        return {**named, "loss": value, **dict(zip(objective.gradients, gradients, strict=True))}

    return at
