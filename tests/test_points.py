"""The probe grid reaches what the issue lists, and keeps off the kinks."""

from pathlib import Path

import numpy as np
import pytest

from parity import gate
from parity.arithmetic import operations as op
from parity.arithmetic.measure import Expected
from parity.lessons import probes
from parity.lessons.probes import KINK_DISTANCE, core, kink_distance
from parity.objectives import built_in, find
from parity.points import Points


@pytest.fixture(scope="module")
def grid() -> list[Points]:
    return probes.grid()


def cores() -> list[Points]:
    return [core(objective) for objective in built_in().values()]


def logps_at(logits, index):
    return np.take_along_axis(op.log_softmax(logits, axis=1), index, axis=1)


def kl(inputs):
    """Of the reference normalised: in float32 its probabilities sum to 1 + 1e-8."""
    logps = op.log_softmax(inputs["logits"], axis=1)
    return (np.exp(logps) * (logps - op.log_softmax(inputs["reference"], axis=1))).sum(-1)


def of(grid, objective):
    return [stack for stack in grid if stack.objective == objective]


def test_one_compiled_shape_per_objective_in_the_core():
    objectives = [stack.objective for stack in cores()]
    assert sorted(objectives) == sorted(built_in())


def test_the_core_is_part_of_the_grid(grid):
    digests = {stack.digest for stack in grid}
    assert all(stack.digest in digests for stack in cores())


@pytest.mark.parametrize("objective", ["ppo", "dpo", "reinforce"])
def test_sizes(grid, objective):
    sizes = [stack.sizes for stack in of(grid, objective)]
    assert {2, 3, 7, 128} <= {size["action"] for size in sizes}  # the list
    counts = {size.get("sample", size.get("pair")) for size in sizes}
    assert {1, 2, 1000} <= counts


def test_every_float_is_a_float32(grid):
    for stack in grid:
        for values in stack.inputs.values():
            if values.dtype.kind == "f":
                assert np.array_equal(values, values.astype(np.float32))


def test_no_point_lies_on_a_kink(grid):
    for stack in grid:
        assert (kink_distance(stack, find(stack.objective)) > KINK_DISTANCE).all()


def test_distance_to_a_kink_is_that_of_the_nearest_sample(grid):
    for stack in of(grid, "ppo"):
        taken = logps_at(stack.inputs["logits"], stack.inputs["actions"])
        ratios = np.exp(taken - stack.inputs["old_logps"])
        edges = np.abs(np.abs(ratios - 1) - stack.inputs["clip"][:, None]).min(-1)
        np.testing.assert_allclose(kink_distance(stack, find("ppo")), edges, rtol=1e-9, atol=1e-12)


def test_a_point_on_a_kink_is_refused():
    logps = op.log_softmax(np.array([0.5, 0.1]))
    edge = {
        "logits": (0.5, 0.1),
        "old_logps": logps - np.log([1.2, 1.0]),  # the first ratio is at 1 + clip
        "actions": (0, 1),
        "advantages": (1.0, 2.0),
        "reference": np.log([0.5, 0.5]),
        "beta": 0.3,
        "clip": 0.2,
    }
    with pytest.raises(ValueError, match=r"edges: a point lies within 1e-05 of a kink"):
        probes.stack(find("ppo"), "edges", [("edge", edge)])


def test_advantages_of_the_cells_are_not_of_size_one(grid):
    (core,) = [stack for stack in of(grid, "ppo") if stack.grid == "core"]
    assert not (np.abs(core.inputs["advantages"]) == 1).any()


