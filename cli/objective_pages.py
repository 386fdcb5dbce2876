"""The documents of objectives as something to read: tables, and Markdown."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from parity.report.objectives import Document

__all__ = ["LISTED", "Column", "Page", "Section", "listed", "markdown", "page", "words"]

Cell = str | tuple[str, ...]
"""Words; or names and formulas, as a tuple."""


class Column(NamedTuple):
    """What stands in a column.

    Attributes:
        heading: in a table.
        before: the word before it, where it stands in a line with others.
    """

    heading: str
    before: str = ""


class Section(NamedTuple):
    """A table; the first column has the names, the second what they mean.

    Attributes:
        title: of the section.
        columns: of the table; a single one makes a list.
        rows: a cell for each column.
        lead: a sentence before it.
        stacked: its cells are too long to stand side by side.
    """

    title: str
    columns: tuple[Column, ...]
    rows: list[tuple[Cell, ...]]
    lead: str = ""
    stacked: bool = False


class Page(NamedTuple):
    """What there is to read about an objective.

    Attributes:
        name: ours.
        title: what it is, in a line.
        facts: equation, source and other names, each with its word.
        sections: the tables, in order; none is empty.
        example: a command to begin with.
    """

    name: str
    title: str
    facts: dict[str, Cell]
    sections: list[Section]
    example: str


def page(told: Document) -> Page:
    """What there is to read about an objective.

    Args:
        told: its document.
    """
    facts: dict[str, Cell] = {
        "equation": (told["equation"],),
        "source": told["source"],
        "also called": tuple(told["known_as"]),
    }
    sections = [*_of_functions(told), *_of_judgements(told)]
    return Page(
        told["name"],
        told["title"],
        {word: cell for word, cell in facts.items() if cell},
        [each for each in sections if each.rows],
        told["example"],
    )


def _of_functions(told: Document) -> Iterator[Section]:
    """How a function may state the objective."""
    groups = "; ".join(" or ".join(f"`{name}`" for name in group) for group in told["needs"])
    scalars = [n["name"] for n in told["inputs"] if n["role"] == "constant" and not n["axes"]]
    built_in = f" A constant may be built in: `--constant {scalars[0]}=VALUE`." if scalars else ""
    also, padded = Column("other names", "also"), Column("padding", "padded with")
    yield Section(
        "Inputs",
        (Column("input"), Column("meaning"), Column("role"), Column("range"), padded, also),
        [
            (
                _head(each),
                each["says"],
                f"{each['role']} of {each['of']}" if each["of"] else each["role"],
                _range(each["low"], each["high"]),
                _padding(each),
                tuple(each["known_as"]),
            )
            for each in told["inputs"]
        ],
        "A function's arguments have these names or the others beside them, or "
        f"`--map THEIRS=OURS` says which is which. It needs {groups}.{built_in}",
    )
    yield Section(
        "What else a function may ask for",
        (Column("argument"), Column("meaning"), Column("made by"), padded, also),
        [
            (
                _head(each),
                each["says"],
                (each["text"],) if each["text"] else "",
                _padding(each),
                tuple(each["known_as"]),
            )
            for each in told["offered"]
        ],
    )
    yield Section(
        "Choices",
        (Column("choice"), Column("meaning"), Column("remarks")),
        [row for each in told["choices"] for row in _choice_rows(each)],
        "Conventions in which right implementations differ, each as `--set NAME=OPTION`.",
    )


def _of_judgements(told: Document) -> Iterator[Section]:
    """What is compared, covered, trained and known to go wrong."""
    columns = Column("quantity"), Column("meaning"), Column("kind"), Column("remarks")
    yield Section(
        "Quantities",
        columns,
        [
            (_head(each), each["says"], each["kind"], "must be 0" if each["zero"] else "")
            for each in told["quantities"]
        ],
        "In order of computation, at one state.",
    )
    branches: list[tuple[Cell, ...]] = [((each,),) for each in told["branches"]]
    yield Section("Branches", (Column("branch"),), branches, "What the probes have to reach.")
    training = told["training"]
    if training:
        yield Section(
            "Training",
            (Column("field"), Column("meaning"), Column("type"), Column("default")),
            [
                ((each["name"],), each["says"], (each["type"],), _default(each))
                for each in training["fields"]
            ],
            f"Table `[{training['table']}]` of a problem; `--train` trains lesson "
            f"`{training['lesson']}`.",
        )
        loops = " and ".join(f"`{loop}`" for loop in training["loops"])
        yield Section(
            "Quantities of a run",
            columns[:3],
            [(_head(each), each["says"], each["kind"]) for each in training["quantities"]],
            f"Beside those above, which then have {loops} before their axes.",
        )
    for title, heading in (("Known faults", "fault"), ("Rewrites that are no bugs", "rewrite")):
        yield Section(
            title,
            (Column(heading), Column("what it does"), Column("in symbols"), Column("source")),
            [
                ((each["name"],), each["sentence"], (each["equation"],), each["source"])
                for each in told[f"{heading}s"]
            ],
            stacked=True,
        )


def _head(told: Document) -> tuple[str]:
    axes = ", ".join(told["axes"])
    return (f"{told['name']} [{axes}]" if axes else told["name"],)


def _range(low: float | None, high: float | None) -> str:
    if low is not None and 0 < low <= sys.float_info.min:
        return "positive" if high is None else f"positive, at most {high:g}"
    ends = {"at least": low, "at most": high}
    return ", ".join(f"{word} {end:g}" for word, end in ends.items() if end is not None)


def _padding(told: Document) -> str:
    return "" if told["padding"] is None else f"{float(told['padding']):g}"


def _choice_rows(told: Document) -> Iterator[tuple[Cell, ...]]:
    yield (told["name"],), told["says"], f"or `{told['option']}`" if told["option"] else ""
    for each in told["options"]:
        remarks = ["default"] if each["name"] == told["default"] else []
        remarks += [f"`{for_}` is then `{given}`" for for_, given in each["offers"].items()]
        if each["spares"]:
            remarks.append(f"needs no {', '.join(f'`{name}`' for name in each['spares'])}")
        yield (f"{told['name']}={each['name']}",), each["says"], "; ".join(remarks)


def _default(told: Document) -> str:
    if told["required"]:
        return "required"
    return "optional" if told["default"] is None else f"default {told['default']}"


LISTED = tuple(map(Column, ("objective", "other names", "title", "faults", "trained")))


def listed(documents: Iterable[Document]) -> list[tuple[Cell, ...]]:
    """A row of a list for each objective; `LISTED` has the columns."""
    return [
        (
            (each["name"],),
            tuple(each["known_as"]),
            each["title"],
            str(len(each["faults"])),
            "yes" if each["training"] else "no",
        )
        for each in documents
    ]


def words(cell: Cell) -> str:
    """A cell without marks."""
    return cell.replace("`", "") if isinstance(cell, str) else ", ".join(cell)


def markdown(documents: Sequence[Document], head: str = "") -> str:
    """The pages of objectives.

    Args:
        documents: of the objectives.
        head: what stands above their list; without it, one page and no list.
    """
    if not head:
        return "\n".join(line for each in documents for line in _page_lines(page(each), "#"))
    lines = [head, *_table(LISTED, listed(documents)), ""]
    for each in documents:
        lines += _page_lines(page(each), "##")
    return "\n".join(lines)


def _page_lines(shown: Page, level: str) -> Iterator[str]:
    yield from (f"{level} {shown.name}", "", f"{_marked(shown.title)}.", "")
    for word, cell in shown.facts.items():
        yield f"- {word}: {_marked(cell)}"
    yield from ("", "```sh", shown.example, "```", "")
    for section in shown.sections:
        yield from (f"{level}# {section.title}", "")
        if section.lead:
            yield from (section.lead, "")
        if len(section.columns) == 1:
            yield from (f"- {_marked(row[0])}" for row in section.rows)
        else:
            yield from _table(section.columns, section.rows)
        yield ""


def _table(columns: Sequence[Column], rows: list[tuple[Cell, ...]]) -> Iterator[str]:
    """Without the columns in which nothing stands."""
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    yield f"| {' | '.join(columns[i].heading for i in kept)} |"
    yield f"| {' | '.join('---' for _ in kept)} |"
    for row in rows:
        cells = (_marked(row[i]).replace("|", "\\|") for i in kept)
        yield f"| {' | '.join(cells)} |".replace("  |", " |")


def _marked(cell: Cell) -> str:
    """A cell in Markdown, where only words between backticks may hold its special characters."""
    if isinstance(cell, tuple):
        return ", ".join(f"`` {each} ``" if "`" in each else f"`{each}`" for each in cell)
    parts = re.split(r"(`[^`]*`)", " ".join(cell.split()))
    return "".join(p if p[:1] == "`" else re.sub(r"([\\*<])", r"\\\1", p) for p in parts)
