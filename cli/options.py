"""Options that several commands share."""

import math
from typing import Annotated

import typer

__all__ = ["Timeout"]


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):  # a bound alone lets NaN pass
        raise typer.BadParameter(f"got {seconds}; expected a finite number of seconds")
    return seconds


Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, callback=_finite, help="For the backends."),
]
