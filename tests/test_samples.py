"""The tape: it survives its file, is refused when damaged or foreign, and can be drawn again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from parity.errors import InputError
from parity.files import write_arrays
from parity.objectives.ppo import PPO
from parity.objectives.reward import Reward
from parity.problem import Problem
from parity.samples import Samples

SMALL = Problem(
    name="small",
    reward=Reward(features=((1.0,), (0.0,), (2.0,)), preferences=((0, 1),), updates=1, rate=0.1),
    ppo=PPO(logits=(0.0, 1.0, 2.0), rollouts=2, samples=4, epochs=1, rate=0.1, beta=0.1, clip=0.2),
)


def small(**changes: Any) -> Samples:
    random = np.random.default_rng(1)
    tape = Samples(
        actions=random.integers(0, 3, (2, 4)),
        behaviour=np.log(random.dirichlet([1, 1, 1], 2)).astype(np.float32),
        problem="small",
        problem_digest=SMALL.digest,
        seed=7,
        sampler="jax",
        versions={"jax": "0.9.2", "numpy": "2.4.4"},
    )
    return replace(tape, **changes)


def assert_equal(found: Samples, tape: Samples) -> None:
    for name in ("actions", "behaviour"):
        one, other = getattr(found, name), getattr(tape, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    for name in ("problem", "problem_digest", "seed", "sampler", "versions", "digest"):
        assert getattr(found, name) == getattr(tape, name)


# The recorded tape.


def test_recorded_tape_has_the_stated_counts(tape: Samples) -> None:
    # design.md: JAX key 11, 40 rollouts of 128, counts 4541, 388, 191
    assert tape.actions.shape == (40, 128)
    assert np.bincount(tape.actions.ravel()).tolist() == [4541, 388, 191]
    assert (tape.seed, tape.sampler, tape.problem) == (11, "jax", "posttraining-04")
    assert {"jax", "numpy"} <= tape.versions.keys()


def test_recorded_tape_fits_its_lesson(tape: Samples, problems: dict[str, Problem]) -> None:
    problem = problems["posttraining-04"]
    tape.check(problem, "tape")
    assert tape.problem_digest == problem.digest
    with pytest.raises(AssertionError):
        tape.check(problems["posttraining-05"], "tape")  # nothing there to replay it on


def test_recorded_behaviour_is_that_of_the_policy_that_acted(
    tape: Samples, trace_of: Callable[..., Any], implementation: str
) -> None:
    """Each rollout's behaviour log-probs, at its actions, are the run's old log-probs."""
    trace = trace_of("posttraining-04", implementation)
    at_actions = np.take_along_axis(tape.behaviour, tape.actions, axis=1)
    # Two float32 runs: float32's unit roundoff, 6e-8, grows a hundredfold over 120 updates.
    np.testing.assert_allclose(trace["ppo/old_logps"][:, 0], at_actions, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.exp(tape.behaviour.astype(float)).sum(1), 1, atol=1e-6)


def test_recorded_tape_is_drawn_again_by_its_sampler(
    tape: Samples, problems: dict[str, Problem], backend: Callable[[str], Any]
) -> None:
    drawn = backend("jax").draw(problems["posttraining-04"], 11)
    assert drawn.first_difference(tape) is None
    assert (drawn.seed, drawn.sampler) == (11, "jax")
    assert drawn.problem_digest == tape.problem_digest
    np.testing.assert_allclose(drawn.behaviour, tape.behaviour, rtol=0, atol=1e-5)  # as above


def test_torch_draws_the_same_from_one_seed_and_not_from_another(
    backend: Callable[[str], Any],
) -> None:
    draw = backend("torch").draw
    first, again, other = draw(SMALL, 5), draw(SMALL, 5), draw(SMALL, 6)
    assert_equal(again, first)
    assert first.first_difference(other) is not None
    first.check(SMALL, "drawn")


def test_torch_draws_from_the_policy(backend: Callable[[str], Any]) -> None:
    assert SMALL.ppo is not None
    ppo = msgspec.structs.replace(SMALL.ppo, rollouts=1, samples=4000)
    drawn = backend("torch").draw(msgspec.structs.replace(SMALL, ppo=ppo), 3)
    policy = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    assert_drawn_from(drawn.actions, np.log(policy))
    np.testing.assert_allclose(np.exp(drawn.behaviour[0]), policy, rtol=1e-5)
    assert drawn.sampler == "torch"
    assert "torch" in drawn.versions


def test_recorded_tapes_are_drawn_from_their_behaviour(tapes: dict[str, Samples]) -> None:
    for tape in tapes.values():
        assert_drawn_from(tape.actions, tape.behaviour[:, None])


def assert_drawn_from(actions: np.ndarray, logps: np.ndarray) -> None:
    """Within four standard deviations of a sum of draws, √(Σ p (1 - p)), for every action."""
    policy = np.broadcast_to(np.exp(logps), (*actions.shape, logps.shape[-1]))
    expected, variance = policy.sum((0, 1)), (policy * (1 - policy)).sum((0, 1))
    counts = np.bincount(actions.ravel(), minlength=logps.shape[-1])
    assert (np.abs(counts - expected) < 4 * np.sqrt(variance)).all()


# The file.


def test_round_trip(tmp_path: Path, tape: Samples) -> None:
    for samples in (small(), tape):
        samples.save(tmp_path / "tape")
        assert_equal(Samples.load(tmp_path / "tape"), samples)


def test_arrays_that_are_not_contiguous_survive(tmp_path: Path) -> None:
    """safetensors saves the memory and not the view, silently."""
    big = np.arange(64).reshape(8, 8) % 3
    for actions in (big[::4, ::2], big.T[:2, :4], np.asfortranarray(big[:2, 1:5])):
        assert not actions.flags.c_contiguous
        samples = small(actions=actions, behaviour=small().behaviour[::-1, ::-1])
        samples.save(tmp_path / "tape")
        found = Samples.load(tmp_path / "tape")
        np.testing.assert_array_equal(found.actions, actions)
        assert_equal(found, samples)


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tape"
    small().save(path)
    content = path.read_bytes()
    for length in range(0, len(content), 10):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match="not a readable parity file"):
            Samples.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(InputError, match="not a readable parity file"):
        Samples.load(path)


def test_a_flipped_bit_is_refused_or_changes_nothing_that_is_replayed(
    tmp_path: Path,
) -> None:
    """Versions, names and layout are part of no digest; the tape and its origin are."""
    path, tape = tmp_path / "tape", small()
    tape.save(path)
    content = path.read_bytes()
    refused = 0
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        try:
            found = Samples.load(path)
        except InputError:
            refused += 1
        else:
            assert_equal(replace(found, versions=tape.versions, problem=tape.problem), tape)
    assert refused > len(content) / 2
    arrays = tape.actions.nbytes + tape.behaviour.nbytes
    for position in range(len(content) - arrays, len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        with pytest.raises(InputError, match="digest: got"):
            Samples.load(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"behaviour": small().behaviour}, r"actions: missing; expected int64\[2 axes\]"),
        ({"actions": small().actions}, r"behaviour: missing; expected float32\[2 axes\]"),
        (
            {"actions": small().actions.astype(np.int32), "behaviour": small().behaviour},
            r"actions: got int32\[2, 4\]; expected int64\[2 axes\]",
        ),
        (
            {"actions": small().actions.ravel(), "behaviour": small().behaviour},
            r"actions: got int64\[8\]; expected int64\[2 axes\]",
        ),
        (
            {"actions": small().actions, "behaviour": small().behaviour.astype(np.float64)},
            r"behaviour: got float64\[2, 3\]; expected float32\[2 axes\]",
        ),
        (
            {"actions": small().actions[::-1], "behaviour": small().behaviour},
            r"digest: got [0-9a-f]{64}; expected [0-9a-f]{64}$",
        ),
    ],
)
def test_arrays_unlike_the_header_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    tape = small()
    header = {
        "schema_version": 1,
        "problem": tape.problem,
        "problem_digest": tape.problem_digest,
        "seed": tape.seed,
        "sampler": tape.sampler,
        "versions": tape.versions,
        "digest": tape.digest,
    }
    path = tmp_path / "tape"
    write_arrays(path, header, {"actions": tape.actions, "behaviour": tape.behaviour})
    assert_equal(Samples.load(path), tape)  # the header is right
    write_arrays(path, header, arrays)
    with pytest.raises(InputError, match=message):
        Samples.load(path)


# Whether it fits.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"actions": np.zeros((3, 4), np.int64)},
            "tape: actions: got shape [3, 4]; expected [2, 4]",
        ),
        (
            {"actions": np.zeros((2, 3), np.int64)},
            "tape: actions: got shape [2, 3]; expected [2, 4]",
        ),
        (
            {"actions": np.zeros((2, 0), np.int64)},
            "tape: actions: got shape [2, 0]; expected [2, 4]",
        ),
        (
            {"behaviour": np.zeros((2, 4), np.float32)},
            "tape: behaviour: got shape [2, 4]; expected [2, 3]",
        ),
        (
            {"behaviour": np.zeros((1, 3), np.float32)},
            "tape: behaviour: got shape [1, 3]; expected [2, 3]",
        ),
        (
            {"actions": np.array([[0, 1, 2, 0], [0, 3, 9, 0]])},
            "tape: actions[1, 1]: got 3; expected 0 to 2",
        ),
        (
            {"actions": np.array([[0, 1, 2, -1], [0, 3, 2, 0]])},
            "tape: actions[0, 3]: got -1; expected 0 to 2",
        ),
    ],
)
def test_a_tape_that_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    small().check(SMALL, "tape")
    for reuse in (False, True):
        with pytest.raises(InputError) as refused:
            small(**changes).check(SMALL, "tape", reuse=reuse)
        assert str(refused.value) == message


def test_a_tape_drawn_for_another_problem_needs_consent() -> None:
    assert SMALL.ppo is not None
    other = msgspec.structs.replace(SMALL, ppo=msgspec.structs.replace(SMALL.ppo, beta=0.3))
    with pytest.raises(InputError) as refused:
        small().check(other, "tape")
    message = str(refused.value)
    assert message.startswith(f"tape: problem_digest: got {SMALL.digest[:12]}… ")
    assert f"expected {other.digest[:12]}… (small); --reuse-samples replays it" in message
    small().check(other, "tape", reuse=True)


def test_digest_covers_the_tape_and_its_origin_but_no_versions() -> None:
    tape = small()
    other_actions, other_behaviour = tape.actions.copy(), tape.behaviour.copy()
    other_actions[1, 3] = (other_actions[1, 3] + 1) % 3
    other_behaviour[0, 0] = np.nextafter(other_behaviour[0, 0], np.float32(0))
    for changes in (
        {"actions": other_actions},
        {"behaviour": other_behaviour},
        {"problem_digest": "0" * 64},
        {"seed": 8},
        {"sampler": "torch"},
    ):
        assert small(**changes).digest != tape.digest
    assert small(versions={}, problem="renamed").digest == tape.digest


def test_first_difference_is_the_first_in_order_of_drawing() -> None:
    tape, actions = small(), small().actions.copy()
    assert tape.first_difference(tape) is None
    actions[1, [0, 2]] = (actions[1, [0, 2]] + 1) % 3
    assert tape.first_difference(small(actions=actions)) == (1, 0)
    actions[0, 3] = (actions[0, 3] + 1) % 3
    assert tape.first_difference(small(actions=actions)) == (0, 3)


def test_a_failing_save_leaves_the_old_tape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "tape"
    small().save(path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(InputError, match=r"tape: cannot be written: No space left on device$"):
            small(seed=8).save(path)
    assert_equal(Samples.load(path), small())
    assert [file.name for file in tmp_path.iterdir()] == ["tape"]
