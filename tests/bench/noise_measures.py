"""What the study takes from each problem: margins, smallest faults, and the bound's tightness."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.arithmetic import operations as op
from parity.arithmetic.measure import Expected, measure
from parity.arithmetic.rounded import SMALLEST, UNIT_ROUNDOFF, Luck
from parity.comparison import Comparison
from parity.lessons.oracle import at_points
from parity.points import Points
from parity.quantities import evaluated
from parity.trace import Trace

__all__ = [
    "BACKENDS",
    "RULES",
    "Margins",
    "Pair",
    "Shapes",
    "blindness",
    "formula",
    "least_fault",
    "outside",
    "over_replicas",
    "side_by_side",
    "spread",
    "unchained",
    "without_chaining",
]

Array = NDArray[np.float64]
Row = dict[str, Any]

BACKENDS = ("jax", "torch")
CHAINED = ("ppo", "reinforce")  # objectives whose samples are scattered beside a KL


def spread(values: Any) -> dict[str, float]:
    """Least, median, 95th percentile and largest of the finite ones."""
    array = np.asarray(values, float).ravel()
    array = array[np.isfinite(array)]
    if not array.size:
        return {"count": 0}
    return {
        "count": int(array.size),
        "min": float(array.min()),
        "median": float(np.median(array)),
        "p95": float(np.quantile(array, 0.95)),
        "max": float(array.max()),
    }


class Margins:
    """The largest difference over allowance, and the verdicts, of many comparisons."""

    KEYS = ("data", "dtype", "mode", "objective", "kind", "sides")

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], Row] = {}
        self.alarms: list[Row] = []

    def add(self, data: str, dtype: str, comparisons: Iterable[Comparison]) -> None:
        """Counts the comparisons of one judgement; what does not match is kept."""
        for c in comparisons:
            objective = c.quantity.partition("/")[0]
            key = (data, dtype, c.mode, objective, c.kind, f"{c.left} {c.right}")
            row = self._rows.setdefault(key, {"comparisons": 0, "entries": 0, "largest": 0.0})
            row["comparisons"] += 1
            row["entries"] += c.compared
            row[c.verdict] = row.get(c.verdict, 0) + 1
            ratio = float(c.worst.ratio) if c.worst else 0.0
            row["largest"] = max(row["largest"], ratio)
            if c.verdict != "match":
                at = list(c.worst.index) if c.worst else []
                alarm = {"quantity": c.quantity, "grid": c.grid, "verdict": c.verdict}
                alarm |= {"ratio": ratio, "index": at}
                self.alarms.append(dict(zip(self.KEYS, key, strict=True)) | alarm)

    def rows(self) -> list[Row]:
        """One row per data, dtype, mode, objective, class of quantity and pair."""
        return [dict(zip(self.KEYS, key, strict=True)) | row for key, row in self._rows.items()]


def outside(trace: Trace, expected: Expected) -> NDArray[np.bool_]:
    """Says for which of the stacked problems any entry lies outside its allowance."""
    found = np.zeros(len(next(iter(expected.values.values()))), bool)
    for name, values in expected.values.items():
        excess = ~(np.abs(trace[name] - values) <= expected.allowed[name])
        found |= excess.reshape(len(found), -1).any(-1)
    return found


def over_replicas(trace: Trace, expected: Expected, name: str) -> Array:
    """A float32 run's deviation over what the replicas alone allow, entry by entry.

    That is the allowance less its ULP. Entries that the replicas do not move at all count as 0.
    """
    values = expected.values[name]
    replicas = expected.allowed[name] - np.spacing(np.abs(values).astype(np.float32))
    moved = replicas > SMALLEST
    return np.where(moved, np.abs(trace[name] - values) / np.where(moved, replicas, 1.0), 0.0)


def unchained() -> Luck:
    """Dice with which every replica scatters onto zero, none onto the KL's gradient."""
    luck = Luck()
    luck.adds_onto_base = np.zeros_like(luck.adds_onto_base)
    return luck


def without_chaining(points: Points) -> Expected:
    """The allowance as it would be without chaining."""
    shapes = {spec.name: shape for spec, shape in evaluated(points.objective, points.sizes).items()}
    return measure(
        lambda lift: at_points(points, lift), shapes, "float32", rigorous=False, luck=unchained()
    )


