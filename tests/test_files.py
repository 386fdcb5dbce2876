"""Files are written whole or not at all, read back exactly, and refused when they are damaged."""

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import save as save_safetensors

from parity.errors import InputError
from parity.files import (
    canonical_json,
    digest,
    read_arrays,
    read_bytes,
    write_arrays,
    write_whole,
)

Header = dict[str, Any]


def test_canonical_json_sorts_keys_at_every_depth() -> None:
    value = {"b": [{"d": 1, "c": None}], "a": "β"}
    assert canonical_json(value) == '{"a":"β","b":[{"c":null,"d":1}]}'.encode()
    assert json.loads(canonical_json(value)) == value


def test_digest_is_sha256_of_its_parts() -> None:
    """Pinned, so that tapes and reports written today can be read tomorrow."""
    found = digest({"b": 1, "a": 2}, {"x": np.array([1.5, -2.0], np.float32)})
    # sha256 of b'{"a":2,"b":1}' + b'["x","<f4",[2]]' + struct.pack("<ff", 1.5, -2.0)
    assert found == "f6871fbfc3512c2940d2dfca7cd0c18fa67e8b37700f40510e819590d49675bf"


BASE = np.arange(12, dtype=np.float64).reshape(3, 4)


@pytest.mark.parametrize(
    "other",
    [
        {"y": BASE},
        {"x": BASE.astype(np.float32)},
        {"x": BASE.astype(np.int64)},
        {"x": BASE.reshape(4, 3)},
        {"x": BASE.ravel()},
        {"x": BASE.T},
        {"x": BASE + 1e-15 * (BASE == 1)},
        {"x": np.where(BASE == 0, -0.0, BASE)},
        {"x": BASE, "y": BASE},
        {},
    ],
    ids=["name", "float32", "int64", "shape", "rank", "transposed", "value", "-0", "more", "none"],
)
def test_digest_sees_names_dtypes_shapes_and_values(other: dict[str, np.ndarray]) -> None:
    assert digest("header", other) != digest("header", {"x": BASE})


def test_digest_sees_the_header_and_the_order_of_arrays() -> None:
    assert digest("header", {"x": BASE}) != digest("other", {"x": BASE})
    assert digest("", {"x": BASE, "y": BASE}) != digest("", {"y": BASE, "x": BASE})


def test_digest_does_not_see_the_layout_in_memory() -> None:
    for same in (np.asfortranarray(BASE), BASE[::-1, ::-1][::-1, ::-1], BASE.astype(">f8")):
        assert digest("header", {"x": same}) == digest("header", {"x": BASE})


@given(
    arrays_of.arrays(
        st.sampled_from([np.float32, np.float64, np.int64, np.bool_, np.dtype(">f4")]),
        arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    st.permutations(range(3)),
    st.booleans(),
)
@settings(max_examples=60)
def test_arrays_survive_the_file_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, axes: list[int], backwards: bool
) -> None:
    """NaN, infinities, -0, no entries, no axes, and any layout in memory."""
    if array.ndim == 3:
        array = array.transpose(axes)
    if array.ndim and backwards:
        array = array[::-1]
    path = tmp_path_factory.getbasetemp() / "array.safetensors"
    write_arrays(path, {}, {"x": array})
    _, found = read_arrays(path, Header)
    assert found["x"].shape == array.shape
    assert found["x"].dtype == array.dtype.newbyteorder("=")
    assert found["x"].tobytes() == array.astype(found["x"].dtype).tobytes()
    assert digest("", found) == digest("", {"x": array})


def test_header_survives_the_file_in_order(tmp_path: Path) -> None:
    header = {"names": ["z", "a", "m"], "β": {"deep": [1, 2.5, None, True]}}
    write_arrays(tmp_path / "file", header, dict.fromkeys("zam", BASE))
    assert read_arrays(tmp_path / "file", Header)[0] == header
    first = (tmp_path / "file").read_bytes()
    write_arrays(tmp_path / "file", dict(reversed(header.items())), dict.fromkeys("zam", BASE))
    assert (tmp_path / "file").read_bytes() == first  # same contents, same bytes


# Writing.


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_makes_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_whole(path, b"first")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert leftovers(path.parent) == ["file"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_write_respects_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "file", b"content")
        assert os.umask(umask) == umask  # and leaves it as it was
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


def broken(error: BaseException) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


@pytest.mark.parametrize("call", ["replace", "chmod"])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(28, "No space left on device"), InputError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
)
def test_a_failing_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    error: BaseException,
    raised: type[BaseException],
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(Path, call, broken(error))
        with pytest.raises(raised):
            write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert leftovers(tmp_path) == ["file"]


def test_a_disk_that_fills_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    resource = pytest.importorskip("resource")  # not on every platform
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        with pytest.raises(InputError, match=r"file: cannot be written: File too large$"):
            write_whole(path, bytes(2**20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"old"
    assert leftovers(tmp_path) == ["file"]


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(InputError, match=r"file/below: cannot be written: "):
        write_whole(tmp_path / "file" / "below", b"new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"folder: cannot be written: Is a directory"):
        write_whole(tmp_path / "folder", b"new")
    assert leftovers(tmp_path) == ["file", "folder"]


# Reading.


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nosuch: cannot be read: No such file or directory$"):
        read_bytes(tmp_path / "nosuch")
    with pytest.raises(InputError, match=r": cannot be read: Is a directory$"):
        read_arrays(tmp_path, Header)


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    number: int


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", ""),
        (b"not safetensors at all", ""),
        (save_safetensors({"x": BASE}), "no 'parity' metadata"),
        (save_safetensors({"x": BASE}, metadata={"other": "1"}), "no 'parity' metadata"),
        (save_safetensors({"x": BASE}, metadata={"parity": "{"}), "Input data was truncated"),
        (save_safetensors({"x": BASE}, metadata={"parity": "{}"}), "missing required field"),
        (save_safetensors({"x": BASE}, metadata={"parity": '{"number": "1"}'}), "Expected `int`"),
        (
            save_safetensors({"x": BASE}, metadata={"parity": '{"number": 1, "more": 2}'}),
            "unknown field `more`",
        ),
    ],
)
def test_files_of_another_make_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_arrays(path, Strict)
    message = str(refused.value)
    assert message.startswith(f"{path}: not a readable parity file: ")
    assert reason in message
    assert len(message.splitlines()) == 1


@given(st.binary(max_size=200))
@settings(max_examples=50)
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a readable parity file"):
        read_arrays(path, Strict)
