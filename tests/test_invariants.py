"""Each invariant holds in an honest run, and each can fail: one corrupted entry is enough."""

from dataclasses import replace

import numpy as np
import pytest

from parity import gate
from parity.invariants import hold
from parity.lessons.probes import core
from parity.objectives import built_in
from parity.trace import Quantity, Trace

LESSONS = ("posttraining-04", "posttraining-05", "policy-gradient-kl-control")
NUDGE = 1e-3  # far above any allowance of these runs, which stay below 1e-5


@pytest.fixture(scope="module")
def honest(trace_of, problems, tapes):
    """Per lesson: problem, trace, what the oracle re-derives, the tape."""
    made = {}
    for lesson in LESSONS:
        trace = trace_of(lesson, "torch")
        steps = gate.rederive(problems[lesson], tapes.get(lesson), trace, "float32")
        tape = tapes[lesson].actions if lesson in tapes else None
        made[lesson] = problems[lesson], trace, steps, tape
    return made


@pytest.fixture(scope="module")
def probes(evaluate):
    return {
        grid.objective: (grid, gate.evaluate_points(grid, "float32"), evaluate("torch", grid))
        for grid in map(core, built_in().values())
    }


def changed(trace: Trace, name: str, index, change) -> Trace:
    """The trace with some entries of one quantity changed."""
    quantity = trace.quantities[name]
    values = quantity.values.copy()
    values[index] = change(values[index])
    quantities = {**trace.quantities, name: replace(quantity, values=values)}
    return replace(trace, quantities=quantities)


def failing(run, trace: Trace, of_points=()) -> set[str]:
    problem, _, steps, tape = run
    return {
        i.name for i in hold(problem, trace, steps, tape, list(of_points)) if i.verdict != "match"
    }


def nudged(values):
    return values + NUDGE


def lowered(values):
    return values - 1.0


CORRUPTIONS = [
    ("posttraining-04", "ppo/reference", (5, 1, 0), nudged, "ppo/reference unchanged"),
    ("posttraining-04", "ppo/reference", ..., nudged, "ppo/reference normalised"),
    ("posttraining-04", "ppo/scores", (0, 1, 2), nudged, "ppo/scores frozen"),
    ("posttraining-04", "ppo/actions", (3, 7), lambda a: 2 - a, "ppo/actions identical"),
    ("posttraining-04", "ppo/kl_penalty", (2, 1), lowered, "ppo/kl_penalty not negative"),
    ("posttraining-04", "ppo/reference_kl", 4, lowered, "ppo/reference_kl not negative"),
    ("posttraining-04", "ppo/expected_reward", -1, lambda r: r + 1, "ppo: trained objective"),
    ("posttraining-04", "ppo/old_logps", (2, 1, 5), nudged, "ppo/old_logps fixed"),
    ("posttraining-04", "ppo/advantages", (2, 2, 5), nudged, "ppo/advantages fixed"),
    ("posttraining-04", "ppo/old_logps", (2, ..., 5), nudged, "ppo/old_logps those of"),
    ("posttraining-04", "ppo/old_logps", (0,), nudged, "ppo/old_logps normalised"),
    (
        "posttraining-04",
        "ppo/ratios",
        (3, 0, 9),
        lambda x: np.nextafter(x, 2),
        "ppo/ratios exactly 1",
    ),
    ("posttraining-04", "ppo/advantages", (2, ..., 5), nudged, "ppo: expected advantage"),
    ("posttraining-04", "ppo/surrogate", (1, 1), nudged, "ppo/surrogate the mean"),
    (
        "posttraining-04",
        "ppo/gradient_old_logps",
        (1, 1, 1),
        nudged,
        "ppo/gradient_old_logps exactly 0",
    ),
    (
        "posttraining-04",
        "ppo/gradient_advantages",
        (1, 1, 1),
        nudged,
        "ppo/gradient_advantages exactly",
    ),
    (
        "posttraining-04",
        "ppo/gradient_reference",
        (1, 1, 1),
        nudged,
        "ppo/gradient_reference exactly",
    ),
    ("posttraining-04", "ppo/gradient", (1, 1, 0), nudged, "ppo/gradient sums to 0"),
    ("posttraining-04", "ppo/probabilities", 0, nudged, "ppo/probabilities sum to 1"),
    ("posttraining-05", "dpo/reference", (5, 0), nudged, "dpo/reference unchanged"),
    ("posttraining-05", "dpo/reference", ..., nudged, "dpo/reference normalised"),
    ("posttraining-05", "dpo/probabilities", 0, nudged, "dpo/probabilities sum to 1"),
    ("posttraining-05", "dpo/gradient", (3, 1), nudged, "dpo/gradient sums to 0"),
    ("posttraining-05", "dpo/gradient_reference", (3, 1), nudged, "dpo/gradient_reference exactly"),
    (
        "policy-gradient-kl-control",
        "reinforce/reference",
        (5, 0),
        nudged,
        "reinforce/reference unch",
    ),
    ("policy-gradient-kl-control", "reinforce/scores", (5, 0), nudged, "reinforce/scores frozen"),
    (
        "policy-gradient-kl-control",
        "reinforce/actions",
        (3, 7),
        lambda a: 1 - a,
        "reinforce/actions id",
    ),
    (
        "policy-gradient-kl-control",
        "reinforce/advantages",
        (2, 5),
        nudged,
        "reinforce: expected adv",
    ),
    (
        "policy-gradient-kl-control",
        "reinforce/expected_reward",
        -1,
        lambda r: r + 2,
        "reinforce: trained",
    ),
    (
        "policy-gradient-kl-control",
        "reinforce/gradient_advantages",
        (2, 5),
        nudged,
        "reinforce/gradient_advantages exactly",
    ),
]


