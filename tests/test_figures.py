import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import msgspec
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

import figures.style
from figures.check import compare, redraw
from figures.document import Record, content_hash, encode, load
from figures.draw import draw_bar, draw_line, render
from figures.mechanism import render_mechanism
from figures.panels import BarPanel, LinePanel, LineSeries, Series, panel_allowances
from figures.record import generated_at, record
from parity.errors import InputError
from parity.problem import DPO, PPO, REINFORCE, Problem, Reward
from parity.quantities import expected
from parity.trace import Quantity, Trace

REWARD = Reward(
    features=((1.0, 0.0), (0.0, 1.0), (-1.0, -1.0)), preferences=((0, 1),), updates=4, rate=0.1
)
POLICY = PPO(logits=(0.2, 0.0, -0.2), rollouts=2, samples=5, epochs=1, rate=0.1, beta=0.2, clip=0.2)
PREFERENCES = DPO(
    logits=(0.0, 0.0, 0.0), preferences=((0, 1), (2, 0)), updates=3, rate=0.4, beta=0.3
)
SCORE_FUNCTION = REINFORCE(
    logits=(0.7, -0.7), scores=(1.0, 0.0), rollouts=2, samples=5, rate=0.1, beta=0.2
)
BANDIT = Problem(name="bandit", reward=REWARD, ppo=POLICY)
PAIRS = Problem(name="pairs", dpo=PREFERENCES)
EPOCH = "1970-01-01T00:00:00+00:00"

Values = Mapping[str, Any]


def make_trace(problem: Problem, implementation: str, values: Values | None = None) -> Trace:
    """Fills every quantity with 0.25, 0.5, 0.75 …, all exact in float32, except those given."""
    quantities = {}
    for spec, shape in expected(problem).items():
        counted = 0.25 * np.arange(1, math.prod(shape) + 1).reshape(shape)
        given = np.asarray((values or {}).get(spec.name, counted), np.float32)
        assert given.shape == shape
        quantities[spec.name] = Quantity(spec.name, spec.axes, spec.kind, given)
    versions = {"jax": "0.9.2", "deviceCount": "1"} if implementation == "jax" else {}
    environment = {"backend": "cpu", "numpy": "2.4.4", "torch": "2.13.0"} | versions
    return Trace(implementation, "float32", quantities, environment=environment)


def make_record(problem: Problem, jax: Values | None = None, torch: Values | None = None) -> Record:
    traces = {
        "jax": make_trace(problem, "jax", jax),
        "torch": make_trace(problem, "torch", jax if torch is None else torch),
    }
    return record(
        problem, traces, verdict="match", report_digest="1a2b3c4d" * 8, generated_at=EPOCH
    )


def plain(document: Record) -> Any:
    return json.loads(encode(document))


# --- the document -----------------------------------------------------------------------------


def test_ppo_panels_start_after_the_first_rollout_and_end_with_both_policies() -> None:
    third = np.float32(1 / 3)
    reference = np.log([[[0.5, 0.3, 0.2]], [[9.0, 9.0, 9.0]]])
    document = make_record(
        BANDIT,
        {
            "ppo/expected_reward": [0.25, third, 1.5],
            "ppo/reference": reference,
            "ppo/probabilities": [0.75, 0.125, 0.125],
        },
    )
    reward, kl, bars = plain(document)["data"]["panels"]
    assert (reward["kind"], kl["kind"], bars["kind"]) == ("line", "line", "bar")
    assert reward["x"] == reward["series"][0]["x"] == [1, 2]
    assert reward["series"][0]["y"] == [float(third), 1.5]  # float32(1/3) is not 1/3
    assert kl["series"][0]["y"] == [0.5, 0.75]
    assert bars["labels"] == ["action 0", "action 1", "action 2"]
    shown = np.asarray(bars["series"][0]["y"])
    assert (shown == shown.astype(np.float32)).all()
    np.testing.assert_allclose(shown, [0.5, 0.3, 0.2], rtol=2**-22)
    assert bars["series"][1]["y"] == [0.75, 0.125, 0.125]
    assert "0.25 before" in document.stdout
    assert "1.5 after" in document.stdout
    assert "0.75 nats" in document.stdout


