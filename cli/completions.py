"""What a shell may offer for an option, from the declarations of the objectives."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from parity.objectives import Objective

__all__ = ["choices", "constants", "objectives"]

Offers = list[tuple[str, str]]
"""What may stand there, each with its help."""


def objectives(incomplete: str) -> Offers:
    """Names of objectives, and the other names of them."""
    from parity.objectives import built_in

    return [
        (name, each.title)
        for each in built_in().values()
        for name in (each.name, *each.known_as)
        if name.startswith(incomplete)
    ]


def choices(ctx: typer.Context, args: list[str], incomplete: str) -> Offers:
    """`NAME=OPTION` for every option of every choice."""
    return _begun(
        (
            (f"{choice.name}={option}", says)
            for each in _meant(ctx, args)
            for choice in each.choices
            for option, says in choice.options.items()
        ),
        incomplete,
    )


def constants(ctx: typer.Context, args: list[str], incomplete: str) -> Offers:
    """`NAME=` for every constant that is one number."""
    return _begun(
        (
            (f"{constant.name}=", constant.says)
            for each in _meant(ctx, args)
            for constant in each.inputs
            if constant.role == "constant" and not constant.axes
        ),
        incomplete,
    )


def _begun(offers: Iterable[tuple[str, str]], incomplete: str) -> Offers:
    """Those that begin so, each once."""
    found: dict[str, str] = {}
    for name, says in offers:
        if name.startswith(incomplete):
            found.setdefault(name, says)
    return [*found.items()]


def _meant(ctx: typer.Context, args: list[str]) -> "Iterable[Objective]":
    """The objective that the command line names so far; all where it names none that there is."""
    from parity.errors import InputError
    from parity.objectives import built_in, find

    named = ctx.params.get("objective")
    for word, after in zip(args, [*args[1:], ""], strict=False):
        if word == "--objective" and after:
            named = after
        elif word.startswith("--objective="):
            named = word.partition("=")[2]
    try:
        return [find(named)] if named else built_in().values()
    except InputError:
        return built_in().values()
