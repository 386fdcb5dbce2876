"""What `parity demo` prints."""

from pathlib import Path

import msgspec

from parity.cli import styles
from parity.comparison import Divergence
from parity.faults import Outcome
from parity.files import write_whole
from parity.objectives.spec import Fault

__all__ = ["caught", "heading", "onwards", "planted"]

_SEEN = {
    "step": "the run, step by step",
    "trajectory": "the run as a whole",
    "invariant": "the invariants of the run",
    "points": "the probe points",
}


def heading(number: int, text: str) -> None:
    """Prints the heading of a part."""
    styles.console().print(f"[bold]{number}. {text}[/]")


def planted(fault: Fault) -> None:
    """Says what is wrong now."""
    console = styles.console()
    console.print(f"{fault.name}: {fault.sentence}", markup=False)
    console.print(f"   instead: {fault.equation}", markup=False)
    console.print(f"   seen in public: {fault.source}", markup=False, soft_wrap=True)


def caught(outcome: Outcome, out: Path) -> None:
    """Says who saw it and where, who is blamed, and keeps the judgement in a file."""
    console = styles.console()
    for layer, words in _SEEN.items():
        verdict = "[bold red]caught[/]" if layer in outcome.layers else "[dim]nothing seen[/]"
        console.print(f"   {words:28} {verdict}")
    report = outcome.report
    first = report.first_divergence
    if first is not None:
        entry = first.entry
        console.print(
            f"parts first: {first.quantity}, {_place(first)}: {first.left} says {entry.left:.7g}, "
            f"the oracle {entry.oracle:.7g}; rounding explains {entry.allowed:.1g}",
            markup=False,
        )
    console.print(f"to blame: [bold red]{', '.join(report.blamed) or 'nobody'}[/]\n")
    text = msgspec.json.format(msgspec.json.encode(report), indent=1)
    write_whole(out / "planted.json", text + b"\n")


def _place(first: Divergence) -> str:
    if first.mode == "points":
        from parity.lessons.probes import core
        from parity.objectives import find

        grid = core(find(first.quantity.partition("/")[0]))
        return f'probe "{grid.labels[first.entry.index[0]]}"'
    return ", ".join(f"{axis} {position}" for axis, position in first.at.items())


def onwards(out: Path, lesson: str) -> None:
    """Names the figure, the reports, and the next commands."""
    console = styles.console()
    places = (
        (str(out / "figures" / f"{lesson}.svg"), "the figure: open it in a browser"),
        (str(out / "report.json"), "every comparison of the run"),
        (str(out / "planted.json"), "the judgement of the planted bug"),
        (
            "parity mechanics signed-min",
            "what it does and why it hides",
        ),
        ("parity twins ppo", "both sources, line against line"),
        ("parity faults", "the whole catalogue, planted"),
    )
    width = max(len(place) for place, _ in places)
    for place, what in places:
        console.print(f"   {place:{width}} {what}", markup=False, soft_wrap=True)
