"""Where the command `parity` starts: an interruption while it still loads is one as well."""

import gc
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits with its code."""
    gc.set_threshold(100_000)  # of 700: imports make no garbage that would be worth the search
    try:
        from parity.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("parity: interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # without waiting for anything that has not even begun
    finally:
        gc.freeze()  # what is left goes with the process: nobody has to look through it
