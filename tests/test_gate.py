"""The gate: honest twins match; planted faults and mutilated traces never do."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from parity import gate, probes
from parity.comparison import ORACLE, Mode, blame, first_divergence, worst_verdict
from parity.gate import Case
from parity.noise import Expected
from parity.points import Points
from parity.problem import Problem, parse_problem
from parity.report import AllowedNoise, LessonReport
from parity.samples import Samples
from parity.trace import Quantity, Trace

TWINS = ("jax", "torch")

# Policy, reference and behaviour differ, beta is not 1, the rates are high enough to leave the clip
# interval: any other such numbers would do.
TABLES = {
    "reward": """
        [reward]
        features = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
        preferences = [[0, 1], [0, 2], [1, 2]]
        weights = [0.1, -0.2]
        updates = 6
        rate = 0.3
    """,
    "ppo": """
        [ppo]
        logits = [0.5, -0.3, 0.1]
        reference_logits = [-0.2, 0.4, 0.0]
        rollouts = 3
        samples = 16
        epochs = 4
        rate = 1.5
        beta = 0.8
        clip = 0.2
    """,
    "dpo": """
        [dpo]
        logits = [0.5, -0.3, 0.1]
        reference_logits = [-0.2, 0.4, 0.0]
        preferences = [[0, 1], [0, 2], [2, 1]]
        updates = 6
        rate = 0.4
        beta = 0.3
    """,
    "reinforce": """
        [reinforce]
        logits = [0.5, -0.3, 0.1]
        reference_logits = [-0.2, 0.4, 0.0]
        scores = [1.5, -0.5, 0.25]
        rollouts = 4
        samples = 16
        rate = 0.5
        beta = 0.3
    """,
}
PROBLEMS = {
    "reward": ["reward"],
    "ppo": ["reward", "ppo"],
    "dpo": ["dpo"],
    "reinforce": ["reinforce"],
    "all": ["reward", "ppo", "dpo"],
}
WEIGHT_LIMIT = 0.5  # between the first weights, at most 0.2, and the last, above 0.6


@cache
def problem_of(name: str) -> Problem:
    return parse_problem("".join(TABLES[table] for table in PROBLEMS[name]).encode(), name)


@cache
def tape_of(name: str) -> Samples | None:
    problem = problem_of(name)
    if problem.tape is None:
        return None
    shape = (problem.tape.rollouts, problem.tape.samples)
    return Samples(
        actions=np.random.default_rng(3).integers(0, 3, shape),  # any tape in which all occur
        behaviour=np.zeros((shape[0], 3), np.float32),  # nobody replays it
        problem=name,
        problem_digest=problem.digest,
        seed=3,
        sampler="numpy",
        versions={},
    )


@cache
def grids_of(name: str) -> list[tuple[Points, Expected]]:
    wanted = [grid for grid in probes.core() if getattr(problem_of(name), grid.objective)]
    return [(grid, gate.evaluate_points(grid, "float32")) for grid in wanted]


@cache
def trajectory_of(name: str, dtype: str = "float32") -> Expected:
    return gate.whole_run(problem_of(name), tape_of(name), dtype)


@pytest.fixture(scope="session")
def played(
    backend: Callable[[str], Any],
) -> Callable[..., tuple[Trace, list[Trace], Expected | None]]:
    """Trains and evaluates once: played(problem, twin, fault) with the fault's piece, or none."""

    @cache
    def of(name: str, twin: str, fault: str = "") -> tuple[Trace, list[Trace], Expected | None]:
        module = backend(twin)
        pieces = FAULTS[fault](twin, module.PIECES) if fault else module.PIECES
        run = module.train(problem_of(name), tape_of(name), "float32", pieces)
        evaluations = [module.evaluate(grid, "float32", pieces) for grid, _ in grids_of(name)]
        return run, evaluations, gate.rederive(problem_of(name), tape_of(name), run, "float32")

    return of


