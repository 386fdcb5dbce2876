"""Replicas: honest float32 programs in everything but luck, all in one NumPy batch.

Source: Monte Carlo arithmetic, Parker 1997; docs/noise.md has the measurements.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.arithmetic.entries import EXACT, Entries, masks

__all__ = ["REPLICAS", "SMALLEST", "UNIT_ROUNDOFF", "Luck", "Rounded"]

UNIT_ROUNDOFF = 2.0**-24  # of float32, to nearest
REPLICAS = 64
SMALLEST = 2.0**-126  # JAX flushes what is smaller

_SPREAD = np.uint64(64 - 29)  # the upper 29 bits of a hash are a die; as the lower ones of a ...
_ONE = np.float64(1.0).view(np.uint64)  # ... float64 of 1 and more they make up to 2 roundoffs
_BLOCK = 2**14  # values handled at once
_ROLLS = 2**10  # throws of the dice drawn at once
_SEED = 20  # any: allowances must be the same in every run

Array = NDArray[np.float64]
Dice = NDArray[np.uint64]


class Luck:
    """The dice of a set of replicas: random roundings, orders of summation, spellings.

    Equal terms round alike, and sums of them drift by the pattern of their last bits, all replicas
    by the same amount. Half of the replicas sum the oracle's own terms; the others sum at a scale
    of their own, for a program that divides by N after the sum has other last bits. So has a
    float64 run: for it (`foreign_bits`) every replica has a scale.
    """

    def __init__(
        self, seed: int = _SEED, replicas: int = REPLICAS, *, foreign_bits: bool = False
    ) -> None:
        self.replicas = replicas
        self._random = np.random.Generator(np.random.SFC64(seed))
        self._salt = self._random.bit_generator.random_raw(replicas)
        self._odds: list[np.uint64] = []
        self._scratch: dict[tuple[int, ...], tuple[Dice, Dice]] = {}
        self._places: dict[tuple[int, ...], NDArray[np.intp]] = {}
        self.kinds = (replicas // 16, 2, 2, 4)  # of the number's bits, as they are read below
        number = np.arange(replicas)
        self.adds_onto_base = number % 2 == 0
        self.subtracts_logsumexp = number // 2 % 2 == 0
        self.flushes = number // 4 % 2 == 0
        self.scaled = number // 8 % 2 == 1
        own = ~self.scaled & (not foreign_bits)
        self._scale = np.where(own, 1.0, 1 + self._random.random(replicas))
        if foreign_bits:
            self.scaled[:] = False  # all are alike: none stands for the run's own bits

    def lift(self, values: Any) -> Any:
        """Gives every replica the same exact input; the replicas become the last axis.

        Integers and booleans are the same for all of them: their last axis has length 1.
        """
        array = np.asarray(values)[..., None]
        if array.dtype.kind != "f":
            return array
        return Rounded(np.broadcast_to(array, (*array.shape[:-1], self.replicas)), self)

    def round(self, values: Array) -> Array:
        """Moves each value, where it stands, by up to the unit roundoff times its size, at random.

        Within one operation of one replica equal values move alike, as in any program: a hash of
        their bits is the die. Half of the replicas flush subnormal results to 0, as JAX does.
        """
        if not self._odds:
            self._odds = [*(self._random.bit_generator.random_raw(_ROLLS) | np.uint64(1))]
        odd = self._odds.pop()
        if values.size <= _BLOCK:
            self._round_block(values, odd)
            return values
        flat = np.ascontiguousarray(values).reshape(-1, self.replicas)
        rows = _BLOCK // self.replicas
        for start in range(0, len(flat), rows):
            self._round_block(flat[start : start + rows], odd)
        return flat.reshape(values.shape)

    def _round_block(self, values: Array, odd: np.uint64) -> None:
        """Few enough values that their dice stay near the processor."""
        shape = values.shape
        if shape not in self._scratch:
            salts = np.ascontiguousarray(np.broadcast_to(self._salt, shape))
            self._scratch[shape] = salts, np.empty_like(salts)
        salts, dice = self._scratch[shape]
        factors = dice.view(np.float64)
        np.bitwise_xor(values.view(np.uint64), salts, dice)
        np.multiply(dice, odd, dice)
        np.right_shift(dice, _SPREAD, dice)
        np.bitwise_or(dice, _ONE, dice)
        np.subtract(factors, UNIT_ROUNDOFF, factors)
        np.multiply(values, factors, values)
        np.absolute(values, factors)
        if not np.minimum.reduce(factors, None, initial=1.0) >= SMALLEST:  # or NaN
            np.copyto(values, 0.0, where=(factors < SMALLEST) & self.flushes)

    def shuffled(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        """Puts the first axis of arrays [n, batch, replica] into an order of each replica's own.

        The same order for all of the arrays. Of the first eight of both halves two replicas keep
        the order of the data and two turn it round, as plain programs do: sorted data pile up and
        come down again, which orders at random hardly ever do. The others' are drawn once for each
        shape, and then set off anew.
        """
        shape = arrays[0].shape
        if shape not in self._places:
            self._places[shape] = self._drawn(*shape)
        places, start = self._places[shape], self._random.permutation(shape[0])
        found = []
        for array in arrays:
            result = array.take(start, axis=0).ravel().take(places, mode="clip")
            for first in (0, 8):
                kept, turned = slice(first, first + 2), slice(first + 2, first + 4)
                result[..., kept] = array[..., kept]
                result[..., turned] = array[::-1, ..., turned]
            found.append(result)
        return found

    def _drawn(self, length: int, batch: int, replicas: int) -> NDArray[np.intp]:
        """Where in a flattened array each replica finds its terms, in an order of its own."""
        keys = self._random.random((replicas, length), dtype=np.float32)
        order = np.ascontiguousarray(keys.argsort(axis=1).T)[:, None]
        return order * (batch * replicas) + np.arange(batch * replicas).reshape(batch, replicas)

    def blocks(self, length: int, batch: int) -> Iterator[slice]:
        """Parts of a batch of sums that are small enough to stay near the processor."""
        size = max(1, _BLOCK // (max(length, 1) * self.replicas))
        return (slice(first, first + size) for first in range(0, batch, size))

    def narrow(self, values: Array) -> NDArray[np.float32]:
        """Float32, at the scale at which each replica sums."""
        return (values * self._scale).astype(np.float32)

    def widen(self, values: NDArray[np.float32]) -> Array:
        """The float64 of a sum, without the scale."""
        wide: Array = values.astype(np.float64) / self._scale
        return wide

    def added(self, terms: Array) -> Array:
        """Float32 sums over the first axis, left to right, each replica in an order of its own."""
        if not len(terms):
            return np.zeros(terms.shape[1:])
        if len(terms) == 1:
            only: Array = terms[0]
            return only
        batches = terms.reshape(len(terms), -1, self.replicas)
        sums: Array = np.empty(batches.shape[1:])
        for part in self.blocks(*batches.shape[:2]):
            (shuffled,) = self.shuffled(self.narrow(batches[:, part]))
            sums[part] = self.widen(left_to_right(shuffled))
        return sums.reshape(terms.shape[1:])

    def scattered(self, base: Array, index: NDArray[np.intp], terms: Array) -> Array:
        """Adds terms[i] to base[index[i]] in float32, each replica in an order of its own.

        Args:
            base: [m, batch, replica].
            index: [n, batch, 1].
            terms: [n, batch, replica].
        """
        sums = np.empty(base.shape)
        for part in self.blocks(*terms.shape[:2]):
            flat = self.narrow(base[:, part])
            row = flat[0]
            places = index[:, part] * row.size + np.arange(row.size).reshape(row.shape)
            shuffled, places = self.shuffled(self.narrow(terms[:, part]), places)
            np.add.at(flat.reshape(-1), places.ravel(), shuffled.ravel())
            sums[:, part] = self.widen(flat)
        return sums


def left_to_right(terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Float32 sums over the first axis, one term after the other.

    NumPy adds pairwise along the axis whose entries are side by side in memory. That must not be
    the first one: of a single column it takes the running sums.
    """
    sums: NDArray[np.float32]
    if terms[0].size == 1:
        sums = terms.cumsum(0)[-1]
    else:
        sums = np.add.reduce(np.ascontiguousarray(terms), axis=0)
    return sums


class Rounded(Entries):
    """Float64 values [..., replica], every result of which is rounded at random to float32."""

    def __init__(self, value: Array, luck: Luck) -> None:
        self.value, self.luck = value, luck

    def moved(self, change: Callable[[Array], Array]) -> "Rounded":
        """The same values elsewhere; the replicas stay last."""
        return Rounded(change(self.value), self.luck)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:  # sums have orders: `kernels.total`
            return NotImplemented
        plain = [x.value if isinstance(x, Rounded) else x for x in inputs]
        result = ufunc(*plain)
        if ufunc in EXACT:
            return Rounded(result, self.luck) if result.dtype.kind == "f" else result
        if ufunc is np.multiply and (masks(plain[0]) or masks(plain[1])):
            return Rounded(result, self.luck)
        return Rounded(self.luck.round(result), self.luck)
