"""Room for words: how wide they are, and where they break."""

from functools import cache
from typing import Any

from matplotlib.font_manager import FontProperties, findfont, get_font

__all__ = ["few_digits", "width", "wrap"]


@cache
def _advance(character: str, bold: bool) -> float:
    """Width of a character of DejaVu Sans, which comes with matplotlib, in font sizes."""
    weight = "bold" if bold else "normal"
    font: Any = get_font(findfont(FontProperties(family="DejaVu Sans", weight=weight)))
    font.set_size(1000, 72)  # each time: matplotlib shares the font and sizes it for itself
    advance: float = font.load_char(ord(character)).linearHoriAdvance
    return advance / 65536 / 1000  # it counts 1/65536 of a point


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Returns how wide one line of text is, in points.

    Args:
        text: what is written.
        size: of the font, in points.
        bold: whether it is bold.
    """
    return size * sum(_advance(character, bold) for character in text)


def wrap(text: str, room: float, size: float, *, bold: bool = False) -> list[str]:
    """Breaks text into lines that fit: at its own line breaks, at spaces, else within a word.

    Args:
        text: what is written.
        room: width of a line, in points.
        size: of the font, in points.
        bold: whether it is bold.
    """
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if width(longer, size, bold=bold) <= room:
                line = longer
                continue
            if line:
                lines.append(line)
            line = word
            while width(line, size, bold=bold) > room and len(line) > 1:
                fits = max(
                    (n for n in range(1, len(line)) if width(line[:n], size, bold=bold) <= room),
                    default=1,
                )
                lines.append(line[:fits])
                line = line[fits:]
        lines.append(line)
    return lines


def few_digits(value: float, digits: int = 3) -> str:
    """Returns a number in few digits, with a minus sign that is one."""
    return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}")