@pytest.fixture(scope="session")
def case_of(played: Callable[..., Any]) -> Callable[..., Case]:
    """A case of both twins: case_of(problem, jax=fault, torch=fault), honest by default."""

    def of(name: str, **faults: str) -> Case:
        sides = {twin: played(name, twin, faults.get(twin, "")) for twin in TWINS}
        return Case(
            problem=problem_of(name),
            samples=tape_of(name),
            dtype="float32",
            traces={twin: run for twin, (run, _, _) in sides.items()},
            steps={twin: steps for twin, (_, _, steps) in sides.items()},
            trajectory=trajectory_of(name),
            grids=grids_of(name),
            evaluations={twin: evaluations for twin, (_, evaluations, _) in sides.items()},
        )

    return of


# Known bugs, one an algorithm, each as one replaced piece of either twin.


def _weights_limited(twin: str, pieces: Any) -> Any:
    """Weights are clamped after the step."""
    module = import_module(f"{twin}_impl.reward")
    clamp = import_module("jax.numpy").clip if twin == "jax" else import_module("torch").clamp

    def update(state: Any, gradient: Any, rate: Any) -> Any:
        moved = module.update(state, gradient, rate)
        return moved._replace(weights=clamp(moved.weights, -WEIGHT_LIMIT, WEIGHT_LIMIT))

    return pieces._replace(reward=pieces.reward._replace(update=update))


def _minimum_lost(twin: str, pieces: Any) -> Any:
    """-mean(clip(rho) A): the minimum with the unclipped term is gone."""
    module = import_module(f"{twin}_impl.ppo")

    def jax_loss(
        logits: Any, old: Any, actions: Any, advantages: Any, reference: Any, beta: Any, clip: Any
    ) -> Any:
        import jax
        import jax.numpy as jnp

        old, advantages, reference = jax.lax.stop_gradient((old, advantages, reference))
        logps = jax.nn.log_softmax(logits)
        ratios = jnp.exp(logps[actions] - old)
        surrogate = jnp.mean(jnp.clip(ratios, 1 - clip, 1 + clip) * advantages)
        kl = jnp.sum(jnp.exp(logps) * (logps - reference))
        return -surrogate + beta * kl, module.Terms(ratios, surrogate, kl)

    def torch_loss(
        logits: Any, old: Any, actions: Any, advantages: Any, reference: Any, beta: Any, clip: Any
    ) -> Any:
        import torch

        old, advantages, reference = old.detach(), advantages.detach(), reference.detach()
        logps = torch.log_softmax(logits, dim=0)
        ratios = torch.exp(logps[actions] - old)
        surrogate = torch.mean(torch.clamp(ratios, 1 - clip, 1 + clip) * advantages)
        kl = torch.sum(torch.exp(logps) * (logps - reference))
        return -surrogate + beta * kl, module.Terms(ratios, surrogate, kl)

    loss = jax_loss if twin == "jax" else torch_loss
    return pieces._replace(ppo=pieces.ppo._replace(loss=loss))


def _reference_follows(twin: str, pieces: Any) -> Any:
    """The reference becomes the policy after each update."""
    module = import_module(f"{twin}_impl.dpo")

    def logps(logits: Any) -> Any:
        if twin == "jax":
            return import_module("jax").nn.log_softmax(logits)
        return import_module("torch").log_softmax(logits, dim=0)

    def update(state: Any, gradient: Any, rate: Any) -> Any:
        moved = module.update(state, gradient, rate)
        return moved._replace(reference=logps(moved.logits))

    return pieces._replace(dpo=pieces.dpo._replace(update=update))


def _momentum(twin: str, pieces: Any) -> Any:
    """Half of the gradient last applied is applied once more."""
    module = import_module(f"{twin}_impl.reinforce")

    def update(state: Any, gradient: Any, rate: Any) -> Any:
        moved = module.update(state, gradient, rate)
        return moved._replace(logits=moved.logits - rate * state.gradient / 2)

    return pieces._replace(reinforce=pieces.reinforce._replace(update=update))


FAULTS: dict[str, Callable[[str, Any], Any]] = {
    "weights-limited": _weights_limited,
    "minimum-lost": _minimum_lost,
    "reference-follows": _reference_follows,
    "momentum": _momentum,
}


def _first_limited(honest: Trace) -> dict[str, int]:
    """The first update after which an honest weight is beyond the limit."""
    beyond = np.abs(honest["reward/weights"]).max(-1) > WEIGHT_LIMIT
    assert not beyond[0]
    return {"update": int(np.argmax(beyond))}


