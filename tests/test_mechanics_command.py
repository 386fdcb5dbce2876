"""What must not pass as a mechanic, and the command that shows them."""

import ast
import io
import json
import sys
from typing import Any

import numpy as np
import pytest

from helpers_mechanics import FRAMEWORKS, NAMES, ROOT
from parity import mechanics
from parity.cli.main import main
from parity.errors import BackendError, InputError
from parity.files import write_arrays
from parity.mechanics import Mechanic, Row, Shown
from parity.objectives.closed_forms import FORMS

# What must not pass.


def mechanic(**documented: Any) -> Mechanic:
    group = mechanics.Group(name="terms", labels=("a", "b"), documented=documented)
    return Mechanic(
        name="m", title="", question="", options=(), answer=0, lesson="", source="", rows=(group,)
    )


def judged(values: Any, version: str = "2.13.0", **documented: Any) -> list[bool]:
    """Rows of a table whose closed form is (1, 2), allowed 1e-6."""
    expected = mechanics.Expected({"terms": np.array([1.0, 2.0])}, {"terms": np.full(2, 1e-6)}, {})
    tables = {
        framework: mechanics._Table({"terms": np.asarray(values, np.float32)}, {framework: version})
        for framework in FRAMEWORKS
    }
    made = mechanics._shown(mechanic(**documented), {"float32": expected}, tables)
    return [row.agree for row in made.rows]


def test_what_is_outside_the_allowance_or_not_a_number_disagrees() -> None:
    assert judged([1.0, 2.0]) == [True, True]
    assert judged([1.0, 2.00001]) == [True, False]
    assert judged([np.nan, np.inf]) == [False, False]


def test_a_documented_value_counts_from_its_version_on() -> None:
    own = {"jax": {"2.13": (7.0, np.nan), "2.14": (8.0, np.inf)}}
    own["torch"] = own["jax"]
    assert judged([7.0, np.nan], "2.13.1", **own) == [True, True]
    assert judged([7.0, np.nan], "2.14.0", **own) == [False, False]
    assert judged([8.0, np.inf], "2.20.0", **own) == [True, True]
    assert judged([1.0, 2.0], "2.12.9", **own) == [True, True]  # not yet: the closed form
    assert judged([7.0, -np.inf], "2.14", **own) == [False, False]


def test_a_table_that_is_not_as_declared_is_a_failure(tmp_path: Any) -> None:
    for arrays, message in (
        ({}, "computed"),
        ({"terms": np.zeros(3, np.float32)}, r"float32\[3\]"),
        ({"terms": np.zeros(2)}, "float64"),
    ):
        write_arrays(tmp_path / "m.jax", {"jax": "0.9"}, arrays)
        with pytest.raises(BackendError, match=message):
            mechanics._table("jax", mechanic(), tmp_path)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="got 'clip'; expected one of clipping, signed-min"):
        mechanics.chosen(["clip"])


# The command.


@pytest.fixture
def tables(shown: dict[str, Shown], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command shows what this file's workers have computed."""
    monkeypatch.setattr(
        mechanics, "show", lambda chosen, _timeout, _progress: [shown[m.name] for m in chosen]
    )


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["mechanics", *arguments])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_without_a_name_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 0
    assert all(f"{name} " in out for name in NAMES)
    code, out, _ = run(capsys, "--json")
    assert [entry["name"] for entry in json.loads(out)] == NAMES


@pytest.mark.usefixtures("tables")
def test_tables_fit_into_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, *NAMES)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    for text in ("A -2, ratio 1.4: term (card)", "-2.8", "To take home", "PyTorch", "0 to 1"):
        assert text in out


@pytest.mark.usefixtures("tables")
def test_json_is_valid_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    code, out, _ = run(capsys, *NAMES, "--json")
    found = json.loads(out, parse_constant=refuse)
    assert code == 0
    assert [entry["name"] for entry in found] == NAMES
    for entry in found:
        assert entry["agree"] is True
        for row in entry["rows"]:
            assert row["agree"] is True
            assert set(row["cells"]) == set(FRAMEWORKS)


def test_a_row_that_disagrees_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shown: dict[str, Shown]
) -> None:
    honest = shown["clipping"]
    row = honest.rows[1]
    wrong = Row(
        row.quantity,
        row.closed,
        row.allowed,
        row.cells | {"torch": mechanics.Cell(1.6, None, False)},
    )
    table = Shown(honest.mechanic, [honest.rows[0], wrong], False, honest.environment)
    monkeypatch.setattr(mechanics, "show", lambda *_: [table])
    code, out, _ = run(capsys, "clipping")
    assert code == 1
    assert "NO" in out
    code, out, _ = run(capsys, "clipping", "--json")
    assert code == 1
    assert [row["agree"] for row in json.loads(out)[0]["rows"]] == [True, False]


@pytest.mark.parametrize(
    "arguments", [["clip"], ["clipping", "--ask", "--json"], ["--ask"], ["clipping", "nope"]]
)
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("typed", "said"),
    [("2\n", "Right."), ("1\n", "Not so: 2 is right."), ("\nfour\n 3 \n", "Not so: 2 is right.")],
)
def test_ask_waits_and_says_whether_the_answer_is_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: str, said: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    code, out, _ = run(capsys, "clipping", "--ask")
    assert code == 0
    before, _, after = out.partition(said)
    assert "Your answer" in before
    assert "closed form" not in before
    assert "A -2, ratio 1.4: term (card)" in after


@pytest.mark.usefixtures("tables")
def test_ask_without_an_answer_is_bad_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("9\n"))
    code, out, err = run(capsys, "clipping", "--ask")
    assert code == 2
    assert "expected a number from 1 to 3" in err
    assert "closed form" not in out


def test_both_twins_and_the_closed_forms_know_the_same_mechanics() -> None:
    assert list(FORMS) == NAMES
    for twin in ("jax_impl", "torch_impl"):  # read, not imported: a framework costs seconds
        module = ast.parse((ROOT / twin / "mechanics.py").read_text())
        (known,) = (
            node.value
            for node in module.body
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "MECHANICS"
        )
        assert isinstance(known, ast.Dict)
        assert [key.value for key in known.keys if isinstance(key, ast.Constant)] == NAMES
