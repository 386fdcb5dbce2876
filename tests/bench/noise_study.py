"""The noise model against some thousand random problems: both frameworks, both dtypes, all modes.

    python tests/bench/noise_study.py [--quick] [--seed N] [--out FILE.json]

Everything that decides is what ships: the workers, the oracle and its allowances, the comparison,
the gate. Writes its numbers to docs/noise.json, and from them the tables of docs/noise.md and the
plot docs/noise.svg; with --quick, which takes a minute, to parity-out. At most one other process
runs at a time. Exit code 1 where a right program on random data or in a lesson was no match.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import noise_document
import numpy as np
from noise_measures import (
    BACKENDS,
    Margins,
    Shapes,
    blindness,
    formula,
    outside,
    side_by_side,
    spread,
)
from noise_problems import LATTICE, SCALES, TRAINED, Run, hard_cases, random_points, random_runs

from parity import gate
from parity.arithmetic.measure import Expected
from parity.backends import Workers, load_trace, worker_environment
from parity.files import digest, write_whole
from parity.gate import Case
from parity.objectives import built_in
from parity.points import Points
from parity.problem import Problem, load_problem
from parity.problem import lessons as recorded
from parity.samples import Samples
from parity.trace import Trace
from parity.worker import Evaluate, Job, Train

ROOT = Path(__file__).parents[2]
DTYPES = ("float32", "float64")
STACK = 16  # problems that are evaluated, and replicated, at once
TIMEOUT = 3600.0
QUICK_SHAPES = ("2 x 16", "8 x 64", "8 x 1024")
SPELLED_SHAPES = ("2 x 16", "2 x 1024", "8 x 64", "8 x 1024", "128 x 1024")

Traces = list[dict[str, Trace]]  # job to backend to trace

started = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)


def at_work(stacks: Sequence[Points], runs: Sequence[Run], dtype: str) -> tuple[Traces, Traces]:
    """Evaluates points and trains problems, one backend after the other, each in one worker."""
    by_backend = []
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        for backend in BACKENDS:
            jobs: list[Job] = []
            for number, points in enumerate(stacks):
                file = folder / f"{number}.points"
                points.save(file)
                jobs.append(Evaluate(str(file), str(folder / f"{number}.{backend}")))
            for number, run in enumerate(runs):
                tape = folder / f"{number}.tape"
                if run.samples:
                    run.samples.save(tape)
                output = str(folder / f"{number}.run.{backend}")
                jobs.append(Train(run.problem, str(tape) if run.samples else None, output))
            say(f"{backend} {dtype}: {len(jobs)} jobs")
            with Workers({backend: jobs}, dtype, TIMEOUT, lambda *_: None) as workers:
                for done, _ in enumerate(workers.finished(), 1):
                    if done % 100 == 0:
                        say(f"{backend} {dtype}: {done} of {len(jobs)}")
            by_backend.append([load_trace(backend, Path(job.output)) for job in jobs])
    traces = [dict(zip(BACKENDS, both, strict=True)) for both in zip(*by_backend, strict=True)]
    return traces[: len(stacks)], traces[len(stacks) :]


class Study:
    """What has been found so far."""

    def __init__(self) -> None:
        self.margins, self.shapes = Margins(), Shapes()
        self.problems: dict[str, int] = defaultdict(int)
        self.alarmed: dict[str, int] = defaultdict(int)
        self.invariants: dict[str, int] = defaultdict(int)
        self.gradients: dict[str, list[Any]] = {"lessons": [], "random": []}
        self.lesson_faults: list[dict[str, Any]] = []
        self.bounds: dict[str, list[Any]] = defaultdict(list)

    def points(self, data: str, stacks: Sequence[Points], traces: Traces, dtype: str) -> None:
        """Points mode, on random or on hard data."""
        say(f"oracle {dtype}: {len(stacks)} stacks of {data} points")
        for points, pair in zip(stacks, traces, strict=True):
            expected = gate.evaluate_points(points, dtype)
            case = Case(
                problem=Problem(name="points"),
                samples=None,
                dtype=dtype,
                traces={},
                steps={},
                trajectory=Expected({}, {}, {}),
                grids=[(points, expected)],
                evaluations={backend: [trace] for backend, trace in pair.items()},
            )
            comparisons = gate.judge(case).comparisons
            name = data if data == "random" else f"{points.objective}: {points.grid}"
            self.margins.add(name, dtype, comparisons)
            self.problems[f"{data} points, {dtype}"] += len(points.labels)
            alarmed = np.any([outside(trace, expected) for trace in pair.values()], axis=0)
            self.alarmed[f"{data} points, {dtype}"] += int(alarmed.sum())
            if data == "random":
                self.shapes.add(points, pair, expected, comparisons, dtype)
            if data == "random" and dtype == "float32":
                self._gradients(points, pair, expected)

    def _gradients(self, points: Points, pair: dict[str, Trace], expected: Expected) -> None:
        """Keeps gradients for the other rules, and the bound for the design's formula."""
        name = f"{points.objective}/gradient"
        values, allowed = expected.values[name], expected.allowed[name]
        self.gradients["random"] += zip(
            *(np.float64(pair[backend][name]) for backend in BACKENDS), values, allowed, strict=True
        )
        if points.objective == "ppo":
            some = values != 0
            bound = expected.bound[name][some]
            over_formula = bound / formula(points.inputs)[some]
            self.bounds["bound over the allowance"].append(bound / allowed[some])
            self.bounds["bound over the formula"].append(over_formula)
            samples = points.grid.partition(" x ")[2]
            self.bounds[f"bound over the formula, N = {samples}"].append(over_formula)

    def runs(self, data: str, runs: Sequence[Run], traces: Traces, dtype: str) -> None:
        """Step and trajectory mode, and the invariants."""
        say(f"oracle {dtype}: {len(runs)} {data} runs")
        for run, pair in zip(runs, traces, strict=True):
            trajectory = gate.whole_run(run.problem, run.samples, dtype)
            steps = {
                backend: gate.rederive(run.problem, run.samples, trace, dtype)
                for backend, trace in pair.items()
            }
            report = gate.judge(Case(run.problem, run.samples, dtype, pair, steps, trajectory))
            self.margins.add(data, dtype, report.comparisons)
            self.problems[f"{data} runs, {dtype}"] += 1
            alarmed = any(c.verdict != "match" for c in report.comparisons)
            self.alarmed[f"{data} runs, {dtype}"] += int(alarmed)
            for invariant in report.invariants:
                self.invariants[invariant.verdict] += 1
            if data == "lessons" and dtype == "float32":
                for name in (n for n in pair["jax"].quantities if n.endswith("/gradient")):
                    self._lesson(run.problem.name, name, pair, steps)

    def _lesson(
        self, lesson: str, name: str, pair: dict[str, Trace], steps: dict[str, Expected | None]
    ) -> None:
        rows = {}
        for backend, expected in steps.items():
            assert expected is not None
            both = (expected.values[name], expected.allowed[name])
            values, allowed = (array.reshape(-1, array.shape[-1]) for array in both)
            rows[backend] = np.float64(pair[backend][name]).reshape(values.shape)
            entry = {"lesson": lesson, "quantity": name, "framework": backend}
            self.lesson_faults.append(entry | spread(blindness(values, allowed)))
            if backend == "jax":
                ours = (values, allowed)
        self.gradients["lessons"] += zip(*rows.values(), *ours, strict=True)

    def found(self) -> dict[str, Any]:
        """Everything, as JSON holds it."""
        replicas = self.shapes.over_replicas.items()
        return {
            "problems": self.problems,
            "alarmed": self.alarmed,
            "invariants": self.invariants,
            "margins": self.margins.rows(),
            "alarms": self.margins.alarms,
            "shapes": self.shapes.rows(),
            "lesson_faults": self.lesson_faults,
            "over_replicas": [
                {"quantity": quantity, "framework": backend, "largest": largest}
                for (quantity, backend), largest in replicas
            ],
            "bounds": {name: spread(np.concatenate(parts)) for name, parts in self.bounds.items()},
            "side_by_side": {data: side_by_side(rows) for data, rows in self.gradients.items()},
        }


