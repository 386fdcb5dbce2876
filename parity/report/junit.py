"""Cases as JUnit XML."""

import io
from collections.abc import Sequence

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from parity.report.cases import Case

__all__ = ["junit"]


def junit(cases: Sequence[Case]) -> str:
    """A document with one suite a lesson or function and one test case a quantity.

    Divergent and noisy are failures, inconclusive is an error; nothing judged is an error too.

    Args:
        cases: what was judged.
    """
    document = JUnitXml("parity")
    judged = cases or [Case("parity", "run", "inconclusive", "nothing was judged")]
    for name in dict.fromkeys(case.suite for case in judged):
        suite = TestSuite(_text(name))
        for case in judged:
            if case.suite == name:
                suite.add_testcase(_testcase(case))
        document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]  # it has no annotations
    written = io.BytesIO()
    document.write(written, pretty=True)
    return written.getvalue().decode()


def _testcase(case: Case) -> TestCase:
    test = TestCase(_text(case.name), classname=_text(case.suite), time=0.0)
    message = _text(case.message)
    if case.verdict == "inconclusive":
        test.result = [Error(message, "inconclusive")]
    elif case.verdict != "match":
        test.result = [Failure(message, case.verdict)]
    elif message:
        test.system_out = message
    return test


def _text(text: str) -> str:
    """What XML 1.0 can hold: no control characters."""
    return "".join(c if c.isprintable() else " " for c in text)
