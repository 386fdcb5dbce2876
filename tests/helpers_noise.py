"""Allowances and bounds of points."""

import numpy as np

from parity.arithmetic.measure import Expected
from parity.arithmetic.measure import measure as measured
from parity.arithmetic.rounded import Luck
from parity.lessons.oracle import at_points
from parity.points import Points
from parity.quantities import evaluated

OBJECTIVES = ("reward", "ppo", "dpo", "reinforce")


def measure(points: Points, dtype: str = "float32", luck: Luck | None = None) -> Expected:
    return measured(
        lambda lift: at_points(points, lift),
        {spec.name: shape for spec, shape in evaluated(points.objective, points.sizes).items()},
        dtype,
        rigorous=True,
        luck=luck,
    )


def in_order(terms: np.ndarray) -> np.ndarray:
    return terms.cumsum(-1, dtype=np.float32)[..., -1]


def single_log_softmax(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    largest = logits.max()
    shifted = logits - largest
    log_sum = np.log(in_order(np.exp(shifted)))
    return shifted - log_sum, largest + log_sum
