"""Patience and silence for what checks libraries."""

PATIENCE = 600.0  # seconds for what takes sixty, on a busy machine


def silent(_who: str, _stage: str) -> None:
    pass
