"""Known kinds of bug, run to prove that the gate turns red."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from parity import gate
from parity.arithmetic.measure import Expected
from parity.backends import MODULES, Progress, Workers, framework, load_trace
from parity.comparison import ORACLE, Comparison
from parity.errors import InputError
from parity.lessons.probes import core, grid_of
from parity.objectives import Objective, built_in
from parity.objectives.spec import Fault
from parity.points import Points
from parity.problem import Problem, load_problem
from parity.report import LessonReport
from parity.samples import Samples
from parity.trace import Trace
from parity.worker import Job, Plant

__all__ = [
    "LAYERS",
    "Known",
    "Layer",
    "Outcome",
    "catalogue",
    "chosen",
    "of_each_kind",
    "plant",
    "planted_in",
]

Layer = Literal["twins", "points", "step", "trajectory", "invariant"]
LAYERS: tuple[Layer, ...] = ("twins", "points", "step", "trajectory", "invariant")

_PROBLEMS = Path(__file__).parent / "problems" / "planted"


class Known(NamedTuple):
    """A fault, and the objective that it breaks."""

    objective: Objective
    fault: Fault

    @property
    def expected(self) -> str:
        """What is expected to part first, and where."""
        fault = self.fault
        return "match" if fault.equivalent else _place(fault.first, fault.at)


class Outcome(NamedTuple):
    """What the gate said of one planted fault.

    Attributes:
        known: what was planted, and in which objective.
        framework: in whose twin.
        report: the gate's judgement.
        layers: who saw it.
    """

    known: Known
    framework: str
    report: LessonReport
    layers: tuple[Layer, ...]

    @property
    def fault(self) -> Fault:
        """What was planted."""
        return self.known.fault

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
            and (first.at == dict(self.fault.at) if self.fault.at else first.mode == "points")
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
            f"blamed {self.report.blamed}; expected {self.known.expected}, blamed {self.framework}"
        )


def _place(quantity: str, at: Mapping[str, int]) -> str:
    return f"{quantity}@{','.join(map(str, at.values())) or 'points'}"


def catalogue() -> list[Known]:
    """Every fault and rewrite of every built-in objective."""
    return [Known(objective, f) for objective in built_in().values() for f in objective.faults]


def chosen(names: Sequence[str]) -> list[Known]:
    """Finds faults by name; all of them when none is named.

    Raises:
        InputError: no such fault.
    """
    every = {known.fault.name: known for known in catalogue()}
    for name in names:
        if name not in every:
            near = [other for other in every if name.split("-")[0] in other] or list(every)
            raise InputError(
                f"fault: got {name!r}; expected one of {', '.join(near[:6])}, … "
                "(parity faults --list shows all)"
            )
    return [every[name] for name in names] or list(every.values())


def of_each_kind(faults: Sequence[Known]) -> list[Known]:
    """One bug, and one rewrite, for every place at which any of them parts first."""
    kinds: dict[tuple[str, str, bool], Known] = {}
    for known in faults:
        fault = known.fault
        kinds.setdefault((known.objective.name, fault.first, bool(fault.at)), known)
    return list(kinds.values())


def planted_in(objective: Objective) -> Problem:
    """The small problem in which faults of an objective are planted, with no more than it needs.

    Policy ≠ reference, β ≠ 1, several rollouts and epochs.
    """
    problems = (load_problem(path) for path in sorted(_PROBLEMS.glob("*.toml")))
    whole = next(p for p in problems if getattr(p, objective.name) is not None)
    return whole.only(objective)


class _Ground(NamedTuple):
    """Where faults of one objective are planted: everything that is the same for all of them."""

    problem: Problem
    samples: Samples | None
    trajectory: Expected
    grids: list[tuple[Points, Expected]]


def plant(
    faults: Sequence[Known],
    frameworks: Sequence[str],
    timeout: float,
    progress: Progress,
    *,
    quick: bool = False,
) -> Iterator[Outcome]:
    """Plants each fault in each framework's twin and lets the gate judge it.

    The other twin stays honest.

    Args:
        faults: what to plant.
        frameworks: in whose twin.
        timeout: seconds for all of it.
        progress: called with who and what stage.
        quick: at the core of the probe grid only.

    Raises:
        BackendError: a worker failed.
    """
    objectives = {known.objective.name: known.objective for known in faults}
    problems = {name: planted_in(objective) for name, objective in objectives.items()}
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        grids = {name: _grids(problems[name], o, quick) for name, o in objectives.items()}
        files: dict[str, list[str]] = {name: [] for name in objectives}
        for name, stacks in grids.items():
            for position, grid in enumerate(stacks):
                files[name].append(str(folder / f"points-{name}-{position}.safetensors"))
                grid.save(Path(files[name][-1]))

        def planting(twin: str, objective: str, fault: str, compiled: int) -> Plant:
            problem = problems[objective]
            return Plant(
                objective,
                fault,
                problem,
                problem.samples if problem.tape else None,
                files[objective],
                compiled,
                str(folder / f"{twin}.{fault or objective}"),
            )

        jobs: dict[str, list[Job]] = {
            twin: [planting(twin, o, "", len(files[o])) for o in objectives] for twin in MODULES
        }
        shared: dict[str, list[Known]] = {}
        for twin in frameworks:
            workers_of = 2 if twin == "jax" else 1  # which compiles the training of every fault
            for number in range(workers_of):
                worker = f"{twin}#{number + 1}" if number else twin
                share = faults[number::workers_of]
                if share:
                    shared[worker] = list(share)
                    jobs[worker] = jobs.get(worker, []) + [
                        # a rewrite must match as the compiler sees it
                        planting(twin, o.name, fault.name, 2 * fault.equivalent)
                        for o, fault in share
                    ]
        with Workers(jobs, "float32", timeout, progress) as workers:
            grounds = {o: _ground(problems[o], grids[o]) for o in objectives}
            twins: dict[tuple[str, str], _Played] = {}
            waiting: list[tuple[str, Known]] = []
            for worker, job in workers.finished():
                twin = framework(worker)
                planted = job - (len(objectives) if worker == twin else 0)
                if planted < 0:
                    objective = [*objectives][job]
                    place = folder / f"{twin}.{objective}"
                    twins[twin, objective] = _played(twin, place, grounds[objective])
                else:
                    waiting.append((twin, shared[worker][planted]))
                if len(twins) == len(objectives) * len(MODULES):
                    for twin, known in waiting:
                        objective, ground = known.objective.name, grounds[known.objective.name]
                        played = _played(twin, folder / f"{twin}.{known.fault.name}", ground)
                        sides = {f: twins[f, objective] for f in MODULES}
                        yield _outcome(known, twin, _case(ground, {**sides, twin: played}))
                    waiting.clear()


def _ground(problem: Problem, grids: Sequence[Points]) -> _Ground:
    samples = Samples.load(Path(problem.samples)) if problem.samples and problem.tape else None
    return _Ground(
        problem,
        samples,
        gate.whole_run(problem, samples, "float32"),
        [(grid, gate.evaluate_points(grid, "float32")) for grid in grids],
    )


def _grids(problem: Problem, objective: Objective, quick: bool) -> list[Points]:
    """The whole grid of the objective, or its core, and the core of what it builds on."""
    needed = [core(each) for each, _, _ in problem.parts() if each.name != objective.name]
    return [*needed, *([core(objective)] if quick else grid_of(objective))]


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


def _outcome(known: Known, framework: str, case: gate.Case) -> Outcome:
    report = gate.judge(case)
    seen: dict[Layer, bool] = {
        "twins": any(_red(c) and c.right != ORACLE for c in report.comparisons),
        "points": any(_red(c) and _by_oracle(c, "points") for c in report.comparisons),
        "step": any(_red(c) and _by_oracle(c, "step") for c in report.comparisons),
        "trajectory": any(_red(c) and _by_oracle(c, "trajectory") for c in report.comparisons),
        "invariant": any(i.verdict == "divergent" for i in report.invariants),
    }
    return Outcome(known, framework, report, tuple(layer for layer in LAYERS if seen[layer]))


def _red(comparison: Comparison) -> bool:
    return comparison.verdict == "divergent"


def _by_oracle(comparison: Comparison, mode: str) -> bool:
    return comparison.right == ORACLE and comparison.mode == mode
