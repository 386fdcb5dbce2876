"""An objective that a user declares in a file of their own, and nothing else anywhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from parity.checks import Target, check_all
from parity.judging import CheckReport

PATIENCE = 600.0  # seconds for what takes ten, on a busy machine
LINES_OF_A_SPEC, LINES_OF_A_FUNCTION = 40, 15  # the most that a new objective may cost

SPEC = '''\
"""Squared hinge of scores against a margin, weighted."""

from parity.arithmetic import operations as op
from parity.objectives.conventions import FROZEN, REDUCTION, SIGN
from parity.objectives.spec import Fault, Input, Objective, Value

HINGE = Objective(
    name="hinge",
    title="Squared hinge of scores against a margin",
    equation="L = mean w·max(0, m − x)²",
    source="made up for a test",
    inputs=(
        Input("scores", ("item",), "differentiated", "scores x", known_as=("logit",)),
        Input("weights", ("item",), "frozen", "weight of each item", low=0.0),
        Input("margin", (), "constant", "the margin m", low=0.1, high=2.0),
    ),
    values=(
        Value("gaps", ("item",), lambda scores, margin: op.maximum(margin - scores, 0.0)),
        Value("loss", (), lambda gaps, weights: op.mean(weights * gaps * gaps)),
    ),
    counted="item",
    choices=(SIGN, REDUCTION, FROZEN),
    branches={"active": lambda gaps: gaps > 0, "satisfied": lambda gaps: gaps <= 0},
    kinks=lambda scores, margin: op.abs(margin - scores),
    faults=(
        Fault(
            "hinge-not-squared",
            "The gap is not squared.",
            "mean w·max(0, m − x)",
            "no public report known; from the equations",
            first="hinge/loss",
            edits={"loss": lambda gaps, weights: op.mean(weights * gaps)},
        ),
    ),
)
'''
TORCH = """\
import torch

def right(logit, weights, margin):
    gaps = torch.clamp(margin - logit, min=0)
    return torch.mean(weights.detach() * gaps**2)

def wrong(logit, weights, margin):
    return torch.mean(weights.detach() * torch.clamp(margin - logit, min=0))

def leaking(scores, weights, margin):
    return torch.mean(weights * torch.clamp(margin - scores, min=0) ** 2)

def summed(scores, weights, margin):
    return -torch.sum(weights.detach() * torch.clamp(margin - scores, min=0) ** 2)
"""
JAX = """\
import jax
import jax.numpy as jnp

def right(logit, weights, margin):
    gaps = jnp.maximum(margin - logit, 0)
    return jnp.mean(jax.lax.stop_gradient(weights) * gaps**2)

def wrong(logit, weights, margin):
    return jnp.mean(jax.lax.stop_gradient(weights) * jnp.maximum(margin - logit, 0))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("toy")
    for name, source in (("spec", SPEC), ("in_torch", TORCH), ("in_jax", JAX)):
        (place / f"{name}.py").write_text(source)
    return place


@pytest.fixture(scope="module")
def reports(folder: Path) -> dict[str, CheckReport]:
    from helpers_check import convention

    objective = f"{folder}/spec.py:HINGE"
    summed = convention(reduction="sum", sign="objective")
    asked = {
        "torch right": Target(f"{folder}/in_torch.py:right", objective),
        "torch wrong": Target(f"{folder}/in_torch.py:wrong", objective),
        "torch leaking": Target(f"{folder}/in_torch.py:leaking", objective),
        "torch summed": Target(f"{folder}/in_torch.py:summed", objective, convention=summed),
        "jax right": Target(f"{folder}/in_jax.py:right", objective),
        "jax wrong": Target(f"{folder}/in_jax.py:wrong", objective),
    }
    found = check_all([*asked.values()], PATIENCE, lambda _who, _stage: None)
    for report in found:
        assert isinstance(report, CheckReport), report
    return dict(zip(asked, found, strict=True))  # type: ignore[arg-type]  # just asserted


def test_it_costs_no_more_than_was_promised() -> None:
    assert len(SPEC.splitlines()) < LINES_OF_A_SPEC
    for source in (TORCH, JAX):
        for function in source.split("\ndef ")[1:]:
            assert len(function.splitlines()) < LINES_OF_A_FUNCTION


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_values_gradients_allowance_and_coverage(
    framework: str, reports: dict[str, CheckReport]
) -> None:
    report = reports[f"{framework} right"]
    assert report.verdict == "match", report.first
    assert report.framework == framework
    assert report.matched["logit"] == "scores"
    for lesson in report.lessons:
        quantities = {c.quantity for c in lesson.comparisons}
        assert quantities == {"hinge/loss", "hinge/gradient", "hinge/gradient_weights"}
        assert lesson.coverage is not None
        assert {c.cell: c.exercised for c in lesson.coverage.cells} == {
            "active": True,
            "satisfied": True,
        }
    moved = [
        c.worst.ratio
        for lesson in report.lessons
        for c in lesson.comparisons
        if c.worst and c.quantity != "hinge/gradient_weights"
    ]
    assert 0 < max(moved) < 1  # rounding is seen, and allowed


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_fault_is_found_with_its_name_and_a_program(
    framework: str, reports: dict[str, CheckReport], tmp_path: Path
) -> None:
    report = reports[f"{framework} wrong"]
    assert report.verdict == "divergent"
    assert report.diagnosis is not None
    assert report.diagnosis.fault == "hinge-not-squared"
    program = tmp_path / "repro.py"
    program.write_text(report.repro)
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert "AssertionError" in ended.stderr


