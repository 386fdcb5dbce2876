"""What is wrong, noisy or of another problem, told by twins that compute with the oracle."""

import json
from collections.abc import Callable
from pathlib import Path

from helpers_cli import FIGURES, PPO, Ran, names, old_results, parity, problems_in, report_in
from parity.samples import Samples


def test_whatever_is_wrong_is_exit_1_and_no_figure(twins: str, tmp_path: Path) -> None:
    """One run of seven problems, six of them mistreated; the honest one alone is drawn."""
    verdicts = {
        "honest": "match",
        "wrong": "divergent",
        "nan": "divergent",
        "infinite": "divergent",
        "reshaped": "divergent",
        "extra": "divergent",
        "missing": "inconclusive",
        "empty": "inconclusive",
    }
    fake = json.dumps({what: what for what in verdicts if what != "honest"})
    out = tmp_path / "out"
    old_results(out)
    ran = parity(
        "run",
        *problems_in(tmp_path, *verdicts),
        "--out",
        out,
        cwd=tmp_path,
        PYTHONPATH=twins,
        FAKE=fake,
        COLUMNS="80",
    )
    assert ran.code == 1, ran.err
    assert "Traceback" not in ran.err
    report = report_in(out)
    assert report.verdict == "divergent"
    assert {lesson.lesson: lesson.verdict for lesson in report.lessons} == verdicts
    for lesson in report.lessons:
        assert lesson.blamed == ([] if lesson.lesson == "honest" else ["torch"])
        parted = lesson.first_divergence
        if lesson.lesson in ("wrong", "nan", "infinite"):
            assert parted is not None
            assert (parted.quantity, parted.at) == ("dpo/loss", {"update": 1})
            assert (parted.mode, parted.left, parted.right) == ("step", "torch", "oracle")
        else:
            assert parted is None
    left = {"nan": "NaN", "infinite": "Infinity"}
    for lesson in report.lessons:
        if lesson.lesson in left:
            assert lesson.first_divergence is not None
            assert lesson.first_divergence.entry.left == left[lesson.lesson]
    figures = {name for name in names(out) if name.startswith("figures/")}
    assert figures == {f"figures/honest{kind}" for kind in FIGURES}
    assert ran.closing.startswith("divergent: ")
    told = " ".join(ran.out.split())  # as it wraps at 80 columns
    assert "first divergence: dpo/loss[1] at update 1 (step mode): torch NaN" in told
    # Missing and empty say nothing of the values; the five others are wrong.
    assert told.count("inconclusive against the oracle: torch") == 2
    assert told.count("outside the allowance against the oracle: torch") == 5
    for reason in ("missing from torch", "empty in torch", "torch records it, nobody expects it"):
        assert reason in told
    assert max(map(len, ran.out.splitlines()[:-2])) <= 80


def test_noise_is_exit_1_unless_it_is_allowed_with_a_reason(
    twins: str, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    arguments = ("run", *problems_in(tmp_path, "small"), "--no-figures")
    options = {"cwd": tmp_path, "PYTHONPATH": twins, "FAKE": '{"torch": "noisy"}'}
    ran = inside(*arguments, "--quiet", **options)
    assert ran.code == 1, ran.err
    assert ran.closing.startswith("noisy: ")
    assert len(ran.out.splitlines()) == 1  # --quiet
    assert ran.err == ""
    allowed = ("--allow-noisy", "dpo/l*", "--reason", "summed in another order")
    ran = inside(*arguments, *allowed, **options)
    assert ran.code == 0, ran.err
    assert ran.closing.startswith("match: ")
    assert "noise accepted in dpo/loss: summed in another order" in ran.out
    report = report_in(tmp_path / "parity-out")
    assert report.verdict == "match"
    assert report.allowed_noise is not None
    assert (report.allowed_noise.pattern, report.allowed_noise.quantities) == (
        "dpo/l*",
        ["dpo/loss"],
    )
    assert report.allowed_noise.reason == "summed in another order"


def test_a_tape_of_another_problem_is_replayed_on_request_and_said_so(
    twins: str, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    problems_in(tmp_path, "first", text=PPO)
    tape = tmp_path / "tape.safetensors"
    ran = inside("samples", "draw", "first.toml", "-o", tape, cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 0, ran.err
    assert ran.out == f"{tape}: 3 rollouts of 8 actions, seed 5, jax 0\n"
    other = PPO.replace("beta = 0.3", "beta = 0.4")
    problems_in(tmp_path, "second", text=f'samples = "tape.safetensors"\n{other}')
    arguments = ("run", "second.toml", "--no-figures", "--reuse-samples")
    ran = inside(*arguments, cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 0, ran.err + ran.out
    assert "samples: drawn for another problem, first" in ran.out.splitlines()
    (lesson,) = report_in(tmp_path / "parity-out").lessons
    assert lesson.samples_note == "drawn for another problem, first"
    assert lesson.samples_digest == Samples.load(tape).digest
