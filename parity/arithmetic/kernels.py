"""What is more than entry by entry, for each kind of number: sums, picks, scatters, scans.

State axes lead and are counted from the front; the axes of a batch trail, and behind them in
`Rounded` the replicas. These functions are the places where float32 programs differ in spelling
or order; the frameworks' own arrays take theirs from the array API.
"""

from functools import singledispatch
from typing import Any

import numpy as np

from parity.arithmetic.bounded import Bounded
from parity.arithmetic.rounded import UNIT_ROUNDOFF, Rounded

__all__ = [
    "as_bfloat16",
    "exactly",
    "largest",
    "log_softmax",
    "pick",
    "running",
    "scatter_add",
    "select",
    "sorting",
    "total",
]

Value = Any


def exactly(x: Value) -> Any:
    """The plain values, on which branches are decided."""
    if isinstance(x, Bounded):
        return x.value
    return x.view(np.ndarray) if isinstance(x, Rounded) else x


@singledispatch
def total(x: Value, axes: int) -> Value:
    """Sum over the first `axes` axes, pairwise: NumPy adds so along the last axis alone."""
    terms = np.asarray(x).reshape(-1, *x.shape[axes:])
    return np.ascontiguousarray(np.moveaxis(terms, 0, -1)).sum(-1)


@total.register
def _(x: Rounded, axes: int) -> Rounded:
    terms = exactly(x).reshape(-1, *x.shape[axes:])
    return x.luck.wrap(x.luck.added(terms))


@total.register
def _(x: Bounded, axes: int) -> Bounded:
    """The sum in any order: (n - 1) roundoffs of Σ|terms|, and the terms' own errors."""
    along = tuple(range(axes))
    rounding = (int(np.prod(x.shape[:axes])) - 1) * UNIT_ROUNDOFF
    errors = x.error + rounding * (np.abs(x.value) + x.error)
    return Bounded(x.value.sum(along), errors.sum(along))


@singledispatch
def largest(x: Value) -> Value:
    """The largest along the first axis, kept with length 1."""
    return x.max(0, keepdims=True)


@largest.register
def _(x: Rounded) -> Rounded:
    return x.luck.wrap(exactly(x).max(0, keepdims=True))


@largest.register
def _(x: Bounded) -> Bounded:
    """Off by no more than the largest error."""
    return x.both(lambda array: array.max(0, keepdims=True))


@singledispatch
def log_softmax(x: Value) -> Value:
    """Log-probs along the first axis: x - max - log Σ exp(x - max)."""
    shifted = x - largest(x)
    return shifted - np.log(total(np.exp(shifted), 1))


@log_softmax.register
def _(x: Rounded) -> Rounded:
    """Half of the replicas use (x - m) - log Σ, half x - logsumexp(x)."""
    most = largest(x)
    shifted = x - most
    log_sum = np.log(total(np.exp(shifted), 1))
    spelled = exactly(x - (most + log_sum)), exactly(shifted - log_sum)
    return x.luck.wrap(np.where(x.luck.subtracts_logsumexp, *spelled))


@log_softmax.register
def _(x: Bounded) -> Bounded:
    """Also bounds x - logsumexp(x), whose roundoffs are of x and not of x - max."""
    most = largest(x)
    shifted = x - most
    result = shifted - np.log(total(np.exp(shifted), 1))
    spelling = 2 * UNIT_ROUNDOFF * (np.abs(x.value) + np.abs(most.value))
    return Bounded(result.value, result.error + spelling)


@singledispatch
def pick(x: Value, index: Any) -> Value:
    """x[index[i, ...], ...] for every i, batch by batch."""
    return np.take_along_axis(x, _ranked(index, x.ndim), axis=0)


@pick.register
def _(x: Rounded, index: Any) -> Rounded:
    return x.luck.wrap(pick(exactly(x), index))


@pick.register
def _(x: Bounded, index: Any) -> Bounded:
    return x.both(lambda array: pick(array, index))


def _ranked(index: Any, rank: int) -> Any:
    return index.reshape(*index.shape, *(1,) * (rank - index.ndim))


