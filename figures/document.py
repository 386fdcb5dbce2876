"""The recorded document as it stands on disk, and the reading of it."""

import json
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from parity.errors import InputError
from parity.figures import diagram as diagrams
from parity.figures.diagram import Diagram
from parity.figures.panels import LinePanel, Panel
from parity.files import digest, read_bytes
from parity.validation import explain

__all__ = [
    "Agreement",
    "Data",
    "Environment",
    "PanelAgreement",
    "Record",
    "content_hash",
    "encode",
    "load",
]

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Time = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$")]


class _Struct(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"
):
    """Immutable; camelCase on disk."""


class Environment(_Struct, frozen=True):
    """What computed and what drew."""

    backend: str
    device_count: int
    jax: str
    torch: str
    numpy: str
    matplotlib: str


class PanelAgreement(_Struct, frozen=True):
    """Largest absolute difference of the other implementation over one panel's values."""

    largest_difference: Annotated[float, Meta(ge=0)]


class Agreement(_Struct, frozen=True):
    """The verdict without which there is no figure.

    Attributes:
        verdict: always match.
        report_digest: digest of the report that gave it.
        reference: the implementation whose values are shown.
        other: the implementation that was compared with it.
        panels: how far they are apart, one entry per panel of the data.
    """

    verdict: Annotated[str, Meta(pattern="^match$")]
    report_digest: Digest
    reference: str
    other: str
    panels: tuple[PanelAgreement, ...]


class Data(_Struct, frozen=True):
    """What is drawn."""

    panels: Annotated[tuple[Panel, ...], Meta(min_length=1)]


class Record(_Struct, frozen=True, omit_defaults=True):
    """One recorded document.

    Attributes:
        schema_version: of this document.
        lesson_id: name of the problem.
        content_hash: see `content_hash`.
        renderer_hash: see `parity.figures.style.renderer_hash`.
        kind: executed: the numbers come from a run.
        generated_at: ISO 8601, UTC.
        provenance: how the numbers came about.
        environment: versions.
        stdout: the outcome in one or two lines.
        data: the panels.
        parity: the verdict, and how far the implementations are apart.
        diagram: the mechanism's diagram; left out where there is none.
    """

    schema_version: Annotated[int, Meta(ge=1, le=1)]
    lesson_id: str
    content_hash: Digest
    renderer_hash: Digest
    kind: Annotated[str, Meta(pattern="^executed$")]
    generated_at: Time
    provenance: Annotated[str, Meta(pattern="^recorded_cpu_computation$")]
    environment: Environment
    stdout: str
    data: Data
    parity: Agreement
    diagram: Diagram | None = None


def content_hash(data: Data, diagram: Diagram | None) -> str:
    """Returns the SHA-256 of `{"data": …, "diagram": …}` as canonical JSON (null: no diagram)."""
    return digest({"data": data, "diagram": diagram})


def encode(document: Record) -> bytes:
    """Returns the document as it stands on disk: indented, a number a line, one final newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def load(path: Path) -> Record:
    """Reads a recorded document and checks that it is whole.

    Raises:
        InputError: one line that names file, field, value and expectation.
    """
    content = read_bytes(path)
    try:
        raw = json.loads(content)
        document = msgspec.json.decode(content, type=Record)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {explain(error, raw, choices=_CHOICES)}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    for field, value, expectation in _misfits(document):
        raise InputError(f"{path}: {field}: got {reprlib.repr(value)}; expected {expectation}")
    return document


_CHOICES = {
    "data": "line or bar",
    "panel": "table or graph",
    "nodes": "data, state, fixed or result",
}
"""What may stand in the field to choose from that is nearest to one of these names."""


def _misfits(document: Record) -> Iterator[tuple[str, Any, str]]:
    """Yields what the types alone cannot say: lengths that fit, and unedited contents."""
    for number, panel in enumerate(document.data.panels):
        at, length = f"data.panels[{number}]", len(panel.x)
        for position, series in enumerate(panel.series):
            if len(series.y) != length:
                yield f"{at}.series[{position}].y", len(series.y), f"{length} values, as in x"
        if isinstance(panel, LinePanel):
            for position, series in enumerate(panel.series):
                if series.x != panel.x:
                    yield f"{at}.series[{position}].x", series.x, "the panel's own x"
        elif len(panel.labels) != length:
            yield f"{at}.labels", len(panel.labels), f"{length} labels, as in x"
    if len(document.parity.panels) != len(document.data.panels):
        expectation = f"{len(document.data.panels)} entries, one per panel of the data"
        yield "parity.panels", len(document.parity.panels), expectation
    if document.diagram:
        for field, value, expectation in diagrams.misfits(document.diagram):
            yield f"diagram.{field}", value, expectation
    found = content_hash(document.data, document.diagram)
    if document.content_hash != found:
        yield "contentHash", document.content_hash, f"{found} for this data and diagram"