def blindness(values: Array, allowed: Array) -> Array:
    """Per gradient, the least of allowed / |gradient| over its entries."""
    with np.errstate(divide="ignore"):
        return (allowed / np.abs(values)).min(-1)


Rule = Callable[[Array], Array]

RULES: dict[str, Rule] = {
    # torch 2.13, torch/testing/_comparison.py: float32 in _DTYPE_PRECISIONS; |a - b| <= sum
    "torch.testing.assert_close": lambda right: 1e-5 + 1.3e-6 * np.abs(right),
    # chex 0.1.92, chex/_src/asserts.py: np.testing.assert_allclose with these defaults
    "chex.assert_trees_all_close": lambda right: 1e-6 * np.abs(right),
    # numpy 2.4, numpy/testing/_private/utils.py
    "numpy.testing.assert_allclose": lambda right: 1e-7 * np.abs(right),
    # polygraphy 0.53.6, polygraphy/comparator/compare.py, elemwise: above atol and above rtol
    "polygraphy CompareFunc.simple": lambda right: np.maximum(1e-5, 1e-5 * np.abs(right)),
}
"""What each public rule allows at its default settings, entry by entry, for float32."""


class Pair(NamedTuple):
    """One gradient of two honest sides, and what may part them.

    Attributes:
        left: the side whose gradient a fault scales.
        right: what it is compared with.
        tolerance: how far they may be apart.
    """

    left: Array
    right: Array
    tolerance: Array

    @property
    def flagged(self) -> bool:
        """Whether it is flagged as it is, without a fault: a false alarm."""
        return bool((np.abs(self.left - self.right) > self.tolerance).any())

    @property
    def needed(self) -> float:
        """By how much the tolerance must be multiplied, at least, so that it is not flagged."""
        distance = np.abs(self.left - self.right)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.where(distance == 0, 0.0, distance / self.tolerance).max())

    def scaled(self, factor: float) -> "Pair":
        """The same sides under a tolerance that is multiplied."""
        return self._replace(tolerance=factor * self.tolerance)


def least_fault(pair: Pair) -> float:
    """The least δ for which the left side times 1 + δ, and times 1 - δ, is flagged."""
    some = pair.left != 0
    if not some.any():
        return np.inf
    left, right, tolerance = (side[some] for side in pair)
    ahead = (left - right) * np.sign(left)
    size = np.abs(left)
    return float(max(((tolerance - ahead) / size).min(), ((tolerance + ahead) / size).min(), 0.0))


def side_by_side(gradients: Sequence[Array]) -> Row:
    """What each rule catches and falsely flags on the same gradients, as it is and loosened.

    JAX's gradient is scaled by a fault. Ours compares it with the oracle; the other rules compare
    it with PyTorch's, for they have no oracle. Loosened: both tolerances times one factor, the
    least that flags none of these honest gradients.

    Args:
        gradients: rows of JAX's, PyTorch's, the oracle's, and the allowance.
    """
    ours = [Pair(jax, oracle_, allowed) for jax, _, oracle_, allowed in gradients]
    mine = np.array([least_fault(pair) for pair in ours])
    rules: Row = {
        "parity": {
            "default": spread(mine),
            "false_alarms": sum(pair.flagged for pair in ours),
            "needed": max(pair.needed for pair in ours),
        }
    }
    for name, rule in RULES.items():
        pairs = [Pair(jax, torch, rule(torch)) for jax, torch, _, _ in gradients]
        theirs = np.array([least_fault(pair) for pair in pairs])
        some = np.isfinite(mine)  # a gradient of zeros has no relative fault
        rules[name] = {
            "default": spread(theirs),
            "false_alarms": sum(pair.flagged for pair in pairs),
            "blunter": spread(theirs[some] / mine[some]),
            "ten_times": float((theirs >= 10 * mine)[some].mean()),
        }
        factor = max(1.0, *(pair.needed for pair in pairs))
        if np.isfinite(factor):  # no factor is enough where nothing is allowed at all
            loosened = np.array([least_fault(pair.scaled(factor)) for pair in pairs])
            rules[name] |= {
                "needed": factor,
                "loosened": spread(loosened),
                "blunter_loosened": spread(loosened[some] / mine[some]),
                "ten_times_loosened": float((loosened >= 10 * mine)[some].mean()),
            }
    return {"gradients": len(gradients), "rules": rules}


