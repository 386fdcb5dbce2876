"""`parity twins`."""

from typing import Annotated

import typer

__all__ = ["twins"]


def twins(
    file: Annotated[str, typer.Argument(metavar="FILE", help="ppo, reward, dpo, reinforce, …")],
    name: Annotated[
        str, typer.Argument(metavar="[FUNCTION]", help="Of the file; by default all of it.")
    ] = "",
    diff: Annotated[
        bool, typer.Option("--diff", help="Only the lines that differ; … stands for others.")
    ] = False,
) -> int:
    """Print the JAX and the PyTorch source of a file next to each other.

    The words that differ are highlighted.
    """
    from parity.cli import show_twins

    show_twins.side_by_side(file, name, only_differences=diff)
    return 0
