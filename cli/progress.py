"""Who is at which stage: live in a terminal, plain lines elsewhere; always on standard error."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["display"]

Stage = Callable[[str, str], None]


@contextmanager
def display(who: Sequence[str], *, quiet: bool) -> Iterator[Stage]:
    """Shows stages while the block runs.

    Args:
        who: those who will report, in the order of their rows.
        quiet: show nothing.
    """
    if quiet or sys.stderr is None:  # closed from outside
        yield lambda _who, _stage: None
    elif sys.stderr.isatty():
        with _live(who) as stage:
            yield stage
    else:
        start = time.monotonic()

        def say(name: str, stage: str) -> None:
            line = f"{time.monotonic() - start:5.1f} s  {name:6}  {stage}"
            with suppress(OSError):  # nobody reads it any more: the run goes on
                print(line, file=sys.stderr, flush=True)

        yield say


@contextmanager
def _live(who: Sequence[str]) -> Iterator[Stage]:
    """One row per name, redrawn in place and removed at the end."""
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console = Console(stderr=True)
    start = time.monotonic()
    stages = dict.fromkeys(who, "waiting")

    def table() -> Any:
        grid = Table.grid(padding=(0, 2))
        for name, stage in stages.items():
            style = "dim" if stage in ("waiting", "done") else "bold"
            grid.add_row(name, f"[{style}]{stage}[/]")
        grid.add_row("", f"[dim]{time.monotonic() - start:.0f} s[/]")
        return grid

    with Live(get_renderable=table, console=console, transient=True, refresh_per_second=8):

        def report(name: str, stage: str) -> None:
            stages[name] = stage

        yield report
