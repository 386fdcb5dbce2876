"""What `parity check` prints: what was found, where first, what it resembles; one closing line."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from parity.cli import styles
from parity.cli.styles import ratio_table, say
from parity.cli.styles import verdict as styled
from parity.comparison import worst_verdict
from parity.judging import CheckReport
from parity.parting import AgainstReport
from parity.report import totals, words

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["as_text", "closing"]


def as_text(
    reports: "Sequence[CheckReport | AgainstReport]", repro: Path | None, *, quiet: bool
) -> None:
    """Prints each judgement with its closing line, and one line for all of several."""
    console = styles.console()
    for report in reports:
        if not quiet and isinstance(report, CheckReport):
            _function(console, report, repro)
        elif not quiet and isinstance(report, AgainstReport):
            for line in (*words.about_pair(report), *words.pair_failure(report)):
                say(console, line)
        _close(console, report.verdict, _rest(report))
        if not quiet and len(reports) > 1:
            console.print()
    if len(reports) > 1:
        verdict, _, rest = closing(reports).partition(": ")
        _close(console, verdict, rest)


def closing(reports: "Sequence[CheckReport | AgainstReport]") -> str:
    """The verdict of all, and what it rests on."""
    if len(reports) == 1:
        return f"{reports[0].verdict}: {_rest(reports[0])}"
    good = sum(report.verdict == "match" for report in reports)
    verdict = worst_verdict(report.verdict for report in reports)
    return f"{verdict}: {good} of {len(reports)} targets match"


def _rest(report: "CheckReport | AgainstReport") -> str:
    return words.summary(report) if isinstance(report, CheckReport) else report.sentence


def _function(console: Console, checked: CheckReport, repro: Path | None) -> None:
    called = f"{checked.name}: " if checked.name else ""
    say(console, f"{called}{checked.target}  {checked.signature}")
    matched = ", ".join(f"{theirs} = {ours}" for theirs, ours in checked.matched.items())
    say(console, f"{checked.framework}, {checked.objective}: {matched}")
    if checked.lessons:
        console.print(_table(checked))
    for line in (
        *words.covered(checked),
        *words.about_check(checked),
        *words.check_failure(checked),
        *words.check_behaviour(checked),
    ):
        say(console, line)
    if checked.repro and repro:
        say(console, f"smallest failing input: {repro}")
    elif checked.repro:
        say(console, f"smallest failing input:\n\n{checked.repro}")


def _close(console: Console, verdict: str, rest: str) -> None:
    console.print(styled(verdict), end=": ")
    say(console, rest)


def _table(checked: CheckReport) -> Table:
    """Quantities by dtype: the largest difference over the allowance, and where it is outside."""
    table = ratio_table()
    table.add_column("quantity", overflow="fold")  # a long name folds, a verdict never
    table.add_column("mode")
    for lesson in checked.lessons:
        table.add_column(lesson.dtype, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True, min_width=len("inconclusive"))
    rows = dict.fromkeys(
        (c.mode, c.quantity) for lesson in checked.lessons for c in lesson.comparisons
    )
    for mode, quantity in rows:
        cells, verdicts = [], []
        for lesson in checked.lessons:
            mine = [c for c in lesson.comparisons if (c.mode, c.quantity) == (mode, quantity)]
            cells.append(words.ratio(totals(mine).ratio) if any(c.worst for c in mine) else "-")
            verdicts.append(worst_verdict(c.verdict for c in mine))
        verdict = worst_verdict(verdicts)
        table.add_row(quantity, mode, *cells, styled(verdict))
    return table
