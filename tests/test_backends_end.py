"""No worker outlives its parent, its time or its neighbour."""

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helpers_backends import PATIENCE, PROBLEM, run, silent
from parity.backends import Workers
from parity.errors import BackendError
from parity.problem import Problem, parse_problem
from parity.worker import Job, Train


@pytest.fixture(scope="module")
def problem() -> Problem:
    return parse_problem(PROBLEM, "one-pair.toml")


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
