"""Where a backend's module is named, started in a process of its own, and its traces read back."""

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

import msgspec

from parity.errors import BackendError, InputError
from parity.problem import Problem
from parity.samples import Samples
from parity.targets import SEARCHED
from parity.trace import Trace
from parity.worker import Draw, Event, Job, Order

__all__ = [
    "CALLED",
    "MECHANIC_MODULES",
    "MODULES",
    "Done",
    "Progress",
    "Workers",
    "draw_samples",
    "framework",
    "load_trace",
    "worker_environment",
]

MODULES = {"jax": "parity.jax_impl.backend", "torch": "parity.torch_impl.backend"}
"""Implementation to the module that implements it; its package's extra bears the same name."""

MECHANIC_MODULES = {"jax": "parity.jax_impl.mechanics", "torch": "parity.torch_impl.mechanics"}
"""Implementation to the module that computes its mechanics."""

CALLED = {
    "torch": ("parity.torch_impl.adapt", "parity.torch_impl.backend"),
    "jax": ("parity.jax_impl.adapt", "parity.jax_impl.backend"),
    "numpy": ("parity.plain", "parity.plain"),
}
"""Framework of a user's function to the modules that adapt and evaluate it."""

Progress = Callable[[str, str], None]

TAIL = 15  # lines of a backend's stderr that an error repeats
_SCRUBBED = ("JAX_", "XLA_", "TORCH", "PYTORCH_", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "CUDA_")


def worker_environment(dtype: str) -> dict[str, str]:
    """Returns a worker's environment: ours, less what changes results, plus what fixes them.

    CPU only, one thread, 64-bit JAX only where the run asks for it. Entries of PYTHONPATH that
    depend on the current folder are dropped: a user's `numpy.py` must not shadow ours.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SCRUBBED)}
    paths = kept.pop("PYTHONPATH", "").split(os.pathsep)
    absolute = [path for path in paths if Path(path).is_absolute()]
    if absolute:
        kept["PYTHONPATH"] = os.pathsep.join(absolute)
    return kept | {
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_ENABLE_X64": str(int(dtype == "float64")),
        "JAX_PLATFORMS": "cpu",
        "MKL_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        SEARCHED: os.pathsep.join(path for path in sys.path if Path(path).is_absolute()),
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    }


def framework(worker: str) -> str:
    """The framework of a worker: `jax#2` is a second one of jax."""
    return worker.partition("#")[0]


class Done(NamedTuple):
    """A job that a backend has finished: its position in the backend's list."""

    backend: str
    job: int


class Workers:
    """Backends at work side by side, each in a process of its own; none outlives the block.

    Args:
        jobs: implementation to its jobs.
        dtype: float32 or float64.
        timeout: seconds for all of it.
        progress: called with backend and stage, from other threads.
    """

    def __init__(
        self, jobs: Mapping[str, list[Job]], dtype: str, timeout: float, progress: Progress
    ) -> None:
        self._jobs = jobs
        self._dtype = dtype
        self._timeout = timeout
        self._progress = progress
        self._events: queue.SimpleQueue[tuple[str, Event | None]] = queue.SimpleQueue()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._errors: dict[str, IO[bytes]] = {}
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> "Workers":
        self._deadline = time.monotonic() + self._timeout
        self._folder = tempfile.TemporaryDirectory(prefix="parity-")
        try:
            for backend, jobs in self._jobs.items():
                module = MODULES.get(framework(backend), "")
                self._start(backend, Order(module, self._dtype, jobs))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, backend: str, order: Order) -> None:
        path = Path(self._folder.name) / f"{backend}.json"
        path.write_bytes(msgspec.json.encode(order))
        errors = self._errors[backend] = path.with_suffix(".stderr").open("w+b")
        # A session of its own: Ctrl-C reaches us alone, and we end the workers.
        process = self._processes[backend] = subprocess.Popen(
            [sys.executable, "-P", "-m", "parity.worker", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=worker_environment(self._dtype),
            start_new_session=True,
        )
        reader = threading.Thread(target=self._read, args=(backend, process), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _read(self, backend: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event = msgspec.json.decode(line, type=Event)
            if event.stage:
                self._progress(backend, event.stage)
            else:
                self._events.put((backend, event))
        self._events.put((backend, None))

    def finished(self) -> Iterator[Done]:
        """Yields each job when it is done, until all jobs of all backends are.

        Raises:
            BackendError: a worker crashed, gave up, ended early, or the time is over.
        """
        left = {backend: len(jobs) for backend, jobs in self._jobs.items()}
        failed: dict[str, str] = {}
        while any(left.values()):
            try:
                wait = max(0.0, self._deadline - time.monotonic())
                backend, event = self._events.get(timeout=wait)
            except queue.Empty:
                late = next(name for name, jobs in left.items() if jobs)
                reason = f"no answer within {self._timeout:g} s"
                raise BackendError(late, reason, self._stderr(late)) from None
            if event is None:
                if left[backend]:
                    ending = self._ending(backend)  # by then the last of its stderr is there
                    reason = failed.get(backend) or ending
                    raise BackendError(backend, reason, self._stderr(backend))
            elif event.done is None:
                failed[backend] = event.failed
            else:
                left[backend] -= 1
                if not left[backend]:
                    self._progress(backend, "done")
                yield Done(backend, event.done)

    def _ending(self, backend: str) -> str:
        try:
            code = self._processes[backend].wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return f"said nothing more within {self._timeout:g} s"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"crashed with exit code {code}" if code else "ended before its jobs were done"

    def _stderr(self, backend: str) -> str:
        errors = self._errors[backend]
        errors.seek(0)
        lines = errors.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL:])

    def close(self) -> None:
        """Ends every worker and waits for it."""
        for process in self._processes.values():
            # The whole session: what it started holds its pipes. Gone, or on macOS a zombie: fine.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        for reader in self._readers:
            reader.join()
        for process in self._processes.values():
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        for errors in self._errors.values():
            errors.close()
        self._folder.cleanup()


def load_trace(backend: str, path: Path) -> Trace:
    """Reads back what a worker saved.

    Raises:
        BackendError: the file is missing, truncated or altered.
    """
    try:
        return Trace.load(path)
    except InputError as error:
        raise BackendError(backend, f"left no usable trace: {error}") from error


def draw_samples(
    problem: Problem, sampler: str, seed: int, timeout: float, progress: Progress
) -> Samples:
    """Draws a tape in a worker; always in float32.

    Args:
        problem: one with a part that is sampled.
        sampler: jax or torch.
        seed: seed of the draw.
        timeout: seconds.
        progress: called with backend and stage, from another thread.

    Raises:
        BackendError: the worker failed.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        output = Path(folder) / "samples.safetensors"
        jobs: dict[str, list[Job]] = {sampler: [Draw(problem, seed, str(output))]}
        with Workers(jobs, "float32", timeout, progress) as workers:
            for _ in workers.finished():
                pass
        try:
            return Samples.load(output)
        except InputError as error:
            raise BackendError(sampler, f"left no usable samples: {error}") from error
