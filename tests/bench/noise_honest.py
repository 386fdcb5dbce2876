"""What honest float32 programs need to be allowed, at the updates of the recorded lessons.

    python tests/bench/noise_honest.py

Fills two tables of docs/noise.md. Every program of `noise_programs.py` is right.
"""

from collections.abc import Mapping
from pathlib import Path

import noise_problems
import numpy as np
import torch
from noise_document import as_power, as_table, fill
from noise_measures import Array, blindness
from noise_programs import PROGRAMS

from parity import gate
from parity.arithmetic import operations as op
from parity.jax_impl import backend
from parity.lessons.oracle import at_points
from parity.objectives import find
from parity.points import Points
from parity.problem import load_problem
from parity.samples import Samples
from parity.states import recorded_points

LESSONS = {"ppo": "posttraining-04", "reinforce": "policy-gradient-kl-control"}
ELSEWHERE = ((2, 1024), (3, 1000), (8, 256), (128, 1000))  # actions and samples of random points
DOCUMENT = Path(__file__).parents[2] / "docs" / "noise.md"


def lesson(objective: str) -> Points:
    """Every update of a recorded lesson, as JAX trained it."""
    problem = load_problem(LESSONS[objective])
    samples = Samples.load(Path(str(problem.samples)))
    run = backend.train(problem, samples)
    return recorded_points(problem, find(objective), run, samples)[0]


def of_samples(points: Points) -> tuple[Array, Array]:
    """The exact gradient without the KL, and Σ|terms| of all that is added in each entry."""
    inputs: Mapping[str, Array] = points.inputs
    without = Points(
        points.objective,
        points.grid,
        points.labels,
        {**inputs, "beta": np.zeros_like(inputs["beta"])},
    )
    (emission,) = at_points(without, np.asarray)
    alone = np.moveaxis(emission.values[f"{points.objective}/gradient"], -1, 0)
    logps, actions = op.log_softmax(inputs["logits"], axis=1), inputs["actions"]
    policy, weights = np.exp(logps), np.abs(inputs["advantages"]) / points.sizes["sample"]
    if points.objective == "ppo":  # clipped ones count too: few
        ratios = np.exp(np.take_along_axis(logps, actions, axis=1) - inputs["old_logps"])
        weights = weights * ratios
    sizes = inputs["beta"][:, None] * policy * (np.abs(logps - inputs["reference"]) + 1)
    np.add.at(sizes, (np.arange(len(sizes))[:, None], actions), weights)
    return alone, sizes + policy * sizes.sum(-1, keepdims=True)


def main() -> None:
    torch.set_num_threads(1)
    random = {
        objective: [
            noise_problems.draw(objective, f"{k} x {n}", [7, number, k, n], (k, n), 8)
            for k, n in ELSEWHERE
        ]
        for number, objective in enumerate(LESSONS)
    }
    needs: dict[str, list[str]] = {name: [] for name in PROGRAMS}
    measures: dict[str, list[str]] = {}
    for objective in LESSONS:
        sets = [lesson(objective), *random[objective]]
        oracles = [gate.evaluate_points(points, "float32") for points in sets]
        name = f"{objective}/gradient"
        values, allowed = oracles[0].values[name], oracles[0].allowed[name]
        for program, gradients in PROGRAMS.items():
            off = [
                np.abs(gradients(p) - o.values[name]) for p, o in zip(sets, oracles, strict=True)
            ]
            needed = blindness(values, off[0])
            over = [(d / o.allowed[name]).max() for d, o in zip(off, oracles, strict=True)]
            needs[program] += [
                *(as_power(float(x)) for x in (np.quantile(needed, 0.95), needed.max())),
                f"{(needed > 3e-6).sum()} of {len(needed)}",
                f"{over[0]:.2f}",
                f"{max(over[1:]):.2f}",
            ]
        alone, sizes = of_samples(sets[0])
        size = np.abs(values).max(-1, keepdims=True)
        of_what = {
            "an entry itself": values,
            "the gradient's largest entry": np.broadcast_to(size, values.shape),
            "what the samples alone give": alone,
            "what the KL alone gives": values - alone,
            "Σ of the sizes of all terms": sizes,
        }
        for what, against in of_what.items():
            found = blindness(against, allowed)
            spread = [as_power(float(np.quantile(found, q))) for q in (0.5, 0.95)]
            measures.setdefault(what, []).extend(spread)
    columns = ("95 %", "largest", "above 3e-6", "over allowance", "elsewhere")
    head = [f"{objective}: {c}" for objective in ("PPO", "REINFORCE") for c in columns]
    spreads = [f"{o}: {c}" for o in ("PPO", "REINFORCE") for c in ("median", "95 %")]
    tables = {
        "honest": as_table(["program", *head], ([name, *row] for name, row in needs.items())),
        "relative": as_table(["allowance over", *spreads], ([n, *r] for n, r in measures.items())),
    }
    for name, table in tables.items():
        print(f"{name}\n{table}\n")
    fill(DOCUMENT, tables)


if __name__ == "__main__":
    main()
