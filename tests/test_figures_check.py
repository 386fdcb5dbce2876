"""A committed figure is checked: redrawn byte for byte, numbers within two allowances."""

import math
from pathlib import Path

import matplotlib
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from helpers_figures import BANDIT, PAIRS, PREFERENCES, make_record, make_trace
from parity.figures.check import compare, redraw
from parity.figures.document import encode
from parity.figures.draw import render
from parity.figures.mechanism import render_mechanism
from parity.figures.panels import panel_allowances
from parity.problem import Problem

# --- checking ---------------------------------------------------------------------------------


def test_a_committed_figure_is_redrawn_byte_for_byte(tmp_path: Path) -> None:
    document = make_record(PAIRS)
    path, figure = tmp_path / "pairs.json", tmp_path / "pairs.svg"
    path.write_bytes(encode(document))
    assert redraw(path) == f"{figure.name}: missing; expected the drawing of pairs.json"
    drawing = render(document)
    figure.write_bytes(drawing)
    mechanism = tmp_path / "pairs-mechanism.svg"
    assert redraw(path) == f"{mechanism.name}: missing; expected the drawing of pairs.json"
    diagram = render_mechanism(document)
    mechanism.write_bytes(diagram)
    assert redraw(path) is None
    mechanism.write_bytes(diagram[:400] + b"!" + diagram[401:])
    assert (redraw(path) or "").startswith(
        f"{mechanism.name}: differs from its drawing at byte 400 "
    )
    mechanism.write_bytes(diagram)
    figure.write_bytes(drawing[:300] + b"!" + drawing[301:])
    assert "differs from its drawing at byte 300 " in (redraw(path) or "")
    figure.write_bytes(drawing + b"\n")
    assert f"differs from its drawing at byte {len(drawing)} " in (redraw(path) or "")
    path.write_bytes(encode(msgspec.structs.replace(document, renderer_hash="0" * 64)))
    assert f"rendererHash: got 000000000000… (matplotlib {matplotlib.__version__})" in (
        redraw(path) or ""
    )


def allow(amount: float) -> list[list[NDArray[np.float64]]]:
    return [[np.full(3, amount)], [np.full(2, amount)]]


def test_numbers_may_differ_by_the_sum_of_two_allowances() -> None:
    committed = make_record(PAIRS, {"dpo/loss": [0.5, 0.5, 0.5]})
    fresh = make_record(PAIRS, {"dpo/loss": [0.5, 0.5 + 2**-10, 0.5 - 2**-10]})
    assert compare(committed, committed, allow(0.0)) == []
    assert compare(committed, fresh, allow(2**-11)) == []
    first, second = compare(committed, fresh, allow(0.99 * 2**-11))
    label = committed.data.panels[0].series[0].label
    assert first == (
        f"panel 0, {label!r}[1]: committed 0.5, fresh 0.5009765625; allowed 0.00097 apart"
    )
    assert f"{label!r}[2]: committed 0.5, fresh 0.4990234375" in second


@pytest.mark.parametrize("both", [False, True])
def test_nan_never_passes(both: bool) -> None:
    good = make_record(PAIRS)
    bar = good.data.panels[1]
    broken = msgspec.structs.replace(bar.series[0], y=(math.nan, 0.5))
    panels = (good.data.panels[0], msgspec.structs.replace(bar, series=(broken,)))
    bad = msgspec.structs.replace(good, data=msgspec.structs.replace(good.data, panels=panels))
    assert len(compare(bad if both else good, bad, allow(1e9))) == 1
    assert len(compare(bad, bad if both else good, allow(math.nan))) == 5


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (BANDIT, "data.panels: committed 2, fresh 3"),
        (
            Problem(name="pairs", dpo=msgspec.structs.replace(PREFERENCES, updates=4)),
            "panel 0: series[0].y: committed '3 values', fresh '4 values'",
        ),
        (
            Problem(
                name="pairs", dpo=msgspec.structs.replace(PREFERENCES, preferences=((0, 1), (1, 2)))
            ),
            "panel 1: labels[1]: committed '2 preferred to 0', fresh '1 preferred to 2'",
        ),
    ],
)
def test_structure_is_compared_first(other: Problem, complaint: str) -> None:
    assert complaint in compare(make_record(PAIRS), make_record(other), [])


def test_a_diagram_of_other_words_is_a_mismatch() -> None:
    committed = make_record(PAIRS)
    assert committed.diagram is not None
    older = msgspec.structs.replace(committed.diagram, title="older")
    (message,) = compare(msgspec.structs.replace(committed, diagram=older), committed, allow(0.0))
    assert message.startswith("diagram: title: committed 'older', fresh 'DPO judges")
    (message,) = compare(msgspec.structs.replace(committed, diagram=None), committed, allow(0.0))
    assert message.startswith("diagram: ")


def test_allowances_of_another_shape_are_refused() -> None:
    document = make_record(PAIRS)
    with pytest.raises(ValueError, match=r"expected \(2,\)"):
        compare(document, document, [[np.zeros(3)], [np.zeros(1)]])  # 1 would broadcast
    with pytest.raises(ValueError, match="shorter"):
        compare(document, document, [[np.zeros(3)]])


def test_allowance_of_a_probability_follows_from_that_of_its_logarithm() -> None:
    values = {
        name: q.values.astype(np.float64)
        for name, q in make_trace(BANDIT, "jax").quantities.items()
    }
    values["ppo/reference"] = np.log(np.full((2, 1, 3), 0.25))
    allowed = {name: np.full(array.shape, 2.0**-20) for name, array in values.items()}
    allowed["ppo/expected_reward"] = np.array([9.0, 1.0, 2.0])
    reward, kl, bars = panel_allowances(BANDIT, allowed, values)
    np.testing.assert_array_equal(reward, [[1.0, 2.0]])
    np.testing.assert_array_equal(kl, [[2.0**-20] * 2])
    one_ulp = 2.0**-25  # of a float32 in [0.25, 0.5)
    np.testing.assert_allclose(bars[0], [0.25 * 2.0**-20 + one_ulp] * 3, rtol=1e-12)
    np.testing.assert_array_equal(bars[1], [2.0**-20] * 3)
