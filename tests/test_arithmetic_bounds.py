"""Bounds: no float32 program leaves them, whatever its order; and they are not idle."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arithmetic_cases import CASES, Case, draw, value_and_gradients
from exact_arrays import CONTEXT
from parity.arithmetic import kernels
from parity.arithmetic import operations as op
from parity.arithmetic.bounded import Bounded, rounding
from parity.arithmetic.rounded import SMALLEST, UNIT_ROUNDOFF

TINY = 1e-15  # of the exact run in float64
MEANS: dict[np.ufunc, Any] = {
    np.add: lambda a, b: a + b,
    np.subtract: lambda a, b: a - b,
    np.multiply: lambda a, b: a * b,
    np.divide: lambda a, b: a / b,
    np.maximum: max,
    np.minimum: min,
    np.negative: lambda a: -a,
    np.absolute: abs,
    np.exp: CONTEXT.exp,
    np.expm1: CONTEXT.expm1,
    np.log: CONTEXT.log,
    np.log1p: CONTEXT.log1p,
    np.sqrt: CONTEXT.sqrt,
    np.tanh: CONTEXT.tanh,
}
LOWEST = {np.log: 1e-30, np.log1p: -0.99, np.sqrt: 0.0}
sizes = st.floats(-60, 60, width=32)
shares = st.floats(0, 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
@pytest.mark.parametrize("order", [1, -1])
def test_float32_stays_within_the_bound(case: Case, order: int) -> None:
    operands = draw(case, 8, (25,))
    weights = draw(case._replace(shapes=[case.run(*operands).shape], ranges=[(-2.0, 2.0)]), 9)[0]
    turned = [np.flip(x, (0, 1)) for x in operands] if order < 0 and "a" in case.name else operands
    bounds = value_and_gradients(case, [Bounded(x) for x in turned], Bounded(weights))
    narrow = value_and_gradients(
        case, [x.astype(np.float32) for x in turned], weights.astype(np.float32)
    )
    for bound, found in zip([bounds[0], *bounds[1]], [narrow[0], *narrow[1]], strict=True):
        assert (np.abs(found - bound.value) <= bound.error + TINY).all()


@pytest.mark.parametrize("ufunc", MEANS, ids=lambda ufunc: ufunc.__name__)
@settings(derandomize=True, deadline=None, database=None)  # as conftest has it
@given(data=st.data())
def test_every_operand_within_its_error_gives_a_result_within_the_bound(
    ufunc: np.ufunc, data: st.DataObject
) -> None:
    """Also where the result underflows; in float32 it may then be flushed to 0."""
    values, errors = [], []
    for _ in range(ufunc.nin):
        values.append(max(data.draw(sizes), LOWEST.get(ufunc, -60.0)))
        errors.append(data.draw(shares) * data.draw(st.sampled_from([0, 1e-7, 1e-3, 1, 30])))
    with np.errstate(all="ignore"):
        bound = ufunc(*(Bounded(v, np.asarray(e)) for v, e in zip(values, errors, strict=True)))
        assume(np.isfinite(bound.value))
        assert bound.error >= 0  # and no NaN
    for _ in range(4):
        moved = [
            CONTEXT.mpf(v) + CONTEXT.mpf(e) * data.draw(st.floats(-1, 1))
            for v, e in zip(values, errors, strict=True)
        ]
        try:
            result = MEANS[ufunc](*moved)
        except ZeroDivisionError:
            assert bound.error == np.inf
            continue
        if isinstance(result, CONTEXT.mpc) or CONTEXT.isnan(result) or CONTEXT.isinf(result):
            assert bound.error == np.inf or ufunc is np.sqrt
            continue
        rounded = result * (1 + CONTEXT.mpf(2) ** -24 * data.draw(st.sampled_from([-1, 0, 1])))
        if abs(rounded) < SMALLEST and data.draw(st.booleans()):
            rounded = CONTEXT.mpf(0)
        if ufunc in (np.maximum, np.minimum, np.negative, np.absolute):
            rounded = result
        assert abs(rounded - CONTEXT.mpf(float(bound.value))) <= float(bound.error) * (
            1 + 1e-9
        ) + TINY * abs(float(bound.value))


@pytest.mark.parametrize(
    ("ufunc", "operands", "roundoffs"),
    [
        (np.add, (0.7, 0.5), 1),
        (np.subtract, (0.7, 0.5), 1),
        (np.multiply, (0.7, 0.5), 1),
        (np.divide, (0.7, 0.5), 1),
        (np.sqrt, (0.7,), 1),
        (np.exp, (0.7,), 4),
        (np.expm1, (0.7,), 4),
        (np.log, (0.7,), 4),
        (np.log1p, (0.7,), 4),
        (np.tanh, (0.7,), 4),
        (np.negative, (0.7,), 0),
        (np.absolute, (-0.7,), 0),
        (np.maximum, (0.7, 0.5), 0),
        (np.minimum, (0.7, 0.5), 0),
    ],
)
def test_exact_operands_leave_the_roundoffs_of_the_operation(
    ufunc: np.ufunc, operands: tuple[float, ...], roundoffs: float
) -> None:
    bound = ufunc(*map(Bounded, operands))
    assert bound.value == ufunc(*operands)
    expected = roundoffs * (UNIT_ROUNDOFF * abs(ufunc(*operands)))
    assert bound.error == pytest.approx(expected, rel=1e-12)
    plain = ufunc(Bounded(operands[0]), *operands[1:])
    assert (plain.value, plain.error) == (bound.value, bound.error)


def around(value: float, error: float) -> Bounded:
    return Bounded(np.array([value]), np.array([error]))


@pytest.mark.parametrize(
    ("run", "value", "error"),
    [
        (lambda: np.sqrt(around(0.0, 0.0)), 0.0, 0.0),
        (lambda: np.sqrt(around(0.0, 0.01)), 0.0, 0.1),
        (lambda: np.sqrt(around(0.01, 0.01)), 0.1, 0.1),
        (lambda: np.sqrt(around(4.0, 1.75)), 2.0, 0.5),
        (lambda: np.log(around(1.0, 0.5)), 0.0, 1.0),
        (lambda: np.log(around(1.0, 1.0)), 0.0, np.inf),
        (lambda: np.log1p(around(0.0, 0.5)), 0.0, 1.0),
        (lambda: np.log1p(around(0.0, 2.0)), 0.0, np.inf),
        (lambda: around(1.0, 0.5) / around(2.0, 1.0), 0.5, 1.0),
        (lambda: around(1.0, 0.0) / around(0.5, 0.5), 2.0, np.inf),
        (lambda: around(0.0, 0.0) / around(0.5, 1.0), 0.0, 0.0),
        (lambda: np.exp(around(-2000.0, 1999.0)), 0.0, np.exp(-1.0)),
        (lambda: np.exp(around(0.0, 1.0)), 1.0, np.e - 1),
        (lambda: np.expm1(around(0.0, 1.0)), 0.0, np.e - 1),
        (lambda: np.tanh(around(0.0, 0.5)), 0.0, 0.5),
        (lambda: around(0.0, 0.0) * around(1.0, np.inf), 0.0, 0.0),
        (lambda: around(3.0, 0.5) * around(2.0, 0.25), 6.0, 3 * 0.25 + 2 * 0.5 + 0.125),
        (lambda: around(-3.0, 0.5) - around(2.0, 0.25), -5.0, 0.75),
        (lambda: np.maximum(around(1.0, 0.2), around(1.1, 0.0)), 1.1, 0.2),
        (lambda: np.maximum(around(1.0, 0.2), around(1.3, 0.05)), 1.3, 0.05),
        (lambda: np.minimum(around(1.0, 0.2), around(1.1, 0.0)), 1.0, 0.2),
        (lambda: np.minimum(around(1.0, 0.2), around(1.3, 0.05)), 1.0, 0.2),
        (lambda: np.minimum(around(1.3, 0.01), around(1.0, 0.1)), 1.0, 0.1),
    ],
)
def test_errors_of_operands_grow_as_the_operation_lets_them(
    run: Callable[[], Bounded], value: float, error: float
) -> None:
    found = run()
    assert found.value == pytest.approx(value)
    assert found.error == pytest.approx(error, rel=1e-5, abs=1e-30)


def test_infinities_that_are_sure_carry_no_error() -> None:
    with np.errstate(all="ignore"):
        x = Bounded(np.array([-np.inf, 0.5, np.inf]))
        for found in (x + 1.0, 2.0 * x, x - 1.0, np.exp(x), op.sum(x[:2]), np.absolute(x), x / 2.0):
            sure = np.isinf(found.value)
            assert (found.error[sure] < 1e-7).all()  # of the finite terms
            assert np.isfinite(found.error).all()
        logps = op.log_softmax(x[:2])
        np.testing.assert_array_equal(logps.value, [-np.inf, 0.0])
        assert np.isfinite(logps.error).all()


def test_rounding_counts_underflow_but_not_exact_zeros() -> None:
    values = np.array([0.0, 0.0, 1.0, 1e-36, np.inf])
    errors = np.array([0.0, 1e-3, 0.5, 0.0, 0.0])
    expected = [
        0.0,
        2 * UNIT_ROUNDOFF * 1e-3,
        3 * UNIT_ROUNDOFF,
        2 * (UNIT_ROUNDOFF * 1e-36 + SMALLEST),
        0.0,
    ]
    np.testing.assert_allclose(rounding(values, errors, 2), expected, rtol=1e-9)
    np.testing.assert_array_equal(rounding(values, errors, 0), 0)


@pytest.mark.parametrize("sum_of", [lambda x: op.sum(x, 0), lambda x: op.cumulative(x)[-1]])
def test_a_sum_adds_errors_and_a_roundoff_of_the_terms_for_each_addition(sum_of: Any) -> None:
    x = Bounded(
        np.array([[1.0, 1.0], [-2.0, 0.0], [4.0, 0.0]]), np.array([[0.5, 0], [0, 0], [0, 0]])
    )
    found = sum_of(x)
    np.testing.assert_array_equal(found.value, [3.0, 1.0])
    np.testing.assert_allclose(found.error, [0.5 + 2 * UNIT_ROUNDOFF * 7.5, 2 * UNIT_ROUNDOFF])
    alone = sum_of(x[:1])
    np.testing.assert_array_equal(alone.error, [0.5, 0.0])


def test_a_scatter_adds_errors_and_a_roundoff_for_each_term_and_the_base() -> None:
    base = Bounded(np.array([1.0, 0.0]), np.array([0.25, 0.0]))
    terms = Bounded(np.array([2.0, -2.0, 0.5]), np.array([0.0, 0.5, 0.0]))
    found = kernels.scatter_add(base, np.array([0, 0, 1]), terms)
    np.testing.assert_array_equal(found.value, [1.0, 0.5])
    expected = [0.75 + 4 * UNIT_ROUNDOFF * 5.75, 4 * UNIT_ROUNDOFF * 0.5]
    np.testing.assert_allclose(found.error, expected, rtol=1e-9)


def test_moving_computes_nothing() -> None:
    x = Bounded(np.array([[1.0, 2.0]]), np.array([[0.1, 0.2]]))
    for moved in (x[0], x.reshape(2), op.flip(op.flip(x[0])), x[:, ::-1][0, ::-1]):
        assert isinstance(moved, Bounded)
        np.testing.assert_array_equal(moved.value, [1.0, 2.0])
        np.testing.assert_array_equal(moved.error, [0.1, 0.2])
    assert (x.shape, x.ndim) == ((1, 2), 2)
    masked = x * np.array([True, False])
    np.testing.assert_array_equal(masked.error, [[0.1, 0.0]])
    np.testing.assert_array_equal((True * x).error, x.error)
    worst = kernels.largest(op.flip(x, 1)[0])
    assert (worst.value, worst.error) == (2.0, 0.2)
    chosen = op.where(np.array([True, False]), x, 5.0)
    np.testing.assert_array_equal(chosen.error, [[0.1, 0.0]])
    chosen = op.where(np.array([True, False]), 5.0, x)
    np.testing.assert_array_equal(chosen.error, [[0.0, 0.2]])


def test_a_lift_bounds_floats_and_leaves_integers() -> None:
    lifted = Bounded.lift([0.5, 1.0])
    assert isinstance(lifted, Bounded)
    np.testing.assert_array_equal(lifted.error, 0)
    for plain in ([1, 2], [True]):
        assert type(Bounded.lift(plain)) is np.ndarray


def test_sorted_entries_may_have_come_from_anywhere() -> None:
    x = Bounded(np.array([[1.05, 1.0], [0.0, 3.0]]), np.array([[0.0, 0.1], [0.3, 0.0]]))
    found = op.sort(x, 1)
    np.testing.assert_array_equal(found.value, [[1.0, 1.05], [0.0, 3.0]])
    np.testing.assert_array_equal(found.error, [[0.1, 0.1], [0.3, 0.3]])
    np.testing.assert_array_equal(op.sort(x).error, [[0.3, 0.1], [0.3, 0.1]])


def test_bfloat16_moves_by_a_spacing_once_anything_moves() -> None:
    x = Bounded(np.array([1.0, 1.0]), np.array([0.0, 0.5]))
    found = op.as_bfloat16(x)
    np.testing.assert_array_equal(found.value, 1.0)
    np.testing.assert_array_equal(found.error, [0.0, 0.5 + 1.5 / 256])


def test_log_softmax_bounds_the_spelling_that_subtracts_logsumexp() -> None:
    x = np.array([1000.0, 1000.5])
    found = op.log_softmax(Bounded(x))
    narrow = x.astype(np.float32)
    spelled = narrow - np.float32(1000.5 + np.log(1 + np.exp(-0.5)))
    deviation = np.abs(spelled - found.value)
    assert (deviation <= found.error).all()
    assert (found.error < 1000 * deviation.max()).all()
    shifted = Bounded(x) - 1000.5
    plainly = shifted - np.log(op.sum(np.exp(shifted)))
    spelling = rounding(x, 1000.5, 2)  # two roundings of two thousand
    np.testing.assert_allclose(found.error, plainly.error + spelling, rtol=1e-12)


def test_comparisons_look_at_the_values_and_what_has_no_bound_is_refused() -> None:
    x = Bounded(np.array([1.0, 2.0]), np.array([5.0, 5.0]))
    np.testing.assert_array_equal(x > 1.5, [False, True])
    np.testing.assert_array_equal(x >= 2.0, [False, True])
    for refused in (np.sin, np.arctan):
        with pytest.raises(TypeError):
            refused(x)
    with pytest.raises(TypeError):
        np.add.reduce(x)
    with pytest.raises(TypeError):
        np.exp(x, out=np.zeros(2))
