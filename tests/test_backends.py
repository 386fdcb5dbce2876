"""Workers: what they say when they fail, what reaches them, and that none outlives its parent."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity import backends
from parity.backends import TAIL, Done, Workers, draw_samples, load_trace, worker_environment
from parity.errors import BackendError
from parity.problem import Problem, parse_problem
from parity.trace import Quantity, Trace
from parity.worker import Job, Train

PATIENCE = 60.0  # seconds for what takes well below one, on a busy machine
PROBLEM = b"""
[dpo]
logits = [0.2, 0.0]
preferences = [[0, 1]]
updates = 1
rate = 0.4
beta = 0.3
"""

# A backend is a module with `train`; what it returns has `save`. These need no framework.
FAKES = {
    "honest": """
        import numpy as np
        from parity.trace import Quantity, Trace

        def train(problem, samples, dtype):
            loss = Quantity("dpo/loss", ("update",), "value", np.zeros(1, dtype))
            return Trace("honest", dtype, {"dpo/loss": loss}, problem.digest)
    """,
    "chatty": """
        import os, subprocess, sys
        import numpy as np
        from parity.trace import Quantity, Trace
        print("imported")

        def train(problem, samples, dtype):
            print('{"done": 0}')
            os.write(1, b'{"failed": "no"}\\n' * 5000)  # far more than a pipe holds, 64 KiB
            subprocess.run([sys.executable, "-c", "print('{}')"], check=True)
            sys.stdout.flush()
            loss = Quantity("dpo/loss", ("update",), "value", np.zeros(1, dtype))
            return Trace("chatty", dtype, {"dpo/loss": loss}, problem.digest)
    """,
    "raises": """
        import sys

        def train(problem, samples, dtype):
            for number in range(100):
                print("line", number, file=sys.stderr)
            raise RuntimeError("out of luck")
    """,
    "quits": """
        import os

        def train(problem, samples, dtype):
            os.write(2, b"last words \\xff\\n")
            os._exit(7)
    """,
    "leaves": """
        import os

        def train(problem, samples, dtype):
            os._exit(0)
    """,
    "segfaults": """
        import os, signal

        def train(problem, samples, dtype):
            os.kill(os.getpid(), signal.SIGSEGV)
    """,
    "needs": """
        import no_such_framework
    """,
    "hangs": """
        import os, pathlib, signal, sys, time

        def train(problem, samples, dtype):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            sys.stderr.write("waiting\\n")
            sys.stderr.flush()
            pathlib.Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
            while True:
                time.sleep(1)
    """,
    "forks": """
        import os, pathlib, time

        def train(problem, samples, dtype):
            child = os.fork()
            if child:
                pathlib.Path(os.environ["PID_FILE"]).write_text(str(child))
            while True:
                time.sleep(1)
    """,
    "tells": """
        import json, os, pathlib, sys
        import cli, figures, numpy, parity

        class Told:
            def save(self, path):
                told = {
                    "environment": dict(os.environ),
                    "path": sys.path,
                    "files": [m.__file__ for m in (cli, figures, numpy, parity)],
                }
                path.write_text(json.dumps(told))

        def train(problem, samples, dtype):
            return Told()
    """,
    "truncates": """
        import numpy as np
        from parity.trace import Quantity, Trace

        class Half:
            def save(self, path):
                loss = Quantity("dpo/loss", ("update",), "value", np.zeros(1, "float32"))
                Trace("half", "float32", {"dpo/loss": loss}).save(path)
                content = path.read_bytes()
                path.write_bytes(content[: len(content) // 2])

        def train(problem, samples, dtype):
            return Half()

        def draw(problem, seed):
            return Half()
    """,
    "forgets": """
        class Nothing:
            def save(self, path):
                pass

        def train(problem, samples, dtype):
            return Nothing()
    """,
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes backends of the given names available to workers."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))

    def make(name: str) -> str:
        module = f"fake_{name}_backend"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(FAKES[name]))
        monkeypatch.setitem(backends.MODULES, name, module)
        return name

    return make


@pytest.fixture(scope="module")
def problem() -> Problem:
    return parse_problem(PROBLEM, "one-pair.toml")


def silent(_who: str, _stage: str) -> None:
    pass


def run(jobs: dict[str, list[Job]], progress: Callable[..., None] = silent) -> list[Done]:
    with Workers(jobs, "float32", PATIENCE, progress) as workers:
        return list(workers.finished())


def fails(jobs: dict[str, list[Job]]) -> BackendError:
    with pytest.raises(BackendError) as caught:
        run(jobs)
    return caught.value


def gone(pid: int) -> bool:
    """Waits until a process has ended; a zombie has."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def appears(path: Path) -> str:
    """Waits for a file with content."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def test_jobs_are_done_in_order_and_both_backends_are_heard(
    fake: Callable[..., str], problem: Problem, tmp_path: Path
) -> None:
    jobs: dict[str, list[Job]] = {
        fake(name): [Train(problem, None, str(tmp_path / f"{name}.{n}")) for n in range(2)]
        for name in ("honest", "chatty")
    }
    heard: list[tuple[str, str]] = []
    done = run(jobs, progress=lambda who, stage: heard.append((who, stage)))
    for name in jobs:
        assert [job for backend, job in done if backend == name] == [0, 1]
        stages = [stage for who, stage in heard if who == name]
        assert stages == ["importing", "training one-pair", "training one-pair", "done"]
        trace = load_trace(name, tmp_path / f"{name}.0")
        assert (trace.implementation, trace.problem_digest) == (name, problem.digest)


@pytest.mark.parametrize(
    ("name", "said", "end"),
    [
        ("raises", "raises: crashed with exit code 1", "RuntimeError: out of luck"),
        ("quits", "quits: crashed with exit code 7", "last words \N{REPLACEMENT CHARACTER}"),
        ("leaves", "leaves: ended before its jobs were done", ""),
        ("segfaults", "segfaults: killed by SIGSEGV", ""),
        (
            "needs",
            "needs: no_such_framework is not installed",
            "ModuleNotFoundError: No module named 'no_such_framework'",
        ),
    ],
)
def test_a_backend_that_fails_is_named_with_the_end_of_its_stderr(
    fake: Callable[..., str], problem: Problem, tmp_path: Path, name: str, said: str, end: str
) -> None:
    error = fails({fake(name): [Train(problem, None, str(tmp_path / "trace"))]})
    assert (str(error), error.backend) == (said, name)
    lines = error.details.splitlines()
    assert (lines[-1] if lines else "") == end
    assert len(lines) <= TAIL
    assert not (tmp_path / "trace").exists()
    if name == "raises":
        assert "line 99" in lines
        assert "line 0" not in lines


def test_a_module_that_does_not_exist_is_not_installed(
    fake: Callable[..., str], problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backends.MODULES, "mine", "no_such_package.backend")
    job = Train(problem, None, str(tmp_path / "trace"))
    error = fails({fake("honest"): [job], "mine": [job]})
    assert str(error) == "mine: no_such_package is not installed"


def test_the_one_that_fails_ends_the_one_that_works(
    fake: Callable[..., str], problem: Problem, tmp_path: Path
) -> None:
    job = Train(problem, None, str(tmp_path / "trace"))
    with Workers(
        {fake("hangs"): [job], fake("quits"): [job]}, "float32", PATIENCE, silent
    ) as workers:
        pid = int(appears(tmp_path / "pid"))
        with pytest.raises(BackendError, match="quits: crashed with exit code 7"):
            list(workers.finished())
    assert gone(pid)


def late(name: str, problem: Problem, folder: Path) -> tuple[BackendError, int]:
    """Runs a backend that never answers until it has told a process id and its time is over."""
    job = Train(problem, None, str(folder / "trace"))
    with Workers({name: [job]}, "float32", 0.5, silent) as workers:
        pid = int(appears(folder / "pid"))
        with pytest.raises(BackendError) as caught:
            list(workers.finished())
    return caught.value, pid


def test_a_backend_that_ignores_everything_is_ended_when_time_is_over(
    fake: Callable[..., str], problem: Problem, tmp_path: Path
) -> None:
    error, pid = late(fake("hangs"), problem, tmp_path)
    assert str(error) == "hangs: no answer within 0.5 s"
    assert error.details == "waiting"
    assert gone(pid)


def test_what_a_backend_started_ends_with_it(
    fake: Callable[..., str], problem: Problem, tmp_path: Path
) -> None:
    """A child that a worker forked holds its pipes, so waiting for it would take for ever."""
    start = time.monotonic()
    error, child = late(fake("forks"), problem, tmp_path)
    assert str(error) == "forks: no answer within 0.5 s"
    assert gone(child)
    assert time.monotonic() - start < 2 * PATIENCE  # the child itself would take for ever


def test_an_exception_of_the_parent_leaves_no_worker(
    fake: Callable[..., str], problem: Problem, tmp_path: Path
) -> None:
    jobs: dict[str, list[Job]] = {fake("hangs"): [Train(problem, None, str(tmp_path / "trace"))]}
    for error in (ValueError, KeyboardInterrupt):
        (tmp_path / "pid").unlink(missing_ok=True)
        workers = Workers(jobs, "float32", PATIENCE, silent)
        with suppress(error), workers:
            appears(tmp_path / "pid")
            raise error
        assert gone(int(appears(tmp_path / "pid")))


def test_a_backend_that_cannot_start_leaves_no_other(
    fake: Callable[..., str],
    problem: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []
    popen = subprocess.Popen

    def second_fails(*args: Any, **options: Any) -> Any:
        if started:
            raise OSError("no more processes")
        started.append(popen(*args, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", second_fails)
    job = Train(problem, None, str(tmp_path / "trace"))
    with pytest.raises(OSError, match="no more processes"):
        run({fake("hangs"): [job], fake("honest"): [job]})
    assert started[0].returncode == -signal.SIGKILL


def test_workers_end_when_their_parent_is_killed(fake: Callable[..., str], tmp_path: Path) -> None:
    fake("hangs")
    parent = """
        import sys
        from pathlib import Path
        from parity import backends
        from parity.backends import Workers
        from parity.problem import parse_problem
        from parity.worker import Train

        backends.MODULES["hangs"] = "fake_hangs_backend"
        problem = parse_problem(Path(sys.argv[1]).read_bytes(), "one-pair.toml")
        jobs = {"hangs": [Train(problem, None, sys.argv[2])]}
        with Workers(jobs, "float32", 600, lambda who, stage: None) as workers:
            list(workers.finished())
    """
    (tmp_path / "one-pair.toml").write_bytes(PROBLEM)
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            textwrap.dedent(parent),
            str(tmp_path / "one-pair.toml"),
            str(tmp_path / "trace"),
        ]
    )
    try:
        pid = int(appears(tmp_path / "pid"))
        assert Path(f"/proc/{pid}").exists()
    finally:
        process.kill()
        process.wait()
    assert gone(pid)


@pytest.mark.parametrize(("name", "said"), [("truncates", "not a readable"), ("forgets", "cannot")])
def test_a_truncated_or_missing_trace_is_the_backends_failure(
    fake: Callable[..., str], problem: Problem, tmp_path: Path, name: str, said: str
) -> None:
    path = tmp_path / "trace"
    assert run({fake(name): [Train(problem, None, str(path))]}) == [Done(name, 0)]
    with pytest.raises(BackendError, match=f"{name}: left no usable trace: .*trace: {said}"):
        load_trace(name, path)


def test_every_truncation_of_a_trace_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    loss = Quantity("dpo/loss", ("update",), "value", np.ones(2, np.float32))
    Trace("half", "float32", {"dpo/loss": loss}).save(path)
    content = path.read_bytes()
    for length in [*range(0, len(content), 7), len(content) - 1]:  # any steps, and one byte less
        path.write_bytes(content[:length])
        with pytest.raises(BackendError, match="half: left no usable trace"):
            load_trace("half", path)
    path.write_bytes(content)
    assert load_trace("half", path)["dpo/loss"].tolist() == [1.0, 1.0]


def test_a_truncated_tape_is_the_backends_failure(
    fake: Callable[..., str], problem: Problem
) -> None:
    with pytest.raises(BackendError, match="truncates: left no usable samples"):
        draw_samples(problem, fake("truncates"), 0, PATIENCE, silent)


SCRUBBED = {  # what a user's shell may hold, and what a worker must see
    "JAX_ENABLE_X64": ("1", "0"),
    "JAX_PLATFORMS": ("cuda", "cpu"),
    "JAX_DEBUG_NANS": ("1", None),
    "JAX_DEFAULT_MATMUL_PRECISION": ("bfloat16", None),
    "XLA_FLAGS": (
        "--xla_force_host_platform_device_count=8",
        "--xla_cpu_multi_thread_eigen=false",
    ),
    "OMP_NUM_THREADS": ("7", "1"),
    "MKL_NUM_THREADS": ("7", "1"),
    "OPENBLAS_NUM_THREADS": ("7", "1"),
    "TORCH_LOGS": ("+dynamo", None),
    "PYTORCH_ENABLE_MPS_FALLBACK": ("1", None),
    "CUDA_VISIBLE_DEVICES": ("0", ""),
    "SOMETHING_ELSE": ("kept", "kept"),
}


def test_a_worker_sees_neither_the_users_folder_nor_what_changes_results(
    fake: Callable[..., str], problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    for decoy in ("numpy.py", "cli/__init__.py", "figures/__init__.py", "parity/__init__.py"):
        for folder in (here, here / "relative"):
            path = folder / decoy
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("raise RuntimeError('a decoy was imported')")
    name = fake("tells")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["relative", "", str(tmp_path), "."]))
    for variable, (inherited, _) in SCRUBBED.items():
        monkeypatch.setenv(variable, inherited)
    output = tmp_path / "told.json"
    run({name: [Train(problem, None, str(output))]})
    told = json.loads(output.read_text())
    for variable, (_, seen) in SCRUBBED.items():
        assert told["environment"].get(variable) == seen, variable
    assert told["environment"]["PYTHONPATH"] == str(tmp_path)
    assert not [entry for entry in told["path"] if not Path(entry).is_absolute()]
    assert not [entry for entry in told["path"] if Path(entry).is_relative_to(here)]
    assert not [file for file in told["files"] if Path(file).is_relative_to(here)]


def test_64_bit_jax_only_where_the_run_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for inherited in ("0", "1"):
        monkeypatch.setenv("JAX_ENABLE_X64", inherited)
        assert worker_environment("float32")["JAX_ENABLE_X64"] == "0"
        assert worker_environment("float64")["JAX_ENABLE_X64"] == "1"
    monkeypatch.setenv("PYTHONPATH", "relative")
    assert "PYTHONPATH" not in worker_environment("float32")
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in worker_environment("float32")


def test_a_display_that_nobody_reads_does_not_stop_the_run(
    fake: Callable[..., str], problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages are told from the threads that also hear when a job is done."""
    from cli import progress

    read, write = os.pipe()
    os.close(read)
    jobs: dict[str, list[Job]] = {fake("honest"): [Train(problem, None, str(tmp_path / "trace"))]}
    with os.fdopen(write, "w", buffering=1) as broken:
        monkeypatch.setattr(sys, "stderr", broken)
        with progress.display(["honest"], quiet=False) as stage:
            assert run(jobs, progress=stage) == [Done("honest", 0)]
        monkeypatch.undo()
        with suppress(BrokenPipeError):
            broken.close()
