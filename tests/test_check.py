"""`parity check`: right functions pass, every known bug fails with its name, conventions hold."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from helpers_check import convention
from parity.checks import Target, check, check_all
from parity.errors import InputError, ParityError
from parity.faults import Known, catalogue
from parity.judging import CheckReport

PATIENCE = 600.0  # seconds for what takes twenty, on a busy machine


def silent(_who: str, _stage: str) -> None:
    pass


def of_losses() -> list[Known]:
    """The entries of the catalogue whose only replaced piece is the loss."""
    return [known for known in catalogue() if known.fault.edits and not known.fault.collects]


# JAX compiles every one of them, in each dtype.
FEW = (
    "clip-only",
    "advantage-not-detached",
    "dpo-log-of-sigmoid",
    "dpo-reference-not-detached",
    "clamp-by-sign",
    "dpo-logaddexp",
    "reward-log-sigmoid",
)


def function(known: Known) -> str:
    """A user's function, in source, that has the fault."""
    name = known.fault.name.replace("-", "_")
    arguments, objective = ", ".join(known.objective.axes), known.objective.name
    return textwrap.dedent(f"""
        def {name}({arguments}):
            return planted("{objective}", "{known.fault.name}").loss({arguments})
    """)


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], dict[str, CheckReport | ParityError]]:
    """Fault to what is said of a function that has it; one process a dtype takes all."""

    @cache
    def of(implementation: str) -> dict[str, CheckReport | ParityError]:
        chosen = [k for k in of_losses() if implementation == "torch" or k.fault.name in FEW]
        path = tmp_path_factory.mktemp(implementation) / "mine.py"
        head = f"from parity.{implementation}_impl.backend import planted\n"
        path.write_text(head + "".join(function(known) for known in chosen))
        targets = [
            Target(f"{path}:{k.fault.name.replace('-', '_')}", k.objective.name) for k in chosen
        ]
        targets += [
            Target(f"parity.{implementation}_impl.{module}:{module}_loss", objective)
            for module, objective in (
                ("ppo", "ppo"),
                ("dpo", "dpo"),
                ("reinforce", "reinforce"),
            )
        ]
        targets.append(Target(f"parity.{implementation}_impl.reward:preference_loss", "preference"))
        names = [k.fault.name for k in chosen] + [t.target.rpartition(":")[2] for t in targets[-4:]]
        return dict(zip(names, check_all(targets, PATIENCE, silent, quick=True), strict=True))

    return of


def test_the_losses_of_the_twins_pass(
    implementation: str, results: Callable[[str], dict[str, CheckReport]]
) -> None:
    for name in ("ppo_loss", "dpo_loss", "reinforce_loss", "preference_loss"):
        report = results(implementation)[name]
        assert report.verdict == "match", (name, report.fault, report.first)
        assert report.framework == implementation
        assert report.repro == ""
        assert [lesson.dtype for lesson in report.lessons] == ["float32", "float64"]
        assert report.notes == ["returns 2 values: the first is compared"]


def test_every_known_bug_of_a_loss_fails_by_its_name(
    implementation: str, results: Callable[[str], dict[str, CheckReport]]
) -> None:
    found = results(implementation)
    wrong = {}
    faults = [f for _, f in of_losses() if f.name in found and not f.equivalent]
    assert len(faults) >= (55 if implementation == "torch" else 4)
    for fault in faults:
        report = found[fault.name]
        diagnosis = report.diagnosis
        named = [diagnosis.fault, *diagnosis.indistinguishable] if diagnosis else []
        if report.verdict != "divergent" or fault.name not in named or not report.first:
            wrong[fault.name] = (report.verdict, report.fault, report.first, diagnosis)
    assert wrong == {}


def test_rewrites_pass(
    implementation: str, results: Callable[[str], dict[str, CheckReport]]
) -> None:
    found = results(implementation)
    rewrites = [f.name for _, f in of_losses() if f.equivalent and f.name in found]
    assert len(rewrites) >= (10 if implementation == "torch" else 3)
    assert {n: found[n].verdict for n in rewrites if found[n].verdict != "match"} == {}


def test_the_first_failing_cell_is_told_in_words(
    results: Callable[[str], dict[str, CheckReport]],
) -> None:
    report = results("torch")["clip-only"]
    assert report.first is not None
    assert report.first.label == "A > 0, ratio far below the interval"  # clip(ρ)A > ρA there
    assert report.first.quantity == "ppo/loss"
    later = results("torch")["dpo-log-one-plus-exp"].first
    assert later is not None
    assert later.label == "scaled margin near -100"  # exp(100) overflows float32, exp(20) does not
    frozen = results("torch")["advantage-not-detached"].first
    assert frozen is not None
    assert frozen.quantity == "ppo/gradient_advantages"