def test_reinforce_has_the_panels_of_a_policy_on_given_rewards() -> None:
    values = {
        "reinforce/expected_reward": [0.5, 0.75, 1.0],
        "reinforce/reference": np.log([[0.5, 0.5], [0.9, 0.1]]),
    }
    problem = Problem(name="score-function", reinforce=SCORE_FUNCTION)
    reward, kl, bars = plain(make_record(problem, values))["data"]["panels"]
    assert reward["ylabel"] == "expected reward"
    assert reward["series"][0]["y"] == [0.75, 1.0]
    assert kl["x"] == [1, 2]
    assert bars["series"][0]["y"] == [0.5, 0.5]


def test_dpo_panels_count_updates_from_zero_and_name_the_pairs() -> None:
    loss, bars = plain(make_record(PAIRS))["data"]["panels"]
    assert loss["x"] == [0, 1, 2]
    assert loss["series"][0]["y"] == [0.25, 0.5, 0.75]
    assert bars["x"] == [0, 1]
    assert bars["labels"] == ["0 preferred to 1", "2 preferred to 0"]
    assert bars["series"][0]["y"] == [0.25, 0.5]


@pytest.mark.parametrize(
    ("problem", "kinds"),
    [
        (Problem(name="a", reward=REWARD), "line bar"),
        (Problem(name="a", reward=REWARD, dpo=PREFERENCES), "line bar"),
        (Problem(name="a", reward=REWARD, ppo=POLICY, dpo=PREFERENCES), "line line bar line bar"),
        (Problem(name="a", reward=REWARD, reinforce=SCORE_FUNCTION), "line line bar"),
    ],
)
def test_reward_is_shown_only_where_no_policy_is(problem: Problem, kinds: str) -> None:
    document = plain(make_record(problem))
    assert " ".join(panel["kind"] for panel in document["data"]["panels"]) == kinds
    shows_scores = document["data"]["panels"][-1]["ylabel"] == "score"
    assert shows_scores == (problem.ppo is problem.dpo is problem.reinforce is None)
    assert document["stdout"].count("\n") == kinds.count("bar")


def test_fields_are_those_of_the_recorded_documents_and_parity() -> None:
    document = plain(make_record(PAIRS))
    assert list(document) == [
        *("schemaVersion", "lessonId", "contentHash", "rendererHash", "kind", "generatedAt"),
        *("provenance", "environment", "stdout", "data", "parity", "diagram"),
    ]
    assert document["environment"] == {
        **{"backend": "cpu", "deviceCount": 1, "jax": "0.9.2", "torch": "2.13.0"},
        **{"numpy": "2.4.4", "matplotlib": matplotlib.__version__},
    }
    assert document["kind"] == "executed"
    assert document["provenance"] == "recorded_cpu_computation"


def test_largest_difference_is_taken_over_each_panel() -> None:
    document = make_record(
        PAIRS,
        {"dpo/loss": [1.0, 1.0, 1.0], "dpo/final_margins": [1.0, 2.0]},
        {"dpo/loss": [1.0, 1.0 - 2**-20, 1.0 + 2**-22], "dpo/final_margins": [1.0, 2.0]},
    )
    assert [panel.largest_difference for panel in document.parity.panels] == [2**-20, 0.0]
    assert (document.parity.reference, document.parity.other) == ("jax", "torch")


@pytest.mark.parametrize("verdict", ["noisy", "divergent", "inconclusive", "MATCH", ""])
def test_only_a_match_gets_a_document(verdict: str) -> None:
    traces = {name: make_trace(PAIRS, name) for name in ("jax", "torch")}
    with pytest.raises(ValueError, match="only a match"):
        record(PAIRS, traces, verdict=verdict, report_digest="0" * 64, generated_at=EPOCH)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_cannot_be_drawn_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"pairs: panel 1, .*\[1\]: got (nan|inf)"):
        make_record(PAIRS, {"dpo/final_margins": [0.0, value]})


