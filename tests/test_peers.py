"""Real libraries through their adapters: what they compute, what they do otherwise, what is told.

Numbers of cases A and B are the textbook's in float64, computed once in NumPy with gradients by
central differences when the libraries were first looked at (docs/peers.md has the problem).
"""

import ast
import json
import subprocess
import sys
import textwrap
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from parity import oracle
from parity.checks import OBJECTIVES
from parity.convention import OFFERED, Convention
from parity.errors import BackendError, InputError
from parity.peers import Adapter, Difference, Peer, catalogue, chosen, require
from parity.peers.checking import PeersReport, check_peers
from parity.points import INPUTS

ROOT = Path(__file__).parents[1]
PATIENCE = 600.0  # seconds for what takes sixty, on a busy machine
ADAPTERS = {
    f"{peer.name}-{adapter.function}": (peer, adapter)
    for peer in catalogue().peer
    for adapter in peer.adapter
}


def needs(*names: str) -> pytest.MarkDecorator:
    absent = [name for name in names if find_spec(name) is None]
    return pytest.mark.skipif(
        bool(absent), reason=f"{' and '.join(absent)} not installed (docs/peers.md)"
    )


def silent(_who: str, _stage: str) -> None:
    pass


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
    objective = OBJECTIVES[adapter.objective]
    assert set(arguments(adapter.call)) <= set(OFFERED[objective])
    if adapter.documented:  # a comparison of two functions gives both every input
        assert arguments(adapter.call) == list(INPUTS[objective])
        assert arguments(adapter.documented) == list(INPUTS[objective])
    for difference in adapter.difference:
        assert difference.sentence.endswith(".")
        assert difference.source
        assert bool(difference.apart) == bool(difference.returns)
        assert set(difference.apart) <= {"beta", "clip"} & set(INPUTS[objective])


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
HERE = msgspec.structs.replace(GHOST, name="here", distribution="numpy")


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


