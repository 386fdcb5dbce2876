"""Options that several commands share."""

import math
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated

import typer

__all__ = ["Format", "Framework", "Timeout", "require_renderer"]


class Format(StrEnum):
    """How a judgement is printed."""

    TEXT = "text"
    JSON = "json"


class Framework(StrEnum):
    """Whose twin, or whose random numbers."""

    JAX = "jax"
    TORCH = "torch"


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):  # a bound alone lets NaN pass
        raise typer.BadParameter(f"got {seconds}; expected a finite number of seconds")
    return seconds


Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, callback=_finite, help="For the backends."),
]


def require_renderer(instead: str) -> None:
    """Refuses a command that draws where nothing can draw.

    Args:
        instead: what the user may do without.

    Raises:
        InputError: matplotlib is not installed.
    """
    from parity.errors import InputError

    if find_spec("matplotlib") is None:
        raise InputError(
            "figures: matplotlib is not installed; "
            f"expected pip install 'rlhf-parity[figures]', or {instead}"
        )
