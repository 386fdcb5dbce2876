"""Problems: general ones load, digests follow the mathematics."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_problem import SCORED, SMALL, document
from parity.errors import InputError
from parity.objectives.dpo import DPO
from parity.objectives.ppo import PPO
from parity.objectives.reinforce import REINFORCE
from parity.objectives.reward import Reward
from parity.problem import Problem, lessons, load_problem, parse_problem


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