def formula(inputs: Mapping[str, NDArray[Any]]) -> Array:
    """The design's closed bound on the PPO gradient's error.

    u (N + K + 10 + 4 max |log-values|) (A + π ΣA), A = Σ|terms| per action; clipped samples have
    no term.
    """
    logits, old_logps, reference = (inputs[k] for k in ("logits", "old_logps", "reference"))
    actions, samples = logits.shape[-1], old_logps.shape[-1]
    logps = op.log_softmax(logits, axis=1)
    policy = np.exp(logps)
    of_kl = inputs["beta"][:, None] * policy * (np.abs(logps - reference) + 1)
    ratios = np.exp(np.take_along_axis(logps, inputs["actions"], axis=1) - old_logps)
    advantages, clip = inputs["advantages"], inputs["clip"][:, None]
    active = np.where(advantages > 0, ratios <= 1 + clip, ratios >= 1 - clip)
    terms = active * ratios * np.abs(advantages) / samples
    sizes = of_kl.copy()
    np.add.at(sizes, (np.arange(len(sizes))[:, None], inputs["actions"]), terms)
    logs = np.concatenate([logps, old_logps, reference, logits], axis=-1)
    steps = samples + actions + 10 + 4 * np.abs(logs).max(-1, keepdims=True)
    return UNIT_ROUNDOFF * steps * (sizes + policy * sizes.sum(-1, keepdims=True))


class Shapes:
    """What moves with size: per objective and shape, margins and smallest faults."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int, int, str], Row] = {}
        self.over_replicas: dict[tuple[str, str], float] = defaultdict(float)

    def add(
        self,
        points: Points,
        pair: Mapping[str, Trace],
        expected: Expected,
        comparisons: Iterable[Comparison],
        dtype: str,
    ) -> None:
        """Takes in one stack of one shape."""
        actions, samples = (int(length) for length in points.grid.split(" x "))
        zero = dict.fromkeys(BACKENDS, 0.0)
        fresh: Row = {"problems": 0, "gradient": {**zero}, "any": {**zero}}
        row = self._rows.setdefault((points.objective, actions, samples, dtype), fresh)
        row["problems"] += len(points.labels)
        name = f"{points.objective}/gradient"
        for c in comparisons:
            if c.right == "oracle" and c.worst:
                ratio = float(c.worst.ratio)
                row["any"][c.left] = max(row["any"][c.left], ratio)
                if c.quantity == name:
                    row["gradient"][c.left] = max(row["gradient"][c.left], ratio)
        if dtype == "float32":
            self._single(row, points, pair, expected, name)

    def _single(
        self, row: Row, points: Points, pair: Mapping[str, Trace], expected: Expected, name: str
    ) -> None:
        values, allowed = expected.values[name], expected.allowed[name]
        row.setdefault("faults", []).append(blindness(values, allowed))
        torch = pair["torch"][name].astype(np.float64)
        rule = RULES["torch.testing.assert_close"](torch)
        row.setdefault("assert_close", []).append(blindness(torch, rule))
        largest = row.setdefault("replicas", dict.fromkeys(BACKENDS, 0.0))
        for backend, trace in pair.items():
            for quantity in expected.values:
                found = float(over_replicas(trace, expected, quantity).max())
                key = (quantity, backend)
                self.over_replicas[key] = max(self.over_replicas[key], found)
                if quantity == name:
                    largest[backend] = max(largest[backend], found)
        if points.objective not in CHAINED:
            return
        bare = without_chaining(points)
        largest = row.setdefault("bare", dict.fromkeys(BACKENDS, 0.0))
        alarms = row.setdefault("bare_alarms", dict.fromkeys(BACKENDS, 0))
        for backend, trace in pair.items():
            found = float(over_replicas(trace, bare, name).max())
            largest[backend] = max(largest[backend], found)
            excess = np.abs(trace[name] - bare.values[name]) > bare.allowed[name]
            alarms[backend] += int(excess.any(-1).sum())

    def rows(self) -> list[Row]:
        """One row per objective, shape and dtype."""
        names = ("objective", "actions", "samples", "dtype")
        table = []
        for key, row in self._rows.items():
            spreads = {
                name: spread(np.concatenate(row[name]))
                for name in ("faults", "assert_close")
                if name in row
            }
            table.append(dict(zip(names, key, strict=True)) | row | spreads)
        return table
