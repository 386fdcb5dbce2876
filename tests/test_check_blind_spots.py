"""Wrong losses that `parity check` once let pass, and right ones that it once refused."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from helpers_check import convention
from parity.checks import Target, check_all
from parity.errors import InputError
from parity.judging import CheckReport
from parity.recognition import recognised
from parity.report import words

PATIENCE = 600.0  # seconds for what takes twenty, on a busy machine


def silent(_who: str, _stage: str) -> None:
    pass


def checked(targets: list[Target], *, quick: bool = False) -> list[CheckReport]:
    reports = check_all(targets, PATIENCE, silent, quick=quick)
    assert not any(isinstance(report, InputError) for report in reports), reports
    return [report for report in reports if isinstance(report, CheckReport)]


MASKED = """
import torch
from torch.nn.functional import logsigmoid
def s(logps, old_logps, advantages, clip):
    r = torch.exp(logps - old_logps)
    return -torch.minimum(r * advantages, torch.clamp(r, 1 - clip, 1 + clip) * advantages)
def right(logps, old_logps, advantages, clip, mask):
    return (s(logps, old_logps, advantages, clip) * mask).sum() / mask.sum()
def right_by_choice(logps, old_logps, advantages, clip, mask):
    return s(logps, old_logps, advantages, clip)[mask.bool()].mean()
def last_column_lost(logps, old_logps, advantages, clip, mask):
    mask = torch.cat([mask[:, :-1], torch.zeros_like(mask[:, :1])], 1)
    return (s(logps, old_logps, advantages, clip) * mask).sum() / mask.sum()
def last_column_cut(logps, old_logps, advantages, clip, mask):
    x, mask = s(logps, old_logps, advantages, clip)[:, :-1], mask[:, :-1]
    return (x * mask).sum() / mask.sum()
def mean_of_rows(logps, old_logps, advantages, clip, mask):
    x = s(logps, old_logps, advantages, clip) * mask
    return (x.sum(1) / mask.sum(1)).mean()
def mean_of_filled_rows(logps, old_logps, advantages, clip, mask):
    x, n = s(logps, old_logps, advantages, clip) * mask, mask.sum(1)
    return (x.sum(1)[n > 0] / n[n > 0]).mean()
def mask_of_the_first_row(logps, old_logps, advantages, clip, mask):
    mask = mask[:1].expand_as(mask)
    return (s(logps, old_logps, advantages, clip) * mask).sum() / mask.sum()
def first_places(logps, old_logps, advantages, clip, mask):
    return s(logps, old_logps, advantages, clip).flatten()[: int(mask.sum())].mean()
def last_places(logps, old_logps, advantages, clip, mask):
    return s(logps, old_logps, advantages, clip).flatten()[-int(mask.sum()) :].mean()
def dpo_right(chosen_logps, rejected_logps, reference_chosen_logps, reference_rejected_logps,
              beta, mask):
    m = chosen_logps - rejected_logps - reference_chosen_logps + reference_rejected_logps
    return -(logsigmoid(beta * m) * mask).sum() / mask.sum()
def dpo_mean_of_rows(chosen_logps, rejected_logps, reference_chosen_logps,
                     reference_rejected_logps, beta, mask):
    m = chosen_logps - rejected_logps - reference_chosen_logps + reference_rejected_logps
    x, n = logsigmoid(beta * m) * mask, mask.sum(1)
    return -(x.sum(1)[n > 0] / n[n > 0]).mean()
"""
MASKS = [line[4:].partition("(")[0] for line in MASKED.splitlines() if line.startswith("def ")][1:]


def test_every_error_of_a_mask_is_seen(tmp_path: Path) -> None:
    """Rows of unequal length, one of them full: the last column is not padding throughout."""
    pytest.importorskip("torch")
    path = tmp_path / "masked.py"
    path.write_text(MASKED)
    targets = [
        Target(
            f"{path}:{name}",
            "dpo" if name.startswith("dpo") else "ppo",
            convention=convention(
                shape="B,T", detached=True, kl="inside" if name.startswith("dpo") else "absent"
            ),
        )
        for name in MASKS
    ]
    reports = dict(zip(MASKS, checked(targets, quick=True), strict=True))
    expected = {n: "match" if "right" in n else "divergent" for n in MASKS}
    assert {name: report.verdict for name, report in reports.items()} == expected
    program, source = tmp_path / "repro.py", reports["last_column_cut"].repro
    program.write_text(source)
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert "AssertionError" in ended.stderr, ended.stderr
    program.write_text(source.replace("['last_column_cut']", "['right']"))
    subprocess.run([sys.executable, program], check=True, timeout=PATIENCE)


CLAMPED = """
import torch
from torch.nn.functional import logsigmoid
def kl(logps, reference): return torch.sum(torch.exp(logps) * (logps - reference))
def ppo(logps, reference, log_ratio, a, beta, clip):
    r = torch.exp(log_ratio)
    return -torch.minimum(r * a, torch.clamp(r, 1 - clip, 1 + clip) * a).mean() + beta * (
        kl(logps, reference))
