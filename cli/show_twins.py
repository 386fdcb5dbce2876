"""What `parity twins` prints: two sources, line against line."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from parity.cli import styles
from parity.errors import InputError

__all__ = ["Pair", "pairs", "side_by_side", "sources"]

LEAST = 0.4  # of two lines that stand against each other
WIDE = 120  # columns from which both sources fit beside each other

_TWINS = ("jax_impl", "torch_impl")
_MARKED = "bold yellow"
_OF_A_FRAMEWORK = re.compile(
    r"\b(jax(\.\w+)*\.|jnp\.|torch(\.\w+)*\.|Array\b|Tensor\b|jax_|torch_)"
)
_WORDS = re.compile(r"\w+(?:\.\w+)*|\s+|.")


class Pair(NamedTuple):
    """Two lines that stand against each other; None where a twin has none.

    Attributes:
        place: the definition that the lines belong to.
        jax: line of the JAX twin.
        torch: line of the PyTorch twin.
    """

    place: str
    jax: str | None
    torch: str | None

    @property
    def differs(self) -> bool:
        """Whether the two lines are not the same."""
        return self.jax != self.torch


def sources(file: str) -> tuple[list[str], list[str]]:
    """Reads both twins' lines of a file, as data: no framework is imported.

    Raises:
        InputError: the twins have no such file.
    """
    folders = []
    for twin in _TWINS:
        spec = find_spec(f"parity.{twin}")
        assert spec is not None
        folders += [Path(place) for place in spec.submodule_search_locations or ()]
    known = sorted(path.stem for path in folders[0].glob("[!_]*.py"))
    if file not in known:
        raise InputError(f"file: got {file!r}; expected one of {', '.join(known)}")
    jax, torch = ((folder / f"{file}.py").read_text().splitlines() for folder in folders)
    return jax, torch


def pairs(jax: list[str], torch: list[str]) -> Iterator[Pair]:
    """Lines up two sources: lines that differ in framework words only stand side by side."""
    matcher = SequenceMatcher(
        None, [_neutral(line) for line in jax], [_neutral(line) for line in torch], autojunk=False
    )
    place = ""
    for _, left, left_end, right, right_end in matcher.get_opcodes():
        for ours, theirs in _blocks(jax[left:left_end], torch[right:right_end]):
            line = ours or theirs or ""
            if re.match(r"(def|class|@)", line):
                place = "" if line.startswith("@") else line.partition("(")[0].rstrip(":")
            yield Pair(place, ours, theirs)


def _blocks(
    jax: list[str], torch: list[str]
) -> Iterator[tuple[str, str] | tuple[str, None] | tuple[None, str]]:
    """Line by line where a block has as many, alike, in both; else one block after the other."""
    alike = len(jax) == len(torch) and all(map(_alike, jax, torch))
    if alike:
        yield from zip(jax, torch, strict=True)
    else:
        yield from ((line, None) for line in jax)
        yield from ((None, line) for line in torch)


def _alike(line: str, other: str) -> bool:
    """Whether two lines say the same thing in other words, or are both empty."""
    same = SequenceMatcher(None, _neutral(line), _neutral(other), autojunk=False).ratio()
    return same >= LEAST or not (line.strip() or other.strip())


def _neutral(line: str) -> str:
    return _OF_A_FRAMEWORK.sub("", line)


def side_by_side(file: str, name: str = "", *, only_differences: bool) -> None:
    """Prints both sources: in two columns where they fit, else the lines that differ in pairs.

    Args:
        file: of the twins.
        name: of one function or class in it; empty for the whole file.
        only_differences: leave out the lines that are the same; … stands for them.

    Raises:
        InputError: there is no such file, or no such function in it.
    """
    console = styles.console()
    every = list(pairs(*sources(file)))
    if name:
        known = {pair.place.rpartition(" ")[2]: None for pair in every if pair.place}
        if name not in known:
            raise InputError(f"name: got {name!r}; expected one of {', '.join(known)}")
        every = [pair for pair in every if pair.place.rpartition(" ")[2] == name]
    rows = list(_left(every)) if only_differences else every
    if not rows:
        console.print(f"jax_impl/{file}.py and torch_impl/{file}.py are the same", markup=False)
    elif console.width >= WIDE:
        console.print(_columns(rows, file, console.width, headings=only_differences))
    else:
        for line in _stacked(rows, console.width, headings=only_differences):
            console.print(line, soft_wrap=True)


def _left(every: list[Pair]) -> Iterator[Pair]:
    """The pairs that differ, and one of … for each run of lines of a definition left out."""
    left_out = Pair("", None, None)
    for pair in every:
        if pair.differs:
            if left_out.place == pair.place and left_out.jax:
                yield left_out
            yield pair
            left_out = Pair(pair.place, None, None)
        elif (pair.jax or "").strip():
            indent = len(pair.jax or "") - len((pair.jax or "").lstrip())
            mark = " " * indent + "…"
            left_out = Pair(pair.place, mark, mark)


def _columns(rows: list[Pair], file: str, width: int, *, headings: bool) -> Table:
    half = (width - 3) // 2
    grid = Table.grid()
    grid.add_column(width=half, overflow="fold")
    grid.add_column(width=3, justify="center")
    grid.add_column(width=half, overflow="fold")
    grid.add_row(Text(f"jax_impl/{file}.py", "bold"), "", Text(f"torch_impl/{file}.py", "bold"))
    for heading, pair in _headed(rows):
        if heading and headings:
            grid.add_row(Text(heading, "dim"), "", Text(heading, "dim"))
        sign = " " if not pair.differs else "<" if pair.torch is None else "|"
        sign = ">" if pair.jax is None else sign
        jax, torch = (_set_in(line, half) for line in _highlighted(pair))
        grid.add_row(jax, Text(sign, "dim"), torch)
    return grid


def _set_in(line: Text, width: int) -> Text:
    """A line that is too long for its column goes on below, deeper than it began."""
    deeper = len(line) - len(line.plain.lstrip()) + 8
    return Text("\n").join(_folded(Text(), line, width, deeper))


def _stacked(rows: list[Pair], width: int, *, headings: bool) -> Iterator[Text]:
    """Lines that both share once; of the others, JAX's above PyTorch's."""
    for heading, pair in _headed(rows):
        if heading and headings:
            yield Text(f"      {heading}", "dim")
        jax, torch = _highlighted(pair)
        if not pair.differs:
            yield from _folded(Text("      "), jax, width)
            continue
        if pair.jax is not None:
            yield from _folded(Text.assemble(("jax   ", "cyan")), jax, width)
        if pair.torch is not None:
            yield from _folded(Text.assemble(("torch ", "magenta")), torch, width)


def _folded(label: Text, line: Text, width: int, deeper: int = 14) -> Iterator[Text]:
    """Breaks a line that is too long, at a space where one is near; the rest is set in deeper."""
    while len(label) + len(line) > width:
        room = width - len(label)
        space = line.plain.rfind(" ", room // 2, room)
        head, line = line.divide([space + 1 if space > 0 else room])
        yield label + head
        label = Text(" " * deeper)
    yield label + line


def _headed(rows: list[Pair]) -> Iterator[tuple[str, Pair]]:
    """Each pair with its definition, where that is another than before."""
    last = ""
    for pair in rows:
        is_heading = any(line and pair.place and line.startswith(pair.place) for line in pair[1:])
        yield "" if pair.place == last or is_heading else pair.place, pair
        last = pair.place


def _highlighted(pair: Pair) -> tuple[Text, Text]:
    """Marks the words in which two lines differ; in a line that stands alone, the framework's."""
    ours, theirs = Text(pair.jax or ""), Text(pair.torch or "")
    if pair.jax is None or pair.torch is None:
        for line in (ours, theirs):
            line.highlight_regex(_OF_A_FRAMEWORK, _MARKED)
    elif pair.differs:
        left, right = _WORDS.findall(pair.jax), _WORDS.findall(pair.torch)
        matcher = SequenceMatcher(None, left, right, autojunk=False)
        for tag, start, end, other_start, other_end in matcher.get_opcodes():
            if tag != "equal":
                _mark(ours, left, start, end)
                _mark(theirs, right, other_start, other_end)
    return ours, theirs


def _mark(text: Text, words: list[str], first: int, last: int) -> None:
    start = sum(map(len, words[:first]))
    text.stylize(_MARKED, start, start + sum(map(len, words[first:last])))
