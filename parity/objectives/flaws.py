"""What is wrong with a declaration, before anything is evaluated."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

from parity.objectives import conventions
from parity.objectives.evaluation import parameters
from parity.objectives.spec import Choice, Input, Kind, Objective, Role, Value

__all__ = ["flaws"]

_STATED = {each.name for each in vars(conventions).values() if isinstance(each, Choice)}
_DRAWN = ("random", "shape", "scale")


def flaws(objective: Objective) -> Iterator[str]:
    """Yields one line for each thing that a declaration gets wrong; none where it is sound."""
    yield from _forms(objective)
    values = [*objective.definitions.values()]
    names = [i.name for i in objective.inputs] + [v.name for v in objective.values]
    for name in dict.fromkeys(n for n in names if names.count(n) > 1):
        yield f"{name}: declared twice; expected different names of inputs and values"
    yield from _inputs(objective)
    choices = {each.name for each in objective.choices}
    known = {*objective.axes, *choices, *(v.name for v in values)}
    training = objective.training
    if training is None:  # a run also gives names of its table
        before = {*objective.axes, *choices}
        for value in objective.values:
            yield from _unknown(
                value.name, value.of, before, "inputs, choices and values before it"
            )
            before.add(value.name)
    loss = objective.definitions.get("loss")
    if loss is None:
        yield "loss: missing; expected a value of that name, which is differentiated"
    elif loss.axes:
        yield f"loss: got axes {list(loss.axes)}; expected none: a scalar"
    for value in objective.values:
        if value.kind not in get_args(Kind):
            kinds = _listed(get_args(Kind))
            yield f"{value.name}: got kind {value.kind!r}; expected one of {kinds}"
    for name, branch in objective.branches.items():
        yield from _unknown(f"branch {name!r}", branch, known, "inputs, choices and values")
    if objective.kinks:
        yield from _unknown("kinks", objective.kinks, known, "inputs, choices and values")
    yield from _faults(objective, known)
    used = {p for v in values for p in parameters(v.of)}
    for choice in objective.choices:
        stated = choice.name in _STATED or choice.offers or choice.spares
        if not stated and choice.name not in used:
            yield f"choice {choice.name}: no definition has a parameter of that name"


def _forms(objective: Objective) -> Iterator[str]:
    """A tuple of one word needs a comma: ("pair",)."""
    every: list[Input | Value] = [*objective.inputs, *objective.values]
    for each in every:
        for word, words in (("axes", each.axes), ("known_as", each.known_as)):
            if isinstance(words, str):
                yield f'{each.name}: {word}: got {words!r}; expected a tuple, ("{words}",)'


def _inputs(objective: Objective) -> Iterator[str]:
    axes = {axis for each in objective.inputs for axis in each.axes}
    if not objective.named("differentiated"):
        yield "inputs: got none that is differentiated; expected at least one"
    if not any(each.axes[:1] == (objective.counted,) for each in objective.inputs):
        yield f"counted: got {objective.counted!r}; expected the first axis of an input"
    used = {p for v in objective.definitions.values() for p in parameters(v.of)}
    for each in objective.inputs:
        if each.role not in get_args(Role):
            yield f"{each.name}: got role {each.role!r}; expected one of {_listed(get_args(Role))}"
        if each.role == "index" and each.of not in axes:
            yield f"{each.name}: picks from axis {each.of!r}; expected one of {_listed(axes)}"
        if each.low > each.high:
            yield f"{each.name}: got the range {each.low:g} to {each.high:g}; expected low ≤ high"
        if each.name not in used:
            yield f"{each.name}: no definition has a parameter of that name; expected one"
        if each.draw:
            known = {*_DRAWN, *objective.axes, *objective.definitions}
            yield from _unknown(f"draw of {each.name}", each.draw, known, "random, shape, scale")


def _faults(objective: Objective, known: set[str]) -> Iterator[str]:
    recorded = {q.name for q in (*objective.at_points, *objective.in_a_run)}
    names = [fault.name for fault in objective.faults]
    for name in dict.fromkeys(n for n in names if names.count(n) > 1):
        yield f"fault {name}: declared twice; expected different names"
    for fault in objective.faults:
        if not (fault.edits or fault.collects or fault.unfrozen or fault.update):
            yield f"fault {fault.name}: edits nothing; expected edits, unfrozen or update"
        if not fault.equivalent and fault.first not in recorded:
            yield f"fault {fault.name}: parts first at {fault.first!r}; expected a quantity"
        for name, definition in fault.edits.items():
            if name not in objective.definitions:
                yield f"fault {fault.name}: edits {name!r}; expected a value"
            place = f"fault {fault.name}: {name}"
            yield from _unknown(place, definition, known, "inputs, choices and values")
        for name in fault.unfrozen:
            if name not in objective.named("frozen"):
                yield f"fault {fault.name}: unfreezes {name!r}; expected a frozen input"


def _unknown(place: str, definition: Any, known: set[str], expected: str) -> Iterator[str]:
    for name in parameters(definition):
        if name not in known:
            among = f"{expected}: {_listed(known)}"
            yield f"{place}: has a parameter {name!r}; expected names of {among}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
