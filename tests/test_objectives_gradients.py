"""Derived gradients: those of the closed forms, and slopes of the losses in 50 digits."""

import numpy as np
import pytest

from closed_gradients import CLOSED
from exact_arrays import Exact, central_difference
from parity.arithmetic.measure import measure
from parity.lessons import oracle, probes
from parity.objectives import built_in
from parity.objectives.evaluation import Scope, differentiated
from parity.objectives.spec import Objective
from parity.points import Points

SHARE = 1e-6  # of an allowance of float32
STATES = 25
SIZES = {"wide": 3, "long": 4}
ERROR = 1e-12  # u = 1.1e-16 times a few hundred operations, on the largest parts of a slope

by_objective = pytest.mark.parametrize("objective", built_in().values(), ids=lambda each: each.name)


def drawn(objective: Objective) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(2024)
    axes = {axis for each in objective.inputs for axis in each.axes}
    sizes = {axis: SIZES["long" if axis == objective.counted else "wide"] for axis in axes}
    return [
        {
            name: np.asarray(value)
            for name, value in probes.drawn(objective, sizes, random, scale).items()
        }
        for scale in np.resize(probes.SCALES, STATES)
    ]


@by_objective
def test_gradient_is_the_slope_of_the_loss_in_fifty_digits(objective: Objective) -> None:
    """Along a random direction in everything that is differentiated, at random states."""
    random = np.random.default_rng(2025)
    names = objective.named("differentiated")
    for state in drawn(objective):
        found = differentiated(objective, state)
        directions = [random.normal(size=state[name].shape) for name in names]

        def loss(*moved: Exact, state: dict[str, np.ndarray] = state) -> Exact:
            fixed = {n: x if x.dtype.kind == "i" else Exact(x) for n, x in state.items()}
            return Scope(objective, {**fixed, **dict(zip(names, moved, strict=True))})["loss"]

        slope = central_difference(loss, [state[name] for name in names], directions)
        of = {name: found[gradient] for gradient, name in objective.gradients.items()}
        parts = [of[name] * d for name, d in zip(names, directions, strict=True)]
        along = sum(part.sum() for part in parts)
        size = max(1.0, *(np.abs(part).sum() for part in parts))
        assert abs(along - float(slope)) <= ERROR * size
        for name in objective.named("frozen"):
            assert not np.any(of[name])


GRID = [points for points in probes.grid() if points.objective in CLOSED]


@pytest.mark.parametrize("points", GRID, ids=lambda points: f"{points.objective}-{points.grid}")
def test_gradient_is_that_of_the_closed_form_at_every_point(points: Points) -> None:
    objective = built_in()[points.objective]
    shapes = {
        each.name: (len(points.labels), *(points.sizes[axis] for axis in axes))
        for each, axes in objective.at_points.items()
    }
    expected = measure(
        lambda lift: oracle.at_points(points, lift), shapes, "float32", rigorous=False
    )
    name = f"{objective.name}/gradient"
    closed = CLOSED[objective.name]
    for place, label in enumerate(points.labels):
        by_hand = closed(**{n: values[place] for n, values in points.inputs.items()})
        difference = np.abs(expected.values[name][place] - by_hand)
        assert (difference <= SHARE * expected.allowed[name][place]).all(), label


def test_every_trained_objective_has_a_closed_form() -> None:
    assert set(CLOSED) == {name for name, each in built_in().items() if each.training}
