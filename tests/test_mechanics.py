"""Every number that the lessons, the DPO record and the card print, in closed form and live."""

import re
from typing import Any

import numpy as np
import pytest

from helpers_mechanics import FRAMEWORKS, NAMES, ROOT, rows
from parity import mechanics
from parity.mechanics import Shown

# What issue C asks for at least.
REQUIRED = [
    "clipping",
    "signed-min",
    "baseline",
    "detached",
    "lifetimes",
    "recomputed-old",
    "reference-kl",
    "optimum",
    "beta",
    "proxy-gap",
    "dpo-margin",
    "reinforce",
    "kinks",
    "softplus",
    "float32-edge",
]


def table(name: str, shown: dict[str, Shown], columns: tuple[str, ...] = FRAMEWORKS) -> Any:
    """Labels to (closed form, JAX, PyTorch)."""
    return {
        row.quantity: [row.closed, *(row.cells[column].value for column in columns)]
        for row in shown[name].rows
    }


def test_the_catalogue_holds_what_the_issue_asks_for() -> None:
    assert NAMES == REQUIRED
    for mechanic in mechanics.catalogue():
        assert 2 <= len(mechanic.options) <= 4
        assert 0 <= mechanic.answer < len(mechanic.options)
        assert mechanic.question.endswith("?")
        assert mechanic.lesson.endswith(".")
        labels = [label for group in mechanic.rows for label in group.labels]
        assert len(labels) == len(set(labels))
        assert max(map(len, labels)) <= 40  # five columns in 80


@pytest.mark.parametrize("name", REQUIRED)
def test_every_row_agrees(shown: dict[str, Shown], name: str) -> None:
    assert shown[name].rows
    for row in shown[name].rows:
        assert row.agree, row
        assert tuple(row.cells) == FRAMEWORKS
    assert shown[name].agree


SIX_DIGITS = 5e-7  # as far as the sources print

