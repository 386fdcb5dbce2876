"""A known bug in the place of one piece of a twin: edits of definitions, in any framework."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from parity.objectives import find
from parity.objectives.evaluation import Scope, called
from parity.objectives.spec import Fault, Objective

__all__ = ["fault_named", "planted_pieces"]


def fault_named(objective: Objective, name: str) -> Fault:
    """A fault of an objective."""
    return next(fault for fault in objective.faults if fault.name == name)


def planted_pieces(twin: Any, objective: str, fault: str) -> Any:
    """The pieces of a twin with a known bug in one of them.

    Args:
        twin: the objective's module in a framework: its PIECES, Terms and Batch.
        objective: its name.
        fault: the bug's.
    """
    spec = find(objective)
    known = fault_named(spec, fault)
    pieces = twin.PIECES
    if known.edits or known.unfrozen:
        pieces = pieces._replace(loss=_loss(twin, spec, known))
    if known.collects:
        pieces = pieces._replace(collect=_collect(twin, spec, known))
    if known.update:
        pieces = pieces._replace(update=_update(twin, known.update))
    return pieces


def _loss(twin: Any, objective: Objective, fault: Fault) -> Callable[..., Any]:
    def loss(*inputs: Any) -> Any:
        given = dict(zip(objective.axes, inputs, strict=True))
        scope = Scope(objective, given, fault=fault)
        return scope["loss"], twin.Terms(*(scope[name] for name in twin.Terms._fields))

    return loss


def _collect(twin: Any, objective: Objective, fault: Fault) -> Callable[..., Any]:
    training = objective.training
    assert training is not None
    edited = replace(fault, edits=fault.collects)

    def collect(row: Any, state: Any) -> Any:
        given = {**state._asdict(), training.tape: row}
        if training.tape in fault.collects:
            given[training.tape] = Scope(objective, given, fault=edited).derived(training.tape)
        scope = Scope(objective, given, fault=edited)
        frozen = {value.name: scope.derived(value.name) for value in training.collected}
        return twin.Batch(**{training.tape: given[training.tape], **frozen})

    return collect


def _update(twin: Any, changes: Callable[..., Any]) -> Callable[..., Any]:
    def update(state: Any, gradient: Any, rate: Any) -> Any:
        given = {**state._asdict(), "last": state.gradient, "gradient": gradient, "rate": rate}
        return twin.update(state, gradient, rate)._replace(**called(changes, given))

    return update