def spellings(stacks: Iterable[Points]) -> dict[str, Any]:
    """Wasteful spellings of PPO against allowance, bound and the design's formula; functions."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        named = {f"{number:03}": points for number, points in enumerate(stacks)}
        for stem, points in named.items():
            points.save(Path(folder) / f"{stem}.points")
        say(f"wasteful spellings: {len(named)} stacks")
        script = str(Path(__file__).with_name("noise_spellings.py"))
        environment = worker_environment("float32")
        subprocess.run([sys.executable, script, folder], env=environment, check=True)
        for stem, points in named.items():
            expected = gate.evaluate_points(points, "float32")
            values = expected.values["ppo/gradient"]
            limits = {
                "allowance": expected.allowed["ppo/gradient"],
                "bound": expected.bound["ppo/gradient"],
                "formula": formula(points.inputs),
            }
            for file in sorted(Path(folder).glob(f"{stem}.[0-9].*")):
                _, spelling, backend = file.name.split(".")
                deviation = np.abs(Trace.load(file)["ppo/gradient"] - values)
                row = found.setdefault((spelling, backend), defaultdict(float))
                row["problems"] += len(points.labels)
                for limit, allowed in limits.items():
                    ratio = deviation / np.where(deviation == 0, 1.0, allowed)
                    row[limit] = max(row[limit], float(ratio.max()))
                    row[f"outside {limit}"] += int((deviation > allowed).any(-1).sum())
        functions = json.loads(Path(folder, "functions.json").read_bytes())
    rows = [
        {"spelling": int(number), "framework": backend} | row
        for (number, backend), row in sorted(found.items())
    ]
    return {"spellings": rows, "functions": functions}


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text().splitlines() if table.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": (models or [platform.processor()])[0],
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def model_digest() -> str:
    """SHA-256 of the sources that decide how far rounding may move an entry."""
    package = ROOT / "parity"
    named = (*built_in(), "categorical", "evaluation", "pairs")
    sources = [*sorted((package / "arithmetic").glob("*.py")), package / "lessons" / "oracle.py"]
    sources += [package / "objectives" / f"{name}.py" for name in named]
    return digest([source.read_text() for source in sources])


def encode(result: dict[str, Any]) -> bytes:
    """JSON with a row a line, and no more digits than are worth reading."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: short(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [short(entry) for entry in value]
        return float(f"{value:.5g}") if isinstance(value, float) else value

    def text(value: Any) -> str:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
        return json.dumps(value)

    rows = (f"{json.dumps(key)}: {text(short(value))}" for key, value in result.items())
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a minute: fewer problems and shapes")
    parser.add_argument("--seed", type=int, default=1, help="of all random problems")
    parser.add_argument("--out", type=Path, help="docs/noise.json; parity-out/noise.json if quick")
    options = parser.parse_args()
    quick, seed = options.quick, options.seed
    out = options.out or ROOT / ("parity-out" if quick else "docs") / "noise.json"
    model = model_digest()

    stacks = list(random_points(seed, STACK if quick else 6 * STACK, STACK))
    if quick:
        stacks = [points for points in stacks if points.grid in QUICK_SHAPES]
    hard = list(hard_cases(seed, STACK))
    if quick:
        hard = [points for points in hard if points.sizes.get("sample", 0) < 1000]
    share = 2 if quick else 48
    shapes = TRAINED[:1] if quick else TRAINED
    runs = list(random_runs(seed, {k: max(2, share * 16 // n) for k, n in shapes}))

    lessons = [
        Run(problem, Samples.load(Path(problem.samples)) if problem.samples else None)
        for problem in map(load_problem, recorded())
    ]

    study = Study()
    for dtype in DTYPES:
        points, trained = at_work([*stacks, *hard], [*runs, *lessons], dtype)
        study.points("random", stacks, points[: len(stacks)], dtype)
        study.points("hard", hard, points[len(stacks) :], dtype)
        study.runs("random", runs, trained[: len(runs)], dtype)
        study.runs("lessons", lessons, trained[len(runs) :], dtype)
    spelled = [s for s in stacks if s.objective == "ppo" and s.grid in SPELLED_SHAPES]
    result = {
        "command": " ".join(["python", "tests/bench/noise_study.py", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seed": seed,
        "model": model,
        "machine": machine(),
        "versions": {n: version(n) for n in ("jax", "jaxlib", "torch", "numpy", "rlhf-parity")},
        "lattice": LATTICE,
        "trained": TRAINED,
        "scales": SCALES,
        **study.found(),
        **spellings(spelled),
    }
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result["seconds"] = round(time.monotonic() - started)
    result["cpu_seconds"] = round(sum(usage.ru_utime + usage.ru_stime for usage in spent))
    if model_digest() != model:
        sys.exit("the noise model was edited during the study: its numbers are worthless")
    write_whole(out, encode(result))
    noise_document.write(out)
    say(f"{out}, and what is drawn and tabulated from it")
    print(noise_document.tables(result)["alarms"])
    sys.exit(any(count for data, count in study.alarmed.items() if not data.startswith("hard")))


if __name__ == "__main__":
    main()
