"""The objectives: one file each, found here by name, or in a file of the user's."""

import importlib
import importlib.util
import pkgutil
from functools import cache
from pathlib import Path

from parity.errors import InputError
from parity.objectives.spec import Objective

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
        InputError: there is none.
    """
    for objective in built_in().values():
        if name in (objective.name, *objective.known_as):
            return objective
    place, _, attribute = name.rpartition(":")
    if not place:
        known = ", ".join(" or ".join((each.name, *each.known_as)) for each in built_in().values())
        raise InputError(f"--objective: got {name!r}; expected one of {known} or FILE.py:NAME")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location("_parity_objective", Path(place))
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        found = getattr(module, attribute)
    except BaseException as error:  # a module may do anything, sys.exit too
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"--objective: {name}: cannot be loaded: {why}") from error
    if not isinstance(found, Objective):
        raise InputError(
            f"--objective: {name}: got {type(found).__name__}; "
            "expected a parity.objectives.Objective"
        )
    return found
