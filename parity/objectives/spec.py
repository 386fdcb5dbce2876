"""What an objective declares; oracle, gradients, probes, coverage, faults and matching follow.

A definition is a function whose parameters are names: of inputs, of choices, and of quantities
before it. It is written for one state, in `parity.arithmetic.operations`, axis 0 being the first
axis that the quantity declares.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec

__all__ = [
    "STEP_AXES",
    "Choice",
    "Claim",
    "Declared",
    "Fault",
    "Input",
    "Kind",
    "Objective",
    "Role",
    "State",
    "Training",
    "Value",
]

Role = Literal["differentiated", "frozen", "index", "constant"]
Kind = Literal["value", "gradient", "parameter", "history", "probability", "carried state", "count"]
Definition = Callable[..., Any]
State = tuple[str, Mapping[str, Any]]
"""A label, and every input by name."""

STEP_AXES = ("point", "rollout", "epoch", "update", "checkpoint")


@dataclass(frozen=True)
class Input:
    """What an objective is a function of.

    Attributes:
        name: ours, and of the parameter in both twins.
        axes: one word per dimension.
        role: differentiated; frozen, whose gradient must be 0; index, of entries along the axis
            `of`; constant.
        says: what it is, with its unit.
        known_as: other names of the field.
        of: the axis that an index picks from.
        low: the least that it may be.
        high: the most.
        draw: how probes draw it, by names of inputs before it and `random`, `shape`, `scale`.
        padding: what stands at padded places.
        shiftable: adding a constant to all of it changes nothing, so its gradient sums to 0.
        normalised: log-probs of a distribution along the first axis.
    """

    name: str
    axes: tuple[str, ...]
    role: Role
    says: str
    known_as: tuple[str, ...] = ()
    of: str = ""
    low: float = -math.inf
    high: float = math.inf
    draw: Definition | None = None
    padding: float = 0.0
    shiftable: bool = False
    normalised: bool = False


@dataclass(frozen=True)
class Value:
    """A quantity with its definition.

    Attributes:
        name: ours.
        axes: one word per dimension.
        of: its definition.
        says: what it is.
        kind: what sort of thing it is.
        recorded: whether implementations report it.
        offered: whether a user's function may ask for it in place of what it is made of.
        known_as: other names of the field.
        text: its definition as a user would write it, for programs that reproduce a failure.
        padding: what stands at padded places where it is offered.
        normalised: log-probs of a distribution along the first axis.
        nonnegative: it is at least 0.
        law: what must hold of it where it is carried state.
    """

    name: str
    axes: tuple[str, ...]
    of: Definition
    says: str = ""
    kind: Kind = "value"
    recorded: bool = True
    offered: bool = False
    known_as: tuple[str, ...] = ()
    text: str = ""
    padding: float = 0.0
    normalised: bool = False
    nonnegative: bool = False
    law: str = "unchanged at every update"


@dataclass(frozen=True)
class Choice:
    """A convention in which right implementations differ.

    Attributes:
        name: for `--set NAME=OPTION`; a parameter of definitions that depend on it.
        says: what is chosen.
        options: option to what it means; the first is the default.
        offers: option to {input: what is handed over in its place}.
        spares: option to the inputs that it makes needless.
    """

    name: str
    says: str
    options: Mapping[str, str]
    offers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    spares: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def default(self) -> str:
        """The option that holds where none is chosen."""
        return next(iter(self.options))


@dataclass(frozen=True)
class Fault:
    """A known kind of bug, or a rewrite that is none, as an edit of definitions.

    Attributes:
        name: for the command line.
        sentence: what is wrong.
        equation: what is computed instead.
        source: a public report of it, or why there is none.
        first: the quantity that is expected to part first; empty for a rewrite.
        at: the step at which it parts, by time axes; empty where only the probes can see it.
        edits: quantity to the definition that stands in its place in the loss.
        collects: the same where a rollout is collected; the tape's own input too.
        unfrozen: frozen inputs through which a gradient passes.
        update: what a training step does instead: a function of the parameter, `gradient`, `rate`,
            `last` (the gradient applied before) and carried state by name, to what changes.
        equivalent: a rewrite that is no bug and must raise no alarm.
    """

    name: str
    sentence: str
    equation: str
    source: str
    first: str = ""
    at: Mapping[str, int] = field(default_factory=dict)
    edits: Mapping[str, Definition] = field(default_factory=dict)
    collects: Mapping[str, Definition] = field(default_factory=dict)
    unfrozen: tuple[str, ...] = ()
    update: Definition | None = None
    equivalent: bool = False


@dataclass(frozen=True)
class Claim:
    """What must hold inside one run: `left` equals `right`, or does not exceed it.

    Attributes:
        name: in words.
        left: one side.
        right: the other.
        allowed: how far rounding may part them; 0: exactly.
        at_most: `left` may be smaller.
    """

    name: str
    left: Any
    right: Any
    allowed: Any = 0.0
    at_most: bool = False


@dataclass(frozen=True)
class Training:
    """How an objective is trained, by gradient descent on its differentiated input.

    Attributes:
        table: the TOML table's type.
        loops: time axes of an update; a tape has one row for each step of the first.
        given: from a table, the start of the parameter and everything else by name.
        sizes: from a table, the length of every axis but `checkpoint`.
        takes: name to the quantity of another objective, trained before.
        carried: what every update hands on unchanged, from what is given.
        tape: the index input that is sampled; empty where nothing is.
        collected: what is frozen when a rollout is collected.
        measured: what is measured before the first rollout and after each.
        ends: what is computed once, at the end.
        misfits: from table and problem, what the types alone cannot say: field, value, expectation.
        laws: objective-specific claims, each a function of recorded quantities by name.
        lesson: the recorded lesson with which a user's function is trained.
        digested_when_absent: whether the digest of a problem without it says so, as old tapes' do.
    """

    table: type[msgspec.Struct]
    loops: tuple[str, ...]
    given: Callable[[Any], Mapping[str, Any]]
    sizes: Callable[[Any], Mapping[str, int]]
    lesson: str
    takes: Mapping[str, str] = field(default_factory=dict)
    carried: tuple[Value, ...] = ()
    tape: str = ""
    collected: tuple[Value, ...] = ()
    measured: tuple[Value, ...] = ()
    ends: tuple[Value, ...] = ()
    misfits: Callable[[Any, Any], Iterator[tuple[str, Any, str]]] | None = None
    laws: tuple[Definition, ...] = ()
    digested_when_absent: bool = False


class Declared(msgspec.Struct, frozen=True):
    """One recorded quantity: its full name, axes and kind; `integer` for indices."""

    name: str
    axes: tuple[str, ...]
    kind: Kind
    integer: bool = False

    @property
    def objective(self) -> str:
        """The objective that it belongs to."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Objective:
    """The whole truth about an objective.

    Attributes:
        name: ours; that of the file in both twins.
        title: what it is, in a line.
        equation: the loss, as papers write it.
        source: where it comes from.
        inputs: in the order of the twins' parameters.
        values: quantities in order of computation; the one called `loss` is differentiated.
        counted: the axis of samples or pairs, over which the loss is a mean.
        choices: its conventions.
        known_as: other names on the command line.
        needs: groups of inputs or offered quantities, of each of which a function must take one.
        branches: name to a boolean function of quantities.
        kinks: distance to where the derivative jumps, by names; probes keep off it.
        core: hand-picked states of one shape; drawn ones where there are none.
        far: hand-picked states of seven by two.
        faults: known bugs and rewrites.
        training: how it is trained; None where it is not.
        behaviour: the log-probs of the samples under the policy that drew them.
        laws: claims at fixed states, each a function of inputs and recorded quantities by name.
        rank: its place in lists.
    """

    name: str
    title: str
    equation: str
    source: str
    inputs: tuple[Input, ...]
    values: tuple[Value, ...]
    counted: str
    choices: tuple[Choice, ...] = ()
    known_as: tuple[str, ...] = ()
    needs: tuple[tuple[str, ...], ...] = ()
    branches: Mapping[str, Definition] = field(default_factory=dict)
    kinks: Definition | None = None
    core: Callable[[], list[State]] | None = None
    far: Callable[[], list[State]] | None = None
    faults: Sequence[Fault] = ()
    training: Training | None = None
    behaviour: str = ""
    laws: tuple[Definition, ...] = ()
    rank: int = 100

    @cached_property
    def by_input(self) -> dict[str, Input]:
        """Name to input."""
        return {each.name: each for each in self.inputs}

    @cached_property
    def definitions(self) -> dict[str, Value]:
        """Name to value, of a run too."""
        training = self.training
        more = training.carried + training.collected if training else ()
        return {value.name: value for value in (*more, *self.values)}

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """Input to its axes, in order."""
        return {each.name: each.axes for each in self.inputs}

    def named(self, *roles: Role) -> list[str]:
        """The inputs of some roles."""
        return [each.name for each in self.inputs if each.role in roles]

    @property
    def parameter(self) -> str:
        """The first differentiated input: what training moves."""
        return self.named("differentiated")[0]

    @property
    def gradients(self) -> dict[str, str]:
        """Gradient quantity to its input: the differentiated ones, then those that must be 0."""
        moving = self.named("differentiated")
        alone = len(moving) == 1
        named = {"gradient" if alone else f"gradient_{name}": name for name in moving}
        return named | {f"gradient_{name}": name for name in self.named("frozen")}

    def choice(self, name: str) -> Choice | None:
        """One of its choices."""
        return next((each for each in self.choices if each.name == name), None)

    @cached_property
    def at_points(self) -> dict[Declared, tuple[str, ...]]:
        """What an evaluation of points records, each with its state axes, in order."""
        return {
            Declared(f"{self.name}/{name}", ("point", *axes), kind): axes
            for name, axes, kind in self._update()
        }

    def _update(self) -> Iterator[tuple[str, tuple[str, ...], Kind]]:
        for value in self.values:
            if value.recorded:
                yield value.name, value.axes, value.kind
        for name, of in self.gradients.items():
            yield name, self.by_input[of].axes, "gradient"

    @cached_property
    def in_a_run(self) -> tuple[Declared, ...]:
        """What a training run records, in order of computation."""
        training = self.training
        if training is None:
            return ()
        loops, first = training.loops, training.loops[:1]
        found: list[tuple[str, tuple[str, ...], Kind, bool]] = [
            (v.name, (*loops, *v.axes), v.kind, False) for v in training.carried
        ]
        if training.tape:
            axes = self.by_input[training.tape].axes
            found.append((training.tape, (*first, *axes), "carried state", True))
        found += [(v.name, (*loops, *v.axes), v.kind, False) for v in training.collected]
        found += [(name, (*loops, *axes), kind, False) for name, axes, kind in self._update()]
        moved = self.by_input[self.parameter]
        found.append((moved.name, (*loops, *moved.axes), "parameter", False))
        found += [(v.name, ("checkpoint", *v.axes), v.kind, False) for v in training.measured]
        found += [(v.name, v.axes, v.kind, False) for v in training.ends]
        return tuple(
            Declared(f"{self.name}/{name}", axes, kind, integer)
            for name, axes, kind, integer in found
        )
