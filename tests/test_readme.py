"""What the README shows is run: its Python in order, its configuration by `parity check`."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from parity.config import load_config
from parity.widening import Widened

README = (Path(__file__).parents[1] / "README.md").read_text()
PATIENCE = 600.0  # seconds for what takes twenty, on a busy machine
EXPORTED = {"check", "compare", "load_problem", "load_trace", "run"}


def shown() -> list[str]:
    """The examples that are no file."""
    return [block for block in blocks("python") if not block.startswith("# ")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README gives, each named in its first line."""
    place = tmp_path_factory.mktemp("readme")
    for block in blocks("python"):
        first = block.splitlines()[0]
        if first.startswith("# ") and first.endswith(".py"):
            (place / first.removeprefix("# ")).write_text(block)
    targets, widened = blocks("toml")
    (place / "pyproject.toml").write_text(f"{targets}detached = true\n{widened}")
    return place


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_examples_are_short_and_show_every_export() -> None:
    for block in shown():
        assert len([line for line in block.splitlines() if line.strip()]) < 10
    code = "\n".join(shown())
    for name in {*EXPORTED, "Problem", "Samples", "Trace", "Verdict"}:
        assert f"parity.{name}" in code


def test_examples_in_python_run(folder: Path) -> None:
    script = folder / "examples.py"
    script.write_text("\n".join(block for block in shown() if "def test_" not in block))
    ran = run(folder, sys.executable, str(script))
    assert ran.returncode == 0, ran.stderr
    checked, replayed, judged, tape = ran.stdout.splitlines()
    assert checked == "match None None"
    # posttraining-05: the first and the last of the 120 recorded losses.
    assert re.fullmatch(r"match 0\.693147\d* 0\.272277\d*", replayed)
    assert judged == "match [] None"
    assert tape == "(40, 128) jax 11"  # posttraining-04: 40 rollouts of 128, key 11


def test_examples_of_tests_run(folder: Path) -> None:
    tests = [block for block in shown() if "def test_" in block]
    assert tests
    (folder / "test_losses.py").write_text("\n".join(tests))
    (folder / "conftest.py").touch()  # so that pytest finds what stands beside the tests
    ran = run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout
    assert f"{len(tests)} passed" in ran.stdout


def test_the_configuration_is_what_it_says(folder: Path) -> None:
    (target,) = load_config(folder / "pyproject.toml").targets
    assert (target.target, target.objective) == ("losses.py:dpo_loss", "dpo")
    (rule,) = target.widened
    assert isinstance(rule, Widened)
    assert rule.reason
    assert tomllib.loads(blocks("toml")[0])  # three lines, as the text says
    assert len(blocks("toml")[0].splitlines()) == 3
