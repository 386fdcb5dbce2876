"""Running bounds: beside each value the most by which float32 arithmetic could have moved it.

Source: running error analysis, Higham 2002, "Accuracy and Stability of Numerical Algorithms",
section 3.3; sums after Jeannerod and Rump 2013; underflow as in Higham's equation 2.8.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.arithmetic.entries import EXACT, Entries, masks
from parity.arithmetic.rounded import SMALLEST, UNIT_ROUNDOFF

__all__ = ["Bounded", "rounding"]

FUNCTION_ULPS = 4.0  # roundoffs granted to one function of a mathematical library

Array = NDArray[np.float64]


class Bounded(Entries):
    """Float64 values and, for each, the most by which float32 arithmetic could have moved it."""

    def __init__(self, value: Any, error: Any = None) -> None:
        self.value = np.asarray(value, np.float64)
        self.error = np.zeros_like(self.value) if error is None else np.asarray(error)

    @staticmethod
    def lift(values: Any) -> Any:
        """An exact input; integers and booleans stay what they are."""
        array = np.asarray(values)
        return Bounded(array) if array.dtype.kind == "f" else array

    def moved(self, change: Callable[[Array], Array]) -> "Bounded":
        """Values and errors alike."""
        return Bounded(change(self.value), change(self.error))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        if ufunc not in _RULES:
            if ufunc in EXACT:  # comparisons: no branch is taken differently
                return ufunc(*(x.value if isinstance(x, Bounded) else x for x in inputs))
            return NotImplemented
        operands = [x if isinstance(x, Bounded) else Bounded(x) for x in inputs]
        value = ufunc(*(x.value for x in operands))
        with np.errstate(all="ignore"):  # where nothing is left of a divisor
            rule, roundoffs = _RULES[ufunc]
            error = rule(value, *operands)
            if ufunc is not np.multiply or not any(masks(x) for x in inputs):
                error = error + rounding(value, error, roundoffs)
        return Bounded(value, error)


def rounding(value: Array, error: Array, roundoffs: float) -> Array:
    """What so many roundoffs or underflows may add to an error; nothing to an exact 0 or to ∞."""
    size = np.where(np.isinf(value), 0.0, np.abs(value)) + error
    return np.where(size == 0, 0.0, roundoffs * (UNIT_ROUNDOFF * size + SMALLEST))


def _product(size: Array, error: Array) -> Array:
    """What an error becomes by a factor; no error stays none."""
    return np.where((size == 0) | (error == 0), 0.0, np.abs(size) * error)


def _share(error: Array, room: Array) -> Array:
    """An error divided by how much is left of the divisor; without bound where nothing is."""
    share = np.where(room > 0, error / room, np.inf)
    return np.where(error == 0, 0.0, share)


def _error_of_sum(_: Array, a: Bounded, b: Bounded) -> Array:
    return a.error + b.error


def _error_of_product(_: Array, a: Bounded, b: Bounded) -> Array:
    own = _product(a.value, b.error) + _product(b.value, a.error)
    return own + _product(a.error, b.error)


def _error_of_quotient(value: Array, a: Bounded, b: Bounded) -> Array:
    return _share(a.error + _product(value, b.error), np.abs(b.value) - b.error)


def _error_of_root(value: Array, a: Bounded) -> Array:
    left = a.value - a.error
    return np.where(left > 0, _share(a.error, value + np.sqrt(left)), np.sqrt(a.error))


def _error_of_exp(value: Array, a: Bounded) -> Array:
    """By how much exp(a) may grow: value (exp(error) - 1), also where the value underflows."""
    return np.where(value == 0, np.exp(a.value + a.error), _product(value, np.expm1(a.error)))


def _error_of_expm1(_: Array, a: Bounded) -> Array:
    return _error_of_exp(np.exp(a.value), a)


def _error_of_log(_: Array, a: Bounded) -> Array:
    return _share(a.error, a.value - a.error)


def _error_of_log1p(_: Array, a: Bounded) -> Array:
    return _share(a.error, 1 + a.value - a.error)


def _error_of_tanh(value: Array, a: Bounded) -> Array:
    flattest = np.maximum(np.abs(value) - a.error, 0)  # |tanh| where it is steepest
    return _product(1 - flattest**2, a.error)


def _error_kept(_: Array, a: Bounded) -> Array:
    return a.error


def _error_of_larger(_: Array, a: Bounded, b: Bounded) -> Array:
    """That of the larger one where the other cannot reach it."""
    apart = np.abs(a.value - b.value) > a.error + b.error
    larger = np.where(a.value > b.value, a.error, b.error)
    return np.where(apart, larger, np.maximum(a.error, b.error))


def _error_of_smaller(value: Array, a: Bounded, b: Bounded) -> Array:
    return _error_of_larger(value, -a, -b)


_RULES: dict[Any, tuple[Callable[..., Array], float]] = {  # error and roundoffs of its own
    np.add: (_error_of_sum, 1),
    np.subtract: (_error_of_sum, 1),
    np.multiply: (_error_of_product, 1),
    np.divide: (_error_of_quotient, 1),
    np.sqrt: (_error_of_root, 1),
    np.exp: (_error_of_exp, FUNCTION_ULPS),
    np.expm1: (_error_of_expm1, FUNCTION_ULPS),
    np.log: (_error_of_log, FUNCTION_ULPS),
    np.log1p: (_error_of_log1p, FUNCTION_ULPS),
    np.tanh: (_error_of_tanh, FUNCTION_ULPS),
    np.negative: (_error_kept, 0),
    np.absolute: (_error_kept, 0),
    np.maximum: (_error_of_larger, 0),
    np.minimum: (_error_of_smaller, 0),
}
