"""Problems: general ones load, bad ones are refused in one line, digests follow the mathematics."""

import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.errors import InputError
from parity.problem import (
    DPO,
    PPO,
    REINFORCE,
    Problem,
    Reward,
    lessons,
    load_problem,
    parse_problem,
)

SMALL = """\
name = "small"

[reward]
features = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
preferences = [[0, 1], [0, 2], [1, 2]]
updates = 10
rate = 0.1
weights = [0.5, 0.25]

[ppo]
logits = [0.2, 0.0, -0.2]
reference_logits = [0.1, 0.0, 0.3]
rollouts = 4
samples = 8
epochs = 3
rate = 0.15
beta = 0.2
clip = 0.3
seed = 11

[dpo]
logits = [0.4, 0.0, -0.4]
reference_logits = [0.6, 0.0, 0.3]
preferences = [[2, 1]]
updates = 12
rate = 0.7
beta = 0.35
"""

SCORED = """\
name = "scored"

[reinforce]
logits = [0.3, 0.0]
reference_logits = [0.0, 0.1]
scores = [1.0, -1.0]
rollouts = 3
samples = 4
rate = 0.5
beta = 0.8
seed = 7
"""

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


def test_name_defaults_to_the_file_and_samples_lie_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL.replace('name = "small"', 'samples = "tapes/mine.safetensors"'))
    problem = load_problem(path)
    assert problem.name == "mine"
    assert problem.samples == str(tmp_path / "tapes" / "mine.safetensors")
    path = path.rename(tmp_path / "my own.toml")
    with pytest.raises(InputError, match=r"name: got 'my own'; expected str matching"):
        load_problem(path)


def test_recorded_lessons_are_those_of_the_documents(problems: dict[str, Problem]) -> None:
    """Every number is stated in posttraining-04, or recovered for posttraining-05 (design.md)."""
    fourth, fifth = problems["posttraining-04"], problems["posttraining-05"]
    logits, pairs = (0.2, 0.0, -0.2), ((0, 1), (0, 2), (1, 2))
    assert fourth.reward == Reward(
        features=((1, 0), (0, 1), (-1, -1)), preferences=pairs, updates=100, rate=0.1
    )
    assert fourth.reward.initial_weights == (0, 0)
    assert fourth.ppo == PPO(
        logits=logits,
        rollouts=40,
        samples=128,
        epochs=3,
        rate=0.15,
        beta=0.2,
        clip=0.2,
        seed=11,
    )
    assert fourth.ppo.reference == logits
    assert fourth.dpo is None
    assert fifth.dpo == DPO(logits=logits, preferences=pairs, updates=120, rate=0.4, beta=0.3)
    assert fifth.dpo.reference == logits
    assert (fifth.reward, fifth.ppo, fifth.samples) == (None, None, None)


def test_every_lesson_is_named_as_its_file() -> None:
    assert {"posttraining-04", "posttraining-05"} <= lessons().keys()
    for name, path in lessons().items():
        assert load_problem(name).name == name == path.stem


def test_general_problems_load() -> None:
    actions, features = 12, 5
    rows = [[0.1 * action - 0.3 * feature for feature in range(features)] for action in range(12)]
    reference = [0.05 * action for action in range(actions)]
    problem = parse_problem(
        f"""
        title = "Twelve actions, five features, a reference unlike the policy: β ≠ ½"
        [reward]
        features = {rows}
        preferences = [[0, 11], [0, 11], [11, 0], [5, 6], [6, 7], [7, 5]]
        updates = 1
        rate = 2
        weights = [1, 0, -1, 0.5, 3e38]
        [ppo]
        logits = {[0] * actions}
        reference_logits = {reference}
        rollouts = 1
        samples = 1
        epochs = 1
        rate = 1e-30
        beta = 0
        clip = 1.5
        [dpo]
        logits = [-5, 5]
        preferences = [[0, 1]]
        updates = 1000000
        rate = 10
        beta = 100
        """.encode(),
        "general.toml",
    )
    assert problem.name == "general"
    assert problem.reward.features == tuple(map(tuple, rows))
    assert problem.reward.initial_weights == (1, 0, -1, 0.5, 3e38)
    assert problem.ppo.logits == (0,) * actions
    assert problem.ppo.reference == tuple(reference)
    assert problem.ppo.seed == 0
    assert problem.dpo.reference == (-5, 5)
    assert all(isinstance(value, float) for value in problem.ppo.logits)


