"""What `parity objectives` prints: the list, or a page."""

import textwrap

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.cli import styles
from parity.cli.objective_pages import LISTED, Page, Section, listed, words

__all__ = ["listing", "page"]

_INDENT = 2
_MOST = 0.55  # of a line, for names that stand beside what they mean


def listing(documents: list[dict[str, object]]) -> None:
    """Prints a line for each objective."""
    console = styles.console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in LISTED:
        number = column.heading == "faults"
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
            console.print(Padding(Text(words(section.lead)), (0, 0, 0, _INDENT)))
        _rows(console, section)
    console.print()
    styles.say(console, shown.example)


def _rows(console: Console, section: Section) -> None:
    """Names beside what they mean; above it where a line is too short for both."""
    if len(section.columns) == 1:
        names = _filled([words(row[0]) for row in section.rows], console.width - _INDENT)
        console.print(Padding(Text(names), (0, 0, 0, _INDENT)))
        return
    width = max(len(words(row[0])) for row in section.rows)
    stacked = section.stacked or width > console.width * _MOST
    room = console.width - (3 * _INDENT if stacked else width + 2 * _INDENT)
    for row in section.rows:
        name, meaning = Text(words(row[0]), "cyan"), words(row[1])
        more = [
            f"{column.before} {words(cell)}".strip()
            for column, cell in zip(section.columns[2:], row[2:], strict=True)
            if cell
        ]
        if stacked:
            hanging = textwrap.fill(
                f"{name.plain}  {meaning}",
                console.width,
                initial_indent=_INDENT * " ",
                subsequent_indent=3 * _INDENT * " ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            line = Text(hanging)
            line.stylize("cyan", _INDENT, _INDENT + len(name))
            console.print(line, soft_wrap=True)
            for part in _filled(more, room).splitlines():
                console.print(Text(3 * _INDENT * " " + part, "dim"), soft_wrap=True)
        else:
            others = _filled([meaning, *more], room).removeprefix(meaning)
            console.print(_beside(name, Text.assemble(meaning, (others, "dim")), width))


def _filled(parts: list[str], room: int) -> str:
    """Parts in as few lines as hold them; one that is longer than a line begins one of its own."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and len(f"{lines[-1]} · {part}") <= room:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return "\n".join(lines)


def _beside(name: Text, text: Text, width: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=_INDENT - 2)
    grid.add_column(width=width)
    grid.add_column(overflow="fold")
    grid.add_row("", name, text)
    return grid
