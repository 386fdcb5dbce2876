"""What the tests share: both twins on one thread, runs of the lessons, and random states."""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from parity.arithmetic import operations as op
from parity.arithmetic.measure import Expected
from parity.gate import whole_run
from parity.points import Points
from parity.problem import Problem, lessons, load_problem
from parity.samples import Samples
from parity.trace import Trace

# Before a framework is imported, which happens in fixtures only: tests that need none pay for none.
os.environ |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
os.environ.pop("JAX_ENABLE_X64", None)

settings.register_profile("parity", derandomize=True, deadline=None, database=None)
settings.load_profile("parity")

pytest_plugins = [
    "helpers_backends",
    "helpers_check_core",
    "helpers_check_whole",
    "helpers_cli",
    "helpers_gate",
    "helpers_mechanics",
    "helpers_twins",
]

# Files whose tests share something expensive: one worker takes them all. pytest-xdist's own
# --dist loadgroup groups nothing from pytest 9.2 on (pytest-xdist issue 1386).
TOGETHER = {
    "test_check.py": "check",
    "test_check_blind_spots.py": "check",
    "test_check_hostile.py": "hostile",
    "test_cli_run.py": "full run",
    "test_demo.py": "demo",
    "test_mechanics.py": "mechanics",
    "test_mechanics_command.py": "mechanics",
    "test_peers.py": "peers",
    "test_wheel.py": "full run",
}

