"""`parity faults`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Framework, Timeout, require_renderer

__all__ = ["faults"]


def faults(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which; by default the whole catalogue."),
    ] = None,
    framework: Annotated[
        Framework | None, typer.Option(help="Plant in this twin only; by default in each.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the catalogue.")] = False,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Draw the matrix: faults by layers (or FILE.png)."),
    ] = None,
    timeout: Timeout = 600.0,
) -> int:
    """Plant known bugs in the twins and show who catches them.

    Exit code 1 if a bug is missed or seen at the wrong place, or a rewrite raises an alarm.
    """
    from cli import progress, show_faults
    from parity.errors import InputError
    from parity.faults import chosen, plant

    selected = chosen(names or [])
    if listing:
        show_faults.listing(selected)
        return 0
    if figure and (figure.suffix not in (".svg", ".png") or not figure.parent.is_dir()):
        raise InputError(f"--figure: got {figure}; expected FILE.svg or FILE.png in a folder")
    if figure:
        require_renderer("no --figure")
    frameworks = [framework.value] if framework else [f.value for f in Framework]
    outcomes = []
    with progress.display(["jax", "jax#2", "torch"], quiet=False) as stage:
        for outcome in plant(selected, frameworks, timeout, stage):
            outcomes.append(outcome)
    if figure:
        from figures import render_faults
        from parity.files import write_whole

        write_whole(figure, render_faults(outcomes, "png" if figure.suffix == ".png" else "svg"))
    return show_faults.matrix(selected, frameworks, outcomes)
