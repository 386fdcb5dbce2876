"""Libraries held against the oracle: the report of `parity peers`."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from parity.against import compare_functions
from parity.backends import Progress
from parity.checks import DTYPES, Target, check_all
from parity.comparison import Comparison, Number, Verdict, number, worst_verdict
from parity.deriving import InputsHeader
from parity.errors import BackendError, InputError
from parity.files import write_arrays
from parity.judging import CheckReport
from parity.lessons.probes import core
from parity.objectives import find
from parity.parting import AgainstReport, Pair
from parity.peers import Adapter, Difference, Peer, installed
from parity.report import totals, words

__all__ = ["PeerReport", "PeersReport", "Standing", "check_peers"]

Standing = Literal[Verdict, "convention", "not installed", "failed"]
_COUNTS_AS: dict[Standing, Verdict] = {
    "match": "match",
    "convention": "match",
    "noisy": "noisy",
    "inconclusive": "inconclusive",
    "not installed": "inconclusive",
    "failed": "inconclusive",
    "divergent": "divergent",
}


class PeerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one function of a library.

    Attributes:
        peer: the library.
        version: of it; empty where it is not installed.
        objective: its name.
        function: the library's own name for it.
        verdict: match, noisy, inconclusive or divergent; convention where it differs from us as
            documented and computes what it documents; not installed; failed where it did not run.
        ratio: largest difference over its allowance; above 1 is outside.
        remarks: what was measured where it differs, or why there is no verdict.
        differences: what it does otherwise, with sources.
        check: against the oracle.
        apart: the same at the states that are held apart, one for each such difference.
        documented: against its documented formula.
    """

    peer: str
    version: str
    objective: str
    function: str
    verdict: Standing
    ratio: Number = 0.0
    remarks: list[str] = []
    differences: tuple[Difference, ...] = ()
    check: CheckReport | None = None
    apart: list[CheckReport] = []
    documented: AgainstReport | None = None

    @property
    def counted(self) -> Verdict:
        """What it counts as: a documented convention is no fault, what did not run no pass."""
        return _COUNTS_AS[self.verdict]


