"""What must hold inside one trace, whoever computed it.

Each invariant says, in quantities of the trace, that two things are equal or that one does not
exceed the other: exactly, or within the allowance of what it is made of. Most follow from the kind
of a quantity; an objective adds its own laws.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.arithmetic.measure import Expected
from parity.comparison import Entry, Verdict, compare
from parity.lessons.oracle import rounded
from parity.objectives import Objective, find
from parity.objectives.evaluation import called
from parity.objectives.spec import Claim, Training
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


class _Run:
    """An objective's share of a trace, by name: quantities in float64, constants, allowances.

    Laws also ask for `allowed` and `expected` (functions of a name: the allowance in step mode, and
    what the oracle re-derived) and for `start`, the parameter before the first update.
    """

    def __init__(
        self, objective: Objective, training: Training, table: Any, trace: Trace, steps: Expected
    ) -> None:
        self.objective, self.training, self.trace, self.steps = objective, training, trace, steps
        self.given = {n: rounded(v, trace.dtype) for n, v in training.given(table).items()}

    def __getitem__(self, name: str) -> Any:
        if name in ("allowed", "expected"):
            return getattr(self, name)
        if name == "start":
            return self.given[self.objective.parameter]
        full = self.full(name)
        return self.values(name) if full in self.trace else self.given[name]

    def full(self, name: str) -> str:
        """The quantity's whole name."""
        return f"{self.objective.name}/{name}"

    def values(self, name: str) -> Array:
        """A quantity, as float64; indices as they are."""
        array = self.trace[self.full(name)]
        return array if array.dtype.kind == "i" else array.astype(np.float64)

    def allowed(self, name: str) -> Array:
        """Its allowance in step mode."""
        return self.steps.allowed[self.full(name)]

    def bound(self, name: str) -> Array:
        """The most by which rounding could have moved it."""
        return self.steps.bound[self.full(name)]

    def expected(self, name: str) -> Array:
        """What the oracle re-derived."""
        return self.steps.values[self.full(name)]


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
    claims: list[Claim] = []
    for objective, training, table in problem.parts():
        run = _Run(objective, training, table, trace, steps)
        claims += [*_carried(run), *_sampled(run, tape), *_of_kinds(run)]
        for law in training.laws:
            claims += called(law, run)
        claims += _gradients(objective, run.values, run.bound)
    for points, expected, evaluated in probes:
        claims += _at_probes(points, expected, evaluated)
    return [_check(claim, trace) for claim in claims]


def _check(claim: Claim, trace: Trace) -> Invariant:
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


def _carried(run: _Run) -> Iterator[Claim]:
    """What is carried stays; it and the final policy are distributions where they should be."""
    training, taken = run.training, run.training.takes
    for value in training.carried:
        name, rows = run.full(value.name), run.values(value.name)
        flat = rows.reshape(-1, *rows.shape[len(training.loops) :])
        before = taken.get(value.name, "")
        first = run.trace[before].astype(np.float64) if before in run.trace else flat[0]
        yield Claim(f"{name} {value.law}", rows, np.broadcast_to(first, rows.shape))
        if value.normalised:
            computed = run.allowed(value.name).reshape(flat.shape)[0]  # later updates only copy it
            yield _sums_to_one(f"{name} normalised", np.exp(rows), np.exp(rows) * computed)
    for value in training.ends:
        if value.kind == "probability":
            name = f"{run.full(value.name)} sum to 1"
            yield _sums_to_one(name, run.values(value.name), run.allowed(value.name))


def _sums_to_one(name: str, probabilities: Array, allowed: Array) -> Claim:
    total = np.atleast_1d(probabilities.sum(-1))
    return Claim(name, total, np.ones_like(total), np.atleast_1d(allowed.sum(-1)))


def _sampled(run: _Run, tape: Array | None) -> Iterator[Claim]:
    """The tape is what was to be replayed, and what is collected stays for the whole rollout."""
    training = run.training
    if not training.tape:
        return
    assert tape is not None
    name = run.full(training.tape)
    yield Claim(f"{name} identical to the tape", run.trace[name], tape)
    for value in training.collected if len(training.loops) > 1 else ():
        rows = run.values(value.name)
        kept = np.broadcast_to(rows[:, :1], rows.shape)
        yield Claim(f"{run.full(value.name)} fixed within a rollout", rows, kept)


def _of_kinds(run: _Run) -> Iterator[Claim]:
    for value in (*run.objective.values, *run.training.measured):
        if value.recorded and value.nonnegative:
            rows = run.values(value.name)
            name, allowed = f"{run.full(value.name)} not negative", run.allowed(value.name)
            yield Claim(name, -rows, np.zeros_like(rows), allowed, at_most=True)


def _gradients(objective: Objective, values: Any, bound: Any) -> Iterator[Claim]:
    """Frozen inputs get none; what a constant can be added to gets one that sums to 0.

    Within the bound: a gradient that is noisy is not divergent for its sum.
    """
    for name, of in objective.gradients.items():
        each = objective.by_input[of]
        if each.role == "frozen":
            yield Claim(
                f"{objective.name}/{name} exactly 0", values(name), np.zeros_like(values(name))
            )
        elif each.shiftable:
            total = np.atleast_1d(values(name).sum(-1))
            limit = np.atleast_1d(bound(name).sum(-1))
            yield Claim(f"{objective.name}/{name} sums to 0", total, np.zeros_like(total), limit)


def _at_probes(points: Points, expected: Expected, evaluated: Trace) -> Iterator[Claim]:
    """What must hold at fixed states."""
    shapes = {name: quantity.values.shape for name, quantity in evaluated.quantities.items()}
    if shapes != {name: values.shape for name, values in expected.values.items()}:
        return  # the structure is broken, and reported as such
    objective = find(points.objective)

    def values(name: str) -> Array:
        return evaluated[f"{objective.name}/{name}"].astype(np.float64)

    def allowed(name: str) -> Array:
        return expected.allowed[f"{objective.name}/{name}"]

    def bound(name: str) -> Array:
        return expected.bound[f"{objective.name}/{name}"]

    for claim in _gradients(objective, values, bound):
        yield replace(claim, name=f"{claim.name} at the probes ({points.grid})")
    recorded = {value.name: values(value.name) for value in objective.values if value.recorded}
    names = {**points.inputs, **recorded, "allowed": allowed}
    for law in objective.laws:
        for claim in called(law, names):
            yield replace(claim, name=f"{claim.name} ({points.grid})")
