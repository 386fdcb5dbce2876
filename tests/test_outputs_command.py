"""The action and the command, as machines hear them; nothing untold is a pass."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import xmlschema
import yaml

from helpers_cli import Ran

ROOT = Path(__file__).parents[1]
SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))

DPO = """
import numpy as np

def loss(chosen_logps, rejected_logps, reference_chosen_logps, reference_rejected_logps, beta):
    right = reference_chosen_logps - reference_rejected_logps
    return np.logaddexp(0, -beta * (chosen_logps - rejected_logps - REFERENCE)).mean()
"""
CONFIGURED = """
[[tool.parity.targets]]
target = "losses.py:loss"
objective = "dpo"
detached = true
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with three lines of configuration and a loss with or without its reference."""

    def made(reference: str) -> Path:
        folder = tmp_path_factory.mktemp("repository")
        (folder / "losses.py").write_text(DPO.replace("REFERENCE", reference))
        (folder / "pyproject.toml").write_text(CONFIGURED)
        return folder

    return made


@pytest.mark.parametrize(("reference", "code"), [("right", 0), ("0", 1)])
def test_the_action_goes_red_and_green(
    repository: Callable[[str], Path], reference: str, code: int
) -> None:
    """The step of action.yml itself, run as GitHub runs it: bash -eo pipefail, inputs in env."""
    step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]
    folder = repository(reference)
    place = folder / "summary.md"
    ran = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PARITY_COMMAND": "check",
            "PARITY_ARGUMENTS": "--quick --quiet",
            "GITHUB_STEP_SUMMARY": str(place),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    lines = ran.stdout.splitlines()
    assert all(line.startswith("::") for line in lines)
    if code:
        assert lines[0].startswith("::error title=losses.py%3Aloss (float32)%3A dpo/loss,")
        assert "file=losses.py,line=4::dpo/loss[0] (points, core)" in lines[0]
        assert "| divergent |" in place.read_text()
    else:
        assert lines == [f"::notice title=parity::{lines[0].rpartition('::')[2]}"]
        assert lines[0].rpartition("::")[2].startswith("match: ")


@pytest.mark.parametrize("wanted", ["junit", "github"])
def test_a_command_that_ends_without_a_verdict_says_so_to_machines(
    inside: Callable[..., Ran], tmp_path: Path, wanted: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(CONFIGURED)  # and no losses.py
    ran = inside("check", "--format", wanted, cwd=tmp_path)
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith(f"parity: {tmp_path}/pyproject.toml: TARGET: lo")
    if wanted == "junit":
        SCHEMA.validate(ran.out)
        assert "no such file" in ran.out
    else:
        assert ran.out.startswith(f"::error title=parity%3A check::{tmp_path}/pyproject.toml: T")


def test_an_unknown_command_of_the_action_is_refused() -> None:
    step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]
    ran = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        env={"PATH": "/usr/bin:/bin", "PARITY_COMMAND": "rm", "PARITY_ARGUMENTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout[:23]) == (2, "::error title=parity::c")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "--timeout", "0"], 2),  # refused by the command line's own parser
        (["run", "nowhere.toml"], 2),
        (["check", "a.py:f", "--objective", "nope"], 2),
        (["faults", "nope"], 2),
        (["faults", "--list"], 2),
        (["peers", "nope"], 2),
    ],
)
def test_bad_usage_is_told_to_machines_too(
    inside: Callable[..., Ran], tmp_path: Path, arguments: list[str], code: int
) -> None:
    for wanted in ("--format=junit", "--format=github"):
        ran = inside(*arguments, wanted, cwd=tmp_path)
        assert ran.code == code
        assert len(ran.err.splitlines()) == 1
        if wanted.endswith("junit"):
            SCHEMA.validate(ran.out)
            assert "<error " in ran.out
        else:
            assert ran.out.startswith(f"::error title=parity%3A {arguments[0]}::")


def test_an_interruption_is_told_to_machines_too(tmp_path: Path) -> None:
    """Sent when the command has said that it begins."""
    command = [Path(sys.executable).parent / "parity", "faults", "--format", "junit"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate()
    assert running.returncode == 130
    SCHEMA.validate(out)
    assert 'message="interrupted"' in out


@pytest.mark.parametrize("place", ["", "missing/summary.md"])
def test_a_summary_that_cannot_be_written_is_refused_before_anything_starts(
    inside: Callable[..., Ran], tmp_path: Path, place: str
) -> None:
    summary = str(tmp_path / place)
    ran = inside("run", "--format", "github", cwd=tmp_path, GITHUB_STEP_SUMMARY=summary)
    assert ran.code == 2
    assert "GITHUB_STEP_SUMMARY: got " in ran.err
    assert not list(tmp_path.iterdir())
    assert "::notice" not in ran.out


@pytest.mark.parametrize("wanted", ["text", "json", "junit", "github"])
def test_nothing_is_a_pass_that_nobody_could_be_told(
    repository: Callable[[str], Path], wanted: str
) -> None:
    closed = f"{Path(sys.executable).parent}/parity faults --list >&-"
    if wanted != "text":
        closed = f"{Path(sys.executable).parent}/parity check --quick --format {wanted} >&-"
    ran = subprocess.run(
        ["bash", "-c", closed],
        cwd=repository("right"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 3
    assert ran.stderr.splitlines()[-1] == "parity: standard output is closed"


def test_documents_are_utf_8_whatever_the_terminal_speaks(tmp_path: Path) -> None:
    (tmp_path / "é.py").write_text("def é(x):\n    return x\n")
    command = ["check", "é.py:é", "--objective", "dpo", "--format", "junit"]
    ran = subprocess.run(
        [Path(sys.executable).parent / "parity", *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 2
    SCHEMA.validate(ran.stdout.decode())
    assert "é" in ran.stdout.decode()