@pytest.mark.parametrize(
    ("fault", "samples"), [("clip-only", 1), ("mean-of-n-minus-1", 2), ("dpo-sum-for-mean", 2)]
)
def test_the_smallest_failing_input_is_found(
    fault: str, samples: int, results: Callable[[str], dict[str, CheckReport]]
) -> None:
    source = results("torch")[fault].repro
    counted = "chosen" if fault.startswith("dpo") else "actions"
    line = next(line for line in source.splitlines() if line.startswith(f"{counted} = "))
    assert line.count(",") == samples  # one after each but the last, and one before the dtype


def test_the_smallest_failing_input_is_a_program(
    results: Callable[[str], dict[str, CheckReport]], tmp_path: Path
) -> None:
    """It fails for the function that is wrong and passes for the right one."""
    source = results("torch")["advantage-negated"].repro
    program = tmp_path / "repro.py"
    program.write_text(source)
    ended = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert "AssertionError" in ended.stderr
    lines = source.splitlines()
    at = next(n for n, text in enumerate(lines) if text.startswith("advantage_negated = runpy"))
    lines[at] = "from parity.torch_impl.ppo import ppo_loss as advantage_negated"
    program.write_text("\n".join(lines))
    subprocess.run([sys.executable, program], check=True, timeout=PATIENCE)


CONVENTIONS = {
    # As in most libraries: log-probs of the samples, no KL, the caller detaches.
    "library": (
        """
        def library(log_prob, old_log_prob, adv, cliprange):
            r = torch.exp(log_prob - old_log_prob)
            return torch.max(-adv * r, -adv * torch.clamp(r, 1 - cliprange, 1 + cliprange))
        """,
        "ppo",
        convention(reduction="per-sample", shape="N,1", kl="absent", detached=True),
    ),
    "masked": (
        """
        def masked(logps, old_logps, advantages, clip, response_mask):
            r, a = torch.exp(logps - old_logps), advantages
            x = torch.min(r * a, torch.clamp(r, 1 - clip, 1 + clip) * a)
            return (x * response_mask).sum() / response_mask.sum()
        """,
        "ppo",
        convention(shape="B,T", kl="absent", detached=True, sign="objective"),
    ),
    "built_in": (
        """
        def built_in(policy_chosen_logps, policy_rejected_logps, reference_chosen_logps,
                     reference_rejected_logps, label_smoothing=0.0):
            m = policy_chosen_logps - policy_rejected_logps
            m = m - (reference_chosen_logps - reference_rejected_logps)
            return -torch.nn.functional.logsigmoid(0.1 * m).sum()
        """,
        "dpo",
        convention(reduction="sum", detached=True, constants={"beta": 0.1}),
    ),
    "scores": (
        """
        def scores(chosen_reward, reject_reward):
            print("step")
            return -torch.nn.functional.logsigmoid(chosen_reward - reject_reward).mean()
        """,
        "preference",
        convention(),
    ),
    "of_logps": (
        """
        def of_logps(logits, actions, advantages, reference, beta, /, *, unused=None):
            kl = (logits.exp() * (logits - reference.detach())).sum()
            return -(logits[actions] * advantages.detach()).mean() + beta * kl
        """,
        "reinforce",
        convention(policy="logps"),
    ),
    # Its reference is taken for logits, and so normalised once more.
    "categoricals": (
        """
        def categoricals(logits, actions, advantages, reference, beta):
            policy, held = (
                torch.distributions.Categorical(logits=values) for values in (logits, reference)
            )
            kl = torch.distributions.kl_divergence(policy, held)
            return beta * kl - (policy.log_prob(actions) * advantages).mean()
        """,
        "reinforce",
        convention(detached=True),
    ),
    "mask_lost": (
        """
        def mask_lost(logps, old_logps, advantages, clip, mask):
            r, a = torch.exp(logps - old_logps), advantages
            return -torch.min(r * a, torch.clamp(r, 1 - clip, 1 + clip) * a).mean()
        """,
        "ppo",
        convention(shape="B,T", kl="absent", detached=True),
    ),
}


@pytest.fixture(scope="module")
def by_convention(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, CheckReport | InputError]:
    path = tmp_path_factory.mktemp("conventions") / "mine.py"
    sources = [textwrap.dedent(source) for source, _, _ in CONVENTIONS.values()]
    path.write_text("import torch\n" + "\n".join(sources))
    targets = [
        Target(f"{path}:{name}", objective, convention=convention)
        for name, (_, objective, convention) in CONVENTIONS.items()
    ]
    return dict(zip(CONVENTIONS, check_all(targets, PATIENCE, silent), strict=True))


@pytest.mark.parametrize("name", CONVENTIONS)
def test_conventions(name: str, by_convention: dict[str, CheckReport]) -> None:
    """On the whole grid, up to 128 actions and 1,000 samples."""
    report = by_convention[name]
    expected = "divergent" if name == "mask_lost" else "match"
    assert report.verdict == expected, (report.fault, report.first)
    if name == "scores":
        assert report.notes == ["prints while it computes: 'step'"]


