"""What machines read: JUnit's XML against its schema, GitHub's commands, a step's summary."""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
import xmlschema

from parity.comparison import ORACLE, Comparison, Verdict, compare
from parity.convention import Convention
from parity.coverage import Cell, Coverage
from parity.faults import Outcome, catalogue
from parity.invariants import Invariant
from parity.judging import CheckReport
from parity.objectives.spec import Fault
from parity.parting import AgainstReport
from parity.report import AllowedNoise, LessonReport, Report
from parity.report.cases import Case, of_each, of_faults, of_run
from parity.report.github import annotations, summary
from parity.report.junit import junit
from parity.trace import Quantity

SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def compared(quantity: str, left: float, allowed: float = 0.25, bound: float = 0.5) -> Comparison:
    """A comparison of two entries with 1.0, the second of which is `left`."""
    axes = ("update",)
    return compare(
        Quantity(quantity, axes, "value", np.array([1.0, left])),
        Quantity(quantity, axes, "value", np.array([1.0, 1.0])),
        np.full(2, allowed),
        mode="step",
        sides=("torch", ORACLE),
        bound=np.full(2, bound),
    )


def invariant(verdict: Verdict) -> Invariant:
    return Invariant(
        name="reference unchanged",
        implementation="torch",
        verdict=verdict,
        checked=int(verdict != "inconclusive"),
        reason="nothing was recorded" if verdict == "inconclusive" else "",
    )


def coverage(exercised: int) -> Coverage:
    cell = Cell(objective="dpo", cell="margin above 0", run={"torch": exercised}, probes={})
    return Coverage(cells=[cell], exercised=exercised, by_run=exercised)


def lesson(verdict: Verdict, *comparisons: Comparison, **others: object) -> LessonReport:
    return LessonReport(
        lesson="a <lesson> & more",
        verdict=verdict,
        dtype="float32",
        problem_digest="",
        comparisons=list(comparisons),
        **others,  # type: ignore[arg-type]  # by name
    )


def report(*lessons: LessonReport, noise: AllowedNoise | None = None) -> Report:
    verdict = lessons[0].verdict
    return Report(verdict=verdict, environment={}, allowed_noise=noise, lessons=list(lessons))


def parsed(cases: list[Case]) -> ElementTree.Element:
    """A valid document, whose counts are those of its cases."""
    text = junit(cases)
    SCHEMA.validate(text)
    root = ElementTree.fromstring(text)
    for element in (root, *root.iter("testsuite")):
        for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            assert int(element.attrib[attribute]) == len(list(element.iter(tag)))
    return root


def results(cases: list[Case]) -> dict[str, str]:
    """Name of a test case to its result: none, or the tag and type of what stands in it."""
    found = {}
    for case in parsed(cases).iter("testcase"):
        inside = [child for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.attrib["name"]] = "".join(f"{c.tag} {c.attrib['type']}" for c in inside)
    return found


def test_a_run_is_one_case_a_quantity_an_invariant_and_the_coverage() -> None:
    cases = of_run(
        report(
            lesson(
                "divergent",
                compared("dpo/loss", 1.125),
                compared("dpo/loss", 1.0),
                compared("dpo/gradient", 1.375),  # outside 0.25, inside 0.5
                compared("dpo/margins", 3.0),
                compared("dpo/logits", np.nan),
                invariants=[invariant("inconclusive"), invariant("match")],
                coverage=coverage(0),
            )
        )
    )
    assert results(cases) == {
        "dpo/loss": "",
        "dpo/gradient": "failure noisy",
        "dpo/margins": "failure divergent",
        "dpo/logits": "failure divergent",
        "invariant: reference unchanged": "error inconclusive",
        "coverage": "error inconclusive",
    }
    messages = {case.name: case.message for case in cases}
    assert messages["dpo/margins"] == (
        "dpo/margins[1] (step): torch 3.0, oracle 1.0; difference 2, allowed 0.25, ratio 8.00"
    )
    assert messages["coverage"] == "not exercised: dpo, margin above 0"
    assert messages["invariant: reference unchanged"] == "torch: nothing was recorded"


@pytest.mark.parametrize(
    "unjudged",
    [
        Report(verdict="inconclusive", environment={}, lessons=[]),
        report(lesson("inconclusive", reason="torch: crashed")),
    ],
)
def test_no_judgement_is_an_error_and_never_an_empty_pass(unjudged: Report) -> None:
    root = parsed(of_run(unjudged))
    assert int(root.attrib["errors"]) == int(root.attrib["tests"]) == 1
    (line,) = annotations(of_run(unjudged), "inconclusive: x")[-1:]
    assert line.startswith("::error ")


def test_everything_passes_where_everything_matches() -> None:
    good = report(
        lesson(
            "match",
            compared("dpo/loss", 1.0),
            invariants=[invariant("match")],
            coverage=coverage(1),
        )
    )
    assert set(results(of_run(good)).values()) == {""}
    assert annotations(of_run(good), "match: 1 quantity") == [
        "::notice title=parity::match: 1 quantity"
    ]


