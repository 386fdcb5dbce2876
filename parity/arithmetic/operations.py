"""The operations that objectives are written in, each once, with its backward.

They take plain NumPy arrays, replicas, bounds, any of these on the tape, and the arrays of any
framework that has an array-API namespace. State axes lead and are counted from the front: axis 0 of
log-probs [B, T] is B, whatever batch trails behind.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parity.arithmetic import kernels
from parity.arithmetic.entries import Entries, exactly, moved
from parity.arithmetic.tape import Scatter, Taped, fit, is_framework_like, over, raw, times

__all__ = [
    "abs",
    "as_bfloat16",
    "clip",
    "cumulative",
    "exp",
    "expm1",
    "flip",
    "gather",
    "is_own",
    "log",
    "log1p",
    "log_sigmoid",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "maximum",
    "mean",
    "minimum",
    "one_hot",
    "reverse_cumulative",
    "roll",
    "sigmoid",
    "softplus",
    "sort",
    "sqrt",
    "stop_gradient",
    "sum",
    "tanh",
    "where",
]

Value = Any
Axis = int | tuple[int, ...]


def is_own(x: Value) -> bool:
    """Whether a value is of our arithmetics, and no framework's array."""
    return isinstance(x, np.ndarray | np.generic | Entries | Taped | int | float)


def _space(*values: Value) -> Any:
    """The namespace whose functions take these values."""
    for value in values:
        if not is_own(value):
            from array_api_compat import array_namespace

            return array_namespace(value)
    return np


def _like(x: Value, other: Value) -> Value:
    """A number as an array beside a framework's: the array API wants arrays on both sides."""
    if isinstance(x, int | float) and not is_own(other):
        return _space(other).asarray(x, dtype=other.dtype)
    return x


def _unary(x: Value, name: str, back: Callable[[Value, Value, Value], Value]) -> Value:
    if isinstance(x, Taped):
        y = getattr(np, name)(x.value)
        return Taped(y, [(x, lambda g: back(g, x.value, y))])
    return getattr(_space(x), name)(x)


def exp(x: Value) -> Value:
    """The exponential of x."""
    return _unary(x, "exp", lambda g, _x, y: times(g, y))


def expm1(x: Value) -> Value:
    """The exponential of x, less 1, without cancellation."""
    return _unary(x, "expm1", lambda g, x, _y: times(g, np.exp(x)))


def log(x: Value) -> Value:
    """The natural logarithm of x."""
    return _unary(x, "log", lambda g, x, _y: over(g, x))


def log1p(x: Value) -> Value:
    """The natural logarithm of 1 + x, without cancellation."""
    return _unary(x, "log1p", lambda g, x, _y: over(g, 1.0 + x))


def sqrt(x: Value) -> Value:
    """√x."""
    return _unary(x, "sqrt", lambda g, _x, y: over(0.5 * g, y))


def tanh(x: Value) -> Value:
    """The hyperbolic tangent of x."""
    return _unary(x, "tanh", lambda g, _x, y: times(g, 1.0 - y * y))


def abs(x: Value) -> Value:  # noqa: A001  # the array API's name
    """|x|; its derivative at 0 is 0."""
    if isinstance(x, Taped):
        sign = np.sign(exactly(x.value))
        return Taped(
            np.absolute(x.value),
            [(x, lambda g: kernels.select(sign < 0, -g, g * (sign > 0)))],
        )
    return _space(x).abs(x)


def softplus(x: Value) -> Value:
    """log(1 + exp(x)), without overflow."""
    if isinstance(x, Taped):
        y = softplus(x.value)
        return Taped(y, [(x, lambda g: times(g, np.exp(x.value - y)))])
    if is_own(x):
        return np.maximum(x, 0.0) + np.log1p(np.exp(-np.absolute(x)))
    return _space(x).logaddexp(x, _like(0.0, x))


def logaddexp(a: Value, b: Value) -> Value:
    """log(exp(a) + exp(b)), without overflow."""
    if not (is_own(a) and is_own(b)):
        return _space(a, b).logaddexp(_like(a, b), _like(b, a))
    x, y = raw(a), raw(b)
    value = np.maximum(x, y) + np.log1p(np.exp(-np.absolute(x - y)))

    def back(node: Taped) -> Callable[[Value], Value]:
        return lambda g: fit(times(g, np.exp(node.value - value)), node.value)

    parents = [(node, back(node)) for node in (a, b) if isinstance(node, Taped)]
    return Taped(value, parents) if parents else value


def log_sigmoid(x: Value) -> Value:
    """The logarithm of σ(x), without overflow."""
    return -softplus(-x)


