"""What `parity mechanics` prints: the list, a question, and tables."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from parity.cli import styles
from parity.comparison import Number
from parity.errors import InputError
from parity.mechanics import Cell, Mechanic, Shown

__all__ = ["listing", "question", "table", "tables_json"]

_NAMES = {"jax": "JAX", "torch": "PyTorch"}


def listing(mechanics: Sequence[Mechanic], *, as_json: bool) -> None:
    """Prints name and title of each mechanic; as JSON, its question too."""
    if as_json:
        styles.as_json([_asked(mechanic) for mechanic in mechanics])
        return
    console = styles.console()
    grid = Table.grid(padding=(0, 2, 0, 0))
    for mechanic in mechanics:
        grid.add_row(f"[bold]{mechanic.name}[/]", mechanic.title)
    console.print(grid)
    console.print("\nparity mechanics NAME shows one; --ask asks you first.", markup=False)


def question(mechanic: Mechanic) -> str:
    """Asks, waits for an answer and says whether it is right.

    Returns:
        That sentence, as rich's markup.

    Raises:
        InputError: the input ended without an answer.
    """
    console = styles.console()
    _ask(console, mechanic)
    for number, option in enumerate(mechanic.options, 1):
        console.print(f"  {number}  {option}", markup=False)
    last = len(mechanic.options)
    numbers = [str(number) for number in range(1, last + 1)]
    answer = ""
    while answer not in numbers:
        sys.stdout.write(f"Your answer (1 to {last}): ")
        sys.stdout.flush()
        line = sys.stdin.readline() if sys.stdin else ""  # None where it was closed from outside
        if not line:
            sys.stdout.write("\n")
            raise InputError(f"answer: got none; expected a number from 1 to {last}")
        answer = line.strip()
        if not sys.stdin.isatty():  # nobody typed a line's end that could be seen
            sys.stdout.write("\n")
        if answer not in numbers:
            sys.stdout.write(f"got {answer!r}; expected a number from 1 to {last}\n")
    right = mechanic.answer + 1
    said = "[green]Right.[/]"
    if answer != str(right):
        said = f"[yellow]Not so:[/] {right} is right."
    console.print(said)
    return said


def _ask(console: Console, mechanic: Mechanic) -> None:
    console.print(f"[bold]{mechanic.name}[/]  {mechanic.title}")
    console.print(mechanic.question, style="italic", markup=False)


def table(shown: Shown, said: str = "") -> None:
    """Prints question, table and answer of a mechanic, and the sentence to take home.

    Args:
        shown: the mechanic.
        said: what `question` returned, where it was asked before.
    """
    mechanic, console = shown.mechanic, styles.console()
    if not said:
        _ask(console, mechanic)
    rows = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    rows.add_column("quantity")
    for name in ("closed form", *(_NAMES[framework] for framework in shown.environment)):
        rows.add_column(name, justify="right", no_wrap=True)
    rows.add_column("agree", no_wrap=True)
    for row in shown.rows:
        rows.add_row(
            row.quantity,
            _short(row.closed),
            *(_cell(cell) for cell in row.cells.values()),
            "yes" if row.agree else "[bold red]NO[/]",
        )
    console.print(rows)
    for line in filter(None, (mechanic.note, _how_judged(shown))):
        console.print(line, style="dim", markup=False)
    if said:
        console.print(said, end=" ")
    console.print(f"The answer: {mechanic.options[mechanic.answer]}", markup=False)
    console.print(f"To take home: {mechanic.lesson}\n", style="bold", markup=False)


def tables_json(tables: Sequence[Shown]) -> None:
    """Prints tables as a JSON array."""
    styles.as_json(
        [
            _asked(shown.mechanic)
            | {
                "note": shown.mechanic.note,
                "lesson": shown.mechanic.lesson,
                "source": shown.mechanic.source,
                "agree": shown.agree,
                "environment": shown.environment,
                "rows": [msgspec.to_builtins(row) | {"agree": row.agree} for row in shown.rows],
            }
            for shown in tables
        ]
    )


def _asked(mechanic: Mechanic) -> dict[str, Any]:
    return {
        name: getattr(mechanic, name) for name in ("name", "title", "question", "options", "answer")
    }


def _how_judged(shown: Shown) -> str:
    """What agreement means in this table, and how near its edge the numbers came."""
    ratios = [
        abs(float(cell.value) - float(row.closed)) / float(row.allowed)
        for row in shown.rows
        for cell in row.cells.values()
        if cell.documented is None and row.allowed
    ]
    sentences = []
    if ratios:
        sentences.append(
            "agree: within the allowance that float32 rounding was measured to need, row by row "
            f"(64 replicas, times 3); at most {max(ratios):.2f} of it is used."
        )
    if any(cell.documented is not None for row in shown.rows for cell in row.cells.values()):
        versions = ", ".join(
            f"{_NAMES[framework]} {environment[framework]}"
            for framework, environment in shown.environment.items()
        )
        sentences.append(f"*: as documented for this framework ({versions}).")
    return " ".join(sentences) or "agree: the same count."


def _cell(cell: Cell) -> str:
    text = _short(cell.value) + ("*" if cell.documented is not None else "")
    return text if cell.agree else f"[bold red]{text}[/]"


def _short(value: Number | str) -> str:
    """Six digits: so many float32 holds of any number."""
    return f"{value + 0.0:.6g}" if isinstance(value, float) else str(value)
