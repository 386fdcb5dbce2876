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
        if ufunc not in _ERROR_OF:
            if ufunc in EXACT:  # comparisons: no branch is taken differently
                return ufunc(*(x.value if isinstance(x, Bounded) else x for x in inputs))
            return NotImplemented
        operands = [x if isinstance(x, Bounded) else Bounded(x) for x in inputs]
        value = ufunc(*(x.value for x in operands))
        with np.errstate(all="ignore"):  # where nothing is left of a divisor
            error, roundoffs = _ERROR_OF[ufunc](value, *operands)
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


def _error_of_exp(a: Bounded, value: Array) -> Array:
    """By how much exp(a) may grow: value (exp(error) - 1), also where the value underflows."""
    return np.where(value == 0, np.exp(a.value + a.error), _product(value, np.expm1(a.error)))


def error_of_larger(a: Bounded, b: Bounded) -> Array:
    """Error of max(a, b): that of the larger one where the other cannot reach it."""
    apart = np.abs(a.value - b.value) > a.error + b.error
    larger = np.where(a.value > b.value, a.error, b.error)
    return np.where(apart, larger, np.maximum(a.error, b.error))


_ERROR_OF: dict[Any, Callable[..., tuple[Array, float]]] = {
    np.add: lambda _, a, b: (a.error + b.error, 1),
    np.subtract: lambda _, a, b: (a.error + b.error, 1),
    np.multiply: lambda _, a, b: (
        _product(a.value, b.error) + _product(b.value, a.error) + _product(a.error, b.error),
        1,
    ),
    np.divide: lambda value, a, b: (
        _share(a.error + _product(value, b.error), np.abs(b.value) - b.error),
        1,
    ),
    np.sqrt: lambda value, a: (
        np.where(
            a.error < a.value,
            _share(a.error, value + np.sqrt(a.value - a.error)),
            np.sqrt(a.error),
        ),
        1,
    ),
    np.exp: lambda value, a: (_error_of_exp(a, value), FUNCTION_ULPS),
    np.expm1: lambda _, a: (_error_of_exp(a, np.exp(a.value)), FUNCTION_ULPS),
    np.log: lambda _, a: (_share(a.error, a.value - a.error), FUNCTION_ULPS),
    np.log1p: lambda _, a: (_share(a.error, 1 + a.value - a.error), FUNCTION_ULPS),
    np.tanh: lambda value, a: (
        np.minimum(_product(1 - np.maximum(np.abs(value) - a.error, 0) ** 2, a.error), a.error),
        FUNCTION_ULPS,
    ),
    np.negative: lambda _, a: (a.error, 0),
    np.absolute: lambda _, a: (a.error, 0),
    np.maximum: lambda _, a, b: (error_of_larger(a, b), 0),
    np.minimum: lambda _, a, b: (error_of_larger(-a, -b), 0),
}
