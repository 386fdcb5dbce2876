"""Bradley-Terry fitting of a linear reward."""

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from parity.arithmetic import operations as op
from parity.objectives.catalogue import Catalogue
from parity.objectives.categorical import Count, Misfits, Positive, Vector
from parity.objectives.conventions import REDUCTION, SHAPE, SIGN
from parity.objectives.pairs import BRANCHES, Pairs, bad_pairs, losses
from parity.objectives.reward_faults import EDITS
from parity.objectives.spec import Input, Objective, State, Training, Value

__all__ = ["OBJECTIVE", "Reward"]


class Reward(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bradley-Terry fitting of a linear reward by gradient descent.

    Attributes:
        features: one row of features per action.
        preferences: (chosen, rejected) pairs of actions.
        updates: gradient steps.
        rate: step size.
        weights: starting weights; zeros when left out.
    """

    features: Annotated[tuple[Vector, ...], Meta(min_length=2)]
    preferences: Pairs
    updates: Count
    rate: Positive
    weights: Vector | None = None

    @property
    def initial_weights(self) -> Vector:
        """Starting weights, one per feature."""
        return (0.0,) * len(self.features[0]) if self.weights is None else self.weights


def _misfits(table: Reward, _problem: Any) -> Misfits:
    width = len(table.features[0])
    for position, row in enumerate(table.features):
        if not row or len(row) != width:
            yield f"reward.features[{position}]", row, f"{max(width, 1)} features, as in row 0"
    if len(table.initial_weights) != width:
        yield "reward.weights", table.weights, f"{width} weights, one per feature"
    yield from bad_pairs("reward.preferences", table.preferences, len(table.features))


def _given(table: Reward) -> dict[str, Any]:
    chosen, rejected = zip(*table.preferences, strict=True)
    return {
        "weights": table.initial_weights,
        "chosen": tuple(table.features[i] for i in chosen),
        "rejected": tuple(table.features[i] for i in rejected),
        "features": table.features,
        "rate": table.rate,
    }


def _state(label: str, weights: ArrayLike, chosen: Any, rejected: Any) -> State:
    return label, {"weights": weights, "chosen": chosen, "rejected": rejected}


def _core() -> list[State]:
    """Two features, three pairs: score differences from -1000 to 1000."""
    chosen = ((1.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    rejected = ((0.0, 1.0), (-1.0, -1.0), (-1.0, -1.0))
    return [
        _state("zero weights", (0.0, 0.0), chosen, rejected),
        _state("ordinary weights", (0.8, -0.3), chosen, rejected),
        _state("weights that contradict", (-0.8, 0.3), chosen, rejected),
        _state("score difference near 20", (20.5, 0.2), chosen, rejected),
        _state("score difference near -20", (-20.5, 0.2), chosen, rejected),
        _state("score difference near 100", (50.0, -52.0), chosen, rejected),
        _state("score difference near -100", (-50.0, 52.0), chosen, rejected),
        _state("score difference near 1000", (500.0, -500.0), chosen, rejected),
        _state("score difference near -1000", (-500.0, 500.0), chosen, rejected),
        _state("one pair three times", (0.8, -0.3), (chosen[0],) * 3, (rejected[0],) * 3),
        _state("equal features", (0.8, -0.3), chosen, (chosen[0], *rejected[1:])),
    ]


def _far() -> list[State]:
    """Features of thousands, with weights that make up for it."""
    random = np.random.default_rng(11)
    weights, (chosen, rejected) = random.normal(size=7) / 4000, random.normal(size=(2, 2, 7)) * 4000
    equal = (rejected[0], chosen[1])
    return [
        _state("features of thousands", weights, chosen, rejected),
        _state("features of thousands, and equal ones", weights, chosen, equal),
    ]


def _scores(side: str, padding: float, *also: str) -> Value:
    definition: Any = {
        "chosen": lambda chosen, weights: op.sum(chosen * weights, axis=1),
        "rejected": lambda rejected, weights: op.sum(rejected * weights, axis=1),
    }[side]
    return Value(
        f"{side}_scores",
        ("pair",),
        definition,
        f"scores of the {side} actions",
        recorded=False,
        offered=True,
        known_as=(f"{side}_rewards", f"{side}_reward", f"{side}_score", *also),
        text=f"{side} @ weights",
        padding=padding,
    )


def _features(name: str, says: str) -> Input:
    def draw(random: Any, shape: tuple[int, ...]) -> Any:
        return random.normal(size=shape)

    return Input(name, ("pair", "feature"), "constant", says, draw=draw)


OBJECTIVE = Objective(
    name="reward",
    title="Bradley-Terry fitting of a linear reward",
    equation="L = mean softplus(−(x_chosen − x_rejected)·w)",
    source='Ouyang et al. 2022, "Training language models to follow instructions with human '
    'feedback", equation 1 (https://arxiv.org/abs/2203.02155)',
    known_as=("preference",),
    rank=10,
    inputs=(
        Input("weights", ("feature",), "differentiated", "weights of the linear reward"),
        _features("chosen", "features of the preferred actions"),
        _features("rejected", "features of the others"),
    ),
    values=(
        _scores("chosen", 0.7),
        _scores("rejected", -0.4, "reject_reward"),
        Value(
            "z",
            ("pair",),
            lambda chosen, rejected, weights: op.sum((chosen - rejected) * weights, axis=1),
            "score differences",
            recorded=False,
        ),
        Value("losses", ("pair",), losses, recorded=False),
        Value("loss", (), lambda losses: op.mean(losses)),
    ),
    counted="pair",
    choices=(SIGN, REDUCTION, SHAPE),
    needs=(("weights", "chosen_scores"), ("chosen", "chosen_scores")),
    branches=BRANCHES,
    core=_core,
    far=_far,
    faults=Catalogue("reward", EDITS),
    training=Training(
        table=Reward,
        loops=("update",),
        given=_given,
        sizes=lambda table: {
            "update": table.updates,
            "feature": len(table.features[0]),
            "action": len(table.features),
            "pair": len(table.preferences),
        },
        lesson="posttraining-04",
        ends=(
            Value(
                "scores",
                ("action",),
                lambda features, weights: op.sum(features * weights, axis=1),
                "reward of each action",
            ),
        ),
        misfits=_misfits,
        digested_when_absent=True,
    ),
)