@pytest.mark.parametrize("tables", [("reward",), ("dpo",), ("reward", "ppo"), ("reward", "dpo")])
def test_tables_may_be_left_out(tables: tuple[str, ...]) -> None:
    whole = parse_problem(SMALL.encode(), "small.toml")
    given_tables = {table: getattr(whole, table) for table in tables}
    found = parse_problem(document(Problem(name="part", **given_tables)), "part.toml")
    for table in ("reward", "ppo", "dpo"):
        assert getattr(found, table) == given_tables.get(table)


def document(problem: Problem) -> bytes:
    """Writes a problem as TOML; msgspec needs another package for that."""

    def table(values: dict[str, Any]) -> Iterator[str]:
        for key, value in values.items():
            if isinstance(value, dict):
                yield f"[{key}]"
                yield from table(value)
            elif value is not None:
                yield f"{key} = {value!r}" if not isinstance(value, str) else f'{key} = "{value}"'

    text = "\n".join(table(msgspec.to_builtins(problem))).replace("(", "[").replace(")", "]")
    return text.encode()


# Digests.

WHOLE = parse_problem(SMALL.encode(), "small.toml")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from leaves(entry, (*path, key))
    elif isinstance(value, list | tuple):
        for position, entry in enumerate(value):
            yield from leaves(entry, (*path, position))
    elif isinstance(value, int | float):
        yield path


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy in which the entry at the path is what `new` makes of it."""
    if not path:
        return new(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


APART = parse_problem(SCORED.encode(), "scored.toml")
MATHEMATICS = [path for problem in (WHOLE, APART) for path in leaves(msgspec.to_builtins(problem))]


@pytest.mark.parametrize("path", MATHEMATICS, ids=str)
def test_digest_changes_with_every_mathematical_field(path: tuple[Any, ...]) -> None:
    problem = APART if path[0] == "reinforce" else WHOLE
    for new in (lambda x: x + 1, lambda x: x + 2**-40 if isinstance(x, float) else x + 2):
        other = msgspec.convert(changed(msgspec.to_builtins(problem), path, new), Problem)
        assert other != problem
        assert other.digest != problem.digest


def test_every_field_of_every_table_is_among_the_mathematics() -> None:
    tables = {"reward": Reward, "ppo": PPO, "dpo": DPO, "reinforce": REINFORCE}
    assert set(Problem.__struct_fields__) == {"name", "title", "samples", *tables}
    for table, type_ in tables.items():
        fields = {path[1] for path in MATHEMATICS if path[0] == table}
        assert fields == set(type_.__struct_fields__)


@pytest.mark.parametrize(
    "path",
    [
        ("reward", "features"),
        ("reward", "preferences"),
        ("reward", "weights"),
        ("ppo", "logits"),
        ("ppo", "reference_logits"),
        ("dpo", "logits"),
    ],
    ids=str,
)
def test_digest_changes_with_the_order_of_a_list(path: tuple[str, ...]) -> None:
    other = changed(msgspec.to_builtins(WHOLE), path, lambda rows: rows[::-1])
    assert msgspec.convert(other, Problem).digest != WHOLE.digest


def test_digest_changes_with_a_table_left_out() -> None:
    kept = [
        msgspec.structs.replace(WHOLE, **dict.fromkeys(left_out)).digest
        for left_out in ((), ("ppo",), ("dpo",), ("ppo", "dpo"), ("reward", "ppo"))
    ]
    assert len(set(kept)) == len(kept)


@settings(max_examples=30)
@given(
    name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z"),
    title=st.text(),
    samples=st.none() | st.text(),
)
def test_digest_ignores_name_title_and_place_of_samples(
    name: str, title: str, samples: str | None
) -> None:
    other = msgspec.structs.replace(WHOLE, name=name, title=title, samples=samples)
    assert other.digest == WHOLE.digest


def test_digest_does_not_see_how_a_number_is_written() -> None:
    """1, 1.0 and 10e-1 are one number, and a layout is not mathematics."""
    rewritten = SMALL.replace("1.0", "1").replace("0.0", "0").replace("0.1\n", "10e-2 # rate\n")
    assert rewritten != SMALL
    assert parse_problem(rewritten.encode(), "small.toml").digest == WHOLE.digest


def test_digest_of_the_recorded_tape_is_that_of_lesson_04(
    problems: dict[str, Problem], tape: Any
) -> None:
    assert tape.problem_digest == problems["posttraining-04"].digest


@pytest.mark.parametrize("target", [WHOLE, WHOLE.reward, WHOLE.ppo, WHOLE.dpo, APART.reinforce])
def test_problems_are_frozen(target: msgspec.Struct) -> None:
    for field in target.__struct_fields__:
        with pytest.raises(AttributeError, match="immutable"):
            setattr(target, field, getattr(target, field))
    assert isinstance(hash(target), int)  # tuples all the way down: nothing inside can change
