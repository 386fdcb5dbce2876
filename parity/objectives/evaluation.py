"""Definitions at work: names become values, each computed when it is first asked for."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from parity.arithmetic import operations as op
from parity.arithmetic.tape import Taped, gradients, raw
from parity.objectives.spec import Fault, Objective

__all__ = ["Scope", "called", "descend", "differentiated", "parameters", "parts"]

_HONEST = Fault("", "", "", "")


@cache
def parameters(definition: Callable[..., Any]) -> tuple[str, ...]:
    """The names that a definition depends on."""
    return tuple(inspect.signature(definition).parameters)


def called(definition: Callable[..., Any], names: Any) -> Any:
    """Calls a definition with the values of its names."""
    return definition(**{name: names[name] for name in parameters(definition)})


class Scope:
    """Values of one objective by name.

    What is given counts as it is; everything else is computed from its definition, once.

    Args:
        objective: whose definitions.
        given: inputs and, in step mode, recorded quantities.
        choices: choice to option, where it is not the default.
        fault: edits of definitions.
        more: definitions beside those of the objective.
    """

    def __init__(
        self,
        objective: Objective,
        given: Mapping[str, Any],
        choices: Mapping[str, str] | None = None,
        fault: Fault | None = None,
        more: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._objective = objective
        self._known: dict[str, Any] = {c.name: c.default for c in objective.choices}
        self._known |= choices or {}
        self._fault = fault or _HONEST
        for name in objective.named("frozen"):
            if name in given and name not in self._fault.unfrozen:
                given = {**given, name: op.stop_gradient(given[name])}
        self._known |= given
        self._more = more or {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self.derived(name)
        return self._known[name]

    def derived(self, name: str) -> Any:
        """What a definition says, whatever is given under its name.

        Raises:
            KeyError: nothing of that name is given or defined.
        """
        definition = self._fault.edits.get(name) or self._more.get(name)
        if definition is None:
            definition = self._objective.definitions[name].of
        try:
            return called(definition, self)
        except Exception as error:
            if not hasattr(error, "of_value"):
                error.of_value = name  # type: ignore[attr-defined]  # whose definition it was
            raise


def differentiated(
    objective: Objective,
    given: Mapping[str, Any],
    choices: Mapping[str, str] | None = None,
    fault: Fault | None = None,
) -> dict[str, Any]:
    """Every recorded value, and the gradients, at given states in any arithmetic.

    Args:
        objective: what is evaluated.
        given: its inputs, batches trailing.
        choices: choice to option, where it is not the default.
        fault: edits of its definitions.

    Returns:
        Quantity, without the objective's name, to value; in order of computation.
    """
    open_inputs = {*objective.named("differentiated"), *(fault.unfrozen if fault else ())}
    nodes = {name: Taped(value) for name, value in given.items() if name in open_inputs}
    scope = Scope(objective, {**given, **nodes}, choices, fault)
    found = {v.name: raw(scope[v.name]) for v in objective.values if v.recorded}
    loss = scope["loss"]
    swept: dict[str, Any] = {}
    if isinstance(loss, Taped):  # else it depends on nothing: a bug may detach all of it
        swept = dict(zip(nodes, gradients(loss, [*nodes.values()]), strict=True))
    for name, of in objective.gradients.items():
        found[name] = swept.get(of, np.asarray(0.0))
    return found


def descend(parameter: Any, gradient: Any, rate: Any) -> Any:
    """One step of gradient descent."""
    return parameter - rate * gradient


def parts(objective: Objective) -> list[str]:
    """What only those report who compute the loss as we do: values on the way, and their ends."""
    values = [v.name for v in objective.values if v.recorded and v.name != "loss"]
    ends = objective.training.ends if objective.training else ()
    return [*values, *(v.name for v in ends if {*parameters(v.of)} & {*values})]
