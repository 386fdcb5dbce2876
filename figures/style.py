"""One style for every figure: legible 640 pixels wide and in print, safe for colour-blind readers.

Plain data, without matplotlib: whoever writes a record needs the renderer's hash, not the renderer.
"""

from importlib.metadata import version
from typing import Any

from parity.figures.diagram import Tone
from parity.files import digest

__all__ = [
    "BAND",
    "COLOURS",
    "INK",
    "MUTED",
    "NAMES",
    "RC",
    "SIZES",
    "SKETCHES",
    "TONES",
    "renderer_hash",
]

_RENDERER_VERSION = 2  # raised with every change that moves a byte of a record's drawings

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7")
"""Okabe and Ito 2008; the first two also differ in lightness, which grey print needs."""

INK = "#222222"
MUTED = "#5F5F5F"  # 6.4 : 1 on white

NAMES = {"jax": "JAX", "torch": "PyTorch"}
"""How implementations are called where people read."""

SKETCHES: tuple[dict[str, Any], ...] = (
    {"color": COLOURS[0], "linestyle": "-", "linewidth": 1.8},
    {"color": COLOURS[3], "linestyle": (0, (3, 1.5)), "linewidth": 1.8},
    {"color": COLOURS[2], "linestyle": (0, (1, 1)), "linewidth": 1.8},
)
"""Lines of implementations, in the order of their traces: by colour and by dashes."""

BAND: dict[str, Any] = {"color": "#E4E4E4", "linewidth": 0}
"""What lies within the allowance."""

TONES: dict[Tone, dict[str, Any]] = {
    "data": {
        **{"face": "#FFFFFF", "edge": MUTED, "line": "-", "weight": 1.0, "inner": 0.0},
        **{"stripe": "#F4F4F4", "meaning": "given or computed"},
    },
    "state": {
        **{"face": "#D9ECF7", "edge": COLOURS[0], "line": "-", "weight": 2.6, "inner": 0.0},
        "meaning": "changes in training",
    },
    "fixed": {
        **{"face": "#FDEBC8", "edge": "#8F5B00", "line": (0, (4, 2)), "weight": 1.4, "inner": 0.0},
        "meaning": "never changes",
    },
    "result": {
        **{"face": "#D5EFE6", "edge": "#00664B", "line": "-", "weight": 1.0, "inner": 2.5},
        "meaning": "is minimised",
    },
}
"""Boxes of diagrams: by colour and by outline (thin, thick, dashed, double), for grey print."""

SIZES = {
    "width": 6.4,
    "left": 0.66,
    "right": 0.22,
    "header": 0.36,
    "footer": 0.3,
    "above_line": 0.36,
    "above_bar": 0.58,
    "axes": 1.5,
    "below": 0.56,
    "png_dots_per_inch": 200,
}
"""Inches, except for the last; 6.4 inches shown 640 pixels wide put 9 points at 12.5 pixels."""

RC: dict[str, object] = {
    "axes.edgecolor": MUTED,
    "axes.formatter.limits": (-3, 5),  # beyond: a power of ten apart, for tick labels that fit
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titley": 1.0,  # a fixed place spares a measuring pass
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",  # text stays text: searchable, selectable, read aloud
    "svg.hashsalt": "parity",  # ids would be random without one
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign is a dollar sign
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8,
}
"""What differs from matplotlib's own defaults; the user's settings play no part."""


def renderer_hash() -> str:
    """Returns the SHA-256 of all that decides how a record looks.

    That is the renderer's version, this style and the version of matplotlib, as canonical JSON.
    """
    colours = {"colours": COLOURS, "ink": INK, "muted": MUTED, "tones": TONES}
    style = {"rc": RC, "sizes": SIZES, **colours}
    return digest(
        {
            "renderer": _RENDERER_VERSION,
            "style": style,
            "matplotlib": version("matplotlib"),
        }
    )
