"""How far rounding may move an entry: the measured allowance and the rigorous bound.

Definitions run three times over: exactly, as replicas, and with running bounds. docs/noise.md has
the method and what it was found to be worth.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.arithmetic.bounded import Bounded
from parity.arithmetic.rounded import SMALLEST, Luck, Rounded

__all__ = ["Emission", "Expected", "Lift", "Shapes", "measure"]

DRIFT = 1.25  # allowance over what the replicas of one program have in common
SPREAD = 2.5  # and over the largest of what they do not
ELSEWHERE = 1.1  # and over the largest drift at other scales
FLOAT64_SCALE = 2 * 2.0**-29  # float32's roundoff to float64's; 2 for the oracle's own rounding

_PILE = 2**16  # replicas of values that wait for one another
_TOP_BINADE = 2.0**127  # the spacing of the very largest float32 number is infinite

Array = NDArray[np.float64]
Shapes = Mapping[str, tuple[int, ...]]
Lift = Callable[[Any], Any]


class Emission(NamedTuple):
    """Some values and their place.

    Attributes:
        where: index in the quantities, whose time axes lead.
        batch: how many trailing axes of each value are time axes.
        values: quantity to value, state axes first.
    """

    where: tuple[Any, ...]
    batch: int
    values: Mapping[str, Any]


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

    def narrowed(self) -> "Expected":
        """What a float64 run is allowed at the same states."""
        return Expected(
            self.values,
            {name: FLOAT64_SCALE * allowed for name, allowed in self.allowed.items()},
            {name: FLOAT64_SCALE * bound for name, bound in self.bound.items()},
        )


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
    piles = {name: _Pile(deviations[name]) for name in shapes}
    lifts: list[Lift] = [np.asarray, luck.lift, *([Bounded.lift] if rigorous else [])]
    with np.errstate(all="ignore"):  # infinities are the comparison's business
        for emission, lucky, bounded in _together([replay(lift) for lift in lifts]):
            where, batch = emission.where, emission.batch
            for name, value in emission.values.items():
                if name not in values:
                    integer = np.asarray(value).dtype.kind == "i"
                    values[name] = np.zeros(shapes[name], np.int64 if integer else np.float64)
                values[name][where] = time_first(value, batch)
                filled[name][where] = True
                if isinstance(lucky[name], Rounded):
                    piles[name].add(lucky[name], value, where, batch)
                if isinstance(bounded.get(name), Bounded):
                    bounds[name][where] = time_first(bounded[name].error, batch)
        for pile in piles.values():
            pile.clear()
    unfilled = [name for name in shapes if not filled[name].all()]
    if unfilled:
        raise ValueError(f"the oracle left entries without a value: {', '.join(unfilled)}")
    expected = Expected(
        values={name: values[name] for name in shapes},
        allowed={name: _allowance(deviations[name], values[name]) for name in shapes},
        bound={name: bounds[name] for name in bounds},
    )
    return expected.narrowed() if dtype == "float64" else expected


def time_first(value: Any, batch: int) -> Any:
    """Moves the trailing time axes of a value to the front, where traces have them."""
    array = np.asarray(value)
    if batch == 0 or array.ndim <= batch:
        return array
    return np.moveaxis(array, range(-batch, 0), range(batch))


def _together(
    replays: list[Iterable[Emission]],
) -> Iterator[tuple[Emission, Mapping[str, Any], Mapping[str, Any]]]:
    for exact, lucky, *rest in zip(*replays, strict=True):
        yield exact, lucky.values, rest[0].values if rest else {}


class _Pile:
    """Replicas of one quantity at several times, whose deviations are taken together."""

    def __init__(self, deviations: Array) -> None:
        self.deviations = deviations
        self.waiting: list[tuple[Rounded, Any, Any]] = []

    def add(self, lucky: Rounded, exact: Any, where: Any, batch: int) -> None:
        """Takes the deviation of a batch at once, of a single time with those to come."""
        if batch:
            self.deviations[where] = time_first(_deviation(lucky, exact), batch)
            return
        if self.waiting and self.waiting[0][0].shape != lucky.shape:  # one row, or several
            self.clear()
        self.waiting.append((lucky, exact, where))
        if len(self.waiting) * lucky.value.size > _PILE:
            self.clear()

    def clear(self) -> None:
        """Takes the deviations of those that wait."""
        if not self.waiting:
            return
        lucky, exact, places = zip(*self.waiting, strict=True)
        stacked = Rounded(np.stack([each.value for each in lucky]), lucky[0].luck)
        for where, deviation in zip(places, _deviation(stacked, np.stack(exact)), strict=True):
            self.deviations[where] = deviation
        self.waiting.clear()


def _deviation(lucky: Rounded, exact: Any) -> Array:
    """How far programs may be off, judging by the replicas.

    What all replicas of one program have in common is no luck: a program like them is off by just
    that. What is left is luck, of which they show a part. How far replicas drift at scales of their
    own is bounded, and shown nearly whole by so many.
    """
    plain = np.asarray(exact)[..., None]
    off = np.where(lucky.value == plain, 0.0, lucky.value - plain)
    largest = np.abs(off).max(-1)
    every = off.reshape(*off.shape[:-1], *lucky.luck.kinds)  # block, scale, flushing, program
    own = every[..., :1, :, :] if lucky.luck.scaled.any() else every
    centre = own.mean((-4, -3, -2), keepdims=True)
    drift = np.abs(centre).max((-4, -3, -2, -1))
    spread = np.abs(own - centre).max((-4, -3, -2, -1))
    elsewhere = ELSEWHERE * np.abs(off[..., lucky.luck.scaled]).max(-1, initial=0.0)
    deviation = np.maximum(DRIFT * drift + SPREAD * spread, elsewhere)
    found: Array = np.where(np.isfinite(largest), deviation, largest)
    return found


def _allowance(deviation: Array, values: NDArray[Any]) -> Array:
    if values.dtype.kind == "i":
        return np.zeros(values.shape)
    ulp = np.spacing(np.minimum(np.abs(values), _TOP_BINADE).astype(np.float32))
    allowance: Array = np.maximum(deviation + ulp, SMALLEST)
    return allowance