def test_accepted_noise_passes_and_repeats_the_reason() -> None:
    noise = AllowedNoise(pattern="dpo/g*", reason="known order", quantities=["dpo/gradient"])
    cases = of_run(report(lesson("match", compared("dpo/gradient", 1.375)), noise=noise))
    assert cases == [
        Case("a <lesson> & more", "dpo/gradient", "match", "noise accepted: known order")
    ]
    assert "known order" in junit(cases)
    wider = compared("dpo/gradient", 3.0)  # beyond the bound: not noise
    assert results(of_run(report(lesson("divergent", wider), noise=noise))) == {
        "dpo/gradient": "failure divergent"
    }


def checked(fault: str = "", *comparisons: Comparison) -> CheckReport:
    return CheckReport(
        verdict="divergent",
        target="mylib.losses:loss",
        objective="dpo",
        framework="torch",
        signature="",
        matched={},
        convention=Convention(),
        fault=fault,
        lessons=[lesson("divergent", *comparisons)] if comparisons else [],
    )


def test_functions_and_pairs_have_cases_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = AgainstReport(
        verdict="divergent",
        sentence="parts",
        left="a.py:f",
        right="b.py:f",
        frameworks=["torch", "jax"],
        signatures=["", ""],
        points=1,
        differentiated=[],
        comparisons=[compared("value", 3.0)],
    )
    (tmp_path / "mylib").mkdir()
    (tmp_path / "mylib/losses.py").write_text("import math\n\n\ndef loss():\n    pass\n")
    reports = [checked("raised ValueError"), checked("", compared("dpo/loss", 3.0)), pair]
    cases = of_each(reports, tmp_path)
    assert [(case.suite, case.name, case.verdict) for case in cases] == [
        ("mylib.losses:loss", "call", "divergent"),
        ("mylib.losses:loss (float32)", "dpo/loss", "divergent"),
        ("a.py:f against b.py:f", "value", "divergent"),
    ]
    parsed(cases)
    noted = of_each([msgspec.structs.replace(pair, notes=["one", "two"])], tmp_path)
    assert noted[-1][:4] == ("a.py:f against b.py:f", "notes", "match", "one; two")
    assert annotations(noted, "")[1].endswith("b.py%3Af%3A notes::one; two")
    # An annotation points at the function from the workspace, where its file is in there.
    for workspace, place in ((tmp_path, "mylib/losses.py"), (tmp_path / "mylib", "losses.py")):
        monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace))
        first, _, third, last = annotations(cases, "divergent: 0 of 3")
        title = "mylib.losses%3Aloss%3A call"
        assert first == f"::error title={title},file={place},line=4::raised ValueError"
        assert third.startswith("::error title=a.py%3Af against b.py%3Af%3A value::value[1] (step)")
        assert last == "::error title=parity::divergent: 0 of 3"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    assert annotations(cases, "")[0] == f"::error title={title}::raised ValueError"
    # Two targets of one function are told apart by their names.
    one, two = (msgspec.structs.replace(reports[1], name=name) for name in ("one", "two"))
    assert [case.suite for case in of_each([one, two], tmp_path)] == [
        "one (float32)",
        "two (float32)",
    ]


def test_faults_have_a_case_in_each_framework() -> None:
    known = next(known for known in catalogue() if not known.fault.equivalent)
    missed = Outcome(known, "jax", lesson("match", compared("dpo/loss", 1.0)), ())
    (case,) = of_faults([missed])
    assert (case.suite, case.name, case.verdict) == ("faults in jax", known.fault.name, "divergent")
    assert known.fault.first in case.message
    honest = known._replace(fault=Fault("same", "", "", "", equivalent=True))
    (case,) = of_faults([missed._replace(known=honest)])
    assert (case.verdict, case.message) == ("match", "")


HOSTILE = "\x1b[31m\x00 <b>&\"' ]]> % ::error::x\r\n, :é\ud800"


def test_no_text_breaks_a_format() -> None:
    cases = [Case(HOSTILE, HOSTILE, "divergent", HOSTILE), Case("s", "n", "noisy", HOSTILE)]
    root = parsed(cases)
    assert len(root) == 2
    for line in annotations(cases, HOSTILE):
        assert len(line.splitlines()) == 1
        assert line.startswith("::error title=")
        title = line.removeprefix("::error title=").partition("::")[0]
        assert not {":", ","} & set(title)
    table = summary(cases, HOSTILE)
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 2 + 2 + 2  # two tables, each with a head of two lines
    assert not any("<b>" in line.replace("\\<", "") for line in rows)


def test_github_shows_ten_lines_and_counts_the_rest() -> None:
    cases = [Case("s", f"q{n}", "noisy", "m") for n in range(30)]
    cases.append(Case("s", "worst", "divergent", "m"))
    lines = annotations(cases, "divergent: closing")
    assert len(lines) == 10
    assert "worst" in lines[0]
    assert lines[-1] == "::error title=parity::divergent: closing (22 more quantities are no match)"
    assert summary(cases, "").count("| noisy |") == 30
