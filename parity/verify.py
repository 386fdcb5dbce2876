"""Is a recorded tape what its sampler draws, and did the problem's own policy draw it?"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parity import gate
from parity.backends import MODULES, draw_samples
from parity.comparison import compare
from parity.errors import InputError
from parity.problem import Problem, lessons, load_problem
from parity.samples import Samples
from parity.trace import Quantity

__all__ = ["Tape", "Verified", "tapes", "verify_tape"]


class Tape(NamedTuple):
    """A recorded tape and the problem for which it was drawn."""

    problem: Problem
    path: Path
    samples: Samples


class Verified(NamedTuple):
    """Whether a tape is the same, and a sentence that says what was found."""

    same: bool
    sentence: str


def tapes(source: str | None, problem: str | None) -> Iterator[Tape]:
    """Finds the tapes to verify, with their problems.

    Args:
        source: a lesson, a problem's file, or a tape's; None for every recorded lesson's tape.
        problem: what a tape was drawn for; a recorded lesson when left out.

    Raises:
        InputError: no tape there, or nobody knows what it was drawn for.
    """
    if source is not None and Path(source).suffix == ".safetensors":
        samples = Samples.load(Path(source))
        known = [load_problem(name) for name in ([problem] if problem else lessons())]
        for candidate in known:
            if candidate.digest == samples.problem_digest:
                yield _checked(candidate, Path(source), samples)
                return
        raise InputError(
            f"{source}: problem_digest: got {samples.problem_digest[:12]}… "
            f"(drawn for {samples.problem}); expected that of "
            + (f"{problem}" if problem else "a recorded lesson, or --problem FILE.toml")
        )
    for candidate in [load_problem(name) for name in ([source] if source else lessons())]:
        if candidate.samples:
            path = Path(candidate.samples)
            yield _checked(candidate, path, Samples.load(path))
        elif source:
            raise InputError(f"{source}: samples: missing; expected a recorded tape")


def _checked(problem: Problem, path: Path, samples: Samples) -> Tape:
    if problem.tape is None:
        raise InputError(
            f"{path}: problem: got {problem.name}; expected one with a table that is sampled"
        )
    samples.check(problem, path)
    if samples.sampler not in MODULES:
        raise InputError(
            f"{path}: sampler: got {samples.sampler!r}; expected one of {', '.join(MODULES)}"
        )
    return Tape(problem, path, samples)


def verify_tape(tape: Tape, timeout: float, progress: Callable[[str, str], None]) -> Verified:
    """Draws a tape again and compares the actions; then the policy behind them.

    The recorded log-probs of the behaviour policy must be those of the problem's own training on
    these actions, within the allowance.
    """
    samples = tape.samples
    again = draw_samples(tape.problem, samples.sampler, samples.seed, timeout, progress)
    total = samples.actions.size
    parted = samples.first_difference(again)
    if parted:
        rollout, sample = parted
        return Verified(
            False,
            f"rollout {rollout}, sample {sample}: recorded action {samples.actions[parted]}, "
            f"drawn again {again.actions[parted]} "
            f"({int((samples.actions != again.actions).sum())} of {total:,} differ)",
        )
    oracle = gate.whole_run(tape.problem, samples, "float32")
    recorded = np.take_along_axis(samples.behaviour, samples.actions, axis=1)
    name, axes = "samples/behaviour", ("rollout", "sample")
    sampled = next(o for o, training, _ in tape.problem.parts() if training.tape)
    behaved = f"{sampled.name}/{sampled.behaviour}"
    shape = (len(recorded), -1, recorded.shape[-1])  # one update a rollout, or epochs of them
    logps, allowed = (e[behaved].reshape(shape)[:, 0] for e in (oracle.values, oracle.allowed))
    comparison = compare(
        Quantity(name, axes, "value", recorded),
        Quantity(name, axes, "value", logps),
        allowed,
        mode="trajectory",
        sides=("tape", "oracle"),
    )
    if comparison.first:
        entry = comparison.first
        return Verified(
            False,
            f"rollout {entry.index[0]}, sample {entry.index[1]}: recorded log-prob {entry.left}, "
            f"oracle {entry.right}, allowed {entry.allowed}: not drawn by this problem's policy",
        )
    return Verified(
        True,
        f"the same {total:,} actions, drawn again by {samples.sampler} "
        f"{again.versions[samples.sampler]} with seed {samples.seed}",
    )
