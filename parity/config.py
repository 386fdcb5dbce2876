"""`[tool.parity]` in the user's pyproject.toml: what is checked there, and how."""

import contextlib
import datetime
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from parity.against import Pair, compare_functions
from parity.backends import Progress
from parity.checks import Target, check_all
from parity.convention import OLD_OPTIONS, Kl, Policy, Reduction, Shape, Sign, stated
from parity.errors import InputError
from parity.files import read_bytes
from parity.judging import CheckReport
from parity.objectives import built_in
from parity.parting import AgainstReport
from parity.validation import explain
from parity.widening import Widened

__all__ = ["Config", "Configured", "check_configured", "check_each", "find_config", "load_config"]

Text = Annotated[str, Meta(min_length=1)]


class Configured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table `[[tool.parity.targets]]`: the options of `parity check`, by the same names.

    Paths and modules are seen from the folder of the pyproject.toml.

    Attributes:
        target: `package.module:function` or `file.py:function`.
        name: under which it can be asked for; the target itself when left out.
        objective: its name, or where you declare it (`file.py:NAME`); or else `against`.
        framework: jax, torch or numpy; recognised when left out.
        adapter: a function that takes our inputs and calls the target.
        map: the function's parameter to our input.
        set: choice to option, as `parity objectives NAME` lists them.
        sign: the choice of that name, and so are the next four.
        reduction: mean, sum or per-sample.
        policy: logits or logps.
        shape: N, N,1 or B,T.
        kl: inside or absent.
        detached: the choice `frozen = "caller"`.
        constants: β or ε that the function has built in.
        train: also train a recorded lesson with it.
        against: the other function, in place of an objective.
        points: inputs for both.
        gradients: inputs to differentiate in.
        frozen: inputs whose gradient must be 0.
        widened: allowances that are wider for a time.
    """

    target: Text
    name: Text | None = None
    objective: Text | None = None
    framework: Literal["", "jax", "torch", "numpy"] = ""
    adapter: str = ""
    map: dict[str, str] = {}
    set: dict[str, str] = {}
    sign: Sign | None = None
    reduction: Reduction | None = None
    policy: Policy | None = None
    shape: Shape | None = None
    kl: Kl | None = None
    detached: bool = False
    constants: dict[str, float] = {}
    train: bool = False
    against: Text | None = None
    points: Text | None = None
    gradients: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    widened: tuple[Widened, ...] = ()

    @property
    def title(self) -> str:
        """Its name, or the target."""
        return self.name or self.target

    def asked(self) -> Target | Pair:
        """What is to be checked."""
        if self.against:
            return Pair(
                left=self.target,
                right=self.against,
                points=self.points or "",
                gradients=self.gradients,
                frozen=self.frozen,
                mapping=self.map,
                widened=self.widened,
            )
        return Target(
            target=self.target,
            objective=self.objective or "",
            framework=self.framework,
            adapter=self.adapter,
            mapping=self.map,
            convention=stated(
                self.set,
                self.constants,
                detached=self.detached,
                **{name: getattr(self, name) for name in OLD_OPTIONS},
            ),
            train=self.train,
            widened=self.widened,
        )


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What `[tool.parity]` asks for.

    Attributes:
        path: the pyproject.toml.
        targets: what is checked.
    """

    path: Path
    targets: tuple[Configured, ...]

    def chosen(self, names: Sequence[str] = ()) -> list[Configured]:
        """The targets of these names, or all.

        Raises:
            InputError: no target has that name.
        """
        titles = [configured.title for configured in self.targets]
        for name in names:
            if name not in titles:
                known = ", ".join(titles)
                raise InputError(
                    f"{self.path}: tool.parity.targets: got {name!r}; expected one of {known}"
                )
        return [c for c in self.targets if not names or c.title in names]


class _Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    targets: Annotated[tuple[Configured, ...], Meta(min_length=1)]


def find_config(folder: Path) -> Path | None:
    """The nearest pyproject.toml with a `[tool.parity]`, in a folder or above it."""
    for place in (folder, *folder.parents):
        path = place / "pyproject.toml"
        if path.is_file() and "parity" in _tools(path):
            return path
    return None