def _first_clipped(honest: Trace) -> dict[str, int]:
    """The first update in which the unclipped term of an honest sample is the smaller one."""
    ratios, advantages = honest["ppo/ratios"], honest["ppo/advantages"]
    lost = (ratios * advantages < np.clip(ratios, 0.8, 1.2) * advantages - 1e-3).any(-1)
    rollout, epoch = np.argwhere(lost)[0]  # 1e-3: beyond rounding and allowance, 1e-6
    assert (rollout, epoch) > (0, 0)
    return {"rollout": int(rollout), "epoch": int(epoch)}


# Problem, fault, the quantity that parts first, and the step at which it does.
PLANTED: list[tuple[str, str, str, Callable[[Trace], dict[str, int]]]] = [
    ("reward", "weights-limited", "reward/weights", _first_limited),
    ("ppo", "minimum-lost", "ppo/surrogate", _first_clipped),
    ("dpo", "reference-follows", "dpo/reference", lambda _: {"update": 1}),
    ("reinforce", "momentum", "reinforce/logits", lambda _: {"rollout": 1}),
]
planted = pytest.mark.parametrize(
    ("name", "fault", "quantity", "where"), PLANTED, ids=[fault for _, fault, _, _ in PLANTED]
)


def in_mode(report: LessonReport, mode: Mode) -> tuple[str, str, dict[str, int], list[str]]:
    """Verdict, first quantity, its step and the blame, as if there were only this mode."""
    comparisons = [c for c in report.comparisons if c.mode == mode]
    verdict = worst_verdict(c.verdict for c in comparisons)
    first = first_divergence(comparisons)
    assert first is not None
    return verdict, first.quantity, first.at, blame(comparisons, [], verdict)


@pytest.mark.parametrize("name", PROBLEMS)
def test_honest_twins_match(case_of: Callable[..., Case], name: str) -> None:
    report = gate.judge(case_of(name))
    assert report.verdict == "match"
    assert (report.first_divergence, report.blamed, report.samples_note) == (None, [], "")
    assert {c.verdict for c in report.comparisons} == {"match"}
    assert {c.mode for c in report.comparisons} == {"points", "step", "trajectory"}
    pairs = {(c.left, c.right) for c in report.comparisons}
    assert pairs == {("jax", ORACLE), ("torch", ORACLE), ("jax", "torch")}
    for comparison in report.comparisons:
        assert comparison.compared == np.prod(comparison.shape, dtype=int) > 0
        assert comparison.worst is not None
        assert float(comparison.worst.ratio) <= 1
    assert report.problem_digest == problem_of(name).digest
    tape = tape_of(name)
    assert report.samples_digest == (tape.digest if tape else "")


@planted
@pytest.mark.parametrize("twin", TWINS)
def test_a_planted_fault_is_found_and_placed(
    case_of: Callable[..., Case],
    played: Callable[..., Any],
    twin: str,
    name: str,
    fault: str,
    quantity: str,
    where: Callable[[Trace], dict[str, int]],
) -> None:
    at = where(played(name, twin)[0])
    report = gate.judge(case_of(name, **{twin: fault}))
    assert in_mode(report, "step") == ("divergent", quantity, at, [twin])
    assert in_mode(report, "trajectory") == ("divergent", quantity, at, [twin])
    assert (report.verdict, report.blamed) == ("divergent", [twin])
    first = report.first_divergence
    assert first is not None
    assert (first.quantity, first.at, first.mode) == (quantity, at, "step")
    assert (first.left, first.right) == (twin, ORACLE)
    honest = [c for c in report.comparisons if twin not in (c.left, c.right)]
    assert {c.verdict for c in honest} == {"match"}


@planted
def test_a_fault_of_both_twins_is_blamed_on_both(
    case_of: Callable[..., Case],
    played: Callable[..., Any],
    name: str,
    fault: str,
    quantity: str,
    where: Callable[[Trace], dict[str, int]],
) -> None:
    at = where(played(name, "jax")[0])
    report = gate.judge(case_of(name, jax=fault, torch=fault))
    for mode in ("step", "trajectory"):
        assert in_mode(report, mode) == ("divergent", quantity, at, ["jax", "torch"])
    assert (report.verdict, report.blamed) == ("divergent", ["jax", "torch"])
    between = [c for c in report.comparisons if ORACLE not in (c.left, c.right)]
    assert {c.verdict for c in between} == {"match"}  # they agree, and both are wrong


