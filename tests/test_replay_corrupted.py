"""Step mode sees what was corrupted, exactly where it is used."""

from dataclasses import replace

import numpy as np
import pytest

from helpers_replay import EXACT, GENERAL, GENERAL_ACTIONS, SCORED, exact_trace, steps
from parity.problem import Problem
from parity.quantities import of_runs
from parity.trace import Trace

TIME_AXES = ("rollout", "epoch", "update", "checkpoint")


@pytest.fixture(scope="module")
def general() -> Trace:
    return exact_trace(GENERAL, GENERAL_ACTIONS)


@pytest.fixture(scope="module")
def scored() -> Trace:
    return exact_trace(SCORED, GENERAL_ACTIONS)


Place = tuple[int, ...]
Found = dict[str, set[Place]]


def changed(corrupted: str, at: Place, problem: Problem, trace: Trace) -> Found:
    """Which entries of time step mode derives anew after one recorded step is corrupted."""
    values = trace[corrupted].copy()
    if values.dtype.kind == "i":
        values[at] = (values[at] + 1) % 4
    else:  # no two entries by the same amount: softmax is blind to that
        step = values[at]
        values[at] = step * 1.001 + 1e-4 * np.arange(1, step.size + 1).reshape(step.shape)
    quantities = dict(trace.quantities)
    quantities[corrupted] = replace(quantities[corrupted], values=values)
    before = steps(problem, GENERAL_ACTIONS, trace)
    after = steps(problem, GENERAL_ACTIONS, replace(trace, quantities=quantities))
    found: Found = {}
    for name, quantity in trace.quantities.items():
        times = sum(axis in TIME_AXES for axis in quantity.axes)
        differs = np.abs(after[name] - before[name]) > EXACT
        places = differs.any(axis=tuple(range(times, differs.ndim))) if times else differs.any()
        if places.any():
            found[name] = {tuple(place) for place in np.argwhere(places).tolist()}
    return found


