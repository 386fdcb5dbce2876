"""The catalogue of peers, what is not installed, and conventions declared or not."""

import ast
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers_check import convention
from helpers_cli import Ran
from helpers_peers import PATIENCE, silent
from parity.convention import Convention, offered
from parity.errors import BackendError, InputError
from parity.objectives import find
from parity.peers import Adapter, Difference, Peer, catalogue, chosen, require
from parity.peers.checking import PeersReport, check_peers

ROOT = Path(__file__).parents[1]
ADAPTERS = {
    f"{peer.name}-{adapter.function}": (peer, adapter)
    for peer in catalogue().peer
    for adapter in peer.adapter
}


# ── The catalogue ──────────────────────────────────────────────────────────────────────────────


def arguments(target: str) -> list[str]:
    """The parameters of a function, from its source: its module needs a library."""
    module, _, name = target.partition(":")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    return [argument.arg for argument in found[name].args.args]


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_catalogue_names_functions_that_take_our_inputs(name: str) -> None:
    _, adapter = ADAPTERS[name]
    objective = find(adapter.objective)
    assert set(arguments(adapter.call)) <= set(offered(objective))
    if adapter.documented:  # a comparison of two functions gives both every input
        assert arguments(adapter.call) == list(objective.axes)
        assert arguments(adapter.documented) == list(objective.axes)
    for difference in adapter.difference:
        assert difference.sentence.endswith(".")
        assert difference.source
        assert bool(difference.apart) == bool(difference.returns)
        assert set(difference.apart) <= {"beta", "clip"} & set(objective.axes)


def test_the_catalogue_has_no_field_that_goes_unread() -> None:
    """msgspec lets a convention's unknown fields pass."""
    raw = tomllib.loads((ROOT / "parity/peers.toml").read_text())
    for peer in raw["peer"]:
        for adapter in peer["adapter"]:
            assert adapter["convention"].keys() <= set(Convention.__struct_fields__)


def test_every_peer_is_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {requirement.partition(">")[0] for requirement in extras["peers"]}
    assert {peer.distribution for peer in catalogue().peer} <= named


@pytest.mark.parametrize(
    ("names", "objective", "message"),
    [
        (["tlr"], "", "peer: got 'tlr'; expected one of rlax, torchrl"),
        (["rlax"], "dpo", "--objective: got 'dpo'; expected ppo or reinforce for rlax"),
    ],
)
def test_what_is_not_in_the_catalogue_is_refused(
    names: list[str], objective: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        chosen(names, objective)


def test_libraries_and_objectives_are_chosen_by_name() -> None:
    assert [peer.name for peer in chosen()] == ["rlax", "torchrl"]
    (peer,) = chosen(["torchrl", "torchrl"], "ppo")
    assert [adapter.function for adapter in peer.adapter] == ["ClipPPOLoss", "KLPENPPOLoss"]


# ── Not installed ──────────────────────────────────────────────────────────────────────────────


GHOST = Peer(
    name="ghost",
    distribution="no-such-distribution-of-parity",
    framework="torch",
    home="",
    adapter=(Adapter(objective="dpo", function="loss", call="nowhere:loss"),),
)
HERE = msgspec.structs.replace(GHOST, name="here", distribution="numpy", framework="numpy")


def test_what_is_not_installed_is_no_pass() -> None:
    report = check_peers([GHOST], PATIENCE, silent)
    assert report.verdict == "inconclusive"
    assert [(peer.verdict, peer.version) for peer in report.peers] == [("not installed", "")]
    assert report.closing == "0 of 1 functions match, 1 not installed"


def test_how_to_install_is_told() -> None:
    told = r"ghost: not installed; expected pip install -c requirements.lock 'rlhf-parity\[peers\]'"
    for every, peers in ((False, [GHOST]), (True, [HERE, GHOST])):
        with pytest.raises(BackendError, match=told):
            require(peers, every=every)
    require([HERE, GHOST], every=False)


def test_a_library_that_cannot_be_loaded_has_failed() -> None:
    report = check_peers([HERE], PATIENCE, silent, quick=True)
    assert [peer.verdict for peer in report.peers] == ["failed"]
    assert "nowhere: cannot be imported: ModuleNotFoundError" in report.peers[0].remarks[0]
    assert report.verdict == "inconclusive"


def test_a_library_whose_process_dies_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "dies.py"
    path.write_text("import os\ndef f(logits, beta): os._exit(7)\n")
    adapter = msgspec.structs.replace(HERE.adapter[0], call=f"{path}:f")
    peer = msgspec.structs.replace(HERE, adapter=(adapter, GHOST.adapter[0]))
    report = check_peers([peer], PATIENCE, silent, quick=True)
    assert [row.verdict for row in report.peers] == ["failed", "failed"]
    assert "crashed with exit code 7" in report.peers[0].remarks[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["peers", "tlr"], "parity: peer: got 'tlr'; expected one of rlax, torchrl\n"),
        (["check", "--peer", "tlr"], "parity: peer: got 'tlr'; expected one of rlax, torchrl\n"),
        (
            ["check", "a.b:f", "--peer", "rlax"],
            "parity: --peer: got 'rlax' beside a function or its options; "
            "expected nothing else but --objective and --quick\n",
        ),
    ],
)
def test_bad_usage_is_one_line(
    inside: Callable[..., Ran], tmp_path: Path, words: list[str], message: str
) -> None:
    ended = inside(*words, cwd=tmp_path)
    assert (ended.code, ended.err) == (2, message)


