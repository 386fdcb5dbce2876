"""Known kinds of bug, run to prove that the gate turns red."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from parity import gate, probes
from parity.backends import FAULT_MODULES, Progress, Workers, framework, load_trace
from parity.comparison import ORACLE, Comparison
from parity.errors import InputError
from parity.files import read_bytes
from parity.noise import Expected
from parity.points import Points
from parity.problem import Problem
from parity.report import LessonReport
from parity.samples import Samples
from parity.trace import Trace
from parity.worker import Job, Plant

__all__ = ["LAYERS", "Catalogue", "Fault", "Layer", "Outcome", "catalogue", "chosen", "plant"]

Layer = Literal["twins", "points", "step", "trajectory", "invariant"]
LAYERS: tuple[Layer, ...] = ("twins", "points", "step", "trajectory", "invariant")

_HERE = Path(__file__).parent


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One entry of the catalogue.

    Attributes:
        name: of the piece in both twins' `faults.py`.
        objective: which objective it breaks.
        sentence: what is wrong.
        equation: what is computed instead.
        source: a public report of it, or why there is none.
        first: the quantity that is expected to part first; empty for a rewrite.
        at: the step at which it parts, by time axes; empty where only the probes can see it.
        equivalent: a rewrite that is no bug and must raise no alarm.
    """

    name: str
    objective: str
    sentence: str
    equation: str
    source: str
    first: str = ""
    at: dict[str, int] = {}
    equivalent: bool = False

    @property
    def expected(self) -> str:
        """What is expected to part first, and where."""
        return "match" if self.equivalent else _place(self.first, self.at)


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults, and the small problem in which they are planted.

    Attributes:
        problem: policy ≠ reference, β ≠ 1, several rollouts and epochs.
        fault: all faults and rewrites.
    """

    problem: Problem
    fault: tuple[Fault, ...]


class Outcome(NamedTuple):
    """What the gate said of one planted fault.

    Attributes:
        fault: what was planted.
        framework: in whose twin.
        report: the gate's judgement.
        layers: who saw it.
    """

    fault: Fault
    framework: str
    report: LessonReport
    layers: tuple[Layer, ...]

    @property
    def caught(self) -> bool:
        """Whether the gate turned red."""
        return self.report.verdict == "divergent"

    @property
    def as_expected(self) -> bool:
        """Red with the right first quantity, step and blame; for a rewrite, a match."""
        if self.fault.equivalent:
            return self.report.verdict == "match"
        first = self.report.first_divergence
        return (
            self.caught
            and self.report.blamed == [self.framework]
            and first is not None
            and first.quantity == self.fault.first
            and (first.at == self.fault.at if self.fault.at else first.mode == "points")
        )

    @property
    def found(self) -> str:
        """What parted first, and where; a dash where nothing did."""
        first = self.report.first_divergence
        if first is None:
            return "-"
        return _place(first.quantity, {} if first.mode == "points" else first.at)

    def sentence(self) -> str:
        """What was found beside what was expected."""
        return (
            f"{self.fault.name} in {self.framework}: {self.report.verdict}, {self.found}, "
            f"blamed {self.report.blamed}; expected {self.fault.expected}, blamed {self.framework}"
        )


def _place(quantity: str, at: Mapping[str, int]) -> str:
    return f"{quantity}@{','.join(map(str, at.values())) or 'points'}"


def catalogue() -> Catalogue:
    """Loads the catalogue that ships with the package."""
    return msgspec.toml.decode(read_bytes(_HERE / "faults.toml"), type=Catalogue)


def chosen(names: Sequence[str]) -> list[Fault]:
    """Finds faults by name; all of them when none is named.

    Raises:
        InputError: no such fault.
    """
    known = {fault.name: fault for fault in catalogue().fault}
    for name in names:
        if name not in known:
            near = [other for other in known if name.split("-")[0] in other] or list(known)
            raise InputError(
                f"fault: got {name!r}; expected one of {', '.join(near[:6])}, … "
                "(parity faults --list shows all)"
            )
    return [known[name] for name in names] or list(known.values())


def part(problem: Problem, objective: str) -> Problem:
    """The part of a problem that one objective needs."""
    needed = {"ppo": ("reward", "ppo")}.get(objective, (objective,))
    absent = [name for name in ("reward", "ppo", "dpo", "reinforce") if name not in needed]
    return msgspec.structs.replace(problem, **dict.fromkeys(absent))


class _Ground(NamedTuple):
    """Where faults of one objective are planted: everything that is the same for all of them."""

    problem: Problem
    samples: Samples | None
    trajectory: Expected
    grids: list[tuple[Points, Expected]]


def plant(
    faults: Sequence[Fault],
    frameworks: Sequence[str],
    timeout: float,
    progress: Progress,
) -> Iterator[Outcome]:
    """Plants each fault in each framework's twin and lets the gate judge it.

    The other twin stays honest.

    Args:
        faults: what to plant.
        frameworks: in whose twin.
        timeout: seconds for all of it.
        progress: called with who and what stage.

    Raises:
        BackendError: a worker failed.
    """
    tape = _HERE / "faults.safetensors"
    whole = catalogue().problem
    objectives = list(dict.fromkeys(fault.objective for fault in faults))
    every = probes.grid()
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        files: dict[str, list[str]] = {objective: [] for objective in objectives}
        for position, grid in enumerate(every):
            path = folder / f"points-{position}.safetensors"
            grid.save(path)
            for objective in objectives:
                if _probes(part(whole, objective), objective, grid):
                    files[objective].append(str(path))
        tapes = {o: str(tape) if part(whole, o).tape else None for o in objectives}

        def planting(twin: str, objective: str, fault: str, compiled: int) -> Plant:
            return Plant(
                FAULT_MODULES[twin],
                fault,
                part(whole, objective),
                tapes[objective],
                files[objective],
                compiled,
                str(folder / f"{twin}.{fault or objective}"),
            )

        jobs: dict[str, list[Job]] = {
            twin: [planting(twin, o, "", len(files[o])) for o in objectives]
            for twin in FAULT_MODULES
        }
        shared: dict[str, list[Fault]] = {}
        for twin in frameworks:
            workers_of = 2 if twin == "jax" else 1  # which compiles the training of every fault
            for number in range(workers_of):
                worker = f"{twin}#{number + 1}" if number else twin
                share = faults[number::workers_of]
                if share:
                    shared[worker] = list(share)
                    jobs[worker] = jobs.get(worker, []) + [
                        # a rewrite must match as the compiler sees it
                        planting(twin, fault.objective, fault.name, 2 * fault.equivalent)
                        for fault in share
                    ]
        with Workers(jobs, "float32", timeout, progress) as workers:
            grounds = {o: _ground(part(whole, o), tape, every, o) for o in objectives}
            twins: dict[tuple[str, str], _Played] = {}
            waiting: list[tuple[str, Fault]] = []
            for worker, job in workers.finished():
                twin = framework(worker)
                planted = job - (len(objectives) if worker == twin else 0)
                if planted < 0:
                    objective = objectives[job]
                    place = folder / f"{twin}.{objective}"
                    twins[twin, objective] = _played(twin, place, grounds[objective])
                else:
                    waiting.append((twin, shared[worker][planted]))
                if len(twins) == len(objectives) * len(FAULT_MODULES):
                    for twin, fault in waiting:
                        ground = grounds[fault.objective]
                        played = _played(twin, folder / f"{twin}.{fault.name}", ground)
                        sides = {f: twins[f, fault.objective] for f in FAULT_MODULES}
                        yield _outcome(fault, twin, _case(ground, {**sides, twin: played}))
                    waiting.clear()


def _ground(problem: Problem, tape: Path, grids: Sequence[Points], objective: str) -> _Ground:
    samples = Samples.load(tape) if problem.tape else None
    return _Ground(
        problem,
        samples,
        gate.whole_run(problem, samples, "float32"),
        [
            (grid, gate.evaluate_points(grid, "float32"))
            for grid in grids
            if _probes(problem, objective, grid)
        ],
    )


def _probes(problem: Problem, objective: str, grid: Points) -> bool:
    """The whole grid of the objective, and the core of what it builds on."""
    needed = getattr(problem, grid.objective) is not None
    return grid.objective == objective or (needed and grid.grid == "core")


class _Played(NamedTuple):
    """What one implementation did: its run, what the oracle makes of it, and its evaluations."""

    run: Trace
    steps: Expected | None
    evaluations: list[Trace]


def _played(framework: str, place: Path, ground: _Ground) -> _Played:
    run = load_trace(framework, place.with_name(f"{place.name}.run"))
    return _Played(
        run,
        gate.rederive(ground.problem, ground.samples, run, "float32"),
        [
            load_trace(framework, place.with_name(f"{place.name}.{position}"))
            for position in range(len(ground.grids))
        ],
    )


def _case(ground: _Ground, sides: Mapping[str, _Played]) -> gate.Case:
    return gate.Case(
        problem=ground.problem,
        samples=ground.samples,
        dtype="float32",
        traces={name: played.run for name, played in sides.items()},
        steps={name: played.steps for name, played in sides.items()},
        trajectory=ground.trajectory,
        grids=ground.grids,
        evaluations={name: played.evaluations for name, played in sides.items()},
    )


def _outcome(fault: Fault, framework: str, case: gate.Case) -> Outcome:
    report = gate.judge(case)
    seen: dict[Layer, bool] = {
        "twins": any(_red(c) and c.right != ORACLE for c in report.comparisons),
        "points": any(_red(c) and _by_oracle(c, "points") for c in report.comparisons),
        "step": any(_red(c) and _by_oracle(c, "step") for c in report.comparisons),
        "trajectory": any(_red(c) and _by_oracle(c, "trajectory") for c in report.comparisons),
        "invariant": any(i.verdict == "divergent" for i in report.invariants),
    }
    return Outcome(fault, framework, report, tuple(layer for layer in LAYERS if seen[layer]))


def _red(comparison: Comparison) -> bool:
    return comparison.verdict == "divergent"


def _by_oracle(comparison: Comparison, mode: str) -> bool:
    return comparison.right == ORACLE and comparison.mode == mode
