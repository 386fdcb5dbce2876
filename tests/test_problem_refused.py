"""Bad problems are refused in one line."""

import reprlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_problem import SCORED, SMALL
from parity.errors import InputError
from parity.problem import load_problem, parse_problem

REFERENCE, ROW = "ppo.reference_logits", "reward.features"
FINITE = "a finite number within float32"
NORMAL = "0 or a magnitude of at least 2**-126 (float32's smallest normal)"
NAME = "str matching regex '^[A-Za-z0-9][A-Za-z0-9._-]*$'"
HUGE = "9" * 400  # digits: beyond float64, whose largest has 309

# What to replace in SMALL, by what; then the field, its value and the expectation to be named.
REFUSED: list[tuple[str, str, str, str]] = [
    # Unknown keys.
    ("[reward]", "extra = 1\n[reward]", "extra: got 1", "no such field"),
    ("[reward]", "[other]\n[reward]", "other: got {}", "no such field"),
    ("[dpo]", "clp = 0.2\n[dpo]", "ppo.clp: got 0.2", "no such field"),
    ("[dpo]", '"a.b" = [1]\n[dpo]', "ppo.a.b: got [1]", "no such field"),
    ("[dpo]", '"a`b" = 1\n[dpo]', "ppo.a`b: got 1", "no such field"),
    ("[dpo]", '"a\\nb" = 1\n[dpo]', "ppo.a b: got 1", "no such field"),
    # Missing keys and tables.
    ("clip = 0.3", "", "ppo.clip: missing", "a value"),
    ("rate = 0.1\n", "", "reward.rate: missing", "a value"),
    ("preferences = [[2, 1]]", "", "dpo.preferences: missing", "a value"),
    # Wrong types.
    ("clip = 0.3", 'clip = "0.3"', "ppo.clip: got '0.3'", "float"),
    ("clip = 0.3", "clip = true", "ppo.clip: got True", "float"),
    ("clip = 0.3", "clip = [0.3]", "ppo.clip: got [0.3]", "float"),
    ("clip = 0.3", "clip = 2026-10-20", "ppo.clip: got datetime.date(2026, 10, 20)", "float"),
    ("rollouts = 4", "rollouts = 4.0", "ppo.rollouts: got 4.0", "int"),
    ("rollouts = 4", 'rollouts = "4"', "ppo.rollouts: got '4'", "int"),
    ("rollouts = 4", "rollouts = true", "ppo.rollouts: got True", "int"),
    ("[[2, 1]]", "[[2.0, 1]]", "dpo.preferences[0][0]: got 2.0", "int"),
    ("[[2, 1]]", "[2, 1]", "dpo.preferences[0]: got 2", "array"),
    ("[[2, 1]]", "3", "dpo.preferences: got 3", "array"),
    ("[0.4, 0.0, -0.4]", '[0.4, "x", 0]', "dpo.logits[1]: got 'x'", "float"),
    ("[[1.0, 0.0],", '[[1.0, "x"],', "reward.features[0][1]: got 'x'", "float"),
    ('"small"', "3", "name: got 3", "str"),
    ('"small"', '"small"\ntitle = 3', "title: got 3", "str"),
    # Numbers that float32 cannot hold.
    ("clip = 0.3", "clip = inf", "ppo.clip: got inf", FINITE),
    ("clip = 0.3", "clip = 1e39", "ppo.clip: got 1e+39", FINITE),
    ("clip = 0.3", "clip = 1e-39", "ppo.clip: got 1e-39", NORMAL),
    ("rate = 0.7", "rate = inf", "dpo.rate: got inf", FINITE),
    ("[0.2, 0.0, -0.2]", "[0.2, nan, -0.2]", "ppo.logits[1]: got nan", FINITE),
    ("[0.2, 0.0, -0.2]", "[0.2, 0.0, -inf]", "ppo.logits[2]: got -inf", FINITE),
    ("[0.1, 0.0, 0.3]", "[nan, 0.0, 0.3]", f"{REFERENCE}[0]: got nan", FINITE),
    ("[-1.0, -1.0]]", "[-1.0, nan]]", "reward.features[2][1]: got nan", FINITE),
    ("[0.5, 0.25]", "[0.5, 1e-40]", "reward.weights[1]: got 1e-40", NORMAL),
    # Out of range.
    ("clip = 0.3", "clip = 0", "ppo.clip: got 0", "float > 0.0"),
    ("clip = 0.3", "clip = -0.3", "ppo.clip: got -0.3", "float > 0.0"),
    ("clip = 0.3", "clip = nan", "ppo.clip: got nan", "float > 0.0"),
    ("rate = 0.15", "rate = 0.0", "ppo.rate: got 0.0", "float > 0.0"),
    ("rate = 0.1\n", "rate = -1\n", "reward.rate: got -1", "float > 0.0"),
    ("beta = 0.2", "beta = -0.2", "ppo.beta: got -0.2", "float >= 0.0"),
    ("beta = 0.35", "beta = 0", "dpo.beta: got 0", "float > 0.0"),
    ("updates = 10", "updates = 0", "reward.updates: got 0", "int >= 1"),
    ("rollouts = 4", "rollouts = 0", "ppo.rollouts: got 0", "int >= 1"),
    ("samples = 8", "samples = 0", "ppo.samples: got 0", "int >= 1"),
    ("epochs = 3", "epochs = -3", "ppo.epochs: got -3", "int >= 1"),
    ("updates = 12", "updates = 0", "dpo.updates: got 0", "int >= 1"),
    ("seed = 11", "seed = -1", "ppo.seed: got -1", "int >= 0"),
    ("seed = 11", f"seed = {2**31}", f"ppo.seed: got {2**31}", f"int <= {2**31 - 1}"),
    ('"small"', '"../up"', "name: got '../up'", NAME),
    ('"small"', '""', "name: got ''", NAME),
    # Lengths and shapes.
    ("[[0, 1], [0, 2], [1, 2]]", "[]", "reward.preferences: got []", "array of length >= 1"),
    ("[[2, 1]]", "[]", "dpo.preferences: got []", "array of length >= 1"),
    ("[[2, 1]]", "[[2]]", "dpo.preferences[0]: got [2]", "array of length 2"),
    ("[[2, 1]]", "[[2, 1, 0]]", "dpo.preferences[0]: got [2, 1, 0]", "array of length 2"),
    ("[0.4, 0.0, -0.4]", "[0.4]", "dpo.logits: got [0.4]", "array of length >= 2"),
    ("[0.4, 0.0, -0.4]", "[]", "dpo.logits: got []", "array of length >= 2"),
    (
        "[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]",
        "[[1.0, 0.0]]",
        "reward.features: got [[1.0, 0.0]]",
        "array of length >= 2",
    ),
    ("[0.0, 1.0]", "[0.0]", f"{ROW}[1]: got (0.0,)", "2 features, as in row 0"),
    ("[0.0, 1.0]", "[]", f"{ROW}[1]: got ()", "2 features, as in row 0"),
    (
        "[0.0, 1.0]",
        "[1, 2, 3]",
        "reward.features[1]: got (1.0, 2.0, 3.0)",
        "2 features, as in row 0",
    ),
    ("[0.5, 0.25]", "[0.5]", "reward.weights: got (0.5,)", "2 weights, one per feature"),
    (
        "[0.2, 0.0, -0.2]",
        "[0.2, 0.0]",
        "ppo.logits: got (0.2, 0.0)",
        "3 logits, one per row of features",
    ),
    ("[0.1, 0.0, 0.3]", "[0.1]", f"{REFERENCE}: got (0.1,)", "3 logits, as many as ppo.logits"),
    (
        "[0.6, 0.0, 0.3]",
        "[]",
        "dpo.reference_logits: got ()",
        "3 logits, as many as dpo.logits",
    ),
    # Indices of actions.
    ("[1, 2]]", "[1, 3]]", "reward.preferences[2]: got [1, 3]", "actions from 0 to 2"),
    ("[1, 2]]", "[1, -1]]", "reward.preferences[2][1]: got -1", "int >= 0"),
    ("[1, 2]]", "[1, 1]]", "reward.preferences[2]: got [1, 1]", "two different actions"),
    ("[[2, 1]]", "[[3, 1]]", "dpo.preferences[0]: got [3, 1]", "actions from 0 to 2"),
    ("[[2, 1]]", "[[2, 2]]", "dpo.preferences[0]: got [2, 2]", "two different actions"),
]


