"""Structure first: names, order, axes, kinds, shapes and dtypes, before any value is looked at."""

from collections.abc import Mapping

import numpy as np

from parity.comparison import Comparison, Mode, Verdict
from parity.quantities import Declared
from parity.trace import Trace

__all__ = ["structure", "uncompared"]


def structure(
    trace: Trace, expected: Mapping[Declared, tuple[int, ...]], dtype: str
) -> dict[str, tuple[Verdict, str]]:
    """Checks names, order, axes, kinds, shapes and dtypes before any value is looked at.

    Args:
        trace: what an implementation returned.
        expected: what it should have returned, in order of computation.
        dtype: in which it should have computed.

    Returns:
        Quantity to verdict and reason, only for those that are not as expected.
    """
    problems: dict[str, tuple[Verdict, str]] = {}
    known = [spec.name for spec in expected if spec.name in trace]
    found = [name for name in trace.quantities if name in known]
    for spec, shape in expected.items():
        quantity = trace.quantities.get(spec.name)
        wanted_dtype = np.dtype("int64" if spec.integer else dtype)
        if quantity is None:
            problems[spec.name] = ("inconclusive", f"missing from {trace.implementation}")
        elif quantity.values.size == 0 and 0 not in shape:
            problems[spec.name] = ("inconclusive", f"empty in {trace.implementation}")
        elif trace.dtype != dtype:
            reason = f"{trace.implementation} ran in {trace.dtype}, expected {dtype}"
            problems[spec.name] = ("divergent", reason)
        elif found != known and found.index(spec.name) != known.index(spec.name):
            problems[spec.name] = ("divergent", f"out of order in {trace.implementation}")
        else:
            declared = (quantity.axes, quantity.kind, quantity.values.shape, quantity.values.dtype)
            for word, got, wanted in zip(
                ("axes", "kind", "shape", "dtype"),
                declared,
                (spec.axes, spec.kind, shape, wanted_dtype),
                strict=True,
            ):
                if got != wanted:
                    reason = f"{trace.implementation} has {word} {got}, expected {wanted}"
                    problems.setdefault(spec.name, ("divergent", reason))
    for name in trace.quantities.keys() - {spec.name for spec in expected}:
        problems[name] = ("divergent", f"{trace.implementation} records it, nobody expects it")
    return problems


def uncompared(
    spec: Declared,
    shape: tuple[int, ...],
    *,
    mode: Mode,
    grid: str,
    sides: tuple[str, str],
    verdict: Verdict,
    reason: str,
) -> Comparison:
    """A comparison that could not take place; the structure says why."""
    return Comparison(
        quantity=spec.name,
        kind=spec.kind,
        mode=mode,
        grid=grid,
        left=sides[0],
        right=sides[1],
        axes=spec.axes,
        shape=shape,
        compared=0,
        verdict=verdict,
        worst=None,
        reason=reason,
    )