def test_content_hash_covers_data_and_diagram_and_nothing_else() -> None:
    document = make_record(PAIRS)
    raw = plain(document)
    content = msgspec.json.encode({"data": raw["data"], "diagram": raw["diagram"]}, order="sorted")
    assert hashlib.sha256(content).hexdigest() == document.content_hash  # as docs/figures.md says
    assert document.diagram is not None
    other = msgspec.structs.replace(document.diagram, title="another")
    assert content_hash(document.data, other) != document.content_hash
    assert content_hash(document.data, None) != document.content_hash
    assert make_record(PAIRS, {"dpo/loss": [0.25, 0.5, 0.7]}).content_hash != document.content_hash
    drifted = make_record(PAIRS, torch={"dpo/loss": [0.25, 0.5, 0.7]})
    assert drifted.content_hash == document.content_hash


def test_renderer_hash_covers_style_and_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = [figures.style.renderer_hash()]
    assert hashes == [make_record(PAIRS).renderer_hash]
    monkeypatch.setitem(figures.style.SIZES, "axes", 2.0)
    hashes.append(figures.style.renderer_hash())
    monkeypatch.setitem(figures.style.RC, "grid.linewidth", 1.0)
    hashes.append(figures.style.renderer_hash())
    monkeypatch.setattr(figures.style, "version", lambda _: "0.0")
    hashes.append(figures.style.renderer_hash())
    assert len(set(hashes)) == 4


def test_source_date_epoch_sets_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1792493252")
    assert generated_at() == "2026-10-20T10:47:32+00:00"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert generated_at().endswith("+00:00")


@pytest.mark.parametrize("seconds", ["", "soon", "-1", "1.5", " 1", "1_0", "٣", "9" * 30])
def test_a_bad_source_date_epoch_is_named(seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)
    with pytest.raises(InputError) as caught:
        generated_at()
    assert str(caught.value) == (
        f"SOURCE_DATE_EPOCH: got {seconds!r}; expected whole seconds since 1970-01-01 UTC"
    )


# --- reading it back --------------------------------------------------------------------------


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    document = make_record(BANDIT)
    path = tmp_path / "bandit.json"
    path.write_bytes(encode(document))
    assert load(path) == document


def _set(*keys: Any, to: Any) -> Callable[[Any], None]:
    def edit(raw: Any) -> None:
        for key in keys[:-1]:
            raw = raw[key]
        raw[keys[-1]] = to

    return edit


