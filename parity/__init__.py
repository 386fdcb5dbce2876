"""Find out whether two implementations of a post-training objective compute the same thing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.api import check, compare, load_trace, run
    from parity.comparison import Verdict
    from parity.problem import Problem, load_problem
    from parity.samples import Samples
    from parity.trace import Trace

__all__ = [
    "Problem",
    "Samples",
    "Trace",
    "Verdict",
    "check",
    "compare",
    "load_problem",
    "load_trace",
    "run",
]

_HOMES = {
    "Problem": "problem",
    "Samples": "samples",
    "Trace": "trace",
    "Verdict": "comparison",
    "check": "api",
    "compare": "api",
    "load_problem": "problem",
    "load_trace": "api",
    "run": "api",
}


def __getattr__(name: str) -> Any:
    """Loads what is exported when it is first asked for (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
