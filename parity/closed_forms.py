"""The tables of `parity mechanics` in closed form, from the oracle.

Each form takes the numbers of the catalogue, and the oracle's own replay of the honest runs that
it needs, and yields (where, {group of rows: value}), as the oracle's modes in `replay.py` do:
`noise.py` runs the same lines again in float32's arithmetics to measure how far rounding may move
each row.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from parity import oracle
from parity.replay import Emission

__all__ = ["FORMS", "Replayed"]

Replayed = dict[tuple[str, tuple[Any, ...]], Any]
"""(quantity, where) to value, in order of computation."""


def _last(run: Replayed, name: str) -> Any:
    return next(value for (quantity, _), value in reversed(run.items()) if quantity == name)


def _all(run: Replayed, name: str) -> list[Any]:
    return [value for (quantity, _), value in run.items() if quantity == name]


def _each(name: str, values: Any) -> Iterator[Emission]:
    for row, value in enumerate(values):
        yield (row,), {name: value}


def _push(gradient: Any, action: Any) -> Any:
    return -gradient[..., action]


def _cells(
    logits: Any, old_logps: Any, actions: Any, advantages: Any, clip: Any
) -> Iterator[tuple[int, Any, Any]]:
    """Each sample alone: number, surrogate term, and the step's push on its logit."""
    reference = oracle.log_softmax(logits)
    for i, action in enumerate(actions):
        one = slice(i, i + 1)
        cell = oracle.ppo(
            logits,
            old_logps[..., one],
            actions[one],
            advantages[..., one],
            reference,
            clip * 0.0,
            clip,
        )
        yield i, cell.surrogate, _push(cell.gradient, action)


def _clipping(
    logits: Any, old: Any, actions: Any, advantages: Any, clip: Any
) -> Iterator[Emission]:
    for i, term, push in _cells(logits, np.log(old), actions, advantages, clip):
        yield (i,), {"terms": term, "pushes": push}


def _signed_min(
    logits: Any, old: Any, actions: Any, advantages: Any, clip: Any
) -> Iterator[Emission]:
    for i, _, push in _cells(logits, np.log(old), actions, advantages, clip):
        yield (3 * i,), {"pushes": push}
    policy = np.exp(oracle.log_softmax(logits))[..., actions]
    ratios = policy / old
    low, high = (1 - clip)[..., None], (1 + clip)[..., None]
    moved = ratios * advantages * (1 - policy)
    yield (slice(1, None, 3),), {"pushes": moved * ((low <= ratios) & (ratios <= high))}
    yield (slice(2, None, 3),), {"pushes": moved * (ratios <= high)}


