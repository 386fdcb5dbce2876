"""What a run prints: a table a lesson, then one closing line."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from parity.cli import styles
from parity.cli.styles import ratio_table
from parity.cli.styles import verdict as styled
from parity.comparison import ORACLE, Comparison, Divergence, worst_verdict
from parity.report import LessonReport, Report, totals
from parity.report.words import diagnosed, ratio, short

if TYPE_CHECKING:
    from parity.runs import Finished

__all__ = ["closing_line", "report_text"]

_MODES = ("points", "step", "trajectory")


def report_text(finished: "Finished", out: Path, *, quiet: bool) -> None:
    """Prints a table for each lesson and the closing line; the line alone when quiet."""
    console = styles.console()
    report = finished.report
    if not quiet:
        for case, lesson in zip(finished.cases, report.lessons, strict=True):
            _print_lesson(console, lesson, case.problem.title)
        if report.allowed_noise:
            noise = report.allowed_noise
            passed = ", ".join(noise.quantities) or "nothing"
            console.print(f"noise accepted in {passed}: {noise.reason}", markup=False)
        written = sorted(path.name for path in (out / "figures").glob("*.svg"))
        console.print(
            f"{out / 'report.json'}"
            + (f", figures/: {', '.join(written)}" if written else ", no figures"),
            markup=False,
            soft_wrap=not console.is_terminal,  # a person reads words, a program one line
        )
    verdict, rest = closing_line(report)
    console.print(f"{styled(verdict)}: {rest}", soft_wrap=not console.is_terminal)


def closing_line(report: Report) -> tuple[str, str]:
    """The verdict, and in words what was compared and how near it came."""
    summed = totals(c for lesson in report.lessons for c in lesson.comparisons)
    tightest = summed.tightest
    margin = "nothing compared"
    if tightest:
        margin = (
            f"tightest margin {ratio(summed.ratio)} of the allowance "
            f"({tightest.quantity}, {tightest.mode}, {tightest.left} against {tightest.right})"
        )
    return (
        report.verdict,
        f"{summed.quantities} quantities, {summed.values:,} values compared; {margin}",
    )


def _print_lesson(console: Console, lesson: LessonReport, title: str) -> None:
    console.print(f"[bold]{escape(lesson.lesson)}[/]  {escape(title)}")
    table = ratio_table()
    table.add_column("quantity", no_wrap=True)
    table.add_column("values", justify="right")
    for mode in _MODES:
        table.add_column(mode, justify="right")
    table.add_column("verdict")
    for name in dict.fromkeys(c.quantity for c in lesson.comparisons):
        mine = [c for c in lesson.comparisons if c.quantity == name]
        verdict = worst_verdict(c.verdict for c in mine)
        table.add_row(
            name,
            f"{sum(c.compared for c in mine):,}",
            *(_cell([c for c in mine if c.mode == mode]) for mode in _MODES),
            styled(verdict),
        )
    console.print(table)
    if lesson.samples_note:
        console.print(f"samples: {lesson.samples_note}", markup=False)
    reasons = ((c.verdict, c.reason) for c in lesson.comparisons if c.reason)
    for verdict, reason in dict.fromkeys(reasons):
        console.print(f"{verdict}: {reason}", markup=False)
    _print_evidence(console, lesson)
    if lesson.first_divergence:
        console.print(_sentence(lesson.first_divergence), markup=False)
    if lesson.blamed:
        found = "inconclusive" if lesson.verdict == "inconclusive" else "outside the allowance"
        console.print(f"{found} against the oracle: {', '.join(lesson.blamed)}")
    for diagnosis in lesson.diagnosis:
        console.print(diagnosed(diagnosis, diagnosis.implementation), markup=False)
    console.print()


def _print_evidence(console: Console, lesson: LessonReport) -> None:
    """One line each for coverage and invariants, and one more for each that fails."""
    coverage = lesson.coverage
    if coverage:
        total = len(coverage.cells)
        share = f"{coverage.exercised / total:.0%}" if total else "none"
        console.print(
            f"coverage: {share} ({coverage.exercised} of {total} branches; "
            f"the run alone {coverage.by_run})"
        )
        for cell in coverage.cells:
            if not cell.exercised:
                console.print(f"not exercised: {cell.objective}, {cell.cell}", markup=False)
    held = [i for i in lesson.invariants if i.verdict == "match"]
    if lesson.invariants:
        checked = sum(i.checked for i in lesson.invariants)
        console.print(
            f"invariants: {len(held)} of {len(lesson.invariants)} held, {checked:,} entries checked"
        )
    for invariant in lesson.invariants:
        if invariant.verdict != "match":
            why = invariant.reason
            if invariant.worst:
                worst = invariant.worst
                why = f"entry {list(worst.index)} is {worst.left}, required {worst.right}"
            console.print(
                f"not held: {invariant.name} ({invariant.implementation}): {why}", markup=False
            )


def _cell(comparisons: Iterable[Comparison]) -> str:
    """The largest ratio of a mode, with whose it is where it is outside."""
    listed = list(comparisons)
    if not listed:
        return ""
    summed = totals(listed)
    if summed.tightest is None:
        return "-"
    text = ratio(summed.ratio)
    return text if summed.ratio <= 1 else f"[bold]{text} {summed.tightest.left}[/]"


def _sentence(parted: Divergence) -> str:
    entry = parted.entry
    place = ", ".join(f"{axis} {position}" for axis, position in parted.at.items()) or "the end"
    judge = "" if parted.right == ORACLE else f", oracle {entry.oracle}"
    return (
        f"first divergence: {parted.quantity}{list(entry.index)} at {place} "
        f"({parted.mode} mode{'' if parted.grid == 'run' else ', ' + parted.grid}): "
        f"{parted.left} {entry.left}, {parted.right} {entry.right}{judge}; "
        f"difference {short(entry.difference)}, allowed {short(entry.allowed)} "
        f"(ratio {ratio(float(entry.ratio))}, {entry.ulps} ULP)"
    )
