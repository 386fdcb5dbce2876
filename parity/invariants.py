"""What must hold inside one trace, whoever computed it.

Each invariant says, in quantities of the trace, that two things are equal or that one does not
exceed the other: exactly, or within the allowance of what it is made of.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity import oracle
from parity.comparison import Entry, Verdict, compare
from parity.noise import Expected
from parity.points import Points
from parity.problem import Problem
from parity.trace import Quantity, Trace

__all__ = ["Invariant", "hold"]

Array = NDArray[Any]


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """One invariant of one implementation.

    Attributes:
        name: what must hold, in words.
        implementation: whose trace.
        verdict: match, divergent, or inconclusive where nothing was checked.
        checked: how many entries.
        worst: the entry nearest to failing, or failing worst; None where nothing was checked.
        reason: why nothing was checked; empty otherwise.
    """

    name: str
    implementation: str
    verdict: Verdict
    checked: int
    worst: Entry | None = None
    reason: str = ""


class _Claim(NamedTuple):
    """`left` equals `right`, or does not exceed it, within `allowed` (0: exactly)."""

    name: str
    left: Array
    right: Array
    allowed: Array | float = 0.0
    at_most: bool = False


class _Run(NamedTuple):
    """A trace in float64, and what rounding may do to each of its quantities in one step."""

    problem: Problem
    trace: Trace
    steps: Expected
    tape: Array | None

    def values(self, name: str) -> Array:
        """A quantity, as float64."""
        return self.trace[name].astype(np.float64)

    def allowed(self, name: str) -> Array:
        """Its allowance in step mode."""
        return self.steps.allowed[name]

    def constant(self, value: Any) -> Any:
        """A constant of the problem as the run sees it."""
        return np.asarray(value, self.trace.dtype).astype(np.float64)


@np.errstate(all="ignore")  # infinities are the comparison's business
def hold(
    problem: Problem,
    trace: Trace,
    steps: Expected | None,
    tape: Array | None,
    probes: list[tuple[Points, Expected, Trace]],
) -> list[Invariant]:
    """Checks every invariant of a run.

    Args:
        problem: what was solved.
        trace: the run.
        steps: what the oracle re-derived from it; None where its structure forbids that.
        tape: the actions that were to be replayed.
        probes: the implementation's evaluations at points, with the oracle's.
    """
    if steps is None:
        return [
            Invariant(
                name="all",
                implementation=trace.implementation,
                verdict="inconclusive",
                checked=0,
                reason="the trace lacks quantities, or has them in another form",
            )
        ]
    run = _Run(problem, trace, steps, tape)
    claims: list[_Claim] = []
    if problem.ppo:
        claims += [*_policy(run, "ppo", problem.ppo.beta), *_ppo(run)]
    reinforce = getattr(problem, "reinforce", None)
    if reinforce:
        claims += [*_policy(run, "reinforce", reinforce.beta), *_reinforce(run)]
    if problem.dpo:
        claims += [*_carried(run, "dpo"), *_zero(trace, "dpo/gradient_reference")]
    for points, expected, evaluated in probes:
        claims += _at_probes(points, expected, evaluated)
    return [_check(claim, trace) for claim in claims]


def _check(claim: _Claim, trace: Trace) -> Invariant:
    left, right = np.asarray(claim.left), np.asarray(claim.right)
    if claim.at_most:
        right = np.minimum(left, right)  # NaN stays NaN
    sides = (trace.implementation, "required")
    axes = ("entry",) * left.ndim
    comparison = compare(
        Quantity(claim.name, axes, "value", left),
        Quantity(claim.name, axes, "value", right),
        np.broadcast_to(np.asarray(claim.allowed, np.float64), left.shape),
        mode="step",
        sides=sides,
        dtype=trace.dtype,
    )
    return Invariant(
        name=claim.name,
        implementation=trace.implementation,
        verdict=comparison.verdict,
        checked=comparison.compared,
        worst=comparison.worst,
        reason=comparison.reason,
    )


def _carried(run: _Run, objective: str) -> Iterator[_Claim]:
    """The reference stays, and it and the final policy are distributions."""
    name = f"{objective}/reference"
    reference = run.values(name)
    first = reference.reshape(-1, reference.shape[-1])[0]
    kept = np.broadcast_to(first, reference.shape)
    yield _Claim(f"{name} unchanged at every update", reference, kept)
    computed = run.allowed(name).reshape(-1, len(first))[0]  # later updates only copy it
    yield _sums_to_one(f"{name} normalised", np.exp(reference), np.exp(reference) * computed)
    name = f"{objective}/probabilities"
    yield _sums_to_one(f"{name} sum to 1", run.values(name), run.allowed(name))


def _sums_to_one(name: str, probabilities: Array, allowed: Array) -> _Claim:
    total = np.atleast_1d(probabilities.sum(-1))
    return _Claim(name, total, np.ones_like(total), np.atleast_1d(allowed.sum(-1)))


def _zero(trace: Trace, *names: str) -> Iterator[_Claim]:
    for name in names:
        yield _Claim(f"{name} exactly 0", trace[name], np.zeros_like(trace[name]))


def _not_negative(name: str, values: Array, allowed: Array) -> _Claim:
    return _Claim(f"{name} not negative", -values, np.zeros_like(values), allowed, at_most=True)


def _policy(run: _Run, objective: str, beta: float) -> Iterator[_Claim]:
    """What PPO and REINFORCE share: a tape, frozen scores, centred advantages, a KL, an optimum."""
    yield from _carried(run, objective)

    def named(name: str) -> str:
        return f"{objective}/{name}"

    scores = run.values(named("scores"))
    rewards = scores.reshape(-1, scores.shape[-1])[0]
    fitted = run.values("reward/scores") if "reward/scores" in run.trace else rewards
    kept = np.broadcast_to(fitted, scores.shape)
    yield _Claim(f"{named('scores')} frozen during policy training", scores, kept)
    assert run.tape is not None
    yield _Claim(f"{named('actions')} identical to the tape", run.trace[named("actions")], run.tape)
    for name in ("kl_penalty", "reference_kl"):
        yield _not_negative(named(name), run.values(named(name)), run.allowed(named(name)))
    weight = run.constant(beta)
    reference = run.values(named("reference")).reshape(-1, len(rewards))[0]
    best = rewards.max()  # without a KL, all mass on the best action
    if weight:
        policy = oracle.optimum(reference, rewards, weight)
        best = oracle.expected_score(policy, rewards) - weight * oracle.kl(policy, reference)
    ends = {name: run.values(named(name))[-1:] for name in ("expected_reward", "reference_kl")}
    allowed = {name: run.allowed(named(name))[-1:] for name in ends}
    yield _Claim(
        f"{objective}: trained objective at most the analytic optimum",
        ends["expected_reward"] - weight * ends["reference_kl"],
        np.atleast_1d(best),
        allowed["expected_reward"] + weight * allowed["reference_kl"],
        at_most=True,
    )


def _centred(run: _Run, objective: str, advantages: Array, allowed: Array) -> _Claim:
    """Σ π_old(a) A(a) = 0 with A(a) = r(a) - baseline, the baseline read off each sample."""
    actions = run.trace[f"{objective}/actions"]
    shape = (len(actions), -1, _width(run, objective))  # reinforce has no epochs
    scores = run.values(f"{objective}/scores").reshape(shape)[:, 0]
    after = run.values(f"{objective}/logits").reshape(shape)[:, -1]
    part = getattr(run.problem, objective)
    before = np.concatenate([run.constant([part.logits]), after[:-1]])
    baselines = np.take_along_axis(scores, actions, axis=-1) - advantages
    expected = oracle.expected_score(before, scores)[:, None] - baselines
    name = f"{objective}: expected advantage under the old policy 0"
    return _Claim(name, expected, np.zeros_like(expected), allowed)


def _width(run: _Run, objective: str) -> int:
    return int(run.trace[f"{objective}/logits"].shape[-1])


def _ppo(run: _Run) -> Iterator[_Claim]:
    old, ratios = run.values("ppo/old_logps"), run.values("ppo/ratios")
    advantages = run.values("ppo/advantages")
    assert run.problem.ppo is not None
    for name, values in (("old_logps", old), ("advantages", advantages)):
        kept = np.broadcast_to(values[:, :1], values.shape)
        yield _Claim(f"ppo/{name} fixed within a rollout", values, kept)
    first = run.allowed("ppo/old_logps")[:, 0]
    yield _Claim(
        "ppo/old_logps those of the policy that starts the rollout",
        old[:, 0],
        run.steps.values["ppo/old_logps"][:, 0],
        first,
    )
    yield _total_probability(run, old[:, 0], first)
    yield _Claim(
        "ppo/ratios exactly 1 at the first epoch", ratios[:, 0], np.ones_like(ratios[:, 0])
    )
    allowed = run.allowed("ppo/advantages")[:, 0]
    yield _centred(run, "ppo", advantages[:, 0], allowed)
    clip = run.constant([[run.problem.ppo.clip]])
    yield _Claim(
        "ppo/surrogate the mean of the per-sample terms",
        run.values("ppo/surrogate"),
        oracle.surrogate(ratios, advantages, clip),
        run.allowed("ppo/surrogate"),
    )
    frozen = ("old_logps", "advantages", "reference")
    yield from _zero(run.trace, *(f"ppo/gradient_{name}" for name in frozen))


def _total_probability(run: _Run, old: Array, allowed: Array) -> _Claim:
    """Old probabilities of the actions that a rollout sampled: 1 if all were, else at most 1."""
    actions = run.trace["ppo/actions"]
    probabilities = np.zeros((len(actions), _width(run, "ppo")))
    margins = np.zeros_like(probabilities)
    np.put_along_axis(probabilities, actions, np.exp(old), axis=1)
    np.put_along_axis(margins, actions, np.exp(old) * allowed, axis=1)
    total = probabilities.sum(-1)
    complete = (probabilities > 0).all(-1)
    required = np.where(complete, 1.0, np.minimum(total, 1.0))
    return _Claim("ppo/old_logps normalised", total, required, margins.sum(-1))


def _reinforce(run: _Run) -> Iterator[_Claim]:
    advantages = run.values("reinforce/advantages")
    yield _centred(run, "reinforce", advantages, run.allowed("reinforce/advantages"))
    frozen = ("advantages", "reference")
    yield from _zero(run.trace, *(f"reinforce/gradient_{name}" for name in frozen))


def _at_probes(points: Points, expected: Expected, evaluated: Trace) -> Iterator[_Claim]:
    """What must hold at fixed states: frozen inputs get no gradient, and the KL is one."""
    shapes = {name: quantity.values.shape for name, quantity in evaluated.quantities.items()}
    if shapes != {name: values.shape for name, values in expected.values.items()}:
        return  # the structure is broken, and reported as such
    for name in expected.values:
        if "/gradient_" in name:
            (claim,) = _zero(evaluated, name)
            yield claim._replace(name=f"{claim.name} at the probes ({points.grid})")
    name = f"{points.objective}/kl_penalty"
    if name not in expected.values:
        return
    penalties, allowed = evaluated[name].astype(np.float64), expected.allowed[name]
    logits, reference = points.inputs["logits"], points.inputs["reference"]
    mass = np.log(np.exp(reference).sum(-1))  # of a float32 reference: not quite 0
    claim = _not_negative(name, penalties + mass, allowed)
    yield claim._replace(name=f"{claim.name} at the probes ({points.grid})")
    spacing = np.spacing(np.abs(reference).astype(np.float32)).astype(np.float64)
    at = (np.abs(oracle.log_softmax(logits) - reference) <= spacing).all(-1)
    if at.any():
        rounding = (np.exp(reference) * spacing).sum(-1)
        zeros = np.zeros(int(at.sum()))
        name = f"{name} 0 at the reference ({points.grid})"
        yield _Claim(name, penalties[at], zeros, (allowed + rounding)[at])
