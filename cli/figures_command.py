"""`parity figures`."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import Timeout, require_renderer

__all__ = ["figures"]


def figures(
    check: Annotated[
        bool,
        typer.Option("--check", help="Redraw the recorded figures and compare a fresh run."),
    ] = False,
    timeout: Timeout = 600.0,
) -> int:
    """List the recorded figures, or check them.

    --check redraws every committed SVG from its JSON, byte for byte, and compares the numbers of
    a fresh run with the committed ones by allowance. Exit code 1 if anything differs.
    """
    from parity.figures import recorded

    if not check:
        for name, path in recorded().items():
            typer.echo(f"{name}  {path}")
        return 0
    require_renderer("parity figures without --check")
    differences = [*_redrawn(), *_compared(timeout)]
    for line in differences:
        typer.echo(line)
    typer.echo(
        f"{len(recorded())} recorded figures: "
        + (f"{len(differences)} differences" if differences else "same bytes, same numbers")
    )
    return 1 if differences or not recorded() else 0


def _redrawn() -> list[str]:
    from parity.figures import recorded, redraw

    messages = [(path, redraw(path)) for path in recorded().values()]
    return [f"{path}: {message}" for path, message in messages if message]


def _compared(timeout: float) -> list[str]:
    """A fresh run of every lesson that has a recorded figure, number by number."""
    import tempfile

    from parity.cli import progress
    from parity.figures import compare, generated_at, load, panel_allowances, recorded
    from parity.figures.record import record
    from parity.problem import load_problem
    from parity.runs import Settings
    from parity.runs import run as run_problems

    committed = {name: load(path) for name, path in recorded().items()}
    with (
        tempfile.TemporaryDirectory(prefix="parity-") as folder,
        progress.display(["oracle", "jax", "torch", "gate"], quiet=False) as stage,
    ):
        problems = [load_problem(name) for name in committed]
        finished = run_problems(problems, Path(folder), Settings(timeout=timeout), stage)
    differences = []
    for case, judgement in zip(finished.cases, finished.report.lessons, strict=True):
        name = case.problem.name
        if judgement.verdict != "match":
            differences.append(f"{name}: the fresh run is {judgement.verdict}")
            continue
        try:
            fresh = record(
                case.problem,
                case.traces,
                report_digest=finished.report.digest,
                verdict=judgement.verdict,
                generated_at=generated_at(),
            )
        except ValueError as error:  # a value that is not finite
            differences.append(f"{name}: no figure: {error}")
            continue
        allowed = panel_allowances(case.problem, case.trajectory.allowed, case.trajectory.values)
        differences += [f"{name}: {line}" for line in compare(committed[name], fresh, allowed)]
    return differences
