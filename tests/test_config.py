"""`[tool.parity]`: what it may say, what is refused, and what a widened allowance lets pass."""

import datetime
from pathlib import Path

import numpy as np
import pytest

from helpers_check import convention
from parity.checks import Target
from parity.comparison import ORACLE, Comparison, compare
from parity.config import check_configured, find_config, load_config
from parity.errors import InputError
from parity.parting import Pair
from parity.trace import Quantity
from parity.widening import Widened, applied, widen

LOSS = """
[[tool.parity.targets]]
target = "mylib.losses:loss"
objective = "dpo"
"""
PAIR = """
[[tool.parity.targets]]
target = "old.py:loss"
against = "new.py:loss"
points = "inputs.npz"
"""
PATIENCE = 600.0  # seconds; nothing is started
PAST, FUTURE = datetime.date(2000, 1, 1), datetime.date(9999, 12, 31)


def written(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_options_go_by_the_names_of_the_command_line(tmp_path: Path) -> None:
    text = (
        LOSS
        + """
name = "dpo"
framework = "torch"
adapter = "adapter.py:adapt"
map = {ref = "reference_logps"}
sign = "objective"
reduction = "per-sample"
policy = "logps"
shape = "B,T"
kl = "absent"
detached = true
constants = {beta = 0.1}
train = true
widened = [{quantity = "dpo/*", factor = 2, reason = "issue 7", expires = 9999-12-31}]
"""
        + PAIR
        + 'gradients = ["logits"]\nfrozen = ["reference"]\n'
    )
    config = load_config(written(tmp_path, text))
    loss, pair = (configured.asked() for configured in config.chosen())
    assert loss == Target(
        target="mylib.losses:loss",
        objective="dpo",
        framework="torch",
        adapter="adapter.py:adapt",
        mapping={"ref": "reference_logps"},
        convention=convention(
            sign="objective",
            reduction="per-sample",
            policy="logps",
            shape="B,T",
            kl="absent",
            detached=True,
            constants={"beta": 0.1},
        ),
        train=True,
        widened=(Widened(quantity="dpo/*", factor=2, reason="issue 7", expires=FUTURE),),
    )
    assert pair == Pair(
        left="old.py:loss",
        right="new.py:loss",
        points="inputs.npz",
        gradients=("logits",),
        frozen=("reference",),
        widened=(),
    )
    assert [each.title for each in config.chosen(["dpo"])] == ["dpo"]
    assert [each.title for each in config.targets] == ["dpo", "old.py:loss"]


RULE = 'widened = [{quantity = "dpo/loss", factor = 2, reason = "why", expires = 2030-01-01}]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tool.parity: missing; expected [[tool.parity.targets]]"),
        ("[tool.parity]", "tool.parity.targets: missing; expected a value"),
        ("[tool]\nparity = 3", "tool.parity: got 3; expected object"),
        ("tool = 3", "tool.parity: missing; expected [[tool.parity.targets]]"),
        ("[tool.parity]\ntargets = []", "tool.parity.targets: got []; expected array of length"),
        ("[tool.parity", "not TOML: "),
        (LOSS + "objectiv = 1", "tool.parity.targets[0].objectiv: got 1; expected no such field"),
        (LOSS + "target = 1", "not TOML: Cannot overwrite a value"),
        ('[[tool.parity.targets]]\nobjective = "dpo"', "tool.parity.targets[0].target: missing"),
        (
            '[[tool.parity.targets]]\ntarget = "a:b"',
            "tool.parity.targets[0]: got 'a:b'; expected either objective or against",
        ),
        (
            LOSS + PAIR.replace("[[tool.parity.targets]]", "").replace("target", "name"),
            "tool.parity.targets[0]: got 'old.py:loss'; expected either objective or against",
        ),
        (
            PAIR.replace('points = "inputs.npz"', ""),
            "tool.parity.targets[0].points: got None; expected inputs for against",
        ),
        (
            LOSS + 'frozen = ["x"]',
            "tool.parity.targets[0].points: got None; expected points, gradients and frozen",
        ),
        (
            LOSS.replace('"dpo"', '"dqo"'),
            "tool.parity.targets[0].objective: got 'dqo'; expected one of reward, preference, ppo",
        ),
        (
            LOSS + 'framework = "tensorflow"',
            "tool.parity.targets[0].framework: got 'tensorflow'; expected jax, torch or numpy",
        ),
        (
            PAIR + 'sign = "objective"',
            "tool.parity.targets[0].sign: got 'objective'; expected no such field beside against",
        ),
        (PAIR + "train = true", "tool.parity.targets[0].train: got True; expected no such field"),
        (LOSS + LOSS, "tool.parity.targets[0].name: got 'mylib.losses:loss'; expected a name"),
        (LOSS + 'sign = "up"', "tool.parity.targets[0].sign: got 'up'; expected loss or objective"),
        (LOSS + "detached = 1", "tool.parity.targets[0].detached: got 1; expected bool"),
        (
            LOSS + RULE.replace('reason = "why", ', ""),
            "tool.parity.targets[0].widened[0].reason: missing; expected a value",
        ),
        (
            LOSS + RULE.replace('"why"', '"  "'),
            "tool.parity.targets[0].widened[0].reason: got '  '; expected str matching",
        ),
        (
            LOSS + RULE.replace(", expires = 2030-01-01", ""),
            "tool.parity.targets[0].widened[0].expires: missing; expected a value",
        ),
        (
            LOSS + RULE.replace("2030-01-01", '"soon"'),
            "tool.parity.targets[0].widened[0].expires: got 'soon'; expected ",
        ),
        (
            LOSS + RULE.replace("factor = 2", "factor = 1"),
            "tool.parity.targets[0].widened[0].factor: got 1; expected float > 1.0",
        ),
        (
            LOSS + RULE.replace("factor = 2", "factor = inf"),
            "tool.parity.targets[0].widened[0].factor: got inf; expected float <= 1000000.0",
        ),
        (
            LOSS + RULE.replace("factor = 2", "factor = nan"),
            "tool.parity.targets[0].widened[0].factor: got nan; expected float > 1.0",
        ),
    ],
)
def test_bad_tables_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as refused:
        load_config(path)
    assert str(refused.value).startswith(f"{path}: {message}")
    assert len(str(refused.value).splitlines()) == 1


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, LOSS + PAIR))
    with pytest.raises(
        InputError, match=r"got 'x'; expected one of mylib\.losses:loss, old\.py:loss"
    ):
        config.chosen(["x"])


