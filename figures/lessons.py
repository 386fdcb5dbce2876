"""The diagram of every objective, in our own words."""

from parity.figures.diagram import Diagram, Edge, GraphPanel, Node, TablePanel, Tone
from parity.objectives.dpo import DPO
from parity.objectives.ppo import PPO
from parity.objectives.reinforce import REINFORCE
from parity.objectives.reward import Reward
from parity.problem import Problem

__all__ = ["diagram"]

_SCOPE = "Mechanism only: what depends on what, and when it changes. No number here is measured."


def diagram(problem: Problem) -> Diagram:
    """Returns the mechanism of a problem: of PPO, REINFORCE, DPO or reward fitting, in this order.

    Args:
        problem: what was solved; its counts appear in the words.

    Raises:
        ValueError: the problem has no objective.
    """
    if problem.ppo:
        return _ppo(problem.ppo)
    if problem.reinforce:
        return _reinforce(problem.reinforce)
    if problem.dpo:
        return _dpo(problem.dpo)
    if problem.reward:
        return _reward(problem.reward)
    raise ValueError(f"{problem.name}: got no objective; expected at least one")


def _ppo(ppo: PPO) -> Diagram:
    updates = ppo.rollouts * ppo.epochs
    rows = (
        ("Policy", "log-probs in the ratio and in the KL", f"every update ({updates} in all)"),
        ("Old log-probs", "what the ratio divides by", f"every rollout ({ppo.rollouts} in all)"),
        ("Reference policy", "where the KL is measured from", "never while the policy trains"),
        ("Reward scores", "grade the sampled actions", "never: their fit is over"),
        ("Exact baseline", "centres the advantages", "every rollout, with the old policy"),
    )
    return Diagram(
        title="Five objects, three lifetimes",
        prediction=(
            "Two policies are held still while the current one is updated. "
            "Which of them is replaced when new actions are drawn?"
        ),
        reading=(
            "The old policy is: each rollout keeps the log-probs of the policy that draws it, and "
            "its updates leave them alone. The reference outlives all rollouts, and so do the "
            "scores. Over a few actions the baseline is a sum, not an estimate: there is no critic."
        ),
        alt=(
            f"Table of lifetimes. The policy changes at each of {updates} updates; old log-probs "
            f"and the exact baseline at each of {ppo.rollouts} rollouts; the reference policy and "
            "the reward scores never while the policy trains."
        ),
        scope=_SCOPE,
        height=5.2,
        panel=TablePanel(headers=("Object", "What it does", "When it changes"), rows=rows),
    )


def _dpo(dpo: DPO) -> Diagram:
    return Diagram(
        title="DPO judges a pair by how far the policy has moved from its reference",
        prediction=(
            "The loss falls. What else would you look at before you say "
            "that the chosen responses have become more probable?"
        ),
        reading=(
            "Look at the probabilities themselves. The loss sees a difference of differences: what "
            "the policy prefers, less what the frozen reference preferred, times β. It also falls "
            "when both probabilities shrink, the rejected one faster. Nothing is sampled, and no "
            "reward model is asked."
        ),
        alt=(
            "A chosen and rejected pair goes to the policy in training and to the frozen "
            "reference. Each gives a difference of log-probs. The margin is the policy's less the "
            f"reference's; the loss is the mean softplus of minus β times the margin. All "
            f"{dpo.updates} updates change the policy alone."
        ),
        scope=_SCOPE,
        height=5.7,
        panel=_graph(
            ("pairs", 5, 0.8, 5, 0.85, "data", "Pair: chosen c, rejected r"),
            ("policy", 2.5, 2.6, 4.4, 1.1, "state", "Policy in training\nlog π(c) − log π(r)"),
            ("ref", 7.5, 2.6, 4.4, 1.1, "fixed", "Reference, frozen\nlog π_ref(c) − log π_ref(r)"),
            ("margin", 5, 4.5, 8, 0.85, "data", "Margin m: the policy's less the reference's"),
            ("loss", 5, 6.3, 6, 0.85, "result", "Loss: mean softplus(−β m)"),
            edges="pairs>policy pairs>ref policy>margin ref>margin margin>loss",
        ),
    )


