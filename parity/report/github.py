"""Cases as GitHub's workflow commands, and as the summary of a step."""

import ast
import os
from collections.abc import Sequence
from pathlib import Path

from parity.comparison import worst_verdict
from parity.report.cases import Case

__all__ = ["annotations", "summary"]

SHOWN = 10
"""GitHub shows at most ten errors and ten warnings of a step (its documentation)."""


def annotations(cases: Sequence[Case], closing: str) -> list[str]:
    """One line for each case that is no match, worst first, each note, and one for the whole.

    Args:
        cases: what was judged.
        closing: the verdict and what it rests on, in one line.
    """
    verdict = worst_verdict(case.verdict for case in cases)
    failing = [case for case in cases if case.verdict != "match"]
    failing.sort(key=lambda case: case.verdict != verdict)
    lines = [
        _command("error", case.message, title=f"{case.suite}: {case.name}", **_place(case.function))
        for case in failing[: SHOWN - 1]
    ]
    more = len(failing) - len(lines)
    rest = f" ({more} more quantities are no match)" if more else ""
    kind = "notice" if verdict == "match" else "error"
    noted = [case for case in cases if case.name == "notes"][: SHOWN - 1]
    lines += [_command("notice", case.message, title=f"{case.suite}: notes") for case in noted]
    return [*lines, _command(kind, f"{closing}{rest}", title="parity")]


def summary(cases: Sequence[Case], closing: str) -> str:
    """Markdown: the closing line, what is no match, and the counts of every suite.

    Args:
        cases: what was judged.
        closing: the verdict and what it rests on, in one line.
    """
    lines = ["### parity", "", _cell(closing), "", "| what | judged | match | verdict |"]
    lines.append("| --- | ---: | ---: | --- |")
    for suite in dict.fromkeys(case.suite for case in cases):
        mine = [case for case in cases if case.suite == suite]
        good = sum(case.verdict == "match" for case in mine)
        verdict = worst_verdict(case.verdict for case in mine)
        lines.append(f"| {_cell(suite)} | {len(mine)} | {good} | {verdict} |")
    failing = [case for case in cases if case.verdict != "match"]
    if failing:
        lines += ["", "| quantity | verdict | why |", "| --- | --- | --- |"]
        lines += [f"| {_cell(c.name)} | {c.verdict} | {_cell(c.message)} |" for c in failing]
    return "\n".join(lines) + "\n"


def _place(function: str) -> dict[str, str]:
    """File and line of a user's function, seen from the workspace or from here, if it is there."""
    place, _, name = function.rpartition(":")
    root = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    if not place or not Path(place).resolve().is_relative_to(root):
        return {}
    path = Path(place).resolve()
    found = {"file": path.relative_to(root).as_posix()}
    try:
        parsed = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return found
    for node in parsed.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            found["line"] = str(node.lineno)
    return found


def _command(kind: str, message: str, **properties: str) -> str:
    """A workflow command, with what would end it or its properties escaped."""
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{kind} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _cell(text: str) -> str:
    """Text that breaks no table and is no markup."""
    for special in "\\|<>`*_[":
        text = text.replace(special, f"\\{special}")
    return " ".join(text.split())