def parity(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


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
def test_bad_usage_is_one_line(words: list[str], message: str) -> None:
    ended = parity(*words)
    assert (ended.returncode, ended.stderr) == (2, message)


@pytest.mark.skipif(
    find_spec("rlax") is not None or find_spec("torchrl") is not None, reason="peers are installed"
)
@pytest.mark.parametrize("words", [["peers"], ["peers", "rlax"], ["check", "--peer", "torchrl"]])
def test_without_libraries_the_command_says_how_to_install_them(words: list[str]) -> None:
    ended = parity(*words)
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert "not installed; expected pip install" in ended.stderr


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
                convention=Convention(detached=True),
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


# ── The real libraries ─────────────────────────────────────────────────────────────────────────

ACTIONS = np.array([0, 1, 2, 0, 1, 2, 0, 2])
BEHAVIOUR = oracle.log_softmax(np.array([0.1, 0.2, -0.1]))
SCORES = np.array([1.0, -0.5, 0.25])
TINY = {
    "old_logps": BEHAVIOUR[ACTIONS],
    "actions": ACTIONS,
    "advantages": SCORES[ACTIONS] - np.exp(BEHAVIOUR) @ SCORES,
    "reference": oracle.log_softmax(np.array([0.0, 0.0, 0.3])),
    "beta": np.array(0.1),
    "clip": np.array(0.2),
}
POLICY = {"A": np.array([0.7, -0.2, 0.1]), "B": np.array([-0.6, 0.7, 0.0])}
SURROGATE = {"A": -0.215175093869, "B": 0.128934134380}  # clipping binds in A, and must not in B
KL = {"A": 0.098601274577, "B": 0.157476417794}
SURROGATE_GRADIENT = {
    "A": [0.005185701, 0.002108349, -0.007294050],
    "B": [-0.151101, 0.197434, -0.046332],
}
KL_GRADIENT = {"A": [0.224883, -0.095701, -0.129182], "B": [-0.126173, 0.271865, -0.145692]}
VALUE_DIGITS, KL_DIGITS = 6e-13, 6e-7  # half of the last digit given, and a little
SURROGATE_DIGITS = {"A": 6e-10, "B": 6e-7}


def computed(program: str, framework: str, **given: Any) -> Any:
    """What a program finds out in float64, in a process of its own: imports of libraries warn."""
    arrays = {name: np.asarray(value).tolist() for name, value in given.items()}
    head = f"""
        import json, sys
        import numpy as np
        from importlib import import_module
        given = {{name: np.asarray(value) for name, value in json.loads(sys.argv[1]).items()}}
        adapt = import_module("{framework}_impl.adapt")
        if "{framework}" == "jax":
            import_module("jax").config.update("jax_enable_x64", True)

        def derived(function, inputs=given):
            value, gradients = adapt.deriver(lambda named: function(**named), ("logits",))(inputs)
            return float(value), np.asarray(gradients["logits"]).tolist()
    """
    source = textwrap.dedent(head) + textwrap.dedent(program)
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source, json.dumps(arrays)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", POLICY)
def test_the_oracle_computes_the_textbook_numbers(case: str) -> None:
    ours = oracle.ppo(logits=POLICY[case], **TINY)
    expected = np.array(SURROGATE_GRADIENT[case]) + 0.1 * np.array(KL_GRADIENT[case])
    assert -ours.surrogate == pytest.approx(SURROGATE[case], abs=VALUE_DIGITS)
    assert ours.kl_penalty == pytest.approx(KL[case], abs=VALUE_DIGITS)
    digits = SURROGATE_DIGITS[case] + 0.1 * KL_DIGITS
    assert ours.gradient == pytest.approx(expected, abs=digits)


@needs("rlax")
@pytest.mark.parametrize("case", POLICY)
def test_rlax_computes_the_textbook_numbers(case: str) -> None:
    value, gradient = computed(
        """
        from parity.peers import rlax_peer
        print(json.dumps(derived(rlax_peer.ppo)))
        """,
        "jax",
        logits=POLICY[case],
        **TINY,
    )
    expected = np.array(SURROGATE_GRADIENT[case]) + 0.1 * np.array(KL_GRADIENT[case])
    digits = SURROGATE_DIGITS[case] + 0.1 * KL_DIGITS
    assert value == pytest.approx(SURROGATE[case] + 0.1 * KL[case], abs=2 * VALUE_DIGITS)
    assert gradient == pytest.approx(expected, abs=digits)


@needs("torchrl")
@pytest.mark.parametrize("case", POLICY)
def test_torchrl_computes_the_textbook_numbers(case: str) -> None:
    inputs = {name: TINY[name] for name in ("old_logps", "actions", "advantages", "clip")}
    value, gradient = computed(
        """
        from parity.peers import torchrl_peer
        print(json.dumps(derived(torchrl_peer.clip_ppo)))
        """,
        "torch",
        logits=POLICY[case],
        **inputs,
    )
    assert value == pytest.approx(SURROGATE[case], abs=VALUE_DIGITS)
    assert gradient == pytest.approx(SURROGATE_GRADIENT[case], abs=SURROGATE_DIGITS[case])


@needs("torchrl")
def test_klpen_has_the_kl_of_the_old_policy_to_the_new() -> None:
    """0.087649676 in case A, found in the first look; KL(new || old) is 0.082143305."""
    inputs = {**TINY, "advantages": np.zeros(8), "beta": np.array(1.0), "reference": BEHAVIOUR}
    value, _ = computed(
        """
        from parity.peers import torchrl_peer
        print(json.dumps(derived(torchrl_peer.klpen_ppo)))
        """,
        "torch",
        logits=POLICY["A"],
        **inputs,
    )
    assert value == pytest.approx(0.087649676, abs=6e-10)


@needs("rlax")
@pytest.mark.parametrize("case", POLICY)
def test_the_ratios_are_those_of_rlax(case: str) -> None:
    """Where the whole behaviour policy is known: categorical_importance_sampling_ratios."""
    theirs = computed(
        """
        import jax.numpy as jnp, rlax
        rows = lambda logits: jnp.tile(jnp.asarray(logits), (8, 1))
        ratios = rlax.categorical_importance_sampling_ratios(
            rows(given["logits"]), rows(given["behaviour"]), given["actions"]
        )
        print(json.dumps(ratios.tolist()))
        """,
        "jax",
        logits=POLICY[case],
        behaviour=BEHAVIOUR,
        actions=ACTIONS,
    )
    ours = np.exp(oracle.log_softmax(POLICY[case])[ACTIONS] - TINY["old_logps"])
    assert theirs == pytest.approx(ours, rel=1e-14)


@needs("rlax")
def test_fmin_hides_an_infinite_ratio() -> None:
    """As the catalogue says; the paper's min gives inf · 0 = NaN."""
    found = computed(
        """
        import jax.numpy as jnp, rlax
        ratios, advantages = jnp.array([jnp.inf]), jnp.array([0.0])
        print(json.dumps([
            float(rlax.clipped_surrogate_pg_loss(ratios, advantages, 0.2)),
            bool(jnp.isnan(jnp.minimum(ratios * advantages, 1.2 * advantages))[0]),
        ]))
        """,
        "jax",
    )
    assert found == [0.0, True]


@needs("torchrl")
def test_a_clip_given_as_a_number_is_rounded_to_float32() -> None:
    """As the catalogue says."""
    number, tensor = computed(
        """
        import torch
        from torchrl.objectives import ClipPPOLoss
        from parity.peers import torchrl_peer

        logits = torch.tensor([0.0, 5.0], dtype=torch.float64)
        one = torch.ones(1, dtype=torch.float64)
        data = torchrl_peer._data(logits, torch.tensor([1]), one, action_log_prob=-9 * one)

        def edge(clip):
            module = ClipPPOLoss(
                torchrl_peer._actor(), None, clip_epsilon=clip, entropy_bonus=False
            )
            return float(-module(data)["loss_objective"])

        print(json.dumps([edge(0.2), edge(0.2 * one[0])]))
        """,
        "torch",
    )
    assert tensor == pytest.approx(1.2, abs=1e-15)
    assert 1e-9 < abs(number - 1.2) < 1e-7


@needs("torchrl")
def test_klpen_with_its_defaults_differentiates_another_beta() -> None:
    """As the catalogue says: the loss has beta, its gradient twice or half of it."""
    found = computed(
        """
        import torch
        from torchrl.objectives import KLPENPPOLoss
        from parity.peers import torchrl_peer

        def weights(distance, **factors):
            logits = torch.tensor([0.7, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
            pi = torch.softmax(logits, dim=0).detach()
            held = torch.softmax(logits.detach() + distance * torch.tensor([-1, 0.7, 0.0]), dim=0)
            kl = (held * (held / pi).log()).sum()
            actions, zero = torch.tensor([0, 1]), torch.zeros(2, dtype=torch.float64)
            data = torchrl_peer._data(logits, actions, zero, action_log_prob=zero)
            data["logits"] = held.log().expand(2, -1)
            actor = torchrl_peer._actor()
            module = KLPENPPOLoss(actor, None, beta=0.5, entropy_bonus=False, **factors)
            loss = module.double()(data)["loss_objective"]
            (gradient,) = torch.autograd.grad(loss, logits)
            return [float(loss / kl), float((gradient / (pi - held))[0])]

        still = {"increment": 1.0, "decrement": 1.0}
        print(json.dumps([weights(1.0), weights(0.01), weights(1.0, **still)]))
        """,
        "torch",
    )
    assert found[0] == pytest.approx([0.5, 1.0])  # KL above 1.5 × dtarg: beta is doubled
    assert found[1] == pytest.approx([0.5, 0.25])  # below dtarg / 1.5: halved
    assert found[2] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    "name", [pytest.param(peer.name, marks=needs(peer.name)) for peer in catalogue().peer]
)
def test_real_libraries_pass(name: str) -> None:
    """On the whole grid, in both dtypes."""
    report = check_peers(chosen([name]), PATIENCE, silent)
    wrong = {
        p.function: p.remarks for p in report.peers if p.verdict not in ("match", "convention")
    }
    assert wrong == {}
    assert report.verdict == "match"
    for peer in report.peers:
        assert peer.version
        assert peer.check is not None
        assert (peer.verdict == "convention") == (peer.function == "KLPENPPOLoss")
        assert [lesson.dtype for lesson in peer.check.lessons] == ["float32", "float64"]


