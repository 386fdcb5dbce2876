"""Replicas: honest float32 programs in everything but luck, all in one NumPy batch.

Source: Monte Carlo arithmetic, Parker 1997; docs/noise.md has the measurements.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["REPLICAS", "SMALLEST", "UNIT_ROUNDOFF", "Luck", "Rounded"]

UNIT_ROUNDOFF = 2.0**-24  # of float32, to nearest
REPLICAS = 64
SMALLEST = 2.0**-126  # JAX flushes what is smaller

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio: Fibonacci hashing
_MANTISSA = np.uint64(11)  # a float64 holds 53 of 64 bits
_SEED = 20  # any: allowances must be the same in every run
EXACT = frozenset(
    {
        np.negative,
        np.absolute,
        np.maximum,
        np.minimum,
        np.less,
        np.less_equal,
        np.greater,
        np.greater_equal,
        np.equal,
        np.not_equal,
        np.isfinite,
        np.isnan,
        np.sign,
    }
)
"""What no float32 program rounds."""

Array = NDArray[np.float64]


class Luck:
    """The dice of a set of replicas: random roundings, orders of summation, spellings.

    Equal terms round alike, and sums of them drift by the pattern of their last bits. A float64
    run has other last bits than its float32 replicas: for it (`foreign_bits`) every replica sums
    at a scale of its own.
    """

    def __init__(
        self, seed: int = _SEED, replicas: int = REPLICAS, *, foreign_bits: bool = False
    ) -> None:
        self.replicas = replicas
        self._random = np.random.Generator(np.random.SFC64(seed))
        self.scale = 1 + self._random.random(replicas) if foreign_bits else np.ones(replicas)
        number = np.arange(replicas)
        self.adds_onto_base = number % 2 == 0
        self.subtracts_logsumexp = number // 2 % 2 == 0
        self.flushes = number // 4 % 2 == 0

    def lift(self, values: Any) -> Any:
        """Gives every replica the same exact input; the replicas become the last axis.

        Integers and booleans are the same for all of them: their last axis has length 1.
        """
        array = np.asarray(values)
        if array.dtype.kind != "f":
            return array[..., None]
        return self.wrap(np.repeat(array[..., None], self.replicas, axis=-1))

    def wrap(self, values: Any) -> "Rounded":
        """Marks an array, replicas last, as computed with this luck."""
        rounded = np.asarray(values).view(Rounded)
        rounded.luck = self
        return rounded

    def round(self, exact: Array) -> Array:
        """Moves each value at random, by up to the unit roundoff times its size.

        Within one operation of one replica equal values move alike, as in any program: a hash of
        their bits is the die. Half of the replicas flush subnormal results to 0, as JAX does.
        """
        bits = np.ascontiguousarray(exact, np.float64).view(np.uint64)
        salt = self._random.bit_generator.random_raw(self.replicas)
        dice = ((bits ^ salt) * _GOLDEN) >> _MANTISSA  # uniform below 2⁵³
        rounded: Array = exact * (dice * (2 * UNIT_ROUNDOFF * 2.0**-53) + (1 - UNIT_ROUNDOFF))
        small = np.abs(rounded) < SMALLEST
        if small.any():
            rounded[small & self.flushes] = 0.0
        return rounded

    def order(self, length: int) -> NDArray[np.intp]:
        """Returns one order of summation per replica, [length, replica].

        Two replicas keep the order of the data and two turn it round, as plain programs do: sorted
        data pile up and come down again, which orders at random hardly ever do.
        """
        order = self._random.random((length, self.replicas), dtype=np.float32).argsort(axis=0)
        order[:, :2] = np.arange(length)[:, None]
        order[:, 2:4] = np.arange(length)[::-1, None]
        return order

    def shuffle(self, terms: Array, order: NDArray[np.intp]) -> Array:
        """Puts the first axis into each replica's own order."""
        middle = (1,) * (terms.ndim - 2)
        return np.take_along_axis(terms, order.reshape(len(order), *middle, -1), axis=0)

    def added(self, terms: Array) -> Array:
        """Float32 sums over the first axis, left to right, each replica in an order of its own."""
        if len(terms) < 2:
            return terms.sum(0)
        shuffled = (self.shuffle(terms, self.order(len(terms))) * self.scale).astype(np.float32)
        return shuffled.sum(0, dtype=np.float32).astype(np.float64) / self.scale


class Rounded(np.ndarray[Any, np.dtype[Any]]):
    """Float64 values [..., replica], every result of which is rounded at random to float32."""

    luck: Luck

    def __array_finalize__(self, source: Any) -> None:
        if isinstance(source, Rounded):
            self.luck = source.luck

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:  # sums have orders: `kernels.total`
            return NotImplemented
        plain = [x.view(np.ndarray) if isinstance(x, Rounded) else x for x in inputs]
        result = ufunc(*plain)
        if result.dtype.kind != "f":
            return result
        masked = ufunc is np.multiply and any(np.asarray(x).dtype.kind == "b" for x in plain)
        return self.luck.wrap(result if ufunc in EXACT or masked else self.luck.round(result))
