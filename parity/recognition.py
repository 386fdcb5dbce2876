"""In which framework a function of the user's computes."""

import dis
import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import CodeType, ModuleType
from typing import Any

__all__ = ["recognised"]


def recognised(
    function: Callable[..., Any], known: Iterable[str], accepts: Callable[[str], bool]
) -> str:
    """The framework of a function, whatever else its neighbours have loaded into the process.

    First comes what the source of the function and of its helpers names, then what its module
    names, then NumPy, and last what is loaded without being named.

    Args:
        function: as it was loaded.
        known: frameworks.
        accepts: whether the function takes a framework's arrays and returns one.
    """
    named = _named(function)  # it may import a framework itself, when it is called
    loaded = [n for n in known if n != "numpy" and (n in sys.modules or n in named)]
    first = [name for name in (*loaded, "numpy") if name in named]
    if not loaded or (len(first) == 1 and first != ["numpy"]):
        return first[0] if first else "numpy"
    module = sys.modules.get(getattr(function, "__module__", None) or "", sys)
    beside = {_package(v) for v in vars(module).values() if isinstance(v, ModuleType)}
    order = [*first, *(name for name in loaded if name in beside), "numpy", *loaded]
    return next((name for name in dict.fromkeys(order) if accepts(name)), order[0])


def _named(function: Any) -> set[str]:
    """Packages that a function's code names, and that of the helpers which it names."""
    found: set[str] = set()
    waiting: list[Any] = [function]
    seen: set[CodeType] = set()
    while waiting:
        value = waiting.pop()
        with suppress(Exception):  # an object may do anything when it is looked at
            found.add(_package(value))
            for part in _parts(value):
                code = getattr(part, "__code__", None)
                if not isinstance(code, CodeType) or code in seen or not _own(code, function):
                    continue
                seen.add(code)
                loaded, imported = _names(code)
                found |= {name.partition(".")[0] for name in imported}
                waiting += [part.__globals__[n] for n in loaded if n in part.__globals__]
                waiting += inspect.getclosurevars(part).nonlocals.values()
    return found


def _names(code: CodeType) -> tuple[set[str], set[str]]:
    """The globals that code and the functions inside it load, and the modules they import."""
    steps = list(dis.get_instructions(code))
    loaded = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    imported = {step.argval for step in steps if step.opname == "IMPORT_NAME"}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _names(constant)
            loaded |= inner[0]
            imported |= inner[1]
    return loaded, imported


def _parts(value: Any) -> list[Any]:
    """The functions that a callable is made of."""
    if isinstance(value, ModuleType) or not callable(value):
        return []
    while isinstance(value, partial):
        value = value.func
    value = inspect.unwrap(value)
    value = getattr(value, "__func__", value)
    if hasattr(value, "__code__"):
        return [value]
    return list(vars(value if isinstance(value, type) else type(value)).values())


def _own(code: CodeType, function: Any) -> bool:
    """Whether code is the user's, and no library's beside the one that has the function."""
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    return "site-packages" not in code.co_filename or f"/{package}/" in code.co_filename


def _package(value: Any) -> str:
    """The package that a module, a function, or the type of an object belongs to."""
    if isinstance(value, ModuleType):
        name = value.__name__
    else:
        name = getattr(value, "__module__", None) or type(value).__module__
    return str(name).partition(".")[0].replace("jaxlib", "jax")
