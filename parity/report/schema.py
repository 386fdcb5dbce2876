"""What `report.json` holds."""

from pathlib import Path

import msgspec

from parity.comparison import Comparison, Divergence, Verdict
from parity.coverage import Coverage
from parity.files import digest, write_whole
from parity.invariants import Invariant

__all__ = ["SCHEMA_VERSION", "AllowedNoise", "Diagnosis", "LessonReport", "Report"]

SCHEMA_VERSION = 1


class AllowedNoise(msgspec.Struct, frozen=True, kw_only=True):
    """Noise that the user accepts, and why.

    Attributes:
        pattern: shell-style pattern of quantities.
        reason: the user's words.
        quantities: the noisy quantities that it let pass.
    """

    pattern: str
    reason: str
    quantities: list[str] = []


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a divergent implementation behaves like.

    Attributes:
        implementation: which one.
        fault: name of the known fault; empty where it behaves like none.
        sentence: what that fault does.
        indistinguishable: other faults that behave the same on this problem and these points.
        tried: how many faults were tried.
        reason: why none could be tried; empty otherwise.
    """

    implementation: str
    fault: str = ""
    sentence: str = ""
    indistinguishable: list[str] = []
    tried: int = 0
    reason: str = ""


class LessonReport(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one problem.

    Attributes:
        lesson: its name.
        verdict: match, noisy, inconclusive or divergent.
        reason: why there is no judgement; empty where there is one.
        dtype: of the runs.
        problem_digest: what was solved.
        samples_digest: what was replayed; empty where nothing was.
        samples_note: says so where the tape was drawn for another problem.
        first_divergence: where implementations part first.
        blamed: who is outside the allowance against the oracle.
        comparisons: every quantity of every pair, in every mode.
        invariants: what must hold inside one trace.
        coverage: what the traces exercised.
        diagnosis: which known fault a divergent implementation behaves like.
    """

    lesson: str
    verdict: Verdict
    reason: str = ""
    dtype: str
    problem_digest: str
    samples_digest: str = ""
    samples_note: str = ""
    first_divergence: Divergence | None = None
    blamed: list[str] = []
    comparisons: list[Comparison] = []
    invariants: list[Invariant] = []
    coverage: Coverage | None = None
    diagnosis: list[Diagnosis] = []


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run of `parity`.

    Attributes:
        schema_version: of this document.
        verdict: the worst of the lessons'.
        reason: why there is no judgement; empty where there is one.
        environment: versions and platform; part of no digest.
        allowed_noise: noise that the user accepts, with the reason.
        lessons: one judgement per problem.
    """

    schema_version: int = SCHEMA_VERSION
    verdict: Verdict
    reason: str = ""
    environment: dict[str, str]
    allowed_noise: AllowedNoise | None = None
    lessons: list[LessonReport]

    @property
    def digest(self) -> str:
        """SHA-256 of everything but the environment."""
        return digest(msgspec.structs.replace(self, environment={}))

    def save(self, path: Path) -> None:
        """Writes the report as indented JSON, whole or not at all."""
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
