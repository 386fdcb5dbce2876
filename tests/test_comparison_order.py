"""Many comparisons: precedence, first divergence, blame; a tiny gradient of the wrong sign."""

import math

import msgspec
import numpy as np
import pytest

from helpers_comparison import SPECS, against
from parity import gate
from parity.comparison import (
    ORACLE,
    VERDICTS,
    Comparison,
    Mode,
    Verdict,
    blame,
    first_divergence,
    worst_verdict,
)
from parity.points import Points
from parity.structure import uncompared

# A small gradient of the wrong sign, which hand-set tolerances let pass.


def test_a_tiny_gradient_of_the_wrong_sign_is_divergent_under_a_measured_allowance() -> None:
    import torch

    # -β σ(-βm) = -5e-6 with β = 0.5: σ = 1e-5, so βm = ln(1e5 - 1) and m = 2 ln(1e5 - 1)
    margin = float(np.float32(2 * math.log(1e5 - 1)))
    inputs = {
        "logits": np.array([[margin, 0.0]]),
        "reference": np.array([[-math.log(2)] * 2], np.float32).astype(np.float64),
        "chosen": np.array([[0]]),
        "rejected": np.array([[1]]),
        "beta": np.array([0.5]),
    }
    measured = gate.evaluate_points(Points("dpo", "one", ("one",), inputs), "float32")
    name = "dpo/gradient"
    right = measured.values[name]
    np.testing.assert_allclose(right, [[-5e-6, 5e-6]], rtol=1e-6)  # margin's rounding, 1e-6 of it
    honest, flipped = right.astype(np.float32), -right.astype(np.float32)
    options = {"bound": measured.bound[name], "mode": "points"}
    assert against(honest, right, measured.allowed[name], **options).verdict == "match"
    found = against(flipped, right, measured.allowed[name], **options)
    assert found.verdict == "divergent"
    assert found.worst is not None
    assert found.worst.ratio > 1e3  # rounding moves it by 1e-6 of itself, the sign by twice it
    torch.testing.assert_close(torch.from_numpy(flipped), torch.from_numpy(honest))


# Many comparisons: precedence, order, blame.


def test_precedence_of_verdicts() -> None:
    assert VERDICTS == ("match", "noisy", "inconclusive", "divergent")
    for position, worse in enumerate(VERDICTS):
        for better in VERDICTS[: position + 1]:
            assert worst_verdict([better, worse]) == worst_verdict([worse, better]) == worse
    assert worst_verdict([]) == "inconclusive"
    assert worst_verdict(iter(["match"])) == "match"


AT_SHAPES = {  # the smallest shapes that hold every index used below
    "reward/loss": (3,),
    "reward/scores": (2,),
    "ppo/ratios": (2, 2, 2),
    "ppo/surrogate": (2, 2),
    "ppo/logits": (2, 2, 2),
    "ppo/actions": (2, 2),
    "ppo/expected_reward": (3,),
    "ppo/probabilities": (2,),
    "dpo/margins": (3, 2),
    "dpo/loss": (3,),
}


def parted(
    name: str,
    *index: int,
    mode: Mode = "step",
    sides: tuple[str, str] = ("torch", ORACLE),
    verdict: Verdict = "divergent",
    grid: str = "run",
) -> Comparison:
    """A comparison that is outside the allowance at one entry alone; 8 is noisy, 64 beyond."""
    right = np.zeros((*AT_SHAPES[name],))
    left = right.copy()
    left[index] = {"match": 0.0, "noisy": 8.0, "divergent": 64.0}[verdict]
    found = against(left, right, 1.0, bound=16.0, name=name, mode=mode, sides=sides, grid=grid)
    assert found.verdict == verdict
    return found


def at_point(comparison: Comparison) -> Comparison:
    """The same as one of the points: its first axis is `point`."""
    axes = ("point", *comparison.axes[1:])
    return msgspec.structs.replace(comparison, mode="points", axes=axes)


