"""`parity objectives`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli import completions

if TYPE_CHECKING:
    from parity.objectives import Objective

__all__ = ["PageFormat", "objectives"]

_HEAD = """\
# Objectives

<!-- made by `make docs` from the declarations in parity/objectives; do not edit -->

What `parity check FUNCTION --objective NAME` can judge. `parity objectives NAME` prints the same
for one of them, or for one of your own: `FILE.py:NAME`.
"""


class PageFormat(StrEnum):
    """How pages are printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def objectives(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Which, or FILE.py:NAME of your own; without a name, the list "
            "(json and markdown: everything).",
            autocompletion=completions.objectives,
        ),
    ] = None,
    output_format: Annotated[
        PageFormat, typer.Option("--format", help="What is printed.")
    ] = PageFormat.TEXT,
) -> int:
    """Show what can be checked: inputs, choices, quantities, known faults, as they are declared."""
    from parity.cli import show_objectives, styles
    from parity.cli.objective_pages import markdown, page
    from parity.objectives import built_in
    from parity.report.objectives import document

    if name is None:
        every = [document(each) for each in built_in().values()]
        if output_format is PageFormat.TEXT:
            show_objectives.listing(every)
        elif output_format is PageFormat.JSON:
            styles.as_json(every)
        else:
            styles.write(markdown(every, _HEAD))
        return 0
    told = document(_found(name), name if ":" in name else "")
    if output_format is PageFormat.TEXT:
        show_objectives.page(page(told))
    elif output_format is PageFormat.JSON:
        styles.as_json(told)
    else:
        styles.write(markdown([told]))
    return 0


def _found(name: str) -> "Objective":
    """The objective; what its file prints while it is loaded belongs to no document."""
    import contextlib
    import sys

    from parity.errors import InputError
    from parity.lessons.rehearsal import rehearse
    from parity.objectives import find

    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = find(name)
            if ":" in name:
                rehearse(found, name)
            return found
    except InputError as error:
        raise InputError(f"NAME{str(error).removeprefix('--objective')}") from error
