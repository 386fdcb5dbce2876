"""The mechanics of the lessons, each computed live from the losses and pieces beside this file.

A mechanic takes the numbers that the catalogue, `parity/mechanics.toml`, gives it, and quantities
of real runs where it needs any; it returns the entries of its table, row by row.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from parity.torch_impl import dpo, ppo, reinforce
from parity.torch_impl.backend import planted
from parity.torch_impl.derivative import differentiate
from parity.torch_impl.edges import Rows, cells, float32_edge, gradient, kinks, softplus

__all__ = ["MECHANICS", "show"]

Run = Mapping[str, Tensor]


def _policy(
    logits: Float[Tensor, "action"],
    reference: Float[Tensor, "action"],
    scores: Float[Tensor, "action"],
) -> ppo.State:
    return ppo.State(logits, reference, scores, torch.zeros_like(logits))


def _clipping(
    logits: Float[Tensor, "action"],
    old: Float[Tensor, "cell"],
    actions: Int[Tensor, "cell"],
    advantages: Float[Tensor, "cell"],
    clip: Float[Tensor, ""],
) -> Rows:
    terms, pushes = cells(ppo.ppo_loss, logits, torch.log(old), actions, advantages, clip)
    return {"terms": terms, "pushes": pushes}


def _signed_min(
    logits: Float[Tensor, "action"],
    old: Float[Tensor, "cell"],
    actions: Int[Tensor, "cell"],
    advantages: Float[Tensor, "cell"],
    clip: Float[Tensor, ""],
) -> Rows:
    losses = (ppo.ppo_loss, *(planted("ppo", name).loss for name in ("clip-only", "min-of-ratios")))
    pushes = [cells(loss, logits, torch.log(old), actions, advantages, clip)[1] for loss in losses]
    return {"pushes": torch.stack(pushes, dim=1).reshape(-1)}


def _baseline(
    logits: Float[Tensor, "action"],
    scores: Float[Tensor, "action"],
    constants: Float[Tensor, "constant"],
) -> Rows:
    reference = torch.log_softmax(logits, dim=0)
    probabilities = torch.exp(reference)[:, None]
    state = _policy(logits, reference, scores)
    exact = gradient(lambda x: ppo.measure(state._replace(logits=x)).expected_reward, logits)
    expected = ppo.measure(state).expected_reward
    actions = torch.arange(len(scores))

    def step(action: Tensor, constant: Tensor) -> Tensor:
        batch = reinforce.Batch(action[None], (scores[action] - constant)[None])
        given = (logits, *batch, reference, torch.zeros_like(expected))
        gradient: Tensor = differentiate(reinforce.reinforce_loss, given, reinforce.DERIVED)[2][0]
        return -gradient

    estimates, spreads = [], []
    for constant in [*constants, expected]:
        steps = torch.stack([step(action, constant) for action in actions])
        estimate = torch.sum(probabilities * steps, 0)
        estimates.append(estimate)
        spreads.append(torch.sum(probabilities * (steps - estimate) ** 2))
    return {
        "expected": expected,
        "exact": exact,
        "estimates": torch.stack(estimates),
        "spreads": torch.stack(spreads),
    }


def _detached(
    logits: Float[Tensor, "action"],
    old: Float[Tensor, "sample"],
    actions: Int[Tensor, "sample"],
    advantages: Float[Tensor, "sample"],
    reference_logits: Float[Tensor, "action"],
    beta: Float[Tensor, ""],
    clip: Float[Tensor, ""],
) -> Rows:
    reference = torch.log_softmax(reference_logits, dim=0)

    given = (logits, torch.log(old), actions, advantages, reference, beta, clip)

    def of(loss: Callable[..., Any]) -> Any:
        return differentiate(loss, given, ppo.DERIVED)[2]

    policy, *frozen = of(ppo.ppo_loss)
    return {
        "frozen": torch.stack([torch.max(torch.abs(gradient)) for gradient in frozen]),
        "policy": policy,
        "old": of(planted("ppo", "old-not-detached").loss)[1],
        "advantages": of(planted("ppo", "advantage-not-detached").loss)[2],
    }


def _lifetimes(run: Run) -> Rows:
    counts = {}
    for name in ("logits", "old_logps", "advantages", "reference", "scores"):
        rows = run[f"ppo/{name}"]
        inside = torch.any(rows[:, 1:] != rows[:, :-1], -1)
        across = torch.any(rows[1:, 0] != rows[:-1, -1], -1)
        counts[name] = torch.stack([torch.sum(inside), torch.sum(across)])
    return counts


def _recomputed_old(clip: Float[Tensor, ""], run: Run, planted: Run) -> Rows:
    def extremes(ratios: Float[Tensor, "rollout epoch sample"]) -> Tensor:
        return torch.stack([torch.min(ratios), torch.max(ratios)])

    def outside(ratios: Float[Tensor, "rollout epoch sample"]) -> Tensor:
        return torch.sum((ratios < 1 - clip) | (ratios > 1 + clip))

    return {
        "ratios": extremes(run["ppo/ratios"]),
        "outside": outside(run["ppo/ratios"]),
        "planted_ratios": extremes(planted["ppo/ratios"]),
        "planted_outside": outside(planted["ppo/ratios"]),
    }


def _reference_kl(
    logits: Float[Tensor, "action"],
    near: Float[Tensor, "other"],
    far: Float[Tensor, "other"],
    run: Run,
) -> Rows:
    def kl(policy: Float[Tensor, "n"], reference: Float[Tensor, "n"]) -> Tensor:
        return ppo.measure(_policy(policy, reference, torch.zeros_like(policy))).reference_kl

    trained = torch.log_softmax(run["ppo/logits"][-1, -1], dim=0)
    anchor = run["ppo/reference"][-1, -1]
    return {
        "at_reference": kl(logits, torch.log_softmax(logits, dim=0)),
        "pair": torch.stack(
            [kl(torch.log(near), torch.log(far)), kl(torch.log(far), torch.log(near))]
        ),
        "trained": torch.stack([run["ppo/reference_kl"][-1], kl(anchor, trained)]),
    }


def _optimum(beta: Float[Tensor, ""], run: Run) -> Rows:
    reference, scores = run["ppo/reference"][-1, -1], run["ppo/scores"][-1, -1]
    trained = run["ppo/logits"][-1, -1]
    best = torch.log_softmax(reference + scores / beta, dim=0)

    def objective(logits: Float[Tensor, "action"]) -> Tensor:
        reward, kl = ppo.measure(_policy(logits, reference, scores))
        return reward - beta * kl

    return {
        "objectives": torch.stack([objective(logits) for logits in (reference, trained, best)]),
        "trained": run["ppo/probabilities"],
        "optimum": torch.exp(best),
    }


def _beta(run: Run, other: Run) -> Rows:
    names = ("expected_reward", "reference_kl")
    finals = [torch.stack([r[f"ppo/{name}"][-1] for r in (run, other)]) for name in names]
    favourite = torch.stack([r["ppo/probabilities"][0] for r in (run, other)])
    return {"rewards": finals[0], "kls": finals[1], "favourite": favourite}


def _proxy_gap(
    task: Float[Tensor, "action"], rollouts: Int[Tensor, "checkpoint"], run: Run
) -> Rows:
    reference = run["ppo/reference"][0, 0]
    policies = [reference, *(run["ppo/logits"][rollout - 1, -1] for rollout in rollouts)]
    states = [_policy(logits, reference, task) for logits in policies]
    return {
        "learned": torch.stack([run["ppo/expected_reward"][at] for at in [0, *rollouts]]),
        "task": torch.stack([ppo.measure(state).expected_reward for state in states]),
    }


def _dpo_margin(
    logits: Float[Tensor, "action"],
    chosen: Int[Tensor, "pair"],
    rejected: Int[Tensor, "pair"],
    beta: Float[Tensor, ""],
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
        "loss": torch.stack([run["dpo/loss"][0], run["dpo/loss"][-1]]),
        "pair": torch.stack([dpo.dpo_loss(p, reference, *last, beta)[0] for p in policies]),
        "chosen": torch.stack(
            [torch.exp(torch.log_softmax(p, dim=0))[chosen[-1]] for p in policies]
        ),
    }


def _reinforce(
    logits: Float[Tensor, "action"],
    reference_logits: Float[Tensor, "action"],
    scores: Float[Tensor, "action"],
    actions: Int[Tensor, "sample"],
    beta: Float[Tensor, ""],
    run: Run,
) -> Rows:
    reference = torch.log_softmax(reference_logits, dim=0)
    batch = reinforce.collect(actions, _policy(logits, reference, scores))
    given = (logits, *batch, reference, beta)
    _, _, gradients = differentiate(reinforce.reinforce_loss, given, reinforce.DERIVED)
    rewards, kls = run["reinforce/expected_reward"], run["reinforce/reference_kl"]
    best = torch.exp(torch.log_softmax(reference + scores / beta, dim=0))
    return {
        "advantages": batch.advantages,
        "gradient": gradients[0],
        "rewards": torch.stack([rewards[0], rewards[-1]]),
        "kls": torch.stack([kls[0], kls[-1]]),
        "favourite": torch.stack([run["reinforce/probabilities"][0], best[0]]),
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
    numbers = {key: torch.tensor(value) for key, value in given.items()}
    traces = {
        key: {quantity: torch.tensor(values) for quantity, values in run.items()}
        for key, run in runs.items()
    }
    return MECHANICS[name](**numbers, **traces)
