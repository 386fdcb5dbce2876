"""Options that several commands share."""

import atexit
import math
import os
import shutil
import tempfile
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "SUMMARY",
    "Format",
    "Framework",
    "OutputFormat",
    "Timeout",
    "folder",
    "require_renderer",
    "writable",
]


SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable in which GitHub names the file for the summary of a step."""


class Format(StrEnum):
    """How a judgement is printed."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


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


def folder(text: str) -> Path:
    """A folder that the user named; an empty name is a variable that was not set."""
    if not text:
        raise typer.BadParameter("got ''; expected a folder")
    return Path(text)


def writable(option: str, path: Path) -> None:
    """Refuses, before anything starts, a file that cannot be written at the end.

    Args:
        option: which names it.
        path: the file.

    Raises:
        InputError: it is a folder, or lies below a file.
    """
    from parity.errors import InputError

    nearest = next(place for place in path.absolute().parents if place.exists())
    if path.is_dir() or not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise InputError(f"{option}: got {path}; expected a file in a folder that can be written")


def _summary_is_writable(wanted: Format) -> Format:
    """Before anything starts: a verdict that cannot be told is none."""
    place = os.environ.get(SUMMARY)
    if wanted is Format.GITHUB and place:
        try:
            Path(place).open("a").close()
        except OSError as error:
            raise typer.BadParameter(
                f"{SUMMARY}: got {place!r}: {error.strerror}; expected a file to append to"
            ) from error
    return wanted


OutputFormat = Annotated[
    Format,
    typer.Option("--format", callback=_summary_is_writable, help="What is printed."),
]


def require_renderer(instead: str) -> None:
    """Refuses a command that draws where nothing can draw; else it will leave no trace at home.

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
    _leave_no_list_of_fonts()


def _leave_no_list_of_fonts() -> None:
    """A list that matplotlib writes at home: who has none there gets none from us."""
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        kept = (caches / "matplotlib").exists() or (Path.home() / ".matplotlib").exists()
    except RuntimeError:  # nobody's home
        kept = False
    if not kept and "MPLCONFIGDIR" not in os.environ:
        place = tempfile.mkdtemp(prefix="parity-")
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        os.environ["MPLCONFIGDIR"] = place
