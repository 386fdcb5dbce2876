"""The `parity` command from outside: exit codes, files, words; real frameworks where they matter.

Where they do not, twins that compute with the oracle stand in for both: a run of theirs costs a
tenth, and can be told to fail in every way.
"""

import fcntl
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from cli.main import main
from parity.files import write_arrays
from parity.problem import load_problem, parse_problem
from parity.report import Report
from parity.samples import Samples, SamplesHeader
from parity.trace import Trace

ROOT = Path(__file__).parents[1]
PARITY = Path(sys.executable).with_name("parity")
LESSONS = ["policy-gradient-kl-control", "posttraining-04", "posttraining-05"]  # the shipped ones
FIGURES = [".json", ".svg", "-mechanism.svg"]  # what a lesson that matched gets
PATIENCE = 120.0  # seconds for what takes ten, on a busy machine
OURS = re.compile(r"JAX|XLA|OMP|MKL|FAKE|NO_COLOR|FORCE_COLOR|COLUMNS|PYTHON|SOURCE_DATE|TERM")

DPO = """
[dpo]
logits = [0.5, -0.3, 0.1]
reference_logits = [-0.2, 0.4, 0.0]
preferences = [[0, 1], [0, 2]]
updates = 3
rate = 0.4
beta = 0.3
"""
PPO = """
[reward]
features = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
preferences = [[0, 1], [0, 2], [1, 2]]
updates = 3
rate = 0.3

[ppo]
logits = [0.5, -0.3, 0.1]
reference_logits = [-0.2, 0.4, 0.0]
rollouts = 3
samples = 8
epochs = 2
rate = 0.9
beta = 0.3
clip = 0.2
seed = 5
"""

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


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def closing(self) -> str:
        return self.out.splitlines()[-1]


def environment(**changes: str) -> dict[str, str]:
    """The environment without what would change a run, and with what a test wants."""
    return {name: value for name, value in os.environ.items() if not OURS.match(name)} | changes


