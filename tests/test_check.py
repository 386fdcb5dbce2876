"""`parity check`: right functions pass, every known bug fails with its name, conventions hold."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from helpers_check import convention
from helpers_check_core import PATIENCE, of_losses, silent
from helpers_check_whole import CONVENTIONS, NUMPY
from helpers_cli import Ran
from parity.checks import Target, check
from parity.errors import InputError
from parity.judging import CheckReport


@pytest.fixture
def results(at_core: dict[str, CheckReport]) -> Callable[[str], dict[str, CheckReport]]:
    """Fault, or loss of a twin, to what is said of a function that has it."""

    def of(implementation: str) -> dict[str, CheckReport]:
        mine = f"{implementation} "
        return {n.removeprefix(mine): r for n, r in at_core.items() if n.startswith(mine)}

    return of


def test_the_losses_of_the_twins_pass(
    implementation: str, results: Callable[[str], dict[str, CheckReport]]
) -> None:
    for name in ("ppo_loss", "dpo_loss", "reinforce_loss", "preference_loss"):
        report = results(implementation)[name]
        assert report.verdict == "match", (name, report.fault, report.first)
        assert report.framework == implementation
        assert report.repro == ""
        assert [lesson.dtype for lesson in report.lessons] == ["float32", "float64"]
        assert report.notes == ["returns 2 values: the first is compared"]


BEYOND_THE_CORE = {"advantage-clamped"}  # advantages of the core stay within its clamp


def test_every_known_bug_of_a_loss_fails_by_its_name(
    implementation: str, results: Callable[[str], dict[str, CheckReport]]
) -> None:
    found = results(implementation)
    wrong = {}
    faults = [f for _, f in of_losses() if f.name in found and not f.equivalent]
    faults = [f for f in faults if f.name not in BEYOND_THE_CORE]
    assert len(faults) >= (55 if implementation == "torch" else 4)
    for fault in faults:
        report = found[fault.name]
        diagnosis = report.diagnosis
        named = [diagnosis.fault, *diagnosis.indistinguishable] if diagnosis else []
        if report.verdict != "divergent" or fault.name not in named or not report.first:
            wrong[fault.name] = (report.verdict, report.fault, report.first, diagnosis)
    assert wrong == {}


def test_rewrites_pass(
    implementation: str, results: Callable[[str], dict[str, CheckReport]]
) -> None:
    found = results(implementation)
    rewrites = [f.name for _, f in of_losses() if f.equivalent and f.name in found]
    assert len(rewrites) >= (10 if implementation == "torch" else 3)
    assert {n: found[n].verdict for n in rewrites if found[n].verdict != "match"} == {}


def test_the_first_failing_cell_is_told_in_words(
    results: Callable[[str], dict[str, CheckReport]],
) -> None:
    report = results("torch")["clip-only"]
    assert report.first is not None
    assert report.first.label == "A > 0, ratio far below the interval"  # clip(ρ)A > ρA there
    assert report.first.quantity == "ppo/loss"
    later = results("torch")["dpo-log-one-plus-exp"].first
    assert later is not None
    assert later.label == "scaled margin near -100"  # exp(100) overflows float32, exp(20) does not
    frozen = results("torch")["advantage-not-detached"].first
    assert frozen is not None
    assert frozen.quantity == "ppo/gradient_advantages"


@pytest.mark.parametrize(
    ("fault", "samples"), [("clip-only", 1), ("mean-of-n-minus-1", 2), ("dpo-sum-for-mean", 2)]
)
def test_the_smallest_failing_input_is_found(
    fault: str, samples: int, results: Callable[[str], dict[str, CheckReport]]
) -> None:
    source = results("torch")[fault].repro
    counted = "chosen" if fault.startswith("dpo") else "actions"
    line = next(line for line in source.splitlines() if line.startswith(f"{counted} = "))
    assert line.count(",") == samples  # one after each but the last, and one before the dtype


def test_the_smallest_failing_input_is_a_program(
    results: Callable[[str], dict[str, CheckReport]], tmp_path: Path
) -> None:
    """It fails for the function that is wrong and passes for the right one."""
    source = results("torch")["advantage-negated"].repro
    program = tmp_path / "repro.py"
    program.write_text(source)
    with pytest.raises(AssertionError):
        runpy.run_path(str(program))
    lines = source.splitlines()
    at = next(n for n, text in enumerate(lines) if text.startswith("advantage_negated = runpy"))
    lines[at] = "from parity.torch_impl.ppo import ppo_loss as advantage_negated"
    program.write_text("\n".join(lines))
    runpy.run_path(str(program))


@pytest.mark.parametrize("name", CONVENTIONS)
def test_conventions(name: str, on_grid: dict[str, CheckReport]) -> None:
    """On the whole grid, up to 128 actions and 1,000 samples."""
    report = on_grid[f"convention {name}"]
    expected = "divergent" if name == "mask_lost" else "match"
    assert report.verdict == expected, (report.fault, report.first)
    if name == "scores":
        assert report.notes == ["prints while it computes: 'step'"]


def test_numpy_functions_maps_and_adapters(on_grid: dict[str, CheckReport | InputError]) -> None:
    right, wrong, mapped, refused, adapted = (
        on_grid[f"numpy {name}"] for name in ("right", "wrong", "mapped", "refused", "adapted")
    )
    for report in (right, mapped, adapted):
        assert isinstance(report, CheckReport)
        assert report.verdict == "match", report.first
        assert report.framework == "numpy"
        assert {c.quantity for c in report.lessons[0].comparisons} == {"dpo/loss"}
    assert isinstance(wrong, CheckReport)
    assert wrong.verdict == "divergent"
    assert isinstance(refused, InputError)
    assert "b=clip: no such input: found strange(x, ref, c, r, b)" in str(refused)


def test_training_in_step_and_trajectory_mode(at_core: dict[str, CheckReport]) -> None:
    right = at_core["trained"]
    assert right.verdict == "match", right.first
    modes = {c.mode for c in right.lessons[0].comparisons}
    assert modes == {"points", "step", "trajectory"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Target("nowhere", "dpo"), "TARGET: got 'nowhere'; expected package.module:function"),
        (Target("missing.py:f", "dpo"), "missing.py: no such file"),
        (
            Target("a.b:f", "sft"),
            "--objective: got 'sft'; expected one of reward or preference, ppo",
        ),
        (
            Target("a.b:f", "dpo", convention=convention(kl="absent")),
            "--kl: got absent; dpo has no such choice, expected one of sign, reduction",
        ),
        (
            Target("a.b:f", "dpo", convention=convention(constants={"clip": 1.0})),
            "--constant: got 'clip'; expected beta for dpo",
        ),
        (
            Target("a.b:f", "ppo", within={"advantages": (0.0, 1.0)}),
            "within: got 'advantages'; expected beta or clip, as ppo has",
        ),
        (
            Target("a.b:f", "ppo", within={"clip": (5.0, 6.0)}),
            "within: got {'clip': (5.0, 6.0)}; expected ranges in which probes lie",
        ),
        (
            Target("a.b:f", "ppo", convention=convention(constants={"beta": -1.0})),
            "--constant: beta: got -1.0; expected a finite number, at least 0",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(target: Target, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check(target, PATIENCE, silent)
    assert message in str(refused.value)


def test_the_command_says_it_in_words_and_in_json(
    inside: Callable[..., Ran], tmp_path: Path
) -> None:
    path, repro = tmp_path / "mine.py", tmp_path / "repro.py"
    path.write_text(NUMPY)
    asked = ("--objective", "dpo", "--quick")
    said = inside("check", f"{path}:wrong", *asked, "--repro", repro, cwd=tmp_path)
    assert said.code == 1
    assert "wrong(logits, reference, chosen, rejected, beta)" in said.out
    assert "first failing cell (float32, points, core): ordinary margins" in said.out
    assert f"smallest failing input: {repro}" in said.out
    assert said.closing.startswith("divergent: ")
    ended = subprocess.run([sys.executable, repro], capture_output=True, text=True, check=False)
    assert "AssertionError" in ended.stderr
    encoded = inside("check", f"{path}:dpo", *asked, "--quiet", "--format", "json", cwd=tmp_path)
    report = msgspec.json.decode(encoded.out, type=CheckReport)
    assert encoded.code == 0
    assert (report.verdict, report.framework) == ("match", "numpy")
