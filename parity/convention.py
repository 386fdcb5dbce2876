"""How a function of the user's states an objective, and which of its arguments is which."""

import difflib
import inspect
import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from parity.errors import InputError
from parity.objectives import Objective
from parity.objectives.spec import Choice

__all__ = [
    "MASK",
    "OLD_OPTIONS",
    "Convention",
    "Kl",
    "Matched",
    "Policy",
    "Reduction",
    "Shape",
    "Sign",
    "bind",
    "known_as",
    "match",
    "offered",
    "stated",
]

MASK = "mask"
_MASK_KNOWN_AS = ("action_mask", "response_mask", "loss_mask")

OLD_OPTIONS = ("sign", "reduction", "policy", "shape", "kl")
"""Choices that also have an option of their own on the command line, from before `--set`."""

Sign = Literal["loss", "objective"]
Reduction = Literal["mean", "sum", "per-sample"]
Policy = Literal["logits", "logps"]
Shape = Literal["N", "N,1", "B,T"]
Kl = Literal["inside", "absent"]

Matched = dict[str, str]
"""Parameter of the user's function to the name of our input, in the order of its parameters."""


class Convention(msgspec.Struct, frozen=True, kw_only=True):
    """What a function returns and wants, where it differs from the twins' losses.

    Attributes:
        choices: choice to option, where it is not the default.
        constants: constants that the function has built in.
    """

    choices: dict[str, str] = {}
    constants: dict[str, float] = {}

    def option(self, objective: Objective, name: str) -> str:
        """The option in force; empty where the objective has no such choice."""
        choice = objective.choice(name)
        return self.choices.get(name, choice.default) if choice else ""

    def in_force(self, objective: Objective) -> dict[str, str]:
        """Every choice of the objective."""
        return {c.name: self.choices.get(c.name, c.default) for c in objective.choices}

    def told(self, objective: Objective) -> dict[str, Any]:
        """For reports: every choice in force, who detaches, and the constants."""
        told: dict[str, Any] = {
            "sign": "loss",
            "reduction": "mean",
            "policy": "logits",
            "shape": "N",
            "kl": "inside",
        } | self.in_force(objective)
        frozen = told.pop("frozen", "inside")
        return told | {"detached": frozen == "caller", "constants": dict(self.constants)}

    def validate(self, objective: Objective, word: str) -> None:
        """Checks that the objective has what is chosen.

        Args:
            objective: of the function.
            word: the user's word for it, for messages.

        Raises:
            InputError: no such choice, option or constant, or one that is out of range.
        """
        for name, option in self.choices.items():
            choice = objective.choice(name)
            if choice is None:
                known = ", ".join(each.name for each in objective.choices)
                if name in OLD_OPTIONS:
                    told = f"{word} has no such choice, expected one of {known}"
                    raise InputError(f"--{name}: got {option}; {told}")
                raise InputError(f"--set: got {name}={option}; expected one of {known} for {word}")
            if option not in choice.options:
                known = ", ".join(choice.options)
                place = f"--{name}" if name in OLD_OPTIONS else f"--set: {name}"
                raise InputError(f"{place}: got {option!r}; expected one of {known}")
        scalars = {
            n: i for n, i in objective.by_input.items() if i.role == "constant" and not i.axes
        }
        for name, value in self.constants.items():
            if name not in scalars:
                known = " or ".join(scalars) or "none"
                raise InputError(f"--constant: got {name!r}; expected {known} for {word}")
            each = scalars[name]
            if not (math.isfinite(value) and each.low <= value <= each.high):
                above = "positive" if each.low > 0 else "finite"
                least = f", at least {each.low:g}" if each.low == 0 else ""
                most = f", at most {each.high:g}" if math.isfinite(each.high) else ""
                raise InputError(
                    f"--constant: {name}: got {value}; expected a {above} number{least}{most}"
                )


def stated(
    chosen: Mapping[str, str],
    constants: Mapping[str, float],
    *,
    detached: bool = False,
    **old: str | None,
) -> Convention:
    """A convention from choices, and from the older options that say the same.

    Args:
        chosen: choice to option.
        constants: constants that the function has built in.
        detached: `frozen=caller`.
        **old: option of a choice of that name; None where it was not given.

    Raises:
        InputError: a choice is given twice, and not the same.
    """
    choices = dict(chosen)
    for name, option in {**old, "frozen": "caller" if detached else None}.items():
        if option is not None and choices.setdefault(name, option) != option:
            raise InputError(f"--set: got {name}={choices[name]}, but {option} is asked for too")
    return Convention(choices=choices, constants=dict(constants))


