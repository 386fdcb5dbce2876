"""The report: its schema, and what it sums up to."""

from parity.report.schema import SCHEMA_VERSION, AllowedNoise, Diagnosis, LessonReport, Report
from parity.report.summary import Totals, totals

__all__ = [
    "SCHEMA_VERSION",
    "AllowedNoise",
    "Diagnosis",
    "LessonReport",
    "Report",
    "Totals",
    "totals",
]
