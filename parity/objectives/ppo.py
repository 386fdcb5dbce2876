"""Signed, clipped PPO with an exact categorical KL on a one-step bandit."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from parity.arithmetic import operations as op
from parity.objectives import categorical as bandit
from parity.objectives.catalogue import Catalogue
from parity.objectives.categorical import Count, NonNegative, Positive, Seed, probe_reference
from parity.objectives.conventions import FROZEN, KL, POLICY, REDUCTION, SHAPE, SIGN
from parity.objectives.ppo_faults import EDITS
from parity.objectives.spec import Claim, Input, Objective, State, Training, Value

__all__ = ["OBJECTIVE", "PPO"]


class PPO(bandit.Bandit, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Signed PPO with an exact categorical KL on a one-step bandit.

    Attributes:
        logits: starting policy, one per action.
        reference_logits: reference policy; the starting policy when left out.
        rollouts: batches of samples.
        samples: samples per rollout.
        epochs: updates per rollout.
        rate: step size.
        beta: weight of KL(policy ‖ reference).
        clip: half-width ε of the ratio interval [1 − ε, 1 + ε].
        seed: seed of the samples, where they are drawn.
    """

    rollouts: Count
    samples: Count
    epochs: Count
    rate: Positive
    beta: NonNegative
    clip: Positive
    seed: Seed = 0


def _misfits(table: PPO, problem: Any) -> bandit.Misfits:
    if not problem.reward:
        yield "ppo", "no [reward]", "a [reward] table, whose scores PPO optimises"
    elif len(table.logits) != len(problem.reward.features):
        expectation = f"{len(problem.reward.features)} logits, one per row of features"
        yield "ppo.logits", table.logits, expectation
    yield from bandit.short_reference("ppo", table)


def _surrogate(ratios: Any, clipped: Any, advantages: Any) -> Any:
    return op.minimum(ratios * advantages, clipped * advantages)


def _loss(surrogate: Any, kl_penalty: Any, beta: Any, kl: str) -> Any:
    return -surrogate if kl == "absent" else -surrogate + beta * kl_penalty


_PARTS = {  # of the ratio; `far` is beyond twice the half-width
    "far below": lambda ratios, clip: ratios < 1 - 2 * clip,
    "just below": lambda ratios, clip: (ratios >= 1 - 2 * clip) & (ratios < 1 - clip),
    "inside": lambda ratios, clip: (ratios >= 1 - clip) & (ratios <= 1 + clip),
    "just above": lambda ratios, clip: (ratios > 1 + clip) & (ratios <= 1 + 2 * clip),
    "far above": lambda ratios, clip: ratios > 1 + 2 * clip,
}


def _branch(sign: str, part: str) -> Any:
    def branch(ratios: Any, advantages: Any, clip: Any) -> Any:
        return bandit.SIGNS[sign](advantages, 0) & _PARTS[part](ratios, clip)

    return branch


def _state(
    label: str,
    logits: ArrayLike,
    actions: ArrayLike,
    ratios: ArrayLike,
    advantages: ArrayLike,
    *,
    reference: ArrayLike = (-0.4, 0.5, 0.1),
    beta: float = 0.3,
    clip: float = 0.2,
) -> State:
    """A state from the ratios that it is to show; `reference` holds logits."""
    logps = op.log_softmax(np.asarray(logits, np.float32).astype(np.float64))
    return label, {
        "logits": logits,
        "old_logps": logps[np.asarray(actions)] - np.log(np.asarray(ratios, float)),
        "actions": actions,
        "advantages": advantages,
        "reference": probe_reference(reference),
        "beta": beta,
        "clip": clip,
    }


