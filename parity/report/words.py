"""Judgements of a user's functions in words: one place for the command line and the assertions."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from parity.report.schema import Diagnosis
from parity.report.summary import totals

if TYPE_CHECKING:
    from parity.comparison import Comparison
    from parity.judging import CheckReport
    from parity.parting import AgainstReport

__all__ = [
    "about_check",
    "about_pair",
    "check_behaviour",
    "check_failure",
    "covered",
    "diagnosed",
    "pair_failure",
    "ratio",
    "short",
    "summary",
]

MOST = 4  # differences of two functions that anyone wants to read


def ratio(value: float) -> str:
    """A difference over its allowance."""
    return f"{value:.2f}" if value < 100 else f"{value:.0e}"


def short(value: float | str) -> str:
    """A number as far as anyone reads it."""
    return value if isinstance(value, str) else f"{value:.3g}"


def diagnosed(diagnosis: Diagnosis, name: str) -> str:
    """Which known fault something behaves like.

    Args:
        diagnosis: what was found.
        name: what to call the thing.
    """
    if diagnosis.reason:
        return f"{name} was not compared with the known faults: {diagnosis.reason}"
    if not diagnosis.fault:
        return f"{name} behaves like none of the {diagnosis.tried} known faults that part there"
    others = diagnosis.indistinguishable
    also = f"; here the same as {', '.join(others)}" if others else ""
    return f"{name} behaves as fault `{diagnosis.fault}`: {diagnosis.sentence}{also}"


def about_check(report: "CheckReport") -> list[str]:
    """What is to be known of a function beside its values."""
    return [
        *(f"note: it {note}" for note in report.notes),
        *(f"widened: {widening.sentence()}" for widening in report.widened),
    ]


def covered(report: "CheckReport") -> list[str]:
    """How many branches of the objective the probes reached, and which they did not."""
    cells = {c.cell: c for part in report.lessons if part.coverage for c in part.coverage.cells}
    if not cells:
        return []
    missed = [name for name, cell in cells.items() if not cell.exercised]
    told = f"coverage: {len(cells) - len(missed)} of {len(cells)} branches at the probes"
    return [f"{told}; not exercised: {', '.join(missed)}" if missed else told]


def check_failure(report: "CheckReport") -> list[str]:
    """Where a function fails first; nothing where it does not fail."""
    lines = [
        f"not compared in {lesson.dtype}: {reason}"
        for lesson in report.lessons
        for reason in _reasons(lesson.comparisons)
    ]
    cell = report.first
    if cell:
        entry = cell.entry
        lines += [
            f"first failing cell ({cell.dtype}, {cell.mode}, {cell.grid}): {cell.label}",
            f"  {cell.quantity}{list(entry.index[1:]) or ''}: "
            f"got {entry.left}, right is {entry.right}",
            f"  difference {short(entry.difference)}, allowed {short(entry.allowed)}",
        ]
    every = [c for lesson in report.lessons for c in lesson.comparisons]
    lines += dict.fromkeys(c.reason for c in every if c.reason and c.first)
    wrong = {c.quantity for c in every if c.first}
    if wrong and wrong <= _frozen(report):
        lines.append("its values are right; if its caller detaches what is frozen: --detached")
    return lines


def _frozen(report: "CheckReport") -> set[str]:
    """The gradients that must be 0."""
    from parity.objectives import find

    objective = find(report.objective)
    gradients = objective.gradients.items()
    return {f"{objective.name}/{n}" for n, of in gradients if of in objective.named("frozen")}


def check_behaviour(report: "CheckReport") -> list[str]:
    """What a function behaves like; nothing where that was not asked."""
    return [diagnosed(report.diagnosis, "it")] if report.diagnosis else []


def summary(report: "CheckReport") -> str:
    """How much was compared and how near it came; or what the function did instead."""
    if report.fault:
        where, _, what = report.fault.partition(": ")
        return f"{report.target} {what} {where}"
    summed = totals(c for lesson in report.lessons for c in lesson.comparisons)
    line = f"{summed.values:,} values compared"
    if summed.tightest:
        line += f"; largest difference {ratio(summed.ratio)} of the allowance"
    return line


def about_pair(report: "AgainstReport") -> list[str]:
    """What is to be known of two functions beside their values."""
    found = zip(
        "AB", (report.left, report.right), report.signatures, report.frameworks, strict=True
    )
    return [
        *(f"{side}: {name}: {signature} ({where})" for side, name, signature, where in found),
        f"gradients to: {', '.join(report.differentiated) or 'none'}",
        *(f"note: {note}" for note in report.notes),
        *(f"widened: {widening.sentence()}" for widening in report.widened),
    ]


def pair_failure(report: "AgainstReport") -> list[str]:
    """Where two functions part, and on how little input; nothing where they do not."""
    lines = [f"not compared: {reason}" for reason in _reasons(report.comparisons)]
    for c in [c for c in report.comparisons if c.first is not None][:MOST]:
        assert c.first is not None
        right = "right is 0" if c.right == "0" else f"{c.right} {c.first.right}"
        lines += [
            f"{c.quantity}{list(c.first.index) or ''} at {c.grid}: "
            f"{c.left} {c.first.left}, {right}",
            f"  difference {short(c.first.difference)}, allowed {short(c.first.allowed)}",
        ]
    for broken in report.broken:
        line = f"{broken.point}: {', '.join(broken.quantities)}"
        if len(broken.rows) < broken.of:
            which = ", ".join(map(str, broken.rows))
            line += f"; {len(broken.rows)} of {broken.of} rows suffice: {which}"
        lines.append(line)
    return lines


def _reasons(comparisons: "Sequence[Comparison]") -> Iterable[str]:
    """Why something was not compared; what passed may have a reason too."""
    return dict.fromkeys(
        c.reason for c in comparisons if c.reason and c.verdict != "match" and c.first is None
    )
