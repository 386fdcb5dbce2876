"""Figures as bytes: the house's settings, SVG or PNG, and words for those who cannot see it."""

import io
from collections.abc import Callable, Iterable
from html import escape  # that of xml.sax imports an HTTP client
from typing import Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from parity.figures.style import MUTED, RC, SIZES
from parity.figures.text import width

__all__ = ["STEPS", "Image", "heading", "label", "paint", "place", "shortened"]

Image = Literal["svg", "png"]
STEPS = (1, 2, 2.5, 5, 10)  # from tick to tick


def paint(build: Callable[[], Figure], image: Image, title: str, sentences: Iterable[str]) -> bytes:
    """Builds a figure and writes it.

    The user's own matplotlib settings neither matter nor change. Same figure, same bytes, as long
    as `parity.figures.style.renderer_hash` is the same.

    Args:
        build: makes the figure; called under the house's settings.
        image: svg, or png to look at.
        title: what it is, in a few words.
        sentences: what it shows, without the full stops.

    Returns:
        The file's content.
    """
    defaults = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    with matplotlib.rc_context(defaults | RC):
        figure = build()
        content = io.BytesIO()
        if image == "png":
            from matplotlib.backends.backend_agg import FigureCanvasAgg

            figure.dpi = SIZES["png_dots_per_inch"]
            canvas = FigureCanvasAgg(figure)
            canvas.print_png(content, metadata={"Software": None})  # type: ignore[no-untyped-call]
            return content.getvalue()
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        # not through savefig, which draws everything twice
        nothing = {"Creator": None, "Date": None, "Format": None, "Type": None}
        FigureCanvasSVG(figure).print_svg(content, metadata=nothing)  # type: ignore[no-untyped-call]
    return _describe(content.getvalue().decode(), title, sentences).encode()


def _describe(svg: str, title: str, sentences: Iterable[str]) -> str:
    """Puts title and description behind the root's tag."""
    description = " ".join(f"{sentence.rstrip('.')}." for sentence in sentences)
    name, words = (escape(text, quote=False) for text in (title, description))
    head, root, rest = svg.partition("<svg ")
    attributes, close, body = rest.partition(">")
    return (
        f'{head}{root}role="img" {attributes}{close}\n <title>{name}</title>\n'
        f" <desc>{words}</desc>{body}"
    )


def place(figure: Figure, left: float, top: float, wide: float, high: float) -> Axes:
    """Adds axes by hand, in inches from the upper left corner: a layout engine would draw twice."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + high) / down, wide / across, high / down))


def label(axes: Axes, xlabel: str, ylabel: str) -> Axes:
    """Names both axes, with upright words above the vertical one, and lays out its grid."""
    axes.set_xlabel(xlabel)
    # a turned label of this length would be longer than the axis
    axes.set_ylabel(ylabel, rotation=0, ha="left", va="bottom")
    axes.yaxis.set_label_coords(0.0, 1.04)
    axes.yaxis.get_offset_text().set(x=1.0, ha="right")  # "1e−7+…", out of the label's way
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    return axes


def heading(figure: Figure, name: str, footer: str) -> None:
    """Writes the name at the head of a figure and one small line at its foot."""
    across, down = figure.get_size_inches()
    edge = SIZES["right"] / across
    room = 72 * (across - 2 * SIZES["right"])
    name = shortened(name, room, 11, bold=True)
    figure.text(edge, 1 - 0.26 / down, name, fontsize=11, fontweight="bold")
    figure.text(edge, 0.14 / down, shortened(footer, room, 8), fontsize=8, color=MUTED)


def shortened(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """Returns the text, its end replaced by … where it does not fit into so many points."""
    if width(text, size, bold=bold) <= room:
        return text
    while text and width(f"{text}…", size, bold=bold) > room:
        text = text[:-1]
    return f"{text}…"
