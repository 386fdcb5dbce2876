"""The objectives: one file each, found here by name, or in a file of the user's."""

import importlib
import pkgutil
from functools import cache

from parity.errors import InputError
from parity.objectives.spec import Objective
from parity.targets import located

__all__ = ["Objective", "built_in", "find", "trained"]


@cache
def built_in() -> dict[str, Objective]:
    """Every module of this package that declares an OBJECTIVE: name to objective, in order."""
    modules = [
        importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)
    ]
    found = [m.OBJECTIVE for m in modules if hasattr(m, "OBJECTIVE")]
    return {each.name: each for each in sorted(found, key=lambda each: (each.rank, each.name))}


def trained() -> dict[str, Objective]:
    """The objectives that problems may have a table of."""
    return {name: each for name, each in built_in().items() if each.training}


@cache
def find(name: str) -> Objective:
    """An objective by its name, by another name of it, or as `file.py:NAME` or `module:NAME`.

    Raises:
        InputError: there is none, or its declaration is not sound.
    """
    for objective in built_in().values():
        if name in (objective.name, *objective.known_as):
            return objective
    if ":" not in name:
        known = ", ".join(" or ".join((each.name, *each.known_as)) for each in built_in().values())
        raise InputError(f"--objective: got {name!r}; expected one of {known} or FILE.py:NAME")
    found = located(name, "--objective")
    if not isinstance(found, Objective):
        raise InputError(
            f"--objective: {name}: got {type(found).__name__}; "
            "expected a parity.objectives.Objective"
        )
    from parity.objectives.flaws import flaws

    for flaw in flaws(found):
        raise InputError(f"--objective: {name}: {flaw}")
    return found