def _places(index: Any, shape: tuple[int, ...], base: tuple[int, ...]) -> Any:
    """Where terms of a shape go in a flattened array of the base's shape."""
    rest = base[1:]
    within = np.arange(int(np.prod(rest))).reshape(rest)
    places = np.broadcast_to(_ranked(index, len(base)), shape) * within.size
    return (places + within).ravel()


@singledispatch
def scatter_add(base: Value, index: Any, terms: Value) -> Value:
    """Adds terms[i] to base[index[i, ...], ...], batch by batch."""
    added = np.array(base, order="C")
    places = _places(index, terms.shape, added.shape)
    np.add.at(added.reshape(-1), places, np.asarray(terms).ravel())
    return added


@scatter_add.register
def _(base: Rounded, index: Any, terms: Rounded) -> Rounded:
    """Half of the replicas add onto the base, as XLA does, half onto zero and then to the base."""
    luck, plain = base.luck, exactly(base)
    order = luck.order(len(terms))
    shuffled = luck.shuffle(exactly(terms), order) * luck.scale
    index = np.broadcast_to(_ranked(index, terms.ndim), terms.shape)
    places = _places(luck.shuffle(index, order), terms.shape, plain.shape)
    flat = np.where(luck.adds_onto_base, plain * luck.scale, 0.0).astype(np.float32).ravel()
    np.add.at(flat, places, shuffled.astype(np.float32).ravel())
    sums = luck.wrap(flat.reshape(plain.shape).astype(np.float64) / luck.scale)
    return luck.wrap(np.where(luck.adds_onto_base, exactly(sums), exactly(sums + base)))


@scatter_add.register
def _(base: Bounded, index: Any, terms: Bounded) -> Bounded:
    """N roundoffs of |base| + Σ|terms| per entry, in any order, chained or not."""
    rounding = (len(terms.value) + 1) * UNIT_ROUNDOFF
    value = scatter_add(base.value, index, terms.value)
    sizes = scatter_add(np.abs(base.value), index, np.abs(terms.value) + terms.error)
    errors = scatter_add(base.error, index, terms.error)
    return Bounded(value, errors + rounding * (sizes + base.error))


def select(mask: Any, yes: Value, no: Value) -> Value:
    """`yes` where the mask holds, else `no`; what is not taken leaves no trace."""
    if isinstance(yes, Rounded) or isinstance(no, Rounded):
        luck = (yes if isinstance(yes, Rounded) else no).luck
        return luck.wrap(np.where(mask, exactly(yes), exactly(no)))
    if isinstance(yes, Bounded) or isinstance(no, Bounded):
        left, right = (x if isinstance(x, Bounded) else Bounded(x) for x in (yes, no))
        value = np.where(mask, left.value, right.value)
        return Bounded(value, np.where(mask, left.error, right.error))
    return np.where(mask, yes, no)


@singledispatch
def running(x: Value) -> Value:
    """Sums of the first i + 1 entries along the first axis."""
    return np.cumsum(x, axis=0)


@running.register
def _(x: Rounded) -> Rounded:
    sums = (exactly(x) * x.luck.scale).astype(np.float32).cumsum(0, dtype=np.float32)
    return x.luck.wrap(sums.astype(np.float64) / x.luck.scale)


@running.register
def _(x: Bounded) -> Bounded:
    rounding = (len(x.value) - 1) * UNIT_ROUNDOFF
    errors = x.error + rounding * (np.abs(x.value) + x.error)
    return Bounded(x.value.cumsum(0), errors.cumsum(0))


def sorting(x: Value) -> Any:
    """The order that sorts the first axis, equal entries as they stand."""
    return np.argsort(exactly(x), axis=0, kind="stable")


def as_bfloat16(x: Value) -> Value:
    """Values rounded to bfloat16, to nearest and ties to even, in the dtype that they had."""
    if isinstance(x, Rounded):
        return x.luck.wrap(as_bfloat16(exactly(x)))
    if isinstance(x, Bounded):
        return Bounded(as_bfloat16(x.value), x.error + 2.0**-8 * (np.abs(x.value) + x.error))
    bits = np.asarray(x, np.float32).view(np.uint32)
    even = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    rounded = ((bits + even) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), x, rounded).astype(np.asarray(x).dtype)
