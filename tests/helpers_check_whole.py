"""Functions that are checked on the whole grid of probes, all in one process a dtype."""

import textwrap

import pytest

from helpers_check import convention
from parity.checks import Target, check_all
from parity.errors import InputError
from parity.judging import CheckReport

PATIENCE = 600.0  # seconds for what takes thirty, on a busy machine

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
# Function to its objective, and the label of the first cell that is wrong.
CLAMPS = {
    "right": ("ppo", ""),
    "advantages_at_10": ("ppo", "advantages of hundreds"),
    "log_ratio_at_40": ("ppo", "log-ratio of 75, not clipped"),
    "log_ratio_from_below": ("ppo", "log-ratio of -75, not clipped"),
    "kl_at_50": ("ppo", "KL above 50"),
    "last_lost_of_many": ("ppo", "128 actions, 1000 samples, scale 0.1"),
    "reinforce_right": ("reinforce", ""),
    "reinforce_gradient_at_1000": ("reinforce", "advantages of 10,000"),
    "reinforce_kl_at_50": ("reinforce", "KL above 50"),
    "dpo_right": ("dpo", ""),
    "dpo_ties_dropped": ("dpo", "a pair of one action twice"),
    "dpo_gradient_at_1000": ("dpo", "beta of thousands"),
    "preference_right": ("preference", ""),
    "preference_features_at_1000": ("preference", "features of thousands"),
}


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


@pytest.fixture(scope="session")
def on_grid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckReport | InputError]:
    """What is said of every function, by its name: up to 128 actions and 1,000 samples."""
    folder = tmp_path_factory.mktemp("grid")
    sources = [textwrap.dedent(source) for source, _, _ in CONVENTIONS.values()]
    (folder / "conventions.py").write_text("import torch\n" + "\n".join(sources))
    (folder / "clamped.py").write_text(CLAMPED)
    (folder / "in_numpy.py").write_text(NUMPY)
    in_numpy = f"{folder}/in_numpy.py"
    mapping = {"x": "logits", "ref": "reference", "c": "chosen", "r": "rejected", "b": "beta"}
    twins = {"ppo": "ppo", "dpo": "dpo", "reinforce": "reinforce", "preference": "reward"}
    targets = (
        {
            f"convention {name}": Target(
                f"{folder}/conventions.py:{name}", objective, convention=stated
            )
            for name, (_, objective, stated) in CONVENTIONS.items()
        }
        | {
            f"clamped {name}": Target(
                f"{folder}/clamped.py:{name}",
                objective,
                convention=convention(detached=objective != "preference"),
            )
            for name, (objective, _) in CLAMPS.items()
        }
        | {  # PyTorch's: JAX would compile every grid; test_points.py takes it there op by op
            f"twin {objective}": Target(f"parity.torch_impl.{module}:{objective}_loss", objective)
            for objective, module in twins.items()
        }
        | {
            "numpy right": Target(f"{in_numpy}:dpo", "dpo"),
            "numpy wrong": Target(f"{in_numpy}:wrong", "dpo"),
            "numpy mapped": Target(f"{in_numpy}:strange", "dpo", mapping=mapping),
            "numpy refused": Target(f"{in_numpy}:strange", "dpo", mapping={**mapping, "b": "clip"}),
            "numpy adapted": Target(f"{in_numpy}:strange", "dpo", adapter=f"{in_numpy}:adapted"),
        }
    )
    reports = check_all(list(targets.values()), PATIENCE, lambda _who, _stage: None)
    return dict(zip(targets, reports, strict=True))