@pytest.mark.skipif(
    find_spec("rlax") is not None or find_spec("torchrl") is not None, reason="peers are installed"
)
@pytest.mark.parametrize("words", [["peers"], ["peers", "rlax"], ["check", "--peer", "torchrl"]])
def test_without_libraries_the_command_says_how_to_install_them(
    inside: Callable[..., Ran], tmp_path: Path, words: list[str]
) -> None:
    ended = inside(*words, cwd=tmp_path)
    assert ended.code == 3
    assert ended.out == ""
    assert "not installed; expected pip install" in ended.err


# ── Conventions: functions of ours in a library's place ────────────────────────────────────────


FUNCTIONS = """
import numpy as np

def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())

def preference(chosen_scores, rejected_scores):
    return np.mean(np.logaddexp(0, rejected_scores - chosen_scores))

def ppo(logits, old_logps, actions, advantages, reference, beta, clip):
    logps = log_softmax(logits)
    r = np.exp(logps[actions] - old_logps)
    gain = np.minimum(r * advantages, np.clip(r, 1 - clip, 1 + clip) * advantages).mean()
    return beta * (np.exp(logps) * (logps - reference)).sum() - gain

def reversed_kl(logits, old_logps, actions, advantages, reference, beta, clip):
    logps = log_softmax(logits)
    kl = (np.exp(logps) * (logps - reference)).sum()
    other = (np.exp(reference) * (reference - logps)).sum()
    return ppo(logits, old_logps, actions, advantages, reference, beta, clip) + beta * (other - kl)

def nan_above_one(logits, old_logps, actions, advantages, reference, beta, clip):
    loss = ppo(logits, old_logps, actions, advantages, reference, beta, clip)
    return loss * np.asarray(np.nan, loss.dtype) if clip >= 1 else loss

def wrong_above_one(logits, old_logps, actions, advantages, reference, beta, clip):
    loss = ppo(logits, old_logps, actions, advantages, reference, beta, clip)
    return loss * 2 if clip >= 1 else loss

def wrong_below_one(logits, old_logps, actions, advantages, reference, beta, clip):
    clipped = 2 * clip if clip < 1 else clip
    return ppo(logits, old_logps, actions, advantages, reference, beta, clipped)
"""


def library(path: Path, **adapters: dict[str, Any]) -> Peer:
    """A library that is there wherever the tests run, with functions of ours in it."""
    return Peer(
        name="ours",
        distribution="numpy",
        framework="numpy",
        home="",
        adapter=tuple(
            Adapter(
                function=name,
                convention=convention(detached=True),
                **{
                    "objective": "ppo",
                    "call": f"{path}:{name}",
                    **{k: v.format(path=path) if k == "documented" else v for k, v in told.items()},
                },
            )
            for name, told in adapters.items()
        ),
    )


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> PeersReport:
    path = tmp_path_factory.mktemp("ours") / "ours.py"
    path.write_text(FUNCTIONS)
    apart = (Difference(sentence="s.", source="s", apart={"clip": 1.0}, returns="NaN"),)
    peer = library(
        path,
        ppo={"documented": "{path}:ppo"},
        reversed_kl={"documented": "{path}:reversed_kl"},
        nan_above_one={"difference": apart},
        wrong_above_one={"difference": apart},
        wrong_below_one={"difference": apart},
    )
    undeclared = library(path, reversed_kl={}, nan_above_one={})
    undocumented = library(path, wrong_below_one={"documented": "{path}:reversed_kl"})
    adapters = (*peer.adapter, *undeclared.adapter, *undocumented.adapter)
    whole = msgspec.structs.replace(peer, adapter=adapters)
    return check_peers([whole], PATIENCE, silent, quick=True)


def test_a_difference_is_a_convention_only_where_it_is_declared(ours: PeersReport) -> None:
    assert [(peer.function, peer.verdict) for peer in ours.peers] == [
        ("ppo", "match"),  # a declared difference that is none
        ("reversed_kl", "convention"),
        ("nan_above_one", "match"),
        ("wrong_above_one", "divergent"),  # not what was declared there
        ("wrong_below_one", "divergent"),  # elsewhere than declared
        ("reversed_kl", "divergent"),  # not declared
        ("nan_above_one", "divergent"),
        ("wrong_below_one", "divergent"),  # not the formula that was declared
    ]
    assert ours.verdict == "divergent"


def test_what_differs_is_measured(ours: PeersReport) -> None:
    remarks = [peer.remarks for peer in ours.peers]
    assert "is -0.2128235" in remarks[1][0]  # as torchrl's KLPENPPOLoss has it: A > 0, ρ = 0.25
    # 31 points of the core, one value each, in two dtypes: a NumPy function has no gradients.
    assert remarks[1][1].startswith("against its documented formula: match; 62 values compared")
    assert remarks[2] == ["1 of 31 states held apart (clip from 1 on): its loss is NaN there"]
    assert remarks[7][1].startswith("against its documented formula: divergent; parts at ")


def test_a_bug_planted_in_an_adapter_has_a_name(ours: PeersReport) -> None:
    """Found with its own name among the known faults, and with its smallest failing input."""
    check = ours.peers[4].check
    assert check is not None
    assert check.diagnosis is not None
    assert check.diagnosis.fault == "clip-doubled"
    assert check.repro
