"""Operations on plain numbers: values and gradients against mpmath, on every axis, in batches."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from arithmetic_cases import CASES, Case, draw, exact, slope, value_and_gradients
from exact_arrays import CONTEXT, Exact, central_difference
from parity.arithmetic import operations as op
from parity.arithmetic.tape import Taped, as_frameworks_do, gradients

ERROR = 2e-14  # u = 1.1e-16 times a hundred operations on values of order 1, or 30 of the largest
SEEDS = (1, 2, 3)

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))


def weights_of(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-2, 2, shape)


@by_name
def test_value_is_what_the_operation_means(case: Case) -> None:
    for seed in SEEDS:
        operands = draw(case, seed)
        expected = exact(case, operands).astype(float)
        found = case.run(*operands)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=ERROR, atol=1e-16)


@by_name
def test_gradient_is_the_slope_of_what_the_operation_means(case: Case) -> None:
    random = np.random.default_rng(7)
    for seed in SEEDS:
        operands = draw(case, seed)
        weights = weights_of(exact(case, operands).shape)
        directions = [random.normal(size=x.shape) for x in operands]
        value, found = value_and_gradients(case, operands, weights)
        np.testing.assert_array_equal(value, case.run(*operands))
        assert [g.shape for g in found] == [x.shape for x in operands]
        along = sum((g * d).sum() for g, d in zip(found, directions, strict=True))
        size = sum(np.abs(g * d).sum() for g, d in zip(found, directions, strict=True))
        assert abs(along - slope(case, operands, directions, weights)) <= ERROR * size


@by_name
@pytest.mark.parametrize("batch", [(1,), (5,), (2, 3)])
def test_every_entry_of_a_batch_is_as_if_alone(case: Case, batch: tuple[int, ...]) -> None:
    operands = draw(case, 4, batch)
    first = case.run(*(x[..., *(0,) * len(batch)] for x in operands))
    weights = weights_of((*first.shape, *batch))
    value, found = value_and_gradients(case, operands, weights)
    for place in np.ndindex(batch):
        alone = [x[..., *place] for x in operands]
        one, single = value_and_gradients(case, alone, weights[..., *place])
        np.testing.assert_allclose(value[..., *place], one, rtol=ERROR)
        for whole, part in zip(found, single, strict=True):
            np.testing.assert_allclose(whole[..., *place], part, rtol=ERROR, atol=ERROR)


@by_name
def test_arrays_of_a_framework_take_the_same_operations(case: Case) -> None:
    """Those of `exact_arrays`, whose functions are none of NumPy's and know 50 digits."""
    operands = draw(case, 5)
    expected = exact(case, operands)
    found = case.run(*map(Exact, operands))
    assert found.shape == expected.shape
    assert np.all(abs(found.moved - expected) < CONTEXT.mpf(10) ** -45)
    weights = weights_of(expected.shape)
    random = np.random.default_rng(8)
    directions = [random.normal(size=x.shape) for x in operands]
    along = central_difference(
        lambda *moved: total(case.run(*moved) * weights), operands, directions
    )
    assert abs(along - slope(case, operands, directions, weights)) <= 1e-14 * (1 + abs(along))


def total(x: Exact) -> Exact:
    return x.both(lambda array: array.sum())


@pytest.mark.parametrize("run", [op.logaddexp, op.minimum, op.maximum])
def test_a_number_may_stand_beside_an_array_of_a_framework(run: Any) -> None:
    x = np.array([-1.0, 0.5, 2.0])
    for found in (run(Exact(x), 0.75), run(0.75, Exact(x))):
        np.testing.assert_allclose(found.moved.astype(float), run(x, 0.75), rtol=1e-15)
    clipped = op.clip(Exact(x), -0.5, 0.75).moved.astype(float)
    np.testing.assert_array_equal(clipped, [-0.5, 0.5, 0.75])
    chosen = op.where(np.array([True, False, True]), 7.0, Exact(x)).moved.astype(float)
    np.testing.assert_array_equal(chosen, [7.0, 0.5, 7.0])


def test_what_is_stopped_goes_back_to_its_start() -> None:
    x = np.array([2.0])
    slope_of = central_difference(lambda x: op.stop_gradient(x * x) * x, [x], [np.ones(1)])
    assert slope_of == pytest.approx(4.0, abs=1e-15)


def test_arrays_that_cannot_detach_themselves_are_those_of_jax(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jax = SimpleNamespace(
        nn=SimpleNamespace(sigmoid=lambda x: ("sigmoid", x)),
        lax=SimpleNamespace(stop_gradient=lambda x: ("stopped", x)),
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    array: Any = SimpleNamespace()
    assert op.sigmoid(array) == ("sigmoid", array)
    assert op.stop_gradient(array) == ("stopped", array)


def test_sigmoid_cancels_as_frameworks_do_and_else_not() -> None:
    x = Taped(np.array([40.0, -40.0, 1.0]))
    (gradient,) = gradients(op.sigmoid(x), [x])
    expected = np.array([np.exp(-40), np.exp(-40), 0.1966119332414818525])  # σ(1) σ(-1)
    np.testing.assert_allclose(gradient, expected, rtol=1e-14)
    with as_frameworks_do():
        (gradient,) = gradients(op.sigmoid(x), [x])
    np.testing.assert_allclose(gradient, [0.0, *expected[1:]], rtol=1e-14)
