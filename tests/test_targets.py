"""A function is found by its name, and what is found is the one that was meant."""

import functools
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parity.errors import InputError
from parity.targets import SEARCHED, load, named


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of the user's with functions whose names lie, and one whose name does not."""
    source = """
import functools

def loss(x):
    return x

twice = functools.wraps(loss)(lambda x: 2 * x)
kept = loss

def late(x):
    return x

early = late

def late(x):
    return 3 * x

class Losses:
    scale = 1

    @classmethod
    def scaled(cls, x):
        return cls.scale * x

class Other(Losses):
    scale = 2
"""
    made = types.ModuleType("mine.losses")
    exec(source, made.__dict__)
    monkeypatch.setitem(sys.modules, "mine.losses", made)
    return made


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (lambda m: m.loss, "mine.losses:loss"),
        (lambda m: m.kept, "mine.losses:loss"),  # another name of the same function
        (lambda m: m.Losses.scaled, "mine.losses:Losses.scaled"),
    ],
)
def test_a_function_has_the_name_under_which_it_is_held(
    module: types.ModuleType, of: Callable[[Any], Any], name: str
) -> None:
    assert named(of(module)) == name


@pytest.mark.parametrize(
    "of",
    [
        lambda m: m.twice,  # wrapped: it bears the name of what it wraps
        lambda m: m.early,  # its name was given away since
        lambda m: m.Other.scaled,  # bound to another class
        lambda m: functools.partial(m.loss, 1.0),
        lambda m: m.Losses().scaled.__func__,
    ],
)
def test_a_function_that_is_not_what_its_name_says_is_refused(
    module: types.ModuleType, of: Callable[[Any], Any]
) -> None:
    with pytest.raises(InputError, match=r"^target: got .*; expected "):
        named(of(module))


@pytest.fixture
def two_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """An installed copy of a module, which is imported, and one that the caller comes to first."""
    installed, local = tmp_path / "site", tmp_path / "repository"
    for folder in (installed, local):
        (folder / "copied").mkdir(parents=True)
        (folder / "copied/__init__.py").touch()
        (folder / "copied/losses.py").write_text("def loss(x):\n    return x\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    monkeypatch.setenv(SEARCHED, str(local))
    monkeypatch.chdir(tmp_path)
    yield installed, local
    for name in ("copied", "copied.losses"):
        sys.modules.pop(name, None)


def test_an_installed_copy_does_not_stand_in_for_the_local_one(
    two_copies: tuple[Path, Path],
) -> None:
    installed, local = two_copies
    with pytest.raises(InputError) as refused:
        load("copied.losses:loss")
    assert str(refused.value) == (
        f"TARGET: copied.losses: got {installed}/copied/losses.py, which is installed; expected "
        f"{local}/copied/losses.py, which comes first (install it, or name the file)"
    )


def test_one_copy_is_found_wherever_it_is(
    two_copies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEARCHED, str(two_copies[0]))
    assert load("copied.losses:loss")(3) == 3


def test_here_comes_before_everything(
    two_copies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `python -m` has it: the current folder first."""
    monkeypatch.chdir(two_copies[1])
    monkeypatch.setenv(SEARCHED, str(two_copies[0]))
    with pytest.raises(InputError, match="which comes first"):
        load("copied.losses:loss")
