"""What `parity peers` prints: one row a function, what it does otherwise, one closing line."""

from rich.console import Console
from rich.table import Table

from parity.cli import show_check, styles
from parity.cli.styles import ratio_table, say, verdict
from parity.peers.checking import PeerReport, PeersReport
from parity.report import words
from parity.report.cases import Case

__all__ = ["as_text", "cases"]


def as_text(report: PeersReport, *, full: bool, quiet: bool) -> None:
    """Prints the judgement of libraries.

    Args:
        report: the judgement.
        full: with the quantities of every function that has no documented formula of its own.
        quiet: only the closing line.
    """
    console = styles.console()
    if not quiet:
        for peer in report.peers:
            if full and peer.check and not peer.documented:
                show_check.as_text([peer.check], None, quiet=False)
                console.print()
        console.print(_table(report))
        for peer in report.peers:
            _notes(console, peer)
    console.print(verdict(report.verdict), end=": ")
    say(console, report.closing)


def cases(report: PeersReport) -> list[Case]:
    """One case a function."""
    return [
        Case(
            f"{peer.peer} {peer.version}".strip(),
            f"{peer.objective} ({peer.function})",
            peer.counted,
            "; ".join([*([] if peer.verdict == peer.counted else [peer.verdict]), *peer.remarks]),
        )
        for peer in report.peers
    ]


def _table(report: PeersReport) -> Table:
    table = ratio_table("worst: largest difference over allowance; above 1.00 is outside")
    for column in ("peer", "version", "objective", "function", "verdict"):
        table.add_column(column, no_wrap=True)
    table.add_column("worst", justify="right", no_wrap=True)
    for peer in report.peers:
        worst = words.ratio(float(peer.ratio)) if peer.check and peer.check.lessons else "-"
        table.add_row(
            peer.peer,
            peer.version or "-",
            peer.objective,
            peer.function,
            verdict(peer.verdict),
            worst,
        )
    return table


def _notes(console: Console, peer: PeerReport) -> None:
    """What was measured, and what the function does otherwise with the source that says so."""
    if not (peer.remarks or peer.differences):
        return
    console.print(f"[bold]{peer.peer}, {peer.function}[/]")
    for remark in peer.remarks:
        say(console, f"  measured: {remark}")
    for difference in peer.differences:
        say(console, f"  - {difference.sentence}")
        console.print(f"    {difference.source}", style="dim", markup=False, soft_wrap=True)
    console.print()