# Mutilated traces.


def with_quantity(trace: Trace, name: str, changed: Quantity | None) -> Trace:
    """The trace with a quantity replaced in its place, or without it."""
    quantities = {
        key: changed if key == name else quantity
        for key, quantity in trace.quantities.items()
        if key != name or changed is not None
    }
    return replace(trace, quantities=quantities)


def with_values(trace: Trace, name: str, values: Any) -> Trace:
    return with_quantity(trace, name, replace(trace.quantities[name], values=values))


def mutilated(trace: Trace, name: str) -> Iterator[tuple[str, str, Trace]]:
    """Yields what was done to a quantity, the verdict that it deserves, and the trace."""
    quantity = trace.quantities[name]
    values = quantity.values
    wider = np.int32 if values.dtype.kind == "i" else np.float64
    yield "removed", "inconclusive", with_quantity(trace, name, None)
    yield "emptied", "inconclusive", with_values(trace, name, values[:0])
    yield "given another axis", "divergent", with_values(trace, name, values[None])
    yield "given another dtype", "divergent", with_values(trace, name, values.astype(wider))
    yield "made longer", "divergent", with_values(trace, name, values[:1].repeat(99, axis=0))
    kind = "count" if quantity.kind != "count" else "value"
    yield "another kind", "divergent", with_quantity(trace, name, replace(quantity, kind=kind))
    axes = tuple(reversed(("odd", *quantity.axes[1:])))
    yield "other axes", "divergent", with_quantity(trace, name, replace(quantity, axes=axes))


def spoiled(trace: Trace, name: str) -> Iterator[tuple[str, Trace]]:
    """Yields one bad value, in the entry computed last, that keeps the quantity's form."""
    values = trace[name]
    bad = (1,) if values.dtype.kind == "i" else (np.nan, values.flat[-1] + 0.01)
    for value in bad:  # 0.01 is far beyond any allowance of these small problems, 1e-4 at most
        changed = values.copy()
        changed.flat[-1] = (values.flat[-1] + 1) % 3 if values.dtype.kind == "i" else value
        yield str(value), with_values(trace, name, changed)


@pytest.mark.parametrize("name", ["ppo", "dpo", "reinforce"])  # ppo fits its reward first
def test_no_mutilated_run_matches(case_of: Callable[..., Case], name: str) -> None:
    case = replace(case_of(name), grids=(), evaluations={})  # points are compared apart from runs
    honest = case.traces["torch"]
    for quantity in honest.quantities:
        for what, deserved, trace in mutilated(honest, quantity):
            assert gate.rederive(case.problem, case.samples, trace, "float32") is None
            report = gate.judge(
                replace(
                    case,
                    traces={**case.traces, "torch": trace},
                    steps={**case.steps, "torch": None},
                )
            )
            assert report.verdict == deserved, (quantity, what)
            assert report.blamed == ["torch"], (quantity, what)
            reasons = {c.reason for c in report.comparisons if c.quantity == quantity}
            assert any("torch" in reason for reason in reasons), (quantity, what)
            steps = [c for c in report.comparisons if c.mode == "step" and c.left == "torch"]
            assert {c.verdict for c in steps} == {"inconclusive"}, (quantity, what)


def test_an_invariant_alone_turns_the_gate_red(case_of: Callable[..., Case]) -> None:
    """One ULP is allowed everywhere but where ratios are exactly 1."""
    case = replace(case_of("ppo"), grids=(), evaluations={})
    trace = case.traces["torch"]
    ratios = trace["ppo/ratios"].copy()
    ratios[-1, 0, -1] = np.nextafter(np.float32(1), np.float32(2))
    moved = with_values(trace, "ppo/ratios", ratios)
    report = gate.judge(
        replace(
            case,
            traces={**case.traces, "torch": moved},
            steps={
                **case.steps,
                "torch": gate.rederive(case.problem, case.samples, moved, "float32"),
            },
        )
    )
    assert {c.verdict for c in report.comparisons} == {"match"}
    failed = [i for i in report.invariants if i.verdict != "match"]
    assert [(i.name, i.verdict) for i in failed] == [
        ("ppo/ratios exactly 1 at the first epoch", "divergent")
    ]
    assert (report.verdict, report.blamed) == ("divergent", ["torch"])


