"""Known bugs, and equivalent rewrites, as replacements of single pieces.

The names are those of the catalogue, `parity/faults.toml`, which says what each one breaks and
where it was seen in public. Nothing here is used by training unless a name is asked for.
"""

from collections.abc import Callable
from typing import Any

import torch

from torch_impl import dpo, ppo, reward
from torch_impl.backend import PIECES, Pieces

__all__ = ["FAULTS"]

Loss = Callable[..., Any]


def _stopped(value: Any) -> Any:
    return value.detach()


def _kept(value: Any) -> Any:
    """Lets a gradient through where it must not pass."""
    return value


def _ratio(logps: Any, actions: Any, old: Any) -> Any:
    return torch.exp(logps[actions] - old)


def _clipped(ratios: Any, clip: Any) -> Any:
    return torch.clamp(ratios, 1 - clip, 1 + clip)


def _terms(ratios: Any, advantages: Any, clip: Any) -> Any:
    return torch.minimum(ratios * advantages, _clipped(ratios, clip) * advantages)


def _kl(logps: Any, reference: Any, _actions: Any) -> Any:
    return torch.sum(torch.exp(logps) * (logps - reference))


def _total(surrogate: Any, kl: Any, beta: Any) -> Any:
    return -surrogate + beta * kl


def _log_softmax(logits: Any) -> Any:
    return torch.log_softmax(logits, dim=0)


def _ppo_loss(
    *,
    logps: Callable[..., Any] = _log_softmax,
    ratio: Callable[..., Any] = _ratio,
    terms: Callable[..., Any] = _terms,
    reduce: Callable[..., Any] = torch.mean,
    kl: Callable[..., Any] = _kl,
    total: Callable[..., Any] = _total,
    freeze_old: Callable[..., Any] = _stopped,
    freeze_advantages: Callable[..., Any] = _stopped,
    freeze_reference: Callable[..., Any] = _stopped,
) -> Loss:
    """The PPO loss with one part exchanged."""

    def loss(
        logits: Any,
        old_logps: Any,
        actions: Any,
        advantages: Any,
        reference: Any,
        beta: Any,
        clip: Any,
    ) -> tuple[Any, ppo.Terms]:
        current = logps(logits)
        ratios = ratio(current, actions, freeze_old(old_logps))
        surrogate = reduce(terms(ratios, freeze_advantages(advantages), clip))
        penalty = kl(current, freeze_reference(reference), actions)
        return total(surrogate, penalty, beta), ppo.Terms(ratios, surrogate, penalty)

    return loss


def _samples_of(values: Any, reference: Any, actions: Any) -> Any:
    """Log-ratios to the reference of the samples: what estimators of the KL are made of."""
    return values[actions] - reference[actions]


