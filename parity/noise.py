"""How far rounding may move an entry: the measured allowance and the rigorous bound.

The oracle's own source runs in two further arithmetics. `Rounded` arrays are replicas that are
honest float32 programs in everything but luck: every elementary result is rounded at random, sums
run left to right in float32 in an order of each replica's own. `Bounded` arrays carry, beside each
value, the most by which float32 could have moved it, whatever the order.

Sources: Monte Carlo arithmetic, Parker 1997; running error analysis, Higham 2002, "Accuracy and
Stability of Numerical Algorithms", section 3.3; docs/noise.md has the measurements.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from parity import oracle
from parity.replay import Emission, Lift

__all__ = ["REPLICAS", "Bounded", "Expected", "Luck", "Rounded", "measure"]

UNIT_ROUNDOFF = 2.0**-24  # of float32, to nearest
REPLICAS = 64
DRIFT = 1.25  # allowance over what the replicas of one program have in common
SPREAD = 2.5  # and over the largest of what they do not
FLOAT64_SCALE = 2 * 2.0**-29  # float32's roundoff to float64's; 2 for the oracle's own rounding
SMALLEST = 2.0**-126  # JAX flushes what is smaller
FUNCTION_ULPS = 4.0  # roundoffs granted to one exp, log or log1p of a mathematical library

_TOP_BINADE = 2.0**127  # the spacing of the very largest float32 number is infinite
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio: Fibonacci hashing
_MANTISSA = np.uint64(11)  # a float64 holds 53 of 64 bits
_SEED = 20  # any: allowances must be the same in every run
_EXACT = {
    np.negative,
    np.absolute,
    np.maximum,
    np.minimum,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
}

Array = NDArray[np.float64]
Shapes = Mapping[str, tuple[int, ...]]


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
        number = np.arange(replicas)
        self.adds_onto_base = number % 2 == 0
        self.subtracts_logsumexp = number // 2 % 2 == 0
        self.program = number % 4  # equal where both are
        self.flushes = number // 4 % 2 == 0
        self.scaled = number // 8 % 2 == 1
        own = ~self.scaled & (not foreign_bits)
        self.scale = np.where(own, 1.0, 1 + self._random.random(replicas))
        if foreign_bits:
            self.scaled[:] = False  # all are alike: none stands for the run's own bits

    def lift(self, values: Array) -> "Rounded":
        """Gives every replica the same exact input; the replicas become the leading axis."""
        return self.wrap(np.broadcast_to(values, (self.replicas, *np.shape(values))))

    def wrap(self, values: Any) -> "Rounded":
        """Marks an array, replicas first, as computed with this luck."""
        rounded = np.asarray(values).view(Rounded)
        rounded.luck = self
        return rounded

    def round(self, exact: Array) -> Array:
        """Moves each value at random, by up to the unit roundoff times its size.

        Within one operation of one replica equal values move alike, as in any program: a hash of
        their bits is the die. Half of the replicas flush subnormal results to 0, as JAX does.
        """
        bits = np.ascontiguousarray(exact, np.float64).view(np.uint64)
        each = (self.replicas,) + (1,) * (exact.ndim - 1)
        salt = self._random.bit_generator.random_raw(self.replicas).reshape(each)
        dice = ((bits ^ salt) * _GOLDEN) >> _MANTISSA  # uniform below 2⁵³
        rounded: Array = exact * (dice * (2 * UNIT_ROUNDOFF * 2.0**-53) + (1 - UNIT_ROUNDOFF))
        if np.abs(rounded).min(initial=1.0) < SMALLEST:
            rounded[self.flushes.reshape(each) & (np.abs(rounded) < SMALLEST)] = 0.0
        return rounded

    def order(self, length: int) -> NDArray[np.intp]:
        """Returns one order of summation per replica, [replica, length].

        Of the first eight of both halves two keep the order of the data and two turn it round, as
        plain programs do: sorted data pile up and come down again, which orders at random hardly
        ever do.
        """
        order = self._random.random((self.replicas, length), dtype=np.float32).argsort(axis=1)
        for first in (0, 8):
            order[first : first + 2] = np.arange(length)
            order[first + 2 : first + 4] = np.arange(length)[::-1]
        return order

    def choose(self, which: NDArray[np.bool_], yes: Array, no: Array) -> Array:
        """Takes `yes` in the replicas marked, `no` in the others."""
        return np.where(which.reshape(-1, *(1,) * (yes.ndim - 1)), yes, no)

    def shuffle(self, terms: Array) -> Array:
        """Puts the last axis into each replica's own order."""
        order = self.order(terms.shape[-1])
        middle = (1,) * (terms.ndim - 2)
        return np.take_along_axis(terms, order.reshape(self.replicas, *middle, -1), axis=-1)


