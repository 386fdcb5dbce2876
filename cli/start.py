"""Where the command `parity` starts: an interruption while it still loads is one as well."""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits with its code."""
    try:
        from parity.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("parity: interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # without waiting for anything that has not even begun
