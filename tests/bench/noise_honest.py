"""What honest float32 programs need to be allowed, at the updates of the recorded lessons.

    python tests/bench/noise_honest.py

Fills three tables of docs/noise.md. Every program of `noise_programs.py` is right.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import noise_problems
import numpy as np
import torch
from noise_document import as_power, as_table, fill
from noise_measures import Array, blindness
from noise_programs import PROGRAMS

from parity import gate
from parity.arithmetic import operations as op
from parity.arithmetic.measure import Expected, measure
from parity.arithmetic.rounded import Luck
from parity.jax_impl import backend
from parity.lessons.oracle import at_points
from parity.objectives import find
from parity.points import Points
from parity.problem import load_problem
from parity.quantities import evaluated
from parity.samples import Samples
from parity.states import recorded_points

LESSONS = {"ppo": "posttraining-04", "reinforce": "policy-gradient-kl-control"}
ELSEWHERE = ((2, 1024), (3, 1000), (8, 256), (128, 1000))  # actions and samples of random points
MANY = tuple(product((2, 3, 8), (10, 48, 100, 300, 1000)))  # the same, of equal terms and sums / N
LATE = ("NumPy, onto 0, then / N", "NumPy, onto N x KL, then / N")
SEEDS = (1, 2, 3, 4)  # of the replicas, beside the one that ships
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


def former(points: Points) -> Array:
    """What the rule before this one allowed: 3 x the largest of those that sum the own terms."""
    luck, name = Luck(), f"{points.objective}/gradient"
    (lucky,), (plain,) = at_points(points, luck.lift), at_points(points, np.asarray)
    values = np.asarray(plain.values[name])
    deviations = np.abs(lucky.values[name].value - values[..., None])[..., ~luck.scaled]
    ulps = np.spacing(np.abs(values).astype(np.float32))
    return np.moveaxis(3 * deviations.max(-1) + ulps, -1, 0)


def seeded(points: Points, seed: int) -> Expected:
    """What other dice would allow."""
    shapes = {d.name: shape for d, shape in evaluated(points.objective, points.sizes).items()}
    return measure(
        lambda lift: at_points(points, lift), shapes, "float32", rigorous=False, luck=Luck(seed)
    )


def beside_the_former(objective: str, number: int, updates: Points, ours: Expected) -> list[str]:
    """Smallest faults (95 %) under both rules, and programs that divide by N late outside them."""
    name = f"{objective}/gradient"

    def caught(values: Array, allowed: Array) -> float:
        return float(np.quantile(blindness(values, allowed), 0.95))

    others = [seeded(updates, seed) for seed in SEEDS]
    by_seed = [caught(other.values[name], other.allowed[name]) for other in others]
    cells = [
        as_power(caught(ours.values[name], former(updates))),
        as_power(caught(ours.values[name], ours.allowed[name])),
        f"{as_power(min(by_seed))} to {as_power(max(by_seed))}",
    ]
    ratios: dict[tuple[str, str], list[Array]] = {}
    for k, n in MANY:
        points = noise_problems.draw(objective, f"{k} x {n}", [11, number, k, n], (k, n), 48)
        expected = gate.evaluate_points(points, "float32")
        for program in LATE:
            off = np.abs(PROGRAMS[program](points) - expected.values[name])
            for rule, allowed in (("former", former(points)), ("ours", expected.allowed[name])):
                ratios.setdefault((program, rule), []).append((off / allowed).max(-1))
    for parts in ratios.values():
        over = np.concatenate(parts)
        cells.append(f"{(over > 1).sum()} of {len(over)}, {over.max():.2f}")
    return cells


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
    rules: list[list[str]] = []
    for number, objective in enumerate(LESSONS):
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
        rules.append([objective, *beside_the_former(objective, number, sets[0], oracles[0])])
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
    former_head = ["former: 95 %", "ours: 95 %", f"ours, {len(SEEDS)} other seeds"]
    former_head += [
        f"{what}: {rule}" for what in ("onto 0", "onto N x KL") for rule in ("former", "ours")
    ]
    tables = {
        "former": as_table(["gradient of", *former_head], rules),
        "honest": as_table(["program", *head], ([name, *row] for name, row in needs.items())),
        "relative": as_table(["allowance over", *spreads], ([n, *r] for n, r in measures.items())),
    }
    for name, table in tables.items():
        print(f"{name}\n{table}\n")
    fill(DOCUMENT, tables)


if __name__ == "__main__":
    main()
