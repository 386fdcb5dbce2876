"""Real libraries: which of their functions computes which objective, and how it states it."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import msgspec

from parity.convention import Convention
from parity.errors import BackendError, InputError
from parity.files import read_bytes

__all__ = [
    "Adapter",
    "Catalogue",
    "Difference",
    "Peer",
    "catalogue",
    "chosen",
    "installed",
    "require",
]

HOW_TO_INSTALL = "pip install -c requirements.lock 'rlhf-parity[peers]' (docs/peers.md)"


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that a library does otherwise than we do, on purpose.

    Attributes:
        sentence: what it does.
        source: where its documentation or its code says so.
        apart: an input to the value from which on states are held apart from the others.
        returns: what its loss is at those states; anything else there counts.
    """

    sentence: str
    source: str
    apart: dict[str, float] = {}
    returns: Literal["", "NaN", "Infinity", "-Infinity"] = ""


class Adapter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One function of a library, as one of our objectives.

    Attributes:
        objective: its name.
        function: the library's own name for it.
        call: our `module:function` that gives it our inputs.
        convention: how it states the objective: choices and constants.
        documented: `module:function` of its documented formula, where that is another objective.
        difference: what it does otherwise.
    """

    objective: str
    function: str
    call: str
    convention: Convention = Convention()
    documented: str = ""
    difference: tuple[Difference, ...] = ()


class Peer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A library.

    Attributes:
        name: as it is asked for.
        distribution: as it is installed.
        framework: jax, torch or numpy.
        home: where it is developed.
        adapter: its functions.
    """

    name: str
    distribution: str
    framework: Literal["jax", "torch", "numpy"]
    home: str
    adapter: tuple[Adapter, ...]


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All libraries for which there are adapters."""

    peer: tuple[Peer, ...]


def catalogue() -> Catalogue:
    """Loads the catalogue that ships with the package."""
    path = Path(__file__).parents[1] / "peers.toml"
    return msgspec.toml.decode(read_bytes(path), type=Catalogue)


def chosen(names: Sequence[str] = (), objective: str = "") -> list[Peer]:
    """Finds libraries by name, with all their adapters or those of one objective.

    Args:
        names: which; all when empty.
        objective: its name; empty for all.

    Raises:
        InputError: no such library, or none of its functions has that objective.
    """
    known = {peer.name: peer for peer in catalogue().peer}
    found = []
    for name in dict.fromkeys(names or known):
        if name not in known:
            raise InputError(f"peer: got {name!r}; expected one of {', '.join(known)}")
        peer = known[name]
        adapters = tuple(a for a in peer.adapter if objective in ("", a.objective))
        if not adapters:
            theirs = " or ".join(dict.fromkeys(a.objective for a in peer.adapter))
            raise InputError(f"--objective: got {objective!r}; expected {theirs} for {name}")
        found.append(msgspec.structs.replace(peer, adapter=adapters))
    return found


def installed(peer: Peer) -> str:
    """The version of a library that is installed; empty for none."""
    try:
        return version(peer.distribution)
    except PackageNotFoundError:
        return ""


def require(peers: Sequence[Peer], *, every: bool) -> None:
    """Makes sure that there is something to check.

    Args:
        peers: the libraries.
        every: whether all of them have to be there, or one suffices.

    Raises:
        BackendError: too few are installed.
    """
    absent = [peer.name for peer in peers if not installed(peer)]
    if len(absent) == len(peers) or (every and absent):
        raise BackendError(" and ".join(absent), f"not installed; expected {HOW_TO_INSTALL}")
