"""`parity mechanics`."""

from typing import Annotated

import typer

from parity.cli.options import Timeout

__all__ = ["mechanics"]


def mechanics(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which; without a name, the list."),
    ] = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="Wait for an answer before showing the table.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    timeout: Timeout = 600.0,
) -> int:
    """Show a mechanic of the lessons live in JAX, in PyTorch and in closed form.

    Exit code 1 if any row disagrees.
    """
    from parity.cli import progress, show_mechanics
    from parity.errors import InputError
    from parity.mechanics import catalogue, chosen, show

    if ask and (as_json or not names):
        wrong = "--json" if as_json else "no name"
        raise InputError(f"--ask: got {wrong} beside it; expected a name, and no --json")
    if not names:
        show_mechanics.listing(catalogue(), as_json=as_json)
        return 0
    selected = chosen(names)
    turns = [[mechanic] for mechanic in selected] if ask else [selected]
    tables = []
    for turn in turns:
        said = show_mechanics.question(turn[0]) if ask else ""
        with progress.display(["oracle", "jax", "torch"], quiet=as_json) as stage:
            shown = list(show(turn, timeout, stage))
        if not as_json:
            for each in shown:
                show_mechanics.table(each, said)
        tables += shown
    if as_json:
        show_mechanics.tables_json(tables)
    return 0 if all(each.agree for each in tables) else 1
