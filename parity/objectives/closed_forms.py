"""The tables of `parity mechanics` in closed form, from the objectives' definitions.

Each form takes the numbers of the catalogue, and the oracle's own replay of the honest runs that
it needs, and yields groups of rows with their values: the same lines run again in float32's
arithmetics to measure how far rounding may move each row.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from parity.arithmetic import operations as op
from parity.arithmetic.measure import Emission
from parity.objectives import categorical as bandit
from parity.objectives import dpo, ppo, reinforce
from parity.objectives.evaluation import Scope, called, differentiated

__all__ = ["FORMS", "Replayed"]

Replayed = dict[tuple[str, tuple[Any, ...]], Any]
"""(quantity, where) to value, in order of computation."""

PPO, DPO, REINFORCE = ppo.OBJECTIVE, dpo.OBJECTIVE, reinforce.OBJECTIVE


def _last(run: Replayed, name: str) -> Any:
    return next(value for (quantity, _), value in reversed(run.items()) if quantity == name)


def _all(run: Replayed, name: str) -> list[Any]:
    return [value for (quantity, _), value in run.items() if quantity == name]


def _rows(where: Any = (), **values: Any) -> Emission:
    return Emission(where, 0, values)


def _each(name: str, values: Any) -> Iterator[Emission]:
    for row, value in enumerate(values):
        yield _rows((row,), **{name: value})


def _measured(logits: Any, scores: Any, reference: Any) -> tuple[Any, Any]:
    """Expected score, and KL to the reference, of a policy."""
    names = {"policy_logps": op.log_softmax(logits), "scores": scores, "reference": reference}
    reward, kl = (called(value.of, names) for value in bandit.MEASURED)
    return reward, kl


def _kl(logits: Any, reference: Any) -> Any:
    return _measured(logits, reference, reference)[1]


def _cells(
    logits: Any, old_logps: Any, actions: Any, advantages: Any, clip: Any
) -> Iterator[tuple[int, Any, Any]]:
    """Each sample alone: number, surrogate term, and the step's push on its logit."""
    reference = op.log_softmax(logits)
    for i, action in enumerate(np.ravel(actions)):
        one = slice(i, i + 1)
        cell = differentiated(
            PPO,
            {
                "logits": logits,
                "old_logps": old_logps[one],
                "actions": actions[one],
                "advantages": advantages[one],
                "reference": reference,
                "beta": clip * 0.0,
                "clip": clip,
            },
        )
        yield i, cell["surrogate"], -cell["gradient"][action]


def _clipping(
    logits: Any, old: Any, actions: Any, advantages: Any, clip: Any
) -> Iterator[Emission]:
    for i, term, push in _cells(logits, np.log(old), actions, advantages, clip):
        yield _rows((i,), terms=term, pushes=push)


def _signed_min(
    logits: Any, old: Any, actions: Any, advantages: Any, clip: Any
) -> Iterator[Emission]:
    for i, _, push in _cells(logits, np.log(old), actions, advantages, clip):
        yield _rows((3 * i,), pushes=push)
    policy = op.gather(np.exp(op.log_softmax(logits)), actions)
    ratios = policy / old
    low, high = 1 - clip, 1 + clip
    moved = ratios * advantages * (1 - policy)
    yield _rows((slice(1, None, 3),), pushes=moved * ((low <= ratios) & (ratios <= high)))
    yield _rows((slice(2, None, 3),), pushes=moved * (ratios <= high))


def _baseline(logits: Any, scores: Any, constants: Any) -> Iterator[Emission]:
    policy = np.exp(op.log_softmax(logits))
    expected = op.sum(policy * scores)
    yield _rows(exact=policy * (scores - expected))
    yield _rows((0,), expected=expected)
    actions = np.arange(scores.shape[0]).reshape(-1, *(1,) * (policy.ndim - 1))
    for i, constant in enumerate([*(constants[n] for n in range(constants.shape[0])), expected]):
        weights = policy * (scores - constant)
        estimate = weights - policy * op.sum(weights)
        yield _rows((slice(3 * i, 3 * i + 3),), estimates=estimate)
        spread = 0.0
        for action in range(scores.shape[0]):  # one sample's step: A (e_a - π)
            advantage = scores[action] - constant
            step = advantage * (actions == action) - advantage * policy
            spread = spread + policy[action] * op.sum((step - estimate) * (step - estimate))
        yield _rows((i,), spreads=spread)


