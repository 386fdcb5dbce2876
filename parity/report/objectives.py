"""An objective as a document, from its declaration alone: plain data, a page of tables, Markdown."""

import inspect
import math
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from parity.convention import MASK, OLD_OPTIONS, known_as, offered
from parity.objectives.spec import Choice, Declared, Fault, Objective

__all__ = ["Column", "Page", "Section", "document", "listed", "markdown", "page", "words"]

Document = dict[str, Any]
Cell = str | tuple[str, ...]
"""Words; or names and formulas, as a tuple."""

_OPTIONS = {name: f"--{name} OPTION" for name in OLD_OPTIONS} | {"frozen": "--detached"}


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
    """

    title: str
    columns: tuple[Column, ...]
    rows: list[tuple[Cell, ...]]
    lead: str = ""


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


def document(objective: Objective, word: str = "") -> Document:
    """Everything that an objective declares, as plain data.

    Args:
        objective: which.
        word: under which the user knows it; its name when left out.
    """
    return {
        "name": objective.name,
        "known_as": list(objective.known_as),
        "title": objective.title,
        "equation": objective.equation,
        "source": objective.source,
        "example": "parity check FILE.py:FUNCTION --objective "
        f"{shlex.quote(word or objective.name)}",
        "counted": objective.counted,
        "needs": [[*group] for group in objective.needs or zip(objective.axes)],
        "inputs": _inputs(objective),
        "offered": _offered(objective),
        "choices": [_choice(each) for each in objective.choices],
        "quantities": [_quantity(objective, each) for each in objective.at_points],
        "branches": [*objective.branches],
        "faults": [_fault(each) for each in objective.faults if not each.equivalent],
        "rewrites": [_fault(each) for each in objective.faults if each.equivalent],
        "training": _training(objective),
    }


def _inputs(objective: Objective) -> list[Document]:
    return [
        {
            "name": each.name,
            "axes": list(each.axes),
            "role": each.role,
            "of": each.of,
            "says": each.says,
            "known_as": list(each.known_as),
            "low": each.low if math.isfinite(each.low) else None,
            "high": each.high if math.isfinite(each.high) else None,
            "padding": each.padding if each.axes == (objective.counted,) else None,
        }
        for each in objective.inputs
    ]


def _offered(objective: Objective) -> list[Document]:
    also, values = known_as(objective), {each.name: each for each in objective.values}
    counted = objective.counted
    found = []
    for name, axes in offered(objective).items():
        if name in objective.by_input:
            continue
        value = values.get(name)
        says = value.says if value else f"1 for every {counted}, 0 where it is padded"
        padding = value.padding if value else 0.0
        found.append(
            {
                "name": name,
                "axes": list(axes),
                "says": says,
                "text": value.text if value else "",
                "known_as": list(also[name]),
                "padding": padding if axes == (counted,) else None,
            }
        )
    return found


def _choice(choice: Choice) -> Document:
    options = [
        {
            "name": name,
            "says": says,
            "offers": dict(choice.offers.get(name, {})),
            "spares": list(choice.spares.get(name, ())),
        }
        for name, says in choice.options.items()
    ]
    return {
        "name": choice.name,
        "says": choice.says,
        "default": choice.default,
        "option": _OPTIONS.get(choice.name, ""),
        "options": options,
    }


def _quantity(objective: Objective, declared: Declared) -> Document:
    """One that is recorded at fixed states."""
    name = declared.name.partition("/")[2]
    of = objective.gradients.get(name, "")
    says = f"of the loss in {of}" if of else objective.definitions[name].says
    return {
        "name": declared.name,
        "axes": list(objective.at_points[declared]),
        "kind": declared.kind,
        "says": says or ("what is differentiated" if name == "loss" else ""),
        "zero": of in objective.named("frozen"),
    }


def _fault(fault: Fault) -> Document:
    return {
        "name": fault.name,
        "sentence": fault.sentence,
        "equation": fault.equation,
        "source": fault.source,
        "first": fault.first,
        "at": dict(fault.at),
    }


def _training(objective: Objective) -> Document | None:
    training = objective.training
    if training is None:
        return None
    says = {each.name: each.says for each in objective.inputs}
    also = (*training.carried, *training.collected, *training.measured, *training.ends)
    says |= {each.name: each.says for each in also if each.says}
    points = {each.name for each in objective.at_points}
    return {
        "table": objective.name,
        "lesson": training.lesson,
        "loops": list(training.loops),
        "fields": list(_fields(training.table)),
        "quantities": [
            {
                "name": each.name,
                "axes": list(each.axes),
                "kind": each.kind,
                "says": says.get(each.name.partition("/")[2], ""),
            }
            for each in objective.in_a_run
            if each.name not in points
        ],
    }


def _fields(table: type[msgspec.Struct]) -> Iterator[Document]:
    """What a table may hold; what its fields mean stands in its docstring."""
    text = inspect.getdoc(table) or ""
    says = {
        name: " ".join(words.split())
        for name, words in re.findall(r"^    (\w+): (.*(?:\n     .*)*)", text, re.MULTILINE)
    }
    for each in msgspec.structs.fields(table):
        default = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            default = each.default_factory()
        yield {
            "name": each.encode_name,
            "says": says.get(each.name, ""),
            "type": _type(msgspec.inspect.type_info(each.type)),
            "required": each.required,
            "default": None if each.required else msgspec.to_builtins(default),
        }


def _type(kind: msgspec.inspect.Type) -> str:
    """A type as a TOML document shows it."""
    match kind:
        case msgspec.inspect.FloatType() | msgspec.inspect.IntType():
            word = "number" if isinstance(kind, msgspec.inspect.FloatType) else "integer"
            ends = {">": kind.gt, ">=": kind.ge, "<": kind.lt, "<=": kind.le}
            known = [f"{sign} {end}" for sign, end in ends.items() if end is not None]
            return " ".join([word, *known])
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            least = f", at least {kind.min_length}" if kind.min_length else ""
            return f"[{_type(kind.item_type)}, …]{least}"
        case msgspec.inspect.TupleType():
            return f"[{', '.join(map(_type, kind.item_types))}]"
        case msgspec.inspect.UnionType():
            some = (t for t in kind.types if not isinstance(t, msgspec.inspect.NoneType))
            return " or ".join(map(_type, some))
        case msgspec.inspect.LiteralType():
            return " or ".join(map(str, kind.values))
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.BoolType():
            return "true or false"
    return type(kind).__name__.removesuffix("Type").lower()


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
    groups = ", ".join(" or ".join(f"`{name}`" for name in group) for group in told["needs"])
    also, padded = Column("other names", "also"), Column("padding", "padded with")
    yield Section(
        "Inputs",
        (Column("input"), Column("meaning"), Column("role"), also, Column("range"), padded),
        [
            (
                _head(each),
                each["says"],
                f"{each['role']} of {each['of']}" if each["of"] else each["role"],
                tuple(each["known_as"]),
                _range(each["low"], each["high"]),
                _padding(each),
            )
            for each in told["inputs"]
        ],
        f"A function's arguments have these names, or others that stand beside them. It needs "
        f"{groups}.",
    )
    yield Section(
        "What else a function may ask for",
        (Column("argument"), Column("meaning"), Column("made by"), also, padded),
        [
            (
                _head(each),
                each["says"],
                (each["text"],) if each["text"] else "",
                tuple(each["known_as"]),
                _padding(each),
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
    yield Section("Branches", (Column("branch"),), [((each,),) for each in told["branches"]])
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
                for each in told["faults" if heading == "fault" else "rewrites"]
            ],
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
    return "" if told["padding"] is None else f"{told['padding']:g}"


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


LISTED = tuple(map(Column, ("objective", "other names", "title", "faults", "rewrites", "trained")))


def listed(documents: Iterable[Document]) -> list[tuple[Cell, ...]]:
    """A row of a list for each objective; `LISTED` has the columns."""
    return [
        (
            (each["name"],),
            tuple(each["known_as"]),
            each["title"],
            str(len(each["faults"])),
            str(len(each["rewrites"])),
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