def offered(objective: Objective) -> dict[str, tuple[str, ...]]:
    """What a function may ask for, with its axes: inputs, what is made of them, and a mask."""
    more = {v.name: v.axes for v in objective.values if v.offered}
    return {**objective.axes, **more, MASK: (objective.counted,)}


def known_as(objective: Objective) -> dict[str, tuple[str, ...]]:
    """What may be asked for to the other names under which the field knows it."""
    names = {each.name: each.known_as for each in objective.inputs}
    names |= {v.name: v.known_as for v in objective.values if v.offered}
    return names | {MASK: _MASK_KNOWN_AS}


def _needs(objective: Objective, convention: Convention) -> dict[tuple[str, ...], Choice | None]:
    """Groups of which an argument must take one, with the choice that would make each needless."""
    groups = objective.needs or tuple((name,) for name in objective.axes)
    chosen = convention.in_force(objective)
    spared = {n for c in objective.choices for n in c.spares.get(chosen[c.name], ())}
    needed: dict[tuple[str, ...], Choice | None] = {}
    for group in groups:
        if not spared & {*group}:
            spares = (
                c for c in objective.choices if any({*n} & {*group} for n in c.spares.values())
            )
            needed[group] = next(spares, None)
    return needed


def match(
    signature: inspect.Signature,
    name: str,
    objective: Objective,
    convention: Convention,
    given: Mapping[str, str],
) -> Matched:
    """Finds out which of our inputs each parameter of a function is.

    Args:
        signature: of the user's function.
        name: of the function, for messages.
        objective: what it is said to compute.
        convention: how it states the objective.
        given: parameter to our input, where the user said so.

    Raises:
        InputError: a parameter is none of our inputs, or an input goes nowhere.
    """
    offers = offered(objective)
    ours = {alias: known for known, also in known_as(objective).items() for alias in also}
    ours |= {known: known for known in offers}
    both = f"{name}{signature}; expected arguments among {', '.join(offers)}"
    for theirs, known in given.items():
        if theirs not in signature.parameters:
            raise InputError(f"--map: {theirs}: no such argument: found {both}")
        if known not in offers:
            raise InputError(f"--map: {theirs}={known}: no such input: found {both}")
    matched: Matched = {}
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        known = given.get(parameter.name) or ours.get(parameter.name.lower(), "")
        if known:
            matched[parameter.name] = known
        elif parameter.default is parameter.empty:
            near = difflib.get_close_matches(parameter.name.lower(), [*ours], n=1)
            meant = f"--map {parameter.name}={ours[near[0]]}" if near else "--map THEIRS=OURS"
            raise InputError(
                f"argument {parameter.name!r} is none of our inputs: found {both} "
                f"({meant}, or --adapter FILE.py:FUNCTION)"
            )
    for group, choice in _needs(objective, convention).items():
        if {*matched.values(), *convention.constants} & {*group}:
            continue
        advice = "--map THEIRS=OURS"
        if choice:
            option = next(o for o, names in choice.spares.items() if {*names} & {*group})
            old = choice.name in OLD_OPTIONS
            advice += f", or {f'--{choice.name} ' if old else f'--set {choice.name}='}{option}"
        if objective.by_input.get(group[0]) and objective.by_input[group[0]].role == "constant":
            advice += f", or --constant {group[0]}=VALUE"
        raise InputError(f"no argument takes {' or '.join(group)}: found {both} ({advice})")
    if convention.option(objective, "shape") == "B,T" and MASK not in matched.values():
        raise InputError(f"no argument takes mask, which --shape B,T needs: found {both}")
    return matched


def bind(
    signature: inspect.Signature, matched: Matched, inputs: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Puts our inputs where a function wants them: positional and keyword arguments."""
    positional: list[object] = []
    keywords: dict[str, object] = {}
    for theirs, ours in matched.items():
        if signature.parameters[theirs].kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(inputs[ours])
        else:
            keywords[theirs] = inputs[ours]
    return positional, keywords
