"""The measurement: what is allowed, entry by entry, and what is refused."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from parity.arithmetic import operations as op
from parity.arithmetic.measure import (
    FLOAT64_SCALE,
    Emission,
    Expected,
    Lift,
    measure,
    time_first,
)
from parity.arithmetic.rounded import SMALLEST, UNIT_ROUNDOFF, Luck

ALL = slice(None)
X = np.array([[0.3, -1.5], [2.0, 0.7], [1.0, 0.1]])  # [point, entry]


def points(lift: Lift) -> Iterator[Emission]:
    x = lift(X.T)
    yield Emission((ALL,), 1, {"square": x * x, "total": op.sum(x * x), "input": x})


SHAPES = {"square": (3, 2), "total": (3,), "input": (3, 2)}


def of(
    run: Any, shapes: dict[str, tuple[int, ...]], dtype: str = "float32", **more: Any
) -> Expected:
    return measure(run, shapes, dtype, rigorous=True, **more)


def allowance(replicas: np.ndarray, exact: float, *, foreign: bool = False) -> float:
    """Of one entry: replica r runs program r % 4; of each sixteen the last eight are scaled."""
    off = {r: replica - exact for r, replica in enumerate(replicas)}
    own = {r: x for r, x in off.items() if foreign or r // 8 % 2 == 0}
    programs = [[x for r, x in own.items() if r % 4 == program] for program in range(4)]
    drifts = [sum(program) / len(program) for program in programs]
    pairs = zip(programs, drifts, strict=True)
    spread = max(abs(x - drift) for program, drift in pairs for x in program)
    elsewhere = max((abs(x) for r, x in off.items() if r not in own), default=0.0)
    deviation = max(1.25 * max(map(abs, drifts)) + 2.5 * spread, 1.1 * elsewhere)
    return deviation + float(np.spacing(np.float32(abs(exact))))


def test_allowance_is_what_replicas_show_and_an_ulp() -> None:
    found = of(points, SHAPES)
    luck = Luck()
    replicas = {n: v.value for n, v in next(points(luck.lift)).values.items()}
    for name, value in {"square": X * X, "total": (X * X).sum(1), "input": X}.items():
        np.testing.assert_allclose(found.values[name], value, rtol=1e-15)
        lucky = replicas[name] if name == "total" else replicas[name].swapaxes(0, 1)
        for place in np.ndindex(value.shape):
            expected = allowance(lucky[place], value[place])
            assert found.allowed[name][place] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_array_equal(found.allowed["input"], np.spacing(np.abs(X).astype(np.float32)))
    np.testing.assert_array_equal(found.bound["input"], 0)
    np.testing.assert_allclose(found.bound["square"], UNIT_ROUNDOFF * X * X, rtol=1e-12)
    assert list(found.values) == list(found.allowed) == list(found.bound) == list(SHAPES)


def test_a_bound_is_computed_only_where_it_says_something() -> None:
    assert measure(points, SHAPES, "float32", rigorous=False).bound == {}


def test_a_float64_run_is_allowed_its_share() -> None:
    """2·2⁻²⁹: roundoffs of 2⁻⁵³ against 2⁻²⁴, twice, for the oracle's own."""
    assert FLOAT64_SCALE == 2.0**-28
    single = of(points, SHAPES)
    double = of(points, SHAPES, "float64", luck=Luck())
    narrowed = single.narrowed()
    for name in SHAPES:
        np.testing.assert_array_equal(double.values[name], single.values[name])
        np.testing.assert_array_equal(double.allowed[name], single.allowed[name] * FLOAT64_SCALE)
        np.testing.assert_array_equal(double.bound[name], single.bound[name] * FLOAT64_SCALE)
        np.testing.assert_array_equal(double.allowed[name], narrowed.allowed[name])
        np.testing.assert_array_equal(double.bound[name], narrowed.bound[name])
        np.testing.assert_array_equal(narrowed.values[name], single.values[name])


def test_replicas_of_a_float64_run_sum_at_scales_of_their_own() -> None:
    def constant(lift: Lift) -> Iterator[Emission]:
        yield Emission((), 0, {"sum": op.sum(lift(terms))})

    terms = np.full((1000, 8), np.linspace(0.1, 0.9, 8, dtype=np.float32), np.float64)
    wide = np.repeat(terms[..., None], 64, axis=-1)
    single, double = (of(constant, {"sum": (8,)}, dtype) for dtype in ("float32", "float64"))
    own, foreign = Luck().added(wide), Luck(foreign_bits=True).added(wide)
    for entry, exact in enumerate(single.values["sum"]):
        expected = allowance(own[entry], exact)
        assert single.allowed["sum"][entry] == pytest.approx(expected, rel=1e-9)
        expected = FLOAT64_SCALE * allowance(foreign[entry], exact, foreign=True)
        assert double.allowed["sum"][entry] == pytest.approx(expected, rel=1e-9)


def test_integers_must_be_exact() -> None:
    def counts(lift: Lift) -> Iterator[Emission]:
        assert callable(lift)
        yield Emission((ALL,), 1, {"index": np.moveaxis(np.array([[1, 2], [3, 2**40]]), 0, -1)})

    found = of(counts, {"index": (2, 2)})
    assert found.values["index"].dtype == np.int64
    np.testing.assert_array_equal(found.values["index"], [[1, 2], [3, 2**40]])
    np.testing.assert_array_equal(found.allowed["index"], 0)
    np.testing.assert_array_equal(found.bound["index"], 0)


