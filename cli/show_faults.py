"""What `parity faults` prints: the catalogue, or who caught what."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from parity.cli import styles
from parity.faults import LAYERS, Known, Outcome

__all__ = ["as_json", "closing", "listing", "matrix"]


def listing(faults: Sequence[Known]) -> None:
    """Prints name, sentence, equation and source of each fault."""
    console = styles.console()
    for known in faults:
        fault = known.fault
        kind = "rewrite, no bug" if fault.equivalent else f"expected first: {known.expected}"
        console.print(f"[bold]{fault.name}[/]  ({known.objective.name}; {kind})")
        for line in (fault.sentence, fault.equation, fault.source):
            console.print(f"    {line}", markup=False, soft_wrap=True)


def matrix(faults: Sequence[Known], frameworks: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """Prints one row per fault, and what is not as expected."""
    console = styles.console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("fault", no_wrap=True)
    for layer in LAYERS:
        table.add_column(layer[:2], no_wrap=True, min_width=2)
    table.add_column("first quantity@step", overflow="fold")
    table.add_column("ok", no_wrap=True, min_width=3)
    table.caption = (
        "J caught in JAX, T in PyTorch. tw: the twins differ. By the oracle: po at the points, "
        "st in step mode, tr over the trajectory. in: an invariant. Step: rollout,epoch or update; "
        "points: no step shows it. ok: first quantity, step and blame as the catalogue expects."
    )
    table.caption_justify = "left"
    for objective, fault in faults:
        mine = {o.framework: o for o in outcomes if o.fault.name == fault.name}
        good = len(mine) == len(frameworks) and all(o.as_expected for o in mine.values())
        table.add_row(
            fault.name,
            *(
                "".join(f[0].upper() for f in frameworks if f in mine and layer in mine[f].layers)
                or "."
                for layer in LAYERS
            ),
            " ".join(
                dict.fromkeys(o.found.removeprefix(f"{objective.name}/") for o in mine.values())
            ),
            "yes" if good else "[bold red]NO[/]",
        )
    console.print(table)
    wrong = [outcome for outcome in outcomes if not outcome.as_expected]
    for outcome in wrong:
        console.print(outcome.sentence(), markup=False, soft_wrap=True)
    console.print(closing(outcomes))


def as_json(outcomes: Sequence[Outcome]) -> None:
    """Prints what was found of each planted fault."""
    found = [
        {
            "fault": outcome.fault.name,
            "framework": outcome.framework,
            "equivalent": outcome.fault.equivalent,
            "verdict": outcome.report.verdict,
            "layers": outcome.layers,
            "first": outcome.found,
            "blamed": outcome.report.blamed,
            "expected": outcome.known.expected,
            "as_expected": outcome.as_expected,
        }
        for outcome in outcomes
    ]
    styles.as_json(found)


def closing(outcomes: Sequence[Outcome]) -> str:
    """How many bugs were caught, and how many rewrites raised an alarm."""
    bugs = [outcome for outcome in outcomes if not outcome.fault.equivalent]
    rewrites = len(outcomes) - len(bugs)
    alarms = sum(o.fault.equivalent and not o.as_expected for o in outcomes)
    return (
        f"{sum(o.caught for o in bugs)} of {len(bugs)} planted bugs caught, "
        f"{sum(o.as_expected for o in bugs)} as expected; "
        f"{alarms} alarms in {rewrites} rewrites"
    )
