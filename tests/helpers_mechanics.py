"""Every mechanic, shown once."""

from pathlib import Path

import pytest

from parity import mechanics
from parity.mechanics import Row, Shown

ROOT = Path(__file__).parents[1]
FRAMEWORKS = ("jax", "torch")
NAMES = [mechanic.name for mechanic in mechanics.catalogue()]


@pytest.fixture(scope="session")
def shown() -> dict[str, Shown]:
    tables = mechanics.show(mechanics.catalogue(), 300, lambda _who, _stage: None)
    return {each.mechanic.name: each for each in tables}


def rows(shown: dict[str, Shown], name: str) -> dict[str, Row]:
    return {row.quantity: row for row in shown[name].rows}
