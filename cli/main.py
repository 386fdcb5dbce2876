"""The `parity` command and its exit codes.

0 match · 1 divergent, inconclusive or noisy · 2 bad usage or input · 3 a backend or parity itself
failed · 130 interrupted.
"""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import typer

from parity.cli import (
    check_command,
    demo_command,
    faults_command,
    figures_command,
    mechanics_command,
    objectives_command,
    peers_command,
    run_command,
    samples_command,
    schema_command,
    twins_command,
)

__all__ = ["app", "main"]

_INTERRUPTED = 130
_COMPLETION = "_PARITY_COMPLETE"  # what typer's completion scripts set

app = typer.Typer(
    name="parity",
    help=(
        "Find out whether two implementations of a post-training objective compute the same "
        "thing - and if not, which quantity parts first, where, by how much, and who is wrong."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"parity {version('rlhf-parity')}")
        raise typer.Exit


@app.callback()
def _parity(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command("run", short_help="Run the lessons, judge, draw what matched.")(run_command.run)
app.add_typer(samples_command.app, short_help="Draw a tape, or draw one again.")
app.command("figures", short_help="List or check the recorded figures.")(figures_command.figures)
app.command("check", short_help="Judge a function of yours.")(check_command.check)
app.command("objectives", short_help="Show what can be checked, and how.")(
    objectives_command.objectives
)
app.command("peers", short_help="Judge real libraries: rlax, torchrl.")(peers_command.peers)
app.command("faults", short_help="Plant known bugs: who catches them?")(faults_command.faults)
app.command("mechanics", short_help="Show the mechanics, computed live.")(
    mechanics_command.mechanics
)
app.command("twins", short_help="Show the two sources side by side.")(twins_command.twins)
app.command("demo", short_help="See it all in a minute.")(demo_command.demo)
app.command("schema", short_help="Print a document's JSON Schema.")(schema_command.schema)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its code."""
    if _COMPLETION in os.environ:  # a shell asks what may follow: no verdict, typer ends itself
        app(prog_name="parity")
    signal.signal(signal.SIGTERM, _interrupt)
    closed = sys.stdout is None
    if closed:  # from outside; a verdict that is not told is none
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a character shows a stand-in
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    ended = _run(words)
    code = ended.code
    if closed and code in (0, 1):
        ended = _Ended(3, ["parity: standard output is closed"])
        code = 3
    with suppress(Exception):  # who cannot be told still gets the exit code
        for line in ended.said if sys.stderr else ():
            print(line, file=sys.stderr)
        if ended.said:
            from parity.cli.show_cases import unjudged

            unjudged(words, ended.said[-1].removeprefix("parity: "))
    sys.exit(_flushed(code))


class _Ended(NamedTuple):
    """An exit code, and the lines that say why there is no verdict."""

    code: int
    said: Sequence[str] = ()


def _run(words: list[str]) -> _Ended:
    """Runs the command line. No exception may look like a verdict."""
    from parity.errors import BackendError, InputError

    try:
        code = app(args=words, prog_name="parity", standalone_mode=False)
    except typer.TyperException as error:
        return _Ended(2, [_usage(error)])
    except InputError as error:
        return _Ended(2, [f"parity: {error}"])
    except BackendError as error:
        details = (f"  | {line}" for line in error.details.splitlines())
        return _Ended(3, [*details, f"parity: {error}"])
    except (KeyboardInterrupt, typer.Abort):
        return _Ended(_INTERRUPTED, ["parity: interrupted"])
    except SystemExit as error:  # nothing of ours calls sys.exit: typer does, when all is well ...
        if not error.code:
            return _Ended(0)  # ... after --install-completion, and when its output pipe breaks
        told = "parity: standard output was closed before everything was printed"
        return _Ended(3, [told])
    except OSError as error:
        return _Ended(3, [f"parity: {error}"])
    except Exception as error:
        told = f"parity: internal error: {type(error).__name__}: {error}"
        return _Ended(3, [*traceback.format_exc().splitlines(), told])
    if code == _INTERRUPTED:  # typer catches Ctrl-C itself and only returns this
        return _Ended(_INTERRUPTED, ["parity: interrupted"])
    return _Ended(code or 0)


def _flushed(code: int) -> int:
    """Empties the output; where that fails, the interpreter would end with a code of its own."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it was closed from outside
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = 3 if stream is sys.stdout else code
    return code


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(message)
    command = context.command_path if context else "parity"
    return f"{command}: {' '.join(message.split())} (see {command} --help)"


def _interrupt(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
