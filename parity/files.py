"""Files that are written whole or not at all, and digests over contents."""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from parity.errors import InputError

__all__ = ["canonical_json", "digest", "read_arrays", "read_bytes", "write_arrays", "write_whole"]

H = TypeVar("H")

_METADATA_KEY = "parity"  # the one metadata key: safetensors orders several at random


def canonical_json(value: Any) -> bytes:
    """Encodes a value as JSON with sorted keys, so that equal contents give equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def digest(header: Any, arrays: Mapping[str, NDArray[Any]] | None = None) -> str:
    """Returns the SHA-256 of a header and of named arrays: names, dtypes, shapes and values."""
    sha = hashlib.sha256(canonical_json(header))
    for name, array in (arrays or {}).items():
        little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        sha.update(canonical_json([name, little_endian.dtype.str, array.shape]))
        sha.update(little_endian.tobytes())
    return sha.hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file beside its place and renames it, so that no reader sees half of it.

    Raises:
        InputError: the place cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(content)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def read_bytes(path: Path) -> bytes:
    """Reads a file that the user named.

    Raises:
        InputError: it is missing, a folder, or may not be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def write_arrays(path: Path, header: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes named arrays with a JSON header as one safetensors file."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata = {_METADATA_KEY: canonical_json(header).decode()}
    write_whole(path, save_safetensors(contiguous, metadata=metadata))


def read_arrays(path: Path, header_type: type[H]) -> tuple[H, dict[str, NDArray[Any]]]:
    """Reads what `write_arrays` wrote; the header decides what it must look like.

    Raises:
        InputError: the file is missing, truncated, or of another make.
    """
    content = read_bytes(path)
    try:
        arrays = load_safetensors(content)
        size = int.from_bytes(content[:8], "little")
        metadata = msgspec.json.decode(content[8 : 8 + size]).get("__metadata__", {})
        header = msgspec.json.decode(metadata[_METADATA_KEY], type=header_type)
    except (SafetensorError, msgspec.MsgspecError, KeyError, ValueError, TypeError) as error:
        what = f"no '{_METADATA_KEY}' metadata" if isinstance(error, KeyError) else error
        raise InputError(f"{path}: not a readable parity file: {what}") from error
    return header, arrays
