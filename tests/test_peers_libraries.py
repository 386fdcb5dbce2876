"""Real libraries through their adapters: what they compute, and what they do otherwise.

Numbers of cases A and B are the textbook's in float64, computed once in NumPy with gradients by
central differences when the libraries were first looked at (docs/peers.md has the problem).
"""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from helpers_cli import Ran
from helpers_peers import PATIENCE, silent
from parity.arithmetic import operations as op
from parity.objectives import find
from parity.objectives.evaluation import differentiated
from parity.peers import catalogue, chosen
from parity.peers.checking import PeersReport, check_peers


def needs(*names: str) -> pytest.MarkDecorator:
    absent = [name for name in names if find_spec(name) is None]
    return pytest.mark.skipif(
        bool(absent), reason=f"{' and '.join(absent)} not installed (docs/peers.md)"
    )


# ── The real libraries ─────────────────────────────────────────────────────────────────────────


ACTIONS = np.array([0, 1, 2, 0, 1, 2, 0, 2])
BEHAVIOUR = op.log_softmax(np.array([0.1, 0.2, -0.1]))
SCORES = np.array([1.0, -0.5, 0.25])
TINY = {
    "old_logps": BEHAVIOUR[ACTIONS],
    "actions": ACTIONS,
    "advantages": SCORES[ACTIONS] - np.exp(BEHAVIOUR) @ SCORES,
    "reference": op.log_softmax(np.array([0.0, 0.0, 0.3])),
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
        adapt = import_module("parity.{framework}_impl.adapt")
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
    ours = differentiated(find("ppo"), {"logits": POLICY[case], **TINY})
    expected = np.array(SURROGATE_GRADIENT[case]) + 0.1 * np.array(KL_GRADIENT[case])
    assert -ours["surrogate"] == pytest.approx(SURROGATE[case], abs=VALUE_DIGITS)
    assert ours["kl_penalty"] == pytest.approx(KL[case], abs=VALUE_DIGITS)
    digits = SURROGATE_DIGITS[case] + 0.1 * KL_DIGITS
    assert ours["gradient"] == pytest.approx(expected, abs=digits)


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
    ours = np.exp(op.log_softmax(POLICY[case])[ACTIONS] - TINY["old_logps"])
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
def test_the_commands_say_it_in_words_and_in_json(
    inside: Callable[..., Ran], tmp_path: Path
) -> None:
    asked = ("--objective", "reinforce", "--quick")
    said = inside("check", "--peer", "rlax", *asked, cwd=tmp_path)
    assert said.code == 0, said.err
    assert "reinforce/gradient" in said.out
    assert "policy_gradient_loss" in said.out
    assert said.out.endswith("match: 1 of 1 functions match\n")
    encoded = inside("peers", "rlax", "--quick", "--quiet", "--format", "json", cwd=tmp_path)
    report = msgspec.json.decode(encoded.out, type=PeersReport)
    assert encoded.code == 0
    assert [peer.function for peer in report.peers] == [
        "clipped_surrogate_pg_loss",
        "policy_gradient_loss",
    ]
