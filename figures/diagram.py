"""Diagrams of the mechanism: tables, and graphs of nodes and edges, as a document holds them."""

from collections.abc import Iterator
from itertools import combinations
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

__all__ = ["Diagram", "Edge", "GraphPanel", "Node", "TablePanel", "Tone", "misfits"]

Tone = Literal["data", "state", "fixed", "result"]
Positive = Annotated[float, Meta(gt=0)]
Words = Annotated[str, Meta(min_length=1)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Immutable; no fields but its own."""


class TablePanel(_Part, frozen=True, tag_field="kind", tag="table"):
    """Rows of words under headers."""

    headers: Annotated[tuple[Words, ...], Meta(min_length=1)]
    rows: Annotated[tuple[tuple[Words, ...], ...], Meta(min_length=1)]


class Node(_Part, frozen=True):
    """A box.

    Attributes:
        id: by which edges name it.
        x: of its middle, in the panel's units, from the left.
        y: of its middle, from above.
        label: what stands in it; a line break is kept.
        tone: data: computed or given; state: what training changes; fixed: what it does not;
            result: what is minimised.
        w: its width.
        h: its height.
    """

    id: Words
    x: float
    y: float
    label: Words
    tone: Tone
    w: Positive
    h: Positive


class Edge(_Part, frozen=True):
    """An arrow from one node to another."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")


class GraphPanel(_Part, frozen=True, tag_field="kind", tag="graph"):
    """Boxes and arrows in an area of the given size."""

    nodes: Annotated[tuple[Node, ...], Meta(min_length=1)]
    edges: tuple[Edge, ...]
    height: Positive
    width: Positive


class Diagram(_Part, frozen=True):
    """One diagram and the words around it.

    Attributes:
        title: what it claims.
        prediction: a question to answer before looking.
        reading: what it says.
        alt: the same for who cannot see it.
        scope: what kind of picture it is.
        height: of the picture, in inches at a width of 6.4; more where the words need more.
        panel: what is drawn.
    """

    title: Words
    prediction: Words
    reading: Words
    alt: Words
    scope: Words
    height: Annotated[float, Meta(gt=0, le=40)]
    panel: TablePanel | GraphPanel


def misfits(diagram: Diagram) -> Iterator[tuple[str, Any, str]]:
    """Yields what the types alone cannot say, as field, value and expectation."""
    panel = diagram.panel
    if isinstance(panel, TablePanel):
        for number, row in enumerate(panel.rows):
            if len(row) != len(panel.headers):
                yield f"panel.rows[{number}]", len(row), f"{len(panel.headers)} cells, as headers"
        return
    ids = [node.id for node in panel.nodes]
    for number, node in enumerate(panel.nodes):
        at = f"panel.nodes[{number}]"
        if ids.index(node.id) != number:
            yield f"{at}.id", node.id, "another id for every node"
        for axis, middle, size, length in (
            ("x", node.x, node.w, panel.width),
            ("y", node.y, node.h, panel.height),
        ):
            if not size / 2 <= middle <= length - size / 2:
                yield f"{at}.{axis}", middle, f"the box within 0 … {length:g}"
    for (_, left), (number, right) in combinations(enumerate(panel.nodes), 2):
        apart = (abs(left.x - right.x), abs(left.y - right.y))
        if apart[0] < (left.w + right.w) / 2 and apart[1] < (left.h + right.h) / 2:
            yield f"panel.nodes[{number}]", right.id, f"a box that does not cover {left.id}"
    for number, edge in enumerate(panel.edges):
        for end, name in (("from", edge.source), ("to", edge.target)):
            if name not in ids:
                yield f"panel.edges[{number}].{end}", name, f"one of {', '.join(ids)}"
        if edge.source == edge.target:
            yield f"panel.edges[{number}].to", edge.target, "another node than it comes from"