class PeersReport(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of libraries.

    Attributes:
        schema_version: of this document.
        verdict: of all; what did not run is inconclusive.
        peers: one entry a function.
    """

    schema_version: int = 1
    verdict: Verdict
    peers: list[PeerReport]

    @property
    def closing(self) -> str:
        """What the verdict rests on."""
        good = sum(peer.verdict == "match" for peer in self.peers)
        others = [peer.verdict for peer in self.peers if peer.verdict != "match"]
        rest = "".join(f", {others.count(word)} {word}" for word in dict.fromkeys(others))
        return f"{good} of {len(self.peers)} functions match{rest}"


def check_peers(
    peers: Sequence[Peer], timeout: float, progress: Progress, *, quick: bool = False
) -> PeersReport:
    """Checks functions of libraries; each library in processes of its own.

    Args:
        peers: the libraries, each with the adapters to check.
        timeout: seconds for each round of processes.
        progress: called with which library and what stage.
        quick: at the core of the probe grid only.
    """
    reports: list[PeerReport] = []
    for peer in peers:
        blank = [
            PeerReport(
                peer=peer.name,
                version=installed(peer),
                objective=adapter.objective,
                function=adapter.function,
                verdict="not installed",
                differences=adapter.difference,
            )
            for adapter in peer.adapter
        ]
        if installed(peer):

            def told(who: str, stage: str, name: str = peer.name) -> None:
                progress(name, f"{who}: {stage}")

            reports += _checked(peer, blank, timeout, told, quick=quick)
            progress(peer.name, "done")
        else:
            reports += blank
    verdict = worst_verdict(report.counted for report in reports)
    return PeersReport(verdict=verdict, peers=reports)


def _checked(
    peer: Peer, blank: list[PeerReport], timeout: float, progress: Progress, *, quick: bool
) -> list[PeerReport]:
    """All functions of one library in one process a dtype, and again where states are apart."""
    asked = [target for adapter in peer.adapter for target in _targets(peer, adapter)]
    try:
        found = iter(check_all(asked, timeout, progress, quick=quick))
    except BackendError as error:
        return [
            msgspec.structs.replace(row, verdict="failed", remarks=[str(error)]) for row in blank
        ]
    reports = []
    for row, adapter in zip(blank, peer.adapter, strict=True):
        check, *apart = [next(found) for _ in _targets(peer, adapter)]
        reports.append(_judged(row, adapter, check, apart, timeout, progress))
    return reports


def _targets(peer: Peer, adapter: Adapter) -> list[Target]:
    """The function at the states that it shares with us; and at those held apart."""
    limits = {name: low for d in adapter.difference for name, low in d.apart.items()}
    plain = Target(
        adapter.call,
        adapter.objective,
        framework=peer.framework,
        convention=adapter.convention,
        within={name: (0.0, low) for name, low in limits.items()},
        followed=not adapter.documented,
    )
    apart = plain._replace(followed=False)
    return [plain, *(apart._replace(within={n: (low, np.inf)}) for n, low in limits.items())]


def _judged(
    row: PeerReport,
    adapter: Adapter,
    check: CheckReport | InputError,
    apart: Sequence[CheckReport | InputError],
    timeout: float,
    progress: Progress,
) -> PeerReport:
    refused = next((report for report in (check, *apart) if isinstance(report, InputError)), None)
    if isinstance(check, InputError) or refused:
        return msgspec.structs.replace(row, verdict="failed", remarks=[str(refused)])
    there = [report for report in apart if isinstance(report, CheckReport)]
    ratio = number(totals(c for part in check.lessons for c in part.comparisons).ratio)
    row = msgspec.structs.replace(row, check=check, ratio=ratio, apart=there)
    verdicts: list[Verdict] = [check.verdict]
    remarks = []
    declared = [d for d in adapter.difference for _ in d.apart]
    for difference, report in zip(declared, there, strict=True):
        as_declared, remark = _held_apart(difference, report, check)
        verdicts += [] if as_declared else [report.verdict]
        remarks.append(remark)
    verdict: Standing = worst_verdict(verdicts)
    if check.verdict != "match":
        remarks.append(_measured(check))
    if adapter.documented and verdict == "divergent" and not check.fault:
        try:
            documented = _against_documented(adapter, timeout, progress)
        except (BackendError, InputError) as error:
            return msgspec.structs.replace(row, verdict="failed", remarks=[str(error)])
        row = msgspec.structs.replace(row, documented=documented)
        verdict = "convention" if documented.verdict == "match" else documented.verdict
        near = words.ratio(totals(documented.comparisons).ratio)
        remarks.append(
            f"against its documented formula: {documented.verdict}; {documented.sentence}; "
            f"largest difference {near} of the allowance"
        )
    return msgspec.structs.replace(row, verdict=verdict, remarks=remarks)


def _held_apart(
    difference: Difference, report: CheckReport, check: CheckReport
) -> tuple[bool, str]:
    """Whether a function does what was declared at the states held apart; and what it does."""
    ranges = " and ".join(f"{name} from {low:g} on" for name, low in difference.apart.items())
    if report.fault:
        return False, f"states held apart ({ranges}): {report.fault}"
    there = _losses(report)
    states, others = (sum(c.shape[0] for c in _losses(r)) // len(DTYPES) for r in (report, check))
    place = f"{states} of {states + others} states held apart ({ranges})"
    if report.verdict == "match":
        return True, f"{place}: it does not differ there"
    # A comparison names its worst state only: that speaks for all where there is but one.
    alone = all(c.shape[0] == 1 for c in there)
    found = dict.fromkeys(str(c.worst.left) if c.worst else c.reason for c in there)
    declared = alone and [*found] == [difference.returns]
    return declared, f"{place}: its loss is {', '.join(found)} there"


def _losses(report: CheckReport) -> list[Comparison]:
    """The comparisons of the loss: of every grid, in each dtype."""
    name = f"{find(report.objective).name}/loss"
    return [c for lesson in report.lessons for c in lesson.comparisons if c.quantity == name]


def _measured(check: CheckReport) -> str:
    """The first place where a function differs, in one line."""
    if check.fault:
        return check.fault
    if check.first is None:
        return "not everything could be compared"
    cell, entry = check.first, check.first.entry
    return (
        f"{cell.label} ({cell.dtype}): {cell.quantity}{list(entry.index[1:]) or ''} is "
        f"{entry.left}, ours {entry.right}"
    )


def _against_documented(adapter: Adapter, timeout: float, progress: Progress) -> AgainstReport:
    """A function against its documented formula: values and gradients at the core of the grid."""
    grid = core(find(adapter.objective))
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        path = Path(name) / "points.safetensors"
        arrays = {
            f"{label}/{key}": np.asarray(values[i])
            for i, label in enumerate(grid.labels)
            for key, values in grid.inputs.items()
        }
        write_arrays(path, InputsHeader(grid.grid), arrays)
        variable = next(iter(grid.inputs))  # logits, or weights
        pair = Pair(adapter.call, adapter.documented, str(path), gradients=(variable,))
        return compare_functions(pair, timeout, progress)
