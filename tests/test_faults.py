"""The catalogue, planted: every bug is caught where it is expected, no rewrite raises an alarm."""

from pathlib import Path

import parity.jax_impl.faults
import parity.torch_impl.faults
import pytest
from parity.probes import grid as whole_grid

import parity.faults
import parity.jax_impl.backend
import parity.torch_impl.backend
from parity import gate
from parity.errors import InputError
from parity.faults import LAYERS, Outcome, catalogue, chosen, part
from parity.samples import Samples

TWINS = {
    "jax": (parity.jax_impl.backend, parity.jax_impl.faults.FAULTS),
    "torch": (parity.torch_impl.backend, parity.torch_impl.faults.FAULTS),
}
TAPE = Path(parity.faults.__file__).with_name("faults.safetensors")
ENTRIES = {fault.name: fault for fault in catalogue().fault}
JAX_SAMPLE = (  # one of each objective and piece; `parity faults` plants the others too
    "clip-only",
    "old-recomputed",
    "advantage-not-detached",
    "whitened-by-n",
    "gradients-accumulate",
    "clamp-by-sign",
    "dpo-log-one-plus-exp",
    "dpo-reference-follows",
    "reward-hinge",
)


def played(framework: str, objective: str, fault: str = "", probes: int = 2):
    """Trains and evaluates one twin, honest or with a planted fault, at the first probe grids."""
    backend, faults = TWINS[framework]
    pieces = faults[fault] if fault else backend.PIECES
    problem = part(catalogue().problem, objective)
    samples = Samples.load(TAPE) if problem.tape else None
    run = backend.train(problem, samples, "float32", pieces)
    grids = [g for g in whole_grid() if parity.faults._probes(problem, objective, g)][:probes]
    with backend.op_by_op():
        evaluations = [backend.evaluate(grid, "float32", pieces) for grid in grids]
    return problem, samples, run, grids, evaluations


@pytest.fixture(scope="module")
def grounds():
    """Per objective, what every planted fault is compared with: computed once."""
    made = {}

    def ground(objective: str, probes: int):
        if (objective, probes) not in made:
            honest = {f: played(f, objective, probes=probes) for f in TWINS}
            problem, samples, _, grids, _ = honest["torch"]
            oracle = (
                gate.whole_run(problem, samples, "float32"),
                [(grid, gate.evaluate_points(grid, "float32")) for grid in grids],
            )
            made[objective, probes] = honest, oracle
        return made[objective, probes]

    return ground


def judged(grounds, framework: str, name: str, probes: int = 2) -> Outcome:
    fault = ENTRIES[name]
    honest, (trajectory, grids) = grounds(fault.objective, probes)
    sides = {**honest, framework: played(framework, fault.objective, name, probes)}
    problem, samples, *_ = sides[framework]
    case = gate.Case(
        problem=problem,
        samples=samples,
        dtype="float32",
        traces={f: run for f, (_, _, run, _, _) in sides.items()},
        steps={
            f: gate.rederive(problem, samples, run, "float32")
            for f, (_, _, run, _, _) in sides.items()
        },
        trajectory=trajectory,
        grids=grids,
        evaluations={f: evaluated for f, (*_, evaluated) in sides.items()},
    )
    return parity.faults._outcome(fault, framework, case)


def test_the_catalogue_is_large_enough_and_names_what_the_twins_have():
    bugs = [fault for fault in ENTRIES.values() if not fault.equivalent]
    assert len(bugs) >= 40  # the issue asks for at least 40 kinds of bug
    assert len(ENTRIES) - len(bugs) >= 10  # and 10 rewrites
    for _, faults in TWINS.values():
        assert faults.keys() == ENTRIES.keys()
    for fault in bugs:
        assert fault.first.startswith(f"{fault.objective}/")
        assert fault.sentence
        assert fault.equation
        assert fault.source


@pytest.mark.parametrize("objective", ["ppo", "dpo", "reward", "reinforce"])
def test_torch_faults_are_caught_where_expected(grounds, objective):
    wrong = []
    for name, fault in ENTRIES.items():
        if fault.objective == objective:
            outcome = judged(grounds, "torch", name)
            if not outcome.as_expected:
                found = outcome.report.first_divergence
                wrong.append((name, outcome.report.verdict, found and (found.quantity, found.at)))
    assert not wrong


@pytest.mark.parametrize("name", JAX_SAMPLE)
def test_jax_faults_are_caught_where_expected(grounds, name):
    outcome = judged(grounds, "jax", name)
    assert outcome.as_expected, outcome.report.first_divergence


def test_only_the_probes_see_a_lost_min(grounds):
    outcome = judged(grounds, "torch", "clip-only")
    assert outcome.layers == ("twins", "points")


def test_update_faults_are_invisible_to_the_probes(grounds):
    assert "points" not in judged(grounds, "torch", "ascent").layers


def test_a_misplaced_fault_is_not_as_expected(grounds):
    outcome = judged(grounds, "torch", "kl-sign")
    elsewhere = outcome._replace(fault=ENTRIES["clip-only"])
    assert outcome.as_expected
    assert not elsewhere.as_expected
    assert not outcome._replace(framework="jax").as_expected
    assert not outcome._replace(fault=ENTRIES["clamp-by-sign"]).as_expected
    assert set(outcome.layers) <= set(LAYERS)


def test_unknown_faults_are_refused_in_one_line():
    with pytest.raises(InputError, match="fault: got 'clip-olny'; expected one of clip-only"):
        chosen(["clip-olny"])
