"""Two functions of the user's: where they part, and the report of `parity check --against`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.calling import Answer
from parity.comparison import Comparison, Verdict, compare, worst_verdict
from parity.noise import FLOAT64_SCALE, SMALLEST
from parity.trace import Quantity
from parity.widening import Widened, Widening, applied, widen

__all__ = ["DTYPES", "SIDES", "AgainstReport", "Broken", "Pair", "Played", "judge_pair", "parted"]

Inputs = dict[str, NDArray[Any]]
Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
DTYPES = ("float32", "float64")
MULTIPLE = 3.0  # allowance over the largest error about the centre


class Pair(NamedTuple):
    """Two functions and their inputs.

    Attributes:
        left: A, `package.module:function` or `file.py:function`.
        right: B.
        points: FILE.npz, FILE.safetensors, or a function that makes inputs.
        gradients: inputs to differentiate in; by default all floats that are no masks.
        frozen: inputs whose gradient must be exactly 0.
        mapping: parameter of either function to a name of the inputs.
        widened: allowances that are wider for a time.
    """

    left: str
    right: str
    points: str
    gradients: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    mapping: Mapping[str, str] = {}
    widened: Sequence[Widened] = ()


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A point at which the functions part.

    Attributes:
        point: its label.
        quantities: what parts: value, or gradient/NAME.
        rows: how little of the leading axis suffices; empty where that was not tried.
        of: how many rows there are.
    """

    point: str
    quantities: list[str]
    rows: list[int] = []
    of: int = 0


