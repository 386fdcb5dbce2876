"""Panels: which quantities of a trace a figure shows, and what it calls them."""

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from parity.objectives.ppo import PPO
from parity.objectives.reinforce import REINFORCE
from parity.problem import Problem

__all__ = [
    "BarPanel",
    "LinePanel",
    "LineSeries",
    "Panel",
    "Series",
    "panel_allowances",
    "panel_values",
    "panels",
    "plan",
]

T = TypeVar("T")
NonEmpty = Annotated[tuple[T, ...], Meta(min_length=1)]


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One value in every group of bars."""

    label: str
    y: NonEmpty[float]


class LineSeries(Series, frozen=True, kw_only=True):
    """One curve."""

    x: NonEmpty[int]


class LinePanel(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    tag_field="kind",
    tag="line",
):
    """Curves over the count `x` of what was completed before each value was taken."""

    xlabel: str
    ylabel: str
    series: NonEmpty[LineSeries]
    x: NonEmpty[int]


class BarPanel(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    tag_field="kind",
    tag="bar",
):
    """Groups of bars: group `x[i]` carries the name `labels[i]`."""

    x: NonEmpty[int]
    labels: NonEmpty[str]
    series: NonEmpty[Series]
    xlabel: str
    ylabel: str
    title: str


Panel = LinePanel | BarPanel

_KL = "KL to reference (nats)"


class Named(Protocol):
    """Arrays by the name of their quantity: a trace, or a mapping."""

    def __getitem__(self, name: str, /) -> NDArray[Any]: ...


class Source(NamedTuple):
    """Where the values of one series come from: entries of a quantity, or their exponentials."""

    quantity: str
    where: Any = ...
    exponential: bool = False

    def values(self, arrays: Named) -> NDArray[Any]:
        """Returns the series [point], in the dtype of its quantity."""
        chosen: NDArray[Any] = arrays[self.quantity][self.where]
        if not self.exponential:
            return chosen
        # in float64, so that the last bit does not depend on the machine's float32 exp
        exponentials: NDArray[np.float64] = np.exp(chosen.astype(np.float64))
        return exponentials.astype(chosen.dtype)

    def allowance(self, allowed: Named, arrays: Named) -> NDArray[np.float64]:
        """Returns how far rounding may move each value; exp also rounds by itself, by one ULP."""
        entries: NDArray[np.float64] = allowed[self.quantity][self.where]
        if not self.exponential:
            return entries
        values = self.values(arrays)
        return values * entries + np.spacing(values.astype(np.float32)).astype(np.float64)


Plan = tuple[Panel, tuple[Source, ...]]  # a panel, its series still empty, and their sources


def plan(problem: Problem) -> Iterator[Plan]:
    """Yields the panels of a problem without values, each with the sources of its series."""
    if problem.ppo:
        yield from _policy("ppo", problem.ppo, "expected learned reward", start=(0, 0))
    if problem.reinforce:
        yield from _policy("reinforce", problem.reinforce, "expected reward", start=(0,))
    if problem.dpo:
        pairs = tuple(f"{c} preferred to {r}" for c, r in problem.dpo.preferences)
        yield _loss("dpo", "DPO loss (nats)", problem.dpo.updates)
        yield (
            _bar(
                title="How far each preference moved from the reference",
                xlabel="preference pair",
                ylabel="reference-corrected margin (nats)",
                labels=pairs,
                series=("after the last update",),
            ),
            (Source("dpo/final_margins"),),
        )
    if problem.reward and not (problem.ppo or problem.reinforce or problem.dpo):
        yield _loss("reward", "preference loss (nats)", problem.reward.updates)
        yield (
            _bar(
                title="What the fitted reward makes of each action",
                xlabel="what is scored",
                ylabel="score",
                labels=_actions(len(problem.reward.features)),
                series=("after the last update",),
            ),
            (Source("reward/scores"),),
        )


def _policy(
    objective: str, policy: PPO | REINFORCE, reward: str, *, start: tuple[int, ...]
) -> Iterator[Plan]:
    """Yields reward, KL and probabilities; `start` is the first update's place in the trace."""
    rollouts = tuple(range(1, policy.rollouts + 1))
    after_rollouts = slice(1, None)  # checkpoint 0 precedes the first rollout
    xlabel = f"{objective.upper()} rollouts completed"
    for quantity, ylabel in (("expected_reward", reward), ("reference_kl", _KL)):
        line = _line(xlabel, ylabel, "exact over actions", rollouts)
        yield line, (Source(f"{objective}/{quantity}", after_rollouts),)
    bar = _bar(
        title="Where training moved the probability",
        xlabel="response of the one-step bandit",
        ylabel="probability",
        labels=_actions(len(policy.logits)),
        series=("reference (fixed)", "trained policy"),
    )
    reference = Source(f"{objective}/reference", start, exponential=True)
    yield bar, (reference, Source(f"{objective}/probabilities"))


def _loss(objective: str, ylabel: str, updates: int) -> Plan:
    xlabel = "updates completed when the loss was taken"
    line = _line(xlabel, ylabel, "mean over pairs", tuple(range(updates)))
    return line, (Source(f"{objective}/loss"),)


def _actions(count: int) -> tuple[str, ...]:
    return tuple(f"action {action}" for action in range(count))


def _line(xlabel: str, ylabel: str, label: str, x: tuple[int, ...]) -> LinePanel:
    series = (LineSeries(label=label, x=x, y=()),)
    return LinePanel(xlabel=xlabel, ylabel=ylabel, series=series, x=x)


def _bar(
    *, title: str, xlabel: str, ylabel: str, labels: tuple[str, ...], series: tuple[str, ...]
) -> BarPanel:
    return BarPanel(
        x=tuple(range(len(labels))),
        labels=labels,
        series=tuple(Series(label=label, y=()) for label in series),
        xlabel=xlabel,
        ylabel=ylabel,
        title=title,
    )


def panels(problem: Problem, arrays: Named) -> tuple[Panel, ...]:
    """Returns the panels of a problem with their values: of its policies, else of the reward.

    Args:
        problem: what was solved.
        arrays: the trace that the figure shows; its numbers become Python floats, exactly.
    """
    return tuple(
        msgspec.structs.replace(
            panel,
            series=tuple(
                msgspec.structs.replace(series, y=tuple(source.values(arrays).tolist()))
                for series, source in zip(panel.series, sources, strict=True)
            ),
        )
        for panel, sources in plan(problem)
    )


def panel_values(problem: Problem, arrays: Named) -> list[list[NDArray[Any]]]:
    """Returns the values [panel][series][point] that `panels` would show."""
    return [[source.values(arrays) for source in sources] for _, sources in plan(problem)]


def panel_allowances(
    problem: Problem, allowed: Named, values: Named
) -> list[list[NDArray[np.float64]]]:
    """Returns the allowance of every value, [panel][series][point].

    A probability of the reference is p = exp(log-prob): it may move by p · allowed(log-prob) and
    by one float32 ULP of its own.

    Args:
        problem: what was solved.
        allowed: allowances of whole trajectories, quantity to array.
        values: the oracle's values, or a trace's, quantity to array.
    """
    return [
        [source.allowance(allowed, values) for source in sources] for _, sources in plan(problem)
    ]