class Rounded(np.ndarray[Any, np.dtype[Any]]):
    """Float64 values [replica, ...], every result of which is rounded at random to float32."""

    luck: Luck

    def __array_finalize__(self, source: Any) -> None:
        if isinstance(source, Rounded):
            self.luck = source.luck

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Rounded) else x for x in inputs]
        if method == "reduce" and ufunc is np.add:
            return self._sum(plain[0], **options)
        result = getattr(ufunc, method)(*plain, **options)
        if result.dtype.kind != "f":
            return result
        masked = ufunc is np.multiply and any(np.asarray(x).dtype.kind == "b" for x in plain)
        return self.luck.wrap(result if ufunc in _EXACT or masked else self.luck.round(result))

    def _sum(self, terms: Array, axis: int, **_: Any) -> "Rounded":
        assert axis in (-1, terms.ndim - 1), "the oracle sums over the last axis only"
        scale = self.luck.scale.reshape(-1, *(1,) * (terms.ndim - 1))
        shuffled = (self.luck.shuffle(terms) * scale).astype(np.float32)
        sums = shuffled.cumsum(axis=-1, dtype=np.float32)[..., -1].astype(float)
        return self.luck.wrap(sums / scale[..., 0])


@oracle.log_softmax.register
def _(logits: Rounded) -> Rounded:
    """Half of the replicas use (x - m) - log Σ, half x - logsumexp(x)."""
    largest = logits.max(-1, keepdims=True)
    shifted = logits - largest
    log_sum = np.log(np.exp(shifted).sum(-1))[..., None]
    luck = logits.luck
    return luck.wrap(
        luck.choose(
            luck.subtracts_logsumexp,
            np.asarray(logits - (largest + log_sum)),
            np.asarray(shifted - log_sum),
        )
    )