@pytest.mark.parametrize("lesson", LESSONS)
def test_honest_runs_hold_every_invariant_and_check_something(honest, probes, lesson):
    problem, trace, steps, tape = honest[lesson]
    mine = [probe for name, probe in probes.items() if getattr(problem, name)]
    held = hold(problem, trace, steps, tape, mine)
    assert {i.verdict for i in held} == {"match"}
    assert all(i.checked > 0 and i.worst is not None for i in held)


@pytest.mark.parametrize(
    ("lesson", "quantity", "index", "change", "name"),
    CORRUPTIONS,
    ids=[f"{name}" for *_, name in CORRUPTIONS],
)
def test_each_invariant_can_fail(honest, lesson, quantity, index, change, name):
    run = honest[lesson]
    corrupted = changed(run[1], quantity, index, change)
    assert any(found.startswith(name) for found in failing(run, corrupted))


def test_every_invariant_of_the_runs_has_a_corruption(honest):
    names = {i.name for run in honest.values() for i in hold(*run, [])}
    untouched = {n for n in names if not any(n.startswith(c[-1]) for c in CORRUPTIONS)}
    # REINFORCE shares the code of these with PPO and DPO, whose corruptions are above.
    assert untouched <= {
        "reinforce/reference normalised",
        "reinforce/probabilities sum to 1",
        "reinforce/kl_penalty not negative",
        "reinforce/reference_kl not negative",
        "reinforce/gradient sums to 0",
        "reinforce/gradient_reference exactly 0",
    }


@pytest.mark.parametrize("quantity", ["ppo/reference", "ppo/ratios", "ppo/kl_penalty"])
def test_nan_breaks_an_invariant(honest, quantity):
    run = honest["posttraining-04"]
    index = (0,) * run[1][quantity].ndim
    corrupted = changed(run[1], quantity, index, lambda x: x * np.nan)
    assert any(name.startswith(quantity) for name in failing(run, corrupted))


@pytest.mark.parametrize(
    ("objective", "quantity", "name"),
    [
        ("ppo", "ppo/gradient_old_logps", "ppo/gradient_old_logps exactly 0 at the probes (core)"),
        ("ppo", "ppo/kl_penalty", "ppo/kl_penalty 0 at the reference (core)"),
        ("dpo", "dpo/gradient_reference", "dpo/gradient_reference exactly 0 at the probes (core)"),
        ("dpo", "dpo/gradient", "dpo/gradient sums to 0 at the probes (core)"),
    ],
)
def test_invariants_at_the_probes_can_fail(honest, probes, objective, quantity, name):
    lesson = "posttraining-05" if objective == "dpo" else "posttraining-04"
    grid, oracle, evaluated = probes[objective]
    corrupted = changed(evaluated, quantity, ..., nudged)
    run = honest[lesson]
    assert name in failing(run, run[1], [(grid, oracle, corrupted)])
    assert not failing(run, run[1], [(grid, oracle, evaluated)])


def test_a_run_without_its_structure_is_inconclusive(honest):
    problem, trace, _, tape = honest["posttraining-05"]
    (only,) = hold(problem, trace, None, tape, [])
    assert (only.verdict, only.checked) == ("inconclusive", 0)


def test_an_empty_quantity_is_inconclusive(honest):
    problem, trace, steps, tape = honest["posttraining-05"]
    empty = Quantity("dpo/gradient_reference", ("update", "action"), "gradient", np.zeros((0, 3)))
    cut = replace(trace, quantities={**trace.quantities, empty.name: empty})
    found = {i.name: i.verdict for i in hold(problem, cut, steps, tape, [])}
    assert found["dpo/gradient_reference exactly 0"] == "inconclusive"
