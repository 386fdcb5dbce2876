"""The catalogue: entries are complete, bugs show, rewrites do not, all run in every arithmetic."""

import functools
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import parity
from parity.arithmetic.measure import measure
from parity.lessons.oracle import at_points
from parity.lessons.probes import core, grid_of
from parity.objectives import built_in
from parity.objectives.evaluation import Scope, called, differentiated
from parity.objectives.faulty import UNKNOWN
from parity.problem import load_problem
from parity.samples import Samples

OBJECTIVES = {name: each for name, each in built_in().items() if each.faults}
FAULTS = [(each, fault) for each in OBJECTIVES.values() for fault in each.faults]
BUGS = Counter(each.name for each, fault in FAULTS if not fault.equivalent)
ORDINARY = {  # a probe at which nothing overflows in float32
    "reward": "ordinary weights",
    "ppo": "signs and sides mixed",
    "dpo": "ordinary margins",
    "reinforce": "signs mixed",
}
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
PLANTED = Path(parity.__file__).parent / "problems" / "planted"
FLOAT32 = 2e-5  # a hundred roundoffs
BFLOAT16 = 2.0**-7  # two roundoffs of bfloat16: a float32 may round to its other neighbour


def differs(found, honest, allowed):
    """Whether any entry is off by more than it may be; NaN is."""
    with np.errstate(all="ignore"):
        off = ~((np.abs(found - honest) <= allowed) | (found == honest))
    return bool(np.any(off & ~(np.isnan(found) & np.isnan(honest))))


@functools.cache
def grid(name):
    """Core and extreme probes: inputs, points last; what is honest there, and allowed."""
    stacks = []
    for points in grid_of(OBJECTIVES[name])[:3]:
        given = {n: np.moveaxis(values, 0, -1) for n, values in points.inputs.items()}
        shapes = {
            q.name: tuple(points.sizes[axis] for axis in q.axes) for q in OBJECTIVES[name].at_points
        }
        expected = measure(functools.partial(at_points, points), shapes, "float32", rigorous=False)
        stacks.append((given, expected))
    return stacks


def shows_on_the_grid(objective, fault):
    for given, expected in grid(objective.name):
        with np.errstate(all="ignore"):
            found = differentiated(objective, given, fault=fault)
        for name, value in found.items():
            full = f"{objective.name}/{name}"
            honest = np.moveaxis(expected.values[full], 0, -1)
            allowed = np.moveaxis(expected.allowed[full], 0, -1)
            if differs(np.broadcast_to(value, honest.shape), honest, allowed):
                return True
    return False


def training_state(objective):
    """What a rollout and an update of the planted problem start from, by name."""
    problems = [load_problem(path) for path in sorted(PLANTED.glob("*.toml"))]
    problem = next(p for p in problems if getattr(p, objective.name) is not None)
    training, table = objective.training, getattr(problem, objective.name)
    state = {name: np.asarray(value) for name, value in training.given(table).items()}
    state |= {name: np.asarray([1.3, -0.4, 0.6]) for name in training.takes}
    start = Scope(objective, {n: v for n, v in state.items() if n != objective.parameter})
    state |= {value.name: start.derived(value.name) for value in training.carried}
    state |= {
        "last": 0.1 * state[objective.parameter] + 0.2,
        "gradient": state[objective.parameter],
    }
    if training.tape:
        state[training.tape] = Samples.load(problem.samples).actions[0]
    return state


def collected(objective, state, fault=None):
    """What a rollout freezes, and its actions."""
    edits = dict(fault.collects) if fault else {}
    names = [value.name for value in objective.training.collected]
    found = {}
    if tape := objective.training.tape:
        found[tape] = called(edits[tape], state) if tape in edits else state[tape]
    scope = Scope(objective, {**state, **found}, more=edits)
    return found | {n: called(edits[n], scope) if n in edits else scope.derived(n) for n in names}


def shows_in_training(objective, fault):
    state = training_state(objective)
    honest = collected(objective, state)
    found = collected(objective, state, fault)
    moved = state[objective.parameter] - state["rate"] * state["gradient"]
    honest |= {**state, objective.parameter: moved}
    if fault.update:
        found |= called(fault.update, state)
    return any(differs(value, honest[name], FLOAT32) for name, value in found.items())


def test_names_are_unique_and_entries_filled():
    assert max(Counter(fault.name for _, fault in FAULTS).values()) == 1
    for objective, fault in FAULTS:
        assert fault.sentence.endswith("."), fault.name
        assert fault.equation, fault.name
        assert fault.source.startswith("https://") or fault.source == UNKNOWN, fault.name
        changed = fault.edits or fault.collects or fault.unfrozen or fault.update
        assert changed, fault.name
        known = {q.name for q in (*objective.in_a_run, *objective.at_points)}
        assert fault.equivalent == (not fault.first), fault.name
        assert fault.equivalent or fault.first in known, fault.name
        assert fault.equivalent or fault.at or fault.edits, fault.name
        assert fault.edits.keys() <= objective.definitions.keys(), fault.name
        loops = objective.training.loops
        assert tuple(fault.at) in ((), loops, loops[:1], ("checkpoint",)), fault.name


def test_the_catalogue_is_large_enough():
    assert BUGS["reinforce"] >= 22
    assert BUGS["ppo"] >= 40
    for objective in OBJECTIVES.values():
        assert BUGS[objective.name] >= 15
        assert any(fault.equivalent for fault in objective.faults)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_bug_shows_and_no_rewrite_does(name):
    objective = OBJECTIVES[name]
    wrong = [
        fault.name
        for fault in objective.faults
        if fault.equivalent
        == (shows_on_the_grid(objective, fault) or shows_in_training(objective, fault))
    ]
    assert not wrong


def everything(objective, given, state):
    """Every edited loss, rollout and update, in whatever arrays are given."""
    found = {}
    for fault in objective.faults:
        scope = Scope(objective, given, fault=fault)
        values = {v.name: scope[v.name] for v in objective.values if v.recorded}
        if fault.collects:
            values |= collected(objective, state, fault)
        if fault.update:
            values |= called(fault.update, state)
        found[fault.name] = values
    return found


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_definition_runs_in_a_framework(name, framework):
    objective = OBJECTIVES[name]
    points = core(objective)
    at = points.labels.index(ORDINARY[name])
    given = {n: values[at] for n, values in points.inputs.items()}
    state = training_state(objective)
    expected = everything(objective, given, state)
    if framework == "torch":
        arrays = [{n: torch.as_tensor(v) for n, v in each.items()} for each in (given, state)]
        found = everything(objective, *arrays)
    else:
        both = [{n: jnp.asarray(v) for n, v in each.items()} for each in (given, state)]
        lowered = jax.jit(functools.partial(everything, objective)).lower(*both)
        found = lowered.compile(compiler_options=QUICKLY)(*both)
    for fault in objective.faults:
        for quantity, value in expected[fault.name].items():
            tolerance = BFLOAT16 if "bfloat16" in fault.name else FLOAT32
            np.testing.assert_allclose(
                np.asarray(found[fault.name][quantity]),
                value,
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"{fault.name}: {quantity}",
            )
