"""A NumPy function of the user's: it has values and no gradients."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.objectives import find
from parity.points import Points
from parity.trace import Trace, quantities_from

__all__ = ["arrays", "copied", "deriver", "evaluate", "op_by_op", "restore", "same", "settings"]

Array = NDArray[Any]

arrays = (np.ndarray, np.floating, np.integer, np.complexfloating)


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


def evaluate(points: Points, dtype: str, loss: Callable[..., Any]) -> Trace:
    """Evaluates a loss at fixed states.

    Args:
        points: the states.
        dtype: float32 or float64.
        loss: takes the objective's inputs in their order.
    """
    inputs = [v if v.dtype.kind == "i" else v.astype(dtype) for v in points.inputs.values()]
    with np.errstate(all="ignore"):
        losses = [loss(*row) for row in zip(*inputs, strict=True)]
    objective = find(points.objective)
    values = {f"{objective.name}/loss": np.asarray(losses, dtype)}
    return Trace(
        implementation="numpy",
        dtype=dtype,
        quantities=quantities_from(values, objective.at_points),
        problem_digest=points.digest,
        environment={"numpy": np.__version__},
    )
