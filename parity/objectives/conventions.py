"""Choices that several objectives share: how a function states what it computes."""

from parity.objectives.spec import Choice

__all__ = ["FROZEN", "KL", "POLICY", "REDUCTION", "SHAPE", "SIGN"]

SIGN = Choice(
    "sign",
    "whether it is to be minimised or maximised",
    {
        "loss": "a loss, to be minimised",
        "objective": "an objective, to be maximised: minus the loss",
    },
)
REDUCTION = Choice(
    "reduction",
    "what becomes of the terms of samples or pairs",
    {
        "mean": "their mean",
        "sum": "their sum",
        "per-sample": "one value for each, which is not reduced",
    },
)
SHAPE = Choice(
    "shape",
    "of everything that has one entry a sample or pair",
    {
        "N": "[N]",
        "N,1": "[N, 1]",
        "B,T": "[2, T], padded, with a mask [2, T] of the same dtype",
    },
)
FROZEN = Choice(
    "frozen",
    "who detaches the frozen inputs",
    {
        "inside": "the function itself: no gradient may reach them",
        "caller": "the caller: they come detached",
    },
)
POLICY = Choice(
    "policy",
    "what an argument for `logits` receives",
    {"logits": "logits, not normalised", "logps": "log-probs of all actions"},
    offers={"logps": {"logits": "policy_logps"}},
)
KL = Choice(
    "kl",
    "whether β KL(π ‖ π_ref) is part of it",
    {"inside": "it is part of the loss", "absent": "it is left out"},
    spares={"absent": ("reference", "beta")},
)
