"""Coverage is counted from the traces; a branch that nothing exercised is never a match."""

from dataclasses import replace

import numpy as np
import pytest

from parity import gate
from parity.coverage import cover
from parity.lessons.probes import core
from parity.points import Points


def without(grid: Points, prefix: str) -> Points:
    """The grid less the points whose label starts so."""
    kept = [i for i, label in enumerate(grid.labels) if not label.startswith(prefix)]
    assert len(kept) < len(grid.labels)
    return Points(
        grid.objective,
        grid.grid,
        tuple(grid.labels[i] for i in kept),
        {name: values[kept] for name, values in grid.inputs.items()},
    )


def grids_of(problem) -> list[Points]:
    return [core(objective) for objective, _, _ in problem.parts()]


@pytest.mark.parametrize(
    "lesson", ["posttraining-04", "posttraining-05", "policy-gradient-kl-control"]
)
def test_run_and_probes_reach_every_branch(trace_of, problems, tapes, evaluate, lesson):
    problem, grids = problems[lesson], grids_of(problems[lesson])
    traces = {name: trace_of(lesson, name) for name in ("jax", "torch")}
    evaluations = {name: [evaluate(name, grid) for grid in grids] for name in traces}
    coverage = cover(problem, tapes.get(lesson), traces, grids, evaluations)
    assert coverage.exercised == len(coverage.cells)
    assert coverage.by_run < coverage.exercised


def test_the_recorded_lesson_leaves_the_interval_96_times_in_one_cell(trace_of, problems, tape):
    run = trace_of("posttraining-04", "jax")
    coverage = cover(problems["posttraining-04"], tape, {"jax": run}, [], {})
    counts = {c.cell: c.run["jax"] for c in coverage.cells if c.objective == "ppo"}
    outside = {cell: n for cell, n in counts.items() if n and "inside" not in cell}
    # 96 of 15,360 sample-updates, all with A < 0 and a ratio below 0.8: measured facts, design.md
    assert outside == {"A < 0, ratio just below": 96}
    assert sum(counts.values()) == 15_360


@pytest.mark.parametrize(
    ("objective", "prefix", "cell"),
    [
        ("ppo", "A = 0, ratio inside", "A = 0, ratio inside"),
        ("ppo", "A > 0, ratio just below", "A > 0, ratio just below"),
        ("reward", "weights that contradict", "-20 <= z < 0"),
    ],
)
def test_a_deleted_probe_makes_the_verdict_inconclusive(
    trace_of, problems, tapes, expected_of, evaluate, objective, prefix, cell
):
    lesson = "posttraining-04"
    problem, tape, run = problems[lesson], tapes[lesson], trace_of(lesson, "torch")
    grids = grids_of(problem)

    def judged(chosen: list[Points]):
        case = gate.Case(
            problem=problem,
            samples=tape,
            dtype="float32",
            traces={"torch": run},
            steps={"torch": gate.rederive(problem, tape, run, "float32")},
            trajectory=expected_of(lesson),
            grids=[(grid, gate.evaluate_points(grid, "float32")) for grid in chosen],
            evaluations={"torch": [evaluate("torch", grid) for grid in chosen]},
        )
        return gate.judge(case)

    assert judged(grids).verdict == "match"
    report = judged([without(g, prefix) if g.objective == objective else g for g in grids])
    assert report.verdict == "inconclusive"
    missing = [(c.objective, c.cell) for c in report.coverage.cells if not c.exercised]
    assert missing == [(objective, cell)]


@pytest.mark.parametrize(
    ("ratio", "part"),  # posttraining-04 clips at 0.2; far is beyond twice that
    [
        (0.55, "far below"),
        (0.65, "just below"),
        (0.81, "inside"),
        (1.19, "inside"),
        (1.35, "just above"),
        (1.45, "far above"),
    ],
)
def test_a_sample_update_is_in_one_cell(trace_of, problems, tape, ratio, part):
    run = trace_of("posttraining-04", "torch")
    ratios = run.quantities["ppo/ratios"]
    moved = replace(ratios, values=np.full_like(ratios.values, ratio))
    other = replace(run, quantities={**run.quantities, "ppo/ratios": moved})
    coverage = cover(problems["posttraining-04"], tape, {"torch": other}, [], {})
    counts = {c.cell: c.run["torch"] for c in coverage.cells if c.objective == "ppo" and c.run}
    assert {cell.partition("ratio ")[2] for cell, count in counts.items() if count} == {part}
    assert sum(counts.values()) == ratios.values.size


@pytest.mark.parametrize(
    ("margin", "cell"),
    [(-25, "z < -20"), (-15, "-20 <= z < 0"), (15, "0 <= z < 20"), (25, "z >= 20")],
)
def test_a_margin_is_in_one_cell(trace_of, problems, margin, cell):
    problem, run = problems["posttraining-05"], trace_of("posttraining-05", "torch")
    margins = run.quantities["dpo/margins"]
    values = np.full_like(margins.values, margin / problem.dpo.beta)
    other = replace(
        run, quantities={**run.quantities, "dpo/margins": replace(margins, values=values)}
    )
    counts = {c.cell: c.run["torch"] for c in cover(problem, None, {"torch": other}, [], {}).cells}
    assert {name: count for name, count in counts.items() if count} == {cell: values.size}


def test_every_implementation_must_go_through_a_branch(trace_of, problems, evaluate):
    problem = problems["posttraining-05"]
    (grid,) = grids_of(problem)
    run, evaluated = trace_of("posttraining-05", "torch"), evaluate("torch", grid)
    margins = evaluated.quantities["dpo/margins"]
    lost = replace(margins, values=np.full_like(margins.values, np.nan))
    other = replace(evaluated, quantities={**evaluated.quantities, "dpo/margins": lost})
    traces = {"torch": run, "other": run}
    whole = cover(problem, None, traces, [grid], {"torch": [evaluated], "other": [evaluated]})
    half = cover(problem, None, traces, [grid], {"torch": [evaluated], "other": [other]})
    assert half.exercised < whole.exercised == len(whole.cells)


def test_nothing_is_covered_by_nothing(problems):
    coverage = cover(problems["posttraining-05"], None, {}, [], {})
    assert coverage.exercised == coverage.by_run == 0
    assert coverage.cells
