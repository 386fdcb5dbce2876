"""torchrl's loss modules, called with our inputs: the policy network returns its input."""

import torch
from tensordict import TensorDict
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
)
from torch import Tensor
from torch.distributions import Categorical
from torchrl.objectives import ClipPPOLoss, KLPENPPOLoss, ReinforceLoss

__all__ = ["clip_ppo", "klpen_ppo", "klpen_ppo_documented", "reinforce"]


def clip_ppo(
    logits: Tensor, old_logps: Tensor, actions: Tensor, advantages: Tensor, clip: Tensor
) -> Tensor:
    """`ClipPPOLoss` without critic and entropy bonus; it has no KL to a reference."""
    module = ClipPPOLoss(_actor(), None, clip_epsilon=clip, entropy_bonus=False)
    data = _data(logits, actions, advantages, action_log_prob=old_logps)
    loss: Tensor = module(data)["loss_objective"]
    return loss


def klpen_ppo(
    logits: Tensor,
    old_logps: Tensor,
    actions: Tensor,
    advantages: Tensor,
    reference: Tensor,
    beta: Tensor,
    clip: Tensor,  # noqa: ARG001  # it does not clip
) -> Tensor:
    """`KLPENPPOLoss`; the policy that it holds on to is the reference."""
    module = KLPENPPOLoss(
        _actor(), None, beta=beta, increment=1.0, decrement=1.0, entropy_bonus=False
    )
    data = _data(logits, actions, advantages, action_log_prob=old_logps)
    data["logits"] = reference.expand(len(actions), -1)
    loss: Tensor = module(data)["loss_objective"]
    return loss


def klpen_ppo_documented(
    logits: Tensor,
    old_logps: Tensor,
    actions: Tensor,
    advantages: Tensor,
    reference: Tensor,
    beta: Tensor,
    clip: Tensor,  # noqa: ARG001  # it does not clip
) -> Tensor:
    """What the docstring of `KLPENPPOLoss` says: -mean(rho A) + beta KL(pi_old || pi)."""
    logps = torch.log_softmax(logits, dim=0)
    old = torch.log_softmax(reference, dim=0)
    gain = torch.mean(torch.exp(logps[actions] - old_logps) * advantages)
    return beta * torch.sum(torch.exp(old) * (old - logps)) - gain


def reinforce(logits: Tensor, actions: Tensor, advantages: Tensor) -> Tensor:
    """The actor's loss of `ReinforceLoss`; the critic's, which it insists on, is left aside."""
    critic = TensorDictModule(_no_value, ["observation"], ["state_value"])
    data = _data(logits, actions, advantages, value_target=torch.zeros_like(advantages)[:, None])
    loss: Tensor = ReinforceLoss(_actor(), critic)(data)["loss_actor"]
    return loss


def _actor() -> ProbabilisticTensorDictSequential:
    policy = TensorDictModule(torch.nn.Identity(), ["observation"], ["logits"])
    draw = ProbabilisticTensorDictModule(["logits"], ["action"], distribution_class=Categorical)
    return ProbabilisticTensorDictSequential(policy, draw)


def _no_value(observation: Tensor) -> Tensor:
    return torch.zeros_like(observation[..., :1])


def _data(logits: Tensor, actions: Tensor, advantages: Tensor, **others: Tensor) -> TensorDict:
    """One state for each action, and a column of advantages, as torchrl wants them."""
    rows = logits.expand(len(actions), -1)
    return TensorDict(
        {"observation": rows, "action": actions, "advantage": advantages[:, None], **others},
        batch_size=[len(actions)],
    )
