"""`parity peers`, and `parity check --peer`."""

from typing import Annotated

import typer

from parity.cli.options import Format, OutputFormat, Timeout

__all__ = ["judge", "peers"]


def peers(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which; by default all that are installed."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="At the core of the probe grid only.")
    ] = False,
    output_format: OutputFormat = Format.TEXT,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the closing line.")] = False,
    timeout: Timeout = 600.0,
) -> int:
    """Judge real libraries by the oracle: rlax, torchrl.

    Exit codes: 0 all match, but for documented differences of convention; 1 one does not, or is
    not installed among others; 2 bad usage; 3 one that was named is not installed, none is, or one
    could not be run; 130 interrupted.
    """
    return judge(names or [], "", timeout, output_format, quick=quick, quiet=quiet)


def judge(
    names: list[str],
    objective: str,
    timeout: float,
    output_format: Format,
    *,
    quick: bool,
    quiet: bool,
    full: bool = False,
) -> int:
    """Checks libraries, prints and returns the exit code.

    Args:
        names: which must be there; all that are installed when empty.
        objective: preference, ppo, dpo or reinforce; empty for all.
        timeout: seconds for each round of processes.
        output_format: what is printed.
        quick: at the core of the probe grid only.
        quiet: print only the closing line.
        full: print every function's quantities too.

    Raises:
        InputError: no such library, or it has no such objective.
        BackendError: it is not installed.
    """
    from parity.cli import progress, show_cases, show_peers, styles
    from parity.peers import chosen, require
    from parity.peers.checking import check_peers

    selected = chosen(names, objective)
    require(selected, every=bool(names))
    with progress.display([peer.name for peer in selected], quiet=quiet) as stage:
        report = check_peers(selected, timeout, stage, quick=quick)
    if output_format is Format.TEXT:
        show_peers.as_text(report, full=full, quiet=quiet)
    elif output_format is Format.JSON:
        styles.as_json(report)
    else:
        closing = f"{report.verdict}: {report.closing}"
        show_cases.show(show_peers.cases(report), closing, output_format)
    if any(peer.verdict == "failed" for peer in report.peers):
        return 3
    return 0 if report.verdict == "match" else 1
