"""Which libraries are installed; silence; the command."""

import subprocess
import sys

PATIENCE = 600.0  # seconds for what takes sixty, on a busy machine


def silent(_who: str, _stage: str) -> None:
    pass


def parity(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "parity.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
