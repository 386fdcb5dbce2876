"""The mechanics of the lessons, each computed live from the losses and pieces beside this file.

A mechanic takes the numbers that the catalogue, `parity/mechanics.toml`, gives it, and quantities
of real runs where it needs any; it returns the entries of its table, row by row.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from parity.jax_impl import dpo, ppo, reinforce
from parity.jax_impl.backend import planted
from parity.jax_impl.derivative import differentiate
from parity.jax_impl.edges import Rows, cells, float32_edge, gradient, kinks, softplus

__all__ = ["MECHANICS", "show"]

Run = Mapping[str, Array]


def _policy(
    logits: Float[Array, "action"],
    reference: Float[Array, "action"],
    scores: Float[Array, "action"],
) -> ppo.State:
    return ppo.State(logits, reference, scores, jnp.zeros_like(logits))


def _clipping(
    logits: Float[Array, "action"],
    old: Float[Array, "cell"],
    actions: Int[Array, "cell"],
    advantages: Float[Array, "cell"],
    clip: Float[Array, ""],
) -> Rows:
    terms, pushes = cells(ppo.ppo_loss, logits, jnp.log(old), actions, advantages, clip)
    return {"terms": terms, "pushes": pushes}


def _signed_min(
    logits: Float[Array, "action"],
    old: Float[Array, "cell"],
    actions: Int[Array, "cell"],
    advantages: Float[Array, "cell"],
    clip: Float[Array, ""],
) -> Rows:
    losses = (ppo.ppo_loss, *(planted("ppo", name).loss for name in ("clip-only", "min-of-ratios")))
    pushes = [cells(loss, logits, jnp.log(old), actions, advantages, clip)[1] for loss in losses]
    return {"pushes": jnp.stack(pushes, axis=1).reshape(-1)}


def _baseline(
    logits: Float[Array, "action"],
    scores: Float[Array, "action"],
    constants: Float[Array, "constant"],
) -> Rows:
    reference = jax.nn.log_softmax(logits)
    probabilities = jnp.exp(reference)[:, None]
    state = _policy(logits, reference, scores)
    exact = gradient(lambda x: ppo.measure(state._replace(logits=x)).expected_reward, logits)
    expected = ppo.measure(state).expected_reward
    actions = jnp.arange(len(scores))

    def step(action: Array, constant: Array) -> Array:
        batch = reinforce.Batch(action[None], (scores[action] - constant)[None])
        given = (logits, *batch, reference, jnp.zeros_like(expected))
        gradient: Array = differentiate(reinforce.reinforce_loss, given, reinforce.DERIVED)[2][0]
        return -gradient

    estimates, spreads = [], []
    for constant in [*constants, expected]:
        steps = jax.vmap(step, (0, None))(actions, constant)
        estimate = jnp.sum(probabilities * steps, 0)
        estimates.append(estimate)
        spreads.append(jnp.sum(probabilities * (steps - estimate) ** 2))
    return {
        "expected": expected,
        "exact": exact,
        "estimates": jnp.stack(estimates),
        "spreads": jnp.stack(spreads),
    }


def _detached(
    logits: Float[Array, "action"],
    old: Float[Array, "sample"],
    actions: Int[Array, "sample"],
    advantages: Float[Array, "sample"],
    reference_logits: Float[Array, "action"],
    beta: Float[Array, ""],
    clip: Float[Array, ""],
) -> Rows:
    reference = jax.nn.log_softmax(reference_logits)

    given = (logits, jnp.log(old), actions, advantages, reference, beta, clip)

    def of(loss: Callable[..., Any]) -> Any:
        return differentiate(loss, given, ppo.DERIVED)[2]

    policy, *frozen = of(ppo.ppo_loss)
    return {
        "frozen": jnp.stack([jnp.max(jnp.abs(gradient)) for gradient in frozen]),
        "policy": policy,
        "old": of(planted("ppo", "old-not-detached").loss)[1],
        "advantages": of(planted("ppo", "advantage-not-detached").loss)[2],
    }


def _lifetimes(run: Run) -> Rows:
    counts = {}
    for name in ("logits", "old_logps", "advantages", "reference", "scores"):
        rows = run[f"ppo/{name}"]
        inside = jnp.any(rows[:, 1:] != rows[:, :-1], -1)
        across = jnp.any(rows[1:, 0] != rows[:-1, -1], -1)
        counts[name] = jnp.stack([jnp.sum(inside), jnp.sum(across)])
    return counts


def _recomputed_old(clip: Float[Array, ""], run: Run, planted: Run) -> Rows:
    def extremes(ratios: Float[Array, "rollout epoch sample"]) -> Array:
        return jnp.stack([jnp.min(ratios), jnp.max(ratios)])

    def outside(ratios: Float[Array, "rollout epoch sample"]) -> Array:
        return jnp.sum((ratios < 1 - clip) | (ratios > 1 + clip))

    return {
        "ratios": extremes(run["ppo/ratios"]),
        "outside": outside(run["ppo/ratios"]),
        "planted_ratios": extremes(planted["ppo/ratios"]),
        "planted_outside": outside(planted["ppo/ratios"]),
    }


def _reference_kl(
    logits: Float[Array, "action"],
    near: Float[Array, "other"],
    far: Float[Array, "other"],
    run: Run,
) -> Rows:
    def kl(policy: Float[Array, "n"], reference: Float[Array, "n"]) -> Array:
        return ppo.measure(_policy(policy, reference, jnp.zeros_like(policy))).reference_kl

    trained = jax.nn.log_softmax(run["ppo/logits"][-1, -1])
    anchor = run["ppo/reference"][-1, -1]
    return {
        "at_reference": kl(logits, jax.nn.log_softmax(logits)),
        "pair": jnp.stack([kl(jnp.log(near), jnp.log(far)), kl(jnp.log(far), jnp.log(near))]),
        "trained": jnp.stack([run["ppo/reference_kl"][-1], kl(anchor, trained)]),
    }


def _optimum(beta: Float[Array, ""], run: Run) -> Rows:
    reference, scores = run["ppo/reference"][-1, -1], run["ppo/scores"][-1, -1]
    trained = run["ppo/logits"][-1, -1]
    best = jax.nn.log_softmax(reference + scores / beta)

    def objective(logits: Float[Array, "action"]) -> Array:
        reward, kl = ppo.measure(_policy(logits, reference, scores))
        return reward - beta * kl

    return {
        "objectives": jnp.stack([objective(logits) for logits in (reference, trained, best)]),
        "trained": run["ppo/probabilities"],
        "optimum": jnp.exp(best),
    }


def _beta(run: Run, other: Run) -> Rows:
    names = ("expected_reward", "reference_kl")
    finals = [jnp.stack([r[f"ppo/{name}"][-1] for r in (run, other)]) for name in names]
    favourite = jnp.stack([r["ppo/probabilities"][0] for r in (run, other)])
    return {"rewards": finals[0], "kls": finals[1], "favourite": favourite}


def _proxy_gap(task: Float[Array, "action"], rollouts: Int[Array, "checkpoint"], run: Run) -> Rows:
    reference = run["ppo/reference"][0, 0]
    policies = [reference, *(run["ppo/logits"][rollout - 1, -1] for rollout in rollouts)]
    states = [_policy(logits, reference, task) for logits in policies]
    return {
        "learned": jnp.stack([run["ppo/expected_reward"][at] for at in [0, *rollouts]]),
        "task": jnp.stack([ppo.measure(state).expected_reward for state in states]),
    }


def _dpo_margin(
    logits: Float[Array, "action"],
    chosen: Int[Array, "pair"],
    rejected: Int[Array, "pair"],
    beta: Float[Array, ""],
    run: Run,
) -> Rows:
    reference = run["dpo/reference"][0]
    policies = (logits, run["dpo/logits"][-1])
    start = (logits, reference, chosen, rejected, beta)
    last = (chosen[-1:], rejected[-1:])
    return {
        "uncorrected": planted("dpo", "dpo-reference-free").loss(*start)[1].margins,
        "corrected": dpo.dpo_loss(*start)[1].margins,
        "margins": run["dpo/final_margins"],
        "loss": jnp.stack([run["dpo/loss"][0], run["dpo/loss"][-1]]),
        "pair": jnp.stack([dpo.dpo_loss(p, reference, *last, beta)[0] for p in policies]),
        "chosen": jnp.stack([jnp.exp(jax.nn.log_softmax(p))[chosen[-1]] for p in policies]),
    }


def _reinforce(
    logits: Float[Array, "action"],
    reference_logits: Float[Array, "action"],
    scores: Float[Array, "action"],
    actions: Int[Array, "sample"],
    beta: Float[Array, ""],
    run: Run,
) -> Rows:
    reference = jax.nn.log_softmax(reference_logits)
    batch = reinforce.collect(actions, _policy(logits, reference, scores))
    given = (logits, *batch, reference, beta)
    _, _, gradients = differentiate(reinforce.reinforce_loss, given, reinforce.DERIVED)
    rewards, kls = run["reinforce/expected_reward"], run["reinforce/reference_kl"]
    best = jnp.exp(jax.nn.log_softmax(reference + scores / beta))
    return {
        "advantages": batch.advantages,
        "gradient": gradients[0],
        "rewards": jnp.stack([rewards[0], rewards[-1]]),
        "kls": jnp.stack([kls[0], kls[-1]]),
        "favourite": jnp.stack([run["reinforce/probabilities"][0], best[0]]),
    }


MECHANICS: dict[str, Callable[..., Rows]] = {
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
    "kinks": kinks,
    "softplus": softplus,
    "float32-edge": float32_edge,
}
"""Name to what computes the entries of its table."""


def show(name: str, given: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]]) -> Rows:
    """Computes the entries of one mechanic's table.

    Args:
        name: which, as the catalogue names it.
        given: its numbers; whole numbers are indices, all others float32.
        runs: the real runs that it reads: quantities by name.

    Returns:
        Name of a group of rows to its entries, in the order of the catalogue's labels.
    """
    numbers = {key: jnp.asarray(value) for key, value in given.items()}
    traces = {
        key: {quantity: jnp.asarray(values) for quantity, values in run.items()}
        for key, run in runs.items()
    }
    # One compiled program is ready sooner than a hundred single operations.
    rows: Rows = jax.jit(MECHANICS[name])(**numbers, **traces)
    return rows