_PPO_LOSSES: dict[str, Loss] = {
    "clip-only": _ppo_loss(terms=lambda rho, a, clip: _clipped(rho, clip) * a),
    "min-lost": _ppo_loss(terms=lambda rho, a, clip: a * torch.minimum(rho, _clipped(rho, clip))),
    "max-for-min": _ppo_loss(
        terms=lambda rho, a, clip: torch.maximum(rho * a, _clipped(rho, clip) * a)
    ),
    "clip-lost": _ppo_loss(terms=lambda rho, a, clip: rho * a),
    "clip-above-only": _ppo_loss(
        terms=lambda rho, a, clip: torch.minimum(rho * a, torch.clamp(rho, max=1 + clip) * a)
    ),
    "clip-below-only": _ppo_loss(
        terms=lambda rho, a, clip: torch.minimum(rho * a, torch.clamp(rho, min=1 - clip) * a)
    ),
    "clip-doubled": _ppo_loss(terms=lambda rho, a, clip: _terms(rho, a, 2 * clip)),
    "clip-reciprocal": _ppo_loss(
        terms=lambda rho, a, clip: torch.minimum(
            rho * a, torch.clamp(rho, 1 / (1 + clip), 1 + clip) * a
        )
    ),
    "dual-clip": _ppo_loss(
        terms=lambda rho, a, clip: torch.where(
            a < 0, torch.maximum(_terms(rho, a, clip), 3 * a), _terms(rho, a, clip)
        )
    ),
    "dual-clip-everywhere": _ppo_loss(
        terms=lambda rho, a, clip: torch.maximum(_terms(rho, a, clip), 3 * a)
    ),
    "loss-negated": _ppo_loss(total=lambda s, kl, beta: s - beta * kl),
    "surrogate-negated": _ppo_loss(total=lambda s, kl, beta: s + beta * kl),
    "kl-sign": _ppo_loss(total=lambda s, kl, beta: -s - beta * kl),
    "beta-squared": _ppo_loss(total=lambda s, kl, beta: -s + beta * beta * kl),
    "beta-lost": _ppo_loss(total=lambda s, kl, beta: -s + kl),
    "kl-reversed": _ppo_loss(kl=lambda lp, ref, _: torch.sum(torch.exp(ref) * (ref - lp))),
    "kl-k1": _ppo_loss(kl=lambda lp, ref, a: torch.mean(_samples_of(lp, ref, a))),
    "kl-k2": _ppo_loss(kl=lambda lp, ref, a: torch.mean(_samples_of(lp, ref, a) ** 2) / 2),
    "kl-k3": _ppo_loss(
        kl=lambda lp, ref, a: torch.mean(
            torch.exp(-_samples_of(lp, ref, a)) - 1 + _samples_of(lp, ref, a)
        )
    ),
    "kl-of-itself": _ppo_loss(kl=lambda lp, _, a: _kl(lp, _stopped(lp), a)),
    "kl-detached": _ppo_loss(kl=lambda lp, ref, a: _stopped(_kl(lp, ref, a))),
    "kl-unweighted": _ppo_loss(kl=lambda lp, ref, _: torch.mean(lp - ref)),
    "sum-for-mean": _ppo_loss(reduce=torch.sum),
    "mean-of-n-minus-1": _ppo_loss(reduce=lambda x: torch.sum(x) / max(x.numel() - 1, 1)),
    "old-recomputed": _ppo_loss(ratio=lambda lp, a, _: torch.exp(lp[a] - _stopped(lp)[a])),
    "old-not-detached": _ppo_loss(freeze_old=_kept),
    "advantage-not-detached": _ppo_loss(freeze_advantages=_kept),
    "reference-not-detached": _ppo_loss(freeze_reference=_kept),
    "ratio-inverted": _ppo_loss(ratio=lambda lp, a, old: torch.exp(old - lp[a])),
    "ratio-detached": _ppo_loss(ratio=lambda lp, a, old: _stopped(_ratio(lp, a, old))),
    "ratio-linear": _ppo_loss(ratio=lambda lp, a, old: 1 + (lp[a] - old)),
    "ratio-clamped": _ppo_loss(
        ratio=lambda lp, a, old: torch.exp(torch.clamp(lp[a] - old, -20, 20))
    ),
    "action-shifted": _ppo_loss(ratio=lambda lp, a, old: torch.exp(torch.roll(lp, -1)[a] - old)),
    "logits-for-logps": _ppo_loss(logps=_kept),
    "bfloat16-logps": _ppo_loss(logps=lambda x: _log_softmax(x).to(torch.bfloat16).to(x.dtype)),
    "temperature-scoring": _ppo_loss(logps=lambda x: _log_softmax(x / 0.9)),
    "softmax-epsilon": _ppo_loss(logps=lambda x: torch.log(torch.softmax(x, dim=0) + 1e-4)),
    "advantage-negated": _ppo_loss(terms=lambda rho, a, clip: _terms(rho, -a, clip)),
    "advantage-absolute": _ppo_loss(terms=lambda rho, a, clip: _terms(rho, torch.abs(a), clip)),
    "entropy-bonus": _ppo_loss(
        kl=lambda lp, ref, a: _kl(lp, ref, a) + 0.01 * torch.sum(torch.exp(lp) * lp)
    ),
    # Equivalent rewrites.
    "max-of-negated": _ppo_loss(
        terms=lambda rho, a, clip: -torch.maximum(-a * rho, -a * _clipped(rho, clip))
    ),
    "clamp-by-sign": _ppo_loss(
        terms=lambda rho, a, clip: (
            a * torch.where(a > 0, torch.clamp(rho, max=1 + clip), torch.clamp(rho, min=1 - clip))
        )
    ),
    "kl-split": _ppo_loss(
        kl=lambda lp, ref, _: torch.sum(torch.exp(lp) * lp) - torch.sum(torch.exp(lp) * ref)
    ),
    "ratio-swapped": _ppo_loss(ratio=lambda lp, a, old: torch.exp(-(old - lp[a]))),
    "one-hot-gather": _ppo_loss(
        ratio=lambda lp, a, old: torch.exp(
            torch.nn.functional.one_hot(a, lp.numel()).to(lp.dtype) @ lp - old
        )
    ),
    "samples-reversed": _ppo_loss(reduce=lambda x: torch.mean(x.flip(0))),
    "sum-over-halves": _ppo_loss(
        reduce=lambda x: (
            (torch.sum(x[: x.numel() // 2]) + torch.sum(x[x.numel() // 2 :])) / x.numel()
        )
    ),
}


def _collect(
    *,
    logps: Callable[..., Any] = _log_softmax,
    baseline: Callable[..., Any] = lambda lp, scores, _: torch.sum(torch.exp(lp) * scores),
    whiten: Callable[..., Any] = _kept,
    old: Callable[..., Any] = lambda lp, actions, _: lp[actions],
    replayed: Callable[..., Any] = lambda actions, _: actions,
) -> Callable[..., ppo.Batch]:
    """Collection with one part exchanged."""

    def collect(actions: Any, state: ppo.State) -> ppo.Batch:
        taken = replayed(actions, state)
        current = logps(state.logits)
        advantages = state.scores[taken] - baseline(current, state.scores, taken)
        return ppo.Batch(taken, old(current, taken, state), whiten(advantages))

    return collect


_COLLECTS: dict[str, Callable[..., ppo.Batch]] = {
    "baseline-lost": _collect(baseline=lambda lp, scores, _: 0.0),
    "baseline-of-the-batch": _collect(baseline=lambda lp, scores, a: torch.mean(scores[a])),
    "baseline-unweighted": _collect(baseline=lambda lp, scores, _: torch.mean(scores)),
    "whitened-by-n": _collect(
        whiten=lambda a: (a - torch.mean(a)) / (torch.std(a, correction=0) + 1e-8)
    ),
    "whitened-by-n-minus-1": _collect(whiten=lambda a: (a - torch.mean(a)) / (torch.std(a) + 1e-8)),
    "old-of-the-reference": _collect(old=lambda lp, a, state: state.reference[a]),
    "old-of-other-rows": _collect(old=lambda lp, a, _: torch.roll(lp[a], 1)),
    "temperature-sampling": _collect(logps=lambda x: _log_softmax(x / 0.7)),
    "actions-off-by-one": _collect(replayed=lambda a, state: (a + 1) % state.logits.numel()),
    # Equivalent rewrite.
    "rewards-shifted": _collect(
        baseline=lambda lp, scores, _: torch.sum(torch.exp(lp) * (scores + 0.5)) - 0.5
    ),
}


def _descend(state: Any, step: Any, **changes: Any) -> Any:
    return state._replace(logits=state.logits - step, **changes)


_PPO_UPDATES: dict[str, Callable[..., ppo.State]] = {
    "reference-follows": lambda s, g, rate: _descend(
        s, rate * g, gradient=g, reference=_log_softmax(s.logits - rate * g)
    ),
    "reference-drifts": lambda s, g, rate: _descend(
        s, rate * g, gradient=g, reference=0.99 * s.reference + 0.01 * _log_softmax(s.logits)
    ),
    "reward-drifts": lambda s, g, rate: _descend(
        s, rate * g, gradient=g, scores=s.scores * (1 - 1e-3)
    ),
    "ascent": lambda s, g, rate: _descend(s, -rate * g, gradient=g),
    "gradients-accumulate": lambda s, g, rate: _descend(
        s, rate * (s.gradient + g), gradient=s.gradient + g
    ),
    "momentum": lambda s, g, rate: _descend(s, rate * (g + 0.9 * s.gradient), gradient=g),
    "weight-decay": lambda s, g, rate: _descend(s, rate * (g + 0.01 * s.logits), gradient=g),
    "gradient-normalised": lambda s, g, rate: _descend(
        s, rate * g / torch.clamp(torch.linalg.norm(g), min=0.05) * 0.05, gradient=g
    ),
    # Equivalent rewrite.
    "negated-ascent": lambda s, g, rate: _descend(s, -(rate * -g), gradient=g),
}


def _margins(logps: Any, reference: Any, chosen: Any, rejected: Any) -> Any:
    return (logps[chosen] - logps[rejected]) - (reference[chosen] - reference[rejected])


def _softplus(x: Any) -> Any:
    return -torch.nn.functional.logsigmoid(-x)


def _dpo_loss(
    *,
    margins: Callable[..., Any] = _margins,
    losses: Callable[..., Any] = lambda z: _softplus(-z),
    scale: Callable[..., Any] = lambda beta: beta,
    reduce: Callable[..., Any] = torch.mean,
    freeze_reference: Callable[..., Any] = _stopped,
) -> Loss:
    """The DPO loss with one part exchanged."""

    def loss(logits: Any, reference: Any, chosen: Any, rejected: Any, beta: Any) -> tuple[Any, Any]:
        m = margins(_log_softmax(logits), freeze_reference(reference), chosen, rejected)
        return reduce(losses(scale(beta) * m)), m

    return loss


_DPO_LOSSES: dict[str, Loss] = {
    "dpo-negated": _dpo_loss(losses=lambda z: -_softplus(-z)),
    "dpo-pair-swapped": _dpo_loss(margins=lambda lp, ref, c, r: _margins(lp, ref, r, c)),
    "dpo-reference-free": _dpo_loss(margins=lambda lp, ref, c, r: lp[c] - lp[r]),
    "dpo-reference-added": _dpo_loss(margins=lambda lp, ref, c, r: _margins(lp, -ref, c, r)),
    "dpo-beta-squared": _dpo_loss(scale=lambda beta: beta * beta),
    "dpo-beta-lost": _dpo_loss(scale=lambda beta: 1.0),
    "dpo-sum-for-mean": _dpo_loss(reduce=torch.sum),
    "dpo-squared": _dpo_loss(losses=lambda z: (z - 0.5) ** 2),
    "dpo-hinge": _dpo_loss(losses=lambda z: torch.clamp(1 - z, min=0)),
    "dpo-smoothed": _dpo_loss(losses=lambda z: 0.9 * _softplus(-z) + 0.1 * _softplus(z)),
    "dpo-log-of-sigmoid": _dpo_loss(losses=lambda z: -torch.log(1 / (1 + torch.exp(-z)))),
    "dpo-log-one-plus-exp": _dpo_loss(losses=lambda z: torch.log(1 + torch.exp(-z))),
    "dpo-margin-clamped": _dpo_loss(losses=lambda z: _softplus(-torch.clamp(z, -10, 10))),
    "dpo-reference-not-detached": _dpo_loss(freeze_reference=_kept),
    "dpo-rejected-detached": _dpo_loss(
        margins=lambda lp, ref, c, r: (lp[c] - _stopped(lp)[r]) - (ref[c] - ref[r])
    ),
    # Equivalent rewrites.
    "dpo-logaddexp": _dpo_loss(losses=lambda z: torch.logaddexp(torch.zeros_like(z), -z)),
    "dpo-by-sides": _dpo_loss(margins=lambda lp, ref, c, r: (lp[c] - ref[c]) - (lp[r] - ref[r])),
    "dpo-log-sigmoid": _dpo_loss(losses=lambda z: -torch.nn.functional.logsigmoid(z)),
}

_DPO_UPDATES: dict[str, Callable[..., dpo.State]] = {
    "dpo-reference-follows": lambda s, g, rate: _descend(
        s, rate * g, gradient=g, reference=_log_softmax(s.logits - rate * g)
    ),
    "dpo-ascent": lambda s, g, rate: _descend(s, -rate * g, gradient=g),
}


def _reward_loss(
    losses: Callable[..., Any] = lambda m: _softplus(-m), reduce: Callable[..., Any] = torch.mean
) -> Loss:
    """The preference loss with one part exchanged."""
    return lambda weights, chosen, rejected: reduce(losses((chosen - rejected) @ weights))


_REWARD_LOSSES: dict[str, Loss] = {
    "reward-pair-swapped": _reward_loss(lambda m: _softplus(m)),
    "reward-log-of-sigmoid": _reward_loss(lambda m: -torch.log(1 / (1 + torch.exp(-m)))),
    "reward-log-one-plus-exp": _reward_loss(lambda m: torch.log(1 + torch.exp(-m))),
    "reward-sum-for-mean": _reward_loss(reduce=torch.sum),
    "reward-hinge": _reward_loss(lambda m: torch.clamp(1 - m, min=0)),
    "reward-squared": _reward_loss(lambda m: (m - 1) ** 2),
    "reward-margin-added": _reward_loss(lambda m: _softplus(-(m - 0.1))),
    # Equivalent rewrite.
    "reward-log-sigmoid": _reward_loss(lambda m: -torch.nn.functional.logsigmoid(m)),
}

_REWARD_UPDATES: dict[str, Callable[..., reward.State]] = {
    "reward-ascent": lambda s, g, rate: s._replace(weights=s.weights + rate * g, gradient=g),
    "reward-weight-decay": lambda s, g, rate: s._replace(
        weights=s.weights - rate * (g + 0.01 * s.weights), gradient=g
    ),
}


def _planted(objective: str, piece: str, values: dict[str, Any]) -> dict[str, Pieces]:
    """The backend's pieces with one piece of one objective exchanged."""
    ours = getattr(PIECES, objective)
    return {
        name: PIECES._replace(**{objective: ours._replace(**{piece: value})})
        for name, value in values.items()
    }


def _logsumexp_spelling(x: Any) -> Any:
    return x - torch.logsumexp(x, dim=0)


_SPELLING = PIECES.ppo._replace(  # in both places: the first ratio of a rollout stays exactly 1
    loss=_ppo_loss(logps=_logsumexp_spelling), collect=_collect(logps=_logsumexp_spelling)
)

FAULTS: dict[str, Pieces] = {
    **_planted("ppo", "loss", _PPO_LOSSES),
    **_planted("ppo", "collect", _COLLECTS),
    **_planted("ppo", "update", _PPO_UPDATES),
    "logsumexp-spelling": PIECES._replace(ppo=_SPELLING),
    **_planted("dpo", "loss", _DPO_LOSSES),
    **_planted("dpo", "update", _DPO_UPDATES),
    **_planted("reward", "loss", _REWARD_LOSSES),
    **_planted("reward", "update", _REWARD_UPDATES),
}
"""Name to the pieces with which to train or evaluate."""
