"""Small problems, made-up traces and their records."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.figures.document import Record
from parity.figures.record import record
from parity.objectives.dpo import DPO
from parity.objectives.ppo import PPO
from parity.objectives.reward import Reward
from parity.problem import Problem
from parity.quantities import expected
from parity.trace import Quantity, Trace

REWARD = Reward(
    features=((1.0, 0.0), (0.0, 1.0), (-1.0, -1.0)), preferences=((0, 1),), updates=4, rate=0.1
)
POLICY = PPO(logits=(0.2, 0.0, -0.2), rollouts=2, samples=5, epochs=1, rate=0.1, beta=0.2, clip=0.2)
PREFERENCES = DPO(
    logits=(0.0, 0.0, 0.0), preferences=((0, 1), (2, 0)), updates=3, rate=0.4, beta=0.3
)
BANDIT = Problem(name="bandit", reward=REWARD, ppo=POLICY)
PAIRS = Problem(name="pairs", dpo=PREFERENCES)
EPOCH = "1970-01-01T00:00:00+00:00"

Values = Mapping[str, Any]


def make_trace(problem: Problem, implementation: str, values: Values | None = None) -> Trace:
    """Fills every quantity with 0.25, 0.5, 0.75 …, all exact in float32, except those given."""
    quantities = {}
    for spec, shape in expected(problem).items():
        counted = 0.25 * np.arange(1, math.prod(shape) + 1).reshape(shape)
        given = np.asarray((values or {}).get(spec.name, counted), np.float32)
        assert given.shape == shape
        quantities[spec.name] = Quantity(spec.name, spec.axes, spec.kind, given)
    versions = {"jax": "0.9.2", "deviceCount": "1"} if implementation == "jax" else {}
    environment = {"backend": "cpu", "numpy": "2.4.4", "torch": "2.13.0"} | versions
    return Trace(implementation, "float32", quantities, environment=environment)


def make_record(problem: Problem, jax: Values | None = None, torch: Values | None = None) -> Record:
    traces = {
        "jax": make_trace(problem, "jax", jax),
        "torch": make_trace(problem, "torch", jax if torch is None else torch),
    }
    return record(
        problem, traces, verdict="match", report_digest="1a2b3c4d" * 8, generated_at=EPOCH
    )
