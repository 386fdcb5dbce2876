"""What `parity check` prints: what was found, where first, what it resembles; one closing line."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from parity.comparison import worst_verdict
from parity.judging import CheckReport
from parity.report import totals

if TYPE_CHECKING:
    from parity.parting import AgainstReport

__all__ = ["against", "report"]

_STYLES = {"match": "green", "noisy": "yellow", "inconclusive": "yellow", "divergent": "bold red"}


def report(checked: CheckReport, repro: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Prints the judgement of one function."""
    if as_json:
        _print_json(checked)
        return
    console = Console(highlight=False)
    if not quiet:
        _say(console, f"{checked.target}  {checked.signature}")
        matched = ", ".join(f"{theirs} = {ours}" for theirs, ours in checked.matched.items())
        _say(console, f"{checked.framework}, {checked.objective}: {matched}")
        if checked.lessons:
            console.print(_table(checked))
        for note in checked.notes:
            _say(console, f"note: it {note}")
        _failure(console, checked)
        if checked.repro and repro:
            _say(console, f"smallest failing input: {repro}")
        elif checked.repro:
            _say(console, f"\n{checked.repro}")
    summed = totals(c for lesson in checked.lessons for c in lesson.comparisons)
    rest = f"{summed.values:,} values compared"
    if checked.fault:
        rest = f"{checked.target} {_after_dtype(checked.fault)}"
    elif summed.tightest:
        rest += f"; largest difference {_ratio(summed.ratio)} of the allowance"
    _close(console, checked.verdict, rest)


def against(compared: "AgainstReport", *, as_json: bool, quiet: bool) -> None:
    """Prints the judgement of two functions."""
    if as_json:
        _print_json(compared)
        return
    console = Console(highlight=False)
    if not quiet:
        for line in compared.lines():
            _say(console, line)
    _close(console, compared.verdict, compared.sentence)


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _close(console: Console, verdict: str, rest: str) -> None:
    console.print(f"[{_STYLES[verdict]}]{verdict}[/]", end=": ")
    _say(console, rest)


def _after_dtype(fault: str) -> str:
    where, _, what = fault.partition(": ")
    return f"{what} {where}"


def _table(checked: CheckReport) -> Table:
    """Quantities by dtype: the largest difference over the allowance, and where it is outside."""
    table = Table(
        box=SIMPLE_HEAD,
        caption="largest difference over allowance; above 1.00 is outside",
        caption_justify="left",
        pad_edge=False,
    )
    table.add_column("quantity", no_wrap=True)
    table.add_column("mode")
    for lesson in checked.lessons:
        table.add_column(lesson.dtype, justify="right")
    table.add_column("verdict")
    rows = dict.fromkeys(
        (c.mode, c.quantity) for lesson in checked.lessons for c in lesson.comparisons
    )
    for mode, quantity in rows:
        cells, verdicts = [], []
        for lesson in checked.lessons:
            mine = [c for c in lesson.comparisons if (c.mode, c.quantity) == (mode, quantity)]
            cells.append(_ratio(totals(mine).ratio) if any(c.worst for c in mine) else "-")
            verdicts.append(worst_verdict(c.verdict for c in mine))
        verdict = worst_verdict(verdicts)
        table.add_row(quantity, mode, *cells, f"[{_STYLES[verdict]}]{verdict}[/]")
    return table


def _failure(console: Console, checked: CheckReport) -> None:
    for lesson in checked.lessons:
        for reason in dict.fromkeys(c.reason for c in lesson.comparisons if c.reason):
            _say(console, f"not compared in {lesson.dtype}: {reason}")
    cell = checked.first
    if cell:
        entry = cell.entry
        _say(
            console,
            f"first failing cell ({cell.dtype}, {cell.mode}, {cell.grid}): {cell.label}\n"
            f"  {cell.quantity}{list(entry.index[1:]) or ''}: got {entry.left}, "
            f"right is {entry.right}, allowed difference {entry.allowed}",
        )
    diagnosis = checked.diagnosis
    if diagnosis is None:
        return
    if diagnosis.reason:
        _say(console, f"not compared with the known faults: {diagnosis.reason}")
    elif diagnosis.fault:
        others = ", ".join(diagnosis.indistinguishable)
        also = f" (here the same as {others})" if others else ""
        _say(console, f"it behaves as fault `{diagnosis.fault}`: {diagnosis.sentence}{also}")
    else:
        _say(console, f"it behaves like none of {diagnosis.tried} known faults")


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0e}"
