"""What is solved: features, preferences, logits, rates, β, clip and counts."""

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from parity.errors import InputError
from parity.files import digest, read_bytes
from parity.validation import explain

__all__ = [
    "DPO",
    "PPO",
    "REINFORCE",
    "Problem",
    "Reward",
    "lessons",
    "load_problem",
    "parse_problem",
]

Count = Annotated[int, Meta(ge=1)]
Index = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, lt=2**31)]  # what both frameworks take as a seed
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Vector = tuple[float, ...]
Pairs = Annotated[tuple[tuple[Index, Index], ...], Meta(min_length=1)]

_PROBLEMS = Path(__file__).parent / "problems"
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_FLOAT32_TINY = float(np.finfo(np.float32).tiny)


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


class PPO(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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

    logits: Annotated[Vector, Meta(min_length=2)]
    reference_logits: Vector | None = None
    rollouts: Count
    samples: Count
    epochs: Count
    rate: Positive
    beta: NonNegative
    clip: Positive
    seed: Seed = 0

    @property
    def reference(self) -> Vector:
        """Logits of the reference policy, one per action."""
        return self.logits if self.reference_logits is None else self.reference_logits


class DPO(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Direct preference optimisation of a categorical policy by gradient descent.

    Attributes:
        logits: starting policy, one per action.
        reference_logits: reference policy; the starting policy when left out.
        preferences: (chosen, rejected) pairs of actions.
        updates: gradient steps.
        rate: step size.
        beta: scale of the reference-corrected margin.
    """

    logits: Annotated[Vector, Meta(min_length=2)]
    reference_logits: Vector | None = None
    preferences: Pairs
    updates: Count
    rate: Positive
    beta: Positive

    @property
    def reference(self) -> Vector:
        """Logits of the reference policy, one per action."""
        return self.logits if self.reference_logits is None else self.reference_logits


class REINFORCE(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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

    logits: Annotated[Vector, Meta(min_length=2)]
    reference_logits: Vector | None = None
    scores: Vector
    rollouts: Count
    samples: Count
    rate: Positive
    beta: NonNegative
    seed: Seed = 0

    @property
    def reference(self) -> Vector:
        """Logits of the reference policy, one per action."""
        return self.logits if self.reference_logits is None else self.reference_logits


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One problem, complete; immutable.

    Attributes:
        name: names its files and its place in the report.
        title: one line for people.
        samples: the recorded tape, relative to the problem's own file.
        reward: reward fitting, whose scores PPO optimises.
        ppo: policy optimisation on the fitted reward.
        dpo: preference optimisation.
        reinforce: policy optimisation on given rewards.
    """

    name: Name
    title: str = ""
    samples: str | None = None
    reward: Reward | None = None
    ppo: PPO | None = None
    dpo: DPO | None = None
    reinforce: REINFORCE | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of what is solved: names, titles and places of files do not count."""
        tables: dict[str, Any] = {"reward": self.reward, "ppo": self.ppo, "dpo": self.dpo}
        if self.reinforce:  # younger than the first tapes, whose digests must stay
            tables["reinforce"] = self.reinforce
        return digest(tables)

    @property
    def tape(self) -> PPO | REINFORCE | None:
        """The part that a tape belongs to, whose actions are sampled; None where there is none."""
        return self.ppo or self.reinforce


def lessons() -> dict[str, Path]:
    """Returns the recorded lessons that ship with the package: name to file."""
    return {path.stem: path for path in sorted(_PROBLEMS.glob("*.toml"))}


def load_problem(source: str | Path) -> Problem:
    """Loads a recorded lesson by name, or a problem from a TOML file.

    Raises:
        InputError: no such lesson or file, or its content is not a problem.
    """
    path = lessons().get(str(source), Path(source))
    if not path.suffix and not path.exists():
        raise InputError(
            f"{source}: no such lesson or file; expected one of {', '.join(lessons())} or FILE.toml"
        )
    problem = parse_problem(read_bytes(path), str(path))
    if problem.samples is not None:
        problem = msgspec.structs.replace(problem, samples=str(path.parent / problem.samples))
    return problem


def parse_problem(content: bytes, source: str) -> Problem:
    """Reads a problem from TOML text.

    Args:
        content: the TOML document, UTF-8.
        source: the file's name, which opens every error.

    Raises:
        InputError: one line that names file, field, value and expectation.
    """
    try:
        raw = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too long or too deep
        raise InputError(f"{source}: not TOML: {error}") from error
    raw.setdefault("name", Path(source).stem)
    try:
        problem = msgspec.convert(raw, Problem)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {explain(error, raw, 'problem')}") from error
    for field, value, expectation in _misfits(problem):
        raise InputError(f"{source}: {field}: got {value!r}; expected {expectation}")
    return problem


def _misfits(problem: Problem) -> Iterator[tuple[str, Any, str]]:
    """Yields what the types alone cannot say: finite values, ranges, lengths, parts that fit."""
    yield from _unrepresentable("", msgspec.to_builtins(problem))
    reward, ppo, dpo, reinforce = problem.reward, problem.ppo, problem.dpo, problem.reinforce
    if not (reward or ppo or dpo or reinforce):
        yield "problem", {}, "at least one of the tables [reward], [ppo], [dpo], [reinforce]"
    if problem.samples is not None and problem.tape is None:
        yield "samples", problem.samples, "none without a [ppo] or [reinforce] table"
    if ppo and reinforce:
        expectation = "[ppo] or [reinforce] alone: a tape belongs to one of them"
        yield "reinforce", "a [ppo] table beside it", expectation
    if reward:
        width = len(reward.features[0])
        for position, row in enumerate(reward.features):
            if not row or len(row) != width:
                yield f"reward.features[{position}]", row, f"{max(width, 1)} features, as in row 0"
        if len(reward.initial_weights) != width:
            yield "reward.weights", reward.weights, f"{width} weights, one per feature"
        yield from _bad_pairs("reward.preferences", reward.preferences, len(reward.features))
    if ppo and not reward:
        yield "ppo", "no [reward]", "a [reward] table, whose scores PPO optimises"
    if ppo and reward and len(ppo.logits) != len(reward.features):
        yield "ppo.logits", ppo.logits, f"{len(reward.features)} logits, one per row of features"
    if reinforce and len(reinforce.scores) != len(reinforce.logits):
        expectation = f"{len(reinforce.logits)} scores, as many as reinforce.logits"
        yield "reinforce.scores", reinforce.scores, expectation
    for name, policy in (("ppo", ppo), ("dpo", dpo), ("reinforce", reinforce)):
        if policy and len(policy.reference) != len(policy.logits):
            expectation = f"{len(policy.logits)} logits, as many as {name}.logits"
            yield f"{name}.reference_logits", policy.reference_logits, expectation
    if dpo:
        yield from _bad_pairs("dpo.preferences", dpo.preferences, len(dpo.logits))


def _bad_pairs(
    field: str, pairs: tuple[tuple[int, int], ...], actions: int
) -> Iterator[tuple[str, Any, str]]:
    for position, (chosen, rejected) in enumerate(pairs):
        if max(chosen, rejected) >= actions:
            yield f"{field}[{position}]", [chosen, rejected], f"actions from 0 to {actions - 1}"
        if chosen == rejected:
            yield f"{field}[{position}]", [chosen, rejected], "two different actions"


def _unrepresentable(field: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the numbers that float32 cannot hold: NaN, infinities, overflow, underflow to 0."""
    if isinstance(value, float):
        if not math.isfinite(value) or abs(value) > _FLOAT32_MAX:
            yield field, value, "a finite number within float32"
        elif 0 < abs(value) < _FLOAT32_TINY:
            yield field, value, "0 or a magnitude of at least 2**-126 (float32's smallest normal)"
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _unrepresentable(f"{field}.{key}".lstrip("."), entry)
    elif isinstance(value, list | tuple):
        for position, entry in enumerate(value):
            yield from _unrepresentable(f"{field}[{position}]", entry)
