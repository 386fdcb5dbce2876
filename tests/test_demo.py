"""`parity demo`: a newcomer's minute, for real."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

PARITY = Path(sys.executable).with_name("parity")


def _processor_seconds() -> float:
    """Spent by ended children and theirs: what a clock shows where nothing else runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, float]:
    folder = tmp_path_factory.mktemp("demo")
    before = _processor_seconds()
    ended = subprocess.run(
        [PARITY, "demo"], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return folder / "parity-demo", ended.stdout, _processor_seconds() - before


def test_it_tells_of_a_match_a_planted_bug_and_who_is_to_blame(
    demo: tuple[Path, str, float],
) -> None:
    _, out, seconds = demo
    assert 1 < seconds < 60  # usually 20
    told = " ".join(out.split())
    assert "match:" in told
    assert "clip-only: The ratio is clipped" in told
    assert "the run as a whole nothing seen" in told
    assert "the probe points caught" in told
    assert 'parts first: ppo/surrogate, probe "A ' in told
    assert "to blame: torch" in told
    assert "parity-demo/figures/posttraining-04.svg" in told
    assert max(len(line) for line in out.splitlines() if "match:" not in line) <= 80


def test_it_leaves_the_figure_and_both_judgements(demo: tuple[Path, str, float]) -> None:
    folder, _, _ = demo
    assert (folder / "figures" / "posttraining-04.svg").read_text().startswith("<?xml")
    assert json.loads((folder / "report.json").read_text())["verdict"] == "match"
    planted = json.loads((folder / "planted.json").read_text())
    assert (planted["verdict"], planted["blamed"]) == ("divergent", ["torch"])
