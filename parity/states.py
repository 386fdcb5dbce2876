"""States made of others: with built-in constants, of fewer samples, or as a run recorded them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity import oracle
from parity.points import INPUTS, Points
from parity.probes import KINK_DISTANCE, kink_distance
from parity.problem import Problem
from parity.quantities import EVALUATED
from parity.samples import Samples
from parity.trace import Quantity, Trace

__all__ = [
    "COUNTED",
    "normalised",
    "recorded_points",
    "reduced",
    "selected",
    "with_constants",
    "within",
]

COUNTED = ("sample", "pair")
MANY = 32  # parts of one state


def selected(points: Points, which: NDArray[Any]) -> Points:
    """Some of the points."""
    return Points(
        points.objective,
        points.grid,
        tuple(points.labels[i] for i in which),
        {name: values[which] for name, values in points.inputs.items()},
    )


def within(points: Points, ranges: Mapping[str, tuple[float, float]]) -> Points:
    """The points at which inputs lie in [low, high); there may be none."""
    inside = np.ones(len(points.labels), bool)
    for name, (low, high) in ranges.items():
        inside &= (points.inputs[name] >= low) & (points.inputs[name] < high)
    return selected(points, np.flatnonzero(inside))


def normalised(points: Points) -> Points:
    """The points with a reference whose probabilities sum to 1 in float64 too.

    Rounded to float32 they do so nearly; a function that takes them for logits, as
    `Categorical(logits=reference)` does, would differ in float64 by what is missing.
    """
    if "reference" not in points.inputs:
        return points
    inputs = {**points.inputs, "reference": oracle.log_softmax(points.inputs["reference"])}
    return Points(points.objective, points.grid, points.labels, inputs)


def with_constants(points: Points, constants: Mapping[str, float], dtype: str) -> Points:
    """The points with β or ε set everywhere, less those that this puts on a clip edge.

    A function that has them built in rounds them to the dtype in which it computes.
    """
    if not constants:
        return points
    inputs = dict(points.inputs)
    for name, value in constants.items():
        inputs[name] = np.full_like(inputs[name], np.dtype(dtype).type(value))
    changed = Points(points.objective, points.grid, points.labels, inputs)
    if points.objective != "ppo":
        return changed
    every = range(len(points.labels))
    apart = [i for i in every if kink_distance(selected(changed, np.array([i]))) > KINK_DISTANCE]
    return selected(changed, np.array(apart, np.int64))


def reduced(points: Points, size: int) -> Points:
    """The same states, of `size` of their samples or pairs at a time."""
    axes = INPUTS[points.objective]
    word = next(axis for names in axes.values() for axis in names if axis in COUNTED)
    total = points.sizes[word]
    groups = [list(range(at, at + size)) for at in range(0, total - size + 1, size)][:MANY]
    labels: list[str] = []
    inputs: dict[str, list[NDArray[Any]]] = {name: [] for name in axes}
    for i, label in enumerate(points.labels):
        for group in groups:
            labels.append(f"{label}; only {word} {' and '.join(map(str, group))}")
            for name, values in points.inputs.items():
                inputs[name].append(values[i][group] if word in axes[name] else values[i])
    stacked = {name: np.stack(values) for name, values in inputs.items()}
    words = f"one {word}" if size == 1 else f"{size} {word}s"
    return Points(points.objective, words, tuple(labels), stacked)


def recorded_points(problem: Problem, run: Trace, samples: Samples | None) -> tuple[Points, Trace]:
    """Every update of a run as a state of its own, and what the run computed there.

    Args:
        problem: what was trained; one objective, and reward where that is PPO.
        run: its trace.
        samples: the tape that it replayed.
    """
    objective = next(o for o in ("ppo", "dpo", "reinforce", "reward") if f"{o}/loss" in run)
    states, labels = _STATES[objective](problem, run, samples)
    inputs = {
        name: np.asarray(states[name], np.float64 if states[name].dtype.kind == "f" else np.int64)
        for name in INPUTS[objective]
    }
    values = {}
    for spec in EVALUATED:
        if spec.objective == objective and spec.name in run:
            array = run[spec.name]
            flat = array.reshape(len(labels), *array.shape[array.ndim - len(spec.axes) + 1 :])
            values[spec.name] = Quantity(spec.name, spec.axes, spec.kind, flat)
    flat_run = Trace(run.implementation, run.dtype, values, environment=run.environment)
    return Points(objective, "run", tuple(labels), inputs), flat_run


def _before(start: Any, after: NDArray[Any]) -> NDArray[Any]:
    """What an update started from: where the one before it ended."""
    first = np.asarray([start], after.dtype)
    return np.concatenate([first, after.reshape(-1, after.shape[-1])[:-1]])


def _every(values: Any, count: int, dtype: str) -> NDArray[Any]:
    array = np.asarray(values, dtype if np.asarray(values).dtype.kind == "f" else np.int64)
    return np.broadcast_to(array, (count, *array.shape)).copy()


_Recorded = tuple[dict[str, NDArray[Any]], list[str]]


def _reward_states(problem: Problem, run: Trace, _: Samples | None) -> _Recorded:
    assert problem.reward is not None
    weights = _before(problem.reward.initial_weights, run["reward/weights"])
    features = np.asarray(problem.reward.features, run.dtype)
    chosen, rejected = np.asarray(problem.reward.preferences).T
    count = len(weights)
    return {
        "weights": weights,
        "chosen": _every(features[chosen], count, run.dtype),
        "rejected": _every(features[rejected], count, run.dtype),
    }, [f"update {i}" for i in range(count)]


def _ppo_states(problem: Problem, run: Trace, samples: Samples | None) -> _Recorded:
    assert problem.ppo is not None
    assert samples is not None
    part, after = problem.ppo, run["ppo/logits"]
    logits = _before(part.logits, after)
    count = len(logits)
    flat = {
        name: run[f"ppo/{name}"].reshape(count, -1)
        for name in ("old_logps", "advantages", "reference")
    }
    labels = [f"rollout {i // part.epochs}, epoch {i % part.epochs}" for i in range(count)]
    return {
        "logits": logits,
        "actions": samples.actions.repeat(part.epochs, axis=0),
        "beta": _every(part.beta, count, run.dtype),
        "clip": _every(part.clip, count, run.dtype),
        **flat,
    }, labels


def _dpo_states(problem: Problem, run: Trace, _: Samples | None) -> _Recorded:
    assert problem.dpo is not None
    logits = _before(problem.dpo.logits, run["dpo/logits"])
    chosen, rejected = np.asarray(problem.dpo.preferences).T
    count = len(logits)
    return {
        "logits": logits,
        "reference": run["dpo/reference"],
        "chosen": _every(chosen, count, run.dtype),
        "rejected": _every(rejected, count, run.dtype),
        "beta": _every(problem.dpo.beta, count, run.dtype),
    }, [f"update {i}" for i in range(count)]


def _reinforce_states(problem: Problem, run: Trace, samples: Samples | None) -> _Recorded:
    assert problem.reinforce is not None
    assert samples is not None
    logits = _before(problem.reinforce.logits, run["reinforce/logits"])
    count = len(logits)
    return {
        "logits": logits,
        "actions": samples.actions,
        "advantages": run["reinforce/advantages"],
        "reference": run["reinforce/reference"],
        "beta": _every(problem.reinforce.beta, count, run.dtype),
    }, [f"rollout {i}" for i in range(count)]


_STATES: dict[str, Any] = {
    "reward": _reward_states,
    "ppo": _ppo_states,
    "dpo": _dpo_states,
    "reinforce": _reinforce_states,
}
