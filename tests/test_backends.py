"""Workers: what they say when they fail, and what reaches them."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from helpers_backends import PATIENCE, PROBLEM, run, silent
from parity import backends
from parity.backends import TAIL, Done, draw_samples, load_trace, worker_environment
from parity.errors import BackendError
from parity.problem import Problem, parse_problem
from parity.trace import Quantity, Trace
from parity.worker import Job, Train


@pytest.fixture(scope="module")
def problem() -> Problem:
    return parse_problem(PROBLEM, "one-pair.toml")


def fails(jobs: dict[str, list[Job]]) -> BackendError:
    with pytest.raises(BackendError) as caught:
        run(jobs)
    return caught.value


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
    from parity.cli import progress

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
