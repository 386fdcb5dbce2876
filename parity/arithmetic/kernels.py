"""What is more than entry by entry, for each kind of number: sums, picks, scatters, scans.

State axes lead and are counted from the front; the axes of a batch trail, and behind them in
`Rounded` the replicas. These functions are the places where float32 programs differ in spelling
or order; the frameworks' own arrays take theirs from the array API.
"""

from math import prod
from typing import Any

import numpy as np

from parity.arithmetic.bounded import Bounded, rounding
from parity.arithmetic.entries import Entries, exactly
from parity.arithmetic.rounded import Rounded

__all__ = [
    "as_bfloat16",
    "largest",
    "log_softmax",
    "pick",
    "running",
    "scatter_add",
    "select",
    "sorted_alike",
    "sorting",
    "total",
]

BFLOAT16_SPACING = 2.0**-8  # of neighbours to their size: eight bits of significand

Value = Any


def total(x: Value, axes: int) -> Value:
    """Sum over the first `axes` axes, pairwise: NumPy adds so along the last axis alone."""
    if isinstance(x, Rounded):
        return _total_of_replicas(x, axes)
    if isinstance(x, Bounded):
        return _total_of_bounds(x, axes)
    terms = np.asarray(x).reshape(-1, *x.shape[axes:])
    if terms.ndim == 1:
        return terms.sum()
    return np.ascontiguousarray(terms.reshape(len(terms), -1).T).sum(-1).reshape(terms.shape[1:])


def _total_of_replicas(x: Rounded, axes: int) -> Rounded:
    terms = x.value.reshape(-1, *x.shape[axes:])
    return Rounded(x.luck.added(terms), x.luck)


def _total_of_bounds(x: Bounded, axes: int) -> Bounded:
    """The sum in any order: (n - 1) roundoffs of Σ|terms|, and the terms' own errors."""
    errors = x.error + rounding(x.value, x.error, prod(x.shape[:axes]) - 1)
    return Bounded(total(x.value, axes), total(errors, axes))


def largest(x: Value) -> Value:
    """The largest along the first axis, kept with length 1; off by no more than the worst error."""
    if isinstance(x, Entries):
        return x.moved(largest)
    return np.maximum.reduce(x, axis=0, keepdims=True)


def log_softmax(x: Value) -> Value:
    """Log-probs along the first axis: x - max - log Σ exp(x - max)."""
    if isinstance(x, Rounded):
        return _log_softmax_of_replicas(x)
    if isinstance(x, Bounded):
        return _log_softmax_of_bounds(x)
    shifted = x - largest(x)
    return shifted - np.log(total(np.exp(shifted), 1))


def _log_softmax_of_replicas(x: Rounded) -> Value:
    """Half of the replicas use (x - m) - log Σ, half x - logsumexp(x)."""
    most = largest(x)
    shifted = x - most
    log_sum = np.log(total(np.exp(shifted), 1))
    return select(x.luck.subtracts_logsumexp, x - (most + log_sum), shifted - log_sum)


def _log_softmax_of_bounds(x: Bounded) -> Bounded:
    """Also bounds x - logsumexp(x), whose roundoffs are of x and not of x - max."""
    most = largest(x)
    shifted = x - most
    result = shifted - np.log(total(np.exp(shifted), 1))
    spelling = rounding(x.value, np.abs(most.value), 2)
    return Bounded(result.value, result.error + spelling)


def pick(x: Value, index: Any) -> Value:
    """x[index[i, ...], ...] for every i, batch by batch."""
    if isinstance(x, Entries):
        return x.moved(lambda array: pick(array, index))
    x, shape = np.asarray(x), np.shape(index)
    whole = len(shape)  # the first of the axes that are taken along whole
    while whole > 1 and shape[whole - 1] == 1:
        whole -= 1
    if shape[1:whole] != x.shape[1:whole]:
        return np.take_along_axis(x, _ranked(index, x.ndim), axis=0)
    batch = prod(shape[1:whole])
    rows = index.reshape(shape[0], batch) * batch + np.arange(batch)
    picked = x.reshape(-1, *x.shape[whole:]).take(rows, axis=0)
    return picked.reshape(shape[0], *x.shape[1:])


def _ranked(index: Any, rank: int) -> Any:
    return index.reshape(*index.shape, *(1,) * (rank - index.ndim))


def scatter_add(base: Value, index: Any, terms: Value) -> Value:
    """Adds terms[i] to base[index[i, ...], ...], batch by batch."""
    if isinstance(base, Rounded):
        return _scatter_add_of_replicas(base, index, terms)
    if isinstance(base, Bounded):
        return _scatter_add_of_bounds(base, index, terms)
    row = prod(base.shape[1:])
    within = np.arange(row).reshape(base.shape[1:])
    places = np.broadcast_to(_ranked(index, base.ndim) * row + within, terms.shape)
    sums = np.bincount(places.ravel(), np.asarray(terms).ravel(), base.size)
    return base + sums.reshape(base.shape)


