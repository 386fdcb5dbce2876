"""The pytest plugin and `parity.testing`: red where a loss is wrong, green where it is right."""

import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers_cli import Ran
from parity.errors import BackendError, InputError
from parity.testing import assert_configured, assert_parity, assert_same

PATIENCE = 240.0  # seconds for what takes ten, on a busy machine

CONFIGURATION = """\
[[tool.parity.targets]]
target = "mylib.losses:dpo_loss"
objective = "dpo"
"""

REFERENCE = "margins = margins - (reference[chosen] - reference[rejected])"

LOSSES = f"""\
import os

import numpy as np


def dpo_loss(logits, reference, chosen, rejected, beta):
    logps = logits - logits.max()
    logps = logps - np.log(np.sum(np.exp(logps)))
    margins = logps[chosen] - logps[rejected]
    {REFERENCE}
    return np.mean(np.logaddexp(0, -beta * margins)).astype(logits.dtype)


def forgets(logits, reference, chosen, rejected, beta):
    return dpo_loss(logits, np.zeros_like(reference), chosen, rejected, beta)


def raises(logits, reference, chosen, rejected, beta):
    raise ValueError("not today")


def dies(logits, reference, chosen, rejected, beta):
    os.write(2, b"the last words")
    os._exit(3)


def points():
    return {{
        "logits": np.array([0.2, 0.0, -0.2]),
        "reference": np.log([0.5, 0.25, 0.25]),
        "chosen": [0, 0],
        "rejected": [1, 2],
        "beta": 0.3,
    }}
"""

CONFIGURED = """\
def test_losses(parity_check):
    parity_check(quick=True)
"""

NAMED = """\
from mylib.losses import dpo_loss
from parity.testing import assert_same


def test_the_fixture(parity_check):
    (report,) = parity_check(quick=True)
    assert report.verdict == "match"
    assert parity_check("mylib.losses:dpo_loss", quick=True).target == report.target
    assert parity_check(dpo_loss, objective="dpo", quick=True).verdict == "match"


def mine(logits, reference, chosen, rejected, beta):
    return dpo_loss(logits, reference, chosen, rejected, beta)


def points():
    yield {"logits": [0.2, 0.1], "reference": [0, -1.0], "chosen": 0, "rejected": 1, "beta": 0.3}


def test_functions_of_a_test():
    assert_same(dpo_loss, mine, points=points)
"""

UNUSED = """\
import sys


def test_nothing(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("parity")
    assert "parity" in sys.modules
    heavy = {"numpy", "msgspec", "safetensors", "jax", "torch", "parity.testing"}
    assert not heavy & sys.modules.keys()
"""


