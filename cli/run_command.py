"""`parity run`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli.options import Format, OutputFormat, Timeout, folder, require_renderer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parity.problem import Problem
    from parity.runs import Finished

__all__ = ["Dtype", "run"]


class Dtype(StrEnum):
    """Floating dtype of a run."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"


def run(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LESSON | FILE.toml]...",
            help="Problems; all recorded lessons by default.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", parser=folder, metavar="DIR", help="Where report, traces and figures go."
        ),
    ] = Path("parity-out"),
    output_format: OutputFormat = Format.TEXT,
    dtype: Annotated[Dtype, typer.Option(help="Floating dtype of the runs.")] = Dtype.FLOAT32,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Draw nothing.")] = False,
    all_figures: Annotated[
        bool,
        typer.Option("--all-figures", help="Also draw agreement, margins and clipping."),
    ] = False,
    png: Annotated[bool, typer.Option("--png", help="Write a PNG beside every SVG.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the closing line.")] = False,
    timeout: Timeout = 600.0,
    reuse_samples: Annotated[
        bool,
        typer.Option("--reuse-samples", help="Replay a tape that was drawn for another problem."),
    ] = False,
    allow_noisy: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="Quantities whose noise is accepted, e.g. 'ppo/gradient*'."
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why it is accepted; the report repeats it.")
    ] = None,
) -> int:
    """Replay problems in JAX and PyTorch, judge both against the oracle, draw what matched.

    Exit codes: 0 match; 1 divergent, inconclusive or noisy; 2 bad usage or input; 3 a backend or
    parity itself failed; 130 interrupted.
    """
    from parity.cli import progress
    from parity.errors import InputError
    from parity.problem import lessons, load_problem
    from parity.report import AllowedNoise
    from parity.runs import Settings
    from parity.runs import run as run_problems

    if (allow_noisy is None) != (reason is None):
        missing, given = (
            ("--reason", "--allow-noisy")
            if reason is None
            else (
                "--allow-noisy",
                "--reason",
            )
        )
        raise InputError(f"{missing}: missing; expected together with {given}")
    if reason is not None and not reason.strip():
        raise InputError(f"--reason: got {reason!r}; expected the reason in words")
    if no_figures and (all_figures or png):
        given = "--all-figures" if all_figures else "--png"
        raise InputError(f"{given}: got it together with --no-figures; expected one of the two")
    noise = AllowedNoise(pattern=allow_noisy, reason=reason) if allow_noisy and reason else None
    if not no_figures:
        require_renderer("--no-figures")
    loaded = [load_problem(source) for source in problems or lessons()]
    settings = Settings(dtype.value, timeout, reuse_samples, noise)
    with progress.display(["oracle", "jax", "torch", "gate"], quiet=quiet) as report_stage:
        finished = run_problems(
            loaded,
            out,
            settings,
            report_stage,
            draw=None if no_figures else lambda done: _draw(done, out, all_figures, png),
            meanwhile=lambda: _prepare([] if no_figures else loaded),
        )
    from parity.cli import show, show_cases, styles
    from parity.report.cases import of_run

    if output_format is Format.JSON:
        styles.as_json(finished.report)
    elif output_format is Format.TEXT:
        show.report_text(finished, out, quiet=quiet)
    else:
        closing = ": ".join(show.closing_line(finished.report))
        show_cases.show(of_run(finished.report), closing, output_format)
    return 0 if finished.report.verdict == "match" else 1


def _prepare(drawn: "Sequence[Problem]") -> None:
    """While a backend is at work: imports what prints, and draws what depends on no result."""
    import parity.cli.show

    if not drawn:
        return
    import parity.figures.gallery  # noqa: F401
    from parity.figures.lessons import diagram
    from parity.figures.mechanism import draw_mechanism

    for problem in drawn:
        draw_mechanism(problem.name, diagram(problem), "svg")


def _draw(finished: "Finished", out: Path, everything: bool, png: bool) -> None:
    """Writes the figures of every lesson that matched; says which of them cannot be drawn."""
    from parity.figures import drawings, encode, generated_at
    from parity.figures.record import record
    from parity.files import write_whole

    place = out / "figures"
    time = generated_at()
    for case, judgement in zip(finished.cases, finished.report.lessons, strict=True):
        if judgement.verdict != "match":
            continue
        try:
            document = record(
                case.problem,
                case.traces,
                report_digest=finished.report.digest,
                verdict=judgement.verdict,
                generated_at=time,
            )
        except ValueError as error:  # both implementations agree on a number that is none
            typer.echo(f"no figure of {error}", err=True)
            continue
        write_whole(place / f"{document.lesson_id}.json", encode(document))
        for name, content in drawings(document, case, everything=everything):
            write_whole(place / name, content)
        if png:
            for name, content in drawings(document, case, "png", everything=everything):
                write_whole(place / name, content)
