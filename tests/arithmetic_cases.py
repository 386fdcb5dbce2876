"""Every operation with what it means, said again in mpmath and without any of its tricks."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from exact_arrays import CONTEXT, STEP
from parity.arithmetic import operations as op
from parity.arithmetic.tape import Taped, gradients

__all__ = ["CASES", "Case", "draw", "exact", "slope", "value_and_gradients"]

MASK = np.array([[True, False, True], [True, True, False], [False, True, True], [True, True, True]])
INDEX, TURNED = np.array([2, 0, 2, 2, 1, 3]), np.array([3, 1, 2, 2, 0, 2])
Array = np.ndarray[Any, Any]


def mask_for(x: Any) -> Array:
    """The mask, the same for the whole batch of x, or as an array of its framework."""
    if not op.is_own(x):
        return array_namespace(x).asarray(MASK)
    return MASK.reshape(*MASK.shape, *(1,) * (x.ndim - 2))


def _each(function: Callable[..., Any], count: int = 1) -> Callable[..., Array]:
    return np.frompyfunc(function, count, 1)


_exp, _log, _number = _each(CONTEXT.exp), _each(CONTEXT.log), _each(CONTEXT.mpf)
_one = CONTEXT.mpf(1)


class Case(NamedTuple):
    """An operation on arrays [4, 3], its meaning, and where its operands lie."""

    name: str
    run: Callable[..., Any]
    means: Callable[..., Array]
    ranges: Sequence[tuple[float, float]] = ((-3.0, 3.0),)
    shapes: Sequence[tuple[int, ...]] = ((4, 3), (4, 3))


def _log_softmax(x: Array, axis: int) -> Array:
    return x - _log(_exp(x).sum(axis, keepdims=True))


def _running(x: Array, axis: int) -> Array:
    return np.add.accumulate(x, axis)


def _select(mask: Array, yes: Any, no: Any) -> Array:
    return np.where(mask, yes, no)


ANY, POSITIVE, AWAY = (-3.0, 3.0), (0.2, 4.0), (0.5, 3.0)
TWO = (ANY, ANY)
NEAR_ZERO = (-1e-3, 1e-3)

CASES = [
    Case("negative", lambda x: -x, lambda x: -x),
    Case("add", lambda x, y: x + y, lambda x, y: x + y, TWO),
    Case("add a number", lambda x: 2.5 + x, lambda x: x + 2.5),
    Case("subtract", lambda x, y: x - y, lambda x, y: x - y, TWO),
    Case("subtract from a number", lambda x: 2.5 - x, lambda x: 2.5 - x),
    Case("subtract a number", lambda x: x - 2.5, lambda x: x - 2.5),
    Case("multiply", lambda x, y: x * y, lambda x, y: x * y, TWO),
    Case("multiply a number", lambda x: 2.5 * x, lambda x: x * 2.5),
    Case("divide", lambda x, y: x / y, lambda x, y: x / y, (ANY, AWAY)),
    Case("divide a number", lambda x: 2.5 / x, lambda x: _one * 2.5 / x, (AWAY,)),
    Case("divide by a number", lambda x: x / 2.5, lambda x: x / (_one * 2.5)),
    Case("square", lambda x: x**2, lambda x: x * x),
    Case("broadcast", lambda x, y: x * y, lambda x, y: x * y, TWO, ((4, 3), (1, 3))),
    Case("broadcast back", lambda x, y: x - y, lambda x, y: x - y, TWO, ((4, 1), (4, 3))),
    Case("broadcast both", lambda x, y: x / y, lambda x, y: x / y, (ANY, AWAY), ((4, 1), (1, 3))),
    Case("row", lambda x: x[1], lambda x: x[1]),
    Case("slice", lambda x: x[1:4:2], lambda x: x[1:4:2]),
    Case("backwards", lambda x: x[::-1], lambda x: x[::-1]),
    Case("new axis", lambda x: x[:, None] * x[None], lambda x: x[:, None] * x[None]),
    Case("exp", op.exp, _exp),
    Case("expm1", op.expm1, _each(CONTEXT.expm1), (NEAR_ZERO,)),
    Case("log", op.log, _log, (POSITIVE,)),
    Case("log1p", op.log1p, _each(CONTEXT.log1p), (NEAR_ZERO,)),
    Case("sqrt", op.sqrt, _each(CONTEXT.sqrt), (POSITIVE,)),
    Case("tanh", op.tanh, _each(CONTEXT.tanh)),
    Case("abs", op.abs, _each(abs)),
    Case("softplus", op.softplus, lambda x: _log(1 + _exp(x))),
    Case("log_sigmoid", op.log_sigmoid, lambda x: _log(1 / (1 + _exp(-x)))),
    Case("sigmoid", op.sigmoid, lambda x: 1 / (1 + _exp(-x))),
    Case("logaddexp", op.logaddexp, lambda x, y: _log(_exp(x) + _exp(y)), TWO),
    Case("minimum", op.minimum, _each(min, 2), TWO),
    Case("maximum", op.maximum, _each(max, 2), TWO),
    Case("minimum with a number", lambda x: op.minimum(x, 0.5), _each(lambda x: min(x, 0.5))),
    Case("maximum of a number", lambda x: op.maximum(0.5, x), _each(lambda x: max(x, 0.5))),
    Case("clip", lambda x: op.clip(x, -1.0, 1.5), _each(lambda x: min(max(x, -1), 1.5))),
    Case(
        "where",
        lambda x, y: op.where(mask_for(x), x, y),
        lambda x, y: _select(MASK, x, y),
        TWO,
    ),
    Case(
        "where, one a number",
        lambda x: op.where(mask_for(x), x, 1.0),
        lambda x: _select(MASK, x, 1.0),
    ),
    Case(
        "where, broadcast",
        lambda x: op.where(mask_for(x), x, 0.5),
        lambda x: _select(MASK, x, 0.5),
        (ANY,),
        ((4, 1),),
    ),
    Case("sum", op.sum, lambda x: x.sum(0)),
    Case("sum, axis 1", lambda x: op.sum(x, 1), lambda x: x.sum(1)),
    Case("sum, both axes", lambda x: op.sum(x, (0, 1)), lambda x: x.sum((0, 1))),
    Case("sum, mask", lambda x: op.sum(x, mask=mask_for(x)), lambda x: (x * MASK).sum(0)),
    Case("mean", op.mean, lambda x: x.sum(0) / 4),
    Case("mean, axis 1", lambda x: op.mean(x, 1), lambda x: x.sum(1) / 3),
    Case("mean, both axes", lambda x: op.mean(x, (0, 1)), lambda x: x.sum((0, 1)) / 12),
    Case(
        "mean, mask",
        lambda x: op.mean(x, 1, mask=mask_for(x)),
        lambda x: (x * MASK).sum(1) / MASK.sum(1).astype(object),
    ),
    Case("log_softmax", op.log_softmax, lambda x: _log_softmax(x, 0)),
    Case("log_softmax, axis 1", lambda x: op.log_softmax(x, 1), lambda x: _log_softmax(x, 1)),
    Case("logsumexp", op.logsumexp, lambda x: _log(_exp(x).sum(0))),
    Case("logsumexp, axis 1", lambda x: op.logsumexp(x, 1), lambda x: _log(_exp(x).sum(1))),
    Case("gather", lambda x: op.gather(x, INDEX), lambda x: x[INDEX]),
    Case(
        "gather, twice, and in other ways",
        lambda x: op.gather(op.exp(x), INDEX) * op.gather(x, TURNED) + op.sum(x),
        lambda x: _exp(x)[INDEX] * x[TURNED] + x.sum(0),
    ),
    Case("cumulative", op.cumulative, lambda x: _running(x, 0)),
    Case("cumulative, axis 1", lambda x: op.cumulative(x, 1), lambda x: _running(x, 1)),
    Case("reverse_cumulative", op.reverse_cumulative, lambda x: _running(x[::-1], 0)[::-1]),
    Case(
        "reverse_cumulative, axis 1",
        lambda x: op.reverse_cumulative(x, 1),
        lambda x: _running(x[:, ::-1], 1)[:, ::-1],
    ),
    Case("flip", op.flip, lambda x: x[::-1]),
    Case("flip, axis 1", lambda x: op.flip(x, 1), lambda x: x[:, ::-1]),
    Case("roll", lambda x: op.roll(x, 1), lambda x: x[[3, 0, 1, 2]]),
    Case("roll, axis 1", lambda x: op.roll(x, -1, 1), lambda x: x[:, [1, 2, 0]]),
    Case("sort", op.sort, lambda x: np.sort(x, 0)),
    Case("sort, axis 1", lambda x: op.sort(x, 1), lambda x: np.sort(x, 1)),
]


def draw(case: Case, seed: int, batch: tuple[int, ...] = ()) -> list[Array]:
    """Operands of a case, float32 values held as float64; the batch trails."""
    random = np.random.default_rng([seed, *case.name.encode()])
    drawn = [
        random.uniform(low, high, (*shape, *batch))
        for (low, high), shape in zip(case.ranges, case.shapes, strict=False)
    ]
    return [x.astype(np.float32).astype(np.float64) for x in drawn]


def exact(case: Case, operands: Sequence[Array]) -> Array:
    """What a case means, in 50 digits, without a batch."""
    return np.asarray(case.means(*map(_number, operands)), object)


def slope(
    case: Case, operands: Sequence[Array], directions: Sequence[Array], weights: Array
) -> float:
    """The derivative of Σ weights · result along directions: central differences in 50 digits."""
    sides = []
    for sign in (1, -1):
        moved = [
            _number(x) + sign * STEP * _number(d) for x, d in zip(operands, directions, strict=True)
        ]
        sides.append(np.sum(exact(case, moved) * weights))
    return float((sides[0] - sides[1]) / (2 * STEP))


def value_and_gradients(case: Case, operands: Sequence[Any], weights: Any) -> tuple[Any, list[Any]]:
    """Of Σ weights · result, by the tape, in the arithmetic of the operands."""
    nodes = [Taped(x) for x in operands]
    result = case.run(*nodes)
    return result.value, gradients(result * weights, nodes)