def run(folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of this environment in a folder, as its user would give it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [Path(sys.executable).with_name(command), *arguments],
        cwd=folder,
        env=kept | {"COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_sample_repository_goes_red_and_green(inside: Callable[..., Ran], tmp_path: Path) -> None:
    """Three lines of configuration, a test of two lines; through pytest and through the command."""
    losses = tmp_path / "mylib" / "losses.py"
    write(tmp_path, {"pyproject.toml": CONFIGURATION, "tests/test_losses.py": CONFIGURED})
    write(tmp_path, {"conftest.py": "", "mylib/losses.py": LOSSES.replace(REFERENCE, "")})
    red = run(tmp_path, "pytest")
    assert red.returncode == 1, red.stdout + red.stderr
    told = [line[1:].strip() for line in red.stdout.splitlines() if line.startswith("E ")]
    assert told[0] == "AssertionError: divergent: mylib.losses:dpo_loss, first in dpo/loss"
    assert told[1] == "first failing cell (float32, points, core): ordinary margins"
    assert re.fullmatch(r"dpo/loss: got 0\.\d+, right is 0\.\d+", told[2])
    assert re.fullmatch(r"difference 0\.\d+, allowed \S+e-07", told[3])
    assert re.fullmatch(r"\d+ values compared; largest difference \S+ of the allowance", told[4])
    assert told[5].startswith("it behaves as fault `dpo-reference-free`: The reference correction")
    assert told[6] == "smallest failing input:"
    assert told[-1].startswith("assert np.all(")
    assert "tests/test_losses.py:2: AssertionError" in red.stdout
    assert ".py:" not in red.stdout.replace("tests/test_losses.py:", "")  # no traceback of ours
    command = inside("check", "--quick", cwd=tmp_path, COLUMNS="100")
    assert command.code == 1, command.err
    lines = {line.strip() for line in command.out.replace("divergent: ", "").splitlines()}
    assert set(told[1:]) <= lines

    losses.write_text(LOSSES)
    write(tmp_path, {"tests/test_names.py": NAMED})
    green = run(tmp_path, "pytest", "-n", "1", "-W", "error")
    assert green.returncode == 0, green.stdout + green.stderr
    assert "3 passed" in green.stdout
    command = inside("check", "--quick", cwd=tmp_path)
    assert command.code == 0, command.err


def test_a_run_that_does_not_use_it_loads_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"test_unused.py": UNUSED})
    others = ("jaxtyping", "hypothesispytest")  # these load NumPy
    ran = run(tmp_path, "pytest", *(f"-pno:{name}" for name in others))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that only this process imports from: its workers have to be told."""
    write(tmp_path, {"library/theirs/__init__.py": "", "library/theirs/losses.py": LOSSES})
    monkeypatch.syspath_prepend(tmp_path / "library")
    return tmp_path / "library"


def said(error: BaseException) -> list[str]:
    """The lines of a message, and that only hidden frames of ours lie beneath it."""
    for frame, _ in list(traceback.walk_tb(error.__traceback__))[1:]:
        assert frame.f_locals.get("__tracebackhide__"), frame
    return str(error).splitlines()


def test_assert_parity(library: Path) -> None:
    report = assert_parity("theirs.losses:dpo_loss", "dpo", quick=True)
    assert (report.verdict, report.framework) == ("match", "numpy")
    with pytest.raises(AssertionError) as failed:
        assert_parity(f"{library}/theirs/losses.py:raises", objective="dpo", quick=True)
    lines = " ".join(line.strip() for line in said(failed.value))
    assert lines.startswith("divergent: ")
    assert lines.endswith(
        "losses.py:raises raised ValueError: not today at losses.py:19 (core: ordinary margins) "
        "in float32"
    )


@pytest.mark.usefixtures("library")
def test_what_is_no_failed_assertion_is_raised_as_it_is() -> None:
    with pytest.raises(InputError, match="expected one of reward or preference") as refused:
        assert_parity("theirs.losses:dpo_loss", "sft")
    said(refused.value)
    with pytest.raises(BackendError, match=r"dies \(float32\): crashed with exit code 3") as died:
        assert_parity("theirs.losses:dies", "dpo", quick=True)
    said(died.value)
    assert died.value.__notes__ == ["the last words"]


POINT = {
    "logits": np.array([0.2, 0.0, -0.2]),
    "reference": np.zeros(3),
    "chosen": [0, 0],
    "rejected": [1, 2],
    "beta": 0.3,
}


@pytest.mark.usefixtures("library")
def test_assert_same() -> None:
    """The right loss, and one that forgets the reference: the same where that is uniform."""
    pair = ("theirs.losses:dpo_loss", "theirs.losses:forgets")
    report = assert_same(*pair, points=POINT)
    assert (report.verdict, report.points) == ("match", 1)
    assert assert_same(pair[0], pair[0], points="theirs.losses:points").verdict == "match"
    tracked = POINT | {"logits": torch.tensor([0.2, 0.0, -0.2], requires_grad=True)}
    assert assert_same(*pair, points=tracked).verdict == "match"
    skewed = POINT | {"reference": np.log([0.5, 0.25, 0.25])}
    with pytest.raises(AssertionError) as failed:
        assert_same(*pair, points={"uniform": POINT, "skewed": skewed, "again": skewed})
    lines = said(failed.value)
    assert lines[0] == "divergent: parts at 2 of 3 points, in value"
    assert re.fullmatch(r"value at skewed \(float64\): A 0\.\d+, B 0\.\d+", lines[1])
    assert re.fullmatch(r"  difference 0\.\d+, allowed \S+e-1[56]", lines[2])
    assert (
        "A: theirs.losses:dpo_loss: dpo_loss(logits, reference, chosen, rejected, beta)"
        in (failed.value.args[0])
    )
    assert lines[-1] == "6 values compared"  # one a point and dtype


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({}, "points: got nothing; expected arrays, or labels to dictionaries of arrays"),
        (
            {"one": POINT, "beta": 0.3},
            "points: got arrays beside dictionaries; expected arrays, or",
        ),
        ({1: POINT, "1": POINT}, "points: 1/logits: got it twice; expected labels that differ"),
        ({"a": {}, "b": POINT}, "points: a: got nothing; expected arrays by name"),
        ({"a": POINT, "b": {"beta": 0.3}}, "b: logits: got nothing; expected float64, as in a"),
        ({"a": {"beta": 0.3}, "b": POINT}, "b: logits: got float64; expected nothing, as in a"),
        ({"a": POINT, "b": POINT | {"beta": 1}}, "b: beta: got int64; expected float64, as in a"),
        ({"x": [1, 2]}, "the point: got x int64; expected an array of floats"),
        ({"x": torch.ones(2).bfloat16()}, "points: x: got bfloat16, which NumPy lacks; expected"),
        (POINT | {"beta": None}, "points: beta: got object; expected real numbers"),
        (POINT | {"beta": [[1.0], [1.0, 2.0]]}, "points: beta: setting an array element"),
        (lambda: POINT, "points: got <lambda>; expected a function at the top of a module"),
    ],
)
def test_unusable_points_are_refused(points: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        assert_same("a.b:f", "a.b:g", points=points)
    assert message in said(refused.value)[0]


def test_what_is_not_configured_is_refused(
    tmp_path: Path, parity_check: Callable[..., Any]
) -> None:
    write(tmp_path, {"pyproject.toml": CONFIGURATION})
    with pytest.raises(InputError, match=r"got 'magic'; expected one of mylib\.losses:dpo_loss"):
        assert_configured("magic", pyproject=tmp_path / "pyproject.toml")
    with pytest.raises(InputError, match=r"pyproject\.toml: tool\.parity: missing"):
        parity_check()  # of this project
    with pytest.raises(InputError, match="--objective: got ''; expected one of"):
        parity_check(write)
