"""The command as it is installed from a wheel, outside the checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers_cli import LESSONS, PATIENCE, environment, names, report_in

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.xdist_group("full run")


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