def _scatter_add_of_replicas(base: Rounded, index: Any, terms: Rounded) -> Value:
    """Half of the replicas add onto the base, as XLA does, half onto zero and then to the base."""
    luck, shape = base.luck, base.shape
    onto = np.where(luck.adds_onto_base, base.value, 0.0).reshape(shape[0], -1, luck.replicas)
    batches = terms.value.reshape(len(terms.value), -1, luck.replicas)
    places = np.broadcast_to(_ranked(index, base.ndim), (*terms.shape[:-1], 1))
    places = places.reshape(len(batches), -1, 1)
    sums = Rounded(luck.scattered(onto, places, batches).reshape(shape), luck)
    return select(luck.adds_onto_base, sums, sums + base)


def _scatter_add_of_bounds(base: Bounded, index: Any, terms: Bounded) -> Bounded:
    """N roundoffs of |base| + Σ|terms| per entry, in any order, chained or not."""
    value = scatter_add(base.value, index, terms.value)
    each = base.error + rounding(base.value, base.error, len(terms.value) + 1)
    more = terms.error + rounding(terms.value, terms.error, len(terms.value) + 1)
    return Bounded(value, scatter_add(each, index, more))


def select(mask: Any, yes: Value, no: Value) -> Value:
    """`yes` where the mask holds, else `no`; what is not taken leaves no trace."""
    if isinstance(yes, Rounded) or isinstance(no, Rounded):
        luck = (yes if isinstance(yes, Rounded) else no).luck
        return Rounded(np.where(mask, exactly(yes), exactly(no)), luck)
    if isinstance(yes, Bounded) or isinstance(no, Bounded):
        left, right = (x if isinstance(x, Bounded) else Bounded(x) for x in (yes, no))
        value = np.where(mask, left.value, right.value)
        return Bounded(value, np.where(mask, left.error, right.error))
    return np.where(mask, yes, no)


def running(x: Value) -> Value:
    """Sums of the first i + 1 entries along the first axis."""
    if isinstance(x, Rounded):
        return _running_of_replicas(x)
    if isinstance(x, Bounded):
        return _running_of_bounds(x)
    return np.cumsum(x, axis=0)


def _running_of_replicas(x: Rounded) -> Rounded:
    """Some replicas add one by one, some in blocks, as parallel programs do."""
    luck, terms = x.luck, x.luck.narrow(x.value)
    sizes = [len(terms), *(2**power for power in range(1, len(terms).bit_length()))]
    sums = np.empty_like(terms)
    for turn, size in enumerate(sizes):
        sums[..., turn :: len(sizes)] = _in_blocks(terms[..., turn :: len(sizes)], size)
    return Rounded(luck.widen(sums), luck)


def _in_blocks(terms: Any, size: int) -> Any:
    """Running float32 sums of blocks, each onto the sum of the blocks before it."""
    sums = terms.copy()
    for start in range(0, len(terms), size):
        block = terms[start : start + size].cumsum(0)
        sums[start : start + size] = block + sums[start - 1] if start else block
    return sums


def _running_of_bounds(x: Bounded) -> Bounded:
    """As many roundoffs as additions, in any order."""
    errors = x.error + rounding(x.value, x.error, len(x.value) - 1)
    return Bounded(x.value.cumsum(0), errors.cumsum(0))


def sorting(x: Value) -> Any:
    """The order that sorts the first axis, equal entries as they stand."""
    return np.argsort(exactly(x), axis=0, kind="stable")


def sorted_alike(x: Value, axis: int) -> Value:
    """Sorted values: one may have taken the place of any other, so all have the worst error."""
    if not isinstance(x, Bounded):
        return x
    worst = x.error.max(axis, keepdims=True)
    return Bounded(x.value, np.broadcast_to(worst, x.shape))


def as_bfloat16(x: Value) -> Value:
    """Values rounded to bfloat16, to nearest and ties to even, in the dtype that they had."""
    if isinstance(x, Rounded):
        return x.moved(as_bfloat16)
    if isinstance(x, Bounded):
        farther = x.error + BFLOAT16_SPACING * (np.abs(x.value) + x.error)
        return Bounded(as_bfloat16(x.value), np.where(x.error == 0, 0.0, farther))
    bits = np.asarray(x, np.float32).view(np.uint32)
    even = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    rounded = ((bits + even) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), x, rounded).astype(np.asarray(x).dtype)
