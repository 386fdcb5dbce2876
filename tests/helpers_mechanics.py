"""Every mechanic, shown once."""

from pathlib import Path

from parity import mechanics
from parity.mechanics import Row, Shown

ROOT = Path(__file__).parents[1]
FRAMEWORKS = ("jax", "torch")
NAMES = [mechanic.name for mechanic in mechanics.catalogue()]


def rows(shown: dict[str, Shown], name: str) -> dict[str, Row]:
    return {row.quantity: row for row in shown[name].rows}