@oracle.scatter_add.register
def _(base: Rounded, index: NDArray[np.int64], terms: Rounded) -> Rounded:
    """Half of the replicas add onto the base, as XLA does, half onto zero and then to the base."""
    luck, actions = base.luck, base.shape[-1]
    order = luck.order(terms.shape[-1]).reshape(
        luck.replicas, *(1,) * (terms.ndim - 2), terms.shape[-1]
    )
    plain = np.asarray(base)
    scale = luck.scale.reshape(-1, *(1,) * (plain.ndim - 1))
    onto = luck.choose(luck.adds_onto_base, plain * scale, np.zeros_like(plain)).astype(np.float32)
    rows = np.arange(plain.size // actions).reshape(plain.shape[:-1])[..., None] * actions
    at = rows + np.take_along_axis(np.broadcast_to(index, terms.shape), order, axis=-1)
    shuffled = (np.take_along_axis(np.asarray(terms), order, axis=-1) * scale).astype(np.float32)
    flat = onto.ravel()
    np.add.at(flat, at.ravel(), shuffled.ravel())
    sums = luck.wrap(flat.reshape(plain.shape).astype(float) / scale)
    return luck.wrap(luck.choose(luck.adds_onto_base, np.asarray(sums), np.asarray(sums + base)))


class Bounded(NDArrayOperatorsMixin):
    """Float64 values and, for each, the most by which float32 arithmetic could have moved it."""

    def __init__(self, value: Any, error: Any = None) -> None:
        self.value = np.asarray(value, np.float64)
        self.error = np.zeros_like(self.value) if error is None else np.asarray(error)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.value.shape

    def __getitem__(self, index: Any) -> "Bounded":
        return Bounded(self.value[index], self.error[index])

    def swapaxes(self, first: int, second: int) -> "Bounded":
        """Exchanges two axes."""
        return Bounded(self.value.swapaxes(first, second), self.error.swapaxes(first, second))

    def max(self, axis: int, keepdims: bool = False) -> "Bounded":
        """The largest value, off by no more than the largest error."""
        return Bounded(
            self.value.max(axis, keepdims=keepdims), self.error.max(axis, keepdims=keepdims)
        )

    def sum(self, axis: int) -> "Bounded":
        """The sum in any order: (n - 1) roundoffs of Σ|terms|, and the terms' own errors."""
        rounding = (self.value.shape[axis] - 1) * UNIT_ROUNDOFF
        errors = self.error + rounding * (np.abs(self.value) + self.error)
        return Bounded(self.value.sum(axis), errors.sum(axis))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc not in _ERROR_OF:
            if ufunc in _EXACT and not options:
                return ufunc(*(x.value if isinstance(x, Bounded) else x for x in inputs))
            return NotImplemented
        masked = any(np.asarray(x).dtype.kind == "b" for x in inputs if not isinstance(x, Bounded))
        operands = [x if isinstance(x, Bounded) else Bounded(x) for x in inputs]
        value = ufunc(*(x.value for x in operands))
        error, roundoffs = _ERROR_OF[ufunc](value, *operands)
        own = 0.0 if masked else roundoffs * UNIT_ROUNDOFF
        return Bounded(value, error + own * (np.abs(value) + error))


def _error_of_larger(a: Bounded, b: Bounded) -> Array:
    """Error of max(a, b): that of the larger one where the other cannot reach it."""
    apart = np.abs(a.value - b.value) > a.error + b.error
    larger = np.where(a.value > b.value, a.error, b.error)
    return np.where(apart, larger, np.maximum(a.error, b.error))


_ERROR_OF: dict[Any, Callable[..., tuple[Array, float]]] = {
    np.add: lambda _, a, b: (a.error + b.error, 1),
    np.subtract: lambda _, a, b: (a.error + b.error, 1),
    np.multiply: lambda _, a, b: (
        np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error,
        1,
    ),
    np.divide: lambda value, a, b: (
        (a.error + np.abs(value) * b.error) / (np.abs(b.value) - b.error),
        1,
    ),
    np.exp: lambda value, a: (value * np.expm1(a.error), FUNCTION_ULPS),
    np.log: lambda _, a: (a.error / (a.value - a.error), FUNCTION_ULPS),
    np.log1p: lambda _, a: (a.error / (1 + a.value - a.error), FUNCTION_ULPS),
    np.negative: lambda _, a: (a.error, 0),
    np.absolute: lambda _, a: (a.error, 0),
    np.maximum: lambda _, a, b: (_error_of_larger(a, b), 0),
    np.minimum: lambda _, a, b: (_error_of_larger(-a, -b), 0),
}


@oracle.log_softmax.register
def _(logits: Bounded) -> Bounded:
    """Also bounds x - logsumexp(x), whose roundoffs are of x and not of x - max."""
    largest = logits.max(-1, keepdims=True)
    shifted = logits - largest
    result = shifted - np.log(np.exp(shifted).sum(-1))[..., None]
    spelling = 2 * UNIT_ROUNDOFF * (np.abs(logits.value) + np.abs(largest.value))
    return Bounded(result.value, result.error + spelling)


@oracle.scatter_add.register
def _(base: Bounded, index: NDArray[np.int64], terms: Bounded) -> Bounded:
    """N roundoffs of |base| + Σ|terms| per action, in any order, chained or not."""
    rounding = (terms.shape[-1] + 1) * UNIT_ROUNDOFF
    value = oracle.scatter_add(base.value, index, terms.value)
    sizes = oracle.scatter_add(np.abs(base.value), index, np.abs(terms.value) + terms.error)
    errors = oracle.scatter_add(base.error, index, terms.error)
    return Bounded(value, errors + rounding * (sizes + base.error))


@dataclass(frozen=True)
class Expected:
    """What the oracle computed, and how far rounding may move it.

    Attributes:
        values: quantity to exact values.
        allowed: quantity to allowance, entry by entry; zeros for integers.
        bound: quantity to rigorous bound; empty where a bound says nothing.
    """

    values: dict[str, NDArray[Any]]
    allowed: dict[str, Array]
    bound: dict[str, Array]


def measure(
    replay: Callable[[Lift], Iterable[Emission]],
    shapes: Shapes,
    dtype: str,
    *,
    rigorous: bool,
    luck: Luck | None = None,
) -> Expected:
    """Replays exactly, in random replicas and, if `rigorous`, with running error bounds.

    allowed = how far the replicas deviate from the exact oracle (`_deviation`), entry by entry,
    + one ULP of the value, and at least 2⁻¹²⁶. A float64 run is allowed 2·2⁻²⁹ of that.

    Args:
        replay: one of the oracle's modes, waiting for its lift.
        shapes: shape of every quantity that the mode emits.
        dtype: the run's dtype, float32 or float64.
        rigorous: whether to compute the bound too; over a whole trajectory it says nothing.
        luck: the replicas' dice; fresh ones of a fixed seed when left out.

    Raises:
        ValueError: the mode left an entry of some quantity without a value.
    """
    luck = luck or Luck(foreign_bits=dtype == "float64")
    values: dict[str, NDArray[Any]] = {}
    deviations = {name: np.zeros(shape) for name, shape in shapes.items()}
    bounds = {name: np.zeros(shape) for name, shape in shapes.items()} if rigorous else {}
    filled = {name: np.zeros(shape, bool) for name, shape in shapes.items()}
    lifts: list[Lift] = [np.asarray, luck.lift, *([Bounded] if rigorous else [])]
    with np.errstate(all="ignore"):  # infinities are the comparison's business
        for where, exact, lucky, bounded in _together([replay(lift) for lift in lifts]):
            for name, value in exact.items():
                if name not in values:
                    integer = np.asarray(value).dtype.kind == "i"
                    values[name] = np.zeros(shapes[name], np.int64 if integer else np.float64)
                values[name][where] = value
                filled[name][where] = True
                deviations[name][where] = _deviation(lucky[name], value)
                if isinstance(bounded.get(name), Bounded):
                    bounds[name][where] = bounded[name].error
    unfilled = [name for name in shapes if not filled[name].all()]
    if unfilled:
        raise ValueError(f"the oracle left entries without a value: {', '.join(unfilled)}")
    scale = FLOAT64_SCALE if dtype == "float64" else 1.0
    return Expected(
        values={name: values[name] for name in shapes},
        allowed={name: scale * _allowance(deviations[name], values[name]) for name in shapes},
        bound={name: scale * bounds[name] for name in bounds},
    )


def _together(
    replays: list[Iterable[Emission]],
) -> Iterator[tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]]:
    for emissions in zip(*replays, strict=True):
        (where, exact), (_, lucky), *rest = emissions
        yield where, exact, lucky, rest[0][1] if rest else {}