# Mechanic, row, number, and where the number stands.
PRINTED = [
    # Lesson 04, "Work a signed clipping example" and "Inspect both clipping directions".
    ("clipping", "A +2, ratio 1.5: term", 2.4),
    ("clipping", "A -2, ratio 0.5: term", -1.6),
    # Issue C: all four cells; by hand min(1, 1.6) and min(-3, -2.4).
    ("clipping", "A +2, ratio 0.5: term", 1.0),
    ("clipping", "A -2, ratio 1.5: term", -3.0),
    # Card, engineeringExample: ratio 0.7/0.5.
    ("clipping", "A +2, ratio 1.4: term (card)", 2.4),
    ("clipping", "A -2, ratio 1.4: term (card)", -2.8),
    # By hand: A ρ (1 - π(a)) with π(a) = 0.3 where the term is active, else nothing.
    ("clipping", "A +2, ratio 1.5: push", 0.0),
    ("clipping", "A +2, ratio 0.5: push", 0.7),
    ("clipping", "A -2, ratio 1.5: push", -2.1),
    ("clipping", "A -2, ratio 0.5: push", 0.0),
    # By hand: clip(ρ) A has no gradient outside the interval; A min(ρ, clip ρ) has one below it.
    ("signed-min", "A -2, ratio 1.5: push", -2.1),
    ("signed-min", "A -2, ratio 1.5: push, clip(ρ)·A", 0.0),
    ("signed-min", "A -2, ratio 1.5: push, A·min(ρ, clip ρ)", 0.0),
    ("signed-min", "A +2, ratio 0.5: push, clip(ρ)·A", 0.0),
    ("signed-min", "A +2, ratio 0.5: push, A·min(ρ, clip ρ)", 0.7),
    ("signed-min", "A -2, ratio 0.5: push", 0.0),
    ("signed-min", "A -2, ratio 0.5: push, A·min(ρ, clip ρ)", -0.7),
    # Lesson 04, exercise "Verify detached behavior information".
    ("detached", "old log-probs: largest gradient", 0.0),
    ("detached", "advantages: largest gradient", 0.0),
    ("detached", "reference: largest gradient", 0.0),
    # Lesson 04, the diagram's table: what changes when, over 40 rollouts of 3 updates.
    ("lifetimes", "policy: changes inside rollouts", 80),
    ("lifetimes", "policy: changes between rollouts", 39),
    ("lifetimes", "old log-probs: inside", 0),
    ("lifetimes", "old log-probs: between", 39),
    ("lifetimes", "reference: between", 0),
    ("lifetimes", "scores: between", 0),
    # Lesson 04, "Diagnose the result"; design.md: 96 of 15,360 leave the interval.
    ("recomputed-old", "smallest ratio, recomputed", 1.0),
    ("recomputed-old", "largest ratio, recomputed", 1.0),
    ("recomputed-old", "samples outside the interval", 96),
    # Card; lesson 04, "Make it yours" and its recorded output. The reversed one by hand.
    ("reference-kl", "KL of the reference to itself", 0.0),
    ("reference-kl", "KL((.7, .3) to (.5, .5))", 0.082283),
    ("reference-kl", "KL((.5, .5) to (.7, .3))", 0.5 * np.log(25 / 21)),
    ("reference-kl", "KL(trained to reference)", 0.7824773192405701),
    # Lesson 04, recorded output.
    ("optimum", "objective, reference", 0.28191882371902466),
    ("optimum", "objective, trained", 1.7620493173599243),
    ("optimum", "objective, optimum", 1.7987911701202393),
    # Lesson 04, third panel of the recorded figure.
    ("optimum", "trained probability 0", 0.97399896),
    ("optimum", "trained probability 1", 0.01857115),
    ("optimum", "trained probability 2", 0.00742986),
    ("beta", "final reward, β 0.2", 1.9185447692871094),
    ("beta", "final KL, β 0.2", 0.7824773192405701),
    ("proxy-gap", "learned reward, start", 0.28191882371902466),
    ("proxy-gap", "learned reward, 40 rollouts", 1.9185447692871094),
    # Lesson 05, recorded stdout.
    ("dpo-margin", "loss before update 0", 0.6931471824645996),
    ("dpo-margin", "loss before update 119", 0.27227783203125),
    ("dpo-margin", "final margin of (0, 1)", 3.0890286),
    ("dpo-margin", "final margin of (0, 2)", 6.17805719),
    ("dpo-margin", "final margin of (1, 2)", 3.08902884),
    # By hand: 1 - (0.7 - 0.3), and -1 - 0.4.
    ("reinforce", "advantage of action 0", 0.6),
    ("reinforce", "advantage of action 1", -1.4),
    ("reinforce", "expected reward, start", 0.4),
    ("reinforce", "KL to the reference, start", 0.082283),
    # By hand: softplus(0) = log 2, softplus(100) = 100.
    ("softplus", "loss at margin 0", np.log(2)),
    ("softplus", "loss at margin -100", 100.0),
    ("float32-edge", "log-ratio 80: term", 2.4),
    ("float32-edge", "log-ratio 89: term", 2.4),
]


@pytest.mark.parametrize(("name", "label", "number"), PRINTED, ids=lambda value: str(value))
def test_a_printed_number_is_what_all_three_compute(
    shown: dict[str, Shown], name: str, label: str, number: float
) -> None:
    """The closed form to the digits printed; the frameworks within the allowance of that."""
    row = rows(shown, name)[label]
    allowed = float(row.allowed or 0)
    assert float(row.closed) == pytest.approx(number, abs=SIX_DIGITS + allowed)
    for cell in row.cells.values():
        assert abs(float(cell.value) - float(row.closed)) <= allowed


def test_the_baseline_cancels_for_every_constant(shown: dict[str, Shown]) -> None:
    """Lesson 04, "Enumerate the baseline cancellation", at logits (0.3, -0.2, 0.1)."""
    found = table("baseline", shown)
    assert shown["baseline"].mechanic.given["logits"] == [0.3, -0.2, 0.1]
    policy = np.exp([0.3, -0.2, 0.1]) / np.exp([0.3, -0.2, 0.1]).sum()
    scores = np.array([1.98113, 0.32728, -2.30841])  # lesson 04, fitted scores
    exact = policy * (scores - policy @ scores)
    for action in range(3):
        for baseline in ("exact gradient", "baseline 0", "baseline -5", "exact baseline"):
            for value in found[f"{baseline}, action {action}"]:
                assert value == pytest.approx(exact[action], abs=2e-6)
    assert found["variance, baseline -5"][0] > 20 * found["variance, baseline 0"][0]