def _core() -> list[State]:
    """Three actions, four samples: every sign of the advantage in every part of the ratio."""
    logits, actions = (0.7, -0.2, 0.1), (0, 1, 2, 0)
    parts = {
        "far below": (0.25, 0.4, 0.1, 0.3),
        "just below": (0.79, 0.75, 0.798, 0.77),
        "inside": (0.95, 1.1, 1.0, 0.85),
        "just above": (1.21, 1.25, 1.203, 1.23),
        "far above": (4.0, 1.9, 7.0, 2.5),
    }
    signs = {"A > 0": (1.7, 0.6, 2.3, 0.9), "A < 0": (-0.6, -1.7, -2.1, -0.3), "A = 0": (0.0,) * 4}
    cells = [
        _state(f"{sign}, ratio {part} the interval", logits, actions, ratios, advantages)
        for sign, advantages in signs.items()
        for part, ratios in parts.items()
    ]
    mixed = (1.7, -0.6, 0.4, -2.2)
    ratios = (1.5, 0.5, 0.9, 1.3)
    return [
        *cells,
        _state("worked example of lesson 04", logits, actions, (1.5, 0.5) * 2, (2.0, -2.0) * 2),
        _state("worked example of the card", logits, actions, (1.4,) * 4, (2.0, -2.0) * 2),
        _state("signs and sides mixed", logits, actions, ratios, mixed),
        _state("policy at the reference", logits, actions, ratios, mixed, reference=logits),
        _state("KL near 1e-10", logits, actions, ratios, mixed, reference=(0.70002, -0.2, 0.1)),
        _state("peaked policy", (9.0, -3.0, 0.0), actions, ratios, mixed),
        _state("log-probability -80", (40.0, 0.0, -40.0), (0, 1, 2, 2), ratios, mixed),
        _state("every sample the same action", logits, (1,) * 4, ratios, mixed),
        _state("an action never sampled", logits, (0, 2, 0, 2), ratios, mixed),
        _state("behaviour far from policy", logits, actions, (30.0, 0.02, 12.0, 0.1), mixed),
        _state("log-ratio of 30 either way", logits, actions, (1e13, 1e-13, 1e13, 1e-13), mixed),
        _state("log-ratio of 30, not clipped", logits, actions, (1e-13, 1e13, 1e-13, 1e13), mixed),
        _state("beta above 1", logits, actions, ratios, mixed, beta=2.5),
        _state("beta zero", logits, actions, ratios, mixed, beta=0.0),
        _state("narrow clip", logits, actions, (1.02, 0.97, 1.004, 0.9), mixed, clip=0.01),
        _state("clip above 1", logits, actions, (3.0, 0.05, 1.9, 0.5), mixed, clip=1.5),
    ]


def _far() -> list[State]:
    """What no ordinary run reaches, and where a clamp would show."""
    seven, peaked = bandit.SEVEN, bandit.PEAKED
    state, inside, outside = partial(_state, reference=seven), (0.9, 1.1), (1.5, 0.5)
    above, below = np.exp([75.0, 75.0]), np.exp([-75.0, -75.0])
    return [
        state("advantages of hundreds", seven, (0, 5), inside, (700.0, -300.0)),
        state("advantages of a thousand, clipped", seven, (3, 1), outside, (1700.0, -2200.0)),
        state("advantages of ten thousand", seven, (4, 4), outside, (-17000.0, 6000.0)),
        state("KL above 50", seven, (2, 6), outside, (-0.6, 1.7), reference=bandit.FAR),
        state("log-ratio of 75, clipped", seven, (0, 5), above, (1.7, 0.6)),
        state("log-ratio of 75, not clipped", seven, (0, 5), above, (-0.6, -1.7)),
        state("log-ratio of -75, clipped", peaked, (2, 2), below, (-0.6, -1.7)),
        state("log-ratio of -75, not clipped", peaked, (2, 2), below, (1.7, 0.6), beta=0.0),
    ]


def _old_policy(old_logps: Any, expected: Any, actions: Any, logits: Any, allowed: Any) -> Any:
    """Old log-probs are those of the policy that starts the rollout, and of one distribution."""
    old, limit = old_logps[:, 0], allowed("old_logps")[:, 0]
    name = "ppo/old_logps those of the policy that starts the rollout"
    yield Claim(name, old, expected("old_logps")[:, 0], limit)
    probabilities = np.zeros((len(actions), logits.shape[-1]))
    margins = np.zeros_like(probabilities)
    np.put_along_axis(probabilities, actions, np.exp(old), axis=1)
    np.put_along_axis(margins, actions, np.exp(old) * limit, axis=1)
    total = probabilities.sum(-1)  # 1 if all actions were sampled, else at most 1
    required = np.where((probabilities > 0).all(-1), 1.0, np.minimum(total, 1.0))
    yield Claim("ppo/old_logps normalised", total, required, margins.sum(-1))


def _first_ratios(ratios: Any) -> Iterator[Claim]:
    name = "ppo/ratios exactly 1 at the first epoch"
    yield Claim(name, ratios[:, 0], np.ones_like(ratios[:, 0]))