@pytest.mark.parametrize("name", ["ppo", "dpo", "reinforce"])
def test_no_spoiled_run_matches_though_the_twins_agree(
    case_of: Callable[..., Case], name: str
) -> None:
    case = replace(case_of(name), grids=(), evaluations={})
    for quantity in case.traces["jax"].quantities:
        pairs = zip(*(spoiled(case.traces[twin], quantity) for twin in TWINS), strict=True)
        for (what, left), (_, right) in pairs:
            traces = {"jax": left, "torch": right}
            steps = {
                twin: gate.rederive(case.problem, case.samples, trace, "float32")
                for twin, trace in traces.items()
            }
            report = gate.judge(replace(case, traces=traces, steps=steps))
            assert report.verdict == "divergent", (quantity, what)
            assert report.blamed == ["jax", "torch"], (quantity, what)
            for mode in ("step", "trajectory"):
                _, first, _, blamed = in_mode(report, mode)
                assert blamed == ["jax", "torch"], (quantity, what, mode)
                if mode == "trajectory":  # where nothing is re-derived from what was spoiled
                    assert first == quantity, what


def evaluated_as(case: Case, position: int, **changed: Trace) -> Case:
    """The case with some evaluations of one grid replaced."""
    evaluations = {twin: list(traces) for twin, traces in case.evaluations.items()}
    for twin, trace in changed.items():
        evaluations[twin][position] = trace
    return replace(case, evaluations=evaluations)


def own_grid(case_of: Callable[..., Case], name: str) -> tuple[Case, int]:
    """A case, and which of its grids is that of the objective itself."""
    case = case_of(name)
    return case, [grid.objective for grid, _ in case.grids].index(name)


OBJECTIVES = ["reward", "ppo", "dpo", "reinforce"]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_mutilated_evaluation_matches(case_of: Callable[..., Case], name: str) -> None:
    case, position = own_grid(case_of, name)
    honest = case.evaluations["torch"][position]
    assert gate.judge(replace(case, traces={}, steps={})).verdict == "match"
    for quantity in honest.quantities:
        for number, (what, deserved, trace) in enumerate(mutilated(honest, quantity)):
            # The run is judged again only now and then, to save time.
            runs = {} if number % 3 else {"traces": case.traces, "steps": case.steps}
            report = gate.judge(
                replace(
                    evaluated_as(case, position, torch=trace),
                    **({"traces": {}, "steps": {}} | runs),
                )
            )
            assert report.verdict == deserved, (quantity, what)
            assert report.blamed == ["torch"], (quantity, what)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_spoiled_evaluation_matches_though_the_twins_agree(
    case_of: Callable[..., Case], name: str
) -> None:
    case, position = own_grid(case_of, name)
    last = {"point": case.grids[position][0].sizes["point"] - 1}
    honest = {twin: case.evaluations[twin][position] for twin in TWINS}
    for quantity in honest["jax"].quantities:
        pairs = zip(*(spoiled(honest[twin], quantity) for twin in TWINS), strict=True)
        for (what, left), (_, right) in pairs:
            report = gate.judge(evaluated_as(case, position, jax=left, torch=right))
            assert (report.verdict, report.blamed) == ("divergent", ["jax", "torch"]), what
            first = report.first_divergence
            assert first is not None
            assert (first.quantity, first.mode, first.at) == (quantity, "points", last)


def test_an_unexpected_quantity_and_another_order_are_divergent(
    case_of: Callable[..., Case],
) -> None:
    case = case_of("dpo")
    honest = case.traces["torch"]
    extra = Quantity("dpo/accuracy", ("update",), "value", np.ones(6, np.float32))
    names = list(honest.quantities)
    for quantities in (
        dict(honest.quantities) | {"dpo/accuracy": extra},
        {name: honest.quantities[name] for name in reversed(names)},
    ):
        trace = replace(honest, quantities=quantities)
        assert gate.rederive(case.problem, None, trace, "float32") is None
        steps = {**case.steps, "torch": None}
        report = gate.judge(replace(case, traces={**case.traces, "torch": trace}, steps=steps))
        assert (report.verdict, report.blamed) == ("divergent", ["torch"])