def test_time_comes_first_and_steps_fill_their_places() -> None:
    values = np.arange(24.0).reshape(4, 3, 2)  # [rollout, epoch, entry]

    def steps(lift: Lift) -> Iterator[Emission]:
        whole = np.moveaxis(values[:2], (0, 1), (-2, -1))
        yield Emission((slice(0, 2),), 2, {"x": lift(whole), "constant": lift(0.5)})
        for rollout, epoch in np.ndindex(2, 3):
            x = lift(values[rollout + 2, epoch])
            yield Emission((rollout + 2, epoch), 0, {"x": x, "constant": lift(0.25)})

    found = of(steps, {"x": (4, 3, 2), "constant": (4, 3)})
    np.testing.assert_array_equal(found.values["x"], values)
    np.testing.assert_array_equal(
        found.values["constant"], np.repeat([[0.5], [0.25]], 2, 0) + np.zeros(3)
    )
    np.testing.assert_array_equal(time_first(np.zeros((2, 3, 4, 5)), 2).shape, (4, 5, 2, 3))
    assert time_first(np.zeros((4, 5)), 2).shape == (4, 5)
    assert time_first(0.5, 2).shape == ()


def test_rows_of_several_lengths_may_follow_one_another() -> None:
    values = np.arange(1.0, 13.0).reshape(6, 2)

    def rows(lift: Lift) -> Iterator[Emission]:
        for where in (0, 1, slice(2, 4), slice(4, 6)):
            yield Emission((where,), 0, {"x": lift(values[where]) * 1.0})

    found = of(rows, {"x": (6, 2)})
    np.testing.assert_array_equal(found.values["x"], values)
    relative = found.allowed["x"] / values / UNIT_ROUNDOFF
    assert (relative > 2).all()
    assert (relative < 6).all()


def test_a_long_run_is_measured_as_a_short_one() -> None:
    values = np.random.default_rng(1).normal(size=(700, 2))

    def steps(lift: Lift) -> Iterator[Emission]:
        for step, row in enumerate(values):
            yield Emission((step,), 0, {"x": lift(row) * 1.0})

    def first(lift: Lift) -> Iterator[Emission]:
        for step, row in enumerate(values[:10]):
            yield Emission((step,), 0, {"x": lift(row) * 1.0})

    long, short = of(steps, {"x": (700, 2)}), of(first, {"x": (10, 2)})
    np.testing.assert_array_equal(long.allowed["x"][:10], short.allowed["x"])
    assert (long.allowed["x"] > 2 * UNIT_ROUNDOFF * np.abs(values)).all()


def test_an_entry_without_a_value_is_refused() -> None:
    def partial(lift: Lift) -> Iterator[Emission]:
        yield Emission((0,), 0, {"x": lift(0.5), "y": lift(0.5)})
        yield Emission((1,), 0, {"x": lift(0.5)})

    expectation = r"the oracle left entries without a value: y, z$"
    with pytest.raises(ValueError, match=expectation):
        of(partial, {"x": (2,), "y": (2,), "z": (2,)})


def test_modes_that_part_are_refused() -> None:
    def one(lift: Lift) -> Iterator[Emission]:
        yield Emission((), 0, {"x": lift(0.5)})
        if lift is not np.asarray:
            yield Emission((), 0, {"x": lift(0.5)})

    with pytest.raises(ValueError, match="zip"):
        of(one, {"x": ()})


def test_nothing_is_allowed_less_than_what_is_flushed() -> None:
    def small(lift: Lift) -> Iterator[Emission]:
        yield Emission((), 0, {"x": lift(np.array([0.0, 2.0**-140, 2.0**-100])) * 1.0})

    found = of(small, {"x": (3,)})
    assert (found.allowed["x"][:2] == SMALLEST).all()
    assert found.allowed["x"][2] > SMALLEST / 4
    assert found.allowed["x"][1] == SMALLEST  # half of the replicas deviate by 2⁻¹⁴⁰


def test_infinities_may_agree_and_nan_never_does() -> None:
    def odd(lift: Lift) -> Iterator[Emission]:
        x = lift(np.array([1.0, 0.0, -1.0, 1e30]))
        yield Emission((), 0, {"log": op.log(x), "inverse": 1.0 / x, "huge": x * 1e300})

    found = of(odd, {"log": (4,), "inverse": (4,), "huge": (4,)})
    np.testing.assert_array_equal(found.values["log"][1:3], [-np.inf, np.nan])
    spacing = np.spacing(np.float32(2.0**127))
    assert found.allowed["log"][1] == spacing
    assert found.allowed["inverse"][1] == spacing
    assert np.isnan(found.allowed["log"][2])
    assert found.values["huge"][3] == np.inf
    assert found.allowed["huge"][3] == spacing


def test_replicas_that_part_at_an_infinity_allow_anything() -> None:
    def edge(lift: Lift) -> Iterator[Emission]:
        x = lift(np.array([1.0])) * 1.0
        yield Emission((), 0, {"x": 1.0 / (x - 1.0)})

    found = of(edge, {"x": (1,)})
    assert found.values["x"] == np.inf
    assert found.allowed["x"] == np.inf


def test_the_same_run_is_allowed_the_same_every_time() -> None:
    one, two, other = of(points, SHAPES), of(points, SHAPES), of(points, SHAPES, luck=Luck(3))
    for name in SHAPES:
        np.testing.assert_array_equal(one.allowed[name], two.allowed[name])
    assert (one.allowed["square"] != other.allowed["square"]).all()
