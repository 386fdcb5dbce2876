"""Recorded figures: the documents of runs that matched, and the drawing of them.

`parity.figures.record.record` makes a document; it is not exported here, where its module has
that name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.figures.agreement import draw_curves, draw_distances, render_agreement
    from parity.figures.check import compare, recorded, redraw
    from parity.figures.clipping import draw_counts, draw_surrogate, render_clipping
    from parity.figures.diagram import Diagram, GraphPanel, TablePanel
    from parity.figures.document import Record, encode, load
    from parity.figures.draw import draw_bar, draw_line, render
    from parity.figures.faults import draw_faults, render_faults
    from parity.figures.gallery import drawings
    from parity.figures.margins import draw_margins, render_margins
    from parity.figures.mechanism import draw_graph, render_mechanism
    from parity.figures.panels import BarPanel, LinePanel, panel_allowances
    from parity.figures.record import generated_at
    from parity.figures.style import renderer_hash
    from parity.figures.table import draw_table

__all__ = [
    "BarPanel",
    "Diagram",
    "GraphPanel",
    "LinePanel",
    "Record",
    "TablePanel",
    "compare",
    "draw_bar",
    "draw_counts",
    "draw_curves",
    "draw_distances",
    "draw_faults",
    "draw_graph",
    "draw_line",
    "draw_margins",
    "draw_surrogate",
    "draw_table",
    "drawings",
    "encode",
    "generated_at",
    "load",
    "panel_allowances",
    "recorded",
    "redraw",
    "render",
    "render_agreement",
    "render_clipping",
    "render_faults",
    "render_margins",
    "render_mechanism",
    "renderer_hash",
]

_HOMES = {
    "agreement": ("draw_curves", "draw_distances", "render_agreement"),
    "check": ("compare", "recorded", "redraw"),
    "clipping": ("draw_counts", "draw_surrogate", "render_clipping"),
    "diagram": ("Diagram", "GraphPanel", "TablePanel"),
    "document": ("Record", "encode", "load"),
    "draw": ("draw_bar", "draw_line", "render"),
    "faults": ("draw_faults", "render_faults"),
    "gallery": ("drawings",),
    "margins": ("draw_margins", "render_margins"),
    "mechanism": ("draw_graph", "render_mechanism"),
    "panels": ("BarPanel", "LinePanel", "panel_allowances"),
    "record": ("generated_at",),
    "style": ("renderer_hash",),
    "table": ("draw_table",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