IMPLEMENTATIONS = ("jax", "torch")
CLEARANCE = (
    1e-4  # of a ratio from a clip edge; float32 moves it by 1e-6, central differences by 2e-5
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER.get(nodeid.partition("::")[0].rpartition("/")[2], nodeid)

    return Together(config, log)


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def backend() -> Callable[[str], Any]:
    """Imports the backend of an implementation."""

    def of(implementation: str) -> Any:
        if implementation == "torch":
            import_module("torch").set_num_threads(1)
        return import_module(f"parity.{implementation}_impl.backend")

    return of


@pytest.fixture
def x64() -> Iterator[None]:
    """Lets JAX compute in float64."""
    with import_module("jax").enable_x64(True):
        yield


def precision(implementation: str, dtype: str) -> Any:
    wide = implementation == "jax" and dtype == "float64"
    return import_module("jax").enable_x64(True) if wide else nullcontext()


@pytest.fixture(scope="session")
def problems() -> dict[str, Problem]:
    return {name: load_problem(name) for name in lessons()}


@pytest.fixture(scope="session")
def tapes(problems: dict[str, Problem]) -> dict[str, Samples]:
    """The tapes that ship with lessons, by the lesson's name."""
    return {
        name: Samples.load(Path(problem.samples))
        for name, problem in problems.items()
        if problem.samples is not None
    }


@pytest.fixture(scope="session")
def tape(tapes: dict[str, Samples]) -> Samples:
    """The recorded tape of lesson 04."""
    return tapes["posttraining-04"]


@pytest.fixture(scope="session")
def trace_of(
    backend: Callable[[str], Any], problems: dict[str, Problem], tapes: dict[str, Samples]
) -> Callable[..., Trace]:
    """Runs a shipped lesson in this process, once: trace_of(lesson, implementation, dtype)."""

    @cache
    def of(lesson: str, implementation: str, dtype: str = "float32") -> Trace:
        with precision(implementation, dtype):
            return backend(implementation).train(problems[lesson], tapes.get(lesson), dtype)

    return of


@pytest.fixture(scope="session")
def expected_of(
    problems: dict[str, Problem], tapes: dict[str, Samples]
) -> Callable[[str], Expected]:
    """The oracle's float32 run of a shipped lesson with its allowances, once."""

    @cache
    def of(lesson: str) -> Expected:
        return whole_run(problems[lesson], tapes.get(lesson), "float32")

    return of


@pytest.fixture(scope="session")
def evaluate(backend: Callable[[str], Any]) -> Callable[..., Trace]:
    """Evaluates points, once: evaluate(implementation, points, dtype)."""
    traces: dict[tuple[str, str, str], Trace] = {}

    def of(implementation: str, points: Points, dtype: str = "float32") -> Trace:
        key = (implementation, points.digest, dtype)
        if key not in traces:
            with precision(implementation, dtype):
                traces[key] = backend(implementation).evaluate(points, dtype)
        return traces[key]

    return of


@pytest.fixture(scope="session")
def draw_points() -> Callable[..., Points]:
    """Draws states of an objective: draw_points(objective, seed, points, actions, samples)."""
    return draw


@cache
def draw(objective: str, seed: int, points: int, actions: int, samples: int) -> Points:
    """`samples` counts the pairs of the two preference objectives; `actions` reward's features."""
    random = np.random.default_rng(seed)
    states = [_STATES[objective](random, actions, samples) for _ in range(points)]
    inputs = {name: np.stack([state[name] for state in states]) for name in states[0]}
    grid = f"{objective}, seed {seed}"
    return Points(objective, grid, tuple(f"point {n}" for n in range(points)), inputs)


def single(values: Any) -> Any:
    """Float32 values held as float64."""
    return np.asarray(values, np.float32).astype(np.float64)


def _reward_state(random: np.random.Generator, features: int, pairs: int) -> dict[str, Any]:
    return {
        "weights": single(random.normal(size=features) * random.choice([0.1, 1, 3])),
        "chosen": single(random.normal(size=(pairs, features))),
        "rejected": single(random.normal(size=(pairs, features))),
    }


def _ppo_state(random: np.random.Generator, actions: int, samples: int) -> dict[str, Any]:
    """Policy, behaviour and reference all differ; no ratio is near a clip edge."""
    while True:
        scale, clip = random.choice([0.1, 1, 4]), single(random.choice([0.1, 0.2, 0.3]))
        logits = single(random.normal(size=actions) * scale)
        distance = random.normal(size=actions) * random.choice([0.01, 0.2, 1])
        behaviour = single(op.log_softmax(logits + distance))
        ratios = np.exp(op.log_softmax(logits) - behaviour)
        if np.abs(np.abs(ratios - 1) - clip).min() > CLEARANCE:
            break
    taken = random.choice(actions, size=samples, p=np.exp(op.log_softmax(behaviour)))
    scores = random.normal(size=actions)
    return {
        "logits": logits,
        "old_logps": behaviour[taken],
        "actions": taken.astype(np.int64),
        "advantages": single(scores[taken] - np.exp(behaviour) @ scores),
        "reference": single(op.log_softmax(random.normal(size=actions) * scale)),
        "beta": single(random.choice([0, 0.05, 0.2, 1])),
        "clip": clip,
    }


def _dpo_state(random: np.random.Generator, actions: int, pairs: int) -> dict[str, Any]:
    """Pairs repeat; an action is chosen in one and rejected in another."""
    scale = random.choice([0.1, 1, 4])
    chosen = random.integers(0, actions, pairs)
    return {
        "logits": single(random.normal(size=actions) * scale),
        "reference": single(op.log_softmax(random.normal(size=actions) * scale)),
        "chosen": chosen,
        "rejected": (chosen + random.integers(1, actions, pairs)) % actions,
        "beta": single(random.choice([0.1, 0.3, 1])),
    }


def _reinforce_state(random: np.random.Generator, actions: int, samples: int) -> dict[str, Any]:
    """Any actions will do: the objective does not ask who drew them."""
    scale = random.choice([0.1, 1, 4])
    logits, scores = single(random.normal(size=actions) * scale), random.normal(size=actions)
    taken = random.integers(0, actions, samples)
    expected = np.exp(op.log_softmax(logits)) @ scores
    return {
        "logits": logits,
        "actions": taken,
        "advantages": single(scores[taken] - expected),
        "reference": single(op.log_softmax(random.normal(size=actions) * scale)),
        "beta": single(random.choice([0, 0.05, 0.2, 1])),
    }


_STATES = {
    "reward": _reward_state,
    "ppo": _ppo_state,
    "dpo": _dpo_state,
    "reinforce": _reinforce_state,
}
