"""`parity samples draw` and `parity samples verify`."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import Framework, Timeout

__all__ = ["app"]

app = typer.Typer(
    name="samples",
    help="Draw a tape of actions, or draw a recorded one again and compare.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _samples() -> None:
    pass


@app.command()
def draw(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="Lesson or FILE.toml.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the tape goes.")
    ],
    sampler: Annotated[Framework, typer.Option(help="Whose random numbers.")] = Framework.JAX,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**31 - 1, help="The problem's own by default.")
    ] = None,
    timeout: Timeout = 600.0,
) -> int:
    """Draw the actions of a problem: train on what the policy itself samples, and keep it."""
    from parity.backends import draw_samples
    from parity.cli import progress
    from parity.errors import InputError
    from parity.objectives import trained
    from parity.problem import load_problem

    loaded = load_problem(problem)
    if loaded.tape is None:
        sampled = [name for name, o in trained().items() if o.training and o.training.tape]
        tables = " or ".join(f"[{name}]" for name in sampled)
        raise InputError(f"{problem}: {sampled[0]}: missing; expected a {tables} table to draw")
    chosen = loaded.tape.seed if seed is None else seed
    with progress.display([sampler.value], quiet=False) as stage:
        samples = draw_samples(loaded, sampler.value, chosen, timeout, stage)
    samples.save(output)
    typer.echo(
        f"{output}: {samples.actions.shape[0]} rollouts of {samples.actions.shape[1]} actions, "
        f"seed {chosen}, {sampler.value} {samples.versions[sampler.value]}"
    )
    return 0


@app.command()
def verify(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[LESSON | FILE]", help="Lesson, FILE.toml, or a tape itself."),
    ] = None,
    problem: Annotated[
        str | None,
        typer.Option(metavar="PROBLEM", help="What a tape was drawn for, if not a lesson."),
    ] = None,
    timeout: Timeout = 600.0,
) -> int:
    """Draw a recorded tape again and compare it action by action.

    Exit code 1 names the first rollout and sample that differ.
    """
    from parity.cli import progress
    from parity.verify import tapes, verify_tape

    code = 0
    for tape in tapes(source, problem):
        with progress.display([tape.samples.sampler], quiet=False) as stage:
            found = verify_tape(tape, timeout, stage)
        typer.echo(f"{tape.path}: {found.sentence}")
        code = code if found.same else 1
    return code
