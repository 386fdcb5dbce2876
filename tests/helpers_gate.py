"""Problems, tapes and honest runs that the tests of the gate judge."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from parity import gate
from parity.arithmetic.measure import Expected
from parity.comparison import Mode, blame, first_divergence, worst_verdict
from parity.gate import Case
from parity.lessons.probes import core
from parity.points import Points
from parity.problem import Problem, parse_problem
from parity.report import LessonReport
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
    wanted = [core(objective) for objective, _, _ in problem_of(name).parts()]
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
        pieces = FAULTS[fault](twin) if fault else {}
        run = module.train(problem_of(name), tape_of(name), "float32", pieces)
        evaluations = [
            module.evaluate(grid, "float32", _loss_in(pieces, grid)) for grid, _ in grids_of(name)
        ]
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


def _loss_in(pieces: Mapping[str, Any], grid: Points) -> Any:
    """The loss that is planted in the objective of a grid; None for its own."""
    planted = pieces.get(grid.objective)
    return planted and planted.loss


# Known bugs, one an algorithm, each as one replaced piece of either twin.


def _weights_limited(twin: str) -> dict[str, Any]:
    """Weights are clamped after the step."""
    module = import_module(f"parity.{twin}_impl.reward")
    clamp = import_module("jax.numpy").clip if twin == "jax" else import_module("torch").clamp

    def update(state: Any, gradient: Any, rate: Any) -> Any:
        moved = module.update(state, gradient, rate)
        return moved._replace(weights=clamp(moved.weights, -WEIGHT_LIMIT, WEIGHT_LIMIT))

    return {"reward": module.PIECES._replace(update=update)}


def _minimum_lost(twin: str) -> dict[str, Any]:
    """-mean(clip(rho) A): the minimum with the unclipped term is gone."""
    module = import_module(f"parity.{twin}_impl.ppo")

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
    return {"ppo": module.PIECES._replace(loss=loss)}


def _reference_follows(twin: str) -> dict[str, Any]:
    """The reference becomes the policy after each update."""
    module = import_module(f"parity.{twin}_impl.dpo")

    def logps(logits: Any) -> Any:
        if twin == "jax":
            return import_module("jax").nn.log_softmax(logits)
        return import_module("torch").log_softmax(logits, dim=0)

    def update(state: Any, gradient: Any, rate: Any) -> Any:
        moved = module.update(state, gradient, rate)
        return moved._replace(reference=logps(moved.logits))

    return {"dpo": module.PIECES._replace(update=update)}


def _momentum(twin: str) -> dict[str, Any]:
    """Half of the gradient last applied is applied once more."""
    module = import_module(f"parity.{twin}_impl.reinforce")

    def update(state: Any, gradient: Any, rate: Any) -> Any:
        moved = module.update(state, gradient, rate)
        return moved._replace(logits=moved.logits - rate * state.gradient / 2)

    return {"reinforce": module.PIECES._replace(update=update)}


FAULTS: dict[str, Callable[[str], dict[str, Any]]] = {
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
