"""`parity faults`."""

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Framework", "faults"]


class Framework(StrEnum):
    """In whose twin."""

    JAX = "jax"
    TORCH = "torch"


def faults(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which; by default the whole catalogue."),
    ] = None,
    framework: Annotated[
        Framework | None, typer.Option(help="Plant in this twin only; by default in each.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the catalogue.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="For the backends.")
    ] = 600.0,
) -> int:
    """Plant known bugs in the twins and show who catches them.

    Exit code 1 if a bug is missed or seen at the wrong place, or a rewrite raises an alarm.
    """
    from cli import progress, show_faults
    from parity.faults import chosen, plant

    selected = chosen(names or [])
    if listing:
        show_faults.listing(selected)
        return 0
    frameworks = [framework.value] if framework else [f.value for f in Framework]
    outcomes = []
    with progress.display(list(Framework), quiet=False) as stage:
        for outcome in plant(selected, frameworks, timeout, stage):
            outcomes.append(outcome)
    return show_faults.matrix(selected, frameworks, outcomes)
