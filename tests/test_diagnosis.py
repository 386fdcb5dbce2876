"""A divergent implementation is told which known fault it behaves like."""

from pathlib import Path

import pytest

import parity.torch_impl.backend
import parity.torch_impl.ppo
from parity import diagnosis, gate
from parity.lessons.probes import core
from parity.objectives import find
from parity.objectives.planting import fault_named
from parity.problem import load_problem
from parity.samples import Samples

PPO = find("ppo")


@pytest.fixture(scope="module")
def lesson():
    problem = load_problem("posttraining-04")
    samples = Samples.load(Path(problem.samples))
    return (
        problem,
        samples,
        gate.whole_run(problem, samples, "float32"),
        [
            (grid, gate.evaluate_points(grid, "float32"))
            for grid in (core(find("reward")), core(PPO))
        ],
    )


def trained(lesson, pieces) -> gate.Case:
    """The lesson in PyTorch alone, with the given pieces of PPO."""
    problem, samples, trajectory, grids = lesson
    backend = parity.torch_impl.backend
    run = backend.train(problem, samples, "float32", {"ppo": pieces})
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
                backend.evaluate(grid, "float32", pieces.loss if grid.objective == "ppo" else None)
                for grid, _ in grids
            ]
        },
    )


def planted(lesson, fault: str) -> gate.Case:
    return trained(lesson, parity.torch_impl.backend.planted("ppo", fault))


def test_a_known_fault_is_named(lesson):
    case = planted(lesson, "old-recomputed")
    report = gate.judge(case)
    found = diagnosis.diagnose(case, report.comparisons, "torch")
    assert found.fault == "old-recomputed"
    assert "old log-probs are recomputed" in found.sentence
    assert found.tried > len(found.indistinguishable) + 1


def test_an_unknown_fault_is_not_given_a_name(lesson):
    ours = parity.torch_impl.ppo.PIECES

    def loss(*arguments):
        value, terms = ours.loss(*arguments)
        return 1.001 * value, terms

    case = trained(lesson, ours._replace(loss=loss))
    report = gate.judge(case)
    assert report.verdict == "divergent"
    found = diagnosis.diagnose(case, report.comparisons, "torch")
    assert found.fault == ""
    assert found.tried > 0


def test_suspects_start_where_the_implementation_parts(lesson):
    case = planted(lesson, "baseline-lost")
    suspects = diagnosis.suspects([find("reward"), PPO], gate.judge(case).comparisons, "torch")
    assert {objective.name for objective, _ in suspects} == {"ppo"}
    expected = {fault.name for fault in PPO.faults if fault.first == "ppo/advantages"}
    assert {fault.name for _, fault in suspects} == expected


def test_an_honest_run_behaves_as_no_fault(lesson):
    case = trained(lesson, parity.torch_impl.ppo.PIECES)
    fault = fault_named(PPO, "kl-sign")
    assert not diagnosis.behaves_as(case, "torch", PPO, fault)
    assert diagnosis.behaves_as(planted(lesson, "kl-sign"), "torch", PPO, fault)
