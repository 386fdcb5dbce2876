"""What the pytest plugin adds to a run that does not use it.

    python tests/bench/plugin_overhead.py [--pairs N]

Each pair is one run with the plugin and one with `-p no:parity`, of one empty test in a folder of
its own; which of the two comes first alternates. Prints the medians of the paired differences: of
the clock, and of the processor time, which a busy machine moves less. Other plugins of this
environment are left out: what they load takes a second, and would drown the difference.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

OTHERS = [f"-pno:{name}" for name in ("hypothesispytest", "jaxtyping", "xdist", "xdist.looponfail")]


def seconds(folder: str, *options: str) -> tuple[float, float]:
    """Seconds of one run: by the clock, and of processor time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *OTHERS, *options],
        cwd=folder,
        env=kept,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    pairs = parser.parse_args().pairs
    without = ("-p", "no:parity")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        seconds(folder), seconds(folder, *without)
        runs = []
        for pair in range(pairs):
            if pair % 2:
                alone, whole = seconds(folder, *without), seconds(folder)
            else:
                whole, alone = seconds(folder), seconds(folder, *without)
            runs.append((whole, alone))
    for measure, name in enumerate(("by the clock", "of processor time")):
        added = [1e3 * (whole[measure] - alone[measure]) for whole, alone in runs]
        low, _, high = quantiles(added, n=4)
        bare = median(1e3 * alone[measure] for _, alone in runs)
        print(
            f"{name} the plugin adds {median(added):.1f} ms ({low:.1f} to {high:.1f}, quartiles) "
            f"to a run of {bare:.0f} ms; {pairs} pairs"
        )


if __name__ == "__main__":
    main()
