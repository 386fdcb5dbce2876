"""The figure's document: panels, fields, hashes, times; written and read back."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import msgspec
import numpy as np
import pytest

import parity.figures.style
from helpers_figures import (
    BANDIT,
    EPOCH,
    PAIRS,
    POLICY,
    PREFERENCES,
    REWARD,
    make_record,
    make_trace,
)
from parity.errors import InputError
from parity.figures.document import Record, content_hash, encode, load
from parity.figures.record import generated_at, record
from parity.objectives.reinforce import REINFORCE
from parity.problem import Problem

SCORE_FUNCTION = REINFORCE(
    logits=(0.7, -0.7), scores=(1.0, 0.0), rollouts=2, samples=5, rate=0.1, beta=0.2
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
    hashes = [parity.figures.style.renderer_hash()]
    assert hashes == [make_record(PAIRS).renderer_hash]
    monkeypatch.setitem(parity.figures.style.SIZES, "axes", 2.0)
    hashes.append(parity.figures.style.renderer_hash())
    monkeypatch.setitem(parity.figures.style.RC, "grid.linewidth", 1.0)
    hashes.append(parity.figures.style.renderer_hash())
    monkeypatch.setattr(parity.figures.style, "version", lambda _: "0.0")
    hashes.append(parity.figures.style.renderer_hash())
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