def right(logits, old_logps, actions, advantages, reference, beta, clip):
    lp = torch.log_softmax(logits, 0)
    return ppo(lp, reference, lp[actions] - old_logps, advantages, beta, clip)
def advantages_at_10(logits, old_logps, actions, advantages, reference, beta, clip):
    lp = torch.log_softmax(logits, 0)
    return ppo(lp, reference, lp[actions] - old_logps, advantages.clamp(-10, 10), beta, clip)
def log_ratio_at_40(logits, old_logps, actions, advantages, reference, beta, clip):
    lp = torch.log_softmax(logits, 0)
    return ppo(lp, reference, (lp[actions] - old_logps).clamp(-40, 40), advantages, beta, clip)
def log_ratio_from_below(logits, old_logps, actions, advantages, reference, beta, clip):
    lp = torch.log_softmax(logits, 0)
    return ppo(lp, reference, (lp[actions] - old_logps).clamp(min=-40), advantages, beta, clip)
def kl_at_50(logits, old_logps, actions, advantages, reference, beta, clip):
    lp = torch.log_softmax(logits, 0)
    loss = ppo(lp, reference, lp[actions] - old_logps, advantages, 0.0, clip)
    return loss + beta * kl(lp, reference).clamp(max=50)
def last_lost_of_many(logits, old_logps, actions, advantages, reference, beta, clip):
    lp, n = torch.log_softmax(logits, 0), len(actions) - (len(actions) > 512)
    return ppo(lp, reference, (lp[actions] - old_logps)[:n], advantages[:n], beta, clip)
def reinforce_right(logits, actions, advantages, reference, beta):
    lp = torch.log_softmax(logits, 0)
    return beta * kl(lp, reference) - (lp[actions] * advantages).mean()
def reinforce_gradient_at_1000(logits, actions, advantages, reference, beta):
    lp = torch.log_softmax(logits, 0)
    lp.register_hook(lambda g: g.clamp(-1000, 1000))
    return beta * kl(lp, reference) - (lp[actions] * advantages).mean()
def reinforce_kl_at_50(logits, actions, advantages, reference, beta):
    lp = torch.log_softmax(logits, 0)
    return beta * kl(lp, reference).clamp(max=50) - (lp[actions] * advantages).mean()
def dpo(logits, reference, chosen, rejected, beta):
    d = torch.log_softmax(logits, 0) - reference
    return -logsigmoid(beta * (d[chosen] - d[rejected]))
def dpo_right(logits, reference, chosen, rejected, beta):
    return dpo(logits, reference, chosen, rejected, beta).mean()
def dpo_ties_dropped(logits, reference, chosen, rejected, beta):
    kept = (chosen != rejected).to(logits.dtype)
    x = dpo(logits, reference, chosen, rejected, beta) * kept
    return x.sum() / kept.sum().clamp(min=1)
def dpo_gradient_at_1000(logits, reference, chosen, rejected, beta):
    held = logits * 1.0
    held.register_hook(lambda g: g.clamp(-1000, 1000))
    return dpo(held, reference, chosen, rejected, beta).mean()
def preference_right(weights, chosen, rejected):
    return -logsigmoid((chosen - rejected) @ weights).mean()
def preference_features_at_1000(weights, chosen, rejected):
    return -logsigmoid((chosen - rejected).clamp(-1000, 1000) @ weights).mean()