def test_extremes(grid):
    (ppo,) = [stack for stack in of(grid, "ppo") if stack.grid == "core"]
    assert op.log_softmax(ppo.inputs["logits"], axis=1).min() < -79  # log-probabilities down to -80
    taken = logps_at(ppo.inputs["logits"], ppo.inputs["actions"])
    log_ratios = np.abs(taken - ppo.inputs["old_logps"])
    assert log_ratios.max() <= 80  # beyond 88.7 the right formula itself fails in float32
    kls = kl(ppo.inputs)
    assert ((kls > 1e-11) & (kls < 1e-9)).any()  # near-equal policies
    for objective in ("dpo", "reward"):
        (core,) = [stack for stack in of(grid, objective) if stack.grid == "core"]
        if objective == "dpo":
            reference, logits = core.inputs["reference"], core.inputs["logits"]
            chosen, rejected = (
                logps_at(logits, core.inputs[side])
                - np.take_along_axis(reference, core.inputs[side], 1)
                for side in ("chosen", "rejected")
            )
            z = core.inputs["beta"][:, None] * (chosen - rejected)
        else:
            difference = core.inputs["chosen"] - core.inputs["rejected"]
            z = (difference * core.inputs["weights"][:, None]).sum(-1)
        assert z.max() > 900  # |z| up to 1000
        assert z.min() < -900


def test_what_no_ordinary_run_reaches_is_in_the_grid_and_not_in_the_core(grid):
    """At a size that the grid has anyhow: no further shape is compiled."""
    far = {stack.objective: stack for stack in grid if stack.grid == "7 x 2"}
    assert len({(stack.objective, stack.grid) for stack in grid}) == len(grid) == 16
    ppo, dpo = far["ppo"].inputs, far["dpo"].inputs
    for objective in ("ppo", "reinforce"):
        inputs = far[objective].inputs
        assert inputs["advantages"].max() > 1000
        assert inputs["advantages"].min() < -1000
        assert kl(inputs).max() > 50
        assert inputs["reference"].min() > -88  # a probability of it is no 0 in float32
    log_ratios = logps_at(ppo["logits"], ppo["actions"]) - ppo["old_logps"]
    for sign in (-1, 1):
        for side in (-1, 1):
            reached = (sign * log_ratios > 74) & (side * ppo["advantages"] > 0)
            assert reached.any()
    assert np.abs(log_ratios).max() <= 80
    assert (dpo["chosen"] == dpo["rejected"]).any(1).sum() == 2
    assert np.abs(far["reward"].inputs["chosen"]).max() > 1000


def test_every_value_of_the_grid_is_finite_in_float32(grid):
    for stack in grid:
        if stack.grid != "128 x 1000":
            expected = gate.evaluate_points(stack, "float32")
            for name, values in expected.values.items():
                assert (np.abs(values) < np.finfo(np.float32).max).all(), (stack.grid, name)
                assert np.isfinite(expected.allowed[name]).all(), (stack.grid, name)


def test_betas_and_references_differ(grid):
    (core,) = [stack for stack in of(grid, "ppo") if stack.grid == "core"]
    assert {0.0, 2.5} <= set(core.inputs["beta"].tolist())
    assert not (core.inputs["beta"] == 1).any()
    assert len(np.unique(core.inputs["reference"].round(6))) > 3


def test_points_survive_a_file(tmp_path: Path, grid):
    for position, stack in enumerate(grid[:5]):
        path = tmp_path / f"{position}.safetensors"
        stack.save(path)
        again = Points.load(path)
        assert (again.digest, again.labels, again.grid) == (stack.digest, stack.labels, stack.grid)
        assert list(again.inputs) == list(find(stack.objective).axes)


@pytest.fixture(scope="module")
def measured(grid) -> list[Expected]:
    return [gate.evaluate_points(points, "float32") for points in grid]


def test_both_twins_lie_within_the_allowance_at_every_point(
    implementation, backend, grid, measured
):
    """Op by op, since JAX would compile every grid."""
    twin = backend(implementation)
    for points, right in zip(grid, measured, strict=True):
        with twin.op_by_op():
            trace = twin.evaluate(points, "float32")
        assert right.values.keys() == trace.quantities.keys()
        for name, exact in right.values.items():
            assert trace[name].shape == exact.shape, (points.grid, name)
            outside = ~(np.abs(trace[name] - exact) <= right.allowed[name])
            assert not outside.any(), (points.grid, name, np.argwhere(outside)[0])