def test_choices_and_frozen_inputs(reports: dict[str, CheckReport]) -> None:
    assert reports["torch summed"].verdict == "match"
    leaking = reports["torch leaking"]
    assert leaking.verdict == "divergent"
    assert {c.quantity for x in leaking.lessons for c in x.comparisons if c.first} == {
        "hinge/gradient_weights"
    }


def test_help_comes_from_the_declaration(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from parity.cli.main import main

    monkeypatch.setattr(sys, "argv", ["parity", "objectives", f"{folder}/spec.py:HINGE"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    told = capsys.readouterr().out
    for word in (
        "mean w·max(0, m − x)²",
        "scores [item]",
        "logit",
        "hinge-not-squared",
        "satisfied",
    ):
        assert word in told


def test_what_is_no_objective_is_refused_in_one_line(folder: Path) -> None:
    from parity.errors import InputError
    from parity.objectives import find

    for name, words in {
        f"{folder}/spec.py:op": "got module; expected a parity.objectives.Objective",
        f"{folder}/missing.py:HINGE": "no such file",
        f"{folder}/spec.py:NONE": "has no NONE",
        "hinge": "expected one of reward or preference, ppo, dpo, reinforce or FILE.py:NAME",
    }.items():
        with pytest.raises(InputError) as refused:
            find(name)
        assert words in str(refused.value)


MISTAKES = {  # what is written instead of what, and the line that says so
    "a name that nothing has": (
        "lambda gaps, weights: op.mean(weights * gaps * gaps)",
        "lambda gapz, weights: op.mean(weights * gapz)",
        "loss: has a parameter 'gapz'; expected names of inputs, choices and values before it: ",
    ),
    "a role that does not exist": (
        '"differentiated", "scores x"',
        '"differentiable", "scores x"',
        "inputs: got none that is differentiated; expected at least one",
    ),
    "no loss": ('Value("loss"', 'Value("losss"', "loss: missing; expected a value of that name"),
    "two of one name": ('"margin", ()', '"weights", ()', "weights: declared twice; expected"),
    "an input that nothing uses": (
        "op.mean(weights * gaps * gaps)",
        "op.mean(gaps * gaps)",
        "loss",
    ),
    "an axis that nothing has": ('counted="item"', 'counted="row"', "counted: got 'row'; expected"),
    "a fault that edits nothing": (
        'edits={"loss"',
        'edits={"lossy"',
        "fault hinge-not-squared: edits 'lossy'; expected a value",
    ),
    "a fault that parts nowhere": (
        'first="hinge/loss"',
        'first="hinge/los"',
        "fault hinge-not-squared: parts first at 'hinge/los'; expected a quantity",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_declaration_is_said_before_anything_runs(
    mistake: str, tmp_path: Path
) -> None:
    from parity.errors import InputError
    from parity.objectives import find

    right, wrong, words = MISTAKES[mistake]
    assert right in SPEC
    source = SPEC.replace(right, wrong)
    if mistake == "an input that nothing uses":
        source = source.replace("lambda gaps, weights:", "lambda gaps:")
        words = "weights: no definition has a parameter of that name; expected one"
    path = tmp_path / "spec.py"
    path.write_text(source)
    with pytest.raises(InputError) as refused:
        find(f"{path}:HINGE")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("op.mean(weights * gaps * gaps)", "weights * gaps", "hinge/loss: computed as [4]"),
        (
            "op.maximum(margin - scores, 0.0)",
            "abs(margin - scores)",
            "definitions: gaps: raised TypeError",
        ),
    ],
)
def test_a_definition_that_fails_is_the_users(
    right: str, wrong: str, words: str, folder: Path, tmp_path: Path
) -> None:
    from parity.checks import check
    from parity.errors import InputError

    path = tmp_path / "spec.py"
    path.write_text(SPEC.replace(right, wrong))
    target = Target(f"{folder}/in_torch.py:right", f"{path}:HINGE")
    with pytest.raises(InputError) as refused:
        check(target, PATIENCE, lambda _who, _stage: None, quick=True)
    assert words in str(refused.value)
