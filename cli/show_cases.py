"""What machines read: JUnit's XML, or GitHub's annotations and the summary of a step."""

import os
from collections.abc import Sequence
from pathlib import Path

from parity.cli import styles
from parity.cli.options import SUMMARY, Format
from parity.report.cases import Case

__all__ = ["show", "unjudged"]


def show(cases: Sequence[Case], closing: str, output_format: Format) -> None:
    """Prints cases for a machine.

    Args:
        cases: what was judged.
        closing: the verdict and what it rests on, in one line.
        output_format: junit or github.
    """
    if output_format is Format.JUNIT:
        from parity.report.junit import junit

        styles.write(junit(cases))
        return
    from parity.report.github import annotations, summary

    place = os.environ.get(SUMMARY)
    if place:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(summary(cases, closing))
    styles.write("".join(f"{line}\n" for line in annotations(cases, closing)))


def unjudged(words: Sequence[str], message: str) -> None:
    """Tells machines too when a command ends without a verdict: no output is no pass.

    Args:
        words: the command line.
        message: why it ended.
    """
    wanted = [
        word.removeprefix("--format=") if word.startswith("--format=") else following
        for word, following in zip(words, [*words, ""][1:], strict=True)
        if word == "--format" or word.startswith("--format=")
    ]
    if wanted and wanted[-1] in (Format.JUNIT, Format.GITHUB):
        command = next((word for word in words if not word.startswith("-")), "parity")
        show([Case("parity", command, "inconclusive", message)], message, Format(wanted[-1]))
