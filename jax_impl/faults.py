"""Known bugs, and equivalent rewrites, as replacements of single pieces.

The names are those of the catalogue, `parity/faults.toml`, which says what each one breaks and
where it was seen in public. Nothing here is used by training unless a name is asked for.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl import dpo, ppo, reward
from jax_impl.backend import PIECES, Pieces
from jax_impl.variants import (
    Loss,
    clipped,
    collect_with,
    descend,
    dpo_loss_with,
    kept,
    kl,
    log_softmax,
    margins,
    ppo_loss_with,
    ratio,
    reward_loss_with,
    softplus,
    stopped,
    terms,
)

__all__ = ["FAULTS"]


def _samples_of(values: Any, reference: Any, actions: Any) -> Any:
    """Log-ratios to the reference of the samples: what estimators of the KL are made of."""
    return values[actions] - reference[actions]


_PPO_LOSSES: dict[str, Loss] = {
    "clip-only": ppo_loss_with(terms=lambda rho, a, clip: clipped(rho, clip) * a),
    "min-of-ratios": ppo_loss_with(
        terms=lambda rho, a, clip: a * jnp.minimum(rho, clipped(rho, clip))
    ),
    "max-for-min": ppo_loss_with(
        terms=lambda rho, a, clip: jnp.maximum(rho * a, clipped(rho, clip) * a)
    ),
    "clip-lost": ppo_loss_with(terms=lambda rho, a, clip: rho * a),
    "clip-above-only": ppo_loss_with(
        terms=lambda rho, a, clip: jnp.minimum(rho * a, jnp.minimum(rho, 1 + clip) * a)
    ),
    "clip-below-only": ppo_loss_with(
        terms=lambda rho, a, clip: jnp.minimum(rho * a, jnp.maximum(rho, 1 - clip) * a)
    ),
    "clip-doubled": ppo_loss_with(terms=lambda rho, a, clip: terms(rho, a, 2 * clip)),
    "clip-reciprocal": ppo_loss_with(
        terms=lambda rho, a, clip: jnp.minimum(rho * a, jnp.clip(rho, 1 / (1 + clip), 1 + clip) * a)
    ),
    "dual-clip": ppo_loss_with(
        terms=lambda rho, a, clip: jnp.where(
            a < 0, jnp.maximum(terms(rho, a, clip), 3 * a), terms(rho, a, clip)
        )
    ),
    "dual-clip-everywhere": ppo_loss_with(
        terms=lambda rho, a, clip: jnp.maximum(terms(rho, a, clip), 3 * a)
    ),
    "loss-negated": ppo_loss_with(total=lambda s, kl, beta: s - beta * kl),
    "surrogate-negated": ppo_loss_with(total=lambda s, kl, beta: s + beta * kl),
    "kl-sign": ppo_loss_with(total=lambda s, kl, beta: -s - beta * kl),
    "beta-squared": ppo_loss_with(total=lambda s, kl, beta: -s + beta * beta * kl),
    "beta-lost": ppo_loss_with(total=lambda s, kl, beta: -s + kl),
    "kl-reversed": ppo_loss_with(kl=lambda lp, ref, _: jnp.sum(jnp.exp(ref) * (ref - lp))),
    "kl-k1": ppo_loss_with(kl=lambda lp, ref, a: jnp.mean(_samples_of(lp, ref, a))),
    "kl-k2": ppo_loss_with(kl=lambda lp, ref, a: jnp.mean(_samples_of(lp, ref, a) ** 2) / 2),
    "kl-k3": ppo_loss_with(
        kl=lambda lp, ref, a: jnp.mean(
            jnp.exp(-_samples_of(lp, ref, a)) - 1 + _samples_of(lp, ref, a)
        )
    ),
    "kl-of-itself": ppo_loss_with(kl=lambda lp, _, a: kl(lp, stopped(lp), a)),
    "kl-detached": ppo_loss_with(kl=lambda lp, ref, a: stopped(kl(lp, ref, a))),
    "kl-unweighted": ppo_loss_with(kl=lambda lp, ref, _: jnp.mean(lp - ref)),
    "sum-for-mean": ppo_loss_with(reduce=jnp.sum),
    "mean-of-n-minus-1": ppo_loss_with(reduce=lambda x: jnp.sum(x) / max(x.size - 1, 1)),
    "old-recomputed": ppo_loss_with(ratio=lambda lp, a, _: jnp.exp(lp[a] - stopped(lp)[a])),
    "old-not-detached": ppo_loss_with(freeze_old=kept),
    "advantage-not-detached": ppo_loss_with(freeze_advantages=kept),
    "reference-not-detached": ppo_loss_with(freeze_reference=kept),
    "ratio-inverted": ppo_loss_with(ratio=lambda lp, a, old: jnp.exp(old - lp[a])),
    "ratio-detached": ppo_loss_with(ratio=lambda lp, a, old: stopped(ratio(lp, a, old))),
    "ratio-linear": ppo_loss_with(ratio=lambda lp, a, old: 1 + (lp[a] - old)),
    "ratio-clamped": ppo_loss_with(
        ratio=lambda lp, a, old: jnp.exp(jnp.clip(lp[a] - old, -20, 20))
    ),
    "action-shifted": ppo_loss_with(ratio=lambda lp, a, old: jnp.exp(jnp.roll(lp, -1)[a] - old)),
    "logits-for-logps": ppo_loss_with(logps=kept),
    "bfloat16-logps": ppo_loss_with(
        logps=lambda x: log_softmax(x).astype(jnp.bfloat16).astype(x.dtype)
    ),
    "temperature-scoring": ppo_loss_with(logps=lambda x: log_softmax(x / 0.9)),
    "softmax-epsilon": ppo_loss_with(logps=lambda x: jnp.log(jax.nn.softmax(x) + 1e-4)),
    "advantage-negated": ppo_loss_with(terms=lambda rho, a, clip: terms(rho, -a, clip)),
    "advantage-absolute": ppo_loss_with(terms=lambda rho, a, clip: terms(rho, jnp.abs(a), clip)),
    "entropy-bonus": ppo_loss_with(
        kl=lambda lp, ref, a: kl(lp, ref, a) + 0.01 * jnp.sum(jnp.exp(lp) * lp)
    ),
    # Equivalent rewrites.
    "max-of-negated": ppo_loss_with(
        terms=lambda rho, a, clip: -jnp.maximum(-a * rho, -a * clipped(rho, clip))
    ),
    "clamp-by-sign": ppo_loss_with(
        terms=lambda rho, a, clip: (
            a * jnp.where(a > 0, jnp.minimum(rho, 1 + clip), jnp.maximum(rho, 1 - clip))
        )
    ),
    "kl-split": ppo_loss_with(
        kl=lambda lp, ref, _: jnp.sum(jnp.exp(lp) * lp) - jnp.sum(jnp.exp(lp) * ref)
    ),
    "ratio-swapped": ppo_loss_with(ratio=lambda lp, a, old: jnp.exp(-(old - lp[a]))),
    "one-hot-gather": ppo_loss_with(
        ratio=lambda lp, a, old: jnp.exp(jax.nn.one_hot(a, lp.size, dtype=lp.dtype) @ lp - old)
    ),
    "samples-reversed": ppo_loss_with(reduce=lambda x: jnp.mean(x[::-1])),
    "sum-over-halves": ppo_loss_with(
        reduce=lambda x: (jnp.sum(x[: x.size // 2]) + jnp.sum(x[x.size // 2 :])) / x.size
    ),
}


_COLLECTS: dict[str, Callable[..., ppo.Batch]] = {
    "baseline-lost": collect_with(baseline=lambda lp, scores, _: 0.0),
    "baseline-of-the-batch": collect_with(baseline=lambda lp, scores, a: jnp.mean(scores[a])),
    "baseline-unweighted": collect_with(baseline=lambda lp, scores, _: jnp.mean(scores)),
    "whitened-by-n": collect_with(whiten=lambda a: (a - jnp.mean(a)) / (jnp.std(a) + 1e-8)),
    "whitened-by-n-minus-1": collect_with(
        whiten=lambda a: (a - jnp.mean(a)) / (jnp.std(a, ddof=1) + 1e-8)
    ),
    "old-of-the-reference": collect_with(old=lambda lp, a, state: state.reference[a]),
    "old-of-other-rows": collect_with(old=lambda lp, a, _: jnp.roll(lp[a], 1)),
    "temperature-sampling": collect_with(logps=lambda x: log_softmax(x / 0.7)),
    "actions-off-by-one": collect_with(replayed=lambda a, state: (a + 1) % state.logits.size),
    # Equivalent rewrite.
    "rewards-shifted": collect_with(
        baseline=lambda lp, scores, _: jnp.sum(jnp.exp(lp) * (scores + 0.5)) - 0.5
    ),
}


_PPO_UPDATES: dict[str, Callable[..., ppo.State]] = {
    "reference-follows": lambda s, g, rate: descend(
        s, rate * g, gradient=g, reference=log_softmax(s.logits - rate * g)
    ),
    "reference-drifts": lambda s, g, rate: descend(
        s, rate * g, gradient=g, reference=0.99 * s.reference + 0.01 * log_softmax(s.logits)
    ),
    "reward-drifts": lambda s, g, rate: descend(
        s, rate * g, gradient=g, scores=s.scores * (1 - 1e-3)
    ),
    "ascent": lambda s, g, rate: descend(s, -rate * g, gradient=g),
    "gradients-accumulate": lambda s, g, rate: descend(
        s, rate * (s.gradient + g), gradient=s.gradient + g
    ),
    "momentum": lambda s, g, rate: descend(s, rate * (g + 0.9 * s.gradient), gradient=g),
    "weight-decay": lambda s, g, rate: descend(s, rate * (g + 0.01 * s.logits), gradient=g),
    "gradient-normalised": lambda s, g, rate: descend(
        s, rate * g / jnp.maximum(jnp.linalg.norm(g), 0.05) * 0.05, gradient=g
    ),
    # Equivalent rewrite.
    "negated-ascent": lambda s, g, rate: descend(s, -(rate * -g), gradient=g),
}


_DPO_LOSSES: dict[str, Loss] = {
    "dpo-negated": dpo_loss_with(losses=lambda z: -softplus(-z)),
    "dpo-pair-swapped": dpo_loss_with(margins=lambda lp, ref, c, r: margins(lp, ref, r, c)),
    "dpo-reference-free": dpo_loss_with(margins=lambda lp, ref, c, r: lp[c] - lp[r]),
    "dpo-reference-added": dpo_loss_with(margins=lambda lp, ref, c, r: margins(lp, -ref, c, r)),
    "dpo-beta-squared": dpo_loss_with(scale=lambda beta: beta * beta),
    "dpo-beta-lost": dpo_loss_with(scale=lambda beta: 1.0),
    "dpo-sum-for-mean": dpo_loss_with(reduce=jnp.sum),
    "dpo-squared": dpo_loss_with(losses=lambda z: (z - 0.5) ** 2),
    "dpo-hinge": dpo_loss_with(losses=lambda z: jnp.maximum(1 - z, 0)),
    "dpo-smoothed": dpo_loss_with(losses=lambda z: 0.9 * softplus(-z) + 0.1 * softplus(z)),
    "dpo-log-of-sigmoid": dpo_loss_with(losses=lambda z: -jnp.log(1 / (1 + jnp.exp(-z)))),
    "dpo-log-one-plus-exp": dpo_loss_with(losses=lambda z: jnp.log(1 + jnp.exp(-z))),
    "dpo-margin-clamped": dpo_loss_with(losses=lambda z: softplus(-jnp.clip(z, -10, 10))),
    "dpo-reference-not-detached": dpo_loss_with(freeze_reference=kept),
    "dpo-rejected-detached": dpo_loss_with(
        margins=lambda lp, ref, c, r: (lp[c] - stopped(lp)[r]) - (ref[c] - ref[r])
    ),
    # Equivalent rewrites.
    "dpo-logaddexp": dpo_loss_with(losses=lambda z: jnp.logaddexp(0.0, -z)),
    "dpo-by-sides": dpo_loss_with(
        margins=lambda lp, ref, c, r: (lp[c] - ref[c]) - (lp[r] - ref[r])
    ),
    "dpo-log-sigmoid": dpo_loss_with(losses=lambda z: -jax.nn.log_sigmoid(z)),
}

_DPO_UPDATES: dict[str, Callable[..., dpo.State]] = {
    "dpo-reference-follows": lambda s, g, rate: descend(
        s, rate * g, gradient=g, reference=log_softmax(s.logits - rate * g)
    ),
    "dpo-ascent": lambda s, g, rate: descend(s, -rate * g, gradient=g),
}


_REWARD_LOSSES: dict[str, Loss] = {
    "reward-pair-swapped": reward_loss_with(lambda m: softplus(m)),
    "reward-log-of-sigmoid": reward_loss_with(lambda m: -jnp.log(1 / (1 + jnp.exp(-m)))),
    "reward-log-one-plus-exp": reward_loss_with(lambda m: jnp.log(1 + jnp.exp(-m))),
    "reward-sum-for-mean": reward_loss_with(reduce=jnp.sum),
    "reward-hinge": reward_loss_with(lambda m: jnp.maximum(1 - m, 0)),
    "reward-squared": reward_loss_with(lambda m: (m - 1) ** 2),
    "reward-margin-added": reward_loss_with(lambda m: softplus(-(m - 0.1))),
    # Equivalent rewrite.
    "reward-log-sigmoid": reward_loss_with(lambda m: -jax.nn.log_sigmoid(m)),
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
    return x - jax.nn.logsumexp(x)


_SPELLING = PIECES.ppo._replace(  # in both places: the first ratio of a rollout stays exactly 1
    loss=ppo_loss_with(logps=_logsumexp_spelling), collect=collect_with(logps=_logsumexp_spelling)
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
