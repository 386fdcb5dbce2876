"""What everything printed has in common: how a verdict looks, a table of ratios, JSON."""

import sys
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

__all__ = ["as_json", "console", "ratio_table", "say", "verdict", "write"]

_STYLES = {"match": "green", "convention": "green", "divergent": "bold red"}


def verdict(word: str) -> str:
    """A verdict in its colour, as rich's markup."""
    return f"[{_STYLES.get(word, 'yellow')}]{word}[/]"


def ratio_table(caption: str = "largest difference over allowance; above 1.00 is outside") -> Table:
    """An empty table of differences over their allowances."""
    return Table(box=SIMPLE_HEAD, caption=caption, caption_justify="left", pad_edge=False)


def say(place: Console, line: str) -> None:
    """Prints a line as it stands: no markup, no wrapping."""
    place.print(line, markup=False, soft_wrap=True)


def console() -> Console:
    """Where text is printed as it stands: no numbers in colour, no `:words:` made pictures."""
    return Console(highlight=False, emoji=False)


def as_json(value: Any) -> None:
    """Prints a document as indented JSON."""
    write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def write(document: str) -> None:
    """Prints a document in UTF-8, whatever the terminal speaks."""
    sys.stdout.flush()
    sys.stdout.buffer.write(document.encode())
    sys.stdout.buffer.flush()