PANEL = ("data", "panels", 0)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (_set("schemaVersion", to=2), "schemaVersion: got 2; expected int <= 1"),
        (_set("kind", to="drawn"), "kind: got 'drawn'; expected str matching regex '^executed$'"),
        (_set("generatedAt", to="now"), "generatedAt: got 'now'; expected str matching regex"),
        (_set("parity", "verdict", to="noisy"), "parity.verdict: got 'noisy'; expected str"),
        (_set("extra", to=1), "extra: got 1; expected no such field"),
        (lambda raw: raw.pop("parity"), "parity: missing; expected a value"),
        (lambda raw: raw["parity"].pop("panels"), "parity.panels: missing; expected a value"),
        (_set(*PANEL, "kind", to="pie"), "data.panels[0].kind: got 'pie'; expected line or bar"),
        (
            _set("diagram", "panel", "kind", to="pie"),
            "diagram.panel.kind: got 'pie'; expected table or graph",
        ),
        (
            _set("diagram", "panel", "nodes", 1, "tone", to="loud"),
            "diagram.panel.nodes[1].tone: got 'loud'; expected data, state, fixed or result",
        ),
        (_set("diagram", "panel", "nodes", 1, "id", to="pairs"), "diagram.panel.nodes[1].id: got"),
        (_set("diagram", "panel", "nodes", 1, "x", to=1.0), "diagram.panel.nodes[1].x: got 1.0;"),
        (
            _set("diagram", "panel", "nodes", 1, "x", to=6.0),
            "diagram.panel.nodes[2]: got 'ref'; expected a box that does not cover policy",
        ),
        (
            _set("diagram", "panel", "edges", 0, "to", to="nowhere"),
            "diagram.panel.edges[0].to: got 'nowhere'; expected one of pairs, policy, ref,",
        ),
        (
            _set("diagram", "panel", "edges", 0, "to", to="pairs"),
            "diagram.panel.edges[0].to: got 'pairs'; expected another node",
        ),
        (_set("diagram", "title", to="other"), "contentHash: got '"),
        (_set(*PANEL, "x", 1, to="b"), "data.panels[0].x[1]: got 'b'; expected int"),
        (
            _set(*PANEL, "series", 0, "y", 2, to=None),
            "data.panels[0].series[0].y[2]: got None; expected float",
        ),
        (_set(*PANEL, "series", to=[]), "data.panels[0].series: got []; expected array of length"),
        (
            _set(*PANEL, "series", 0, "y", to=[0.5]),
            "data.panels[0].series[0].y: got 1; expected 3 values, as in x",
        ),
        (
            _set(*PANEL, "series", 0, "x", to=[0, 1, 9]),
            "data.panels[0].series[0].x: got (0, 1, 9); expected the panel's own x",
        ),
        (
            _set("data", "panels", 1, "labels", to=["one"]),
            "data.panels[1].labels: got 1; expected 2 labels, as in x",
        ),
        (
            _set("parity", "panels", to=[]),
            "parity.panels: got 0; expected 2 entries, one per panel of the data",
        ),
        (_set(*PANEL, "series", 0, "y", 2, to=0.8), "contentHash: got '"),
    ],
)
def test_a_broken_document_is_named_in_one_line(
    edit: Callable[[Any], None], complaint: str, tmp_path: Path
) -> None:
    raw = plain(make_record(PAIRS))
    edit(raw)
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {complaint}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "not JSON"),
        (b'{"schemaVersion": "1", ', "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"schemaVersion": NaN}', "not JSON"),
        (b'{"lessonId": "\\ud800"}', "not JSON"),
        (b'{"diagram": ' + b"[" * 100_000, "not JSON"),
        (b"[1]", "document: got [1]; expected object"),
        (b'{"schemaVersion": 1e999}', "schemaVersion: got inf; expected a number within float64"),
    ],
)
def test_what_is_no_document_is_named(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"pairs\.json: ") as caught:
        load(path)
    assert complaint in str(caught.value)


# --- drawing ----------------------------------------------------------------------------------


def test_same_record_same_bytes_whatever_the_users_settings() -> None:
    document = make_record(BANDIT)
    svg, png = render(document), render(document, "png")
    hostile = {"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red", "figure.dpi": 50}
    with matplotlib.rc_context({**hostile, "text.usetex": True, "axes.unicode_minus": False}):
        settings = dict(matplotlib.rcParams)
        assert render(document) == svg
        assert render(document, "png") == png
        assert dict(matplotlib.rcParams) == settings
    assert png.startswith(b"\x89PNG")


def test_svg_is_accessible_text_without_a_date() -> None:
    document = msgspec.structs.replace(make_record(PAIRS), lesson_id="<a> & $b$")
    svg = render(document).decode()
    root = ElementTree.fromstring(svg)
    namespace = "{http://www.w3.org/2000/svg}"
    title, description = list(root)[:2]
    assert (title.tag, title.text) == (f"{namespace}title", "<a> & $b$")
    assert description.tag == f"{namespace}desc"
    assert "0 preferred to 1 0.25, 2 preferred to 0 0.5" in (description.text or "")
    words = {text.text for text in root.iter(f"{namespace}text")}
    assert {"<a> & $b$", "DPO loss (nats)", "preference pair", "2 preferred to 0"} <= words
    assert "JAX and PyTorch agree: largest difference 0 · report 1a2b3c4d" in words
    assert "<metadata" not in svg


def make_axes(width: float = 5.5) -> Any:
    figure = Figure(figsize=(width / 0.8, 3))
    FigureCanvasAgg(figure)
    return figure.add_axes((0.1, 0.3, 0.8, 0.5))