def parity(*arguments: str | Path, cwd: Path, **changes: str) -> Ran:
    done = subprocess.run(
        [PARITY, *arguments],
        cwd=cwd,
        env=environment(**changes),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def started(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The command while it runs; it does not outlive the block."""
    process = subprocess.Popen(
        [PARITY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **options
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def inside(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Ran]]:
    """The command in this process, like `parity` above: its workers alone are started."""
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str | Path, cwd: Path, **changes: str) -> Ran:
        monkeypatch.chdir(cwd)
        for name, value in changes.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        assert isinstance(end.value.code, int)
        return Ran(end.value.code, *capsys.readouterr())

    yield run
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for PYTHONPATH, in which the oracle stands in for both frameworks."""
    folder = tmp_path_factory.mktemp("twins")
    (folder / "oracle_twin.py").write_text(ORACLE_TWIN)
    for name in ("jax", "torch"):
        package = folder / f"{name}_impl"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "backend.py").write_text(
            f"from oracle_twin import twin\ntrain, evaluate, draw = twin({name!r})\n"
        )
    return str(folder)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder's content once, even where several pytest workers ask for it."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        folder = root / name
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                folder.mkdir()
                fill(folder)
        return folder

    return make


def recorded(folder: Path, ran: Ran) -> None:
    (folder / "ran.json").write_text(json.dumps(ran))


def ran_in(folder: Path) -> Ran:
    return Ran(*json.loads((folder / "ran.json").read_text()))


def report_in(folder: Path) -> Report:
    return msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file below a folder: when it was written and what is in it."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def names(folder: Path) -> set[str]:
    return set(contents(folder))


def old_results(out: Path) -> None:
    """What an earlier run left."""
    for name in (
        "report.json",
        "figures/old.svg",
        "figures/old.json",
        "traces/old.jax.safetensors",
    ):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("{}")


def check_schema(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> None:
    """Checks a document against as much of JSON Schema as ours uses."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        errors = []
        for option in schema["anyOf"]:
            try:
                check_schema(value, option, root)
                return
            except AssertionError as error:
                errors.append(error)
        raise AssertionError(errors)
    if "enum" in schema:
        assert value in schema["enum"]
        return
    kinds: dict[str, tuple[type, ...]] = {
        "object": (dict,),
        "array": (list,),
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "null": (type(None),),
        "boolean": (bool,),
    }
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        assert set(schema.get("required", [])) <= set(value)
        for key, entry in value.items():
            inner = properties.get(key, schema.get("additionalProperties"))
            assert inner is not None, key  # a field that the schema does not know
            check_schema(entry, inner, root)
    if isinstance(value, list):
        for entry in value:
            check_schema(entry, schema.get("items", {}), root)


# One real run of all recorded lessons, in a hostile place.


@pytest.fixture(scope="session")
def full(once: Callable[..., Path]) -> Path:
    """The folder of `parity run`: 80 ASCII columns, among decoys, with old results in the way."""

    def fill(folder: Path) -> None:
        for decoy in ("numpy.py", "cli/__init__.py", "figures/__init__.py", "parity/__init__.py"):
            (folder / decoy).parent.mkdir(exist_ok=True)
            (folder / decoy).write_text("raise RuntimeError('a decoy was imported')")
        old_results(folder / "parity-out")
        ran = parity(
            "run",
            cwd=folder,
            NO_COLOR="1",
            COLUMNS="80",
            PYTHONIOENCODING="ascii",
            JAX_ENABLE_X64="1",
            SOURCE_DATE_EPOCH="0",
        )
        recorded(folder, ran)

    return once("full-run", fill)


def test_a_run_of_all_lessons_matches(full: Path) -> None:
    ran, report = ran_in(full), report_in(full / "parity-out")
    assert ran.code == 0, ran.err
    assert report.verdict == "match"
    assert [lesson.lesson for lesson in report.lessons] == LESSONS
    for lesson in report.lessons:
        assert (lesson.verdict, lesson.reason, lesson.blamed) == ("match", "", [])
        assert lesson.first_divergence is None
        assert lesson.problem_digest == load_problem(lesson.lesson).digest
        assert {c.verdict for c in lesson.comparisons} == {"match"}
        assert {(c.left, c.right) for c in lesson.comparisons} == {
            ("jax", "oracle"),
            ("torch", "oracle"),
            ("jax", "torch"),
        }
    for name in ("jax", "torch", "parity", "python", "platform", "numpy", "time"):
        assert report.environment[name]


def test_a_run_leaves_its_files_and_removes_older_ones(full: Path) -> None:
    assert names(full / "parity-out") == {
        "report.json",
        *(f"traces/{lesson}.{twin}.safetensors" for lesson in LESSONS for twin in ("jax", "torch")),
        *(f"figures/{lesson}{kind}" for lesson in LESSONS for kind in FIGURES),
    }
    report = report_in(full / "parity-out")
    for lesson in report.lessons:
        for twin in ("jax", "torch"):
            path = full / "parity-out" / "traces" / f"{lesson.lesson}.{twin}.safetensors"
            trace = Trace.load(path)
            assert (trace.implementation, trace.dtype) == (twin, "float32")
            assert trace.problem_digest == lesson.problem_digest
            assert trace.samples_digest == lesson.samples_digest
        figure = json.loads((full / "parity-out" / "figures" / f"{lesson.lesson}.json").read_text())
        assert report.digest in json.dumps(figure)  # no figure exists without its verdict
        assert figure["generatedAt"].startswith("1970-01-01T00:00:00")  # SOURCE_DATE_EPOCH = 0


def test_a_run_says_what_it_did(full: Path) -> None:
    ran, report = ran_in(full), report_in(full / "parity-out")
    comparisons = [c for lesson in report.lessons for c in lesson.comparisons]
    values = sum(c.compared for c in comparisons)
    tightest = max(comparisons, key=lambda c: float(c.worst.ratio if c.worst else -1))
    assert tightest.worst is not None
    assert ran.closing == (
        f"match: {len({c.quantity for c in comparisons})} quantities, {values:,} values compared; "
        f"tightest margin {tightest.worst.ratio:.2f} of the allowance "
        f"({tightest.quantity}, {tightest.mode}, {tightest.left} against {tightest.right})"
    )
    for lesson in LESSONS:
        assert sum(line.startswith(f"{lesson}  ") for line in ran.out.splitlines()) == 1
    for quantity in {c.quantity for c in comparisons}:
        assert quantity in ran.out
    stages = [line.split(maxsplit=3)[2:] for line in ran.err.splitlines()]
    for backend in ("jax", "torch"):
        mine = [" ".join(stage[1:]) for stage in stages if stage[0] == backend]
        assert mine[0] == "importing"
        assert mine[-1] == "done"
        assert [s for s in mine if s.startswith("training")] == [f"training {n}" for n in LESSONS]


def test_80_ascii_columns_suffice(full: Path) -> None:
    ran = ran_in(full)
    assert ran.out.isascii()
    assert ran.err.isascii()
    assert "\x1b" not in ran.out + ran.err
    *body, files, closing = ran.out.splitlines()  # these two are for machines and do not wrap
    assert files.startswith("parity-out/report.json, figures/: ")
    assert closing.startswith("match: ")
    assert max(map(len, body)) <= 80


def test_the_report_is_as_its_schema_says(
    full: Path, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = inside("schema", "report", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    schema = json.loads(ran.out)
    document = json.loads((full / "parity-out" / "report.json").read_text())
    check_schema(document, schema, schema)
    for broken in (
        document | {"verdict": "fine"},
        document | {"lessons": {}},
        document | {"more": 1},
        {key: value for key, value in document.items() if key != "verdict"},
    ):
        with pytest.raises(AssertionError):
            check_schema(broken, schema, schema)


# A problem without samples, twice: its tape is drawn once.


@pytest.fixture(scope="session")
def drawn(once: Callable[..., Path], twins: str) -> Path:
    def fill(folder: Path) -> None:
        (folder / "small.toml").write_text(PPO)
        for number in (1, 2):
            place = folder / str(number)
            place.mkdir()
            arguments = ("run", "small.toml", "--no-figures", "--format", "json")
            recorded(place, parity(*arguments, cwd=folder, PYTHONPATH=twins))
            shutil.copytree(folder / "parity-out", place / "out", copy_function=shutil.copy2)

    return once("drawn-run", fill)


def test_a_problem_without_samples_draws_them_once_and_keeps_them(drawn: Path) -> None:
    first, second = (ran_in(drawn / number) for number in "12")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "drawing samples of small" in first.err
    assert "drawing" not in second.err
    before, after = (contents(drawn / number / "out") for number in "12")
    assert set(before) == set(after)
    assert before["samples/small.safetensors"] == after["samples/small.safetensors"]
    assert not any(name.startswith("figures/") for name in after)
    tape = Samples.load(drawn / "2" / "out" / "samples" / "small.safetensors")
    assert (tape.problem, tape.seed, tape.sampler) == ("small", 5, "jax")
    assert tape.actions.shape == (3, 8)
    tape.check(load_problem(drawn / "small.toml"), "tape")


def test_two_runs_have_one_digest(drawn: Path) -> None:
    first, second = (report_in(drawn / number / "out") for number in "12")
    assert first.verdict == "match"
    assert first.digest == second.digest
    assert first.environment | {"time": ""} == second.environment | {"time": ""}
    changed = msgspec.structs.replace(first, environment={"jax": "another"})
    assert changed.digest == first.digest
    assert msgspec.structs.replace(first, verdict="noisy").digest != first.digest


def test_json_is_printed_as_it_is_written(drawn: Path) -> None:
    written = (drawn / "2" / "out" / "report.json").read_text()
    assert ran_in(drawn / "2").out == written


# Help, version, schemas: quick and light.


def test_help_loads_no_framework(tmp_path: Path) -> None:
    heavy = ["jax", "torch", "matplotlib", "numpy", "safetensors", "jax_impl", "torch_impl"]
    program = f"""
        import json, sys
        from cli.main import main
        sys.argv = ["parity", *sys.argv[1:]]
        try:
            main()
        except SystemExit as end:
            found = sorted(set({heavy}) & set(sys.modules))
            print(json.dumps([end.code, found]))
    """
    for arguments in (["--help"], ["samples", "draw", "--help"], ["--version"]):
        done = subprocess.run(
            [sys.executable, "-P", "-c", textwrap.dedent(program), *arguments],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert json.loads(done.stdout.splitlines()[-1]) == [0, []], arguments
        assert done.stderr == ""


def test_help_and_version(tmp_path: Path) -> None:
    (tmp_path / "cli.py").write_text("raise RuntimeError('a decoy was imported')")
    ran = parity("--help", cwd=tmp_path, COLUMNS="80", PYTHONIOENCODING="ascii")
    assert (ran.code, ran.err) == (0, "")
    for command in ("run", "samples", "figures", "schema"):
        assert re.search(rf"^ +{command} ", ran.out, re.MULTILINE)
    assert max(map(len, ran.out.splitlines())) <= 80
    ran = parity("--version", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"parity \d+\.\d+\.\d+\n", ran.out)


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ("trace", {"implementation", "dtype", "quantities", "digest", "environment"}),
        ("problem", {"name", "samples", "reward", "ppo", "dpo"}),
    ],
)
def test_schemas(
    inside: Callable[..., Ran], tmp_path: Path, document: str, fields: set[str]
) -> None:
    ran = inside("schema", document, cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    schema = json.loads(ran.out)
    root = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert fields <= set(root["properties"])


# Bad usage: one line, exit code 2, and nothing touched.


@pytest.fixture(scope="session")
def bad(once: Callable[..., Path]) -> Path:
    """A folder of unusable inputs."""

    def fill(folder: Path) -> None:
        problem = parse_problem(PPO.encode(), "ppo.toml")
        assert problem.ppo is not None
        shape = (problem.ppo.rollouts, problem.ppo.samples)
        good = Samples(
            actions=np.zeros(shape, np.int64),
            behaviour=np.zeros((shape[0], 3), np.float32),
            problem="ppo",
            problem_digest=problem.digest,
            seed=5,
            sampler="jax",
            versions={},
        )
        outside = good.actions.copy()
        outside[1, 2] = 3
        other = parse_problem(PPO.replace("beta = 0.3", "beta = 0.4").encode(), "other.toml")
        tapes = {
            "shape": replace(good, actions=good.actions[:, :-1]),
            "range": replace(good, actions=outside),
            "beta": replace(good, problem="other", problem_digest=other.digest),
        }
        for name, tape in tapes.items():
            tape.save(folder / f"{name}.safetensors")
        header = SamplesHeader(
            problem="ppo",
            problem_digest=problem.digest,
            seed=5,
            sampler="jax",
            versions={},
            digest="0" * 64,
        )
        arrays = {"actions": good.actions, "behaviour": good.behaviour}
        write_arrays(folder / "digest.safetensors", header, arrays)
        (folder / "half.safetensors").write_bytes((folder / "beta.safetensors").read_bytes()[:99])
        for name in ("shape", "range", "beta", "digest", "half", "absent"):
            (folder / f"{name}.toml").write_text(f'samples = "{name}.safetensors"\n{PPO}')
        (folder / "broken.toml").write_text("[dpo\nlogits = 1")
        (folder / "nan.toml").write_text(DPO.replace("rate = 0.4", "rate = nan"))
        (folder / "unknown.toml").write_text(f"{DPO}gamma = 1\n")
        (folder / "negative.toml").write_text(DPO.replace("updates = 3", "updates = 0"))
        (folder / "large.toml").write_text(PPO.replace("samples = 8", "samples = 2000000000"))
        (folder / "latin.toml").write_bytes("title = 'é'\n".encode("latin-1"))
        (folder / "dpo.toml").write_text(DPO)
        (folder / "a-file").write_text("mine")
        (folder / "cluttered").mkdir()
        (folder / "cluttered" / "traces").write_text("mine")
        old_results(folder / "out")

    return once("bad-usage", fill)


RUN = ["run", "--out", "out"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*RUN, "posttraining-99"], "posttraining-99: no such lesson or file; expected one of "),
        ([*RUN, "no.toml"], "no.toml: cannot be read: No such file"),
        ([*RUN, "out"], "out: cannot be read: Is a directory"),
        ([*RUN, "broken.toml"], "broken.toml: not TOML: "),
        ([*RUN, "latin.toml"], "latin.toml: not TOML: "),
        ([*RUN, "nan.toml"], "nan.toml: dpo.rate: got nan; expected float > 0"),
        ([*RUN, "unknown.toml"], "unknown.toml: dpo.gamma: got 1; expected no such field"),
        ([*RUN, "negative.toml"], "negative.toml: dpo.updates: got 0; expected int >= 1"),
        ([*RUN, "large.toml"], r"large: needs about [\d.]+ GiB of memory"),
        ([*RUN, "absent.toml"], "absent.safetensors: cannot be read"),
        ([*RUN, "half.toml"], "half.safetensors: not a readable parity file"),
        ([*RUN, "digest.toml"], r"digest.safetensors: digest: got \w+; expected 0{64}"),
        ([*RUN, "shape.toml"], r"shape.safetensors: actions: got shape \[3, 7\]; expected \[3, 8"),
        ([*RUN, "range.toml"], r"range.safetensors: actions\[1, 2\]: got 3; expected 0 to 2"),
        ([*RUN, "range.toml", "--reuse-samples"], r"range.safetensors: actions\[1, 2\]: got 3"),
        ([*RUN, "beta.toml"], "drawn for another problem, other.*--reuse-samples replays it"),
        ([*RUN, "dpo.toml", "dpo.toml"], "name: got 'dpo' twice"),
        ([*RUN, "posttraining-05", "nan.toml"], "nan.toml: dpo.rate: got nan"),  # before any work
        (["run", "--out", "a-file", "dpo.toml"], "--out: got a-file, which is not a folder"),
        (["run", "--out", "a-file/x", "dpo.toml"], "--out: got a-file/x, which is not a folder"),
        (["run", "--out", "cluttered", "dpo.toml"], "cluttered/traces, which is not a folder"),
        (["run", "--out", ""], "--out.*got ''; expected a folder.*--help"),
        (["demo", "--out", ""], "--out.*got ''; expected a folder.*--help"),
        (
            ["check", "f.py:f", "--objective", "dpo", "--repro", "a-file/x"],
            "--repro: got a-file/x; expected a file in a folder that can be written",
        ),
        (["check", "f.py:f", "--objective", "dpo", "--repro", "."], "--repro: got .; expected"),
        (["faults", "--figure", "a-file/x.svg"], "--figure: got a-file/x.svg; expected a file"),
        (["check"], "--objective or --against: missing; expected one of the two, or"),
        (["check", "f.py:f", "--sign", "objective"], "--objective or --against: missing"),
        (["check", "--objective", "dpo"], "TARGET: missing; expected package.module:function"),
        (
            ["check", "f.py:f", "--objective", "dpo", "--against", "g.py:f"],
            "--objective and --against: got both; expected one of the two",
        ),
        (["run", "--timeout", "inf"], "got inf; expected a finite number of seconds"),
        (["run", "--timeout", "nan"], "--timeout"),
        ([*RUN, "--allow-noisy", "*"], "--reason: missing; expected together with --allow-noisy"),
        ([*RUN, "--reason", "so"], "--allow-noisy: missing; expected together with --reason"),
        ([*RUN, "--allow-noisy", "*", "--reason", " "], "--reason: got ' '; expected the reason"),
        ([*RUN, "--dtype", "float16"], "float16.*--help"),
        ([*RUN, "--format", "xml"], "xml.*--help"),
        ([*RUN, "--timeout", "0"], "timeout.*--help"),
        ([*RUN, "--timeout", "soon"], "timeout.*--help"),
        ([*RUN, "--figures"], "--figures.*--help"),
        (["walk"], "walk.*--help"),
        (["schema", "poem"], "poem.*--help"),
        (["samples", "draw", "dpo.toml", "-o", "out/tape"], "dpo.toml: ppo: missing; expected a"),
        (["samples", "draw", "beta.toml"], "output.*--help"),
        (["samples", "verify", "dpo.toml"], "dpo.toml: samples: missing; expected a recorded tape"),
        (["samples", "verify", "beta.safetensors"], "problem_digest: got .*expected that of a rec"),
        (["samples", "verify", "digest.safetensors"], "digest.safetensors: digest: got "),
    ],
)
def test_bad_usage_is_one_line(
    bad: Path, inside: Callable[..., Ran], arguments: list[str], said: str
) -> None:
    before = contents(bad)
    ran = inside(*arguments, cwd=bad)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1, ran.err
    assert ran.err.startswith("parity")
    assert re.search(said, ran.err), ran.err
    assert contents(bad) == before


def test_bad_usage_from_outside(bad: Path) -> None:
    """As above, where a process of its own says it."""
    before = contents(bad)
    for arguments, said in (
        ([*RUN, "nan.toml"], "parity: nan.toml: dpo.rate: got nan; expected float > 0.0\n"),
        (["schema"], "parity schema: Missing argument 'document'. Choose from: report, trace, "),
    ):
        ran = parity(*arguments, cwd=bad)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.err.splitlines()) == 1
        assert ran.err.startswith(said)
    assert contents(bad) == before


def test_no_arguments_is_help_and_bad_usage(tmp_path: Path) -> None:
    ran = parity(cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: parity" in ran.err


def test_an_interruption_while_it_still_loads_is_one_too() -> None:
    """The import of the command line itself is interrupted."""
    source = """
        import sys

        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "cli.main":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        from cli.start import main

        main()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "parity: interrupted\n")


def test_the_exit_code_survives_an_unwritable_terminal(bad: Path) -> None:
    """An exception on the way out must not look like a verdict, 1."""
    with Path("/dev/full").open("w") as full_disk:
        for arguments, code in ((["run", "no.toml"], 2), (["--wrong"], 2)):
            done = subprocess.run([PARITY, *arguments], cwd=bad, stderr=full_disk, check=False)
            assert done.returncode == code
        done = subprocess.run(
            [PARITY, "schema", "report"],
            cwd=bad,
            stdout=full_disk,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 3


# Verdicts and failures, with the oracle as both twins.


def problems_in(folder: Path, *stems: str, text: str = DPO) -> list[str]:
    for stem in stems:
        (folder / f"{stem}.toml").write_text(text)
    return [f"{stem}.toml" for stem in stems]


def test_whatever_is_wrong_is_exit_1_and_no_figure(twins: str, tmp_path: Path) -> None:
    """One run of seven problems, six of them mistreated; the honest one alone is drawn."""
    verdicts = {
        "honest": "match",
        "wrong": "divergent",
        "nan": "divergent",
        "infinite": "divergent",
        "reshaped": "divergent",
        "extra": "divergent",
        "missing": "inconclusive",
        "empty": "inconclusive",
    }
    fake = json.dumps({what: what for what in verdicts if what != "honest"})
    out = tmp_path / "out"
    old_results(out)
    ran = parity(
        "run",
        *problems_in(tmp_path, *verdicts),
        "--out",
        out,
        cwd=tmp_path,
        PYTHONPATH=twins,
        FAKE=fake,
        COLUMNS="80",
    )
    assert ran.code == 1, ran.err
    assert "Traceback" not in ran.err
    report = report_in(out)
    assert report.verdict == "divergent"
    assert {lesson.lesson: lesson.verdict for lesson in report.lessons} == verdicts
    for lesson in report.lessons:
        assert lesson.blamed == ([] if lesson.lesson == "honest" else ["torch"])
        parted = lesson.first_divergence
        if lesson.lesson in ("wrong", "nan", "infinite"):
            assert parted is not None
            assert (parted.quantity, parted.at) == ("dpo/loss", {"update": 1})
            assert (parted.mode, parted.left, parted.right) == ("step", "torch", "oracle")
        else:
            assert parted is None
    left = {"nan": "NaN", "infinite": "Infinity"}
    for lesson in report.lessons:
        if lesson.lesson in left:
            assert lesson.first_divergence is not None
            assert lesson.first_divergence.entry.left == left[lesson.lesson]
    figures = {name for name in names(out) if name.startswith("figures/")}
    assert figures == {f"figures/honest{kind}" for kind in FIGURES}
    assert ran.closing.startswith("divergent: ")
    told = " ".join(ran.out.split())  # as it wraps at 80 columns
    assert "first divergence: dpo/loss[1] at update 1 (step mode): torch NaN" in told
    # Missing and empty say nothing of the values; the five others are wrong.
    assert told.count("inconclusive against the oracle: torch") == 2
    assert told.count("outside the allowance against the oracle: torch") == 5
    for reason in ("missing from torch", "empty in torch", "torch records it, nobody expects it"):
        assert reason in told
    assert max(map(len, ran.out.splitlines()[:-2])) <= 80


def test_noise_is_exit_1_unless_it_is_allowed_with_a_reason(
    twins: str, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    arguments = ("run", *problems_in(tmp_path, "small"), "--no-figures")
    options = {"cwd": tmp_path, "PYTHONPATH": twins, "FAKE": '{"torch": "noisy"}'}
    ran = inside(*arguments, "--quiet", **options)
    assert ran.code == 1, ran.err
    assert ran.closing.startswith("noisy: ")
    assert len(ran.out.splitlines()) == 1  # --quiet
    assert ran.err == ""
    allowed = ("--allow-noisy", "dpo/l*", "--reason", "summed in another order")
    ran = inside(*arguments, *allowed, **options)
    assert ran.code == 0, ran.err
    assert ran.closing.startswith("match: ")
    assert "noise accepted in dpo/loss: summed in another order" in ran.out
    report = report_in(tmp_path / "parity-out")
    assert report.verdict == "match"
    assert report.allowed_noise is not None
    assert (report.allowed_noise.pattern, report.allowed_noise.quantities) == (
        "dpo/l*",
        ["dpo/loss"],
    )
    assert report.allowed_noise.reason == "summed in another order"


def test_a_tape_of_another_problem_is_replayed_on_request_and_said_so(
    twins: str, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    problems_in(tmp_path, "first", text=PPO)
    tape = tmp_path / "tape.safetensors"
    ran = inside("samples", "draw", "first.toml", "-o", tape, cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 0, ran.err
    assert ran.out == f"{tape}: 3 rollouts of 8 actions, seed 5, jax 0\n"
    other = PPO.replace("beta = 0.3", "beta = 0.4")
    problems_in(tmp_path, "second", text=f'samples = "tape.safetensors"\n{other}')
    arguments = ("run", "second.toml", "--no-figures", "--reuse-samples")
    ran = inside(*arguments, cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 0, ran.err + ran.out
    assert "samples: drawn for another problem, first" in ran.out.splitlines()
    (lesson,) = report_in(tmp_path / "parity-out").lessons
    assert lesson.samples_note == "drawn for another problem, first"
    assert lesson.samples_digest == Samples.load(tape).digest


def test_a_terminal_shows_stages_and_clears_them(twins: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with started(
        "run",
        *problems_in(tmp_path, "small"),
        "--no-figures",
        cwd=tmp_path,
        env=environment(PYTHONPATH=twins, TERM="xterm", COLUMNS="80"),
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux says so when the other end is closed
            while piece := os.read(ours, 4096):
                shown += piece
        os.close(ours)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert b"\x1b" not in out  # standard output is a pipe
    for word in (b"oracle", b"jax", b"torch", b"waiting", b"done"):
        assert word in shown
    assert b"Traceback" not in shown


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_half_done(
    twins: str, tmp_path: Path, number: signal.Signals
) -> None:
    out, pids = tmp_path / "out", tmp_path / "pids"
    pids.mkdir()
    old_results(out)
    with started(
        "run",
        *problems_in(tmp_path, "small"),
        "--out",
        out,
        cwd=tmp_path,
        env=environment(
            PYTHONPATH=twins, FAKE='{"jax": "hangs", "torch": "hangs"}', FAKE_PIDS=str(pids)
        ),
        stderr=subprocess.PIPE,
    ) as process:
        # Until both workers are in the middle of writing their traces, beside their places.
        while len(list((out / "traces").glob("*.part"))) < 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        said, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, b"")
    assert told.decode().splitlines()[-1] == "parity: interrupted"
    assert b"Traceback" not in told
    workers = [int(path.name) for path in pids.iterdir()]
    assert len(workers) == 2
    assert all(ended(pid) for pid in workers)
    assert names(out) == {"report.json"}
    report = report_in(out)
    assert (report.verdict, report.reason) == ("inconclusive", "interrupted")
    assert [(lesson.lesson, lesson.verdict) for lesson in report.lessons] == [
        ("small", "inconclusive")
    ]


def test_a_late_backend_is_exit_3(twins: str, inside: Callable[..., Ran], tmp_path: Path) -> None:
    ran = inside(
        "run",
        *problems_in(tmp_path, "small"),
        "--no-figures",
        "--timeout",
        "1",
        cwd=tmp_path,
        PYTHONPATH=twins,
        FAKE='{"jax": "hangs"}',  # the one that is asked first
        FAKE_PIDS=str(tmp_path),
    )
    assert ran.code == 3
    assert ran.err.splitlines()[-1] == "parity: jax: no answer within 1 s"
    report = report_in(tmp_path / "parity-out")
    assert (report.verdict, report.reason) == ("inconclusive", "jax: no answer within 1 s")


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        ("raise RuntimeError('no luck')", "torch: crashed with exit code 1"),
        (
            "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')",
            "torch: torch is not installed",
        ),
    ],
)
def test_a_framework_that_fails_is_exit_3(
    twins: str, tmp_path: Path, raised: str, reason: str
) -> None:
    """PyTorch's real twin, whose PyTorch is broken."""
    package = tmp_path / "broken" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(raised)
    for name in ("oracle_twin.py", "jax_impl"):
        (package.parent / name).symlink_to(Path(twins, name))
    out = tmp_path / "out"
    old_results(out)
    ran = parity(
        "run",
        *problems_in(tmp_path, "small"),
        "--out",
        out,
        cwd=tmp_path,
        PYTHONPATH=str(package.parent),
    )
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines()[-1].startswith(f"parity: {reason}")
    assert f"  | {raised}" in ran.err.replace("    ", "")  # the end of the backend's traceback
    assert "figures/old.svg" not in names(out)
    report = report_in(out)
    assert report.verdict == "inconclusive"
    assert report.reason.startswith(reason)
    assert report.lessons[0].reason == report.reason


def test_a_run_goes_on_when_nobody_reads_its_stages(twins: str, tmp_path: Path) -> None:
    """As in `parity run 2>&1 >/dev/null | head -1`."""
    read, write = os.pipe()
    with started(
        "run",
        *problems_in(tmp_path, "small"),
        "--no-figures",
        cwd=tmp_path,
        env=environment(PYTHONPATH=twins),
        stderr=write,
    ) as process:
        os.close(write)
        os.close(read)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.decode().splitlines()[-1].startswith("match: ")


# Samples.


def test_a_drawn_tape_is_verified_and_a_tampered_one_is_not(
    twins: str, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    problems_in(tmp_path, "small", text=PPO)
    tape = tmp_path / "tape.safetensors"
    draw = ("samples", "draw", "small.toml", "-o", tape, "--sampler", "torch", "--seed", "9")
    # The real PyTorch draws and verifies.
    ran = inside(*draw, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert re.fullmatch(rf"{tape}: 3 rollouts of 8 actions, seed 9, torch \d+\.\d+\.\d+\n", ran.out)
    samples = Samples.load(tape)
    assert (samples.sampler, samples.seed, samples.problem) == ("torch", 9, "small")
    verify = ("samples", "verify", tape, "--problem", "small.toml")
    ran = inside(*verify, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{tape}: the same 24 actions, drawn again by torch ")
    # The oracle's twin draws other actions; what it says of changed ones does not depend on whose.
    ran = inside(*draw, cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 0, ran.err
    samples = Samples.load(tape)
    actions, behaviour = samples.actions.copy(), samples.behaviour.copy()
    actions[1, 2], actions[2, 0] = (actions[1, 2] + 1) % 3, (actions[2, 0] + 1) % 3
    replace(samples, actions=actions).save(tape)
    ran = inside(*verify, cwd=tmp_path, PYTHONPATH=twins)
    assert (ran.code, ran.out) == (
        1,
        f"{tape}: rollout 1, sample 2: recorded action {actions[1, 2]}, "
        f"drawn again {samples.actions[1, 2]} (2 of 24 differ)\n",
    )
    taken = samples.actions[2, 0]
    behaviour[2, taken] += 0.01  # a hundredfold of any allowance here
    replace(samples, behaviour=behaviour).save(tape)
    ran = inside(*verify, cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 1
    assert ran.out.startswith(f"{tape}: rollout 2, sample 0: recorded log-prob ")
    assert ran.out.endswith("not drawn by this problem's policy\n")


def test_the_recorded_tapes_are_found_by_lesson(
    twins: str, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    """The oracle's twin cannot draw them, but it shows which tape is looked at, and where."""
    ran = inside("samples", "verify", "posttraining-04", cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 1
    assert "posttraining-04.safetensors: rollout 0, sample " in ran.out
    assert re.search(r"\(\d+ of 5,120 differ\)", ran.out)


# Installed from a wheel, outside the checkout.


def test_a_wheel_works_outside_the_checkout(full: Path, tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = [name for name in listed.split("\0") if name and (ROOT / name).exists()]
    source, place = tmp_path / "source", tmp_path / "place"
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)

    def quietly(*command: str | Path, cwd: Path) -> str:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment(PYTHONPATH=str(place)),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    wheels = tmp_path / "wheels"
    quietly(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels, cwd=source)
    (wheel,) = wheels.glob("rlhf_parity-*.whl")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    quietly(*pip, "--no-compile", "--target", place, wheel, cwd=tmp_path)

    packages = ("parity", "cli", "figures", "jax_impl", "torch_impl")
    assert all((place / package / "py.typed").exists() for package in packages)
    program = f"import {', '.join(packages)}; print({', '.join(f'{p}.__file__' for p in packages)})"
    found = quietly(sys.executable, "-P", "-c", program, cwd=tmp_path).split()
    assert all(Path(file).is_relative_to(place) for file in found)
    shipped = {name for name in files if name.startswith(tuple(f"{p}/" for p in packages))}
    assert shipped <= names(place)
    assert {f"parity/problems/{lesson}.toml" for lesson in LESSONS} <= shipped
    assert "parity/problems/posttraining-04.safetensors" in shipped
    assert not [name for name in names(place) if name.startswith(("tests", "docs", ".ci"))]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = (sys.executable, "-P", place / "bin" / "parity")
    said = quietly(*script, "run", "posttraining-05", "--no-figures", cwd=elsewhere)
    assert said.splitlines()[-1].startswith("match: ")
    assert names(elsewhere / "parity-out") == {
        "report.json",
        "traces/posttraining-05.jax.safetensors",
        "traces/posttraining-05.torch.safetensors",
    }
    # Another run, from another place, in other company: the same to the last digit.
    (lesson,) = report_in(elsewhere / "parity-out").lessons
    assert lesson == report_in(full / "parity-out").lessons[-1]
