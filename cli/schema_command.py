"""`parity schema`."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Document", "schema"]


class Document(StrEnum):
    """What has a schema."""

    REPORT = "report"
    TRACE = "trace"
    PROBLEM = "problem"


def schema(
    document: Annotated[Document, typer.Argument(help="Which document's schema.")],
) -> int:
    """Print the JSON Schema of a document: the report, a trace file's header, or a problem."""
    import msgspec

    from parity.problem import Problem
    from parity.report import Report
    from parity.trace import TraceHeader

    types = {
        Document.REPORT: Report,
        Document.TRACE: TraceHeader,
        Document.PROBLEM: Problem,
    }
    text = msgspec.json.format(msgspec.json.encode(msgspec.json.schema(types[document])), indent=2)
    sys.stdout.write(text.decode() + "\n")
    return 0
