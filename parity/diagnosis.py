"""Does an implementation that diverges behave as a known fault does?

The faults are edits of the objective's definitions, and run in the oracle's arithmetic: plain
NumPy of the run's own dtype, with infinities and NaN as the frameworks have them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.arithmetic.measure import Emission, Expected, measure, time_first
from parity.arithmetic.tape import as_frameworks_do
from parity.comparison import ORACLE, Comparison, first_divergence
from parity.gate import Case
from parity.lessons import oracle
from parity.objectives import Objective
from parity.objectives.spec import Fault
from parity.points import Points
from parity.quantities import evaluated
from parity.report import Diagnosis
from parity.trace import Quantity, Trace

__all__ = [
    "alike",
    "behaves_as",
    "diagnose",
    "faulty_points",
    "faulty_run",
    "measured_points",
    "suspects",
]

NEAR = 0.5  # of the entries, for a fault that is worth a second look


def faulty_points(
    points: Points, fault: Fault, dtype: str, choices: Mapping[str, str] | None = None
) -> Trace:
    """What a fault computes at fixed states, in plain arithmetic of a dtype."""
    lift = partial(_plain, dtype=dtype)
    return _traced(points, oracle.at_points(points, lift, choices, fault), dtype)


def measured_points(
    points: Points, fault: Fault, dtype: str, choices: Mapping[str, str] | None = None
) -> Expected:
    """A fault's own values at fixed states, and how far rounding may move them."""
    shapes = {d.name: shape for d, shape in evaluated(points.objective, points.sizes).items()}
    with as_frameworks_do():
        return measure(
            lambda lift: oracle.at_points(points, lift, choices, fault),
            shapes,
            dtype,
            rigorous=False,
        )


def faulty_run(case: Case, objective: Objective, fault: Fault) -> Trace:
    """What a fault does to a whole run, in plain arithmetic of its dtype."""
    lift = partial(_plain, dtype=case.dtype)
    actions = case.samples.actions if case.samples else None
    played = oracle.trajectory(
        case.problem, actions, case.dtype, lift, faults={objective.name: fault}
    )
    rows: dict[str, NDArray[Any]] = {
        name: np.zeros(values.shape, values.dtype if values.dtype.kind == "i" else case.dtype)
        for name, values in case.trajectory.values.items()
    }
    with np.errstate(all="ignore"), as_frameworks_do():
        for where, batch, values in played:
            for name, value in values.items():
                rows[name][where] = time_first(value, batch)
    quantities = {name: Quantity(name, ("entry",) * v.ndim, "value", v) for name, v in rows.items()}
    return Trace("fault", case.dtype, quantities)


def _plain(values: Any, dtype: str) -> NDArray[Any]:
    array = np.asarray(values)
    return array.astype(dtype) if array.dtype.kind == "f" else array


def _traced(points: Points, emissions: Iterator[Emission], dtype: str) -> Trace:
    with np.errstate(all="ignore"), as_frameworks_do():
        ((_, batch, values),) = emissions
    quantities = {}
    for declared, shape in evaluated(points.objective, points.sizes).items():
        array = np.broadcast_to(time_first(values[declared.name], batch), shape).astype(dtype)
        quantities[declared.name] = Quantity(declared.name, declared.axes, declared.kind, array)
    return Trace("fault", dtype, quantities)


def suspects(
    objectives: Sequence[Objective], comparisons: list[Comparison], implementation: str
) -> list[tuple[Objective, Fault]]:
    """The faults whose first quantity is the one at which the implementation parts.

    Where none starts there, all faults of the same objective.
    """
    mine = [c for c in comparisons if c.left == implementation and c.right == ORACLE]
    firsts = set()
    for of_points in (False, True):
        first = first_divergence([c for c in mine if (c.mode == "points") == of_points])
        if first:
            firsts.add(first.quantity)
    bugs = [(o, fault) for o in objectives for fault in o.faults if not fault.equivalent]
    parted = {quantity.partition("/")[0] for quantity in firsts}
    same = [(o, fault) for o, fault in bugs if fault.first in firsts]
    return same or [(o, fault) for o, fault in bugs if o.name in parted]


def diagnose(case: Case, comparisons: list[Comparison], implementation: str) -> Diagnosis:
    """Compares a divergent implementation with the known faults.

    First at the points, then by their own run on the same tape. A fault is named where every
    value of both agrees with the implementation's within the allowance.

    Args:
        case: the problem with its traces.
        comparisons: what the gate found.
        implementation: the one that diverges.
    """
    objectives = [objective for objective, _, _ in case.problem.parts()]
    candidates = suspects(objectives, comparisons, implementation)
    like = [f for o, f in candidates if behaves_as(case, implementation, o, f)]
    return Diagnosis(
        implementation=implementation,
        fault=like[0].name if like else "",
        sentence=like[0].sentence if like else "",
        indistinguishable=[fault.name for fault in like[1:]],
        tried=len(candidates),
    )


def behaves_as(case: Case, implementation: str, objective: Objective, fault: Fault) -> bool:
    """Whether every value of an implementation agrees with a fault's, within the allowance."""
    played = case.evaluations.get(implementation, ())
    for mine, (points, expected) in zip(played, case.grids, strict=True):
        known = fault if points.objective == objective.name else Fault("", "", "", "")
        planted = faulty_points(points, known, case.dtype)
        shown = partial(measured_points, points, known, case.dtype)
        if not alike(mine, planted, expected, shown):
            return False
    run = faulty_run(case, objective, fault)
    return alike(case.traces[implementation], run, case.trajectory)


def alike(
    mine: Trace, planted: Trace, oracle: Expected, measured: Callable[[], Expected] | None = None
) -> bool:
    """Whether every value that both have agrees, within the allowance, at the same points.

    Args:
        mine: an implementation's values.
        planted: a fault's, in plain arithmetic.
        oracle: the right values; their allowances are tried first.
        measured: computes the fault's own values and allowances, for what comes near: a fault may
            be worse conditioned than what is right, and stand on a kink of its own.
    """
    names = list(_shared(mine.quantities, planted.quantities))
    agree = {name: _near(mine[name], planted[name], oracle, name) for name in names}
    if not names or all(each.all() for each in agree.values()):
        return bool(names)
    if measured is None or any(each.mean() < NEAR for each in agree.values()):
        return False
    own = measured()
    for name, each in agree.items():
        near = _near(mine[name], own.values[name], own, name)
        right, wrong = (
            _near(x, oracle.values[name], oracle, name) for x in (mine[name], planted[name])
        )
        if not (each | (near & ~(right & ~wrong))).all():  # what is right where the fault is not
            return False
    return True


def _shared(mine: Mapping[str, Any], planted: Mapping[str, Any]) -> Iterator[str]:
    """Quantities that both have in the same shape."""
    for name, quantity in planted.items():
        if name in mine and mine[name].values.shape == quantity.values.shape:
            yield name


def _near(mine: NDArray[Any], planted: NDArray[Any], oracle: Expected, name: str) -> NDArray[Any]:
    """Within twice the allowance, which grows with a value that has left the oracle's behind."""
    with np.errstate(all="ignore"):
        left, right = mine.astype(np.float64), planted.astype(np.float64)
        size = np.maximum(1.0, np.abs(right) / np.abs(oracle.values[name]))
        allowed = 2 * oracle.allowed[name] * np.where(np.isfinite(size), size, 1.0)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        near: NDArray[Any] = same | (np.abs(left - right) <= allowed)
        return near
