"""Two traces and the allowances between them -> comparisons, the first divergence, the blame."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.quantities import STEP_AXES, Kind, Moment, moment
from parity.trace import Quantity

__all__ = [
    "ORACLE",
    "VERDICTS",
    "Comparison",
    "Divergence",
    "Entry",
    "Mode",
    "Number",
    "Verdict",
    "blame",
    "compare",
    "first_divergence",
    "number",
    "worst_verdict",
]

Verdict = Literal["match", "noisy", "inconclusive", "divergent"]
VERDICTS: tuple[Verdict, ...] = ("match", "noisy", "inconclusive", "divergent")  # by precedence
Mode = Literal["points", "step", "trajectory"]
Number = float | int | Literal["NaN", "Infinity", "-Infinity"]  # JSON has no others

ORACLE = "oracle"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a comparison.

    Attributes:
        index: zero-based place in the quantity.
        left: value on the left side.
        right: value on the right side.
        oracle: what the float64 reference computed there.
        difference: |left - right|.
        allowed: how far rounding may part the two sides there.
        ratio: difference over allowed; above 1 is outside.
        ulps: distance in units in the last place of the run's dtype.
    """

    index: tuple[int, ...]
    left: Number
    right: Number
    oracle: Number
    difference: Number
    allowed: Number
    ratio: Number
    ulps: Number


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity of two implementations, entry by entry.

    Attributes:
        quantity: its name.
        kind: what sort of thing it is.
        mode: points, step or trajectory.
        grid: which points; `run` in the other modes.
        left: name of one implementation.
        right: name of the other; the oracle stands on the right.
        axes: one word per dimension.
        shape: its length along each.
        compared: how many entries were compared.
        verdict: match, noisy, inconclusive or divergent.
        worst: the entry with the largest ratio; None where nothing was compared.
        first: the first entry that calls for the verdict, in order of computation.
        reason: why the comparison is inconclusive, impossible, or noisy in float64; else empty.
    """

    quantity: str
    kind: Kind
    mode: Mode
    grid: str
    left: str
    right: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    compared: int
    verdict: Verdict
    worst: Entry | None
    first: Entry | None = None
    reason: str = ""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where two implementations part first, in order of computation.

    Attributes:
        quantity: its name.
        mode: the mode that saw it.
        grid: which points; `run` in the other modes.
        left: name of one implementation.
        right: name of the other.
        at: time axes and their zero-based indices, e.g. {rollout: 0, epoch: 1}.
        entry: the entry itself.
    """

    quantity: str
    mode: Mode
    grid: str
    left: str
    right: str
    at: dict[str, int]
    entry: Entry


def number(value: Any) -> Number:
    """Returns a number that JSON can carry: NaN and infinities become text."""
    if np.asarray(value).dtype.kind in "iub":
        return int(value)
    real = float(value)
    if np.isnan(real):
        return "NaN"
    if np.isinf(real):
        return "Infinity" if real > 0 else "-Infinity"
    return real


def compare(
    left: Quantity,
    right: Quantity,
    allowed: NDArray[np.float64],
    *,
    mode: Mode,
    sides: tuple[str, str],
    bound: NDArray[np.float64] | None = None,
    oracle: NDArray[Any] | None = None,
    grid: str = "run",
    dtype: str = "float32",
) -> Comparison:
    """Compares two quantities of one structure entry by entry; nothing is broadcast.

    Args:
        left: one side.
        right: the other.
        allowed: how far rounding may part them, entry by entry.
        mode: points, step or trajectory.
        sides: names of the two implementations.
        bound: the rigorous bound, entry by entry, where there is one.
        oracle: the reference's values, to be reported beside both.
        grid: which points.
        dtype: the run's dtype, in which ULPs are counted.

    Raises:
        ValueError: the shapes differ.
    """
    shape = left.values.shape
    reference = right.values if oracle is None else oracle
    if not shape == right.values.shape == allowed.shape == reference.shape:
        raise ValueError(f"{left.name}: shapes differ: {shape} and {right.values.shape}")
    blank = Comparison(
        quantity=left.name,
        kind=left.kind,
        mode=mode,
        grid=grid,
        left=sides[0],
        right=sides[1],
        axes=left.axes,
        shape=shape,
        compared=left.values.size,
        verdict="inconclusive",
        worst=None,
        reason="nothing to compare",
    )
    if not left.values.size:
        return blank
    difference = _difference(left.values, right.values)
    if _exact(left.values, right.values):
        allowed, bound = np.zeros(shape), None
    # Written so that NaN on any side, and an allowance that is not finite, fall outside.
    outside = ~((difference == 0) | ((difference <= allowed) & np.isfinite(allowed)))
    limit = allowed if bound is None else np.maximum(allowed, bound)
    unjudged = outside & np.isfinite(difference) & ~np.isfinite(allowed)
    beyond = outside & ~unjudged & ~((difference <= limit) & np.isfinite(limit))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0, 0.0, difference / allowed)
    ratio[np.isnan(ratio) | (outside & ~np.isfinite(allowed))] = np.inf

    def entry(index: tuple[int, ...]) -> Entry:
        values = left.values[index], right.values[index]
        return Entry(
            index=index,
            left=number(values[0]),
            right=number(values[1]),
            oracle=number(reference[index]),
            difference=number(difference[index]),
            allowed=number(allowed[index]),
            ratio=number(ratio[index]),
            ulps=number(_ulps(*values, dtype)),
        )

    worst = np.unravel_index(np.argmax(ratio), shape)
    unknown = int(unjudged.sum())
    verdict: Verdict = "match"
    failing = np.zeros_like(outside)
    if beyond.any():  # what is merely noisy beside it is passed over
        verdict, failing = "divergent", beyond
    elif unknown:
        verdict = "inconclusive"
    elif outside.any():
        verdict, failing = "noisy", outside
    places = np.argwhere(failing)  # C order is order of computation: time axes lead
    return msgspec.structs.replace(
        blank,
        verdict=verdict,
        reason=f"no finite allowance for {unknown} entries of {left.name}" if unknown else "",
        worst=entry(tuple(int(i) for i in worst)),
        first=entry(tuple(int(i) for i in places[0])) if len(places) else None,
    )


