"""A divergent implementation is told which known fault it behaves like."""

from pathlib import Path

import parity.torch_impl.faults
import pytest

import parity.torch_impl.backend
import parity.torch_impl.ppo
from parity import diagnosis, gate, probes
from parity.faults import catalogue
from parity.problem import load_problem
from parity.samples import Samples


@pytest.fixture(scope="module")
def lesson():
    problem = load_problem("posttraining-04")
    samples = Samples.load(Path(problem.samples))
    grids = [g for g in probes.core() if g.objective in ("reward", "ppo")]
    return (
        problem,
        samples,
        gate.whole_run(problem, samples, "float32"),
        [(grid, gate.evaluate_points(grid, "float32")) for grid in grids],
    )


def planted(lesson, pieces) -> gate.Case:
    problem, samples, trajectory, grids = lesson
    run = parity.torch_impl.backend.train(problem, samples, "float32", pieces)
    return gate.Case(
        problem=problem,
        samples=samples,
        dtype="float32",
        traces={"torch": run},
        steps={"torch": gate.rederive(problem, samples, run, "float32")},
        trajectory=trajectory,
        grids=grids,
        evaluations={
            "torch": [
                parity.torch_impl.backend.evaluate(grid, "float32", pieces) for grid, _ in grids
            ]
        },
    )


def test_a_known_fault_is_named(lesson):
    case = planted(lesson, parity.torch_impl.faults.FAULTS["old-recomputed"])
    report = gate.judge(case)
    found = diagnosis.diagnose(case, report.comparisons, "torch", 120, lambda *_: None)
    assert found.fault == "old-recomputed"
    assert "old log-probs are recomputed" in found.sentence
    assert found.tried > len(found.indistinguishable) + 1


def test_an_unknown_fault_is_not_given_a_name(lesson):
    def loss(*arguments):
        value, terms = parity.torch_impl.ppo.ppo_loss(*arguments)
        return 1.001 * value, terms

    ours = parity.torch_impl.backend.PIECES
    case = planted(lesson, ours._replace(ppo=ours.ppo._replace(loss=loss)))
    report = gate.judge(case)
    assert report.verdict == "divergent"
    found = diagnosis.diagnose(case, report.comparisons, "torch", 120, lambda *_: None)
    assert found.fault == ""
    assert found.tried > 0


def test_suspects_start_where_the_implementation_parts(lesson):
    case = planted(lesson, parity.torch_impl.faults.FAULTS["baseline-lost"])
    suspects = diagnosis.suspects(gate.judge(case).comparisons, "torch")
    expected = {f.name for f in catalogue().fault if f.first == "ppo/advantages"}
    assert {fault.name for fault in suspects} == expected


def test_an_honest_run_behaves_as_no_fault(lesson):
    case = planted(lesson, parity.torch_impl.backend.PIECES)
    faulty = planted(lesson, parity.torch_impl.faults.FAULTS["kl-sign"])
    run, probes = faulty.traces["torch"], list(faulty.evaluations["torch"])
    assert not diagnosis.behaves_as(case, "torch", run, probes)
    assert diagnosis.behaves_as(faulty, "torch", run, probes)
