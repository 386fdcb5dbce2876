"""Functions that are checked at the core of the probe grid, all in one process a dtype."""

import textwrap
from pathlib import Path

import pytest

from helpers_check import convention
from parity.checks import Target, check_all
from parity.errors import ParityError
from parity.faults import Known, catalogue
from parity.judging import CheckReport

PATIENCE = 600.0  # seconds for what takes forty, on a busy machine


def silent(_who: str, _stage: str) -> None:
    pass


def of_losses() -> list[Known]:
    """The entries of the catalogue whose only replaced piece is the loss."""
    return [
        known
        for known in catalogue()
        if (known.fault.edits or known.fault.unfrozen) and not known.fault.collects
    ]


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


SOFTPLUS = """
from torch.nn.functional import softplus
def soft(weights, chosen, rejected):
    return softplus(-(chosen - rejected) @ weights).mean()
def off(weights, chosen, rejected):
    return soft(weights, chosen, rejected) * (1 + 1e-5)
"""


def _neighbours(folder: Path) -> dict[str, Target]:
    """In one order and in the other: no framework is loaded before the first."""
    for name, (source, _) in NEIGHBOURS.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
    targets = {
        name: Target(f"{folder / name}.py:f", "reinforce", convention=convention(kl="absent"))
        for name in NEIGHBOURS
    }
    backwards = {f"{name} first": targets[name] for name in reversed(NEIGHBOURS)}
    return backwards | {f"{name} second": target for name, target in targets.items()}


def _losses(folder: Path, implementation: str) -> dict[str, Target]:
    """The losses of a twin, and functions of a user's that have its faults."""
    chosen = [k for k in of_losses() if implementation == "torch" or k.fault.name in FEW]
    path = folder / f"with_{implementation}.py"
    head = f"from parity.{implementation}_impl.backend import planted\n"
    path.write_text(head + "".join(function(known) for known in chosen))
    twins = {"ppo": "ppo", "dpo": "dpo", "reinforce": "reinforce", "preference": "reward"}
    twin = f"parity.{implementation}_impl"
    targets = {
        k.fault.name: Target(
            f"{path}:{k.fault.name.replace('-', '_')}", k.objective.name, implementation
        )  # NumPy's arrays would do as well
        for k in chosen
    } | {
        f"{objective}_loss": Target(f"{twin}.{module}:{objective}_loss", objective)
        for objective, module in twins.items()
    }
    return {f"{implementation} {name}": target for name, target in targets.items()}


def _masks(folder: Path) -> dict[str, Target]:
    path = folder / "masked.py"
    path.write_text(MASKED)
    dpo, ppo = (
        convention(shape="B,T", detached=True),
        convention(shape="B,T", detached=True, kl="absent"),
    )
    return {
        name: Target(f"{path}:{name}", "dpo", convention=dpo)
        if name.startswith("dpo")
        else Target(f"{path}:{name}", "ppo", convention=ppo)
        for name in MASKS
    }


@pytest.fixture(scope="session")
def at_core(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckReport | ParityError]:
    """What is said of every function, by its name."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "soft.py").write_text(SOFTPLUS)
    targets = (
        _neighbours(folder)
        | _losses(folder, "torch")
        | _losses(folder, "jax")
        | _masks(folder)
        | {name: Target(f"{folder}/soft.py:{name}", "preference") for name in ("soft", "off")}
        | {"trained": Target("parity.torch_impl.ppo:ppo_loss", "ppo", train=True)}
    )
    reports = check_all(list(targets.values()), PATIENCE, silent, quick=True)
    return dict(zip(targets, reports, strict=True))