def test_the_nearest_file_with_the_table_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_config(inner) is None or not find_config(inner).is_relative_to(tmp_path)  # type: ignore[union-attr]
    path = written(tmp_path, LOSS)
    written(tmp_path / "a", "[project]\n")  # another package's, without the table
    assert find_config(inner) == path
    nearer = written(inner, PAIR)
    assert find_config(inner) == nearer


def compared(quantity: str, difference: float, bound: float = 0.0) -> Comparison:
    """Two values, the second `difference` apart where 1.0 is allowed."""
    left = np.array([0.0, difference])
    return compare(
        Quantity(quantity, ("point",), "value", left),
        Quantity(quantity, ("point",), "value", np.zeros(2)),
        np.ones(2),
        mode="points",
        sides=("mine", ORACLE),
        bound=np.full(2, bound) if bound else None,
    )


def rule(quantity: str = "dpo/*", factor: float = 4.0, expires: datetime.date = FUTURE) -> Widened:
    return Widened(quantity=quantity, factor=factor, reason="issue 7", expires=expires)


@pytest.mark.parametrize(
    ("comparison", "given", "verdict"),
    [
        (compared("dpo/loss", 3.0), rule(), "match"),
        (compared("dpo/loss", 4.0), rule(), "match"),
        (compared("dpo/loss", 4.5), rule(), "divergent"),
        (compared("dpo/loss", 3.0, bound=8.0), rule(), "match"),
        (compared("dpo/loss", 4.5, bound=8.0), rule(), "noisy"),
        (compared("ppo/loss", 3.0), rule(), "divergent"),
        (compared("dpo/loss", 3.0), rule(expires=PAST), "divergent"),
        (compared("dpo/loss", 3.0), rule(expires=datetime.date.today()), "match"),
        (compared("dpo/loss", np.nan), rule(factor=1e6), "divergent"),
        (compared("dpo/loss", np.inf), rule(factor=1e6), "divergent"),
    ],
)
def test_a_wider_allowance_counts_for_what_it_names_until_its_date(
    comparison: Comparison, given: Widened, verdict: str
) -> None:
    widened = widen(comparison, [given])
    assert widened.verdict == verdict
    if verdict == "match":
        assert "issue 7" in widened.reason
        assert widened.first is None
        assert widened.worst == comparison.worst  # how far it really is stays in the report
    else:
        assert widened == comparison


def test_what_may_not_differ_at_all_is_never_widened() -> None:
    whole = Quantity("dpo/actions", ("point",), "count", np.array([1, 2]))
    other = Quantity("dpo/actions", ("point",), "count", np.array([1, 3]))
    counts = compare(whole, other, np.ones(2), mode="points", sides=("mine", ORACLE))
    assert widen(counts, [rule(factor=1e6)]) == counts
    assert counts.verdict == "divergent"


def test_the_report_repeats_reason_and_date() -> None:
    rules = [rule(), rule("dpo/l*", expires=PAST), rule("dpo/x")]
    comparisons = [widen(compared("dpo/loss", 3.0), rules), widen(compared("dpo/x", 0.5), rules)]
    passed, expired, idle = applied(comparisons, rules)
    assert (passed.passed, passed.expired) == (["dpo/loss"], False)
    assert passed.sentence() == (
        "dpo/* allowed 4 times as much until 9999-12-31 (dpo/loss): issue 7"
    )
    assert (expired.passed, expired.expired) == ([], True)
    assert expired.sentence() == (
        "dpo/l* allowed 4 times as much until 2000-01-01: expired, no longer counts: issue 7"
    )
    assert "nothing needed it" in idle.sentence()


def test_a_pattern_that_means_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"got 'dpq/\*'; expected a pattern of one of dpo/loss"):
        applied([compared("dpo/loss", 0.5)], [rule("dpq/*")])


def test_of_several_targets_the_wrong_one_is_named(tmp_path: Path) -> None:
    wrong = LOSS + "constants = {beta = -1.0}\n"
    other = LOSS.replace("mylib.losses:loss", "mylib.losses:other")
    config = load_config(written(tmp_path, wrong + other))
    with pytest.raises(InputError) as refused:
        check_configured(config, [], PATIENCE, lambda *_: None)
    assert str(refused.value).startswith(f"{config.path}: mylib.losses:loss: --constant: beta: got")
