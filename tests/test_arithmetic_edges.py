"""Where derivatives jump, values overflow, or entries are masked out."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.arithmetic import operations as op
from parity.arithmetic.bounded import Bounded
from parity.arithmetic.entries import exactly
from parity.arithmetic.rounded import Luck
from parity.arithmetic.tape import Taped, as_frameworks_do, fit, gradients

KEPT = np.array([True, False, True])
LIFTS: dict[str, Callable[[Any], Any]] = {
    "plain": np.asarray,
    "replicas": lambda x: Luck().lift(x),
    "bounds": Bounded.lift,
}
by_lift = pytest.mark.parametrize("lift", LIFTS.values(), ids=LIFTS)


def swept(run: Callable[..., Any], *operands: Any) -> list[Any]:
    """Value and gradients of the sum, as plain arrays, one replica of many."""
    nodes = [Taped(x) for x in operands]
    out = run(*nodes)
    found = [exactly(x) for x in (out.value, *gradients(out, nodes))]
    return [x[..., 0] if x.shape[-1:] == (64,) else x for x in found]


def mask_for(x: Any) -> np.ndarray:
    return KEPT.reshape(3, *(1,) * (x.ndim - 1))


MASKED: dict[str, tuple[Callable[..., Any], list[float], float]] = {
    "sum": (lambda x: op.sum(x, mask=mask_for(x)), [1.0, np.nan, 2.0], 3.0),
    "mean": (lambda x: op.mean(x, mask=mask_for(x)), [1.0, np.inf, 2.0], 1.5),
    "exp": (lambda x: op.sum(op.exp(x), mask=mask_for(x)), [0.0, np.inf, 0.0], 2.0),
    "log": (lambda x: op.sum(op.log(x), mask=mask_for(x)), [1.0, 0.0, 1.0], 0.0),
    "log of less": (lambda x: op.sum(op.log(x), mask=mask_for(x)), [1.0, -1.0, 1.0], 0.0),
    "log1p": (lambda x: op.sum(op.log1p(x), mask=mask_for(x)), [0.0, -1.0, 0.0], 0.0),
    "sqrt": (lambda x: op.sum(op.sqrt(x), mask=mask_for(x)), [1.0, 0.0, 4.0], 3.0),
    "divide": (lambda x: op.sum(2.0 / x, mask=mask_for(x)), [1.0, 0.0, 2.0], 3.0),
    "ratio": (lambda x: op.sum(x / x, mask=mask_for(x)), [1.0, 0.0, 2.0], 2.0),
    "product": (lambda x: op.sum(x * x * x, mask=mask_for(x)), [1.0, np.inf, 2.0], 9.0),
    "softplus": (
        lambda x: op.sum(op.softplus(x) * 0.0 + x, mask=mask_for(x)),
        [1.0, np.inf, 2.0],
        3.0,
    ),
    "sigmoid": (lambda x: op.sum(op.sigmoid(x) * x, mask=mask_for(x)), [0.0, np.nan, 0.0], 0.0),
    "tanh": (lambda x: op.sum(op.tanh(x), mask=mask_for(x)), [0.0, np.nan, 0.0], 0.0),
    "where": (lambda x: op.sum(op.where(mask_for(x), op.exp(x * 1000), 0.0)), [0.0, 1.0, 0.0], 2.0),
    "logsumexp": (
        lambda x: op.sum(op.logsumexp(x[:, None], 1), mask=mask_for(x)),
        [0.0, np.inf, 0.0],
        0.0,
    ),
    "log_softmax": (
        lambda x: op.sum(op.log_softmax(x[:, None] * x[:, None], 1)[:, 0] + x, mask=mask_for(x)),
        [1.0, np.nan, 2.0],
        3.0,
    ),
    "logaddexp": (
        lambda x: op.sum(op.logaddexp(x, x), mask=mask_for(x)),
        [-np.log(2), np.inf, -np.log(2)],
        0.0,
    ),
    "minimum": (lambda x: op.sum(op.minimum(x, 5.0), mask=mask_for(x)), [1.0, np.nan, 2.0], 3.0),
}


@by_lift
@pytest.mark.parametrize("name", MASKED)
def test_what_is_masked_out_leaves_no_trace(name: str, lift: Callable[[Any], Any]) -> None:
    run, x, expected = MASKED[name]
    with np.errstate(all="ignore"):
        value, gradient = swept(run, lift(np.array(x)))
        clean = [1.0 if not kept else entry for kept, entry in zip(KEPT, x, strict=True)]
        same, beside = swept(run, lift(np.array(clean)))
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert value == pytest.approx(same, rel=1e-6, abs=1e-6)
    assert gradient[1] == 0
    np.testing.assert_allclose(gradient, beside, rtol=1e-5, atol=1e-6)


@by_lift
def test_bounds_and_replicas_of_what_is_masked_out_stay_finite(
    lift: Callable[[Any], Any],
) -> None:
    with np.errstate(all="ignore"):
        x = Taped(lift(np.array([0.5, np.inf, 0.25])))
        out = op.mean(op.exp(x) / x, mask=mask_for(x))
        (gradient,) = gradients(out, [x])
    for found in (out.value, gradient):
        assert np.isfinite(exactly(found)).all()
        assert np.isfinite(getattr(found, "error", 0.0)).all()


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "divide", "product"])
def test_as_frameworks_do_nothing_is_forgiven(name: str) -> None:
    run, x, _ = MASKED[name]
    with np.errstate(all="ignore"), as_frameworks_do():
        _, gradient = swept(run, np.array(x))
    assert np.isnan(gradient[1])
    assert np.isfinite(gradient[[0, 2]]).all()
    with np.errstate(all="ignore"):
        assert swept(run, np.array(x))[1][1] == 0  # only within the block


def test_a_gradient_that_is_not_masked_is_infinite_or_nan() -> None:
    with np.errstate(all="ignore"):
        assert swept(op.sqrt, np.array([0.0]))[1] == np.inf
        assert swept(op.log, np.array([0.0]))[1] == np.inf
        assert np.isnan(swept(lambda x: op.exp(x) * 0.0 + x * np.nan, np.array([1.0]))[1])
        assert swept(lambda x: 1.0 / x, np.array([0.0]))[1] == -np.inf


@by_lift
def test_at_a_tie_the_first_gets_all_of_the_gradient(lift: Callable[[Any], Any]) -> None:
    a, b = lift(np.array([1.0, 2.0, 3.0])), lift(np.array([1.0, 3.0, 2.0]))
    for run, values, first in (
        (op.minimum, [1, 2, 2], [1, 1, 0]),
        (op.maximum, [1, 3, 3], [1, 0, 1]),
    ):
        value, of_a, of_b = swept(run, a, b)
        np.testing.assert_array_equal(value, values)
        np.testing.assert_array_equal(of_a, first)
        np.testing.assert_array_equal(of_b, np.subtract(1, first))
    _, both = swept(lambda x: op.minimum(x, x), a)
    np.testing.assert_allclose(both, 1, rtol=1e-7)
    _, second = swept(lambda x: op.maximum(3.0, x), a)
    np.testing.assert_array_equal(second, 0)


@by_lift
def test_clip_passes_the_gradient_inside_and_on_its_edges(lift: Callable[[Any], Any]) -> None:
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    value, gradient = swept(lambda x: op.clip(x, -1.0, 1.0), lift(x))
    np.testing.assert_array_equal(value, [-1, -1, 0, 1, 1])
    np.testing.assert_array_equal(gradient, [0, 1, 1, 1, 0])
    edges = [lift(np.array([-1.0])), lift(np.array([1.0]))]
    value, gradient, low, high = swept(op.clip, lift(x), *edges)
    np.testing.assert_array_equal(gradient, [0, 1, 1, 1, 0])
    np.testing.assert_array_equal([low, high], 0)
    assert not isinstance(op.clip(x, Taped(np.array([-1.0])), 1.0), Taped)
    np.testing.assert_array_equal(op.clip(x, -1.0, 1.0), [-1, -1, 0, 1, 1])


@by_lift
def test_the_derivative_of_abs_is_the_sign(lift: Callable[[Any], Any]) -> None:
    value, gradient = swept(op.abs, lift(np.array([-2.0, 0.0, 0.5])))
    np.testing.assert_array_equal(value, [2, 0, 0.5])
    np.testing.assert_array_equal(gradient, [-1, 0, 1])


@by_lift
def test_sorting_keeps_ties_in_order_and_sends_gradients_back(lift: Callable[[Any], Any]) -> None:
    x = np.array([2.0, 1.0, 2.0, 0.0, 1.0])
    weights = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    value, gradient = swept(lambda x: op.sort(x) * lift(weights), lift(x))
    np.testing.assert_allclose(value, np.sort(x) * weights, rtol=1e-7)
    np.testing.assert_allclose(gradient, [4, 2, 5, 1, 3], rtol=1e-6)
    ties = np.repeat([[1.0], [0.0]], 100, axis=1).ravel(order="F")  # 1, 0, 1, 0, …
    ranks = np.arange(200.0)
    _, gradient = swept(lambda x: op.sort(x) * lift(ranks), lift(ties))
    np.testing.assert_allclose(gradient[1::2], ranks[:100], rtol=1e-6)
    np.testing.assert_allclose(gradient[::2], ranks[100:], rtol=1e-6)


@by_lift
def test_far_out_nothing_overflows(lift: Callable[[Any], Any]) -> None:
    x = np.array([-1000.0, -20.0, 20.0, 1000.0])
    for run, values, slopes in (
        (op.softplus, [0, np.exp(-20), 20, 1000], [0, np.exp(-20), 1, 1]),
        (op.log_sigmoid, [-1000, -20, -np.exp(-20), 0], [1, 1, np.exp(-20), 0]),
        (op.sigmoid, [0, np.exp(-20), 1, 1], [0, np.exp(-20), np.exp(-20), 0]),
        (lambda x: op.logaddexp(x, x), x + np.log(2), np.ones(4)),
        (lambda x: op.logaddexp(x, -x), np.abs(x), np.sign(x)),
        (lambda x: op.logsumexp(x[None]), x, np.ones(4)),
        (op.tanh, np.sign(x), np.zeros(4)),
    ):
        value, gradient = swept(run, lift(x))
        np.testing.assert_allclose(value, values, rtol=3e-6, atol=1e-8)
        np.testing.assert_allclose(gradient, slopes, rtol=2e-4, atol=2e-7)


def test_sigmoid_and_its_likes_are_as_exact_as_real_ones() -> None:
    """A program has no trouble with 1 / (1 + exp(-x)) far out: neither may its allowance."""
    x = np.array([-80.0, -5.0, 5.0, 80.0])
    replicas = op.sigmoid(Luck().lift(x)).value
    exact = op.sigmoid(x)[:, None]
    assert (np.abs(replicas / exact - 1) < 3e-7).all()
    np.testing.assert_array_equal(op.sigmoid(np.array([-np.inf, np.inf])), [0.0, 1.0])


@pytest.mark.parametrize("lift", [*LIFTS.values()][:2], ids=[*LIFTS][:2])
def test_gathering_an_entry_several_times_adds_up(lift: Callable[[Any], Any]) -> None:
    index = np.array([1, 1, 0, 1])
    _, gradient = swept(lambda x: op.gather(x, index), lift(np.array([1.0, 2.0, 3.0])))
    np.testing.assert_array_equal(gradient, [1, 3, 0])
    common = Taped(lift(np.array([[1.0], [2.0]])))  # one for a batch of three
    places = np.array([[0, 1, 1], [0, 0, 1]])
    if lift is not np.asarray:
        places = places[..., None]
    out = op.gather(common, places) + op.sum(common)[None]
    (gradient,) = gradients(out, [common])
    assert gradient.shape == common.shape
    found = exactly(gradient).reshape(2, -1)[:, 0]
    np.testing.assert_allclose(found, [3 + 6, 3 + 6], rtol=1e-6)


def test_gathered_bounds_of_a_batch_go_back_to_what_is_common() -> None:
    common = Taped(Bounded(np.array([[1.0], [2.0]])))
    out = op.gather(common, np.array([[0, 1, 1], [0, 0, 1]])) * Bounded(np.array([1.0, 2.0, 4.0]))
    (gradient,) = gradients(out, [common])
    np.testing.assert_array_equal(gradient.value, [[1 + 1 + 2], [2 + 4 + 4]])
    assert (gradient.error > 0).all()


def test_no_gradient_passes_a_stop() -> None:
    x = np.array([1.0, 2.0])
    _, gradient = swept(lambda x: op.stop_gradient(x * x) * x, x)
    np.testing.assert_array_equal(gradient, x * x)
    assert op.stop_gradient(x) is x
    assert op.stop_gradient(2.5) == 2.5


def test_one_hot_marks_the_column_of_an_index() -> None:
    index = np.array([2, 0])
    np.testing.assert_array_equal(op.one_hot(index, 3), [[0, 0, 1], [1, 0, 0]])
    batch = np.array([[2, 1], [0, 0]])
    hot = op.one_hot(batch, 3)
    assert hot.shape == (2, 3, 2)
    for column in range(2):
        np.testing.assert_array_equal(hot[..., column], op.one_hot(batch[:, column], 3))
    lucky = Luck().lift(np.array([1.0, 2.0, 3.0]))
    chosen = op.sum(op.one_hot(Luck().lift(index), 3) * lucky[None], 1)
    np.testing.assert_array_equal(exactly(chosen)[:, 5], [3.0, 1.0])


@settings(derandomize=True, deadline=None, database=None)  # as conftest has it
@given(st.floats(width=32))
def test_bfloat16_is_the_nearest_as_in_the_frameworks(x: float) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
        for dtype in (np.float32, np.float64):
            found = op.as_bfloat16(np.array([x], dtype))
            assert found.dtype == dtype
            np.testing.assert_array_equal(found[0], expected)


def test_every_nan_stays_one_in_bfloat16() -> None:
    nans = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000], np.uint32).view(np.float32)
    assert np.isnan(op.as_bfloat16(nans)).all()


def test_gradients_have_the_dtype_of_the_values() -> None:
    x = Taped(np.array([1.0, 2.0], np.float32))
    for out in (x[1:], op.sum(x), op.mean(x[None]), op.sort(x), op.where(KEPT[:2], x, x)):
        assert gradients(out, [x])[0].dtype == np.float32


def test_bfloat16_rounds_ties_to_even_and_gradients_too() -> None:
    x = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 3.4e38])
    value, gradient = swept(lambda x: op.as_bfloat16(x) * x, x)
    expected = np.array([1.0, 1 + 2.0**-6, 1 + 2.0**-7, np.inf])
    np.testing.assert_array_equal(value, expected * x)
    np.testing.assert_allclose(gradient[:3], (expected + op.as_bfloat16(x))[:3])
    lucky = op.as_bfloat16(Luck().lift(x))
    np.testing.assert_array_equal(lucky.value[..., 3], expected)


@by_lift
def test_a_mask_of_numbers_is_a_mask(lift: Callable[[Any], Any]) -> None:
    x, mask = lift(np.array([1.0, np.nan, 2.0])), lift(np.array([1.0, 0.0, 1.0]))
    for given_mask in (mask, Taped(mask)):
        value, gradient = swept(lambda x: op.mean(x, mask=given_mask), x)  # noqa: B023
        assert value == pytest.approx(1.5)
        np.testing.assert_allclose(gradient, [0.5, 0, 0.5])


@pytest.mark.parametrize(
    ("shape", "like"),
    [
        ((4, 3), (4, 3)),
        ((4, 3), (1, 3)),
        ((4, 3), (4, 1)),
        ((4, 3), (1, 1)),
        ((4, 3), (3,)),
        ((2, 4, 3), (1, 3)),
    ],
)
def test_fit_sums_what_was_stretched(shape: tuple[int, ...], like: tuple[int, ...]) -> None:
    g = np.arange(float(np.prod(shape))).reshape(shape)
    found = fit(g, np.zeros(like))
    assert found.shape == like
    expected = g.reshape(-1, *shape[-len(like) :]).sum(0)
    for axis, length in enumerate(like):
        expected = expected.sum(axis, keepdims=True) if length == 1 else expected
    np.testing.assert_array_equal(found, expected)


def test_the_tape_knows_one_power_and_compares_values() -> None:
    x = Taped(np.array([1.0, 2.0]))
    with pytest.raises(TypeError, match="power: got 3; expected 2"):
        x**3
    for found, expected in (
        (x < 1.5, [True, False]),
        (x < 2.0, [True, False]),
        (x <= 2.0, [True, True]),
        (x >= 1.0, [True, True]),
        (x <= 1.0, [True, False]),
        (x > 1.0, [False, True]),
        (x >= 2.0, [False, True]),
        (np.float64(1.5) > x, [True, False]),
        (x >= Taped(np.array([1.0, 3.0])), [True, False]),
        (Taped(Bounded(np.array([1.0, 2.0]))) > 1.5, [False, True]),
    ):
        np.testing.assert_array_equal(found, expected)
    assert (x.shape, x.ndim) == ((2,), 1)
    assert repr(type(np.ones(2) * x)).endswith("Taped'>")


def test_several_uses_add_up_and_none_gives_zeros() -> None:
    x, unused = Taped(np.array([3.0])), Taped(np.array([[1.0], [2.0]]))
    y = x * x
    out = y * x + y + 2.0 * x
    found, nothing = gradients(out, [x, unused])
    np.testing.assert_array_equal(found, [3 * 9 + 2 * 3 + 2])
    np.testing.assert_array_equal(nothing, np.zeros((2, 1)))
    (itself,) = gradients(out, [out])
    np.testing.assert_array_equal(itself, [1.0])
