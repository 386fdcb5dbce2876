"""What a user's function computed, held against the oracle: the report of `parity check`."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from parity import gate
from parity.arithmetic.measure import FLOAT64_SCALE, Expected
from parity.comparison import (
    ORACLE,
    Comparison,
    Entry,
    Mode,
    Verdict,
    compare,
    worst_verdict,
)
from parity.objectives import Objective, find
from parity.objectives.evaluation import parts
from parity.points import Points
from parity.problem import Problem
from parity.quantities import Declared, evaluated, expected
from parity.report import Diagnosis, LessonReport
from parity.samples import Samples
from parity.states import recorded_points
from parity.structure import structure, uncompared
from parity.trace import Quantity, Trace
from parity.widening import Widened, Widening, widen

__all__ = ["Cell", "CheckReport", "Found", "Scene", "judged", "probed", "trained"]


IN_FLOAT32 = "in float64 it computes with the accuracy of float32"
"""Why a float64 run is noisy that its own bound does not explain."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where a function is wrong.

    Attributes:
        dtype: of the run.
        mode: points, step or trajectory.
        grid: which points.
        label: the state, in words.
        quantity: what is wrong there.
        entry: the values; `left` is the function's, `right` the oracle's.
    """

    dtype: str
    mode: Mode
    grid: str
    label: str
    quantity: str
    entry: Entry


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one function.

    Attributes:
        schema_version: of this document.
        verdict: match, noisy, inconclusive or divergent.
        target: the function, as it was named.
        objective: as the user named it.
        framework: jax, torch or numpy.
        adapter: the user's function that calls it; empty where there is none.
        signature: as it was found.
        matched: parameter to our input.
        convention: how it states the objective.
        fault: what it did wrong beside its values; empty otherwise.
        notes: what is remarkable and harmless.
        first: the first failing cell; None where nothing fails.
        diagnosis: the known fault that it behaves like.
        repro: the smallest failing input as a Python program; empty where nothing fails.
        environment: versions; part of no digest.
        lessons: the comparisons, one entry for each dtype.
        widened: allowances that are wider for a time, and what they let pass.
        name: its name in `[tool.parity]`; empty where it has none.
    """

    schema_version: int = 1
    verdict: Verdict
    target: str
    objective: str
    framework: str
    adapter: str = ""
    signature: str
    matched: dict[str, str]
    convention: dict[str, Any]
    fault: str = ""
    notes: list[str] = []
    first: Cell | None = None
    diagnosis: Diagnosis | None = None
    repro: str = ""
    environment: dict[str, str] = {}
    lessons: list[LessonReport] = []
    widened: list[Widening] = []
    name: str = ""


class Scene(NamedTuple):
    """Some states, the oracle there, and what a function computed.

    Attributes:
        mode: points, step or trajectory.
        points: the states; None for a whole run.
        specs: what the function reports, with its shapes.
        oracle: the values and allowances.
        trace: what the function computed.
    """

    mode: Mode
    points: Points | None
    specs: dict[Declared, tuple[int, ...]]
    oracle: Expected
    trace: Trace


class Found(NamedTuple):
    """A failing cell: how bad, and where in the order of the grid."""

    verdict: Verdict
    position: tuple[int, ...]
    cell: Cell


def probed(grid: Points, oracle: Expected, trace: Trace, framework: str) -> Scene:
    """A grid of points; a NumPy function has no gradients."""
    objective = find(grid.objective)
    declared = _reported(objective, evaluated(grid.objective, grid.sizes), framework)
    return Scene("points", grid, declared, oracle, trace)


def trained(
    problem: Problem, objective: Objective, run: Trace, dtype: str, choices: Mapping[str, str]
) -> list[Scene]:
    """A run in step mode, every update as a state of its own, and in trajectory mode."""
    samples = Samples.load(Path(problem.samples)) if problem.samples and problem.tape else None
    steps, flat = recorded_points(problem, objective, run, samples)
    declared = _reported(objective, evaluated(steps.objective, steps.sizes))
    whole = gate.whole_run(problem, samples, dtype, choices)
    return [
        Scene("step", steps, declared, gate.evaluate_points(steps, dtype, choices), flat),
        Scene("trajectory", None, _reported(objective, expected(problem)), whole, run),
    ]


