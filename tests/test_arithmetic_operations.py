"""Operations on plain numbers: values and gradients against mpmath, on every axis, in batches."""

import numpy as np
import pytest

from arithmetic_cases import CASES, Case, draw, exact, slope, value_and_gradients

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
