"""Score-function policy gradient with an exact categorical KL on a one-step bandit."""

import dataclasses
from typing import Any

from numpy.typing import ArrayLike

from parity.arithmetic import operations as op
from parity.objectives import categorical as bandit
from parity.objectives.catalogue import Catalogue
from parity.objectives.categorical import Count, NonNegative, Positive, Seed, Vector
from parity.objectives.conventions import FROZEN, KL, POLICY, REDUCTION, SHAPE, SIGN
from parity.objectives.reinforce_faults import EDITS
from parity.objectives.spec import Objective, State, Training, Value

__all__ = ["OBJECTIVE", "REINFORCE"]


class REINFORCE(bandit.Bandit, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Score-function policy gradient with an exact categorical KL on a one-step bandit.

    Attributes:
        logits: starting policy, one per action.
        reference_logits: reference policy; the starting policy when left out.
        scores: reward of each action.
        rollouts: batches of samples, with one update each.
        samples: samples per rollout.
        rate: step size.
        beta: weight of KL(policy ‖ reference).
        seed: seed of the samples, where they are drawn.
    """

    scores: Vector
    rollouts: Count
    samples: Count
    rate: Positive
    beta: NonNegative
    seed: Seed = 0


def _misfits(table: REINFORCE, _problem: Any) -> bandit.Misfits:
    if len(table.scores) != len(table.logits):
        expectation = f"{len(table.logits)} scores, as many as reinforce.logits"
        yield "reinforce.scores", table.scores, expectation
    yield from bandit.short_reference("reinforce", table)


def _loss(surrogate: Any, kl_penalty: Any, beta: Any, kl: str) -> Any:
    return -surrogate if kl == "absent" else -surrogate + beta * kl_penalty


def _state(
    label: str,
    logits: ArrayLike,
    actions: ArrayLike,
    advantages: ArrayLike,
    *,
    reference: ArrayLike = (-0.4, 0.5, 0.1),
    beta: float = 0.3,
) -> State:
    """`reference` holds logits."""
    return label, {
        "logits": logits,
        "actions": actions,
        "advantages": advantages,
        "reference": bandit.probe_reference(reference),
        "beta": beta,
    }


def _core() -> list[State]:
    """Three actions, four samples: every sign of the advantage, log-probs down to -1000."""
    logits, actions = (0.7, -0.2, 0.1), (0, 1, 2, 0)
    mixed = (1.7, -0.6, 0.4, -2.2)
    thousands = (1700.0, -600.0, 400.0, -2200.0)
    return [
        _state("A > 0", logits, actions, (1.7, 0.6, 2.3, 0.9)),
        _state("A < 0", logits, actions, (-0.6, -1.7, -2.1, -0.3)),
        _state("A = 0", logits, actions, (0.0,) * 4),
        _state("signs mixed", logits, actions, mixed),
        _state("advantages that cancel", logits, (0, 0, 1, 1), (0.9, -0.9, 1.3, -1.3)),
        _state("advantages of a thousand", logits, actions, thousands),
        _state("policy at the reference", logits, actions, mixed, reference=logits),
        _state("KL near 1e-10", logits, actions, mixed, reference=(0.70002, -0.2, 0.1)),
        _state("reference far away", logits, actions, mixed, reference=(-9.0, 3.0, 0.0)),
        _state("peaked policy", (9.0, -3.0, 0.0), actions, mixed),
        _state("log-probability -80", (40.0, 0.0, -40.0), (0, 1, 2, 2), mixed),
        _state("log-probability -1000", (500.0, 0.0, -500.0), (0, 1, 2, 2), mixed),
        _state("every sample the same", logits, (1,) * 4, (0.6,) * 4),
        _state("an action never sampled", logits, (0, 2, 0, 2), mixed),
        _state("beta above 1", logits, actions, mixed, beta=2.5),
        _state("beta zero", logits, actions, mixed, beta=0.0),
    ]


def _far() -> list[State]:
    """What no ordinary run reaches, and where a clamp would show."""
    seven, thousands = bandit.SEVEN, (17000.0, -6000.0)
    return [
        _state("advantages of 10,000", seven, (0, 5), thousands, reference=bandit.NEAR),
        _state("KL above 50", seven, (2, 6), (-0.6, 1.7), reference=bandit.FAR),
    ]


def _branch(sign: str) -> Any:
    return lambda advantages: bandit.SIGNS[sign](advantages, 0)


OBJECTIVE = Objective(
    name="reinforce",
    title="Score-function policy gradient with an exact categorical KL on a one-step bandit",
    equation="L = −mean(log π(a)·A) + β KL(π ‖ π_ref)",
    source='Williams 1992, "Simple statistical gradient-following algorithms for connectionist '
    'reinforcement learning", section 4 (https://doi.org/10.1007/BF00992696); the KL is exact '
    "over the actions",
    rank=40,
    inputs=(
        bandit.LOGITS,
        bandit.actions("sampled actions, drawn by the current policy"),
        bandit.ADVANTAGES,
        bandit.REFERENCE,
        bandit.BETA,
    ),
    values=(
        bandit.POLICY_LOGPS,
        dataclasses.replace(bandit.LOGPS, recorded=True),
        bandit.REFERENCE_LOGPS,
        Value(
            "surrogate",
            (),
            lambda logps, advantages: op.mean(logps * advantages),
            "mean of the terms log π(a)·A",
        ),
        bandit.KL_PENALTY,
        Value("loss", (), _loss),
    ),
    counted="sample",
    choices=(SIGN, REDUCTION, POLICY, SHAPE, KL, FROZEN),
    needs=(
        ("logits", "policy_logps", "logps"),
        ("advantages",),
        ("reference", "reference_logps"),
        ("beta",),
    ),
    branches={sign: _branch(sign) for sign in bandit.SIGNS},
    laws=(bandit.kl_at_probes("reinforce"),),
    behaviour="logps",
    core=_core,
    far=_far,
    faults=Catalogue("reinforce", EDITS),
    training=Training(
        table=REINFORCE,
        loops=("rollout",),
        given=lambda table: {
            "logits": table.logits,
            "reference_logits": table.reference,
            "scores": table.scores,
            "rate": table.rate,
            "beta": table.beta,
        },
        sizes=lambda table: {
            "rollout": table.rollouts,
            "sample": table.samples,
            "action": len(table.logits),
        },
        lesson="policy-gradient-kl-control",
        carried=(bandit.REFERENCE_CARRIED, bandit.SCORES_CARRIED),
        tape="actions",
        collected=(Value("advantages", ("sample",), bandit.advantages, kind="carried state"),),
        measured=bandit.MEASURED,
        ends=(bandit.PROBABILITIES,),
        misfits=_misfits,
        laws=(bandit.at_most_optimal("reinforce"), bandit.centred("reinforce")),
    ),
)
