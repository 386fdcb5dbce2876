"""The comparison of entries: every verdict and its edges, the worst and the first entry, ULP."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_comparison import against
from parity.comparison import Verdict, compare, number, worst_verdict
from parity.trace import Quantity

INF, NAN = math.inf, math.nan


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
