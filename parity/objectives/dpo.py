"""Direct preference optimisation of a categorical policy."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from parity.arithmetic import operations as op
from parity.objectives import categorical as bandit
from parity.objectives.catalogue import Catalogue
from parity.objectives.categorical import Count, Positive
from parity.objectives.conventions import FROZEN, POLICY, REDUCTION, SHAPE, SIGN
from parity.objectives.dpo_faults import EDITS
from parity.objectives.pairs import BRANCHES, Pairs, bad_pairs, losses
from parity.objectives.spec import Input, Objective, State, Training, Value

__all__ = ["DPO", "OBJECTIVE"]


class DPO(bandit.Bandit, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Direct preference optimisation of a categorical policy by gradient descent.

    Attributes:
        logits: starting policy, one per action.
        reference_logits: reference policy; the starting policy when left out.
        preferences: (chosen, rejected) pairs of actions.
        updates: gradient steps.
        rate: step size.
        beta: scale of the reference-corrected margin.
    """

    preferences: Pairs
    updates: Count
    rate: Positive
    beta: Positive


def _misfits(table: DPO, _problem: Any) -> bandit.Misfits:
    yield from bandit.short_reference("dpo", table)
    yield from bad_pairs("dpo.preferences", table.preferences, len(table.logits))


def _given(table: DPO) -> dict[str, Any]:
    chosen, rejected = zip(*table.preferences, strict=True)
    return {
        "logits": table.logits,
        "reference_logits": table.reference,
        "chosen": chosen,
        "rejected": rejected,
        "rate": table.rate,
        "beta": table.beta,
    }


def _margins(
    chosen_logps: Any,
    rejected_logps: Any,
    reference_chosen_logps: Any,
    reference_rejected_logps: Any,
) -> Any:
    corrections = reference_chosen_logps - reference_rejected_logps
    return (chosen_logps - rejected_logps) - corrections


def _state(
    label: str,
    logits: ArrayLike,
    pairs: ArrayLike,
    *,
    reference: ArrayLike = (-0.4, 0.5, 0.1),
    beta: float = 0.3,
) -> State:
    """`reference` holds logits."""
    chosen, rejected = np.asarray(pairs).T
    return label, {
        "logits": logits,
        "reference": bandit.probe_reference(reference),
        "chosen": chosen,
        "rejected": rejected,
        "beta": beta,
    }


def _core() -> list[State]:
    """Three actions, three pairs: margins from -1000 to 1000."""
    pairs = ((0, 1), (0, 2), (1, 2))
    ordinary = (0.7, -0.2, 0.1)
    return [
        _state("ordinary margins", ordinary, pairs),
        _state("policy at the reference", ordinary, pairs, reference=ordinary),
        _state("near the reference", ordinary, pairs, reference=(0.70002, -0.2, 0.1)),
        _state("margins of opposite signs", (-1.5, 0.5, 2.0), pairs, beta=1.5),
        _state("scaled margin near 20", (25.0, 2.0, 0.0), pairs, beta=0.9),
        _state("scaled margin near -20", (-25.0, -2.0, 0.0), pairs, beta=0.9),
        _state("scaled margin near 100", (60.0, -60.0, 0.0), pairs, beta=0.9),
        _state("scaled margin near -100", (-60.0, 60.0, 0.0), pairs, beta=0.9),
        _state("scaled margin near 1000", (500.0, -500.0, 0.0), pairs, beta=1.0),
        _state("scaled margin near -1000", (-500.0, 500.0, 0.0), pairs, beta=1.0),
        _state("one pair three times", ordinary, ((2, 0),) * 3),
        _state("a pair and its opposite", ordinary, ((2, 0), (0, 2), (1, 0))),
        _state("beta above 1", ordinary, pairs, beta=2.5),
    ]


def _far() -> list[State]:
    """What preferences should not hold, and large β."""
    seven, near, far = bandit.SEVEN, bandit.NEAR, bandit.FAR
    return [
        _state("a pair of one action twice", seven, ((2, 2), (0, 5)), reference=bandit.PEAKED),
        _state("only pairs of one action twice", seven, ((2, 2), (5, 5)), reference=near),
        _state("reference far away, both ways", seven, ((0, 1), (1, 0)), reference=far),
        _state("beta of thousands", seven, ((0, 1), (5, 2)), reference=near, beta=3000.0),
    ]


