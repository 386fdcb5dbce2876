"""Interrupted, late, crashed, unread: exit codes and what is left, with oracle twins."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from helpers_cli import (
    PARITY,
    PATIENCE,
    Ran,
    environment,
    names,
    old_results,
    parity,
    problems_in,
    report_in,
)
from helpers_twins import with_oracle


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
def test_a_framework_that_fails_is_exit_3(tmp_path: Path, raised: str, reason: str) -> None:
    """PyTorch's real twin, whose PyTorch is broken."""
    package = tmp_path / "broken" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(raised)
    with_oracle(package.parent, "jax")
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
