"""Operations on the frameworks' own arrays: as on ours, eager and jitted, with their gradients."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from arithmetic_cases import CASES, Case, draw, value_and_gradients
from parity.arithmetic import operations as op

os.environ |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

ERROR = 1e-5  # float32's roundoff is 6e-8; values are of order 1 and cancel by up to 30
CASES_HERE = [case for case in CASES if case.name != "backwards"]  # no negative strides in torch
# what JAX shows op by op, which is slow
OP_BY_OP = (
    "broadcast both",
    "mean, mask",
    "log_softmax, axis 1",
    "softplus",
    "sort",
)
Operands = Sequence[np.ndarray]
Evaluated = tuple[Any, Sequence[Any]]


def drawn(case: Case) -> tuple[Operands, np.ndarray]:
    operands = draw(case, 11)
    return operands, np.random.default_rng(12).uniform(-2, 2, case.run(*operands).shape)


def in_torch(run: Callable[..., Any], operands: Operands, weights: np.ndarray) -> Evaluated:
    import torch

    nodes = [torch.tensor(x, dtype=torch.float32, requires_grad=True) for x in operands]
    value = run(*nodes)
    (value * torch.tensor(weights, dtype=torch.float32)).sum().backward()
    return value.detach(), [x.grad for x in nodes]


def in_jax(run: Callable[..., Any], operands: Operands, weights: np.ndarray) -> Evaluated:
    import jax

    nodes = [jax.numpy.asarray(x, np.float32) for x in operands]
    value, back = jax.vjp(run, *nodes)
    return value, back(jax.numpy.asarray(weights, np.float32))


EVALUATIONS = {"torch": in_torch, "jax": in_jax}


@cache
def jitted() -> dict[str, Evaluated]:
    """All cases in one program: compiling is what takes time."""
    import jax

    def every(inputs: Any) -> dict[str, Evaluated]:
        return {case.name: in_jax(case.run, *inputs[case.name]) for case in CASES_HERE}

    found: dict[str, Evaluated] = jax.jit(every)({case.name: drawn(case) for case in CASES_HERE})
    return found


PAIRS = [
    *((case, name) for case in CASES_HERE for name in ("torch", "jax jitted")),
    *((case, "jax") for case in CASES_HERE if case.name in OP_BY_OP),
]


@pytest.mark.parametrize(("case", "evaluation"), PAIRS, ids=lambda x: getattr(x, "name", x))
def test_values_and_gradients_are_those_of_the_tape(case: Case, evaluation: str) -> None:
    operands, weights = drawn(case)
    value, gradients = value_and_gradients(case, operands, weights)
    if evaluation == "jax jitted":
        found, derived = jitted()[case.name]
    else:
        found, derived = EVALUATIONS[evaluation](case.run, operands, weights)
    np.testing.assert_allclose(np.asarray(found), value, rtol=ERROR, atol=ERROR)
    for mine, theirs in zip(gradients, derived, strict=True):
        np.testing.assert_allclose(np.asarray(theirs), mine, rtol=ERROR, atol=ERROR)


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_what_is_stopped_rounded_or_picked_in_a_framework(evaluation: str) -> None:
    evaluate = EVALUATIONS[evaluation]
    x = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.7])
    value, (gradient,) = evaluate(lambda x: op.stop_gradient(x) * x, [x], np.ones(3))
    np.testing.assert_allclose(value, x * x, rtol=1e-6)
    np.testing.assert_allclose(gradient, x, rtol=1e-6)
    value, (gradient,) = evaluate(op.as_bfloat16, [x], np.array([1 + 2.0**-8, 1.0, 2.0]))
    np.testing.assert_array_equal(value, op.as_bfloat16(x))
    np.testing.assert_array_equal(gradient, [1.0, 1.0, 2.0])


def test_one_hot_in_frameworks() -> None:
    import jax
    import torch

    index = np.array([2, 0])
    expected = op.one_hot(index, 3)
    np.testing.assert_array_equal(op.one_hot(torch.tensor(index), 3), expected)
    np.testing.assert_array_equal(op.one_hot(jax.numpy.asarray(index), 3), expected)
    jitted = jax.jit(lambda index: op.one_hot(index, 3))
    np.testing.assert_array_equal(jitted(jax.numpy.asarray(index)), expected)