@pytest.mark.parametrize(("old", "new", "field_and_value", "expectation"), REFUSED)
def test_bad_input_is_refused_in_one_line(
    old: str, new: str, field_and_value: str, expectation: str
) -> None:
    assert SMALL.count(old) == 1
    with pytest.raises(InputError) as refused:
        parse_problem(SMALL.replace(old, new).encode(), "bad.toml")
    separator = "; expected "
    assert str(refused.value) == f"bad.toml: {field_and_value}{separator}{expectation}"


@pytest.mark.parametrize(
    ("old", "new", "field_and_value", "expectation"),
    [
        ("samples = 4", "samples = 0", "reinforce.samples: got 0", "int >= 1"),
        ("samples = 4", "epochs = 4", "reinforce.epochs: got 4", "no such field"),
        ("scores = [1.0, -1.0]", "", "reinforce.scores: missing", "a value"),
        ("[1.0, -1.0]", "[1.0, nan]", "reinforce.scores[1]: got nan", FINITE),
        (
            "[1.0, -1.0]",
            "[1.0]",
            "reinforce.scores: got (1.0,)",
            "2 scores, as many as reinforce.logits",
        ),
        (
            "[0.0, 0.1]",
            "[0.0]",
            "reinforce.reference_logits: got (0.0,)",
            "2 logits, as many as reinforce.logits",
        ),
        ("beta = 0.8", "beta = -1", "reinforce.beta: got -1", "float >= 0.0"),
    ],
)
def test_bad_reinforce_input_is_refused_in_one_line(
    old: str, new: str, field_and_value: str, expectation: str
) -> None:
    assert SCORED.count(old) == 1
    with pytest.raises(InputError) as refused:
        parse_problem(SCORED.replace(old, new).encode(), "bad.toml")
    assert str(refused.value) == f"bad.toml: {field_and_value}; expected {expectation}"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("", "problem: got {}; expected at least one of the tables"),
        ('title = "nothing"', "problem: got {}; expected at least one of the tables"),
        ("reward = 3", "reward: got 3; expected object | null"),
        ("[[dpo]]", "dpo: got [{}]; expected object | null"),
        (SMALL.replace("[dpo]", "[ppo]"), "not TOML: Cannot declare"),
        ("name = ", "not TOML: "),
        ("\ufeff" + SMALL, "not TOML: "),
        (f"x = {'9' * 5000}", "not TOML: Exceeds the limit"),  # of Python's int, 4300 digits
        (f"x = {'[' * 5000}", "not TOML: maximum recursion depth exceeded"),
        (
            SMALL.replace("clip = 0.3", f"clip = {HUGE}"),
            f"ppo.clip: got {reprlib.repr(int(HUGE))}; expected ",
        ),
        (
            f'samples = "tape.safetensors"\n{SMALL[SMALL.index("[dpo]") :]}',
            "samples: got 'tape.safetensors'; expected none without a [ppo]",
        ),
        (
            SMALL + SCORED[SCORED.index("[reinforce]") :],
            "reinforce: got 'a [ppo] table beside it'; expected [ppo] or [reinforce] alone",
        ),
        (SMALL[SMALL.index("[ppo]") :], "ppo: got 'no [reward]'; expected a [reward] table"),
    ],
)
def test_bad_documents_are_refused_in_one_line(document: str, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_problem(document.encode(), "bad.toml")
    message = str(refused.value)
    assert message.startswith(f"bad.toml: {reason}")
    assert len(message.splitlines()) == 1


def test_bytes_that_are_no_text_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^bad\.toml: not TOML: 'utf-8' codec [^\n]*$"):
        parse_problem(b"\xff\xfe", "bad.toml")


@given(st.data())
def test_no_document_raises_anything_else(data: st.DataObject) -> None:
    """Whatever replaces some piece of a problem: it loads, or it is refused in one line."""
    start = data.draw(st.integers(0, len(SMALL)))
    end = data.draw(st.integers(start, min(start + 40, len(SMALL))))
    piece = data.draw(
        st.text(st.characters(codec="utf-8"), max_size=8)
        | st.floats().map(str)
        | st.integers().map(str)
        | st.sampled_from(['""', "[]", "{}", "[[]]", "\n[reward]\n", "\n", "1e999", "-0.0"])
    )
    message = "any.toml: loaded"
    try:
        parse_problem(f"{SMALL[:start]}{piece}{SMALL[end:]}".encode(), "any.toml")
    except InputError as refused:
        message = str(refused)
    assert message.startswith("any.toml: ")
    assert len(message.splitlines()) == 1


def test_missing_files_and_lessons_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^nosuch: no such lesson or file; expected one of "):
        load_problem("nosuch")
    with pytest.raises(InputError, match=r"nosuch\.toml: cannot be read: No such file"):
        load_problem(tmp_path / "nosuch.toml")
    with pytest.raises(InputError, match=r": cannot be read: Is a directory"):
        load_problem(tmp_path)