def _deviation(lucky: Any, exact: Any) -> Any:
    """How far programs may be off, judging by the replicas.

    What all replicas of one program have in common is no luck: a program like them is off by just
    that. What is left is luck, of which they show a part. How far replicas drift at scales of their
    own is bounded, and shown whole by so many.
    """
    if not isinstance(lucky, Rounded):
        return 0.0
    replicas, luck = np.asarray(lucky), lucky.luck
    off = np.where(replicas == exact, 0.0, replicas - exact)
    drift, spread = np.zeros(off.shape[1:]), np.zeros(off.shape[1:])
    for program in np.unique(luck.program):
        alike = off[~luck.scaled & (luck.program == program)]
        centre = alike.mean(0)
        drift = np.maximum(drift, np.abs(centre))
        spread = np.maximum(spread, np.abs(alike - centre).max(0))
    elsewhere = np.abs(off[luck.scaled]).max(0, initial=0.0)
    largest = np.abs(off).max(0)
    deviation = np.maximum(DRIFT * drift + SPREAD * spread, elsewhere)
    return np.where(np.isfinite(largest), deviation, largest)


def _allowance(deviation: Array, values: NDArray[Any]) -> Array:
    if values.dtype.kind == "i":
        return np.zeros(values.shape)
    ulp = np.spacing(np.minimum(np.abs(values), _TOP_BINADE).astype(np.float32))
    allowance: Array = np.maximum(deviation + ulp, SMALLEST)
    return allowance
