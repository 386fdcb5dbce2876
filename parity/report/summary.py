"""What a report sums up to: counts, and the tightest margin."""

from collections.abc import Iterable
from typing import NamedTuple

from parity.comparison import Comparison

__all__ = ["Totals", "totals"]


class Totals(NamedTuple):
    """How much was compared, and how near it came.

    Attributes:
        quantities: different named quantities.
        comparisons: quantities times pairs and modes.
        values: entries compared.
        tightest: the comparison with the largest ratio; None where nothing was compared.
        ratio: that ratio; 1 is the limit.
    """

    quantities: int
    comparisons: int
    values: int
    tightest: Comparison | None
    ratio: float


def totals(comparisons: Iterable[Comparison]) -> Totals:
    """Sums up comparisons."""
    listed = list(comparisons)
    ratios = [float(c.worst.ratio) if c.worst else -1.0 for c in listed]
    tightest = listed[ratios.index(max(ratios))] if listed and max(ratios) >= 0 else None
    return Totals(
        quantities=len({c.quantity for c in listed if c.compared}),
        comparisons=len(listed),
        values=sum(c.compared for c in listed),
        tightest=tightest,
        ratio=max(ratios, default=0.0),
    )