def _reported(
    objective: Objective, declared: Mapping[Declared, tuple[int, ...]], framework: str = ""
) -> dict[Declared, tuple[int, ...]]:
    """What a user's function reports: no parts, and without gradients the loss alone."""
    loss = f"{objective.name}/loss"
    unknown = {f"{objective.name}/{name}" for name in parts(objective)}
    return {
        each: shape
        for each, shape in declared.items()
        if each.name not in unknown and (framework != "numpy" or each.name == loss)
    }


def judged(
    name: str, scenes: Mapping[str, Sequence[Scene]], rules: Sequence[Widened] = ()
) -> tuple[list[LessonReport], list[Found]]:
    """Holds every scene against the oracle: a report for each dtype, and every failing cell.

    Args:
        name: of the function.
        scenes: dtype to what was computed in it.
        rules: allowances that are wider for a time.
    """
    lessons: list[LessonReport] = []
    found: list[Found] = []
    for turn, (dtype, played) in enumerate(scenes.items()):
        comparisons: list[Comparison] = []
        for place, scene in enumerate(played):
            for rank, measured in enumerate(_against_oracle(scene, name, dtype)):
                comparison = widen(measured, rules)
                comparisons.append(comparison)
                if comparison.first:
                    at = comparison.first.index[0] if comparison.first.index else 0
                    cell = _cell(comparison, comparison.first, scene, dtype)
                    found.append(Found(comparison.verdict, (turn, place, at, rank), cell))
        verdict = worst_verdict(c.verdict for c in comparisons)
        lessons.append(
            LessonReport(
                lesson=name,
                verdict=verdict,
                dtype=dtype,
                problem_digest=played[0].trace.problem_digest,
                blamed=[] if verdict == "match" else [name],
                comparisons=comparisons,
            )
        )
    return lessons, found


def _cell(comparison: Comparison, entry: Entry, scene: Scene, dtype: str) -> Cell:
    label = scene.points.labels[entry.index[0]] if scene.points else ""
    if not scene.points:
        at = zip(comparison.axes, entry.index, strict=True)
        label = ", ".join(f"{axis} {i}" for axis, i in at)
    return Cell(
        dtype=dtype,
        mode=comparison.mode,
        grid=comparison.grid,
        label=label,
        quantity=comparison.quantity,
        entry=entry,
    )


def _against_oracle(scene: Scene, name: str, dtype: str) -> list[Comparison]:
    grid = scene.points.grid if scene.points else "run"
    complaints = structure(scene.trace, scene.specs, dtype)
    comparisons = []
    for spec, shape in scene.specs.items():
        if spec.name in complaints:
            verdict, reason = complaints[spec.name]
            comparisons.append(
                uncompared(
                    spec,
                    shape,
                    mode=scene.mode,
                    grid=grid,
                    sides=(name, ORACLE),
                    verdict=verdict,
                    reason=reason,
                )
            )
            continue
        values = scene.oracle.values[spec.name]
        held = partial(
            compare,
            scene.trace.quantities[spec.name],
            Quantity(spec.name, spec.axes, spec.kind, values),
            scene.oracle.allowed[spec.name],
            mode=scene.mode,
            grid=grid,
            sides=(name, ORACLE),
            dtype=dtype,
        )
        bound = scene.oracle.bound.get(spec.name)
        comparison = held(bound=bound)
        if dtype == "float64" and bound is not None and comparison.verdict == "divergent":
            legal = scene.oracle.allowed[spec.name] / FLOAT64_SCALE  # in float32
            comparison = held(bound=np.maximum(bound, legal))
            if comparison.verdict == "noisy":
                comparison = msgspec.structs.replace(comparison, reason=IN_FLOAT32)
        comparisons.append(comparison)
    return comparisons
