"""An objective as plain data, from its declaration alone."""

import inspect
import math
import re
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from parity.convention import OLD_OPTIONS, known_as, offered
from parity.objectives.spec import Choice, Declared, Fault, Objective

__all__ = ["Document", "document"]

Document = dict[str, Any]
"""What JSON can hold, in an order that stands."""

_OPTIONS = {name: f"--{name} OPTION" for name in OLD_OPTIONS} | {"frozen": "--detached"}


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
        "needs": [[*group] for group in objective.needs or ((n,) for n in objective.axes)],
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
            "padding": _told(each.padding) if each.axes == (objective.counted,) else None,
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
        found.append(
            {
                "name": name,
                "axes": list(axes),
                "says": says,
                "text": value.text if value else "",
                "known_as": list(also[name]),
                "padding": _told(value.padding) if value and axes == (counted,) else None,
            }
        )
    return found


def _told(number: float) -> float | str:
    """JSON has no infinity."""
    return number if math.isfinite(number) else str(number)


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
    says = f"∂L/∂{of}" if of else objective.definitions[name].says
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
        name: " ".join(words.split()).removesuffix(".")
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
            return f"{word} {' and '.join(known)}".rstrip()
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