def _mean_of_terms(
    surrogate: Any, ratios: Any, advantages: Any, clip: Any, allowed: Any
) -> Iterator[Claim]:
    terms = _surrogate(ratios, op.clip(ratios, 1 - clip, 1 + clip), advantages)
    name = "ppo/surrogate the mean of the per-sample terms"
    yield Claim(name, surrogate, terms.mean(-1), allowed("surrogate"))


OBJECTIVE = Objective(
    name="ppo",
    title="Signed, clipped PPO with an exact categorical KL on a one-step bandit",
    equation="L = −mean(min(ρA, clip(ρ, 1 − ε, 1 + ε)·A)) + β KL(π ‖ π_ref), ρ = π(a)/π_old(a)",
    source='Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7 '
    "(https://arxiv.org/abs/1707.06347); the KL is exact over the actions",
    rank=20,
    inputs=(
        bandit.LOGITS,
        Input(
            "old_logps",
            ("sample",),
            "frozen",
            "log-probs of the samples under the behaviour policy, in nats",
            known_as=(
                "old_log_probs",
                "old_log_prob",
                "old_logprobs",
                "old_logprob",
                "old_logp",
            ),
            draw=lambda random, shape, logps: logps - 0.3 * random.normal(size=shape),
            padding=-0.9,
        ),
        bandit.actions(),
        bandit.ADVANTAGES,
        bandit.REFERENCE,
        bandit.BETA,
        Input(
            "clip",
            (),
            "constant",
            "half-width ε of the ratio interval",
            known_as=("eps", "epsilon", "clip_eps", "clip_epsilon", "cliprange", "clip_range"),
            low=float(np.finfo(np.float64).tiny),
            draw=lambda: 0.2,
        ),
    ),
    values=(
        bandit.POLICY_LOGPS,
        bandit.LOGPS,
        bandit.REFERENCE_LOGPS,
        Value(
            "ratios",
            ("sample",),
            lambda logps, old_logps: op.exp(logps - old_logps),
            "ρ of each sample",
        ),
        Value(
            "clipped",
            ("sample",),
            lambda ratios, clip: op.clip(ratios, 1 - clip, 1 + clip),
            recorded=False,
        ),
        Value("terms", ("sample",), _surrogate, recorded=False),
        Value("surrogate", (), lambda terms: op.mean(terms), "mean of the clipped terms"),
        bandit.KL_PENALTY,
        Value("loss", (), _loss),
    ),
    counted="sample",
    choices=(SIGN, REDUCTION, POLICY, SHAPE, KL, FROZEN),
    needs=(
        ("logits", "policy_logps", "logps"),
        ("old_logps",),
        ("advantages",),
        ("clip",),
        ("reference", "reference_logps"),
        ("beta",),
    ),
    branches={
        f"{sign}, ratio {part}": _branch(sign, part) for sign in bandit.SIGNS for part in _PARTS
    },
    kinks=lambda ratios, clip: np.minimum(np.abs(ratios - (1 - clip)), np.abs(ratios - (1 + clip))),
    laws=(bandit.kl_at_probes("ppo"),),
    behaviour="old_logps",
    core=_core,
    far=_far,
    faults=Catalogue("ppo", EDITS),
    training=Training(
        table=PPO,
        loops=("rollout", "epoch"),
        given=lambda table: {
            "logits": table.logits,
            "reference_logits": table.reference,
            "rate": table.rate,
            "beta": table.beta,
            "clip": table.clip,
        },
        sizes=lambda table: {
            "rollout": table.rollouts,
            "epoch": table.epochs,
            "sample": table.samples,
            "action": len(table.logits),
        },
        lesson="posttraining-04",
        takes={"scores": "reward/scores"},
        carried=(bandit.REFERENCE_CARRIED, bandit.SCORES_CARRIED),
        tape="actions",
        collected=(
            Value(
                "old_logps",
                ("sample",),
                lambda policy_logps, actions: op.gather(policy_logps, actions),
                kind="carried state",
            ),
            Value("advantages", ("sample",), bandit.advantages, kind="carried state"),
        ),
        measured=bandit.MEASURED,
        ends=(bandit.PROBABILITIES,),
        misfits=_misfits,
        laws=(
            bandit.at_most_optimal("ppo"),
            _old_policy,
            _first_ratios,
            bandit.centred("ppo"),
            _mean_of_terms,
        ),
        digested_when_absent=True,
    ),
)
