"""The comparison: every verdict and its edges, the worst and the first entry, order and blame."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity import gate
from parity.comparison import (
    ORACLE,
    VERDICTS,
    Comparison,
    Mode,
    Verdict,
    blame,
    compare,
    first_divergence,
    number,
    worst_verdict,
)
from parity.points import Points
from parity.quantities import TRAINED, Spec, expected
from parity.structure import structure, uncompared
from parity.trace import Quantity, Trace

INF, NAN = math.inf, math.nan
SPECS = {spec.name: spec for spec in TRAINED}


def against(
    left: Any,
    right: Any,
    allowed: Any = 0.0,
    *,
    bound: Any = None,
    name: str = "dpo/gradient",
    mode: Mode = "step",
    sides: tuple[str, str] = ("torch", ORACLE),
    **options: Any,
) -> Comparison:
    """Compares two arrays as one quantity of the catalogue; scalars of allowance are spread."""
    one, other = np.asarray(left), np.asarray(right)
    axes, kind = SPECS[name].axes, SPECS[name].kind
    return compare(
        Quantity(name, axes, kind, one),
        Quantity(name, axes, kind, other),
        np.broadcast_to(np.asarray(allowed, np.float64), one.shape),
        mode=mode,
        sides=sides,
        bound=None if bound is None else np.broadcast_to(np.float64(bound), one.shape),
        **options,
    )


def verdict_of(left: Any, right: Any, allowed: Any = 0.0, **options: Any) -> Verdict:
    return against([left], [right], [allowed], **options).verdict


# One entry: what passes and what does not.


@pytest.mark.parametrize(
    ("left", "right", "allowed", "expected"),
    [
        (1.0, 1.0, 0.0, "match"),
        (1.0, 1.5, 0.5, "match"),  # the allowance itself is inside; both are exact in binary
        (1.0, 1.5, np.nextafter(0.5, 0), "divergent"),  # one ULP less is not
        (0.0, -0.0, 0.0, "match"),  # zeros are equal
        (5e-324, 0.0, 0.0, "divergent"),  # the smallest float64 is not 0
        (NAN, 1.0, 9.0, "divergent"),
        (1.0, NAN, 9.0, "divergent"),
        (NAN, NAN, 9.0, "divergent"),
        (INF, INF, 0.0, "match"),
        (-INF, -INF, 0.0, "match"),
        (INF, -INF, 9.0, "divergent"),
        (INF, 1.0, 9.0, "divergent"),
        (1e308, -1e308, 9.0, "divergent"),  # their difference overflows float64
        # An allowance that is not finite allows nothing but equality.
        (1.0, 1.0, NAN, "match"),
        (1.0, 1.0, INF, "match"),
        (INF, INF, NAN, "match"),
        (1.0, 2.0, NAN, "inconclusive"),  # nobody knows what rounding may do there
        (1.0, 2.0, INF, "inconclusive"),
        (INF, -INF, INF, "divergent"),
        (NAN, NAN, INF, "divergent"),
        (NAN, NAN, NAN, "divergent"),
        (1.0, 2.0, -9.0, "divergent"),  # nor does a negative one
    ],
)
def test_one_entry(left: float, right: float, allowed: float, expected: str) -> None:
    assert verdict_of(left, right, allowed) == expected
    assert verdict_of(right, left, allowed) == expected  # whoever stands where


@pytest.mark.parametrize(
    ("difference", "allowed", "bound", "expected"),
    [
        (0.25, 0.5, 2.0, "match"),
        (0.5, 0.5, 2.0, "match"),
        (1.0, 0.5, 2.0, "noisy"),  # outside the allowance, inside the bound
        (2.0, 0.5, 2.0, "noisy"),
        (3.0, 0.5, 2.0, "divergent"),
        (1.0, 0.5, 0.0, "divergent"),
        (1.5, 2.0, 1.0, "match"),  # a bound below the allowance takes nothing away
        (1.0, 0.5, NAN, "divergent"),
        (1.0, 0.5, INF, "divergent"),
        (1.0, NAN, 2.0, "inconclusive"),
        (1.0, INF, 2.0, "inconclusive"),
        (NAN, 0.5, 2.0, "divergent"),
        (INF, 0.5, INF, "divergent"),
    ],
)
def test_noisy_is_between_allowance_and_bound(
    difference: float, allowed: float, bound: float, expected: str
) -> None:
    assert verdict_of(difference, 0.0, allowed, bound=bound) == expected


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_integers_and_booleans_compare_exactly(dtype: Any) -> None:
    one, other = np.array([1, 0], dtype), np.array([0, 0], dtype)
    for generous in (0.0, 9.0, INF):  # no allowance and no bound helps an integer
        found = against(one, other, generous, bound=generous, name="ppo/probabilities")
        assert found.verdict == "divergent"
        assert found.first is not None
        assert (found.first.index, found.first.left, found.first.right) == ((0,), 1, 0)
        assert found.first.ulps == 1
        assert against(one, one, generous, name="ppo/probabilities").verdict == "match"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (2**53, 2**53 + 1),  # the first integers that meet in float64
        (-(2**63), 0),  # whose difference int64 cannot hold
        (2**63 - 1, -(2**63)),
    ],
)
def test_large_integers_compare_exactly(left: int, right: int) -> None:
    found = against(np.array([left]), np.array([right]), 0.0)
    assert found.verdict == "divergent"
    assert found.worst is not None
    assert found.worst.ratio == "Infinity"
    assert found.worst.ulps == abs(left - right)  # Python's integers do not overflow


def test_an_integer_against_a_fraction_is_not_truncated() -> None:
    assert against(np.array([1]), np.array([1.5]), 0.25).verdict == "divergent"
    assert against(np.array([1.5]), np.array([1]), 0.25).verdict == "divergent"


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_nothing_to_compare_is_inconclusive(shape: tuple[int, ...]) -> None:
    found = against(np.zeros(shape, np.float32), np.zeros(shape))
    assert (found.verdict, found.compared, found.worst, found.first) == (
        "inconclusive",
        0,
        None,
        None,
    )
    assert found.reason == "nothing to compare"


@pytest.mark.parametrize("shape", [(), (1, 3), (3, 1), (2, 3), (4,)])
def test_nothing_is_broadcast(shape: tuple[int, ...]) -> None:
    base, other = np.zeros(3), np.zeros(shape)
    for left, right in ((base, other), (other, base)):
        with pytest.raises(ValueError, match="dpo/gradient: shapes differ"):
            against(left, right)
    quantity = Quantity("dpo/gradient", ("update",), "gradient", base)
    for wrong in ({"allowed": other}, {"oracle": other, "allowed": base}):
        with pytest.raises(ValueError, match="shapes differ"):
            compare(quantity, quantity, mode="step", sides=("a", "b"), **wrong)


def test_a_scalar_quantity_has_an_empty_index() -> None:
    for left, right in ((np.float32(1), np.float64(2)), (np.int64(1), np.int64(2))):
        found = against(left, right, 0.5)
        assert (found.verdict, found.compared, found.shape) == ("divergent", 1, ())
        assert found.first is not None
        assert found.first.index == ()
        assert found.first.difference == 1.0


FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, INF, -INF, NAN])
ENTRIES = st.tuples(FLOATS, FLOATS, FLOATS, FLOATS)  # left, right, allowance, bound


@given(st.lists(ENTRIES, min_size=1, max_size=6))
def test_an_array_is_as_bad_as_its_worst_entry(entries: list[tuple[float, ...]]) -> None:
    left, right, allowed, bound = np.array(entries).T
    whole = against(left, right, allowed, bound=bound)
    alone = [verdict_of(a, b, c, bound=d) for a, b, c, d in entries]
    assert whole.verdict == worst_verdict(alone)
    assert (whole.first is None) == (whole.verdict in ("match", "inconclusive"))
    if whole.first:
        assert whole.first.index == (alone.index(whole.verdict),)


@given(ENTRIES)
def test_nan_never_passes_and_the_sides_are_alike(entry: tuple[float, ...]) -> None:
    left, right, allowed, bound = entry
    found = against([left], [right], allowed, bound=bound)
    swapped = against([right], [left], allowed, bound=bound)
    assert found.verdict == swapped.verdict
    assert found.worst is not None
    assert swapped.worst is not None
    for field in ("difference", "ratio", "ulps"):
        assert getattr(found.worst, field) == getattr(swapped.worst, field)
    if math.isnan(left) or math.isnan(right):
        assert found.verdict == "divergent"
        assert (found.worst.ratio, found.worst.ulps) == ("Infinity", "NaN")
    elif left == right:
        assert found.verdict == "match"
        assert (found.worst.ratio, found.worst.ulps) == (0.0, 0)
    else:
        assert (found.verdict == "match") == (
            math.isfinite(allowed) and abs(left - right) <= allowed
        )


# The worst entry and the first.


def test_the_worst_entry_is_the_one_with_the_largest_ratio_not_difference() -> None:
    left = np.float32([[100.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    right = np.float64([[108.0, 1.0, 2.0], [3.0, 4.25, 5.0]])
    allowed = np.array([[16.0, 1.0, 1.0], [1.0, 0.0625, 1.0]])
    oracle = right + 0.5
    found = against(left, right, allowed, oracle=oracle, sides=("jax", "torch"))
    assert (found.left, found.right, found.mode, found.grid) == ("jax", "torch", "step", "run")
    assert (found.kind, found.axes) == ("gradient", ("update", "action"))
    assert (found.shape, found.compared) == ((2, 3), 6)
    worst = found.worst
    assert worst is not None
    assert worst == found.first
    # |4 - 4.25| = 0.25, four times 0.0625; (0, 0) differs by 8, half of 16. All exact in binary.
    assert worst.index == (1, 1)
    assert (worst.left, worst.right, worst.oracle) == (4.0, 4.25, 4.75)
    assert (worst.difference, worst.allowed, worst.ratio) == (0.25, 0.0625, 4.0)
    assert worst.ulps == 2**19  # float32 between 4 and 8 are 2**-21 apart: 2**-2 / 2**-21


def test_a_match_still_names_its_tightest_entry() -> None:
    found = against([1.0, 2.0], [1.25, 2.5], 1.0)  # 0.25 and 0.5 of an allowance of 1
    assert (found.verdict, found.first) == ("match", None)
    assert found.worst is not None
    assert (found.worst.index, found.worst.ratio) == ((1,), 0.5)


def test_the_ratio_of_what_has_no_allowance_is_infinite() -> None:
    for allowed in (0.0, NAN, INF):
        found = against([1.0, 1.0], [1.0, 1.5], allowed)
        assert found.worst is not None
        assert (found.worst.index, found.worst.ratio) == ((1,), "Infinity")
        assert found.worst.allowed == number(allowed)


def test_the_first_entry_is_the_first_that_was_computed() -> None:
    values = np.zeros((2, 3))
    values[0, 2], values[1, 0] = 2.0, 8.0  # the second is worse, but of a later update
    found = against(values, np.zeros((2, 3)), 1.0)
    assert found.first is not None
    assert found.worst is not None
    assert (found.first.index, found.worst.index) == ((0, 2), (1, 0))


def test_the_first_entry_of_a_divergence_is_divergent_and_not_merely_noisy() -> None:
    found = against([2.0, 0.0, 9.0], [0.0, 0.0, 0.0], 1.0, bound=4.0)  # noisy, equal, beyond
    assert found.verdict == "divergent"
    assert found.first is not None
    assert found.first.index == (2,)


def test_numbers_that_json_lacks_become_text() -> None:
    assert [number(x) for x in (NAN, INF, -INF, 1.5, np.int32(3), np.bool_(True))] == [
        "NaN",
        "Infinity",
        "-Infinity",
        1.5,
        3,
        1,
    ]


# Units in the last place: neighbours counted by hand with nextafter.


def ulps(left: Any, right: Any, dtype: str = "float32") -> Any:
    found = against(np.array([left], dtype), np.array([right]), 1e300, dtype=dtype)
    assert found.worst is not None
    return found.worst.ulps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize(
    "start",
    [0.0, -0.0, 1.0, -1.0, 0.75, 2.0**-126, -(2.0**-126), 1e-45, -1e-45, 3.0e38, -4.0],
)
def test_ulps_count_the_neighbours(start: float, steps: int, dtype: str) -> None:
    kind = np.dtype(dtype).type
    up = down = kind(start)
    for _ in range(steps):
        up, down = np.nextafter(up, kind(INF)), np.nextafter(down, kind(-INF))
    assert ulps(start, up, dtype) == ulps(up, start, dtype) == steps
    assert ulps(start, down, dtype) == steps
    assert ulps(down, up, dtype) == 2 * steps  # across zero too


def test_ulps_of_special_values() -> None:
    assert ulps(0.0, -0.0) == 0
    tiny = float(np.nextafter(np.float32(0), np.float32(1)))
    assert ulps(tiny, -tiny) == 2  # over the two zeros, which count as one
    assert ulps(INF, INF) == 0
    assert ulps(np.finfo(np.float32).max, INF) == 1
    assert ulps(1.0, NAN) == "NaN"
    assert ulps(1.0, 1.0 + 2.0**-30) == 0  # the oracle's float64, seen in the run's float32
    assert ulps(1.0, 1.0 + 2.0**-30, "float64") == 2**22  # apart by 2**-52 there


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_ulps_add_up_along_the_line(left: float, right: float) -> None:
    assert ulps(left, right) == ulps(right, left)
    low, high = sorted((left, right))
    middle = float(np.float32(low / 2 + high / 2)) if math.isfinite(low + high) else 0.0
    if low <= middle <= high:
        assert ulps(low, high) == ulps(low, middle) + ulps(middle, high)


# A small gradient of the wrong sign, which hand-set tolerances let pass.


def test_a_tiny_gradient_of_the_wrong_sign_is_divergent_under_a_measured_allowance() -> None:
    import torch

    # -β σ(-βm) = -5e-6 with β = 0.5: σ = 1e-5, so βm = ln(1e5 - 1) and m = 2 ln(1e5 - 1)
    margin = float(np.float32(2 * math.log(1e5 - 1)))
    inputs = {
        "logits": np.array([[margin, 0.0]]),
        "reference": np.array([[-math.log(2)] * 2], np.float32).astype(np.float64),
        "chosen": np.array([[0]]),
        "rejected": np.array([[1]]),
        "beta": np.array([0.5]),
    }
    measured = gate.evaluate_points(Points("dpo", "one", ("one",), inputs), "float32")
    name = "dpo/gradient"
    right = measured.values[name]
    np.testing.assert_allclose(right, [[-5e-6, 5e-6]], rtol=1e-6)  # margin's rounding, 1e-6 of it
    honest, flipped = right.astype(np.float32), -right.astype(np.float32)
    options = {"bound": measured.bound[name], "mode": "points"}
    assert against(honest, right, measured.allowed[name], **options).verdict == "match"
    found = against(flipped, right, measured.allowed[name], **options)
    assert found.verdict == "divergent"
    assert found.worst is not None
    assert found.worst.ratio > 1e3  # rounding moves it by 1e-6 of itself, the sign by twice it
    torch.testing.assert_close(torch.from_numpy(flipped), torch.from_numpy(honest))


# Many comparisons: precedence, order, blame.


def test_precedence_of_verdicts() -> None:
    assert VERDICTS == ("match", "noisy", "inconclusive", "divergent")
    for position, worse in enumerate(VERDICTS):
        for better in VERDICTS[: position + 1]:
            assert worst_verdict([better, worse]) == worst_verdict([worse, better]) == worse
    assert worst_verdict([]) == "inconclusive"
    assert worst_verdict(iter(["match"])) == "match"


AT_SHAPES = {  # the smallest shapes that hold every index used below
    "reward/loss": (3,),
    "reward/scores": (2,),
    "ppo/ratios": (2, 2, 2),
    "ppo/surrogate": (2, 2),
    "ppo/logits": (2, 2, 2),
    "ppo/actions": (2, 2),
    "ppo/expected_reward": (3,),
    "ppo/probabilities": (2,),
    "dpo/margins": (3, 2),
    "dpo/loss": (3,),
}


def parted(
    name: str,
    *index: int,
    mode: Mode = "step",
    sides: tuple[str, str] = ("torch", ORACLE),
    verdict: Verdict = "divergent",
    grid: str = "run",
) -> Comparison:
    """A comparison that is outside the allowance at one entry alone; 8 is noisy, 64 beyond."""
    right = np.zeros((*AT_SHAPES[name],))
    left = right.copy()
    left[index] = {"match": 0.0, "noisy": 8.0, "divergent": 64.0}[verdict]
    found = against(left, right, 1.0, bound=16.0, name=name, mode=mode, sides=sides, grid=grid)
    assert found.verdict == verdict
    return found


def at_point(comparison: Comparison) -> Comparison:
    """The same as one of the points: its first axis is `point`."""
    axes = ("point", *comparison.axes[1:])
    return msgspec.structs.replace(comparison, mode="points", axes=axes)


IN_ORDER = [  # as a run computes them, from the first to the last
    parted("reward/loss", 0),
    parted("reward/loss", 2),
    parted("reward/scores", 1),  # once, after all updates
    parted("ppo/expected_reward", 0),  # the checkpoint before the first rollout
    parted("ppo/actions", 0, 1),  # replayed before the first epoch
    parted("ppo/ratios", 0, 0, 1),
    parted("ppo/surrogate", 0, 0),
    parted("ppo/logits", 0, 0, 0),
    parted("ppo/ratios", 0, 1, 0),
    parted("ppo/surrogate", 0, 1),
    parted("ppo/expected_reward", 1),  # the checkpoint after the first rollout
    parted("ppo/actions", 1, 0),
    parted("ppo/surrogate", 1, 0),
    parted("ppo/logits", 1, 1, 0),
    parted("ppo/expected_reward", 2),
    parted("ppo/probabilities", 0),
    parted("dpo/margins", 0, 1),
    parted("dpo/loss", 0),
    parted("dpo/margins", 1, 0),
    at_point(parted("reward/loss", 0, grid="core")),  # points have no step: they come last
    at_point(parted("dpo/loss", 2, grid="core")),
]


@pytest.mark.parametrize("position", range(len(IN_ORDER) - 1))
def test_the_first_divergence_is_the_first_in_order_of_computation(position: int) -> None:
    earlier, *later = IN_ORDER[position:]
    for comparisons in ([earlier, *later], [*later, earlier], [later[0], earlier]):
        found = first_divergence(comparisons)
        assert found is not None
        assert earlier.first is not None
        assert (found.quantity, found.mode, found.grid) == (
            earlier.quantity,
            earlier.mode,
            earlier.grid,
        )
        assert found.entry == earlier.first


def test_the_first_divergence_names_its_step() -> None:
    def step(comparison: Comparison) -> dict[str, int]:
        found = first_divergence([comparison])
        assert found is not None
        return found.at

    assert step(parted("ppo/ratios", 1, 0, 1)) == {"rollout": 1, "epoch": 0}
    assert step(parted("ppo/actions", 1, 0)) == {"rollout": 1}
    assert step(parted("ppo/expected_reward", 2)) == {"checkpoint": 2}
    assert step(parted("dpo/margins", 2, 1)) == {"update": 2}
    assert step(parted("ppo/probabilities", 1)) == {}
    assert step(at_point(parted("dpo/margins", 2, 1))) == {"point": 2}


def test_of_equals_the_step_against_the_oracle_says_most() -> None:
    def same(mode: Mode, sides: tuple[str, str]) -> Comparison:
        return parted("ppo/surrogate", 0, 1, mode=mode, sides=sides)

    preferred = [
        same("step", ("torch", ORACLE)),
        same("trajectory", ("torch", ORACLE)),
        same("trajectory", ("jax", "torch")),
    ]
    for position, best in enumerate(preferred):
        found = first_divergence(preferred[position:][::-1])
        assert found is not None
        assert (found.mode, found.left, found.right) == (best.mode, best.left, best.right)


def test_what_is_noisy_is_passed_over_where_something_is_divergent() -> None:
    noisy = parted("reward/loss", 0, verdict="noisy")
    divergent = parted("dpo/loss", 2)
    for comparisons, expected_first in (
        ([noisy, divergent], "dpo/loss"),
        ([noisy, parted("dpo/loss", 2, verdict="match")], "reward/loss"),
    ):
        found = first_divergence(comparisons)
        assert found is not None
        assert found.quantity == expected_first


def test_nothing_parted_has_no_first_divergence() -> None:
    missing = uncompared(
        SPECS["dpo/loss"],
        (3,),
        mode="step",
        grid="run",
        sides=("torch", ORACLE),
        verdict="inconclusive",
        reason="missing from torch",
    )
    assert (missing.compared, missing.worst, missing.reason) == (0, None, "missing from torch")
    assert first_divergence([]) is None
    assert first_divergence([parted("dpo/loss", 0, verdict="match"), missing]) is None


def test_blame_is_on_those_whom_the_oracle_or_an_invariant_contradicts() -> None:
    def by(left: str, right: str, verdict: Verdict = "divergent") -> Comparison:
        return parted("dpo/loss", 0, sides=(left, right), verdict=verdict)

    one = [by("jax", ORACLE, "match"), by("torch", ORACLE), by("jax", "torch")]
    assert blame(one, [], "divergent") == ["torch"]
    both = [by("torch", ORACLE), by("jax", ORACLE), by("torch", ORACLE)]
    assert blame(both, [], "divergent") == ["jax", "torch"]
    assert blame([by("jax", "torch")], [], "divergent") == []  # the oracle contradicts nobody
    mixed = [by("jax", ORACLE, "noisy"), by("torch", ORACLE)]
    assert blame(mixed, [], "divergent") == ["torch"]  # of the verdict of the whole alone
    assert blame(mixed[:1], [], "noisy") == ["jax"]
    assert blame(one[:1], ["jax", "jax"], "divergent") == ["jax"]
    assert blame(one, ["jax"], "match") == []


# Structure: what must agree before any value is looked at.


EXPECTED: dict[Spec, tuple[int, ...]] = {
    SPECS["ppo/actions"]: (2, 4),
    SPECS["ppo/ratios"]: (2, 3, 4),
    SPECS["ppo/surrogate"]: (2, 3),
    SPECS["ppo/logits"]: (2, 3, 5),
}


def whole() -> dict[str, Quantity]:
    return {
        spec.name: Quantity(
            spec.name,
            spec.axes,
            spec.kind,
            np.zeros(shape, np.int64 if spec.integer else np.float32),
        )
        for spec, shape in EXPECTED.items()
    }


def complaints(
    quantities: dict[str, Quantity], declared: str = "float32", dtype: str = "float32"
) -> dict[str, tuple[Verdict, str]]:
    return structure(Trace("torch", declared, quantities), EXPECTED, dtype)


def altered(name: str, **changes: Any) -> dict[str, Quantity]:
    quantities = whole()
    return quantities | {name: replace(quantities[name], **changes)}


def test_a_trace_as_expected_has_no_complaints() -> None:
    assert complaints(whole()) == {}
    wide = {
        name: replace(q, values=q.values.astype(np.float64)) if "actions" not in name else q
        for name, q in whole().items()
    }
    assert complaints(wide, "float64", "float64") == {}


@pytest.mark.parametrize("name", [spec.name for spec in EXPECTED])
def test_a_missing_or_empty_quantity_is_inconclusive(name: str) -> None:
    rest = {key: quantity for key, quantity in whole().items() if key != name}
    assert complaints(rest) == {name: ("inconclusive", "missing from torch")}
    values = whole()[name].values
    assert complaints(altered(name, values=values[:0])) == {
        name: ("inconclusive", "empty in torch")
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"values": np.zeros((3, 2), np.float32)}, "shape (3, 2), expected (2, 3)"),
        ({"values": np.zeros(6, np.float32)}, "shape (6,), expected (2, 3)"),
        ({"values": np.zeros((1, 2, 3), np.float32)}, "shape"),
        ({"values": np.zeros((2, 3), np.float64)}, "dtype float64, expected float32"),
        ({"values": np.zeros((2, 3), np.float16)}, "dtype float16"),
        ({"values": np.zeros((2, 3), np.int64)}, "dtype int64"),
        ({"values": np.zeros((2, 3), ">f4")}, "dtype"),
        ({"axes": ("epoch", "rollout")}, "axes"),
        ({"axes": ("rollout",)}, "axes"),
        ({"kind": "gradient"}, "kind gradient, expected value"),
    ],
)
def test_another_form_is_divergent(changes: dict[str, Any], said: str) -> None:
    found = complaints(altered("ppo/surrogate", **changes))
    assert list(found) == ["ppo/surrogate"]
    verdict, reason = found["ppo/surrogate"]
    assert verdict == "divergent"
    assert reason.startswith(f"torch has {said}")


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float32, np.bool_])
def test_actions_are_int64(dtype: Any) -> None:
    found = complaints(altered("ppo/actions", values=np.zeros((2, 4), dtype)))
    assert found["ppo/actions"][0] == "divergent"


def test_an_unexpected_quantity_is_divergent() -> None:
    extra = Quantity("ppo/entropy", ("rollout",), "value", np.zeros(2, np.float32))
    assert complaints(whole() | {"ppo/entropy": extra}) == {
        "ppo/entropy": ("divergent", "torch records it, nobody expects it")
    }


def test_another_order_is_divergent_where_it_differs() -> None:
    quantities = whole()
    names = list(quantities)
    names[1], names[2] = names[2], names[1]
    found = complaints({name: quantities[name] for name in names})
    assert found == dict.fromkeys(
        ("ppo/ratios", "ppo/surrogate"), ("divergent", "out of order in torch")
    )
    # What is missing or unexpected does not put the rest out of order.
    extra = Quantity("ppo/entropy", (), "value", np.zeros((), np.float32))
    shorter = {"ppo/entropy": extra} | {n: quantities[n] for n in list(quantities)[1:]}
    assert set(complaints(shorter)) == {"ppo/actions", "ppo/entropy"}


@pytest.mark.parametrize("declared", ["float32", "float64"])
def test_a_run_in_another_precision_is_divergent_throughout(declared: str) -> None:
    other = "float64" if declared == "float32" else "float32"
    found = complaints(whole(), declared, other)  # whatever dtype the arrays have
    assert set(found) == {spec.name for spec in EXPECTED}
    assert {verdict for verdict, _ in found.values()} == {"divergent"}
    assert found["ppo/ratios"][1] == f"torch ran in {declared}, expected {other}"


def test_every_lesson_agrees_with_the_catalogue(problems: dict[str, Any]) -> None:
    for problem in problems.values():
        names = [spec.name for spec in expected(problem)]
        assert names == sorted(names, key=list(SPECS).index)
        assert len(names) == len(set(names)) > 0
