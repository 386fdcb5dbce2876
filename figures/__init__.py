"""Recorded figures: the documents of runs that matched, and the drawing of them.

`figures.record.record` makes a document; it is not exported here, where its module has that name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from figures.check import compare, recorded, redraw
    from figures.document import Record, encode, load
    from figures.draw import draw_bar, draw_line, render
    from figures.panels import BarPanel, LinePanel, panel_allowances
    from figures.record import generated_at
    from figures.style import renderer_hash

__all__ = [
    "BarPanel",
    "LinePanel",
    "Record",
    "compare",
    "draw_bar",
    "draw_line",
    "encode",
    "generated_at",
    "load",
    "panel_allowances",
    "recorded",
    "redraw",
    "render",
    "renderer_hash",
]

_HOMES = {
    "check": ("compare", "recorded", "redraw"),
    "document": ("Record", "encode", "load"),
    "draw": ("draw_bar", "draw_line", "render"),
    "panels": ("BarPanel", "LinePanel", "panel_allowances"),
    "record": ("generated_at",),
    "style": ("renderer_hash",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
