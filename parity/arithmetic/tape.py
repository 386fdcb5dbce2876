"""A tape over any arithmetic: values that remember the way back to what they are made of."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from parity.arithmetic import kernels
from parity.arithmetic.bounded import Bounded
from parity.arithmetic.entries import exactly, moved
from parity.arithmetic.rounded import Rounded

__all__ = ["Scatter", "Taped", "as_frameworks_do", "fit", "gradients", "over", "raw", "times"]

Value = Any
Backward = Callable[[Value], Value]

_FORGIVING: ContextVar[bool] = ContextVar("forgiving", default=True)


@contextmanager
def as_frameworks_do() -> Iterator[None]:
    """Within the block gradients are computed as every framework does.

    0 · ∞ is NaN, and what frameworks compute with cancellation cancels.
    """
    token = _FORGIVING.set(False)
    try:
        yield
    finally:
        _FORGIVING.reset(token)


class Scatter:
    """Backward of a pick: it is added last, onto what has reached the node by other ways.

    `kernels.scatter_add` then does both of what real programs do.
    """

    def __init__(self, index: Any) -> None:
        self.index = index

    def onto(self, base: Value | None, g: Value, like: Value) -> Value:
        """Adds a cotangent at the picked places; to nothing where nothing else has come."""
        if g.shape[1:] != like.shape[1:]:  # picked for each of a batch from what is common to it
            wide = np.zeros((like.shape[0], *g.shape[1:]))
            summed = fit(kernels.scatter_add(_beside(g, wide), self.index, g), like)
            return summed if base is None else base + summed
        start = np.zeros(like.shape) if base is None else base
        return kernels.scatter_add(_beside(g, start), self.index, g)


def _beside(g: Value, x: Value) -> Value:
    """A plain value in the arithmetic of another."""
    if isinstance(x, np.ndarray) and isinstance(g, Rounded):
        return Rounded(x, g.luck)
    return Bounded(x) if isinstance(x, np.ndarray) and isinstance(g, Bounded) else x


class Taped:
    """A value of any arithmetic, with its parents and the way back to each of them."""

    __array_ufunc__ = None  # NumPy leaves operators to us

    def __init__(self, value: Value, parents: Sequence[tuple["Taped", Backward | Scatter]] = ()):
        self.value, self.parents = value, parents

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return tuple(self.value.shape)

    @property
    def ndim(self) -> int:
        """Number of axes of the value."""
        return len(self.value.shape)

    def __neg__(self) -> "Taped":
        return Taped(-self.value, [(self, lambda g: -g)])

    def __add__(self, other: Value) -> "Taped":
        return _binary(np.add, self, other, lambda g, _a, _b: g, lambda g, _a, _b: g)

    def __radd__(self, other: Value) -> "Taped":
        return self.__add__(other)

    def __sub__(self, other: Value) -> "Taped":
        return _binary(np.subtract, self, other, lambda g, _a, _b: g, lambda g, _a, _b: -g)

    def __rsub__(self, other: Value) -> "Taped":
        return (-self).__add__(other)

    def __mul__(self, other: Value) -> "Taped":
        return _binary(
            np.multiply, self, other, lambda g, _a, b: times(g, b), lambda g, a, _b: times(g, a)
        )

    def __rmul__(self, other: Value) -> "Taped":
        return self.__mul__(other)

    def __truediv__(self, other: Value) -> "Taped":
        return _binary(np.divide, self, other, _by_numerator, _by_denominator)

    def __rtruediv__(self, other: Value) -> "Taped":
        return _binary(np.divide, other, self, _by_numerator, _by_denominator)

    def __pow__(self, exponent: int) -> "Taped":
        if exponent != 2:  # the one power that objectives have; others are exp of a log
            raise TypeError(f"power: got {exponent}; expected 2")
        return self * self

    def __getitem__(self, index: Any) -> "Taped":
        def back(g: Value) -> Value:
            def placed(array: Any) -> Any:
                full = np.zeros(self.shape, array.dtype)
                full[index] = array
                return full

            return moved(g, placed)

        return Taped(self.value[index], [(self, back)])

    def __lt__(self, other: Value) -> Any:
        return exactly(self.value) < exactly(raw(other))

    def __le__(self, other: Value) -> Any:
        return exactly(self.value) <= exactly(raw(other))

    def __gt__(self, other: Value) -> Any:
        return exactly(self.value) > exactly(raw(other))

    def __ge__(self, other: Value) -> Any:
        return exactly(self.value) >= exactly(raw(other))


def is_framework_like() -> bool:
    """Whether gradients are to be computed as frameworks do."""
    return not _FORGIVING.get()


def raw(x: Value) -> Value:
    """The value without its tape."""
    return x.value if isinstance(x, Taped) else x


def times(g: Value, factor: Value) -> Value:
    """A cotangent times a derivative; what was masked out, and is exactly 0, stays 0."""
    return _masked(g, g * factor)


def over(g: Value, divisor: Value) -> Value:
    """A cotangent divided; what was masked out, and is exactly 0, stays 0."""
    return _masked(g, g / divisor)


def _by_numerator(g: Value, _a: Value, b: Value) -> Value:
    return over(g, b)


def _by_denominator(g: Value, a: Value, b: Value) -> Value:
    return -times(g, (a / b) / b)  # in this order a large b underflows as it does in frameworks


def _masked(g: Value, result: Value) -> Value:
    if not _FORGIVING.get() or np.isfinite(exactly(result)).all():
        return result
    return kernels.select(exactly(g) == 0, 0.0, result)


def _binary(
    ufunc: Any, a: Value, b: Value, left: Callable[..., Value], right: Callable[..., Value]
) -> Taped:
    x, y = raw(a), raw(b)
    parents: list[tuple[Taped, Backward | Scatter]] = []
    if isinstance(a, Taped):
        parents.append((a, lambda g: fit(left(g, x, y), x)))
    if isinstance(b, Taped):
        parents.append((b, lambda g: fit(right(g, x, y), y)))
    return Taped(ufunc(x, y), parents)


def fit(g: Value, like: Value) -> Value:
    """Sums a cotangent down to the shape of its value: axes that were added or stretched."""
    if g.shape == like.shape:
        return g
    while g.ndim > like.ndim:
        g = kernels.total(g, 1)
    for axis in range(like.ndim):
        if like.shape[axis] == 1 and g.shape[axis] != 1:
            g = _summed(g, axis)
    return g


def _summed(g: Value, axis: int) -> Value:
    """Sums over one axis, which stays with length 1."""
    first = moved(g, lambda array: np.moveaxis(array, axis, 0))
    return moved(kernels.total(first, 1), lambda array: np.expand_dims(array, axis))


def gradients(out: Taped, wanted: Sequence[Taped]) -> list[Value]:
    """Cotangents of the wanted nodes, in the arithmetic of the values.

    Args:
        out: what is differentiated; several entries stand for their sum.
        wanted: nodes that it may depend on.

    Returns:
        One array for each, of its shape; zeros where nothing depends on it.
    """
    order = _sorted(out)
    ones = moved(out.value, np.ones_like)
    if isinstance(ones, Bounded):
        ones = Bounded(ones.value)
    cotangents: dict[int, Value] = {id(out): ones}
    picks: dict[int, list[tuple[Scatter, Value]]] = {}
    for node in reversed(order):
        g = cotangents.get(id(node))
        for scatter, more in picks.pop(id(node), []):
            g = scatter.onto(g, more, node.value)
        if g is None:
            continue
        cotangents[id(node)] = g
        for parent, back in node.parents:
            if isinstance(back, Scatter):
                picks.setdefault(id(parent), []).append((back, g))
            else:
                more, known = back(g), cotangents.get(id(parent))
                cotangents[id(parent)] = more if known is None else known + more
    return [cotangents.get(id(node), exactly(node.value) * 0.0) for node in wanted]


def _sorted(out: Taped) -> list[Taped]:
    """Every node below `out`, parents first."""
    order: list[Taped] = []
    seen: set[int] = set()
    waiting: list[tuple[Taped, bool]] = [(out, False)]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            waiting.append((node, True))
            waiting += [(parent, False) for parent, _ in node.parents]
    return order