IN_ORDER = [  # as a run computes them, from the first to the last
    parted("reward/loss", 0),
    parted("reward/loss", 2),
    parted("reward/scores", 1),  # once, after all updates
    parted("ppo/expected_reward", 0),  # the checkpoint before the first rollout
    parted("ppo/actions", 0, 1),  # replayed before the first epoch
    parted("ppo/ratios", 0, 0, 1),
    parted("ppo/surrogate", 0, 0),
    parted("ppo/logits", 0, 0, 0),
    parted("ppo/ratios", 0, 1, 0),
    parted("ppo/surrogate", 0, 1),
    parted("ppo/expected_reward", 1),  # the checkpoint after the first rollout
    parted("ppo/actions", 1, 0),
    parted("ppo/surrogate", 1, 0),
    parted("ppo/logits", 1, 1, 0),
    parted("ppo/expected_reward", 2),
    parted("ppo/probabilities", 0),
    parted("dpo/margins", 0, 1),
    parted("dpo/loss", 0),
    parted("dpo/margins", 1, 0),
    at_point(parted("reward/loss", 0, grid="core")),  # points have no step: they come last
    at_point(parted("dpo/loss", 2, grid="core")),
]


@pytest.mark.parametrize("position", range(len(IN_ORDER) - 1))
def test_the_first_divergence_is_the_first_in_order_of_computation(position: int) -> None:
    earlier, *later = IN_ORDER[position:]
    for comparisons in ([earlier, *later], [*later, earlier], [later[0], earlier]):
        found = first_divergence(comparisons)
        assert found is not None
        assert earlier.first is not None
        assert (found.quantity, found.mode, found.grid) == (
            earlier.quantity,
            earlier.mode,
            earlier.grid,
        )
        assert found.entry == earlier.first


def test_the_first_divergence_names_its_step() -> None:
    def step(comparison: Comparison) -> dict[str, int]:
        found = first_divergence([comparison])
        assert found is not None
        return found.at

    assert step(parted("ppo/ratios", 1, 0, 1)) == {"rollout": 1, "epoch": 0}
    assert step(parted("ppo/actions", 1, 0)) == {"rollout": 1}
    assert step(parted("ppo/expected_reward", 2)) == {"checkpoint": 2}
    assert step(parted("dpo/margins", 2, 1)) == {"update": 2}
    assert step(parted("ppo/probabilities", 1)) == {}
    assert step(at_point(parted("dpo/margins", 2, 1))) == {"point": 2}


def test_of_equals_the_step_against_the_oracle_says_most() -> None:
    def same(mode: Mode, sides: tuple[str, str]) -> Comparison:
        return parted("ppo/surrogate", 0, 1, mode=mode, sides=sides)

    preferred = [
        same("step", ("torch", ORACLE)),
        same("trajectory", ("torch", ORACLE)),
        same("trajectory", ("jax", "torch")),
    ]
    for position, best in enumerate(preferred):
        found = first_divergence(preferred[position:][::-1])
        assert found is not None
        assert (found.mode, found.left, found.right) == (best.mode, best.left, best.right)


def test_what_is_noisy_is_passed_over_where_something_is_divergent() -> None:
    noisy = parted("reward/loss", 0, verdict="noisy")
    divergent = parted("dpo/loss", 2)
    for comparisons, expected_first in (
        ([noisy, divergent], "dpo/loss"),
        ([noisy, parted("dpo/loss", 2, verdict="match")], "reward/loss"),
    ):
        found = first_divergence(comparisons)
        assert found is not None
        assert found.quantity == expected_first


def test_nothing_parted_has_no_first_divergence() -> None:
    missing = uncompared(
        SPECS["dpo/loss"],
        (3,),
        mode="step",
        grid="run",
        sides=("torch", ORACLE),
        verdict="inconclusive",
        reason="missing from torch",
    )
    assert (missing.compared, missing.worst, missing.reason) == (0, None, "missing from torch")
    assert first_divergence([]) is None
    assert first_divergence([parted("dpo/loss", 0, verdict="match"), missing]) is None


def test_blame_is_on_those_whom_the_oracle_or_an_invariant_contradicts() -> None:
    def by(left: str, right: str, verdict: Verdict = "divergent") -> Comparison:
        return parted("dpo/loss", 0, sides=(left, right), verdict=verdict)

    one = [by("jax", ORACLE, "match"), by("torch", ORACLE), by("jax", "torch")]
    assert blame(one, [], "divergent") == ["torch"]
    both = [by("torch", ORACLE), by("jax", ORACLE), by("torch", ORACLE)]
    assert blame(both, [], "divergent") == ["jax", "torch"]
    assert blame([by("jax", "torch")], [], "divergent") == []  # the oracle contradicts nobody
    mixed = [by("jax", ORACLE, "noisy"), by("torch", ORACLE)]
    assert blame(mixed, [], "divergent") == ["torch"]  # of the verdict of the whole alone
    assert blame(mixed[:1], [], "noisy") == ["jax"]
    assert blame(one[:1], ["jax", "jax"], "divergent") == ["jax"]
    assert blame(one, ["jax"], "match") == []
