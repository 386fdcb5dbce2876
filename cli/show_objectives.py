"""What `parity objectives` prints: the list, or a page."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.cli import styles
from parity.report.objectives import LISTED, Page, Section, listed, words

__all__ = ["listing", "page"]

_INDENT = 2
_MOST = 0.55  # of a line, for names that stand beside what they mean


def listing(documents: list[dict[str, object]]) -> None:
    """Prints a line for each objective."""
    console = styles.console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in LISTED:
        number = column.heading in ("faults", "rewrites")
        table.add_column(
            column.heading,
            no_wrap=column.heading != "title",
            justify="right" if number else "left",
        )
    for name, *others in listed(documents):
        table.add_row(Text(words(name), "bold"), *(Text(words(cell)) for cell in others))
    console.print(table)
    styles.say(console, "parity objectives NAME shows one; NAME may be FILE.py:NAME of your own.")


def page(shown: Page) -> None:
    """Prints everything about an objective."""
    console = styles.console()
    console.print(Text.assemble((shown.name, "bold"), "  ", shown.title))
    width = max(map(len, shown.facts))
    for word, cell in shown.facts.items():
        console.print(_beside(Text(word, "dim"), Text(words(cell)), width))
    for section in shown.sections:
        console.print()
        console.print(Text(section.title, "bold"))
        if section.lead:
            console.print(Padding(Text(words(section.lead), "dim"), (0, 0, 0, _INDENT)))
        _rows(console, section)
    console.print()
    styles.say(console, shown.example)


def _rows(console: Console, section: Section) -> None:
    """Names beside their meaning; above it where the line is too short for both."""
    if len(section.columns) == 1:
        names = Text(" · ").join(Text(words(row[0])) for row in section.rows)
        console.print(Padding(names, (0, 0, 0, _INDENT)))
        return
    width = max(len(words(row[0])) for row in section.rows)
    for row in section.rows:
        name, text = Text(words(row[0]), "cyan"), Text(words(row[1]))
        more = [
            f"{column.before} {words(cell)}".strip()
            for column, cell in zip(section.columns[2:], row[2:], strict=True)
            if cell
        ]
        if more:
            text.append("\n" if text else "").append(" · ".join(more), "dim")
        if width > console.width * _MOST:
            console.print(Padding(name, (0, 0, 0, _INDENT)))
            console.print(Padding(text, (0, 0, 0, 2 * _INDENT)))
        else:
            console.print(_beside(name, text, width))


def _beside(name: Text, text: Text, width: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=_INDENT - 2)
    grid.add_column(width=width)
    grid.add_column(overflow="fold")
    grid.add_row("", name, text)
    return grid
