"""Functions of the user's: how they are named, and how they are loaded in a worker."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity.errors import InputError

__all__ = ["SEARCHED", "load", "located", "named", "split"]

SEARCHED = "PARITY_PATH"
"""The variable in which a worker finds where else the process that started it imports from."""


def named(function: Callable[..., Any], option: str = "target") -> str:
    """Where another process finds a function.

    Args:
        function: at the top of a module.
        option: what the user gave it for, for the message.

    Raises:
        InputError: it is not at the top of a module, or its module holds another one of its name.
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    module = getattr(function, "__module__", None) or ""
    if "<" in name:
        raise InputError(f"{option}: got {name}; expected a function at the top of a module")
    held: Any = sys.modules.get(module)
    for part in name.split("."):
        held = getattr(held, part, None)
    if held != function:  # wrapped, bound to another class, or its name given away since
        raise InputError(
            f"{option}: got a function called {name} that {module or 'its module'} does not hold "
            "under that name; expected one that does, since it is looked up by name"
        )
    if "." in module:
        return f"{module}:{name}"
    try:
        source = inspect.getsourcefile(function)
    except TypeError:
        source = None
    if source is None:
        raise InputError(f"{option}: got {name}; expected a function with a source file")
    return f"{source}:{name}"


def split(target: str, option: str = "TARGET") -> tuple[str, str]:
    """Splits `package.module:function` or `file.py:function`.

    Args:
        target: what the user wrote.
        option: where, for the message.

    Raises:
        InputError: it is neither.
    """
    place, _, name = target.rpartition(":")
    if not place or not all(part.isidentifier() for part in name.split(".")):
        raise InputError(
            f"{option}: got {target!r}; expected package.module:function or file.py:function"
        )
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise InputError(f"{option}: {place}: no such file; expected file.py:function")
    elif not all(part.isidentifier() for part in place.split(".")):
        raise InputError(
            f"{option}: got {target!r}; expected package.module:function or file.py:function"
        )
    return place, name


def load(target: str, option: str = "TARGET") -> Callable[..., Any]:
    """Imports a function of the user's.

    Raises:
        InputError: no such module or function, the import fails, or it cannot be called.
    """
    found = located(target, option)
    if not callable(found):
        raise InputError(
            f"{option}: {target}: got {type(found).__name__}, which cannot be called; "
            "expected a function"
        )
    return found  # type: ignore[no-any-return]  # callable: checked


def located(target: str, option: str) -> Any:
    """Imports whatever the user's module has under a name.

    Its folder, or the current one, comes last on the path, and after it what the process that
    started this one imports from: a `numpy.py` there shadows nothing.

    Raises:
        InputError: no such module or name, or the import fails.
    """
    place, name = split(target, option)
    folder = str(Path(place).resolve().parent) if place.endswith(".py") else str(Path.cwd())
    for searched in (folder, *os.environ.get(SEARCHED, "").split(os.pathsep)):
        if searched and searched not in sys.path:
            sys.path.append(searched)
    try:
        found: Any = _module(place)
    except BaseException as error:  # a module may do anything, sys.exit too
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"{option}: {place}: cannot be imported: {why}") from error
    _same_file(place, found, option)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{option}: {place}: has no {name}; expected one that it has")
        found = getattr(found, part)
    return found


def _same_file(place: str, module: Any, option: str) -> None:
    """Refuses a module where the caller's path comes to another file first: that one is meant."""
    parts = place.split(".")
    if place.endswith(".py") or parts[0] == __package__:
        return
    for folder in (str(Path.cwd()), *os.environ.get(SEARCHED, "").split(os.pathsep)):
        for path in (
            Path(folder, *parts[:-1], f"{parts[-1]}.py"),
            Path(folder, *parts, "__init__.py"),
        ):
            if folder and path.is_file():
                found = getattr(module, "__file__", None)
                if found is None or not path.samefile(found):
                    raise InputError(
                        f"{option}: {place}: got {found}, which is installed; expected {path}, "
                        "which comes first (install it, or name the file)"
                    )
                return


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).resolve()
    name = f"_parity_target_{path.stem}_{abs(hash(str(path))):x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look themselves up there
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
