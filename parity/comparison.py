"""Two traces and the allowances between them -> comparisons, the first divergence, the blame."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.quantities import STEP_AXES, Kind, Moment, Spec, moment
from parity.trace import Quantity, Trace

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
    "structure",
    "uncompared",
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
        reason: why nothing was compared; empty otherwise.
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


def structure(
    trace: Trace, expected: Mapping[Spec, tuple[int, ...]], dtype: str
) -> dict[str, tuple[Verdict, str]]:
    """Checks names, order, axes, kinds, shapes and dtypes before any value is looked at.

    Args:
        trace: what an implementation returned.
        expected: what it should have returned, in order of computation.
        dtype: in which it should have computed.

    Returns:
        Quantity to verdict and reason, only for those that are not as expected.
    """
    problems: dict[str, tuple[Verdict, str]] = {}
    known = [spec.name for spec in expected if spec.name in trace]
    found = [name for name in trace.quantities if name in known]
    for spec, shape in expected.items():
        quantity = trace.quantities.get(spec.name)
        wanted_dtype = np.dtype("int64" if spec.integer else dtype)
        if quantity is None:
            problems[spec.name] = ("inconclusive", f"missing from {trace.implementation}")
        elif quantity.values.size == 0 and 0 not in shape:
            problems[spec.name] = ("inconclusive", f"empty in {trace.implementation}")
        elif trace.dtype != dtype:
            reason = f"{trace.implementation} ran in {trace.dtype}, expected {dtype}"
            problems[spec.name] = ("divergent", reason)
        elif found != known and found.index(spec.name) != known.index(spec.name):
            problems[spec.name] = ("divergent", f"out of order in {trace.implementation}")
        else:
            declared = (quantity.axes, quantity.kind, quantity.values.shape, quantity.values.dtype)
            for word, got, wanted in zip(
                ("axes", "kind", "shape", "dtype"),
                declared,
                (spec.axes, spec.kind, shape, wanted_dtype),
                strict=True,
            ):
                if got != wanted:
                    reason = f"{trace.implementation} has {word} {got}, expected {wanted}"
                    problems.setdefault(spec.name, ("divergent", reason))
    for name in trace.quantities.keys() - {spec.name for spec in expected}:
        problems[name] = ("divergent", f"{trace.implementation} records it, nobody expects it")
    return problems


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
    beyond = outside & ~((difference <= limit) & np.isfinite(limit))
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
    # What is merely noisy is passed over. C order is order of computation: time axes lead.
    failing = np.argwhere(beyond if beyond.any() else outside)
    return msgspec.structs.replace(
        blank,
        verdict="divergent" if beyond.any() else "noisy" if outside.any() else "match",
        reason="",
        worst=entry(tuple(int(i) for i in worst)),
        first=entry(tuple(int(i) for i in failing[0])) if len(failing) else None,
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


def uncompared(
    spec: Spec,
    shape: tuple[int, ...],
    *,
    mode: Mode,
    grid: str,
    sides: tuple[str, str],
    verdict: Verdict,
    reason: str,
) -> Comparison:
    """A comparison that could not take place; the structure says why."""
    return Comparison(
        quantity=spec.name,
        kind=spec.kind,
        mode=mode,
        grid=grid,
        left=sides[0],
        right=sides[1],
        axes=spec.axes,
        shape=shape,
        compared=0,
        verdict=verdict,
        worst=None,
        reason=reason,
    )


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
