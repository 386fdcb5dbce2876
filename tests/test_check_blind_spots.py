"""Wrong losses that `parity check` once let pass, and right ones that it once refused."""

import runpy
import sys
from pathlib import Path

import pytest

from helpers_check_core import MASKS, NEIGHBOURS
from helpers_check_whole import CLAMPS
from parity.judging import CheckReport
from parity.recognition import recognised
from parity.report import words


def test_every_error_of_a_mask_is_seen(at_core: dict[str, CheckReport], tmp_path: Path) -> None:
    """Rows of unequal length, one of them full: the last column is not padding throughout."""
    reports = {name: at_core[name] for name in MASKS}
    expected = {n: "match" if "right" in n else "divergent" for n in MASKS}
    assert {name: report.verdict for name, report in reports.items()} == expected
    program, source = tmp_path / "repro.py", reports["last_column_cut"].repro
    program.write_text(source)
    with pytest.raises(AssertionError):
        runpy.run_path(str(program))
    program.write_text(source.replace("['last_column_cut']", "['right']"))
    runpy.run_path(str(program))


@pytest.mark.parametrize("name", CLAMPS)
def test_what_no_ordinary_run_reaches_is_probed(name: str, on_grid: dict[str, CheckReport]) -> None:
    report, (_, label) = on_grid[f"clamped {name}"], CLAMPS[name]
    assert report.verdict == ("divergent" if label else "match"), report.first
    assert (report.first.label if report.first else "") == label


def test_what_is_right_at_the_core_behaves_like_no_known_fault(
    on_grid: dict[str, CheckReport],
) -> None:
    """A fault of an update has an honest loss, which any function is like that is right there."""
    for name, (_, label) in CLAMPS.items():
        diagnosis = on_grid[f"clamped {name}"].diagnosis
        assert (diagnosis is None) == (not label)
        assert diagnosis is None or diagnosis.fault == "", (name, diagnosis)


@pytest.mark.parametrize("objective", ["ppo", "dpo", "reinforce", "preference"])
def test_a_twin_passes_on_the_whole_grid(objective: str, on_grid: dict[str, CheckReport]) -> None:
    report = on_grid[f"twin {objective}"]
    assert report.verdict == "match", report.first


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_verdict_does_not_depend_on_neighbours(
    order: str, at_core: dict[str, CheckReport]
) -> None:
    for name, (_, framework) in NEIGHBOURS.items():
        report = at_core[f"{name} {order}"]
        assert (report.framework, report.verdict, report.fault) == (framework, "match", "")


def test_a_function_is_recognised_by_what_takes_it_where_its_source_is_silent() -> None:
    """One that a library hides behind objects: NumPy is tried before what is loaded by chance."""
    import numpy as np

    def silent_one(x: object) -> object:
        return x

    def loud(x: object) -> object:
        return np.exp(x)  # type: ignore[call-overload]

    every = ("jax", "torch", "numpy")
    loaded = [name for name in every if name in sys.modules and name != "numpy"]
    assert recognised(silent_one, every, lambda name: name == "numpy") == "numpy"
    for name in loaded:
        assert recognised(silent_one, every, lambda tried, mine=name: tried == mine) == name
    assert recognised(loud, every, lambda _: True) == "numpy"
    assert recognised(loud, every, lambda _: False) == "numpy"


def test_float32_accuracy_in_float64_is_noisy_and_told(at_core: dict[str, CheckReport]) -> None:
    """PyTorch's softplus is linear above 20, where log(1 + exp(x)) is x + 2e-9."""
    soft, off = at_core["soft"], at_core["off"]
    assert [lesson.verdict for lesson in soft.lessons] == ["match", "noisy"]
    assert soft.verdict == "noisy"
    assert soft.first is not None
    assert (soft.first.dtype, soft.first.label) == ("float64", "score difference near -20")
    said = words.check_failure(soft)
    assert "first failing cell (float64, points, core): score difference near -20" in said
    assert "in float64 it computes with the accuracy of float32" in said
    assert not any("not compared" in line for line in said)
    assert off.verdict == "divergent"
