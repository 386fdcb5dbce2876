"""A judgement as test cases, one a quantity: what machines that collect tests understand."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from parity.comparison import Comparison, Verdict, worst_verdict
from parity.report.words import ratio, short

if TYPE_CHECKING:
    from parity.faults import Outcome
    from parity.invariants import Invariant
    from parity.judging import CheckReport
    from parity.parting import AgainstReport
    from parity.report.schema import AllowedNoise, LessonReport, Report

__all__ = ["Case", "of_against", "of_check", "of_each", "of_faults", "of_run"]


class Case(NamedTuple):
    """One thing that was judged.

    Attributes:
        suite: a lesson, or a function with its dtype.
        name: of the quantity, or in words what was judged.
        verdict: match, noisy, inconclusive or divergent.
        message: why it is no match, or what is remarkable, in one line; empty otherwise.
        function: the user's function that is at fault, as file:name; empty where none is known.
    """

    suite: str
    name: str
    verdict: Verdict
    message: str = ""
    function: str = ""


def of_run(report: "Report") -> list[Case]:
    """Each quantity of each lesson, its invariants and its coverage."""
    return [case for lesson in report.lessons for case in _lesson(lesson, report.allowed_noise)]


def _lesson(lesson: "LessonReport", noise: "AllowedNoise | None") -> list[Case]:
    if lesson.reason:
        return [Case(lesson.lesson, "run", lesson.verdict, lesson.reason)]
    accepted = noise.quantities if noise else []
    reason = noise.reason if noise else ""
    cases = []
    for case in _quantities(lesson.lesson, lesson.comparisons):
        passed = case.verdict == "noisy" and case.name in accepted
        cases.append(
            case._replace(verdict="match", message=f"noise accepted: {reason}") if passed else case
        )
    for name in dict.fromkeys(invariant.name for invariant in lesson.invariants):
        mine = [invariant for invariant in lesson.invariants if invariant.name == name]
        verdict = worst_verdict(invariant.verdict for invariant in mine)
        why = "; ".join(_unheld(i) for i in mine if i.verdict != "match")
        cases.append(Case(lesson.lesson, f"invariant: {name}", verdict, why))
    if lesson.coverage:
        left = [f"{c.objective}, {c.cell}" for c in lesson.coverage.cells if not c.exercised]
        why = f"not exercised: {'; '.join(left)}" if left else ""
        covered: Verdict = "inconclusive" if left or not lesson.coverage.cells else "match"
        cases.append(Case(lesson.lesson, "coverage", covered, why))
    return cases


def of_each(reports: "Iterable[CheckReport | AgainstReport]", root: Path) -> list[Case]:
    """The cases of functions and of pairs of functions; what is to be noted of them is one more.

    Args:
        reports: their judgements.
        root: the folder from which they are named.
    """
    from parity.judging import CheckReport

    cases = []
    for report in reports:
        if isinstance(report, CheckReport):
            cases += of_check(report, root)
            suite, notes = report.target, [f"it {note}" for note in report.notes]
        else:
            cases += of_against(report, root)
            suite, notes = _pair(report), report.notes
        if notes:
            cases.append(Case(report.name or suite, "notes", "match", "; ".join(notes)))
    return cases


def of_check(report: "CheckReport", root: Path) -> list[Case]:
    """Each quantity of a function in each dtype; what it did wrong beside its values is a case."""
    suite = report.name or report.target
    if report.fault:
        return [Case(suite, "call", report.verdict, report.fault, _located(report.target, root))]
    return [
        case._replace(function=_located(report.target, root))
        for lesson in report.lessons
        for case in _quantities(f"{suite} ({lesson.dtype})", lesson.comparisons)
    ]


def of_against(report: "AgainstReport", root: Path) -> list[Case]:
    """The value and each gradient of two functions."""
    suite = report.name or _pair(report)
    if report.fault:
        return [Case(suite, "call", report.verdict, report.fault, _located(report.left, root))]
    return [
        case._replace(function=_located(report.left, root))
        for case in _quantities(suite, report.comparisons)
    ]


def _pair(report: "AgainstReport") -> str:
    return f"{report.left} against {report.right}"


def of_faults(outcomes: Iterable["Outcome"]) -> list[Case]:
    """Each planted bug or rewrite in each framework: a match is what the catalogue expects."""
    return [
        Case(
            f"faults in {outcome.framework}",
            outcome.fault.name,
            "match" if outcome.as_expected else "divergent",
            "" if outcome.as_expected else outcome.sentence(),
        )
        for outcome in outcomes
    ]


def _located(target: str, root: Path) -> str:
    """A function by its file; nothing where its module is not below the folder."""
    place, _, name = target.rpartition(":")
    path = root / (place if place.endswith(".py") else f"{place.replace('.', '/')}.py")
    return f"{path}:{name}" if path.is_file() else ""


def _quantities(suite: str, comparisons: Sequence[Comparison]) -> list[Case]:
    cases = []
    for name in dict.fromkeys(comparison.quantity for comparison in comparisons):
        mine = [comparison for comparison in comparisons if comparison.quantity == name]
        verdict = worst_verdict(comparison.verdict for comparison in mine)
        worst = next(comparison for comparison in mine if comparison.verdict == verdict)
        remarks = dict.fromkeys(c.reason for c in mine if c.reason)
        message = "; ".join(remarks) if verdict == "match" else _difference(worst)
        cases.append(Case(suite, name, verdict, message))
    return cases


def _difference(comparison: Comparison) -> str:
    """The first entry that calls for the verdict, or why nothing was compared."""
    entry = comparison.first or comparison.worst
    if entry is None or (comparison.reason and comparison.first is None):
        return comparison.reason
    grid = "" if comparison.grid == "run" else f", {comparison.grid}"
    return (
        f"{comparison.quantity}{list(entry.index) or ''} ({comparison.mode}{grid}): "
        f"{comparison.left} {entry.left}, {comparison.right} {entry.right}; "
        f"difference {short(entry.difference)}, allowed {short(entry.allowed)}, "
        f"ratio {ratio(float(entry.ratio))}{comparison.reason and f'; {comparison.reason}'}"
    )


def _unheld(invariant: "Invariant") -> str:
    why = invariant.reason
    if invariant.worst:
        worst = invariant.worst
        why = f"entry {list(worst.index)} is {worst.left}, required {worst.right}"
    return f"{invariant.implementation}: {why}"