def make_bars(*labels: str, rows: int = 1) -> BarPanel:
    y = tuple(1.0 + number for number in range(len(labels)))
    return BarPanel(
        x=tuple(range(len(labels))),
        labels=labels,
        series=tuple(Series(label=f"row {row}", y=y) for row in range(rows)),
        xlabel="x",
        ylabel="y",
        title="t",
    )


def test_drawing_returns_its_axes() -> None:
    line = LinePanel(
        xlabel="x", ylabel="y", series=(LineSeries(label="a", x=(7,), y=(2.0,)),), x=(7,)
    )
    axes: Any = make_axes()
    assert draw_line(axes, line) is axes
    (curve,) = axes.lines
    assert curve.get_marker() == "o"  # one point alone must be seen
    axes.figure.draw_without_rendering()
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [7]


def test_several_series_are_named_and_the_last_has_the_trained_colour() -> None:
    axes: Any = make_axes()
    assert draw_bar(axes, make_bars("a", "b", rows=2)) is axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["row 0", "row 1"]
    colours = [to_hex(patch.get_facecolor()).upper() for patch in axes.patches]
    assert colours == [figures.style.COLOURS[1], figures.style.COLOURS[0]]
    curves = tuple(LineSeries(label=label, x=(0, 1), y=(1.0, 2.0)) for label in "ab")
    axes = make_axes()
    draw_line(axes, LinePanel(xlabel="x", ylabel="y", series=curves, x=(0, 1)))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert axes.lines[-1].get_color() == figures.style.COLOURS[0]


@pytest.mark.parametrize(
    ("labels", "least"),
    [
        ([f"action {number}" for number in range(3)], 3),
        ([f"action {number}" for number in range(12)], 12),
        ([f"action {number}" for number in range(500)], 5),
        ([f"{number} preferred to {number + 1}" for number in range(6)], 6),
        ([f"{number} preferred to {number + 1}" for number in range(40)], 4),
        (["w" * 90, "unbreakable" * 9], 1),
        ([""], 1),
    ],
)
@pytest.mark.parametrize("rows", [1, 2])
def test_names_and_values_of_bars_never_overlap(labels: list[str], least: int, rows: int) -> None:
    axes: Any = draw_bar(make_axes(), make_bars(*labels, rows=rows))
    axes.figure.draw_without_rendering()
    ticks = axes.get_xticklabels()
    assert len(ticks) >= least
    for tick, place in zip(ticks, axes.get_xticks(), strict=True):
        assert tick.get_text().replace("\n", " ") == labels[place]
    for texts in (ticks, sorted(axes.texts, key=lambda text: text.xy[0])):
        boxes = [text.get_window_extent() for text in texts]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("problem", [BANDIT, PAIRS, Problem(name="a" * 90, reward=REWARD)])
def test_nothing_is_clipped(problem: Problem) -> None:
    many = {"dpo/final_margins": [-0.000123, -0.0123], "ppo/expected_reward": [1.0, 1e-4, -3e-4]}
    root = ElementTree.fromstring(render(make_record(problem, many)))
    width, height = (float(side) for side in (root.get("viewBox") or "").split()[2:])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        style = dict(part.split(": ", 1) for part in (text.get("style") or "").split("; "))
        length = 0.64 * float(style["font-size"][:-2]) * len(text.text or "")
        before = {"start": 0.0, "middle": 0.5, "end": 1.0}[style["text-anchor"]] * length
        left = float(text.get("x") or 0) - before
        assert left >= 0, text.text
        assert left + length <= width, text.text
        assert 0 < float(text.get("y") or 0) < height, text.text


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


# --- the package ------------------------------------------------------------------------------


def test_importing_the_package_loads_neither_numpy_nor_matplotlib() -> None:
    code = (
        "import sys, figures; assert not {'numpy', 'matplotlib', 'msgspec'} & sys.modules.keys();"
        "[getattr(figures, name) for name in figures.__all__];"
        "assert 'matplotlib.pyplot' not in sys.modules; import matplotlib"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'pie'"):
        _ = figures.pie


def test_reading_and_checking_numbers_needs_no_matplotlib() -> None:
    code = (
        "import sys, figures; [figures.compare, figures.load, figures.recorded];"
        "import figures.record; figures.renderer_hash(); assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
