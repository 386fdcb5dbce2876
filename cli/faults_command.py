"""`parity faults`."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import Format, Framework, OutputFormat, Timeout, require_renderer, writable

__all__ = ["faults"]


def faults(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which; by default the whole catalogue."),
    ] = None,
    framework: Annotated[
        Framework | None, typer.Option(help="Plant in this twin only; by default in each.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="One bug of every kind, at the core of the probe grid: a minute."
        ),
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the catalogue.")] = False,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Draw the matrix: faults by layers (or FILE.png)."),
    ] = None,
    output_format: OutputFormat = Format.TEXT,
    timeout: Timeout = 600.0,
) -> int:
    """Plant known bugs in the twins and show who catches them.

    Exit code 1 if a bug is missed or seen at the wrong place, or a rewrite raises an alarm.
    """
    from parity.cli import progress, show_cases, show_faults
    from parity.errors import InputError
    from parity.faults import chosen, of_each_kind, plant
    from parity.report.cases import of_faults

    selected = chosen(names or [])
    if quick:
        selected = of_each_kind(selected)
    if listing and output_format is not Format.TEXT:
        raise InputError(f"--format: got {output_format.value} beside --list; expected text")
    if listing:
        show_faults.listing(selected)
        return 0
    if figure and figure.suffix not in (".svg", ".png"):
        raise InputError(f"--figure: got {figure}; expected FILE.svg or FILE.png")
    if figure:
        writable("--figure", figure)
        require_renderer("no --figure")
    frameworks = [framework.value] if framework else [f.value for f in Framework]
    outcomes = []
    with progress.display(["jax", "jax#2", "torch"], quiet=False) as stage:
        for outcome in plant(selected, frameworks, timeout, stage, quick=quick):
            outcomes.append(outcome)
    if figure:
        from parity.figures import render_faults
        from parity.files import write_whole

        write_whole(figure, render_faults(outcomes, "png" if figure.suffix == ".png" else "svg"))
    if output_format is Format.TEXT:
        show_faults.matrix(selected, frameworks, outcomes)
    elif output_format is Format.JSON:
        show_faults.as_json(outcomes)
    else:
        show_cases.show(of_faults(outcomes), show_faults.closing(outcomes), output_format)
    complete = len(outcomes) == len(selected) * len(frameworks)
    return 0 if complete and all(outcome.as_expected for outcome in outcomes) else 1