def _detached(
    logits: Any,
    old: Any,
    actions: Any,
    advantages: Any,
    reference_logits: Any,
    beta: Any,
    clip: Any,
) -> Iterator[Emission]:
    """A leak of the old log-probs is ρA/N where the term is active; of A: minus the ratio kept."""
    given = {
        "logits": logits,
        "old_logps": np.log(old),
        "actions": actions,
        "advantages": advantages,
        "reference": op.log_softmax(reference_logits),
        "beta": beta,
        "clip": clip,
    }
    result = differentiated(PPO, given)
    yield _rows(policy=result["gradient"])
    yield from _each("frozen", [0.0, 0.0, 0.0])
    ratios = result["ratios"]
    held = op.clip(ratios, 1 - clip, 1 + clip)
    unclipped = np.asarray(ratios * advantages <= held * advantages)
    samples = actions.shape[0]
    yield _rows(
        old=ratios * advantages * unclipped / samples,
        advantages=-(ratios * unclipped + held * ~unclipped) / samples,
    )


def _lifetimes(run: Replayed) -> Iterator[Emission]:
    updates = [where for name, where in run if name == "ppo/logits"]
    rollouts = len({rollout for rollout, _ in updates})
    inside, between = len(updates) - rollouts, rollouts - 1
    for name, changes in (
        ("logits", (inside, between)),
        ("old_logps", (0, between)),
        ("advantages", (0, between)),
        ("reference", (0, 0)),
        ("scores", (0, 0)),
    ):
        yield from _each(name, changes)


def _recomputed_old(clip: Any, run: Replayed) -> Iterator[Emission]:
    ratios = _all(run, "ppo/ratios")
    smallest, largest, outside = op.sort(ratios[0])[0], op.sort(ratios[0])[-1], 0
    for row in ratios:
        ordered = op.sort(row)
        smallest, largest = np.minimum(smallest, ordered[0]), np.maximum(largest, ordered[-1])
        outside = outside + np.asarray((row < 1 - clip) | (row > 1 + clip)).sum(0)
    yield from _each("ratios", [smallest, largest])
    yield from _each("outside", [outside])
    yield from _each("planted_ratios", [1.0, 1.0])
    yield from _each("planted_outside", [0])


def _reference_kl(logits: Any, near: Any, far: Any, run: Replayed) -> Iterator[Emission]:
    near, far = np.log(near), np.log(far)
    yield from _each("at_reference", [_kl(logits, op.log_softmax(logits))])
    yield from _each("pair", [_kl(near, far), _kl(far, near)])
    reference, trained = _last(run, "ppo/reference"), _last(run, "ppo/logits")
    back = _kl(reference, op.log_softmax(trained))
    yield from _each("trained", [_last(run, "ppo/reference_kl"), back])


def _optimum(beta: Any, run: Replayed) -> Iterator[Emission]:
    reference, scores = _last(run, "ppo/reference"), _last(run, "ppo/scores")
    best = bandit.optimum(reference, scores, beta)
    measured = [
        _measured(policy, scores, reference)
        for policy in (reference, _last(run, "ppo/logits"), best)
    ]
    yield from _each("objectives", [reward - beta * kl for reward, kl in measured])
    yield _rows(trained=_last(run, "ppo/probabilities"), optimum=np.exp(best))


def _beta(run: Replayed, other: Replayed) -> Iterator[Emission]:
    runs = (run, other)
    yield from _each("rewards", [_last(r, "ppo/expected_reward") for r in runs])
    yield from _each("kls", [_last(r, "ppo/reference_kl") for r in runs])
    yield from _each("favourite", [_last(r, "ppo/probabilities")[0] for r in runs])


