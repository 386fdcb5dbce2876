"""A trace survives its file in order, and is refused when it is damaged or not as declared."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from parity.errors import InputError
from parity.files import read_arrays, write_arrays
from parity.quantities import of_runs
from parity.trace import Quantity, Trace, TraceHeader, quantities_from


def small(**changes: Any) -> Trace:
    """Names in no alphabetical order, every dtype, NaN and infinity, and no entries."""
    quantities = [
        Quantity("z/loss", ("update",), "value", np.array([1.5, np.nan, np.inf], np.float32)),
        Quantity("a/actions", ("rollout", "sample"), "carried state", np.arange(6).reshape(2, 3)),
        Quantity("m/nothing", ("update", "pair"), "value", np.zeros((0, 2), np.float64)),
        Quantity("b/total", (), "count", np.array(7)),
        Quantity("b/moved", ("rollout",), "count", np.array([True, False])),
    ]
    trace = Trace(
        implementation="mylib.losses:dpo",
        dtype="float32",
        quantities={quantity.name: quantity for quantity in quantities},
        problem_digest="1" * 64,
        samples_digest="2" * 64,
        environment={"python": "3.11", "zlib": "β"},
    )
    return replace(trace, **changes)


def changed(name: str, **changes: Any) -> dict[str, Quantity]:
    return {
        key: replace(quantity, **changes) if key == name else quantity
        for key, quantity in small().quantities.items()
    }


def assert_equal(found: Trace, trace: Trace) -> None:
    assert list(found.quantities) == list(trace.quantities)
    for name, quantity in trace.quantities.items():
        other = found.quantities[name]
        assert (other.name, other.axes, other.kind) == (name, quantity.axes, quantity.kind)
        assert other.values.dtype == quantity.values.dtype
        assert other.values.shape == quantity.values.shape
        np.testing.assert_array_equal(other.values, quantity.values)
    for field in ("implementation", "dtype", "problem_digest", "samples_digest", "environment"):
        assert getattr(found, field) == getattr(trace, field)
    assert found.digest == trace.digest


def test_round_trip(tmp_path: Path) -> None:
    small().save(tmp_path / "trace")
    assert_equal(Trace.load(tmp_path / "trace"), small())


@pytest.mark.parametrize("lesson", ["posttraining-04", "posttraining-05"])
def test_runs_survive_their_files_in_order_of_computation(
    tmp_path: Path, trace_of: Callable[..., Trace], implementation: str, lesson: str
) -> None:
    trace = trace_of(lesson, implementation)
    trace.save(tmp_path / "trace")
    found = Trace.load(tmp_path / "trace")
    assert_equal(found, trace)
    names = list(found.quantities)
    assert names == [spec.name for spec in of_runs() if spec.name in found]
    assert names != sorted(names)


def test_arrays_that_are_not_contiguous_survive(tmp_path: Path) -> None:
    big = np.random.default_rng(2).normal(size=(6, 8))
    for values in (big[::2, ::3], big.T, big[::-1], np.asfortranarray(big)):
        assert not values.flags.c_contiguous
        trace = small(quantities={"x": Quantity("x", ("rollout", "action"), "value", values)})
        trace.save(tmp_path / "trace")
        assert_equal(Trace.load(tmp_path / "trace"), trace)


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    small().save(path)
    content = path.read_bytes()
    for length in range(0, len(content), 10):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match="not a readable parity file"):
            Trace.load(path)


def test_a_flipped_bit_is_refused_or_changes_no_number(tmp_path: Path) -> None:
    """Environment and the implementation's name are part of no digest."""
    path, trace = tmp_path / "trace", small()
    trace.save(path)
    content = path.read_bytes()
    arrays = sum(quantity.values.nbytes for quantity in trace.quantities.values())
    for position in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        try:
            found = Trace.load(path)
        except InputError:
            continue
        provenance = {
            "implementation": trace.implementation,
            "environment": trace.environment,
        }
        assert_equal(replace(found, **provenance), trace)
        assert position < len(content) - arrays


