"""What the tests of `parity check` share."""

from collections.abc import Mapping

from parity.convention import Convention, stated

__all__ = ["convention"]


def convention(
    constants: Mapping[str, float] | None = None, *, detached: bool = False, **chosen: str
) -> Convention:
    """How a function states an objective, in the words of the command line."""
    return stated(chosen, constants or {}, detached=detached)
