"""What machines read: JUnit's XML, or GitHub's annotations and the summary of a step."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cli.options import Format
from parity.errors import ParityError
from parity.report.cases import Case

__all__ = ["ending", "show"]


def show(cases: Sequence[Case], closing: str, output_format: Format) -> None:
    """Prints cases for a machine.

    Args:
        cases: what was judged.
        closing: the verdict and what it rests on, in one line.
        output_format: junit or github.
    """
    if output_format is Format.JUNIT:
        from parity.report.junit import junit

        sys.stdout.write(junit(cases))
        return
    from parity.report.github import annotations, summary

    sys.stdout.write("".join(f"{line}\n" for line in annotations(cases, closing)))
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if place:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(summary(cases, closing))


@contextmanager
def ending(command: str, output_format: Format) -> Iterator[None]:
    """Tells machines too when a command ends without a verdict: no output is no pass.

    Args:
        command: its name.
        output_format: how its verdict would have been printed.
    """
    try:
        yield
    except ParityError as error:
        if output_format in (Format.JUNIT, Format.GITHUB):
            show([Case("parity", command, "inconclusive", str(error))], str(error), output_format)
        raise
