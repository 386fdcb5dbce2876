"""Does an implementation that diverges behave as a known fault does?"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity import faults
from parity.backends import FAULT_MODULES, Progress, Workers, load_trace
from parity.comparison import ORACLE, Comparison, first_divergence
from parity.faults import Fault
from parity.gate import Case
from parity.noise import Expected
from parity.report import Diagnosis
from parity.trace import Trace
from parity.worker import Job, Plant

__all__ = ["alike", "behaves_as", "diagnose", "suspects"]


def suspects(comparisons: list[Comparison], implementation: str) -> list[Fault]:
    """The faults whose first quantity is the one at which the implementation parts.

    Where none starts there, all faults of the same objective.
    """
    mine = [c for c in comparisons if c.left == implementation and c.right == ORACLE]
    firsts = set()
    for of_points in (False, True):
        first = first_divergence([c for c in mine if (c.mode == "points") == of_points])
        if first:
            firsts.add(first.quantity)
    bugs = [fault for fault in faults.catalogue().fault if not fault.equivalent]
    objectives = {quantity.partition("/")[0] for quantity in firsts}
    same = [fault for fault in bugs if fault.first in firsts]
    return same or [fault for fault in bugs if fault.objective in objectives]


def diagnose(
    case: Case,
    comparisons: list[Comparison],
    implementation: str,
    timeout: float,
    progress: Progress,
) -> Diagnosis:
    """Compares a divergent implementation with the known faults of its framework.

    First at the points, then by their own run on the same tape. A fault is named where every
    value of both agrees with the implementation's within the allowance.

    Args:
        case: the problem with its traces.
        comparisons: what the gate found.
        implementation: the one that diverges; its framework must have a twin here.
        timeout: seconds.
        progress: called with who and what stage.

    Raises:
        BackendError: a worker failed.
    """
    candidates = suspects(comparisons, implementation)
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        points = []
        for position, (grid, _) in enumerate(case.grids):
            points.append(str(folder / f"points-{position}.safetensors"))
            grid.save(Path(points[-1]))
        tape = folder / "samples.safetensors"
        if case.samples:
            case.samples.save(tape)
        jobs: list[Job] = [
            Plant(
                FAULT_MODULES[implementation],
                fault.name,
                case.problem,
                str(tape) if case.samples else None,
                points,
                len(points),
                str(folder / fault.name),
            )
            for fault in candidates
        ]
        alike = []
        with Workers({implementation: jobs}, case.dtype, timeout, progress) as workers:
            for _, job in workers.finished():
                fault = candidates[job]
                run = load_trace(implementation, folder / f"{fault.name}.run")
                probes = [
                    load_trace(implementation, folder / f"{fault.name}.{position}")
                    for position in range(len(points))
                ]
                if behaves_as(case, implementation, run, probes):
                    alike.append(fault)
    return Diagnosis(
        implementation=implementation,
        fault=alike[0].name if alike else "",
        sentence=alike[0].sentence if alike else "",
        indistinguishable=[fault.name for fault in alike[1:]],
        tried=len(candidates),
    )


def behaves_as(case: Case, implementation: str, run: Trace, probes: list[Trace]) -> bool:
    """Whether every value of an implementation agrees with a fault's, within the allowance."""
    pairs: list[tuple[Trace, Trace, Expected]] = [
        (case.traces[implementation], run, case.trajectory),
        *(
            (mine, planted, oracle)
            for mine, planted, (_, oracle) in zip(
                case.evaluations.get(implementation, ()), probes, case.grids, strict=True
            )
        ),
    ]
    shared = [
        (mine[name], planted[name], oracle, name)
        for mine, planted, oracle in pairs
        for name in _shared(mine.quantities, planted.quantities)
    ]
    return bool(shared) and all(_alike(*values) for values in shared)


def alike(mine: Trace, planted: Trace, oracle: Expected) -> bool:
    """Whether every value that both have agrees, within the allowance, at the same points."""
    names = list(_shared(mine.quantities, planted.quantities))
    return bool(names) and all(_alike(mine[n], planted[n], oracle, n) for n in names)


def _shared(mine: Mapping[str, Any], planted: Mapping[str, Any]) -> Iterator[str]:
    """Quantities that both have in the same shape."""
    for name, quantity in planted.items():
        if name in mine and mine[name].values.shape == quantity.values.shape:
            yield name


def _alike(mine: NDArray[Any], planted: NDArray[Any], oracle: Expected, name: str) -> bool:
    """Within twice the allowance, which grows with a value that has left the oracle's behind."""
    with np.errstate(all="ignore"):
        left, right = mine.astype(np.float64), planted.astype(np.float64)
        size = np.maximum(1.0, np.abs(right) / np.abs(oracle.values[name]))
        allowed = 2 * oracle.allowed[name] * np.where(np.isfinite(size), size, 1.0)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        return bool((same | (np.abs(left - right) <= allowed)).all())