def test_a_forgotten_detach_leaks(shown: dict[str, Shown]) -> None:
    found = table("detached", shown)
    assert all(value != 0 for value in found["old not detached, sample 0"])
    assert all(value == 0 for value in found["old not detached, sample 3"])  # it is clipped


def test_directions_of_what_the_mechanics_claim(shown: dict[str, Shown]) -> None:
    kls = table("reference-kl", shown)
    beta, proxy, dpo = (table(name, shown) for name in ("beta", "proxy-gap", "dpo-margin"))
    reinforce = table("reinforce", shown)
    for column in range(3):

        def at(found: Any, label: str, column: int = column) -> float:
            return found[label][column]

        assert at(kls, "KL((.5, .5) to (.7, .3))") > at(kls, "KL((.7, .3) to (.5, .5))")
        assert at(beta, "final reward, β 1") < at(beta, "final reward, β 0.2")
        assert at(beta, "final KL, β 1") < at(beta, "final KL, β 0.2")
        checkpoints = ["start", "10 rollouts", "20 rollouts", "40 rollouts"]
        learned = [at(proxy, f"learned reward, {when}") for when in checkpoints]
        task = [at(proxy, f"task score, {when}") for when in checkpoints]
        assert learned == sorted(learned)
        assert task == sorted(task, reverse=True)
        assert at(dpo, "start, margin of (0, 1)") == 0
        assert at(dpo, "start, log-prob gap of (0, 1)") == pytest.approx(0.2, abs=1e-6)
        assert at(dpo, "loss of (1, 2), end") < at(dpo, "loss of (1, 2), start")
        ends = [at(dpo, f"probability of action 1, {when}") for when in ("start", "end")]
        assert ends[1] < ends[0]
        optimum = at(reinforce, "probability of action 0, optimum")
        assert 0.7 < at(reinforce, "probability of action 0, end") < optimum


def test_documented_values_are_each_frameworks_own(shown: dict[str, Shown]) -> None:
    """design.md, "Traps already paid for", and measured beside it."""
    kinks = rows(shown, "kinks")
    assert kinks["slope of clip at 1.2"].closed == "0 to 1"
    assert kinks["slope of clip at 1.2"].cells["jax"].value == 0.5
    torch = shown["kinks"].environment["torch"]["torch"]
    at_the_bound = kinks["slope of clip at 1.2"].cells["torch"].value
    assert at_the_bound == (1.0 if torch.startswith("2.13") else 0.0)
    assert [cell.value for cell in kinks["slope of |x| at 0"].cells.values()] == [1.0, 0.0]
    softplus = rows(shown, "softplus")
    assert softplus["float64: softplus(21) - 21"].cells["torch"].value == 0.0
    assert softplus["float64: loss at -21, less 21"].cells["torch"].value > 0
    for cell in softplus["log(1 + exp(100)), naive"].cells.values():
        assert cell.value == "Infinity"
    edge = rows(shown, "float32-edge")
    for cell in edge["log-ratio 89: push"].cells.values():
        assert cell.value == "NaN"
    assert edge["exp(-100)"].cells["jax"].value == 0.0
    assert edge["exp(-100)"].cells["torch"].value > 0


def test_only_where_the_frameworks_have_their_own_value_it_is_documented() -> None:
    documented = {m.name for m in mechanics.catalogue() for g in m.rows if g.documented}
    assert documented == {"kinks", "softplus", "float32-edge"}
    for mechanic in mechanics.catalogue():
        for group in mechanic.rows:
            for versions in group.documented.values():
                assert all(len(values) == len(group.labels) for values in versions.values())
            if group.closed:
                assert set(group.documented) == set(FRAMEWORKS)


def test_the_lesson_map_names_every_mechanic_and_no_other() -> None:
    text = (ROOT / "docs" / "lesson-map.md").read_text()
    assert set(re.findall(r"mechanics ([a-z0-9-]+)", text)) == set(NAMES)