def _exact(left: Any, right: Any) -> bool:
    """Whether both sides are integers or booleans."""
    return all(np.asarray(side).dtype.kind in "iub" for side in (left, right))


def _difference(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    """|left - right| in float64; equal infinities differ by 0, NaN stays NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide, other = left.astype(np.float64), right.astype(np.float64)
        distance = np.abs(wide - other)
    if _exact(left, right):  # above 2**53, different integers may meet in float64
        return np.where(left == right, 0.0, np.maximum(distance, 1.0))
    return np.where(wide == other, 0.0, distance)


def _ulps(left: Any, right: Any, dtype: str) -> Any:
    """How many floating-point numbers of the run's dtype lie between two values."""
    if _exact(left, right):
        return abs(int(left) - int(right))
    with np.errstate(over="ignore"):
        pair = np.asarray([left, right], dtype)
    if np.isnan(pair).any():
        return np.nan
    integer = np.int64 if dtype == "float64" else np.int32
    smallest = int(np.iinfo(integer).min)  # the sign bit: negative numbers count down from it
    ordinals = [int(b) if b >= 0 else smallest - int(b) for b in pair.view(integer)]
    return abs(ordinals[0] - ordinals[1])


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the verdict that takes precedence; of nothing, inconclusive."""
    found = list(verdicts)
    return max(found, key=VERDICTS.index) if found else "inconclusive"


def blame(comparisons: Iterable[Comparison], failed: Iterable[str], verdict: Verdict) -> list[str]:
    """Names the implementations that the oracle or an invariant gives the verdict of the whole.

    Args:
        comparisons: all that count.
        failed: implementations that an invariant gave that verdict.
        verdict: of the whole; nobody is blamed for a match.
    """
    if verdict == "match":
        return []
    guilty = {c.left for c in comparisons if c.right == ORACLE and c.verdict == verdict}
    return sorted(guilty.union(failed))


def first_divergence(comparisons: Sequence[Comparison]) -> Divergence | None:
    """Finds the first entry outside its allowance, in order of computation.

    Step by step, then by the order of quantities within a step. Points come after the run: they
    have no step; grids keep their order, the core first. Of equals, a comparison with the oracle in
    step mode says most. Where something is divergent, what is merely noisy is passed over.
    """
    parted = [(c, c.first) for c in comparisons if c.first is not None]
    severity = worst_verdict(c.verdict for c, _ in parted)
    grids = list(dict.fromkeys(c.grid for c in comparisons))

    def rank(candidate: tuple[Comparison, Entry]) -> tuple[bool, int, Moment, int, bool]:
        comparison, entry = candidate
        return (
            comparison.mode == "points",
            grids.index(comparison.grid),
            moment(comparison.quantity, comparison.axes, entry.index),
            ("step", "trajectory", "points").index(comparison.mode),
            comparison.right != ORACLE,
        )

    severe = [(c, entry) for c, entry in parted if c.verdict == severity]
    if not severe:
        return None
    first, entry = min(severe, key=rank)
    return Divergence(
        quantity=first.quantity,
        mode=first.mode,
        grid=first.grid,
        left=first.left,
        right=first.right,
        at={
            axis: position
            for axis, position in zip(first.axes, entry.index, strict=True)
            if axis in STEP_AXES
        },
        entry=entry,
    )