def _proxy_gap(task: Any, rollouts: Any, run: Replayed) -> Iterator[Emission]:
    epochs = max(where[1] for name, where in run if name == "ppo/logits")
    states = [int(rollout) for rollout in np.ravel(rollouts)]
    policies = [run["ppo/reference", (0, 0)]]
    policies += [run["ppo/logits", (rollout - 1, epochs)] for rollout in states]
    yield from _each("learned", [run["ppo/expected_reward", (at,)] for at in [0, *states]])
    yield from _each("task", [_measured(policy, task, policy)[0] for policy in policies])


def _dpo_margin(
    logits: Any, chosen: Any, rejected: Any, beta: Any, run: Replayed
) -> Iterator[Emission]:
    reference = _last(run, "dpo/reference")

    def scope(policy: Any, of: slice = slice(None)) -> Scope:
        given = {"logits": policy, "reference": reference, "beta": beta}
        return Scope(DPO, {**given, "chosen": chosen[of], "rejected": rejected[of]})

    start = scope(logits)
    yield _rows(
        uncorrected=start["chosen_logps"] - start["rejected_logps"],
        corrected=start["margins"],
        margins=_last(run, "dpo/final_margins"),
    )
    losses = _all(run, "dpo/loss")
    yield from _each("loss", [losses[0], losses[-1]])
    policies = [scope(policy, slice(-1, None)) for policy in (logits, _last(run, "dpo/logits"))]
    yield from _each("pair", [policy["loss"] for policy in policies])
    yield from _each("chosen", [np.exp(policy["chosen_logps"])[0] for policy in policies])


def _reinforce(
    logits: Any, reference_logits: Any, scores: Any, actions: Any, beta: Any, run: Replayed
) -> Iterator[Emission]:
    reference = op.log_softmax(reference_logits)
    advantages = bandit.advantages(op.log_softmax(logits), scores, actions)
    step = differentiated(
        REINFORCE,
        {
            "logits": logits,
            "actions": actions,
            "advantages": advantages,
            "reference": reference,
            "beta": beta,
        },
    )
    yield _rows(advantages=advantages, gradient=step["gradient"])
    for name, quantity in (("rewards", "expected_reward"), ("kls", "reference_kl")):
        measured = _all(run, f"reinforce/{quantity}")
        yield from _each(name, [measured[0], measured[-1]])
    best = np.exp(bandit.optimum(reference, scores, beta))
    trained = _last(run, "reinforce/probabilities")
    yield from _each("favourite", [trained[0], best[0]])


def _kinks(logits: Any, actions: Any, advantages: Any, clip: Any, **_: Any) -> Iterator[Emission]:
    old_logps = op.gather(op.log_softmax(logits), actions)
    for i, _term, push in _cells(logits, old_logps, actions, advantages, clip):
        yield _rows((i,), inside=push)


def _softplus(margins: Any, beyond: Any) -> Iterator[Emission]:
    losses = op.softplus(-margins)
    yield _rows(stable=losses)
    yield _rows((0,), naive=losses[-1])
    tail = op.softplus(beyond) - beyond
    yield _rows((0,), builtin=tail, ours=tail)


def _float32_edge(
    logits: Any, log_ratios: Any, actions: Any, advantages: Any, clip: Any, tiny: Any
) -> Iterator[Emission]:
    old_logps = op.gather(op.log_softmax(logits), actions) - log_ratios
    for i, term, push in _cells(logits, old_logps, actions, advantages, clip):
        yield _rows((i,), terms=term)
        yield _rows((0,), **{("held", "lost")[i]: push})
    yield _rows((0,), flushed=np.exp(tiny))


FORMS: dict[str, Callable[..., Iterator[Emission]]] = {
    "clipping": _clipping,
    "signed-min": _signed_min,
    "baseline": _baseline,
    "detached": _detached,
    "lifetimes": _lifetimes,
    "recomputed-old": _recomputed_old,
    "reference-kl": _reference_kl,
    "optimum": _optimum,
    "beta": _beta,
    "proxy-gap": _proxy_gap,
    "dpo-margin": _dpo_margin,
    "reinforce": _reinforce,
    "kinks": _kinks,
    "softplus": _softplus,
    "float32-edge": _float32_edge,
}
"""Name of a mechanic to its table in closed form."""