def _side(name: str, of: str, index: str, text: str, padding: float, *also: str) -> Value:
    """Log-probs of one side of the pairs, under the policy or the reference."""
    definition: Any = {
        ("policy_logps", "chosen"): lambda policy_logps, chosen: op.gather(policy_logps, chosen),
        ("policy_logps", "rejected"): lambda policy_logps, rejected: op.gather(
            policy_logps, rejected
        ),
        ("reference", "chosen"): lambda reference, chosen: op.gather(reference, chosen),
        ("reference", "rejected"): lambda reference, rejected: op.gather(reference, rejected),
    }[of, index]
    return Value(
        name,
        ("pair",),
        definition,
        f"log-probs of the {index} actions" + ("" if of == "policy_logps" else ", reference"),
        recorded=False,
        offered=True,
        known_as=also,
        text=text,
        padding=padding,
    )


OBJECTIVE = Objective(
    name="dpo",
    title="Direct preference optimisation of a categorical policy",
    equation="L = mean softplus(−βm), m = (log π(c) − log π(r)) − (log π_ref(c) − log π_ref(r))",
    source='Rafailov et al. 2023, "Direct Preference Optimization", equation 7 '
    "(https://arxiv.org/abs/2305.18290)",
    rank=30,
    inputs=(
        bandit.LOGITS,
        bandit.REFERENCE,
        Input("chosen", ("pair",), "index", "preferred action of each pair", of="action"),
        Input(
            "rejected",
            ("pair",),
            "index",
            "other action of each pair",
            of="action",
            draw=lambda random, shape, chosen, logits: (
                (chosen + random.integers(1, len(logits), size=shape)) % len(logits)
            ),
            padding=1,
        ),
        Input(
            "beta",
            (),
            "constant",
            "scale of the reference-corrected margin",
            known_as=("kl_coef", "kl_coeff", "kl_weight"),
            low=0.0,
            draw=lambda random: random.choice([0.05, 0.3, 1.5]),
        ),
    ),
    values=(
        bandit.POLICY_LOGPS,
        _side(
            "chosen_logps",
            "policy_logps",
            "chosen",
            "log_softmax(logits)[chosen]",
            -0.5,
            "policy_chosen_logps",
            "chosen_log_probs",
        ),
        _side(
            "rejected_logps",
            "policy_logps",
            "rejected",
            "log_softmax(logits)[rejected]",
            -0.9,
            "policy_rejected_logps",
            "rejected_log_probs",
        ),
        _side(
            "reference_chosen_logps",
            "reference",
            "chosen",
            "reference[chosen]",
            -1.3,
            "ref_chosen_logps",
        ),
        _side(
            "reference_rejected_logps",
            "reference",
            "rejected",
            "reference[rejected]",
            -0.2,
            "ref_rejected_logps",
        ),
        Value("margins", ("pair",), _margins, "reference-corrected margins"),
        Value("z", ("pair",), lambda beta, margins: beta * margins, recorded=False),
        Value("losses", ("pair",), losses, recorded=False),
        Value("loss", (), lambda losses: op.mean(losses)),
    ),
    counted="pair",
    choices=(SIGN, REDUCTION, POLICY, SHAPE, FROZEN),
    needs=(("logits", "policy_logps", "chosen_logps"), ("beta",)),
    branches=BRANCHES,
    core=_core,
    far=_far,
    faults=Catalogue("dpo", EDITS),
    training=Training(
        table=DPO,
        loops=("update",),
        given=_given,
        sizes=lambda table: {
            "update": table.updates,
            "pair": len(table.preferences),
            "action": len(table.logits),
        },
        lesson="posttraining-05",
        carried=(bandit.REFERENCE_CARRIED,),
        ends=(
            Value("final_margins", ("pair",), lambda margins: margins, "margins at the end"),
            bandit.PROBABILITIES,
        ),
        misfits=_misfits,
        digested_when_absent=True,
    ),
)