# What each recorded quantity is used for, from the formulas: corrupted (quantity, step), then the
# derived entries that must change, and no others.
DEPENDENTS: list[tuple[str, Place, Found]] = [
    ("reward/loss", (1,), {}),
    ("reward/gradient", (1,), {"reward/weights": {(1,)}}),
    (
        "reward/weights",
        (1,),
        {"reward/loss": {(2,)}, "reward/gradient": {(2,)}, "reward/weights": {(2,)}},
    ),
    ("reward/weights", (3,), {"reward/scores": {()}}),
    ("reward/scores", (), {"ppo/scores": {(0, 0)}}),
    (
        "ppo/reference",
        (1, 1),
        {"ppo/kl_penalty": {(1, 1)}, "ppo/gradient": {(1, 1)}, "ppo/reference": {(1, 2)}},
    ),
    (
        "ppo/reference",
        (1, 2),
        {
            "ppo/kl_penalty": {(1, 2)},
            "ppo/gradient": {(1, 2)},
            "ppo/reference": {(2, 0)},
            "ppo/reference_kl": {(2,)},
        },
    ),
    (
        "ppo/reference",
        (0, 0),
        {
            "ppo/kl_penalty": {(0, 0)},
            "ppo/gradient": {(0, 0)},
            "ppo/reference": {(0, 1)},
            "ppo/reference_kl": {(0,)},
        },
    ),
    ("ppo/scores", (1, 0), {"ppo/advantages": {(1, 0)}, "ppo/scores": {(1, 1)}}),
    ("ppo/scores", (1, 1), {"ppo/scores": {(1, 2)}}),
    ("ppo/scores", (1, 2), {"ppo/scores": {(2, 0)}, "ppo/expected_reward": {(2,)}}),
    ("ppo/actions", (1,), {}),
    (
        "ppo/old_logps",
        (1, 1),
        {"ppo/ratios": {(1, 1)}, "ppo/gradient": {(1, 1)}, "ppo/old_logps": {(1, 2)}},
    ),
    ("ppo/old_logps", (1, 2), {"ppo/ratios": {(1, 2)}, "ppo/gradient": {(1, 2)}}),
    (
        "ppo/advantages",
        (1, 1),
        {"ppo/surrogate": {(1, 1)}, "ppo/gradient": {(1, 1)}, "ppo/advantages": {(1, 2)}},
    ),
    ("ppo/advantages", (1, 2), {"ppo/surrogate": {(1, 2)}, "ppo/gradient": {(1, 2)}}),
    ("ppo/ratios", (1, 1), {"ppo/surrogate": {(1, 1)}}),
    ("ppo/surrogate", (1, 1), {"ppo/loss": {(1, 1)}}),
    ("ppo/kl_penalty", (1, 1), {"ppo/loss": {(1, 1)}}),
    ("ppo/loss", (1, 1), {}),
    ("ppo/gradient", (1, 1), {"ppo/logits": {(1, 1)}}),
    ("ppo/gradient_old_logps", (1, 1), {}),
    ("ppo/gradient_advantages", (1, 1), {}),
    ("ppo/gradient_reference", (1, 1), {}),
    (
        "ppo/logits",
        (1, 1),
        {
            "ppo/ratios": {(1, 2)},
            "ppo/kl_penalty": {(1, 2)},
            "ppo/gradient": {(1, 2)},
            "ppo/logits": {(1, 2)},
        },
    ),
    (
        "ppo/logits",
        (1, 2),
        {
            "ppo/old_logps": {(2, 0)},
            "ppo/advantages": {(2, 0)},
            "ppo/ratios": {(2, 0)},
            "ppo/kl_penalty": {(2, 0)},
            "ppo/gradient": {(2, 0)},
            "ppo/logits": {(2, 0)},
            "ppo/expected_reward": {(2,)},
            "ppo/reference_kl": {(2,)},
        },
    ),
    (
        "ppo/logits",
        (3, 2),
        {
            "ppo/expected_reward": {(4,)},
            "ppo/reference_kl": {(4,)},
            "ppo/probabilities": {()},
        },
    ),
    ("ppo/expected_reward", (1,), {}),
    ("ppo/reference_kl", (1,), {}),
    ("ppo/probabilities", (), {}),
    (
        "dpo/reference",
        (2,),
        {"dpo/margins": {(2,)}, "dpo/gradient": {(2,)}, "dpo/reference": {(3,)}},
    ),
    (
        "dpo/reference",
        (4,),
        {"dpo/margins": {(4,)}, "dpo/gradient": {(4,)}, "dpo/final_margins": {()}},
    ),
    ("dpo/margins", (2,), {"dpo/loss": {(2,)}}),
    ("dpo/loss", (2,), {}),
    ("dpo/gradient", (2,), {"dpo/logits": {(2,)}}),
    ("dpo/gradient_reference", (2,), {}),
    (
        "dpo/logits",
        (2,),
        {"dpo/margins": {(3,)}, "dpo/gradient": {(3,)}, "dpo/logits": {(3,)}},
    ),
    ("dpo/logits", (4,), {"dpo/final_margins": {()}, "dpo/probabilities": {()}}),
    ("dpo/final_margins", (), {}),
    ("dpo/probabilities", (), {}),
    (
        "reinforce/reference",
        (1,),
        {
            "reinforce/kl_penalty": {(1,)},
            "reinforce/gradient": {(1,)},
            "reinforce/reference": {(2,)},
            "reinforce/reference_kl": {(2,)},
        },
    ),
    (
        "reinforce/scores",
        (1,),
        {
            "reinforce/advantages": {(1,)},
            "reinforce/scores": {(2,)},
            "reinforce/expected_reward": {(2,)},
        },
    ),
    ("reinforce/actions", (1,), {}),
    (
        "reinforce/advantages",
        (1,),
        {"reinforce/surrogate": {(1,)}, "reinforce/gradient": {(1,)}},
    ),
    ("reinforce/logps", (1,), {"reinforce/surrogate": {(1,)}}),
    ("reinforce/surrogate", (1,), {"reinforce/loss": {(1,)}}),
    ("reinforce/kl_penalty", (1,), {"reinforce/loss": {(1,)}}),
    ("reinforce/loss", (1,), {}),
    ("reinforce/gradient", (1,), {"reinforce/logits": {(1,)}}),
    ("reinforce/gradient_advantages", (1,), {}),
    ("reinforce/gradient_reference", (1,), {}),
    (
        "reinforce/logits",
        (1,),
        {
            "reinforce/advantages": {(2,)},
            "reinforce/logps": {(2,)},
            "reinforce/kl_penalty": {(2,)},
            "reinforce/gradient": {(2,)},
            "reinforce/logits": {(2,)},
            "reinforce/expected_reward": {(2,)},
            "reinforce/reference_kl": {(2,)},
        },
    ),
    (
        "reinforce/logits",
        (3,),
        {
            "reinforce/expected_reward": {(4,)},
            "reinforce/reference_kl": {(4,)},
            "reinforce/probabilities": {()},
        },
    ),
    ("reinforce/expected_reward", (1,), {}),
    ("reinforce/reference_kl", (1,), {}),
    ("reinforce/probabilities", (), {}),
]


@pytest.mark.parametrize(("corrupted", "at", "dependents"), DEPENDENTS)
def test_corruption_reaches_exactly_what_depends_on_it(
    general: Trace, scored: Trace, corrupted: str, at: Place, dependents: Found
) -> None:
    problem, trace = (SCORED, scored) if corrupted in scored else (GENERAL, general)
    assert changed(corrupted, at, problem, trace) == dependents


def test_every_quantity_of_the_catalogue_is_corrupted() -> None:
    assert {name for name, _, _ in DEPENDENTS} == {spec.name for spec in of_runs()}