WRONG = {
    "rlax": """
        import jax.numpy as jnp
        from parity.peers import rlax_peer
        def wrong(logits, old_logps, actions, advantages, reference, beta, clip):
            return rlax_peer.ppo(logits, old_logps, actions, advantages, reference, beta, 2 * clip)
    """,
    "torchrl": """
        from parity.peers import torchrl_peer
        def wrong(logits, old_logps, actions, advantages, clip):
            return torchrl_peer.clip_ppo(logits, old_logps, actions, advantages, 0.5 * clip)
    """,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in WRONG])
def test_a_wrong_adapter_of_a_real_library_diverges(name: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(textwrap.dedent(WRONG[name]))
    (peer,) = chosen([name], "ppo")
    adapter = msgspec.structs.replace(peer.adapter[0], call=f"{path}:wrong")
    planted = msgspec.structs.replace(peer, adapter=(adapter,))
    report = check_peers([planted], PATIENCE, silent, quick=True)
    assert [row.verdict for row in report.peers] == ["divergent"]
    assert report.verdict == "divergent"


@needs("rlax")
def test_the_commands_say_it_in_words_and_in_json() -> None:
    said = parity("check", "--peer", "rlax", "--objective", "reinforce", "--quick")
    assert said.returncode == 0, said.stderr
    assert "reinforce/gradient" in said.stdout
    assert "policy_gradient_loss" in said.stdout
    assert said.stdout.endswith("match: 1 of 1 functions match\n")
    encoded = parity("peers", "rlax", "--quick", "--quiet", "--format", "json")
    report = msgspec.json.decode(encoded.stdout, type=PeersReport)
    assert encoded.returncode == 0
    assert [peer.function for peer in report.peers] == [
        "clipped_surrogate_pg_loss",
        "policy_gradient_loss",
    ]
