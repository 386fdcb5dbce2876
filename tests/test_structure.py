"""What must agree before any value is looked at."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers_comparison import SPECS
from parity.comparison import Verdict
from parity.quantities import Declared, expected
from parity.structure import structure
from parity.trace import Quantity, Trace

EXPECTED: dict[Declared, tuple[int, ...]] = {
    SPECS["ppo/actions"]: (2, 4),
    SPECS["ppo/ratios"]: (2, 3, 4),
    SPECS["ppo/surrogate"]: (2, 3),
    SPECS["ppo/logits"]: (2, 3, 5),
}


def whole() -> dict[str, Quantity]:
    return {
        spec.name: Quantity(
            spec.name,
            spec.axes,
            spec.kind,
            np.zeros(shape, np.int64 if spec.integer else np.float32),
        )
        for spec, shape in EXPECTED.items()
    }


def complaints(
    quantities: dict[str, Quantity], declared: str = "float32", dtype: str = "float32"
) -> dict[str, tuple[Verdict, str]]:
    return structure(Trace("torch", declared, quantities), EXPECTED, dtype)


def altered(name: str, **changes: Any) -> dict[str, Quantity]:
    quantities = whole()
    return quantities | {name: replace(quantities[name], **changes)}


def test_a_trace_as_expected_has_no_complaints() -> None:
    assert complaints(whole()) == {}
    wide = {
        name: replace(q, values=q.values.astype(np.float64)) if "actions" not in name else q
        for name, q in whole().items()
    }
    assert complaints(wide, "float64", "float64") == {}


@pytest.mark.parametrize("name", [spec.name for spec in EXPECTED])
def test_a_missing_or_empty_quantity_is_inconclusive(name: str) -> None:
    rest = {key: quantity for key, quantity in whole().items() if key != name}
    assert complaints(rest) == {name: ("inconclusive", "missing from torch")}
    values = whole()[name].values
    assert complaints(altered(name, values=values[:0])) == {
        name: ("inconclusive", "empty in torch")
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"values": np.zeros((3, 2), np.float32)}, "shape (3, 2), expected (2, 3)"),
        ({"values": np.zeros(6, np.float32)}, "shape (6,), expected (2, 3)"),
        ({"values": np.zeros((1, 2, 3), np.float32)}, "shape"),
        ({"values": np.zeros((2, 3), np.float64)}, "dtype float64, expected float32"),
        ({"values": np.zeros((2, 3), np.float16)}, "dtype float16"),
        ({"values": np.zeros((2, 3), np.int64)}, "dtype int64"),
        ({"values": np.zeros((2, 3), ">f4")}, "dtype"),
        ({"axes": ("epoch", "rollout")}, "axes"),
        ({"axes": ("rollout",)}, "axes"),
        ({"kind": "gradient"}, "kind gradient, expected value"),
    ],
)
def test_another_form_is_divergent(changes: dict[str, Any], said: str) -> None:
    found = complaints(altered("ppo/surrogate", **changes))
    assert list(found) == ["ppo/surrogate"]
    verdict, reason = found["ppo/surrogate"]
    assert verdict == "divergent"
    assert reason.startswith(f"torch has {said}")


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float32, np.bool_])
def test_actions_are_int64(dtype: Any) -> None:
    found = complaints(altered("ppo/actions", values=np.zeros((2, 4), dtype)))
    assert found["ppo/actions"][0] == "divergent"


def test_an_unexpected_quantity_is_divergent() -> None:
    extra = Quantity("ppo/entropy", ("rollout",), "value", np.zeros(2, np.float32))
    assert complaints(whole() | {"ppo/entropy": extra}) == {
        "ppo/entropy": ("divergent", "torch records it, nobody expects it")
    }


def test_another_order_is_divergent_where_it_differs() -> None:
    quantities = whole()
    names = list(quantities)
    names[1], names[2] = names[2], names[1]
    found = complaints({name: quantities[name] for name in names})
    assert found == dict.fromkeys(
        ("ppo/ratios", "ppo/surrogate"), ("divergent", "out of order in torch")
    )
    # What is missing or unexpected does not put the rest out of order.
    extra = Quantity("ppo/entropy", (), "value", np.zeros((), np.float32))
    shorter = {"ppo/entropy": extra} | {n: quantities[n] for n in list(quantities)[1:]}
    assert set(complaints(shorter)) == {"ppo/actions", "ppo/entropy"}


@pytest.mark.parametrize("declared", ["float32", "float64"])
def test_a_run_in_another_precision_is_divergent_throughout(declared: str) -> None:
    other = "float64" if declared == "float32" else "float32"
    found = complaints(whole(), declared, other)  # whatever dtype the arrays have
    assert set(found) == {spec.name for spec in EXPECTED}
    assert {verdict for verdict, _ in found.values()} == {"divergent"}
    assert found["ppo/ratios"][1] == f"torch ran in {declared}, expected {other}"


def test_every_lesson_agrees_with_the_catalogue(problems: dict[str, Any]) -> None:
    for problem in problems.values():
        names = [spec.name for spec in expected(problem)]
        assert names == sorted(names, key=list(SPECS).index)
        assert len(names) == len(set(names)) > 0
