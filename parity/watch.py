"""What a function of the user's does beside computing, and what it returns."""

import os
import random
import resource
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "MisbehaviourError",
    "Watch",
    "checked",
    "limit_memory",
    "on_guard",
    "printable",
    "raised",
    "severed",
]

MEMORY = 6 * 2**30  # bytes of address space beyond what is mapped once the frameworks are loaded


class MisbehaviourError(Exception):
    """A function did what a loss must not do."""


@contextmanager
def on_guard() -> Iterator[None]:
    """No input to wait for, and no warnings on what is watched for prints."""
    before = sys.stdin
    with Path(os.devnull).open() as nothing, warnings.catch_warnings():
        sys.stdin = nothing
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            sys.stdin = before


def limit_memory() -> None:
    """Bounds the address space: an allocation beyond all measure fails, and not the machine."""
    mapped = Path("/proc/self/statm")
    if mapped.exists():
        now = int(mapped.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, hard))


def checked(result: Any, arrays: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Refuses what is not one array of the framework with the right shape and dtype.

    Raises:
        MisbehaviourError: it is something else.
    """
    short = dtype.rpartition(".")[2]
    kinds = arrays if isinstance(arrays, tuple) else (arrays,)
    wanted = f"{_called(kinds[0])} of shape {list(shape)} and {short}"
    if not isinstance(result, arrays):
        raise MisbehaviourError(f"returned {_called(type(result))}; expected {wanted}")
    found = (str(result.dtype).rpartition(".")[2], tuple(result.shape))
    if found != (short, shape):
        advice = "" if found[1] == shape else " (or --reduction mean|sum|per-sample)"
        raise MisbehaviourError(
            f"returned shape {list(found[1])} and {found[0]}; expected {wanted}{advice}"
        )


def _called(kind: type) -> str:
    """A type's name, with the package that it comes from."""
    package = kind.__module__.partition(".")[0]
    name = kind.__name__ if package == "builtins" else f"{package}.{kind.__name__}"
    return name.replace("jaxlib.ArrayImpl", "jax.Array")


def severed(result: Any, given: Mapping[str, Any]) -> str:
    """Says that torch finds no way from a result back to any input; empty where it does."""
    tracked = [name for name, value in given.items() if getattr(value, "requires_grad", False)]
    if not tracked or getattr(result, "requires_grad", True):
        return ""
    return (
        "returned a value that carries no gradient; expected one that depends on "
        f"{' or '.join(tracked)}"
    )


def printable(text: str) -> str:
    """Text of the user's as any file, terminal or report can carry it: the rest is escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def raised(error: BaseException, function: Callable[..., Any]) -> str:
    """The exception in one line, with the last line of the user's file."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(function, "__code__", None)
    mine = [f for f in frames if code is not None and f.filename == code.co_filename]
    place = f" at {Path(mine[-1].filename).name}:{mine[-1].lineno}" if mine else ""
    try:
        text = " ".join(str(error).split())
    except Exception:  # its own method
        text = ""
    text = f"{text[:300]}…" if len(text) > 300 else text
    return f"raised {type(error).__name__}{f': {text}' if text else ''}{place}"


class Watch:
    """What a function does beside computing.

    Attributes:
        severed: why its values have no gradients; empty where they have.
    """

    def __init__(self) -> None:
        self.severed, self._returned = "", 1
        self._grid, self._labels, self._calls = "", (), 0
        self._printed: list[str] = []
        self._threads: set[str] = set()

    _labels: tuple[str, ...]

    def cells(self, grid: str, labels: tuple[str, ...]) -> None:
        """Says which points the next calls are about."""
        self._grid, self._labels, self._calls = grid, labels, 0

    def where(self) -> str:
        """The point of the last call, in words."""
        if self._labels and 1 < self._calls <= len(self._labels):
            return f"{self._grid}: {self._labels[self._calls - 1]}"
        return f"{self._grid}: {self._labels[0]}" if self._labels else self._grid

    def call(
        self, function: Callable[..., Any], positional: list[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Calls, and notes prints and threads.

        Raises:
            MisbehaviourError: it raised anything at all.
        """
        self._calls += 1
        process, threads, start = os.getpid(), set(threading.enumerate()), _written()
        try:
            result = function(*positional, **keywords)
        except BaseException as error:
            if os.getpid() != process:  # it forked, and this is the child
                os._exit(1)
            raise MisbehaviourError(raised(error, function)) from error
        if os.getpid() != process:
            os._exit(1)
        self._threads |= {t.name for t in set(threading.enumerate()) - threads}
        if not self._printed:
            self._printed = _text_since(start)
        return result

    def first(self, result: Any) -> Any:
        """Of a tuple, what is compared; that is worth a note."""
        if not isinstance(result, tuple) or not result:
            return result
        self._returned = len(result)
        return result[0]

    @contextmanager
    def settings(self, adapt: Any) -> Iterator[None]:
        """Watches global settings while the block runs.

        Raises:
            MisbehaviourError: one was changed.
        """
        before = {**_settings(), **adapt.settings()}
        error = None
        try:
            try:
                yield
            except MisbehaviourError:
                raise
            except Exception as failed:  # perhaps a consequence
                error = failed
            after = {**_settings(), **adapt.settings()}
            changed = [name for name in before if before[name] != after[name]]
            if changed:
                names = " and ".join(changed)
                raise MisbehaviourError(f"changed {names}; expected it untouched") from error
            if error:
                raise error
        finally:
            adapt.restore(before)
            _restore(before)

    def notes(self) -> list[str]:
        """What was seen and does no harm."""
        notes = []
        if self._returned > 1:
            notes.append(f"returns {self._returned} values: the first is compared")
        if self._printed:
            notes.append(f"prints while it computes: {self._printed[0][:80]!r}")
        alive = self._threads & {thread.name for thread in threading.enumerate()}
        if alive:
            notes.append(f"leaves {len(alive)} threads running")
        return notes


def _settings() -> dict[str, Any]:
    kind, words, *rest = np.random.get_state()  # noqa: NPY002  # others use it
    return {
        "NumPy's random state": (kind, np.asarray(words).tobytes(), *rest),
        "Python's random state": random.getstate(),
        "the current folder": str(Path.cwd()),
    }


def _restore(before: Mapping[str, Any]) -> None:
    """Undoes what would reach the neighbours of a function."""
    kind, words, *rest = before["NumPy's random state"]
    np.random.set_state((kind, np.frombuffer(words, np.uint32), *rest))  # noqa: NPY002  # as above
    random.setstate(before["Python's random state"])
    os.chdir(before["the current folder"])


def _written() -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return os.fstat(2).st_size


def _text_since(start: int) -> list[str]:
    """What a call wrote to standard output or error, which are one file in a worker."""
    size = _written() - start
    try:
        return (
            os.pread(2, min(size, 500), start).decode(errors="replace").split("\n")[:1]
            if (size > 0)
            else []
        )
    except OSError:
        return ["…"]
