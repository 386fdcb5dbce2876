"""The catalogues of known faults: their words are data beside the code that plants them."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import msgspec

from parity.files import read_bytes
from parity.objectives.spec import Fault

__all__ = ["Catalogue", "collect", "edit", "unfreeze", "update"]

_HERE = Path(__file__).parent / "faults"

Edit = dict[str, Any]
Definition = Callable[..., Any]


def edit(**definitions: Definition) -> Edit:
    """Other definitions in the loss."""
    return {"edits": definitions}


def collect(**definitions: Definition) -> Edit:
    """Other definitions where a rollout is collected."""
    return {"collects": definitions}


def unfreeze(*names: str) -> Edit:
    """Frozen inputs through which a gradient passes."""
    return {"unfrozen": names}


def update(step: Definition) -> Edit:
    """Another training step."""
    return {"update": step}


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    sentence: str
    equation: str
    source: str
    first: str = ""
    at: dict[str, int] = {}
    equivalent: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: tuple[_Words, ...]


class Catalogue(Sequence[Fault]):
    """The faults of an objective, read when they are first asked for.

    Args:
        name: of the objective, and of the file in `faults/` with their words.
        edits: fault to what it edits; the same names as in the file.
    """

    def __init__(self, name: str, edits: Mapping[str, Edit]) -> None:
        self._name, self._edits = name, edits

    @cached_property
    def _faults(self) -> tuple[Fault, ...]:
        words = msgspec.toml.decode(read_bytes(_HERE / f"{self._name}.toml"), type=_File).fault
        strangers = {each.name for each in words} ^ self._edits.keys()
        if strangers:
            raise ValueError(
                f"{self._name}: with words or code only: {', '.join(sorted(strangers))}"
            )
        return tuple(
            Fault(**msgspec.structs.asdict(each), **self._edits[each.name]) for each in words
        )

    @overload
    def __getitem__(self, index: int) -> Fault: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Fault]: ...
    def __getitem__(self, index: int | slice) -> Fault | Sequence[Fault]:
        return self._faults[index]

    def __len__(self) -> int:
        return len(self._faults)