def sigmoid(x: Value) -> Value:
    """σ(x) = 1/(1 + exp(-x)), without overflow."""
    if isinstance(x, Taped):
        y = sigmoid(x.value)
        other = 1.0 - y if is_framework_like() else sigmoid(-x.value)
        return Taped(y, [(x, lambda g: times(g, y * other))])
    if is_own(x):
        small = np.exp(-np.absolute(x))  # of the two exponentials
        return kernels.select(exactly(x) >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
    return x.sigmoid() if hasattr(x, "sigmoid") else sys.modules["jax"].nn.sigmoid(x)


def minimum(a: Value, b: Value) -> Value:
    """The smaller one; at a tie all of the gradient goes to the first."""
    return _one_of(np.minimum, "minimum", a, b)


def maximum(a: Value, b: Value) -> Value:
    """The larger one; at a tie all of the gradient goes to the first."""
    return _one_of(np.maximum, "maximum", a, b)


def _one_of(ufunc: Any, name: str, a: Value, b: Value) -> Value:
    if not (is_own(a) and is_own(b)):
        return getattr(_space(a, b), name)(_like(a, b), _like(b, a))
    x, y = raw(a), raw(b)
    value = ufunc(x, y)
    if not (isinstance(a, Taped) or isinstance(b, Taped)):
        return value
    first = np.asarray(exactly(x) == ufunc(exactly(x), exactly(y)))
    return _chosen(value, (a, first), (b, ~first))


def _chosen(value: Value, *sides: tuple[Value, Any]) -> Value:
    """A value of entries each taken from one of two sides, which alone gets its gradient."""

    def back(node: Taped, taken: Any) -> Callable[[Value], Value]:
        return lambda g: fit(kernels.select(taken, g, 0.0), node.value)

    parents = [(node, back(node, taken)) for node, taken in sides if isinstance(node, Taped)]
    return Taped(value, parents) if parents else value


def clip(x: Value, low: Value, high: Value) -> Value:
    """Holds x between two bounds, which get no gradient; 1 inside and on them, 0 beyond."""
    low, high = raw(low), raw(high)
    if not isinstance(x, Taped):
        return minimum(maximum(x, low), high)
    value = np.minimum(np.maximum(x.value, low), high)
    plain = exactly(x.value)
    inside = np.asarray((plain >= exactly(low)) & (plain <= exactly(high)))
    return Taped(value, [(x, lambda g: fit(kernels.select(inside, g, 0.0), x.value))])


def where(mask: Value, yes: Value, no: Value) -> Value:
    """`yes` where the mask holds, else `no`; NaN and infinities of the other leave no trace."""
    if not (is_own(mask) and is_own(yes) and is_own(no)):
        space = _space(mask, yes, no)
        like = yes if not is_own(yes) else no
        return space.where(mask, _like(yes, like), _like(no, like))
    mask = np.asarray(exactly(raw(mask)), bool)
    return _chosen(kernels.select(mask, raw(yes), raw(no)), (yes, mask), (no, ~mask))


def stop_gradient(x: Value) -> Value:
    """A value through which no gradient passes."""
    if is_own(x):
        return raw(x)
    if hasattr(x, "detach"):
        return x.detach()
    return sys.modules["jax"].lax.stop_gradient(x)  # whose array this is, so it is loaded


def as_bfloat16(x: Value) -> Value:
    """Rounds to bfloat16 on the way, as a cast there and back does; so does its gradient."""
    if isinstance(x, Taped):
        return Taped(kernels.as_bfloat16(x.value), [(x, kernels.as_bfloat16)])
    if is_own(x):
        return kernels.as_bfloat16(x)
    space = _space(x)
    return space.astype(space.astype(x, space.bfloat16), x.dtype)


def _axes(axis: Axis) -> tuple[int, ...]:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if any(place < 0 for place in axes):  # batches trail: the last axis is theirs
        raise ValueError(f"axis: got {axis}; expected axes counted from the front")
    return axes


def _in_front(x: Value, axes: Sequence[int]) -> Value:
    """Moves axes to the front, in their order."""
    if tuple(axes) == tuple(range(len(axes))):
        return x
    return moved(x, lambda array: np.moveaxis(array, axes, range(len(axes))))


def sum(x: Value, axis: Axis = 0, *, mask: Value = None) -> Value:  # noqa: A001  # the same
    """Sum over one or several state axes; where a mask is given, over what it keeps."""
    if mask is not None:
        x = where(mask, x, 0.0)
    axes = _axes(axis)
    if not is_own(x):
        return _space(x).sum(x, axis=axes)
    if not isinstance(x, Taped):
        return kernels.total(_in_front(x, axes), len(axes))
    shape = x.shape

    kept = tuple(1 if place in axes else length for place, length in enumerate(shape))

    def back(g: Value) -> Value:
        return moved(g, spread)

    def spread(array: Any) -> Any:
        full = np.empty(shape, array.dtype)
        full[...] = array.reshape(kept)
        return full

    return Taped(sum(x.value, axis), [(x, back)])


def mean(x: Value, axis: Axis = 0, *, mask: Value = None) -> Value:
    """Mean over one or several state axes; where a mask is given, of what it keeps."""
    if mask is None:
        count: Value = 1
        for place in _axes(axis):
            count *= x.shape[place]
        return sum(x, axis) / count
    return sum(x, axis, mask=mask) / sum(where(mask, 1.0, mask * 0.0), axis)


def log_softmax(x: Value, axis: int = 0) -> Value:
    """Log-probs along an axis: x - max - log Σ exp(x - max)."""
    if not is_own(x):
        space = _space(x)
        shifted = x - stop_gradient(space.max(x, axis=axis, keepdims=True))
        return shifted - space.log(space.sum(space.exp(shifted), axis=axis, keepdims=True))
    value = _along(kernels.log_softmax, raw(x), axis)
    if not isinstance(x, Taped):
        return value

    def back(g: Value) -> Value:
        spread = _along(lambda array: kernels.total(array, 1)[None], g, axis)
        return g - times(spread, np.exp(value))

    return Taped(value, [(x, back)])


def logsumexp(x: Value, axis: int = 0) -> Value:
    """The logarithm of Σ exp(x) along an axis, which goes."""
    if not is_own(x):
        space = _space(x)
        most = stop_gradient(space.max(x, axis=axis, keepdims=True))
        return space.squeeze(most, axis=axis) + space.log(space.sum(space.exp(x - most), axis=axis))
    plain = _in_front(raw(x), (axis,))
    most = kernels.largest(plain)
    value = most[0] + np.log(kernels.total(np.exp(plain - most), 1))
    if not isinstance(x, Taped):
        return value

    def expand(y: Value) -> Value:
        return moved(y, lambda array: np.expand_dims(array, axis))

    return Taped(value, [(x, lambda g: times(expand(g), np.exp(x.value - expand(value))))])


def _along(function: Callable[[Value], Value], x: Value, axis: int) -> Value:
    """Applies what works along the first axis to another one."""
    result = function(_in_front(x, (axis,)))
    return result if axis == 0 else moved(result, lambda array: np.moveaxis(array, 0, axis))


def gather(x: Value, index: Any) -> Value:
    """x[index]: entries along the first axis, picked by integers [n]."""
    if not is_own(x):
        return x[index]
    if isinstance(x, Taped):
        return Taped(kernels.pick(x.value, index), [(x, Scatter(index))])
    return kernels.pick(x, index)


def one_hot(index: Any, length: int) -> Any:
    """Whether an index [n] is that of a column: [n, length], true once a row."""
    columns = _space(index).arange(length)
    return index[:, None] == columns.reshape((length, *(1,) * (index.ndim - 1)))


def flip(x: Value, axis: int = 0) -> Value:
    """The entries of an axis in reverse order."""
    if not is_own(x):
        return _space(x).flip(x, axis=axis)
    value = moved(raw(x), lambda array: np.flip(array, axis))
    return Taped(value, [(x, lambda g: flip(g, axis))]) if isinstance(x, Taped) else value


def roll(x: Value, shift: int, axis: int = 0) -> Value:
    """The entries of an axis moved on by some places; those at its end come in at its start."""
    if not is_own(x):
        return _space(x).roll(x, shift, axis=axis)
    value = moved(raw(x), lambda array: np.roll(array, shift, axis))
    return Taped(value, [(x, lambda g: roll(g, -shift, axis))]) if isinstance(x, Taped) else value


def cumulative(x: Value, axis: int = 0) -> Value:
    """Sums of everything up to each entry."""
    if not is_own(x):
        return _space(x).cumulative_sum(x, axis=axis)
    value = _along(kernels.running, raw(x), axis)
    if not isinstance(x, Taped):
        return value
    return Taped(value, [(x, lambda g: reverse_cumulative(g, axis))])


def reverse_cumulative(x: Value, axis: int = 0) -> Value:
    """Sums of each entry and everything after it."""
    if isinstance(x, Taped):
        value = reverse_cumulative(x.value, axis)
        return Taped(value, [(x, lambda g: cumulative(g, axis))])
    return flip(cumulative(flip(x, axis), axis), axis)


def sort(x: Value, axis: int = 0) -> Value:
    """Sorted upwards along an axis; equal entries stay in order."""
    if not is_own(x):
        return _space(x).sort(x, axis=axis)
    front = _in_front(raw(x), (axis,))
    order = kernels.sorting(front)

    def taken(y: Value) -> Value:
        return moved(y, lambda array: np.take_along_axis(array, order, axis=0))

    value = kernels.sorted_alike(_along(taken, raw(x), axis), axis)
    if not isinstance(x, Taped):
        return value
    back = np.argsort(order, axis=0)

    def returned(y: Value) -> Value:
        return moved(y, lambda array: np.take_along_axis(array, back, axis=0))

    return Taped(value, [(x, lambda g: _along(returned, g, axis))])
