"""Arrays of mpmath numbers: 50 digits, a namespace of their own, and no function of NumPy's.

Every number stands twice: as it is moved, and as it was at the start. What is detached goes back to
the start, so that a difference of two moved values is a derivative as automatic ones are.
"""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpmath import MPContext

__all__ = ["CONTEXT", "STEP", "Exact", "central_difference"]

CONTEXT = MPContext()
CONTEXT.dps = 50
STEP = CONTEXT.mpf(10) ** -15  # (STEP²/6)|f‴| and 10⁻⁵⁰|f|/STEP are below 1e-29

_number = np.frompyfunc(CONTEXT.mpf, 1, 1)


def _whole(value: Any) -> np.ndarray:
    return np.asarray(value, object) if isinstance(value, CONTEXT.mpf) else np.asarray(value)


class Exact:
    """An array of numbers: `moved`, and `still` where they were at the start."""

    __array_ufunc__ = None
    dtype = "fifty digits"

    def __init__(self, moved: Any, still: Any = None) -> None:
        self.moved = _number(_whole(moved))
        self.still = self.moved if still is None else _number(_whole(still))
        self.moved, self.still = (np.asarray(x, object) for x in (self.moved, self.still))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.moved.shape

    @property
    def ndim(self) -> int:
        return self.moved.ndim

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return NAMESPACE

    def detach(self) -> "Exact":
        return Exact(self.still)

    def both(self, change: Callable[..., Any], *others: Any) -> "Exact":
        rest = [x if isinstance(x, Exact) else Exact(x) for x in others]
        return Exact(
            change(self.moved, *(x.moved for x in rest)),
            change(self.still, *(x.still for x in rest)),
        )

    def sigmoid(self) -> "Exact":
        return 1 / (1 + _each(lambda x: CONTEXT.exp(-x))(self))

    def __getitem__(self, index: Any) -> "Exact":
        return self.both(lambda x: x[index])

    def reshape(self, *shape: Any) -> "Exact":
        return self.both(lambda x: x.reshape(*shape))

    def __neg__(self) -> "Exact":
        return self.both(lambda x: -x)

    def __add__(self, other: Any) -> "Exact":
        return self.both(lambda x, y: x + y, other)

    def __sub__(self, other: Any) -> "Exact":
        return self.both(lambda x, y: x - y, other)

    def __mul__(self, other: Any) -> "Exact":
        return self.both(lambda x, y: x * y, other)

    def __truediv__(self, other: Any) -> "Exact":
        return self.both(lambda x, y: x / y, other)

    def __pow__(self, other: int) -> "Exact":
        return self.both(lambda x: x**other)

    def __rsub__(self, other: Any) -> "Exact":
        return -self + other

    def __rtruediv__(self, other: Any) -> "Exact":
        return Exact(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Any) -> Any:
        return _compared(lambda x, y: x < y, self, other)

    def __le__(self, other: Any) -> Any:
        return _compared(lambda x, y: x <= y, self, other)

    def __gt__(self, other: Any) -> Any:
        return _compared(lambda x, y: x > y, self, other)

    def __ge__(self, other: Any) -> Any:
        return _compared(lambda x, y: x >= y, self, other)


def _compared(test: Callable[..., Any], a: Any, b: Any) -> Any:
    left, right = (x.still if isinstance(x, Exact) else x for x in (a, b))
    return np.asarray(test(left, right), bool)


def _as_array(x: Any, dtype: str | None = None) -> "Exact":
    """A number must say which kind of array it is to become: JAX and PyTorch have several."""
    if isinstance(x, int | float) and dtype != Exact.dtype:
        raise TypeError(f"dtype of a number: got {dtype}; expected {Exact.dtype}")
    return Exact(x)


def _arrays(*values: Any) -> tuple["Exact", ...]:
    """The array API wants arrays on both sides."""
    for value in values:
        if not isinstance(value, Exact):
            raise TypeError(f"operand: got {type(value).__name__}; expected an array")
    return values


def _each(function: Callable[..., Any]) -> Callable[..., Exact]:
    entry_by_entry = {n: np.frompyfunc(function, n, 1) for n in (1, 2)}

    def of(*values: Any) -> Exact:
        first, *rest = _arrays(*values)
        return first.both(entry_by_entry[len(values)], *rest)

    return of


def _folded(step: Callable[[Any, Any], Any]) -> Callable[..., Exact]:
    """A reduction, one entry after the other."""

    def of(x: Exact, *, axis: int | Iterable[int], keepdims: bool = False) -> Exact:
        axes = (axis,) if isinstance(axis, int) else tuple(axis)

        def fold(array: np.ndarray) -> Any:
            rows = np.moveaxis(array, axes, range(len(axes))).reshape(
                -1, *(n for i, n in enumerate(array.shape) if i not in axes)
            )
            result = rows[0]
            for row in rows[1:]:
                result = step(result, row)
            return np.expand_dims(result, axes) if keepdims else result

        return x.both(fold)

    return of


def _cumulative(x: Exact, *, axis: int) -> Exact:
    def fold(array: np.ndarray) -> np.ndarray:
        rows = [*np.moveaxis(array, axis, 0)]
        for place in range(1, len(rows)):
            rows[place] = rows[place - 1] + rows[place]
        return np.moveaxis(np.array(rows, object), 0, axis)

    return x.both(fold)


def _where(mask: Any, yes: Any, no: Any) -> Exact:
    mask = _compared(lambda x, _: x != 0, mask, None)
    yes, no = _arrays(yes, no)
    return yes.both(lambda a, b: np.where(mask, a, b), no)


def _sorted(x: Exact, *, axis: int) -> Exact:
    return x.both(lambda array: np.sort(array, axis=axis, kind="stable"))


def _safe_log(x: Any) -> Any:
    return CONTEXT.log(x) if x > 0 else CONTEXT.ninf if x == 0 else CONTEXT.nan


_larger = np.frompyfunc(max, 2, 1)
NAMESPACE = SimpleNamespace(
    __name__="exact",
    abs=_each(abs),
    arange=np.arange,
    asarray=_as_array,
    cumulative_sum=_cumulative,
    exp=_each(CONTEXT.exp),
    expm1=_each(CONTEXT.expm1),
    flip=lambda x, *, axis: x.both(lambda array: np.flip(array, axis)),
    log=_each(_safe_log),
    log1p=_each(CONTEXT.log1p),
    logaddexp=_each(lambda a, b: max(a, b) + CONTEXT.log1p(CONTEXT.exp(-abs(a - b)))),
    max=_folded(_larger),
    maximum=_each(max),
    minimum=_each(min),
    roll=lambda x, shift, *, axis: x.both(lambda array: np.roll(array, shift, axis)),
    sort=_sorted,
    sqrt=_each(CONTEXT.sqrt),
    squeeze=lambda x, *, axis: x.both(lambda array: array.squeeze(axis)),
    sum=_folded(lambda a, b: a + b),
    tanh=_each(CONTEXT.tanh),
    where=_where,
)


def central_difference(
    function: Callable[..., Any], values: list[np.ndarray], directions: list[np.ndarray]
) -> Any:
    """(f(x + h d) - f(x - h d)) / 2h, in 50 digits; `function` of exact arrays to one number."""
    sides = []
    for sign in (1, -1):
        moved = [
            Exact(_number(x) + sign * STEP * _number(d), x)
            for x, d in zip(values, directions, strict=True)
        ]
        sides.append(function(*moved).moved.item())
    return (sides[0] - sides[1]) / (2 * STEP)