def _baseline(logits: Any, scores: Any, constants: Any) -> Iterator[Emission]:
    policy = np.exp(oracle.log_softmax(logits))
    expected = (policy * scores).sum(-1)
    exact = policy * (scores - expected[..., None])
    yield (), {"exact": exact}
    yield (0,), {"expected": expected}
    actions = range(scores.shape[-1])
    for i, constant in enumerate([*np.moveaxis(constants, -1, 0), expected]):
        weights = policy * (scores - constant[..., None])
        estimate = weights - policy * weights.sum(-1)[..., None]
        yield (slice(3 * i, 3 * i + 3),), {"estimates": estimate}
        spread = 0.0
        for action in actions:  # one sample's step: A (e_a - π)
            advantage = (scores[..., action] - constant)[..., None]
            step = advantage * (np.arange(len(actions)) == action) - advantage * policy
            spread = spread + policy[..., action] * ((step - estimate) * (step - estimate)).sum(-1)
        yield (i,), {"spreads": spread}


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
    old_logps, reference = np.log(old), oracle.log_softmax(reference_logits)
    result = oracle.ppo(logits, old_logps, actions, advantages, reference, beta, clip)
    yield (), {"policy": result.gradient}
    yield from _each("frozen", [0.0, 0.0, 0.0])
    ratios = result.ratios
    held = np.minimum(np.maximum(ratios, (1 - clip)[..., None]), (1 + clip)[..., None])
    unclipped = ratios * advantages <= held * advantages
    samples = len(actions)
    yield (
        (),
        {
            "old": ratios * advantages * unclipped / samples,
            "advantages": -(ratios * unclipped + held * ~unclipped) / samples,
        },
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
    smallest, largest, outside = ratios[0].min(-1), ratios[0].max(-1), 0
    low, high = (1 - clip)[..., None], (1 + clip)[..., None]
    for row in ratios:
        smallest = np.minimum(smallest, row.min(-1))
        largest = np.maximum(largest, row.max(-1))
        outside = outside + np.asarray((row < low) | (row > high)).sum(-1)
    yield from _each("ratios", [smallest, largest])
    yield from _each("outside", [outside])
    yield from _each("planted_ratios", [1.0, 1.0])
    yield from _each("planted_outside", [0])


def _reference_kl(logits: Any, near: Any, far: Any, run: Replayed) -> Iterator[Emission]:
    near, far = np.log(near), np.log(far)
    yield from _each("at_reference", [oracle.kl(logits, oracle.log_softmax(logits))])
    yield from _each("pair", [oracle.kl(near, far), oracle.kl(far, near)])
    reference, trained = _last(run, "ppo/reference"), _last(run, "ppo/logits")
    back = oracle.kl(reference, oracle.log_softmax(trained))
    yield from _each("trained", [_last(run, "ppo/reference_kl"), back])


def _optimum(beta: Any, run: Replayed) -> Iterator[Emission]:
    reference, scores = _last(run, "ppo/reference"), _last(run, "ppo/scores")
    best = oracle.optimum(reference, scores, beta)
    policies = (reference, _last(run, "ppo/logits"), best)
    objectives = [
        oracle.expected_score(policy, scores) - beta * oracle.kl(policy, reference)
        for policy in policies
    ]
    yield from _each("objectives", objectives)
    yield (), {"trained": _last(run, "ppo/probabilities"), "optimum": np.exp(best)}


def _beta(run: Replayed, other: Replayed) -> Iterator[Emission]:
    runs = (run, other)
    yield from _each("rewards", [_last(r, "ppo/expected_reward") for r in runs])
    yield from _each("kls", [_last(r, "ppo/reference_kl") for r in runs])
    yield from _each("favourite", [_last(r, "ppo/probabilities")[..., 0] for r in runs])


def _proxy_gap(task: Any, rollouts: Any, run: Replayed) -> Iterator[Emission]:
    epochs = max(where[1] for name, where in run if name == "ppo/logits")
    policies = [run["ppo/reference", (0, 0)]]
    policies += [run["ppo/logits", (int(rollout) - 1, epochs)] for rollout in rollouts]
    learned = [run["ppo/expected_reward", (int(at),)] for at in [0, *rollouts]]
    yield from _each("learned", learned)
    yield from _each("task", [oracle.expected_score(policy, task) for policy in policies])


def _dpo_margin(
    logits: Any, chosen: Any, rejected: Any, beta: Any, run: Replayed
) -> Iterator[Emission]:
    logps, reference = oracle.log_softmax(logits), _last(run, "dpo/reference")
    yield (
        (),
        {
            "uncorrected": logps[..., chosen] - logps[..., rejected],
            "corrected": oracle.dpo(logits, reference, chosen, rejected, beta).margins,
            "margins": _last(run, "dpo/final_margins"),
        },
    )
    losses = _all(run, "dpo/loss")
    yield from _each("loss", [losses[0], losses[-1]])
    policies = (logits, _last(run, "dpo/logits"))
    last = (chosen[-1:], rejected[-1:])
    yield from _each("pair", [oracle.dpo(p, reference, *last, beta).loss for p in policies])
    yield from _each("chosen", [np.exp(oracle.log_softmax(p))[..., chosen[-1]] for p in policies])


def _reinforce(
    logits: Any, reference_logits: Any, scores: Any, actions: Any, beta: Any, run: Replayed
) -> Iterator[Emission]:
    reference = oracle.log_softmax(reference_logits)
    advantages = oracle.advantages(logits, scores, actions)
    step = oracle.reinforce(logits, actions, advantages, reference, beta)
    yield (), {"advantages": advantages, "gradient": step.gradient}
    for name, quantity in (("rewards", "expected_reward"), ("kls", "reference_kl")):
        measured = _all(run, f"reinforce/{quantity}")
        yield from _each(name, [measured[0], measured[-1]])
    best = np.exp(oracle.optimum(reference, scores, beta))
    trained = _last(run, "reinforce/probabilities")
    yield from _each("favourite", [trained[..., 0], best[..., 0]])


def _kinks(logits: Any, actions: Any, advantages: Any, clip: Any, **_: Any) -> Iterator[Emission]:
    old_logps = oracle.log_softmax(logits)[..., actions]
    for i, _term, push in _cells(logits, old_logps, actions, advantages, clip):
        yield (i,), {"inside": push}


def _softplus(margins: Any, beyond: Any) -> Iterator[Emission]:
    losses = oracle.softplus(-margins)
    yield (), {"stable": losses}
    yield (0,), {"naive": losses[..., -1]}
    tail = oracle.softplus(beyond) - beyond
    yield (0,), {"builtin": tail, "ours": tail}


def _float32_edge(
    logits: Any, log_ratios: Any, actions: Any, advantages: Any, clip: Any, tiny: Any
) -> Iterator[Emission]:
    old_logps = oracle.log_softmax(logits)[..., actions] - log_ratios
    for i, term, push in _cells(logits, old_logps, actions, advantages, clip):
        yield (i,), {"terms": term}
        yield (0,), {("held", "lost")[i]: push}
    yield (0,), {"flushed": np.exp(tiny)}


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
