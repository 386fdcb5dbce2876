"""What objectives of preference pairs share."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta

from parity.arithmetic import operations as op

__all__ = ["BRANCHES", "Pairs", "bad_pairs", "losses"]

Index = Annotated[int, Meta(ge=0)]
Pairs = Annotated[tuple[tuple[Index, Index], ...], Meta(min_length=1)]


def losses(z: Any) -> Any:
    """−log σ(z) of each scaled margin."""
    return op.softplus(-z)


BRANCHES = {  # where softplus and its naive spellings begin to differ
    "z < -20": lambda z: z < -20,
    "-20 <= z < 0": lambda z: (z >= -20) & (z < 0),
    "0 <= z < 20": lambda z: (z >= 0) & (z < 20),
    "z >= 20": lambda z: z >= 20,
}


def bad_pairs(
    field: str, pairs: tuple[tuple[int, int], ...], actions: int
) -> Iterator[tuple[str, Any, str]]:
    """Says where a pair names no action, or one action twice."""
    for position, (chosen, rejected) in enumerate(pairs):
        if max(chosen, rejected) >= actions:
            yield f"{field}[{position}]", [chosen, rejected], f"actions from 0 to {actions - 1}"
        if chosen == rejected:
            yield f"{field}[{position}]", [chosen, rejected], "two different actions"