NUMPY = """
import numpy as np
def dpo(logits, reference, chosen, rejected, beta):
    lp = logits - logits.max()
    lp = lp - np.log(np.exp(lp).sum())
    m = (lp[chosen] - lp[rejected]) - (reference[chosen] - reference[rejected])
    return np.mean(np.logaddexp(0, -beta * m)).astype(logits.dtype)
def wrong(logits, reference, chosen, rejected, beta):
    return 2 * dpo(logits, reference, chosen, rejected, beta)
def adapted(logits, reference, chosen, rejected, beta):
    return dpo(x=logits) if False else dpo(logits, reference, chosen, rejected, beta)
def strange(x, ref, c, r, b):
    return dpo(x, ref, c, r, b)
"""


def test_numpy_functions_maps_and_adapters(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(NUMPY)
    mapping = {"x": "logits", "ref": "reference", "c": "chosen", "r": "rejected", "b": "beta"}
    right, wrong, mapped, refused, adapted = check_all(
        [
            Target(f"{path}:dpo", "dpo"),
            Target(f"{path}:wrong", "dpo"),
            Target(f"{path}:strange", "dpo", mapping=mapping),
            Target(f"{path}:strange", "dpo", mapping={**mapping, "b": "clip"}),
            Target(f"{path}:strange", "dpo", adapter=f"{path}:adapted"),
        ],
        PATIENCE,
        silent,
    )
    for report in (right, mapped, adapted):
        assert isinstance(report, CheckReport)
        assert report.verdict == "match", report.first
        assert report.framework == "numpy"
        assert {c.quantity for c in report.lessons[0].comparisons} == {"dpo/loss"}
    assert isinstance(wrong, CheckReport)
    assert wrong.verdict == "divergent"
    assert isinstance(refused, InputError)
    assert "b=clip: no such input: found strange(x, ref, c, r, b)" in str(refused)


def test_training_in_step_and_trajectory_mode() -> None:
    right = check(
        Target("parity.torch_impl.ppo:ppo_loss", "ppo", train=True), PATIENCE, silent, quick=True
    )
    assert right.verdict == "match", right.first
    modes = {c.mode for c in right.lessons[0].comparisons}
    assert modes == {"points", "step", "trajectory"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Target("nowhere", "dpo"), "TARGET: got 'nowhere'; expected package.module:function"),
        (Target("missing.py:f", "dpo"), "missing.py: no such file"),
        (
            Target("a.b:f", "sft"),
            "--objective: got 'sft'; expected one of reward or preference, ppo",
        ),
        (
            Target("a.b:f", "dpo", convention=convention(kl="absent")),
            "--kl: got absent; dpo has no such choice, expected one of sign, reduction",
        ),
        (
            Target("a.b:f", "dpo", convention=convention(constants={"clip": 1.0})),
            "--constant: got 'clip'; expected beta for dpo",
        ),
        (
            Target("a.b:f", "ppo", within={"advantages": (0.0, 1.0)}),
            "within: got 'advantages'; expected beta or clip, as ppo has",
        ),
        (
            Target("a.b:f", "ppo", within={"clip": (5.0, 6.0)}),
            "within: got {'clip': (5.0, 6.0)}; expected ranges in which probes lie",
        ),
        (
            Target("a.b:f", "ppo", convention=convention(constants={"beta": -1.0})),
            "--constant: beta: got -1.0; expected a finite number, at least 0",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(target: Target, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check(target, PATIENCE, silent)
    assert message in str(refused.value)


def test_the_command_says_it_in_words_and_in_json(tmp_path: Path) -> None:
    path, repro = tmp_path / "mine.py", tmp_path / "repro.py"
    path.write_text(NUMPY)
    command = [
        sys.executable,
        "-m",
        "parity.cli.main",
        "check",
        f"{path}:wrong",
        "--objective",
        "dpo",
    ]
    said = subprocess.run(
        [*command, "--quick", "--repro", repro],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert said.returncode == 1
    assert "wrong(logits, reference, chosen, rejected, beta)" in said.stdout
    assert "first failing cell (float32, points, core): ordinary margins" in said.stdout
    assert f"smallest failing input: {repro}" in said.stdout
    assert said.stdout.splitlines()[-1].startswith("divergent: ")
    ended = subprocess.run([sys.executable, repro], capture_output=True, text=True, check=False)
    assert "AssertionError" in ended.stderr
    command[-3] = f"{path}:dpo"
    encoded = subprocess.run(
        [*command, "--quick", "--quiet", "--format", "json"],
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    report = msgspec.json.decode(encoded.stdout, type=CheckReport)
    assert encoded.returncode == 0
    assert (report.verdict, report.framework) == ("match", "numpy")