def test_a_run_in_another_precision_is_divergent(
    case_of: Callable[..., Case], backend: Callable[[str], Any]
) -> None:
    """However well its values agree: a run is asked for in one dtype."""
    case = case_of("dpo")
    wide = backend("torch").train(case.problem, None, "float64")
    assert gate.rederive(case.problem, None, wide, "float32") is None
    steps = {**case.steps, "torch": None}
    report = gate.judge(replace(case, traces={**case.traces, "torch": wide}, steps=steps))
    assert (report.verdict, report.blamed) == ("divergent", ["torch"])


def test_float64_is_held_to_its_own_allowance(backend: Callable[[str], Any]) -> None:
    problem, name = problem_of("dpo"), "dpo/final_margins"
    grid = next(grid for grid in probes.core() if grid.objective == "dpo")
    run = backend("torch").train(problem, None, "float64")
    evaluated = backend("torch").evaluate(grid, "float64")

    def judged(trace: Trace) -> LessonReport:
        return gate.judge(
            Case(
                problem=problem,
                samples=None,
                dtype="float64",
                traces={"torch": trace},
                steps={"torch": gate.rederive(problem, None, trace, "float64")},
                trajectory=trajectory_of("dpo", "float64"),
                grids=[(grid, gate.evaluate_points(grid, "float64"))],
                evaluations={"torch": [evaluated]},
            )
        )

    assert judged(run).verdict == "match"
    # A thousandth of float32's roundoff, but a million times float64's.
    report = judged(with_values(run, name, run[name] * (1 + 1e-10)))
    assert (report.verdict, report.blamed) == ("divergent", ["torch"])
    assert report.first_divergence is not None
    assert report.first_divergence.quantity == name


# Noise that is accepted, and what is never accepted.


def noisy_evaluation(case: Case, name: str) -> Case:
    """Moves one entry of torch's evaluation to between its allowance and its bound."""
    objective = name.partition("/")[0]
    position, (_, oracle) = next(
        (i, pair) for i, pair in enumerate(case.grids) if pair[0].objective == objective
    )
    room = oracle.bound[name] / oracle.allowed[name]
    entry = np.unravel_index(np.argmax(room), room.shape)
    assert room[entry] > 3  # twice the allowance is then outside it and well inside the bound
    values = case.evaluations["torch"][position][name].copy()
    values[entry] = oracle.values[name][entry] + 2.5 * oracle.allowed[name][entry]
    evaluations = {twin: list(traces) for twin, traces in case.evaluations.items()}
    evaluations["torch"][position] = with_values(evaluations["torch"][position], name, values)
    return replace(case, evaluations=evaluations)


def test_noise_is_noisy_and_only_a_matching_pattern_accepts_it(
    case_of: Callable[..., Case],
) -> None:
    case = noisy_evaluation(case_of("all"), "ppo/gradient")
    report = gate.judge(case)
    assert (report.verdict, report.blamed) == ("noisy", ["torch"])
    first = report.first_divergence
    assert first is not None
    assert (first.quantity, first.mode) == ("ppo/gradient", "points")

    def accepted(pattern: str) -> tuple[str, list[str]]:
        noise = AllowedNoise(pattern=pattern, reason="summed in another order")
        judged = gate.judge(case, noise)
        listed = gate.with_accepted(noise, [judged])
        assert (listed.pattern, listed.reason) == (pattern, noise.reason)
        return judged.verdict, listed.quantities

    for pattern in ("ppo/gradient", "ppo/grad*", "*", "p?o/gradient", "[op]po/gradient"):
        assert accepted(pattern) == ("match", ["ppo/gradient"])
    for pattern in ("ppo/gradients", "dpo/gradient", "gradient", "PPO/GRADIENT", "ppo/gradient_*"):
        assert accepted(pattern) == ("noisy", [])


