"""The catalogue: what a run records, in what shape, and when each entry is computed."""

import numpy as np
import pytest

from parity.objectives import built_in
from parity.objectives.dpo import DPO
from parity.objectives.ppo import PPO
from parity.objectives.reinforce import REINFORCE
from parity.objectives.reward import Reward
from parity.problem import Problem
from parity.quantities import evaluated, expected, moment, of_runs

# Sizes that are all different, so that no two axes can be confused.
WHOLE = Problem(
    name="whole",
    reward=Reward(features=((0.0,) * 3,) * 4, preferences=((0, 1),) * 5, updates=6, rate=1.0),
    ppo=PPO(logits=(0.0,) * 4, rollouts=7, samples=8, epochs=9, rate=1.0, beta=1.0, clip=0.5),
    dpo=DPO(logits=(0.0,) * 11, preferences=((0, 1),) * 12, updates=13, rate=1.0, beta=1.0),
)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("reward/loss", (6,)),
        ("reward/weights", (6, 3)),
        ("reward/scores", (4,)),
        ("ppo/actions", (7, 8)),
        ("ppo/ratios", (7, 9, 8)),
        ("ppo/loss", (7, 9)),
        ("ppo/gradient", (7, 9, 4)),
        ("ppo/expected_reward", (8,)),  # after each of 7 rollouts, and once before the first
        ("ppo/probabilities", (4,)),
        ("dpo/margins", (13, 12)),
        ("dpo/logits", (13, 11)),
        ("dpo/final_margins", (12,)),
    ],
)
def test_shapes_follow_the_problem(name: str, shape: tuple[int, ...]) -> None:
    assert {spec.name: shape for spec, shape in expected(WHOLE).items()}[name] == shape


def test_parts_that_are_left_out_record_nothing() -> None:
    assert {spec.objective for spec in expected(WHOLE)} == {"reward", "ppo", "dpo"}
    scored = Problem(
        name="scored",
        reinforce=REINFORCE(
            logits=(0.0,) * 2, scores=(0.0,) * 2, rollouts=3, samples=4, rate=1.0, beta=0.0
        ),
    )
    shapes = {spec.name: shape for spec, shape in expected(scored).items()}
    assert {name.partition("/")[0] for name in shapes} == {"reinforce"}
    assert shapes["reinforce/logps"] == (3, 4)
    assert shapes["reinforce/reference_kl"] == (4,)


def test_names_are_unique_and_axes_known() -> None:
    names = [spec.name for spec in of_runs()]
    assert len(set(names)) == len(names)
    axes = {axis for spec in of_runs() for axis in spec.axes}
    steps = {"rollout", "epoch", "update", "checkpoint"}
    assert axes == steps | {"action", "sample", "feature", "pair"}
    for spec in [spec for objective in built_in().values() for spec in objective.at_points]:
        assert spec.axes[0] == "point"
        assert not set(spec.axes) & steps


def test_points_record_losses_gradients_and_their_parts() -> None:
    shapes = evaluated("ppo", {"point": 2, "action": 3, "sample": 5})
    assert {spec.name: shape for spec, shape in shapes.items()} == {
        "ppo/ratios": (2, 5),
        "ppo/surrogate": (2,),
        "ppo/kl_penalty": (2,),
        "ppo/loss": (2,),
        "ppo/gradient": (2, 3),
        "ppo/gradient_old_logps": (2, 5),
        "ppo/gradient_advantages": (2, 5),
        "ppo/gradient_reference": (2, 3),
    }


# Entries in the order in which a run computes them, written down by hand from the lesson.
COMPUTED = [
    ("reward/loss", ("update",), (0,)),
    ("reward/gradient", ("update", "feature"), (0, 1)),
    ("reward/weights", ("update", "feature"), (0, 1)),
    ("reward/loss", ("update",), (1,)),
    ("reward/scores", ("action",), (2,)),
    ("ppo/expected_reward", ("checkpoint",), (0,)),
    ("ppo/actions", ("rollout", "sample"), (0, 7)),
    ("ppo/old_logps", ("rollout", "epoch", "sample"), (0, 0, 7)),
    ("ppo/ratios", ("rollout", "epoch", "sample"), (0, 0, 7)),
    ("ppo/surrogate", ("rollout", "epoch"), (0, 0)),
    ("ppo/loss", ("rollout", "epoch"), (0, 0)),
    ("ppo/gradient", ("rollout", "epoch", "action"), (0, 0, 2)),
    ("ppo/logits", ("rollout", "epoch", "action"), (0, 0, 2)),
    ("ppo/ratios", ("rollout", "epoch", "sample"), (0, 1, 0)),
    ("ppo/logits", ("rollout", "epoch", "action"), (0, 8, 0)),
    ("ppo/expected_reward", ("checkpoint",), (1,)),
    ("ppo/reference_kl", ("checkpoint",), (1,)),
    ("ppo/actions", ("rollout", "sample"), (1, 0)),
    ("ppo/logits", ("rollout", "epoch", "action"), (1, 0, 0)),
    ("ppo/reference_kl", ("checkpoint",), (2,)),
    ("ppo/probabilities", ("action",), (0,)),
    ("dpo/margins", ("update", "pair"), (0, 3)),
    ("dpo/loss", ("update",), (0,)),
    ("dpo/logits", ("update", "action"), (0, 0)),
    ("dpo/margins", ("update", "pair"), (1, 0)),
    ("dpo/final_margins", ("pair",), (0,)),
    ("dpo/probabilities", ("action",), (0,)),
    ("reinforce/logps", ("rollout", "sample"), (0, 0)),
    ("other/quantity", ("update",), (0,)),
]


def test_moments_sort_as_the_computation_runs() -> None:
    order = np.random.default_rng(7).permutation(len(COMPUTED))
    shuffled = [COMPUTED[position] for position in order]
    assert shuffled != COMPUTED
    assert sorted(shuffled, key=lambda entry: moment(*entry)) == COMPUTED


def test_moments_of_points_sort_by_point_and_then_by_quantity() -> None:
    entries = [
        ("ppo/loss", ("point",), (0,)),
        ("ppo/gradient", ("point", "action"), (0, 4)),
        ("ppo/ratios", ("point", "sample"), (1, 0)),
        ("ppo/loss", ("point",), (1,)),
    ]
    shuffled = [entries[position] for position in (2, 0, 3, 1)]
    assert sorted(shuffled, key=lambda entry: moment(*entry)) == entries