def declared(trace: Trace, path: Path) -> tuple[TraceHeader, dict[str, np.ndarray]]:
    trace.save(path)
    return read_arrays(path, TraceHeader)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "z/loss: missing; expected as declared"),
        (np.zeros(4, np.float32), "z/loss: got float32[4]; expected float32[3] as declared"),
        (
            np.zeros((3, 1), np.float32),
            "z/loss: got float32[3, 1]; expected float32[3] as declared",
        ),
        (np.zeros(3), "z/loss: got float64[3]; expected float32[3] as declared"),
        (np.zeros(3, np.int32), "z/loss: got int32[3]; expected float32[3] as declared"),
    ],
)
def test_arrays_unlike_their_declaration_are_refused(
    tmp_path: Path, values: np.ndarray | None, message: str
) -> None:
    path = tmp_path / "trace"
    header, arrays = declared(small(), path)
    del arrays["z/loss"]
    if values is not None:
        arrays["z/loss"] = values
    write_arrays(path, header, arrays)
    with pytest.raises(InputError) as refused:
        Trace.load(path)
    assert str(refused.value) == f"{path}: {message}"


def test_a_changed_order_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    header, arrays = declared(small(), path)
    swapped = msgspec.structs.replace(header, quantities=header.quantities[::-1])
    write_arrays(path, swapped, arrays)
    with pytest.raises(InputError, match=r"digest: got [0-9a-f]{64}; expected [0-9a-f]{64}$"):
        Trace.load(path)


@pytest.mark.parametrize("version", [0, 2])
def test_another_schema_version_is_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "trace"
    header, arrays = declared(small(), path)
    write_arrays(path, msgspec.structs.replace(header, schema_version=version), arrays)
    with pytest.raises(InputError, match=r"Expected `int` .= 1 - at `.*schema_version`"):
        Trace.load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float64"},
        {"problem_digest": "3" * 64},
        {"samples_digest": ""},
        {"quantities": dict(reversed(small().quantities.items()))},
        {"quantities": dict(list(small().quantities.items())[:-1])},
        {"quantities": changed("z/loss", axes=("checkpoint",))},
        {"quantities": changed("z/loss", kind="gradient")},
        {"quantities": changed("z/loss", values=np.array([1.5, np.nan, -np.inf], np.float32))},
        {"quantities": changed("z/loss", values=np.array([1.5, np.nan, np.inf], np.float64))},
        {"quantities": changed("b/total", values=np.array([7]))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_digest_changes_with_what_was_computed(changes: dict[str, Any]) -> None:
    assert small(**changes).digest != small().digest


def test_digest_ignores_who_computed_it_and_where() -> None:
    assert small(implementation="torch", environment={}).digest == small().digest


def test_quantities_are_named_in_the_order_of_the_catalogue() -> None:
    values = {name: np.zeros(2) for name in ("dpo/loss", "reward/loss", "ppo/loss")}
    found = quantities_from(values, of_runs())
    assert list(found) == ["reward/loss", "ppo/loss", "dpo/loss"]
    assert found["dpo/loss"].axes == ("update",)
    assert found["dpo/loss"].kind == "value"


def test_quantities_outside_the_catalogue_are_refused() -> None:
    values = {"reward/loss": np.zeros(2), "reward/lost": np.zeros(2), "other": np.zeros(2)}
    with pytest.raises(
        ValueError, match=r"not in the catalogue of quantities: other, reward/lost$"
    ):
        quantities_from(values, of_runs())


def test_a_failing_save_leaves_the_old_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "trace"
    small().save(path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            small(dtype="float64").save(path)
    assert_equal(Trace.load(path), small())
    assert [file.name for file in tmp_path.iterdir()] == ["trace"]


def test_a_trace_is_asked_by_name() -> None:
    trace = small()
    assert "z/loss" in trace
    assert "z/lost" not in trace
    assert trace["b/total"] == 7
    with pytest.raises(AttributeError):
        trace.dtype = "float64"  # type: ignore[misc]


def test_an_undeclared_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.safetensors"
    trace = Trace("torch", "float32", {})
    trace.save(path)
    header, _ = read_arrays(path, TraceHeader)
    write_arrays(path, header, {"ppo/loss": np.zeros(2, np.float32)})
    with pytest.raises(InputError, match=r"ppo/loss: not declared; expected declared arrays only"):
        Trace.load(path)
