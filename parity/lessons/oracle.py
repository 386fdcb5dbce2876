"""The oracle's three modes, from one list of definitions.

Each mode is a generator that computes with whatever `lift` makes of its inputs: the exact oracle,
the random replicas and the rigorous bound of `parity.arithmetic.measure` come from the same lines.

*Points*: definitions at given inputs. *Trajectory*: definitions from computed values, update by
update. *Step*: the same definitions, each from the recorded values of the quantities that it names.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.arithmetic.measure import Emission, Lift
from parity.objectives import Objective, find
from parity.objectives.evaluation import Scope, called, descend, differentiated
from parity.objectives.spec import Fault, Training
from parity.points import Points
from parity.problem import Problem
from parity.trace import Trace

__all__ = ["BATCH", "Lift", "at_points", "rounded", "steps", "trajectory"]

BATCH = 2**14  # sample-updates handled at once: bounds the replicas' memory

_ALL = slice(None)

Choices = Mapping[str, str]


def rounded(values: Any, dtype: str) -> NDArray[Any]:
    """A constant of the problem as the run sees it: float32(0.2) is not 0.2."""
    array = np.asarray(values)
    return array if array.dtype.kind == "i" else array.astype(dtype).astype(np.float64)


def at_points(
    points: Points, lift: Lift, choices: Choices | None = None, fault: Fault | None = None
) -> Iterator[Emission]:
    """Evaluates an objective at fixed states.

    Args:
        points: the states.
        lift: applied to every input.
        choices: choice to option, where it is not the default.
        fault: edits of the objective's definitions.

    Raises:
        ValueError: a definition computes something of another shape than is declared.
    """
    objective = find(points.objective)
    given = {name: lift(np.moveaxis(v, 0, -1)) for name, v in points.inputs.items()}
    found = differentiated(objective, given, choices, fault)
    for declared, axes in objective.at_points.items():
        value = found[declared.name.partition("/")[2]]
        if isinstance(value, np.ndarray) and value.ndim not in (0, len(axes) + 1):
            shape = list(value.shape[:-1])
            raise ValueError(
                f"{declared.name}: computed as {shape}; declared with axes {list(axes)}"
            )
    yield Emission((_ALL,), 1, _named(objective, found))


def _named(objective: Objective, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{objective.name}/{name}": value for name, value in values.items()}


def trajectory(
    problem: Problem,
    actions: NDArray[np.int64] | None,
    dtype: str,
    lift: Lift,
    choices: Choices | None = None,
    faults: Mapping[str, Fault] | None = None,
) -> Iterator[Emission]:
    """Runs the whole problem from its start.

    Args:
        problem: what is solved.
        actions: the tape, [rollout, sample]; None where no part of the problem is sampled.
        dtype: the dtype to which the runs round the problem's constants.
        lift: applied to every input.
        choices: choice to option, where it is not the default.
        faults: objective to a known bug that is planted in it.
    """
    taken: dict[str, Any] = {}
    for objective, training, table in problem.parts():
        given = {n: lift(rounded(v, dtype)) for n, v in training.given(table).items()}
        given |= {name: taken[of] for name, of in training.takes.items()}
        run = _Run(objective, training, table, choices or {}, (faults or {}).get(objective.name))
        for emission in run.emissions(given, actions, lift):
            yield emission
        taken |= emission.values  # what is computed at the end


class _Run(NamedTuple):
    """One objective's training, perhaps with a known bug planted in it."""

    objective: Objective
    training: Training
    table: Any
    choices: Choices
    fault: Fault | None

    def emissions(
        self, given: dict[str, Any], tape: NDArray[np.int64] | None, lift: Lift
    ) -> Iterator[Emission]:
        """Everything that it records, from what is given."""
        objective, training, name = self.objective, self.training, self.objective.parameter
        moved, last = given.pop(name), None
        start = Scope(objective, given, self.choices)
        state = {**given, **{v.name: start.derived(v.name) for v in training.carried}}
        lengths = [training.sizes(self.table)[axis] for axis in training.loops]
        inner = lengths[1] if len(lengths) > 1 else 1
        if training.measured:
            yield Emission((0,), 0, self.at(training.measured, {**state, name: moved}))
        for outer in range(lengths[0]):
            batch: dict[str, Any] = {}
            if training.tape:
                assert tape is not None
                batch = self.collected({**state, name: moved, training.tape: lift(tape[outer])})
                index = np.asarray(batch[training.tape])
                index = index[..., 0] if index.ndim > tape[outer].ndim else index
                yield Emission((outer,), 0, _named(objective, {training.tape: index}))
            frozen = {v.name: batch[v.name] for v in training.collected}
            for step in range(inner):
                inputs = {**state, **batch, name: moved}
                wanted = {n: inputs[n] for n in objective.axes}
                found = differentiated(objective, wanted, self.choices, self.fault)
                carried = {v.name: state[v.name] for v in training.carried}
                moved, found, changed = self.stepped(moved, found, state, last)
                last = found["gradient"]
                found = {**carried, **frozen, **found, name: moved}
                yield Emission((outer, step)[: len(lengths)], 0, _named(objective, found))
                state |= changed
            if training.measured:
                measured = self.at(training.measured, {**state, name: moved})
                yield Emission((outer + 1,), 0, measured)
        yield Emission((), 0, self.at(training.ends, {**state, name: moved}))

    def at(self, values: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
        """What is measured of a state."""
        more = {value.name: value.of for value in values}
        scope = Scope(self.objective, given, self.choices, more=more)
        return _named(self.objective, {value.name: scope.derived(value.name) for value in values})

    def collected(self, given: dict[str, Any]) -> dict[str, Any]:
        """The tape's row and what is frozen with it."""
        training = self.training
        edits = self.fault.collects if self.fault else {}
        fault = Fault("", "", "", "", edits=edits)
        if training.tape in edits:
            row = Scope(self.objective, given, self.choices, fault).derived(training.tape)
            given = {**given, training.tape: row}
        scope = Scope(self.objective, given, self.choices, fault)
        fresh = {value.name: scope.derived(value.name) for value in training.collected}
        return {training.tape: given[training.tape], **fresh}

    def stepped(
        self, moved: Any, found: dict[str, Any], state: Mapping[str, Any], last: Any
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """The parameter after an update, what it recorded, and what else has changed."""
        rate = state["rate"]
        after = descend(moved, found["gradient"], rate)
        if self.fault is None or self.fault.update is None:
            return after, found, {}
        names = {**state, self.objective.parameter: moved, "gradient": found["gradient"]}
        names["last"] = 0.0 * found["gradient"] if last is None else last
        changed = dict(called(self.fault.update, names))
        after = changed.pop(self.objective.parameter, after)
        found = {**found, "gradient": changed.pop("gradient", found["gradient"])}
        return after, found, changed


def steps(
    problem: Problem,
    actions: NDArray[np.int64] | None,
    trace: Trace,
    lift: Lift,
    choices: Choices | None = None,
) -> Iterator[Emission]:
    """Re-derives each recorded quantity from those that the trace recorded just before it.

    Nothing compounds, so that a fault is seen where it is made.

    Args:
        problem: what was solved.
        actions: the tape that was to be replayed, [rollout, sample].
        trace: the run; it must hold every quantity of the catalogue.
        lift: applied to every recorded input and constant.
        choices: choice to option, where it is not the default.
    """
    for objective, training, table in problem.parts():
        given = {n: rounded(v, trace.dtype) for n, v in training.given(table).items()}
        given |= {name: _wide(trace[of]) for name, of in training.takes.items()}
        part = _Part(objective, training, given, trace, actions, lift, choices or {})
        sizes = training.sizes(table)
        inner = sizes[training.loops[1]] if len(training.loops) > 1 else 1
        widest = max(length for axis, length in sizes.items() if axis not in training.loops)
        size = max(1, BATCH // (inner * widest))
        for first in range(0, sizes[training.loops[0]], size):
            yield from part.updates(slice(first, min(first + size, sizes[training.loops[0]])))
        yield from part.edges()


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype.kind == "i" else values.astype(np.float64)


class _Part(NamedTuple):
    """One objective's share of a trace, in step mode."""

    objective: Objective
    training: Training
    given: dict[str, Any]
    trace: Trace
    tape: NDArray[np.int64] | None
    lift: Lift
    choices: Choices

    @property
    def depth(self) -> int:
        """How many time axes an update has."""
        return len(self.training.loops)

    def recorded(self, name: str) -> NDArray[Any]:
        """A quantity of the trace, time first."""
        return _wide(self.trace[f"{self.objective.name}/{name}"])

    def before(self, name: str, start: Any) -> NDArray[Any]:
        """A recorded quantity shifted by one update: what it was before each, the start first."""
        after = self.recorded(name)
        flat = after.reshape(-1, *after.shape[self.depth :])
        first = np.broadcast_to(start, flat.shape[1:])
        return np.concatenate([first[None], flat[:-1]]).reshape(after.shape)

    def lifted(self, values: NDArray[Any], batch: int) -> Any:
        """Time last, as definitions want it."""
        return self.lift(np.moveaxis(values, range(batch), range(-batch, 0)))

    def constants(self, batch: int) -> dict[str, Any]:
        """What is given, the same at every step."""
        return {
            name: self.lift(values[(..., *(None,) * (batch if values.ndim else 0))])
            for name, values in self.given.items()
            if name != self.objective.parameter
        }

    def updates(self, part: slice) -> Iterator[Emission]:
        """Everything that has the time axes of an update, for some of the outermost steps."""
        objective, training, depth = self.objective, self.training, self.depth
        name = objective.parameter
        states = self.before(name, self.given[name])[part]
        kept = {v.name: self.recorded(v.name)[part] for v in training.carried}
        inputs = {**self.constants(depth), name: self.lifted(states, depth)}
        inputs |= {n: self.lifted(rows, depth) for n, rows in kept.items()}
        unchanged = {
            n: self.lifted(self.before(n, self.recorded(n)[(0,) * depth])[part], depth)
            for n in kept
        }
        yield Emission((part,), depth, _named(objective, unchanged))
        if training.tape:
            assert self.tape is not None
            yield Emission((part,), 0, _named(objective, {training.tape: self.tape[part]}))
            row = self.tape[part].reshape(self.tape[part].shape[0], *(1,) * (depth - 1), -1)
            inputs[training.tape] = self.lifted(row, depth)
            yield from self._collected(part, states, kept)
            for value in training.collected:
                inputs[value.name] = self.lifted(self.recorded(value.name)[part], depth)
        values = [value.name for value in objective.values if value.recorded]
        seen = {n: self.lifted(self.recorded(n)[part], depth) for n in (*values, "gradient")}
        scope = Scope(objective, {**inputs, **seen}, self.choices)
        found = differentiated(objective, {n: inputs[n] for n in objective.axes}, self.choices)
        found |= {n: scope.derived(n) for n in values}
        found[name] = descend(inputs[name], seen["gradient"], inputs["rate"])
        yield Emission((part,), depth, _named(objective, found))

    def _collected(
        self, part: slice, states: NDArray[Any], kept: Mapping[str, NDArray[Any]]
    ) -> Iterator[Emission]:
        objective, training, first = self.objective, self.training, (_ALL, 0)[: self.depth]
        assert self.tape is not None
        given = {
            **self.constants(1),
            objective.parameter: self.lifted(states[first], 1),
            training.tape: self.lifted(self.tape[part], 1),
            **{n: self.lifted(rows[first], 1) for n, rows in kept.items()},
        }
        scope = Scope(objective, given, self.choices)
        names = [value.name for value in training.collected]
        fresh = {n: scope.derived(n) for n in names}
        yield Emission((part, 0)[: self.depth], 1, _named(objective, fresh))
        if self.depth > 1:
            held = {n: self.lifted(self.recorded(n)[part, :-1], 2) for n in names}
            yield Emission((part, slice(1, None)), 2, _named(objective, held))

    def edges(self) -> Iterator[Emission]:
        """The first carried state, what is measured after each rollout, and the end."""
        objective, training, depth = self.objective, self.training, self.depth
        constants = self.constants(0)
        start = Scope(objective, constants, self.choices)
        carried = {v.name: start.derived(v.name) for v in training.carried}
        yield Emission((0,) * depth, 0, _named(objective, carried))
        name = objective.parameter
        last = (_ALL, -1)[:depth]
        rows = {v.name: self.recorded(v.name) for v in training.carried}
        after = self.recorded(name)
        if training.measured:
            states = {name: np.concatenate([self.given[name][None], after[last]])}
            for n, values in rows.items():
                states[n] = np.concatenate([values[(0,) * depth][None], values[last]])
            given = {**self.constants(1), **{n: self.lifted(v, 1) for n, v in states.items()}}
            yield Emission((_ALL,), 1, self._at(training.measured, given))
        end = {n: self.lift(v[(-1,) * depth]) for n, v in {name: after, **rows}.items()}
        yield Emission((), 0, self._at(training.ends, {**constants, **end}))

    def _at(self, values: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
        more = {value.name: value.of for value in values}
        scope = Scope(self.objective, given, self.choices, more=more)
        return _named(self.objective, {v.name: scope.derived(v.name) for v in values})
