"""The pytest plugin: the fixture `parity_check`. It loads nothing before that is called."""

from typing import TYPE_CHECKING, Any, Protocol, overload

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from parity.judging import CheckReport
    from parity.parting import AgainstReport

__all__ = ["ParityCheck", "parity_check"]


class ParityCheck(Protocol):
    """What the fixture offers."""

    @overload
    def __call__(self, **options: Any) -> "list[CheckReport | AgainstReport]": ...
    @overload
    def __call__(self, function: str, **options: Any) -> "CheckReport | AgainstReport": ...
    @overload
    def __call__(
        self, function: "str | Callable[..., Any]", objective: str, **options: Any
    ) -> "CheckReport": ...


@pytest.fixture(scope="session")
def parity_check(pytestconfig: pytest.Config) -> ParityCheck:
    """Checks a loss and asserts that it is right.

    `parity_check(function, objective, **options)` is `parity.testing.assert_parity`. Without an
    objective it goes by the `[tool.parity]` of the pyproject.toml in pytest's rootdir:
    `parity_check()` checks everything that is named there, `parity_check("name")` one of it.
    """

    def checked(function: Any = None, objective: str = "", **options: Any) -> Any:
        __tracebackhide__ = True
        from parity.testing import assert_configured, assert_parity

        if objective or callable(function):
            return assert_parity(function, objective, **options)
        names = [] if function is None else [function]
        reports = assert_configured(
            *names, pyproject=pytestconfig.rootpath / "pyproject.toml", **options
        )
        return reports if function is None else reports[0]

    return checked
