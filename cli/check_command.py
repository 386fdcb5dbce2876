"""`parity check`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli import completions
from parity.cli.options import Format, OutputFormat, Timeout, writable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parity.checks import Target
    from parity.config import Config
    from parity.judging import CheckReport
    from parity.parting import AgainstReport, Pair

__all__ = [
    "Framework",
    "Kl",
    "Policy",
    "Reduction",
    "Shape",
    "Sign",
    "check",
]


class Framework(StrEnum):
    """In what the function computes."""

    JAX = "jax"
    TORCH = "torch"
    NUMPY = "numpy"


class Sign(StrEnum):
    """Which way is better."""

    LOSS = "loss"
    OBJECTIVE = "objective"


class Reduction(StrEnum):
    """Over samples or pairs."""

    MEAN = "mean"
    SUM = "sum"
    PER_SAMPLE = "per-sample"


class Policy(StrEnum):
    """What an argument for logits receives."""

    LOGITS = "logits"
    LOGPS = "logps"


class Shape(StrEnum):
    """Of what has one entry a sample."""

    FLAT = "N"
    COLUMN = "N,1"
    MASKED = "B,T"


class Kl(StrEnum):
    """Whether the KL to the reference is part of the function."""

    INSIDE = "inside"
    ABSENT = "absent"


def check(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="package.module:function or file.py:function; or one of [tool.parity] in "
            "pyproject.toml, whose targets are all checked by default.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What it is meant to compute (parity objectives lists them), or FILE.py:NAME of "
            "your own; with --against, none.",
            autocompletion=completions.objectives,
        ),
    ] = None,
    framework: Annotated[
        Framework | None, typer.Option(help="By default recognised from the function.")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="THEIRS=OURS", help="Which argument is which of our inputs."),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION", help="A function that takes our inputs and calls TARGET."
        ),
    ] = None,
    chosen: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="CHOICE=OPTION",
            help="How it states the objective (parity objectives NAME lists the choices).",
            autocompletion=completions.choices,
        ),
    ] = None,
    sign: Annotated[
        Sign | None, typer.Option(help="--set sign: a loss, or an objective to maximise.")
    ] = None,
    reduction: Annotated[
        Reduction | None, typer.Option(help="--set reduction: over samples or pairs.")
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="--set policy: what an argument for `logits` receives.")
    ] = None,
    shape: Annotated[
        Shape | None,
        typer.Option(help="--set shape: of what has one entry a sample; B,T comes with a mask."),
    ] = None,
    kl: Annotated[
        Kl | None, typer.Option(help="--set kl: whether beta KL(policy || reference) is in it.")
    ] = None,
    detached: Annotated[
        bool, typer.Option("--detached", help="--set frozen=caller: what is frozen comes detached.")
    ] = False,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A constant that the function has built in.",
            autocompletion=completions.constants,
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Also train a recorded lesson with it.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="At the core of the probe grid only.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION",
            help="Compare with this function, whatever both compute; of a tuple, the first.",
        ),
    ] = None,
    points: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.npz|FILE.safetensors|module:function",
            help="Inputs for --against, by the names of the arguments.",
        ),
    ] = None,
    gradients: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="For --against: inputs to differentiate in (default: all floats but masks).",
        ),
    ] = None,
    frozen: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="For --against: inputs whose gradient must be 0."),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Judge a library instead: rlax or torchrl; no TARGET."),
    ] = None,
    repro: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the smallest failing input as a program."),
    ] = None,
    output_format: OutputFormat = Format.TEXT,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the closing line.")] = False,
    timeout: Timeout = 600.0,
) -> int:
    """Judge a function of yours: against the oracle, or against another of yours.

    Exit codes: 0 match; 1 the function is at fault, in its values or otherwise; 2 it cannot be
    called as asked; 3 its process died or did not answer in time; 130 interrupted.
    """
    from parity.checks import Target
    from parity.cli import peers_command, show_cases, show_check, styles
    from parity.convention import stated
    from parity.errors import InputError
    from parity.files import write_whole
    from parity.judging import CheckReport
    from parity.parting import Pair
    from parity.report.cases import of_each

    convention = stated(
        _pairs("--set", chosen or []),
        _numbers(constant or []),
        detached=detached,
        sign=sign,
        reduction=reduction,
        policy=policy,
        shape=shape,
        kl=kl,
    )
    renamed = _pairs("--map", mapping or [])
    moved = tuple(gradients or ()), tuple(frozen or ())
    if repro:
        writable("--repro", repro)
    if objective and against:
        raise InputError("--objective and --against: got both; expected one of the two")
    if not against and (points or any(moved)):
        raise InputError("--points, --gradients, --frozen: expected together with --against")
    if against and not points:
        raise InputError("--points: missing; expected inputs for --against")
    if (objective or against) and not (target or peer):
        raise InputError("TARGET: missing; expected package.module:function")
    options = Target(
        target=target or "",
        objective=objective or "",
        framework=framework.value if framework else "",
        adapter=adapter or "",
        mapping=renamed,
        convention=convention,
        train=train,
    )
    pair = Pair(target or "", against or "", points or "", *moved, renamed)
    if peer:
        if against or repro or options != Target("", options.objective):
            raise InputError(
                f"--peer: got {peer!r} beside a function or its options; "
                "expected nothing else but --objective and --quick"
            )
        return peers_command.judge(
            [peer],
            options.objective,
            timeout,
            output_format,
            quick=quick,
            quiet=quiet,
            full=True,
        )
    root = Path.cwd()
    if objective:
        reports = _checked([options], timeout, quick=quick, quiet=quiet)
    elif against:
        if repro or quick or options != Target(target or "", "", mapping=renamed):
            raise InputError(
                "--against: got an option that is for --objective beside it; expected --points, "
                "--map, --gradients, --frozen"
            )
        reports = _checked([pair], timeout, quick=quick, quiet=quiet)
    elif repro or options != Target(target or "", ""):
        raise InputError("--objective or --against: missing; expected one of the two")
    else:
        config = _config()
        root = config.path.parent
        reports = _configured(config, target, timeout, quick=quick, quiet=quiet)
    for report in reports:
        if repro and isinstance(report, CheckReport) and report.repro:
            write_whole(repro, report.repro.encode())
    if output_format is Format.TEXT:
        show_check.as_text(reports, repro, quiet=quiet)
    elif output_format is Format.JSON:
        styles.as_json(reports if not (objective or against) else reports[0])
    else:
        show_cases.show(of_each(reports, root), show_check.closing(reports), output_format)
    return 0 if reports and all(report.verdict == "match" for report in reports) else 1


def _checked(
    asked: "Sequence[Target | Pair]", timeout: float, *, quick: bool, quiet: bool
) -> "list[CheckReport | AgainstReport]":
    from parity.cli import progress
    from parity.config import check_each

    with progress.display(["oracle", "float32", "float64"], quiet=quiet) as stage:
        return check_each(asked, timeout, stage, quick=quick)


def _config() -> "Config":
    """What the nearest pyproject.toml asks for."""
    from parity.config import find_config, load_config
    from parity.errors import InputError

    path = find_config(Path.cwd())
    if path is None:
        raise InputError(
            "--objective or --against: missing; expected one of the two, "
            "or [[tool.parity.targets]] in pyproject.toml"
        )
    return load_config(path)


def _configured(
    config: "Config", name: str | None, timeout: float, *, quick: bool, quiet: bool
) -> "list[CheckReport | AgainstReport]":
    from parity.cli import progress
    from parity.config import check_configured

    with progress.display(["oracle", "float32", "float64"], quiet=quiet) as stage:
        return check_configured(config, [name] if name else [], timeout, stage, quick=quick)


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    from parity.errors import InputError

    pairs = {}
    for text in texts:
        theirs, equals, ours = text.partition("=")
        if not (theirs and equals and ours):
            raise InputError(f"{option}: got {text!r}; expected NAME=VALUE")
        pairs[theirs.strip()] = ours.strip()
    return pairs


def _numbers(texts: list[str]) -> dict[str, float]:
    from parity.errors import InputError

    constants = {}
    for name, text in _pairs("--constant", texts).items():
        try:
            constants[name] = float(text)
        except ValueError:
            raise InputError(f"--constant: {name}: got {text!r}; expected a number") from None
    return constants
