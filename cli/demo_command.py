"""`parity demo`."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import Timeout, folder

__all__ = ["LESSON", "PLANTED", "demo"]

LESSON = "posttraining-04"
PLANTED = "clip-only"
"""No step of a well-behaved run shows this fault: the probes have to."""


def demo(
    out: Annotated[
        Path, typer.Option("--out", parser=folder, metavar="DIR", help="Where everything goes.")
    ] = Path("parity-demo"),
    timeout: Timeout = 600.0,
) -> int:
    """Show it all in a minute: a run that matches, a planted bug, who is blamed, a figure.

    Exit code 1 if the run does not match or the bug is not caught.
    """
    from parity.cli import progress, run_command, show_demo
    from parity.faults import chosen, plant

    show_demo.heading(1, "one lesson in JAX and in PyTorch, both judged by a float64 oracle (10 s)")
    code = run_command.run([LESSON], out=out, quiet=True, timeout=timeout)
    show_demo.heading(2, "a known bug, planted in the PyTorch twin (10 s)")
    (known,) = chosen([PLANTED])
    show_demo.planted(known.fault)
    with progress.display(["jax", "torch"], quiet=True) as stage:
        (outcome,) = plant([known], ["torch"], timeout, stage)
    show_demo.caught(outcome, out)
    show_demo.heading(3, "where to go on")
    show_demo.onwards(out, LESSON)
    return 1 if code or not outcome.as_expected else 0
