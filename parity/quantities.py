"""The catalogue of quantities: what every trace must hold, in order of computation."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from parity.problem import Problem

__all__ = [
    "EVALUATED",
    "STEP_AXES",
    "TRAINED",
    "Kind",
    "Moment",
    "Spec",
    "evaluated",
    "expected",
    "moment",
]

Kind = Literal["value", "gradient", "parameter", "history", "probability", "carried state", "count"]
Moment = tuple[int, ...]  # sorts like the computation does

STEP_AXES = ("point", "rollout", "epoch", "update", "checkpoint")
_END = np.iinfo(np.int64).max  # later than any step


class Spec(NamedTuple):
    """One quantity: its name, axes and kind; `integer` for indices of actions."""

    name: str
    axes: tuple[str, ...]
    kind: Kind
    integer: bool = False

    @property
    def objective(self) -> str:
        """The part of the name before the stroke: reward, ppo, dpo or reinforce."""
        return self.name.partition("/")[0]


_UPDATE = ("rollout", "epoch")

TRAINED: tuple[Spec, ...] = (
    Spec("reward/loss", ("update",), "value"),
    Spec("reward/gradient", ("update", "feature"), "gradient"),
    Spec("reward/weights", ("update", "feature"), "parameter"),
    Spec("reward/scores", ("action",), "value"),
    Spec("ppo/reference", (*_UPDATE, "action"), "carried state"),
    Spec("ppo/scores", (*_UPDATE, "action"), "carried state"),
    Spec("ppo/actions", ("rollout", "sample"), "carried state", integer=True),
    Spec("ppo/old_logps", (*_UPDATE, "sample"), "carried state"),
    Spec("ppo/advantages", (*_UPDATE, "sample"), "carried state"),
    Spec("ppo/ratios", (*_UPDATE, "sample"), "value"),
    Spec("ppo/surrogate", _UPDATE, "value"),
    Spec("ppo/kl_penalty", _UPDATE, "value"),
    Spec("ppo/loss", _UPDATE, "value"),
    Spec("ppo/gradient", (*_UPDATE, "action"), "gradient"),
    Spec("ppo/gradient_old_logps", (*_UPDATE, "sample"), "gradient"),
    Spec("ppo/gradient_advantages", (*_UPDATE, "sample"), "gradient"),
    Spec("ppo/gradient_reference", (*_UPDATE, "action"), "gradient"),
    Spec("ppo/logits", (*_UPDATE, "action"), "parameter"),
    Spec("ppo/expected_reward", ("checkpoint",), "history"),
    Spec("ppo/reference_kl", ("checkpoint",), "history"),
    Spec("ppo/probabilities", ("action",), "probability"),
    Spec("dpo/reference", ("update", "action"), "carried state"),
    Spec("dpo/margins", ("update", "pair"), "value"),
    Spec("dpo/loss", ("update",), "value"),
    Spec("dpo/gradient", ("update", "action"), "gradient"),
    Spec("dpo/gradient_reference", ("update", "action"), "gradient"),
    Spec("dpo/logits", ("update", "action"), "parameter"),
    Spec("dpo/final_margins", ("pair",), "value"),
    Spec("dpo/probabilities", ("action",), "probability"),
    Spec("reinforce/reference", ("rollout", "action"), "carried state"),
    Spec("reinforce/scores", ("rollout", "action"), "carried state"),
    Spec("reinforce/actions", ("rollout", "sample"), "carried state", integer=True),
    Spec("reinforce/advantages", ("rollout", "sample"), "carried state"),
    Spec("reinforce/logps", ("rollout", "sample"), "value"),
    Spec("reinforce/surrogate", ("rollout",), "value"),
    Spec("reinforce/kl_penalty", ("rollout",), "value"),
    Spec("reinforce/loss", ("rollout",), "value"),
    Spec("reinforce/gradient", ("rollout", "action"), "gradient"),
    Spec("reinforce/gradient_advantages", ("rollout", "sample"), "gradient"),
    Spec("reinforce/gradient_reference", ("rollout", "action"), "gradient"),
    Spec("reinforce/logits", ("rollout", "action"), "parameter"),
    Spec("reinforce/expected_reward", ("checkpoint",), "history"),
    Spec("reinforce/reference_kl", ("checkpoint",), "history"),
    Spec("reinforce/probabilities", ("action",), "probability"),
)
"""What a run records. `checkpoint` counts the states after each rollout and once before the first;
values and gradients are taken before the update of their step, parameters after it."""

EVALUATED: tuple[Spec, ...] = tuple(
    Spec(spec.name, ("point", *(axis for axis in spec.axes if axis not in STEP_AXES)), spec.kind)
    for spec in TRAINED
    if spec.name
    in {
        "reward/loss",
        "reward/gradient",
        "ppo/ratios",
        "ppo/surrogate",
        "ppo/kl_penalty",
        "ppo/loss",
        "ppo/gradient",
        "ppo/gradient_old_logps",
        "ppo/gradient_advantages",
        "ppo/gradient_reference",
        "dpo/margins",
        "dpo/loss",
        "dpo/gradient",
        "dpo/gradient_reference",
        "reinforce/logps",
        "reinforce/surrogate",
        "reinforce/kl_penalty",
        "reinforce/loss",
        "reinforce/gradient",
        "reinforce/gradient_advantages",
        "reinforce/gradient_reference",
    }
)
"""What the evaluation of fixed points records."""

_ORDER = {spec.name: position for position, spec in enumerate(TRAINED)}
_OBJECTIVES = ("reward", "ppo", "dpo", "reinforce")


def expected(problem: Problem) -> dict[Spec, tuple[int, ...]]:
    """Returns what a run of the problem records: quantity to shape, in order of computation."""
    sizes: dict[str, dict[str, int]] = {}
    if problem.reward:
        sizes["reward"] = {
            "update": problem.reward.updates,
            "feature": len(problem.reward.features[0]),
            "action": len(problem.reward.features),
        }
    if problem.ppo:
        sizes["ppo"] = {
            "rollout": problem.ppo.rollouts,
            "epoch": problem.ppo.epochs,
            "checkpoint": problem.ppo.rollouts + 1,
            "sample": problem.ppo.samples,
            "action": len(problem.ppo.logits),
        }
    if problem.dpo:
        sizes["dpo"] = {
            "update": problem.dpo.updates,
            "pair": len(problem.dpo.preferences),
            "action": len(problem.dpo.logits),
        }
    if problem.reinforce:
        sizes["reinforce"] = {
            "rollout": problem.reinforce.rollouts,
            "checkpoint": problem.reinforce.rollouts + 1,
            "sample": problem.reinforce.samples,
            "action": len(problem.reinforce.logits),
        }
    return {
        spec: tuple(sizes[spec.objective][axis] for axis in spec.axes)
        for spec in TRAINED
        if spec.objective in sizes
    }


def evaluated(objective: str, sizes: Mapping[str, int]) -> dict[Spec, tuple[int, ...]]:
    """Returns what an evaluation of points records: quantity to shape, in order of computation.

    Args:
        objective: reward, ppo, dpo or reinforce.
        sizes: length of every axis of the points.
    """
    return {
        spec: tuple(sizes[axis] for axis in spec.axes)
        for spec in EVALUATED
        if spec.objective == objective
    }


def moment(name: str, axes: tuple[str, ...], index: tuple[int, ...]) -> Moment:
    """Says when an entry is computed, as a tuple that sorts like the computation.

    Step by step first, then by the order of quantities within a step. A quantity that is not in
    the catalogue comes after those that are.
    """
    objective = name.partition("/")[0]
    stage = _OBJECTIVES.index(objective) if objective in _OBJECTIVES else len(_OBJECTIVES)
    position = _ORDER.get(name, len(_ORDER))
    at = dict(zip(axes, index, strict=False))
    if "point" in at:
        step = (at["point"], 0)
    elif "checkpoint" in at:
        step = (at["checkpoint"] - 1, _END)
    elif "rollout" in at:
        step = (at["rollout"], at.get("epoch", 0))
    else:
        step = (at.get("update", _END), 0)
    return (stage, *step, position)
