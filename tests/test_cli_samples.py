"""`parity samples`: drawn, verified, tampered with."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from helpers_cli import PPO, Ran, problems_in
from parity.samples import Samples


def test_a_drawn_tape_is_verified_and_a_tampered_one_is_not(
    twins: str, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    problems_in(tmp_path, "small", text=PPO)
    tape = tmp_path / "tape.safetensors"
    draw = ("samples", "draw", "small.toml", "-o", tape, "--sampler", "torch", "--seed", "9")
    # The real PyTorch draws and verifies.
    ran = inside(*draw, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert re.fullmatch(rf"{tape}: 3 rollouts of 8 actions, seed 9, torch \d+\.\d+\.\d+\n", ran.out)
    samples = Samples.load(tape)
    assert (samples.sampler, samples.seed, samples.problem) == ("torch", 9, "small")
    verify = ("samples", "verify", tape, "--problem", "small.toml")
    ran = inside(*verify, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{tape}: the same 24 actions, drawn again by torch ")
    # The oracle's twin draws other actions; what it says of changed ones does not depend on whose.
    ran = inside(*draw, cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 0, ran.err
    samples = Samples.load(tape)
    actions, behaviour = samples.actions.copy(), samples.behaviour.copy()
    actions[1, 2], actions[2, 0] = (actions[1, 2] + 1) % 3, (actions[2, 0] + 1) % 3
    replace(samples, actions=actions).save(tape)
    ran = inside(*verify, cwd=tmp_path, PYTHONPATH=twins)
    assert (ran.code, ran.out) == (
        1,
        f"{tape}: rollout 1, sample 2: recorded action {actions[1, 2]}, "
        f"drawn again {samples.actions[1, 2]} (2 of 24 differ)\n",
    )
    taken = samples.actions[2, 0]
    behaviour[2, taken] += 0.01  # a hundredfold of any allowance here
    replace(samples, behaviour=behaviour).save(tape)
    ran = inside(*verify, cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 1
    assert ran.out.startswith(f"{tape}: rollout 2, sample 0: recorded log-prob ")
    assert ran.out.endswith("not drawn by this problem's policy\n")


def test_the_recorded_tapes_are_found_by_lesson(
    twins: str, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    """The oracle's twin cannot draw them, but it shows which tape is looked at, and where."""
    ran = inside("samples", "verify", "posttraining-04", cwd=tmp_path, PYTHONPATH=twins)
    assert ran.code == 1
    assert "posttraining-04.safetensors: rollout 0, sample " in ran.out
    assert re.search(r"\(\d+ of 5,120 differ\)", ran.out)
