"""Backends that need no framework and fail in every way."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from parity import backends
from parity.backends import Done, Workers
from parity.worker import Job

PATIENCE = 60.0  # seconds for what takes well below one, on a busy machine
PROBLEM = b"""
[dpo]
logits = [0.2, 0.0]
preferences = [[0, 1]]
updates = 1
rate = 0.4
beta = 0.3
"""

# A backend is a module with `train`; what it returns has `save`. These need no framework.
FAKES = {
    "honest": """
        import numpy as np
        from parity.trace import Quantity, Trace

        def train(problem, samples, dtype):
            loss = Quantity("dpo/loss", ("update",), "value", np.zeros(1, dtype))
            return Trace("honest", dtype, {"dpo/loss": loss}, problem.digest)
    """,
    "chatty": """
        import os, subprocess, sys
        import numpy as np
        from parity.trace import Quantity, Trace
        print("imported")

        def train(problem, samples, dtype):
            print('{"done": 0}')
            os.write(1, b'{"failed": "no"}\\n' * 5000)  # far more than a pipe holds, 64 KiB
            subprocess.run([sys.executable, "-c", "print('{}')"], check=True)
            sys.stdout.flush()
            loss = Quantity("dpo/loss", ("update",), "value", np.zeros(1, dtype))
            return Trace("chatty", dtype, {"dpo/loss": loss}, problem.digest)
    """,
    "raises": """
        import sys

        def train(problem, samples, dtype):
            for number in range(100):
                print("line", number, file=sys.stderr)
            raise RuntimeError("out of luck")
    """,
    "quits": """
        import os

        def train(problem, samples, dtype):
            os.write(2, b"last words \\xff\\n")
            os._exit(7)
    """,
    "leaves": """
        import os

        def train(problem, samples, dtype):
            os._exit(0)
    """,
    "segfaults": """
        import os, signal

        def train(problem, samples, dtype):
            os.kill(os.getpid(), signal.SIGSEGV)
    """,
    "needs": """
        import no_such_framework
    """,
    "hangs": """
        import os, pathlib, signal, sys, time

        def train(problem, samples, dtype):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            sys.stderr.write("waiting\\n")
            sys.stderr.flush()
            pathlib.Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
            while True:
                time.sleep(1)
    """,
    "forks": """
        import os, pathlib, time

        def train(problem, samples, dtype):
            child = os.fork()
            if child:
                pathlib.Path(os.environ["PID_FILE"]).write_text(str(child))
            while True:
                time.sleep(1)
    """,
    "tells": """
        import json, os, pathlib, sys
        import numpy, parity
        from parity import cli, figures

        class Told:
            def save(self, path):
                told = {
                    "environment": dict(os.environ),
                    "path": sys.path,
                    "files": [m.__file__ for m in (cli, figures, numpy, parity)],
                }
                path.write_text(json.dumps(told))

        def train(problem, samples, dtype):
            return Told()
    """,
    "truncates": """
        import numpy as np
        from parity.trace import Quantity, Trace

        class Half:
            def save(self, path):
                loss = Quantity("dpo/loss", ("update",), "value", np.zeros(1, "float32"))
                Trace("half", "float32", {"dpo/loss": loss}).save(path)
                content = path.read_bytes()
                path.write_bytes(content[: len(content) // 2])

        def train(problem, samples, dtype):
            return Half()

        def draw(problem, seed):
            return Half()
    """,
    "forgets": """
        class Nothing:
            def save(self, path):
                pass

        def train(problem, samples, dtype):
            return Nothing()
    """,
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes backends of the given names available to workers."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))

    def make(name: str) -> str:
        module = f"fake_{name}_backend"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(FAKES[name]))
        monkeypatch.setitem(backends.MODULES, name, module)
        return name

    return make


def silent(_who: str, _stage: str) -> None:
    pass


def run(jobs: dict[str, list[Job]], progress: Callable[..., None] = silent) -> list[Done]:
    with Workers(jobs, "float32", PATIENCE, progress) as workers:
        return list(workers.finished())