def test_every_noisy_quantity_must_be_accepted(case_of: Callable[..., Case]) -> None:
    case = noisy_evaluation(noisy_evaluation(case_of("all"), "ppo/gradient"), "dpo/gradient")
    one = AllowedNoise(pattern="ppo/*", reason="so")
    report = gate.judge(case, one)
    assert (report.verdict, report.blamed) == ("noisy", ["torch"])
    assert gate.with_accepted(one, [report]).quantities == ["ppo/gradient"]
    both = AllowedNoise(pattern="*/gradient", reason="so")
    report = gate.judge(case, both)
    assert (report.verdict, report.blamed) == ("match", [])
    assert gate.with_accepted(both, [report]).quantities == ["dpo/gradient", "ppo/gradient"]


def test_noise_in_step_mode_is_noisy(case_of: Callable[..., Case]) -> None:
    """Where the trajectory's allowance is wide enough not to call it divergent."""
    case, name = case_of("all"), "ppo/probabilities"
    steps = case.steps["torch"]
    assert steps is not None
    oracle = case.trajectory
    honest = steps.values[name]
    limit = np.minimum(
        steps.bound[name], oracle.allowed[name] - np.abs(honest - oracle.values[name])
    )
    entry = int(np.argmax(limit / steps.allowed[name]))
    assert limit[entry] > 1.2 * steps.allowed[name][entry]  # or this problem cannot show it
    values = case.traces["torch"][name].copy()
    values[entry] = honest[entry] + (steps.allowed[name][entry] + limit[entry]) / 2
    trace = with_values(case.traces["torch"], name, values)
    report = gate.judge(replace(case, traces={**case.traces, "torch": trace}))
    assert (report.verdict, report.blamed) == ("noisy", ["torch"])
    noise = AllowedNoise(pattern=name, reason="so")
    assert gate.judge(replace(case, traces={**case.traces, "torch": trace}), noise).verdict == (
        "match"
    )


@planted
def test_what_is_divergent_or_missing_is_never_accepted(
    case_of: Callable[..., Case], name: str, fault: str, quantity: str, where: Any
) -> None:
    del quantity, where
    everything = AllowedNoise(pattern="*", reason="no")
    report = gate.judge(case_of(name, torch=fault), everything)
    assert (report.verdict, report.blamed) == ("divergent", ["torch"])
    case = case_of(name)
    trace = with_quantity(case.traces["torch"], f"{name}/loss", None)
    mutilated_case = replace(
        case, traces={**case.traces, "torch": trace}, steps={**case.steps, "torch": None}
    )
    report = gate.judge(mutilated_case, everything)
    assert (report.verdict, report.blamed) == ("inconclusive", ["torch"])


# Nothing is never a match.


def test_nothing_compared_is_not_a_match(case_of: Callable[..., Case]) -> None:
    case = case_of("dpo")
    for nothing in (
        replace(case, traces={}, steps={}, grids=(), evaluations={}),
        replace(case, traces={}, steps={}, evaluations={}),
        replace(case, grids=(), evaluations={}),  # the run alone leaves branches unexercised
        replace(
            case,
            traces={"torch": replace(case.traces["torch"], quantities={})},
            steps={"torch": None},
            grids=(),
            evaluations={},
        ),
    ):
        report = gate.judge(nothing)
        assert report.verdict == "inconclusive"
        assert report.first_divergence is None


def test_a_tape_of_another_problem_is_mentioned(case_of: Callable[..., Case]) -> None:
    case = case_of("ppo")
    assert case.samples is not None
    foreign = replace(case.samples, problem="other", problem_digest="0" * 64)
    report = gate.judge(replace(case, samples=foreign))
    assert report.samples_note == "drawn for another problem, other"
    assert report.samples_digest == foreign.digest


def test_actions_that_are_not_the_tape_are_divergent(case_of: Callable[..., Case]) -> None:
    """Both twins replay the same wrong tape, consistently: only the tape itself can tell."""
    case = case_of("ppo")
    assert case.samples is not None
    other = replace(case.samples, actions=(case.samples.actions + 1) % 3)
    steps = {
        twin: gate.rederive(case.problem, other, trace, "float32")
        for twin, trace in case.traces.items()
    }
    trajectory = gate.whole_run(case.problem, other, "float32")
    report = gate.judge(replace(case, samples=other, steps=steps, trajectory=trajectory))
    assert (report.verdict, report.blamed) == ("divergent", ["jax", "torch"])
    first = report.first_divergence
    assert first is not None
    assert (first.quantity, first.at, first.mode) == ("ppo/actions", {"rollout": 0}, "step")
