"""Comparisons made from two arrays."""

from typing import Any

import numpy as np

from parity.comparison import ORACLE, Comparison, Mode, compare
from parity.quantities import of_runs
from parity.trace import Quantity

SPECS = {spec.name: spec for spec in of_runs()}


def against(
    left: Any,
    right: Any,
    allowed: Any = 0.0,
    *,
    bound: Any = None,
    name: str = "dpo/gradient",
    mode: Mode = "step",
    sides: tuple[str, str] = ("torch", ORACLE),
    **options: Any,
) -> Comparison:
    """Compares two arrays as one quantity of the catalogue; scalars of allowance are spread."""
    one, other = np.asarray(left), np.asarray(right)
    axes, kind = SPECS[name].axes, SPECS[name].kind
    return compare(
        Quantity(name, axes, kind, one),
        Quantity(name, axes, kind, other),
        np.broadcast_to(np.asarray(allowed, np.float64), one.shape),
        mode=mode,
        sides=sides,
        bound=None if bound is None else np.broadcast_to(np.float64(bound), one.shape),
        **options,
    )
