"""`parity objectives`: the list, the pages, and what a shell may offer, all from declarations."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from parity.cli import completions
from parity.cli.main import app, main
from parity.cli.objective_pages import markdown
from parity.objectives import built_in
from parity.objectives.spec import Input, Objective, Value
from parity.report.objectives import document

DOCS = Path(__file__).parents[1] / "docs" / "objectives.md"
FRAMEWORKS = {"jax", "jaxlib", "torch", "jax_impl", "torch_impl", "matplotlib"}
TOY = '''
from typing import Annotated

import msgspec
from parity.arithmetic import operations as op
from parity.objectives.spec import Choice, Fault, Input, Objective, Training, Value

print("loading")


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table.

    Attributes:
        start: where it starts,
            one number a weight.
    """

    start: Annotated[tuple[float, ...], msgspec.Meta(min_length=2)]
    steps: Annotated[int, msgspec.Meta(ge=1)]
    rate: float | None = None


THING = Objective(
    name="toy",
    title="Squared error of [weights] *as they are*",
    equation="L = mean |w|²",
    source="made up",
    inputs=(
        Input("weights", ("place",), "differentiated", "where it stands", known_as=("params",)),
        Input("anchor", ("place",), "frozen", "where it stood", padding=float("-inf")),
        Input("scale", (), "constant", "of a | b < c", low=0.5, high=2.0),
    ),
    values=(
        Value("distances_of_everything_that_has_quite_a_long_name", ("place",),
            lambda weights, anchor: weights - anchor, "how far", offered=True, recorded=False),
        Value("loss", (), lambda weights, scale, half: op.mean(scale * weights * weights)),
    ),
    counted="place",
    choices=(Choice("half", "whether ½ stands before it", {"no": "none", "yes": "it does"}),),
    branches={"w < 0": lambda weights: weights < 0},
    faults=(
        Fault("toy-sign", "It has the *wrong* sign.", "-L", "made up", "toy/loss",
            edits={"loss": lambda weights: -op.mean(weights * weights)}),
        Fault("toy-square", "It is spelled with `**`.", "w**2", "made up", equivalent=True,
            edits={"loss": lambda weights, scale: op.mean(scale * weights**2)}),
    ),
    training=Training(Table, ("step",), lambda table: {}, lambda table: {}, "none"),
)
'''


@pytest.fixture
def toy(tmp_path: Path) -> str:
    (tmp_path / "toy.py").write_text(TOY)
    return f"{tmp_path / 'toy.py'}:THING"


def printed(*words: str, width: int = 100) -> str:
    result = CliRunner().invoke(app, ["objectives", *words], env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result.stdout


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_list_has_a_line_for_each(width: int) -> None:
    lines = printed(width=width).splitlines()
    for name, each in built_in().items():
        (line,) = [line for line in lines if line.startswith(f" {name} ")]
        bugs = sum(not fault.equivalent for fault in each.faults)
        assert all(f" {other} " in line for other in each.known_as)
        assert line.split()[-2:] == [str(bugs), "yes" if each.training else "no"]
    assert all(len(line) <= width for line in lines[:-1])


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", built_in())
def test_pages_say_everything(name: str, width: int) -> None:
    """Nothing is cut off, however short the lines are."""
    shown = "".join(printed(name, width=width).split())
    told = document(built_in()[name])
    del told["known_as"], told["counted"]  # the first may be empty, the other is an axis
    for each in (*told["faults"], *told["rewrites"]):
        del each["first"], each["at"]
    texts = ["".join(text.replace("`", "").split()) for text in strings(told)]
    assert not [text for text in texts if text not in shown]
    assert shown.count("…") == sum(text.count("…") for text in texts)


def test_links_stay_whole() -> None:
    lines = printed("ppo", width=80).splitlines()
    links = [f.source for f in built_in()["ppo"].faults if f.source.startswith("https://")]
    assert links
    assert all(any(line.endswith(link) for line in lines) for link in links)


def test_other_names_are_names() -> None:
    for each in built_in().values():
        assert all(printed(other) == printed(each.name) for other in each.known_as)


def test_what_a_page_holds() -> None:
    (part,) = re.findall(r"(?s)\nQuantities\n(.*?)\n\n", printed("dpo"))
    assert "dpo/gradient [action]            ∂L/∂logits · gradient\n" in part
    assert "dpo/gradient_reference [action]  ∂L/∂reference · gradient · must be 0" in part
    page = printed("ppo")
    assert " logits or policy_logps or logps; old_logps; advantages; clip;" in page
    assert re.search(r"kl=absent +it is left out · needs no reference, beta\n", page)
    assert re.search(r"frozen +who detaches the frozen inputs · or --detached\n", page)
    assert re.search(r"seed +seed of .* · integer >= 0 and < 2147483648\n", page)


def test_an_objective_of_the_users(toy: str) -> None:
    page = printed(toy, width=70)
    assert page.startswith("toy  Squared error of [weights] *as they are*\n")
    assert "distances_of_everything_that_has_quite_a_long_name [place]  how far" in page
    assert "constant · at least 0.5, at most 2" in page
    assert "padded with -inf" in page
    assert "half=no   none · default" in page
    assert "where it starts, one number a weight" in page
    assert page.endswith(f"\n\nparity check FILE.py:FUNCTION --objective {toy}\n")


def test_json_is_one_document(toy: str) -> None:
    every = json.loads(printed("--format", "json"))
    assert every == json.loads(json.dumps([document(each) for each in built_in().values()]))
    assert json.loads(printed("dpo", "--format", "json")) == every[[*built_in()].index("dpo")]
    told = json.loads(printed(toy, "--format", "json"))  # what the file prints is not in it
    anchor = told["inputs"][1]
    assert (anchor["role"], anchor["low"], anchor["padding"]) == ("frozen", None, "-inf")
    assert [each["name"] for each in told["faults"]] == ["toy-sign"]
    assert [each["name"] for each in told["rewrites"]] == ["toy-square"]
    assert told["needs"] == [["weights"], ["anchor"], ["scale"]]
    fields = [(each["type"], each["required"]) for each in told["training"]["fields"]]
    assert fields == [("[number, …], at least 2", True), ("integer >= 1", True), ("number", False)]


def test_markdown_keeps_its_tables(toy: str) -> None:
    page = printed(toy, "--format", "markdown")
    assert page.startswith("# toy\n\nSquared error of [weights] \\*as they are\\*.\n")
    assert "of a \\| b \\< c" in page
    assert "| `toy-square` | It is spelled with `**`. | `w**2` | made up |" in page
    for table in re.findall(r"(?m)(?:^\|.*\n)+", page):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_an_objective_without_extras() -> None:
    bare = Objective(
        "bare", "", "L", "", (Input("w", ("n",), "differentiated", ""),),
        (Value("loss", (), lambda w: w),), "n",
    )  # fmt: skip
    titles = re.findall(r"(?m)^## (.*)", markdown([document(bare)]))
    assert titles == ["Inputs", "What else a function may ask for", "Quantities"]


def test_the_committed_pages_are_current() -> None:
    assert DOCS.read_text() == printed("--format", "markdown"), "make docs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonesuch"], "parity: NAME: got 'nonesuch'; expected one of reward or preference, ppo"),
        (["no.py:THING"], "parity: NAME: no.py: no such file; expected file.py:function"),
        (["math:pi"], "parity: NAME: math:pi: got float; expected a parity.objectives.Objective"),
        (["dpo", "--format", "xml"], "parity objectives: Invalid value for '--format'"),
    ],
)
def test_wrong_input(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["objectives", *words])
    out, error = capsys.readouterr()
    assert (ended.value.code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(message)


def offered(option: str, incomplete: str, *before: str) -> list[str]:
    """What the shell offers after `parity check …`."""
    command = get_command(app).commands["check"]  # type: ignore[attr-defined]
    context = command.make_context("check", [*before], resilient_parsing=True)
    parameter = next(each for each in command.params if option in each.opts)
    return [item.value for item in parameter.shell_complete(context, incomplete)]


def test_completions() -> None:
    assert offered("--objective", "") == ["reward", "preference", "ppo", "dpo", "reinforce"]
    assert offered("--objective", "re") == ["reward", "reinforce"]
    assert offered("--set", "sign", "--objective", "dpo") == ["sign=loss", "sign=objective"]
    assert offered("--set", "kl", "f.py:g", "--objective=ppo") == ["kl=inside", "kl=absent"]
    assert offered("--set", "kl", "--objective", "dpo") == []
    assert offered("--constant", "", "--objective", "ppo") == ["beta=", "clip="]
    everywhere = offered("--set", "")
    assert {"kl=absent", "policy=logps"} < {*everywhere}
    assert len({*everywhere}) == len(everywhere)
    assert offered("--set", "", "--objective", "nonesuch") == everywhere


def test_completions_read_words_too() -> None:
    context = typer.Context(get_command(app))  # which has parsed nothing
    for words in (["check", "--objective", "dpo", "--set"], ["check", "--objective=dpo", "--set"]):
        (beta,) = completions.constants(context, words, "b")
        assert beta == ("beta=", built_in()["dpo"].by_input["beta"].says)


def test_no_framework_is_loaded() -> None:
    program = """if True:
        import sys
        from typer.testing import CliRunner
        from parity.cli import completions
        from parity.cli.main import app
        assert "numpy" not in sys.modules
        assert completions.objectives("")
        assert CliRunner().invoke(app, ["objectives", "ppo"]).exit_code == 0
        print(*sys.modules)
    """
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in ran.stdout.split()} & FRAMEWORKS
