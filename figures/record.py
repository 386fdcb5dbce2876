"""From the traces of a run that matched to its recorded document."""

import math
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.errors import InputError
from parity.figures.document import (
    Agreement,
    Data,
    Environment,
    PanelAgreement,
    Record,
    content_hash,
)
from parity.figures.lessons import diagram
from parity.figures.panels import panel_values, panels
from parity.figures.style import renderer_hash
from parity.problem import Problem
from parity.trace import Trace

__all__ = ["generated_at", "record"]

_REFERENCE = "jax"  # whose values are drawn
_OTHER = "torch"


def record(
    problem: Problem,
    traces: Mapping[str, Trace],
    *,
    verdict: str,
    report_digest: str,
    generated_at: str,
) -> Record:
    """Makes the document of a run that matched.

    Args:
        problem: what was solved.
        traces: the whole runs by implementation, at least `jax` and `torch`.
        verdict: of the lesson.
        report_digest: digest of the report that gave the verdict.
        generated_at: ISO 8601, UTC; see `generated_at`.

    Returns:
        A document whose values are JAX's.

    Raises:
        ValueError: the verdict is not `match`, or a value is not finite and cannot be drawn.
    """
    if verdict != "match":
        raise ValueError(f"{problem.name}: got verdict {verdict!r}; only a match gets a figure")
    shown, other = traces[_REFERENCE], traces[_OTHER]
    data = Data(panels=panels(problem, shown))
    for place, value in _values(data):
        if not math.isfinite(value):
            raise ValueError(f"{problem.name}: {place}: got {value}; only finite numbers are drawn")
    mechanism = diagram(problem)
    return Record(
        schema_version=1,
        lesson_id=problem.name,
        content_hash=content_hash(data, mechanism),
        renderer_hash=renderer_hash(),
        kind="executed",
        generated_at=generated_at,
        provenance="recorded_cpu_computation",
        environment=Environment(
            backend=shown.environment["backend"],
            device_count=int(shown.environment["deviceCount"]),
            jax=shown.environment["jax"],
            torch=other.environment["torch"],
            numpy=shown.environment["numpy"],
            matplotlib=version("matplotlib"),
        ),
        stdout="".join(f"{line}\n" for line in _outcome(problem, shown)),
        data=data,
        parity=Agreement(
            verdict=verdict,
            report_digest=report_digest,
            reference=_REFERENCE,
            other=_OTHER,
            panels=tuple(_agreements(problem, shown, other)),
        ),
        diagram=mechanism,
    )


def _values(data: Data) -> Iterator[tuple[str, float]]:
    for number, panel in enumerate(data.panels):
        for series in panel.series:
            for position, value in enumerate(series.y):
                yield f"panel {number}, {series.label}[{position}]", value


def _agreements(problem: Problem, shown: Trace, other: Trace) -> Iterator[PanelAgreement]:
    pairs = zip(panel_values(problem, shown), panel_values(problem, other), strict=True)
    for ours, theirs in pairs:
        left, right = (np.concatenate(values).astype(np.float64) for values in (ours, theirs))
        yield PanelAgreement(largest_difference=float(np.abs(left - right).max()))


def _outcome(problem: Problem, trace: Trace) -> Iterator[str]:
    for objective, given in (("ppo", problem.ppo), ("reinforce", problem.reinforce)):
        if given:
            reward = trace[f"{objective}/expected_reward"].tolist()
            kl = trace[f"{objective}/reference_kl"].tolist()
            yield (
                f"Expected reward: {reward[0]} before the first rollout, {reward[-1]} after "
                f"the last; KL to the reference: {kl[-1]} nats"
            )
    if problem.dpo:
        yield _fitted("DPO loss", trace["dpo/loss"], "margins", trace["dpo/final_margins"])
    if problem.reward and not (problem.ppo or problem.reinforce or problem.dpo):
        yield _fitted("Preference loss", trace["reward/loss"], "scores", trace["reward/scores"])


def _fitted(name: str, loss: NDArray[Any], outcome: str, values: NDArray[Any]) -> str:
    first, last = float(loss[0]), float(loss[-1])
    return (
        f"{name}: {first} before the first update, {last} before the last; "
        f"{outcome} after it: {' '.join(map(str, values.tolist()))}"
    )


def generated_at() -> str:
    """Returns the present time, or SOURCE_DATE_EPOCH where that is set, as ISO 8601 in UTC.

    Raises:
        InputError: SOURCE_DATE_EPOCH is not a number of seconds.
    """
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds is None:
        return datetime.now(UTC).isoformat(timespec="seconds")
    try:
        if not (seconds.isascii() and seconds.isdigit()):
            raise ValueError
        return datetime.fromtimestamp(int(seconds), UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(
            f"SOURCE_DATE_EPOCH: got {seconds!r}; expected whole seconds since 1970-01-01 UTC"
        ) from error