"""
CLAMPS = {
    "right": ("ppo", ""),
    "advantages_at_10": ("ppo", "advantages of hundreds"),
    "log_ratio_at_40": ("ppo", "log-ratio of 75, not clipped"),
    "log_ratio_from_below": ("ppo", "log-ratio of -75, not clipped"),
    "kl_at_50": ("ppo", "KL above 50"),
    "last_lost_of_many": ("ppo", "128 actions, 1000 samples, logits of scale 0.1"),
    "reinforce_right": ("reinforce", ""),
    "reinforce_gradient_at_1000": ("reinforce", "advantages of 10,000"),
    "reinforce_kl_at_50": ("reinforce", "KL above 50"),
    "dpo_right": ("dpo", ""),
    "dpo_ties_dropped": ("dpo", "a pair of one action twice"),
    "dpo_gradient_at_1000": ("dpo", "beta of thousands"),
    "preference_right": ("preference", ""),
    "preference_features_at_1000": ("preference", "features of thousands"),
}


@pytest.fixture(scope="module")
def clamped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckReport]:
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("clamped") / "mine.py"
    path.write_text(CLAMPED)
    targets = [
        Target(
            f"{path}:{name}", objective, convention=convention(detached=objective != "preference")
        )
        for name, (objective, _) in CLAMPS.items()
    ]
    return dict(zip(CLAMPS, checked(targets), strict=True))


@pytest.mark.parametrize("name", CLAMPS)
def test_what_no_ordinary_run_reaches_is_probed(name: str, clamped: dict[str, CheckReport]) -> None:
    report, (_, label) = clamped[name], CLAMPS[name]
    assert report.verdict == ("divergent" if label else "match"), report.first
    assert (report.first.label if report.first else "") == label


def test_what_is_right_at_the_core_behaves_like_no_known_fault(
    clamped: dict[str, CheckReport],
) -> None:
    """A fault of an update has an honest loss, which any function is like that is right there."""
    for name, (_, label) in CLAMPS.items():
        diagnosis = clamped[name].diagnosis
        assert (diagnosis is None) == (not label)
        assert diagnosis is None or diagnosis.fault == "", (name, diagnosis)


def test_a_twin_passes_on_the_whole_grid() -> None:
    """PyTorch's: JAX would compile every grid; test_points.py takes it there op by op."""
    names = {"ppo": "ppo", "dpo": "dpo", "reinforce": "reinforce", "preference": "reward"}
    targets = [
        Target(f"parity.torch_impl.{module}:{objective}_loss", objective)
        for objective, module in names.items()
    ]
    for report in checked(targets):
        assert report.verdict == "match", (report.target, report.first)


NEIGHBOURS = {
    "of_torch": (
        """
        import torch
        def f(logps, advantages):
            return -(logps * advantages.detach()).mean()
        """,
        "torch",
    ),
    "of_jax": (
        """
        import jax, jax.numpy as jnp
        def f(logps, advantages):
            return -jnp.mean(logps * jax.lax.stop_gradient(advantages))
        """,
        "jax",
    ),
    # PyTorch takes it, and would find a gradient that leaks into the advantages.
    "of_numpy": (
        """
        import numpy as np
        import torch
        def f(logps, advantages):
            return -np.mean(logps * advantages)
        """,
        "numpy",
    ),
}


def test_a_verdict_does_not_depend_on_neighbours(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    for name, (source, _) in NEIGHBOURS.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
    for order in (tuple(NEIGHBOURS), tuple(reversed(NEIGHBOURS))):
        targets = [
            Target(f"{tmp_path / name}.py:f", "reinforce", convention=convention(kl="absent"))
            for name in order
        ]
        found = {
            name: (report.framework, report.verdict, report.fault)
            for name, report in zip(order, checked(targets, quick=True), strict=True)
        }
        assert found == {n: (NEIGHBOURS[n][1], "match", "") for n in order}, order


def test_a_function_is_recognised_by_what_takes_it_where_its_source_is_silent() -> None:
    """One that a library hides behind objects: NumPy is tried before what is loaded by chance."""
    import numpy as np

    def silent_one(x: object) -> object:
        return x

    def loud(x: object) -> object:
        return np.exp(x)  # type: ignore[call-overload]

    every = ("jax", "torch", "numpy")
    loaded = [name for name in every if name in sys.modules and name != "numpy"]
    assert recognised(silent_one, every, lambda name: name == "numpy") == "numpy"
    for name in loaded:
        assert recognised(silent_one, every, lambda tried, mine=name: tried == mine) == name
    assert recognised(loud, every, lambda _: True) == "numpy"
    assert recognised(loud, every, lambda _: False) == "numpy"


def test_float32_accuracy_in_float64_is_noisy_and_told(tmp_path: Path) -> None:
    """PyTorch's softplus is linear above 20, where log(1 + exp(x)) is x + 2e-9."""
    pytest.importorskip("torch")
    path = tmp_path / "mine.py"
    path.write_text(
        textwrap.dedent("""
        from torch.nn.functional import softplus
        def soft(weights, chosen, rejected):
            return softplus(-(chosen - rejected) @ weights).mean()
        def off(weights, chosen, rejected):
            return soft(weights, chosen, rejected) * (1 + 1e-5)
        """)
    )
    soft, off = checked([Target(f"{path}:{n}", "preference") for n in ("soft", "off")], quick=True)
    assert [lesson.verdict for lesson in soft.lessons] == ["match", "noisy"]
    assert soft.verdict == "noisy"
    assert soft.first is not None
    assert (soft.first.dtype, soft.first.label) == ("float64", "score difference near -20")
    said = words.check_failure(soft)
    assert "first failing cell (float64, points, core): score difference near -20" in said
    assert "in float64 it computes with the accuracy of float32" in said
    assert not any("not compared" in line for line in said)
    assert off.verdict == "divergent"
