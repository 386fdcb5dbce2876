"""The `parity` command, in a process of its own or in the test's, and what it leaves behind."""

import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from parity.cli.main import main
from parity.report import Report

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


def problems_in(folder: Path, *stems: str, text: str = DPO) -> list[str]:
    for stem in stems:
        (folder / f"{stem}.toml").write_text(text)
    return [f"{stem}.toml" for stem in stems]