def load_config(path: Path) -> Config:
    """Reads the `[tool.parity]` of a pyproject.toml.

    Raises:
        InputError: one line that names file, field, value and expectation.
    """
    raw = _tools(path).get("parity")
    if raw is None:
        raise InputError(f"{path}: tool.parity: missing; expected [[tool.parity.targets]]")
    try:
        tool = msgspec.convert(raw, _Tool, builtin_types=(datetime.date,))
    except msgspec.ValidationError as error:
        told = explain(error, raw, "tool.parity", _CHOICES)
        raise InputError(f"{path}: {_PREFIX if told[:7] == 'targets' else ''}{told}") from error
    for field, value, expectation in _misfits(tool):
        raise InputError(f"{path}: {_PREFIX}{field}: got {value!r}; expected {expectation}")
    return Config(path=path.resolve(), targets=tool.targets)


_BLANK = Configured(target="none")
_OF_AN_OBJECTIVE = (
    "framework",
    "adapter",
    "set",
    "sign",
    "reduction",
    "policy",
    "shape",
    "kl",
    "detached",
    "constants",
    "train",
)
_PREFIX = "tool.parity."
_CHOICES = {
    "framework": "jax, torch or numpy",
    "sign": "loss or objective",
    "reduction": "mean, sum or per-sample",
    "policy": "logits or logps",
    "shape": "N, N,1 or B,T",
    "kl": "inside or absent",
}


def check_configured(
    config: Config,
    names: Sequence[str],
    timeout: float,
    progress: Progress,
    *,
    quick: bool = False,
) -> list[CheckReport | AgainstReport]:
    """Checks what is configured, from the folder of the pyproject.toml.

    All functions with an objective share one process a dtype.

    Args:
        config: the configuration.
        names: which targets; all when empty.
        timeout: seconds for each round of processes.
        progress: called with who and what stage.
        quick: at the core of the probe grid only.

    Raises:
        InputError: no such target, or one cannot be called as asked.
        BackendError: a process died or did not answer.
    """
    chosen = config.chosen(names)
    with contextlib.chdir(config.path.parent):
        try:
            reports = check_each([c.asked() for c in chosen], timeout, progress, quick=quick)
        except InputError as error:
            raise InputError(f"{config.path}: {error}") from error
    named = zip(reports, chosen, strict=True)
    return [msgspec.structs.replace(report, name=c.name or "") for report, c in named]


def check_each(
    asked: Sequence[Target | Pair], timeout: float, progress: Progress, *, quick: bool = False
) -> list[CheckReport | AgainstReport]:
    """Checks functions and pairs of functions; those with an objective share their processes.

    Args:
        asked: what is to be checked.
        timeout: seconds for each round of processes.
        progress: called with who and what stage.
        quick: at the core of the probe grid only; pairs bring their own points.

    Raises:
        InputError: one cannot be called as asked.
        BackendError: a process died or did not answer.
    """
    targets = [each for each in asked if isinstance(each, Target)]
    checked = iter(check_all(targets, timeout, progress, quick=quick) if targets else [])
    reports: list[CheckReport | AgainstReport] = []
    for each in asked:
        report = (
            next(checked)
            if isinstance(each, Target)
            else compare_functions(each, timeout, progress)
        )
        if isinstance(report, InputError):
            raise report
        reports.append(report)
    return reports


def _tools(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(read_bytes(path).decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not TOML: {error}") from error
    tools = document.get("tool", {})
    return tools if isinstance(tools, dict) else {}


def _misfits(tool: _Tool) -> Iterator[tuple[str, Any, str]]:
    """Yields what the types alone cannot say: one of the two ways to check, names that differ."""
    titles = [configured.title for configured in tool.targets]
    for number, configured in enumerate(tool.targets):
        at = f"targets[{number}]"
        if (configured.objective is None) == (configured.against is None):
            yield at, configured.title, "either objective or against"
        known = [word for each in built_in().values() for word in (each.name, *each.known_as)]
        own = ":" in (configured.objective or ":")
        if not own and configured.objective not in known:
            expected = f"one of {', '.join(known)}, or file.py:NAME"
            yield f"{at}.objective", configured.objective, expected
        if configured.against and not configured.points:
            yield f"{at}.points", configured.points, "inputs for against"
        for field in _OF_AN_OBJECTIVE if configured.against else ():
            if getattr(configured, field) != getattr(_BLANK, field):
                yield f"{at}.{field}", getattr(configured, field), "no such field beside against"
        if configured.objective and (
            configured.points or configured.gradients or configured.frozen
        ):
            yield (
                f"{at}.points",
                configured.points,
                "points, gradients and frozen with against only",
            )
        if titles.count(configured.title) > 1:
            yield f"{at}.name", configured.title, "a name that no other target has"