class AgainstReport(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of two functions.

    Attributes:
        schema_version: of this document.
        verdict: match, noisy, inconclusive or divergent.
        sentence: why, in words.
        left: A.
        right: B.
        frameworks: of both.
        signatures: of both.
        points: how many.
        differentiated: the inputs in which both were.
        fault: what one of them did wrong beside its values; empty otherwise.
        notes: what is remarkable and harmless.
        broken: the points at which they part.
        comparisons: every quantity at every point, in both dtypes; the grid says which.
        widened: allowances that are wider for a time, and what they let pass.
        name: its name in `[tool.parity]`; empty where it has none.
    """

    schema_version: int = 1
    verdict: Verdict
    sentence: str
    left: str
    right: str
    frameworks: list[str]
    signatures: list[str]
    points: int
    differentiated: list[str]
    fault: str = ""
    notes: list[str] = []
    broken: list[Broken] = []
    comparisons: list[Comparison] = []
    widened: list[Widening] = []
    name: str = ""


class Played(NamedTuple):
    """What both functions answered, and their values: side, dtype and point to arrays."""

    answers: dict[tuple[Side, str], Answer]
    values: dict[tuple[Side, str, int], Inputs]


class Allowance(NamedTuple):
    """How far rounding moves a side's entries, and how far its float32 runs err in truth."""

    spread: NDArray[np.float64]
    bound: NDArray[np.float64]


def judge_pair(
    pair: Pair,
    points: Sequence[tuple[str, Inputs]],
    gradients: list[str],
    played: Played,
) -> AgainstReport:
    """Holds what two functions computed against each other.

    Args:
        pair: the functions.
        points: label and inputs of each.
        gradients: the inputs in which they were differentiated.
        played: what they computed.
    """
    names = (pair.left, pair.right)
    first = [played.answers[side, "float32"] for side in SIDES]
    notes = [f"{name} {note}" for name, a in zip(names, first, strict=True) for note in a.notes]
    if "numpy" in [a.framework for a in first]:
        notes.append("NumPy functions have no gradients: values alone are compared")
        gradients = []
    report = AgainstReport(
        verdict="divergent",
        sentence="",
        left=pair.left,
        right=pair.right,
        frameworks=[a.framework for a in first],
        signatures=[a.signature for a in first],
        points=len(points),
        differentiated=gradients,
        notes=notes,
    )
    for (side, dtype), answer in played.answers.items():
        if answer.fault:
            fault = f"{names[SIDES.index(side)]} {answer.fault} in {dtype}"
            return msgspec.structs.replace(report, fault=fault, sentence=fault)
    comparisons: list[Comparison] = []
    broken: list[Broken] = []
    strayed: set[Side] = set()
    for number, (label, _) in enumerate(points):
        mine = {(s, d): played.values[s, d, number] for s in SIDES for d in DTYPES}
        shapes = {side: mine[side, "float64"]["value"].shape for side in SIDES}
        if shapes["A"] != shapes["B"]:
            fault = f"A returns shape {list(shapes['A'])}, B {list(shapes['B'])} ({label})"
            return msgspec.structs.replace(report, fault=fault, sentence=fault)
        found = [
            widen(comparison, pair.widened)
            for quantity in ("value", *(f"gradient/{name}" for name in gradients))
            for comparison in _compared(quantity, label, mine, pair)
        ]
        comparisons += found
        for c in found:
            if c.verdict == "noisy" and c.grid.endswith("(float32)"):
                strayed |= {side for side in SIDES if _strays(c.quantity, side, mine)}
        parted = dict.fromkeys(c.quantity for c in found if c.verdict == "divergent")
        if parted:
            broken.append(Broken(point=label, quantities=list(parted)))
    cut = [s for s in SIDES if played.answers[s, "float64"].severed]
    if len(cut) == 1 and any(b.quantities != ["value"] for b in broken):
        fault = f"{names[SIDES.index(cut[0])]} {played.answers[cut[0], 'float64'].severed}"
        return msgspec.structs.replace(report, fault=fault, sentence=fault)
    verdict = worst_verdict(c.verdict for c in comparisons)
    return msgspec.structs.replace(
        report,
        verdict=verdict,
        sentence=_sentence(verdict, comparisons, broken, len(points), sorted(strayed)),
        broken=broken,
        comparisons=comparisons,
        widened=applied(comparisons, pair.widened),
    )


def _sentence(
    verdict: Verdict,
    comparisons: list[Comparison],
    broken: list[Broken],
    points: int,
    strayed: Sequence[str],
) -> str:
    values = sum(c.compared for c in comparisons)
    if verdict == "match":
        return f"{values:,} values compared at {points} points, in float32 and float64"
    if verdict == "noisy":
        why = []
        if any(c.verdict == "noisy" and c.grid.endswith("(float64)") for c in comparisons):
            why.append(
                "the float64 runs differ by what float32 would explain: one computes in less inside"
            )
        if strayed:
            why.append(
                f"the float32 run of {' and of '.join(strayed)} lies further from its own float64 "
                "run than rounding explains: part of the error is none"
            )
        return "; ".join(why)
    if verdict == "inconclusive":
        return f"not everything could be compared at {points} points"
    quantities = dict.fromkeys(q for b in broken for q in b.quantities)
    return f"parts at {len(broken)} of {points} points, in {', '.join(quantities)}"


def _compared(
    quantity: str, label: str, played: Mapping[tuple[Side, str], Inputs], pair: Pair
) -> list[Comparison]:
    """A quantity at a point: float64 against float64, float32 against float32, frozen against 0."""
    kind: Literal["value", "gradient"] = "value" if quantity == "value" else "gradient"
    sides = [_allowance(quantity, side, played) for side in SIDES]
    allowed, bound = (left + right for left, right in zip(*sides, strict=True))
    axes = tuple(f"axis {n}" for n in range(allowed.ndim))

    def of(side: Side, dtype: str) -> Quantity:
        return Quantity(quantity, axes, kind, played[side, dtype][quantity])

    comparisons = [
        compare(
            of("A", dtype),
            of("B", dtype),
            scale * allowed,
            mode="points",
            grid=f"{label} ({dtype})",
            sides=("A", "B"),
            bound=bound,
            dtype=dtype,
        )
        for dtype, scale in (("float64", FLOAT64_SCALE), ("float32", 1.0))
    ]
    if quantity.removeprefix("gradient/") in pair.frozen:
        zero = np.zeros_like(played["A", "float64"][quantity])
        comparisons += [
            compare(
                of(side, "float64"),
                Quantity(quantity, axes, kind, zero),
                zero,
                mode="points",
                grid=f"{label} (frozen)",
                sides=(side, "0"),
                dtype="float64",
            )
            for side in SIDES
        ]
    return comparisons


def _allowance(quantity: str, side: Side, played: Mapping[tuple[Side, str], Inputs]) -> Allowance:
    """3 × the largest error of the float32 runs, + one ULP: about their own centre, and in all.

    An error is what parts a float32 run from the float64 run at the same inputs. What all of them
    have in common is no rounding: it counts in the bound alone.
    """
    single, exact = (
        np.concatenate([run[quantity][None], run[f"replicas/{quantity}"]]).astype(np.float64)
        for run in (played[side, dtype] for dtype in DTYPES)
    )
    with np.errstate(all="ignore"):
        error = np.where(single == exact, 0.0, single - exact)
        ulp = np.spacing(np.abs(exact[0]).astype(np.float32)).astype(np.float64)
        largest = (np.abs(e).max(0) for e in (error - error.mean(0), error))
        return Allowance(*(np.maximum(MULTIPLE * each + ulp, SMALLEST) for each in largest))


def _strays(quantity: str, side: Side, played: Mapping[tuple[Side, str], Inputs]) -> bool:
    """Whether a side's float32 run lies further from its float64 run than its rounding explains."""
    single, exact = (played[side, dtype][quantity].astype(np.float64) for dtype in DTYPES)
    return bool((np.abs(single - exact) > _allowance(quantity, side, played).spread).any())


def parted(left: Inputs | None, right: Inputs | None, quantities: list[str]) -> bool:
    """Whether two float64 runs differ by more than float32 could explain."""
    if left is None or right is None:
        return False
    for name in quantities:
        a, b = left[name], right[name]
        if a.shape != b.shape:
            return True
        with np.errstate(invalid="ignore", over="ignore"):  # equal infinities are the same
            size = np.where(np.isfinite(a) & np.isfinite(b), np.maximum(np.abs(a), np.abs(b)), 0.0)
            near = np.abs(a - b) <= 2.0**-20 * size.max(initial=0.0)
        if not bool(((a == b) | near).all()):
            return True
    return False
