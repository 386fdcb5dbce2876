"""How a function of the user's states an objective, and which of its arguments is which."""

import inspect
from collections.abc import Mapping
from typing import Literal

import msgspec

from parity.errors import InputError

__all__ = ["KNOWN_AS", "OFFERED", "Convention", "Matched", "bind", "match"]

Sign = Literal["loss", "objective"]
Reduction = Literal["mean", "sum", "per-sample"]
Policy = Literal["logits", "logps"]
Shape = Literal["N", "N,1", "B,T"]
Kl = Literal["inside", "absent"]


class Convention(msgspec.Struct, frozen=True, kw_only=True):
    """What a function returns and wants, where it differs from the twins' losses.

    Attributes:
        sign: a loss to be minimised, or an objective to be maximised.
        reduction: mean over the samples or pairs, their sum, or one value for each.
        policy: what an argument matched to `logits` receives.
        shape: of everything that has one entry a sample; `B,T` is padded and comes with a mask.
        kl: whether β KL(π ‖ π_ref) is part of it.
        detached: the caller detaches old log-probs, advantages and reference.
        constants: β or ε that the function has built in.
    """

    sign: Sign = "loss"
    reduction: Reduction = "mean"
    policy: Policy = "logits"
    shape: Shape = "N"
    kl: Kl = "inside"
    detached: bool = False
    constants: dict[str, float] = {}


Matched = dict[str, str]
"""Parameter of the user's function to the name of our input, in the order of its parameters."""

OFFERED: dict[str, tuple[str, ...]] = {
    "reward": ("weights", "chosen", "rejected", "chosen_scores", "rejected_scores", "mask"),
    "ppo": (
        "logits",
        "policy_logps",
        "logps",
        "old_logps",
        "actions",
        "advantages",
        "reference",
        "reference_logps",
        "beta",
        "clip",
        "mask",
    ),
    "dpo": (
        "logits",
        "policy_logps",
        "reference",
        "chosen",
        "rejected",
        "chosen_logps",
        "rejected_logps",
        "reference_chosen_logps",
        "reference_rejected_logps",
        "beta",
        "mask",
    ),
    "reinforce": (
        "logits",
        "policy_logps",
        "logps",
        "actions",
        "advantages",
        "reference",
        "reference_logps",
        "beta",
        "mask",
    ),
}
"""Objective to the inputs that a function may ask for."""

KNOWN_AS: dict[str, tuple[str, ...]] = {
    "logps": ("log_probs", "log_prob", "logprobs", "logprob", "logp", "new_logps"),
    "old_logps": ("old_log_probs", "old_log_prob", "old_logprobs", "old_logprob", "old_logp"),
    "reference_logps": ("ref_logps", "ref_log_probs", "ref_log_prob", "ref_logprobs"),
    "reference": ("reference_policy", "ref_policy_logps"),
    "advantages": ("advantage", "adv", "advs"),
    "actions": ("action",),
    "clip": ("eps", "epsilon", "clip_eps", "clip_epsilon", "cliprange", "clip_range"),
    "beta": ("kl_coef", "kl_coeff", "kl_weight"),
    "mask": ("action_mask", "response_mask", "loss_mask"),
    "chosen_logps": ("policy_chosen_logps", "chosen_log_probs"),
    "rejected_logps": ("policy_rejected_logps", "rejected_log_probs"),
    "reference_chosen_logps": ("ref_chosen_logps",),
    "reference_rejected_logps": ("ref_rejected_logps",),
    "chosen_scores": ("chosen_rewards", "chosen_reward", "chosen_score"),
    "rejected_scores": ("rejected_rewards", "rejected_reward", "rejected_score", "reject_reward"),
}
"""Our input to other names under which it is known."""

_NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "reward": (("weights", "chosen_scores"), ("chosen", "chosen_scores")),
    "ppo": (("logits", "policy_logps", "logps"), ("old_logps",), ("advantages",), ("clip",)),
    "dpo": (("logits", "policy_logps", "chosen_logps"), ("beta",)),
    "reinforce": (("logits", "policy_logps", "logps"), ("advantages",)),
}
_KL_NEEDED = (("reference", "reference_logps"), ("beta",))


def match(
    signature: inspect.Signature,
    name: str,
    objective: str,
    convention: Convention,
    given: Mapping[str, str],
) -> Matched:
    """Finds out which of our inputs each parameter of a function is.

    Args:
        signature: of the user's function.
        name: of the function, for messages.
        objective: reward, ppo, dpo or reinforce.
        convention: how it states the objective.
        given: parameter to our input, where the user said so.

    Raises:
        InputError: a parameter is none of our inputs, or an input goes nowhere.
    """
    offered = OFFERED[objective]
    ours = {alias: known for known, also in KNOWN_AS.items() for alias in also if known in offered}
    ours |= {known: known for known in offered}
    both = f"{name}{signature}; expected arguments among {', '.join(offered)}"
    for theirs, known in given.items():
        if theirs not in signature.parameters:
            raise InputError(f"--map: {theirs}: no such argument: found {both}")
        if known not in offered:
            raise InputError(f"--map: {theirs}={known}: no such input: found {both}")
    matched: Matched = {}
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        known = given.get(parameter.name) or ours.get(parameter.name.lower(), "")
        if known:
            matched[parameter.name] = known
        elif parameter.default is parameter.empty:
            raise InputError(
                f"argument {parameter.name!r} is none of our inputs: found {both} "
                "(--map THEIRS=OURS, or --adapter FILE.py:FUNCTION)"
            )
    needed = _NEEDED[objective]
    if objective in ("ppo", "reinforce") and convention.kl == "inside":
        needed += _KL_NEEDED
    for choice in needed:
        if not {*matched.values(), *convention.constants} & {*choice}:
            advice = "--map THEIRS=OURS"
            if choice in _KL_NEEDED and objective != "dpo":
                advice += ", or --kl absent"
            if choice[0] in ("beta", "clip"):
                advice += f", or --constant {choice[0]}=VALUE"
            raise InputError(f"no argument takes {' or '.join(choice)}: found {both} ({advice})")
    if convention.shape == "B,T" and "mask" not in matched.values():
        raise InputError(f"no argument takes mask, which --shape B,T needs: found {both}")
    return matched


def bind(
    signature: inspect.Signature, matched: Matched, inputs: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Puts our inputs where a function wants them: positional and keyword arguments."""
    positional: list[object] = []
    keywords: dict[str, object] = {}
    for theirs, ours in matched.items():
        if signature.parameters[theirs].kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(inputs[ours])
        else:
            keywords[theirs] = inputs[ours]
    return positional, keywords