def _reinforce(reinforce: REINFORCE) -> Diagram:
    return Diagram(
        title="One gradient pushes, the other holds back",
        prediction=(
            "The policy feeds four boxes. Through which of them does no gradient return to it?"
        ),
        reading=(
            "Through the drawn actions and through the advantages. Both are plain numbers to the "
            "gradient, which reaches the policy through log π(a), and through the KL, taken over "
            "all actions. The baseline moves how far single samples scatter, and adds no bias."
        ),
        alt=(
            "The policy draws actions; their rewards, less the policy's mean reward, are "
            "advantages without gradient. Policy and frozen reference give the KL. The loss is "
            "minus the mean of advantage times log-prob, plus β times the KL. Fresh actions are "
            f"drawn for each of {reinforce.rollouts} updates."
        ),
        scope=_SCOPE,
        height=5.7,
        panel=_graph(
            ("policy", 4.4, 0.8, 4.4, 1.1, "state", "Policy π\nchanges with every update"),
            ("ref", 8.35, 0.8, 2.7, 1.1, "fixed", "Reference,\nfrozen"),
            ("actions", 1.65, 2.75, 3.1, 1.1, "data", "Actions a, drawn\nfor each update"),
            ("kl", 7.35, 2.75, 4.3, 1.1, "data", "KL(π ‖ π_ref)\nover all actions"),
            ("advantage", 2.85, 4.6, 3.4, 1.1, "data", "A = r(a) − Σ π r,\na mere number"),
            ("loss", 5, 6.4, 8, 0.85, "result", "Loss: −mean(A · log π(a)) + β · KL"),
            edges=(
                "policy>actions policy>advantage policy>kl policy>loss ref>kl "
                "actions>advantage advantage>loss kl>loss"
            ),
        ),
    )


def _reward(reward: Reward) -> Diagram:
    return Diagram(
        title="A reward learned from comparisons alone",
        prediction="Add one number to all scores. Does the loss notice?",
        reading=(
            "It does not: only the difference of the two scores enters it. What a preference says "
            "is which way that difference should point; how far is up to the number of updates."
        ),
        alt=(
            "The features of a chosen and a rejected action and the weights give two scores. The "
            "loss is the mean softplus of minus their difference. "
            f"All {reward.updates} updates change the weights."
        ),
        scope=_SCOPE,
        height=4.9,
        panel=_graph(
            ("pairs", 2.6, 0.8, 4.6, 1.1, "data", "Features of a pair:\nx chosen, x rejected"),
            ("weights", 7.4, 0.8, 4.6, 1.1, "state", "Weights w\nchange with every update"),
            ("difference", 5, 2.7, 8, 0.85, "data", "Difference: (x chosen − x rejected) · w"),
            ("loss", 5, 4.4, 6, 0.85, "result", "Loss: mean softplus(−difference)"),
            edges="pairs>difference weights>difference difference>loss",
        ),
    )


def _graph(*nodes: tuple[str, float, float, float, float, Tone, str], edges: str) -> GraphPanel:
    """Nodes as (id, x, y, w, h, tone, label) and edges as `a>b`, below each other in 10 units."""
    boxes = tuple(
        Node(id=name, x=float(x), y=float(y), w=float(w), h=float(h), tone=tone, label=label)
        for name, x, y, w, h, tone, label in nodes
    )
    return GraphPanel(
        nodes=boxes,
        edges=tuple(Edge(source=a, target=b) for a, b in (e.split(">") for e in edges.split())),
        height=max(box.y + box.h / 2 for box in boxes) + 0.575,
        width=10.0,
    )
