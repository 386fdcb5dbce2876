"""The tape that every implementation replays."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.errors import InputError
from parity.files import digest, read_arrays, write_arrays
from parity.problem import Problem

__all__ = ["Samples"]


class SamplesHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The JSON header of a samples file."""

    schema_version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    problem: str
    problem_digest: str
    seed: int
    sampler: str
    versions: dict[str, str]
    digest: str


@dataclass(frozen=True)
class Samples:
    """Fixed action samples and the policy that drew them.

    Attributes:
        actions: int64[rollout, sample], indices of actions.
        behaviour: float32[rollout, action], log-probs of the policy that drew each rollout.
        problem: name of the problem for which they were drawn.
        problem_digest: its digest.
        seed: seed of the draw.
        sampler: who drew them: jax or torch.
        versions: of what drew them.
    """

    actions: NDArray[np.int64]
    behaviour: NDArray[np.float32]
    problem: str
    problem_digest: str
    seed: int
    sampler: str
    versions: dict[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the tape and of what drew it; versions do not count."""
        return digest(
            [self.problem_digest, self.seed, self.sampler],
            {"actions": self.actions, "behaviour": self.behaviour},
        )

    def save(self, path: Path) -> None:
        """Writes the tape as one safetensors file, whole or not at all."""
        header = SamplesHeader(
            problem=self.problem,
            problem_digest=self.problem_digest,
            seed=self.seed,
            sampler=self.sampler,
            versions=self.versions,
            digest=self.digest,
        )
        write_arrays(path, header, {"actions": self.actions, "behaviour": self.behaviour})

    @classmethod
    def load(cls, path: str | Path) -> "Samples":
        """Reads a tape and checks its own digest.

        Raises:
            InputError: missing, truncated, or not what was written.
        """
        header, arrays = read_arrays(Path(path), SamplesHeader)
        for name, dtype in (("actions", np.int64), ("behaviour", np.float32)):
            array = arrays.get(name)
            if array is None or array.dtype != dtype or array.ndim != 2:
                found = "missing" if array is None else f"got {array.dtype}{list(array.shape)}"
                raise InputError(f"{path}: {name}: {found}; expected {np.dtype(dtype)}[2 axes]")
        samples = cls(
            actions=arrays["actions"],
            behaviour=arrays["behaviour"],
            problem=header.problem,
            problem_digest=header.problem_digest,
            seed=header.seed,
            sampler=header.sampler,
            versions=header.versions,
        )
        if samples.digest != header.digest:
            raise InputError(f"{path}: digest: got {samples.digest}; expected {header.digest}")
        return samples

    def check(self, problem: Problem, path: Path | str, *, reuse: bool = False) -> None:
        """Checks that the tape can be replayed on a problem.

        Args:
            problem: what is to be solved; it must have a part that is sampled.
            path: the tape's file, which opens every error.
            reuse: accept a tape that was drawn for another problem.

        Raises:
            InputError: shape, range of actions, or the problem it was drawn for.
        """
        assert problem.tape is not None
        actions = len(problem.tape.logits)
        for name, array, shape in (
            ("actions", self.actions, (problem.tape.rollouts, problem.tape.samples)),
            ("behaviour", self.behaviour, (problem.tape.rollouts, actions)),
        ):
            if array.shape != shape:
                raise InputError(
                    f"{path}: {name}: got shape {list(array.shape)}; expected {list(shape)}"
                )
        outside = np.argwhere((self.actions < 0) | (self.actions >= actions))
        if len(outside):
            rollout, sample = outside[0]
            raise InputError(
                f"{path}: actions[{rollout}, {sample}]: got {self.actions[rollout, sample]}; "
                f"expected 0 to {actions - 1}"
            )
        if not reuse and self.problem_digest != problem.digest:
            raise InputError(
                f"{path}: problem_digest: got {self.problem_digest[:12]}… "
                f"(drawn for another problem, {self.problem}); "
                f"expected {problem.digest[:12]}… ({problem.name}); --reuse-samples replays it"
            )

    def first_difference(self, other: "Samples") -> tuple[int, int] | None:
        """Returns the first rollout and sample at which two tapes of one shape differ."""
        different: NDArray[Any] = np.argwhere(self.actions != other.actions)
        return (int(different[0][0]), int(different[0][1])) if len(different) else None
