"""How fast a cold run and a warm training are, each as a ratio against a peer in the same run.

    python tests/bench/run_speed.py [--pairs N]

Cold: `parity run` of both recorded lessons, figures included, against importing what it needs in
one process. Warm: JAX training as one compiled scan against the same loop dispatched step by step.
Prints paired medians and the peak memory of every process.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from statistics import median

IMPORTS = "import jax, torch, matplotlib.figure"
LESSONS = ("posttraining-04", "posttraining-05")


def descendants(root: int) -> list[int]:
    """Process ids of a process and all that it started."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def watch(root: int, peaks: dict[str, int], over: threading.Event) -> None:
    """Keeps the largest resident size of each process of a run, by what it runs."""
    while not over.wait(0.05):
        for pid in descendants(root):
            try:
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            name = Path(arguments[-2].decode()).stem if b"parity.worker" in arguments else "parity"
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    peaks[name] = max(peaks.get(name, 0), int(line.split()[1]))


def cold(peaks: dict[str, int] | None = None) -> float:
    """Seconds of one cold run; whoever asks for peaks pays for the watching of all processes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("parity")),
                "run",
                *LESSONS,
                "--quiet",
                "--out",
                folder,
            ],
            stdout=subprocess.DEVNULL,
        )
        over = threading.Event()
        watcher = threading.Thread(target=watch, args=(process.pid, peaks, over))
        if peaks is not None:
            watcher.start()
        code = process.wait()
        seconds = time.perf_counter() - start
        over.set()
        if peaks is not None:
            watcher.join()
        assert code == 0, f"parity run ended with {code}"
        return seconds


def imports() -> float:
    """Seconds of importing what a run needs, in one process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    return time.perf_counter() - start


def warm(repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of a compiled scan, and of the same loop dispatched step by step."""
    import jax
    import jax.numpy as jnp

    from parity.jax_impl import ppo
    from parity.jax_impl.derivative import differentiate
    from parity.problem import load_problem
    from parity.samples import Samples

    problem = load_problem(LESSONS[0])
    assert problem.ppo is not None
    assert problem.samples is not None
    logits = jnp.asarray(problem.ppo.logits)
    scores = jnp.asarray([1.98113, 0.32728, -2.30841])  # the lesson's fitted scores
    tape = jnp.asarray(Samples.load(Path(problem.samples)).actions)
    rate, beta, clip = (jnp.float32(x) for x in (0.15, 0.2, 0.2))  # the lesson's constants
    epochs = problem.ppo.epochs

    def scan() -> None:
        jax.block_until_ready(
            ppo.train(logits, logits, scores, tape, rate, beta, clip, epochs=epochs)
        )

    step = jax.jit(partial(differentiate, ppo.ppo_loss, places=ppo.DERIVED))

    def loop() -> None:
        state = ppo.State(logits, jax.nn.log_softmax(logits), scores, jnp.zeros_like(logits))
        for actions in tape:
            batch = ppo.collect(actions, state)
            for _ in range(epochs):
                given = (batch.old_logps, batch.actions, batch.advantages, state.reference)
                _, _, gradients = step((state.logits, *given, beta, clip))
                state = ppo.update(state, gradients[0], rate)
            measures = ppo.measure(state)
            float(measures.expected_reward), float(measures.reference_kl)

    timings: tuple[list[float], list[float]] = ([], [])
    for program in (scan, loop):
        program()
    for _ in range(repeats):
        for program, seconds in zip((scan, loop), timings, strict=True):
            start = time.perf_counter()
            program()
            seconds.append(time.perf_counter() - start)
    return timings


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    peaks: dict[str, int] = {}
    cold(peaks), imports()
    runs, peers = zip(*((cold(), imports()) for _ in range(pairs)), strict=True)
    ratios = [run / peer for run, peer in zip(runs, peers, strict=True)]
    print(
        f"cold run {median(runs):.2f} s, imports {median(peers):.2f} s, "
        f"ratio median {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {pairs} pairs"
    )
    print("peak memory: " + ", ".join(f"{name} {kb / 1024:.0f} MB" for name, kb in peaks.items()))
    scans, loops = warm(4 * pairs)
    speedups = [loop / scan for scan, loop in zip(scans, loops, strict=True)]
    print(
        f"warm training: scan {median(scans) * 1e3:.2f} ms, "
        f"step by step {median(loops) * 1e3:.0f} ms, "
        f"ratio median {median(speedups):.0f} ({min(speedups):.0f} to {max(speedups):.0f})"
    )


if __name__ == "__main__":
    main()
