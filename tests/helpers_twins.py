"""Twins that compute with the oracle, in a folder of their own."""

from pathlib import Path

import pytest

# What a twin must offer, computed by the oracle and rounded once; FAKE says what goes wrong, by
# implementation or problem.
ORACLE_TWIN = """
import json, os, pathlib, signal, sys, time
from dataclasses import replace
import numpy as np
from parity import gate
from parity.quantities import evaluated, expected
from parity.samples import Samples
from parity.trace import Quantity, Trace

FAKE = json.loads(os.environ.get("FAKE", "{}"))
VERSIONS = {
    "jax": {"jax": "0", "numpy": "0", "backend": "cpu", "deviceCount": "1"},
    "torch": {"torch": "0", "numpy": "0", "backend": "cpu", "threads": "1"},
}


def cast(name, specs, oracle, dtype, digest, tape=""):
    quantities = {}
    for spec in specs:
        values = oracle.values[spec.name]
        values = values if spec.integer else values.astype(dtype)
        quantities[spec.name] = Quantity(spec.name, spec.axes, spec.kind, values)
    return Trace(name, dtype, quantities, digest, tape, VERSIONS[name])


def changed(trace, what):
    kept = dict(trace.quantities)
    name, quantity = next((n, q) for n, q in kept.items() if n.endswith("/loss"))
    values = quantity.values.copy()
    if what == "wrong":
        values[1] += 0.01
    elif what == "nan":
        values[1] = np.nan
    elif what == "infinite":
        values[1] = np.inf
    elif what == "reshaped":
        values = values[None]
    elif what == "empty":
        values = values[:0]
    kept[name] = replace(quantity, values=values)
    if what == "missing":
        del kept[name]
    elif what == "extra":
        kept["dpo/accuracy"] = replace(quantity, name="dpo/accuracy")
    return replace(trace, quantities=kept)


def hang():
    # In the middle of writing a trace, which is a file beside its place by then.
    pathlib.Path.replace = lambda *_: time.sleep(600)
    here = pathlib.Path(os.environ["FAKE_PIDS"], str(os.getpid()))
    here.touch()


def twin(name):
    def train(problem, samples, dtype):
        if FAKE.get(name) == "hangs":
            hang()
        if FAKE.get(name) == "crashes":
            sys.exit("the twin gives up")
        digest = samples.digest if samples else ""
        oracle = gate.whole_run(problem, samples, dtype)
        trace = cast(name, expected(problem), oracle, dtype, problem.digest, digest)
        what = FAKE.get(problem.name)
        return changed(trace, what) if what and name == "torch" else trace

    def evaluate(points, dtype):
        oracle = gate.evaluate_points(points, dtype)
        specs = evaluated(points.objective, points.sizes)
        trace = cast(name, specs, oracle, dtype, points.digest)
        loss = f"{points.objective}/loss"
        if FAKE.get(name) == "noisy":
            room = oracle.bound[loss] / oracle.allowed[loss]
            assert room.max() > 3
            values = trace[loss].copy()
            at = room.argmax()
            values[at] = oracle.values[loss][at] + 2.5 * oracle.allowed[loss][at]
            noisy = replace(trace.quantities[loss], values=values)
            trace = replace(trace, quantities=dict(trace.quantities) | {loss: noisy})
        return trace

    def draw(problem, seed):
        shape = (problem.tape.rollouts, problem.tape.samples)
        actions = np.random.default_rng(seed).integers(0, 3, shape)
        behaviour = np.zeros((shape[0], 3), np.float32)
        samples = Samples(actions, behaviour, problem.name, problem.digest, seed, name, {name: "0"})
        after = gate.whole_run(problem, samples, "float32").values["ppo/logits"][:-1, -1]
        logits = np.concatenate([[problem.tape.logits], after])
        logps = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return replace(samples, behaviour=logps.astype(np.float32))

    return train, evaluate, draw
"""


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for PYTHONPATH, in which the oracle stands in for both frameworks."""
    return str(with_oracle(tmp_path_factory.mktemp("twins"), "jax", "torch"))


def with_oracle(folder: Path, *frameworks: str) -> Path:
    """Puts parity into a folder for PYTHONPATH: links to ours, and the oracle as some twins."""
    (folder / "oracle_twin.py").write_text(ORACLE_TWIN)
    (folder / "parity").mkdir()
    for name in frameworks:
        package = folder / "parity" / f"{name}_impl"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "backend.py").write_text(
            f"from oracle_twin import twin\ntrain, evaluate, draw = twin({name!r})\n"
        )
    for ours in (Path(__file__).parents[1] / "parity").iterdir():
        if not (folder / "parity" / ours.name).exists() and ours.name != "__pycache__":
            (folder / "parity" / ours.name).symlink_to(ours)
    return folder
