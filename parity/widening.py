"""Allowances that a user widens for a time: with a reason, until a date."""

import datetime
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta

from parity.comparison import Comparison
from parity.errors import InputError

__all__ = ["Widened", "Widening", "applied", "widen"]


class Widened(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An allowance that is wider than rounding explains.

    Attributes:
        quantity: shell-style pattern of quantities.
        factor: how much wider; what is not finite stays outside.
        reason: the user's words.
        expires: the last day on which it counts.
    """

    quantity: Annotated[str, Meta(min_length=1)]
    factor: Annotated[float, Meta(gt=1, le=1e6)]
    reason: Annotated[str, Meta(pattern=r"\S")]
    expires: datetime.date

    @property
    def expired(self) -> bool:
        """Whether it no longer counts."""
        return datetime.date.today() > self.expires


class Widening(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a widened allowance.

    Attributes:
        quantity: its pattern.
        factor: how much wider.
        reason: the user's words.
        expires: the last day on which it counts.
        expired: whether that day is over: then it let nothing pass.
        passed: the quantities that it let pass.
    """

    quantity: str
    factor: float
    reason: str
    expires: datetime.date
    expired: bool
    passed: list[str] = []

    def sentence(self) -> str:
        """In words."""
        rule = f"{self.quantity} allowed {self.factor:g} times as much"
        if self.expired:
            return f"{rule} until {self.expires}: expired, no longer counts: {self.reason}"
        passed = ", ".join(self.passed) or "nothing needed it"
        return f"{rule} until {self.expires} ({passed}): {self.reason}"


def widen(comparison: Comparison, rules: Iterable[Widened]) -> Comparison:
    """Lets a comparison pass whose every entry lies within a widened allowance that counts."""
    if comparison.verdict not in ("noisy", "divergent") or comparison.worst is None:
        return comparison
    ratio = float(comparison.worst.ratio)
    for rule in rules:
        if _meant(comparison, rule) and not rule.expired and ratio <= rule.factor:
            return msgspec.structs.replace(
                comparison, verdict="match", first=None, reason=_words(rule)
            )
    return comparison


def applied(comparisons: Sequence[Comparison], rules: Sequence[Widened]) -> list[Widening]:
    """What became of each rule, after `widen`.

    Raises:
        InputError: a rule means no quantity.
    """
    names = dict.fromkeys(c.quantity for c in comparisons)
    for rule in rules:
        if not any(fnmatchcase(name, rule.quantity) for name in names):
            raise InputError(
                f"widened: quantity: got {rule.quantity!r}; expected a pattern of one of "
                f"{', '.join(names)}"
            )
    return [
        Widening(
            quantity=rule.quantity,
            factor=rule.factor,
            reason=rule.reason,
            expires=rule.expires,
            expired=rule.expired,
            passed=list(
                dict.fromkeys(
                    c.quantity
                    for c in comparisons
                    if _meant(c, rule) and c.verdict == "match" and c.reason == _words(rule)
                )
            ),
        )
        for rule in rules
    ]


def _meant(comparison: Comparison, rule: Widened) -> bool:
    return fnmatchcase(comparison.quantity, rule.quantity)


def _words(rule: Widened) -> str:
    return f"widened {rule.factor:g} times until {rule.expires}: {rule.reason}"
