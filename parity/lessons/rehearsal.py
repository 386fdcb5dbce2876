"""An objective of a user's tried out once: its mistakes are said in a line, and not later."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from parity.errors import InputError
from parity.lessons.oracle import at_points
from parity.lessons.probes import core
from parity.objectives import Objective
from parity.objectives.evaluation import Scope, called
from parity.objectives.spec import Fault
from parity.points import Points

__all__ = ["rehearse"]


def rehearse(objective: Objective, locator: str) -> None:
    """Evaluates everything that an objective declares at the core of its probes.

    Args:
        objective: a user's.
        locator: where it is declared, for messages.

    Raises:
        InputError: a definition, a branch, the kinks or a fault cannot be evaluated.
    """
    points = _tried(locator, "probes", lambda: core(objective, locator))
    given = {name: np.moveaxis(values, 0, -1) for name, values in points.inputs.items()}
    _tried(locator, "definitions", lambda: list(at_points(points, np.asarray)))
    for name, branch in objective.branches.items():
        reached = _tried(
            locator, f"branch {name!r}", partial(called, branch, Scope(objective, given))
        )
        if np.asarray(reached).dtype != bool or np.ndim(reached) == 0:
            raise InputError(
                f"--objective: {locator}: branch {name!r}: got {type(reached).__name__} of "
                f"{np.asarray(reached).dtype}; expected an array of booleans"
            )
    for fault in objective.faults:
        _tried(
            locator,
            f"fault {fault.name}",
            partial(_evaluated, points, fault),
        )


def _evaluated(points: Points, fault: Fault) -> None:
    list(at_points(points, np.asarray, fault=fault))


def _tried(locator: str, place: str, attempt: Callable[[], Any]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return attempt()
    except Exception as error:  # whatever the user's code raises
        of = getattr(error, "of_value", "")
        where = f"{place}: {of}" if of and of != place else place
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise InputError(f"--objective: {locator}: {where}: raised {told}") from error
