"""Drawing: the same bytes, accessible text, labels that never overlap; the package's imports."""

import subprocess
import sys
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import matplotlib
import msgspec
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import parity.figures.style
from helpers_figures import BANDIT, PAIRS, REWARD, make_record
from parity.figures.draw import draw_bar, draw_line, render
from parity.figures.panels import BarPanel, LinePanel, LineSeries, Series
from parity.problem import Problem

# --- drawing ----------------------------------------------------------------------------------


def test_same_record_same_bytes_whatever_the_users_settings() -> None:
    document = make_record(BANDIT)
    svg, png = render(document), render(document, "png")
    hostile = {"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red", "figure.dpi": 50}
    with matplotlib.rc_context({**hostile, "text.usetex": True, "axes.unicode_minus": False}):
        settings = dict(matplotlib.rcParams)
        assert render(document) == svg
        assert render(document, "png") == png
        assert dict(matplotlib.rcParams) == settings
    assert png.startswith(b"\x89PNG")


def test_svg_is_accessible_text_without_a_date() -> None:
    document = msgspec.structs.replace(make_record(PAIRS), lesson_id="<a> & $b$")
    svg = render(document).decode()
    root = ElementTree.fromstring(svg)
    namespace = "{http://www.w3.org/2000/svg}"
    title, description = list(root)[:2]
    assert (title.tag, title.text) == (f"{namespace}title", "<a> & $b$")
    assert description.tag == f"{namespace}desc"
    assert "0 preferred to 1 0.25, 2 preferred to 0 0.5" in (description.text or "")
    words = {text.text for text in root.iter(f"{namespace}text")}
    assert {"<a> & $b$", "DPO loss (nats)", "preference pair", "2 preferred to 0"} <= words
    assert "JAX and PyTorch agree: largest difference 0 · report 1a2b3c4d" in words
    assert "<metadata" not in svg


def make_axes(width: float = 5.5) -> Any:
    figure = Figure(figsize=(width / 0.8, 3))
    FigureCanvasAgg(figure)
    return figure.add_axes((0.1, 0.3, 0.8, 0.5))


def make_bars(*labels: str, rows: int = 1) -> BarPanel:
    y = tuple(1.0 + number for number in range(len(labels)))
    return BarPanel(
        x=tuple(range(len(labels))),
        labels=labels,
        series=tuple(Series(label=f"row {row}", y=y) for row in range(rows)),
        xlabel="x",
        ylabel="y",
        title="t",
    )


def test_drawing_returns_its_axes() -> None:
    line = LinePanel(
        xlabel="x", ylabel="y", series=(LineSeries(label="a", x=(7,), y=(2.0,)),), x=(7,)
    )
    axes: Any = make_axes()
    assert draw_line(axes, line) is axes
    (curve,) = axes.lines
    assert curve.get_marker() == "o"  # one point alone must be seen
    axes.figure.draw_without_rendering()
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [7]


def test_several_series_are_named_and_the_last_has_the_trained_colour() -> None:
    axes: Any = make_axes()
    assert draw_bar(axes, make_bars("a", "b", rows=2)) is axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["row 0", "row 1"]
    colours = [to_hex(patch.get_facecolor()).upper() for patch in axes.patches]
    assert colours == [parity.figures.style.COLOURS[1], parity.figures.style.COLOURS[0]]
    curves = tuple(LineSeries(label=label, x=(0, 1), y=(1.0, 2.0)) for label in "ab")
    axes = make_axes()
    draw_line(axes, LinePanel(xlabel="x", ylabel="y", series=curves, x=(0, 1)))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert axes.lines[-1].get_color() == parity.figures.style.COLOURS[0]


@pytest.mark.parametrize(
    ("labels", "least"),
    [
        ([f"action {number}" for number in range(3)], 3),
        ([f"action {number}" for number in range(12)], 12),
        ([f"action {number}" for number in range(500)], 5),
        ([f"{number} preferred to {number + 1}" for number in range(6)], 6),
        ([f"{number} preferred to {number + 1}" for number in range(40)], 4),
        (["w" * 90, "unbreakable" * 9], 1),
        ([""], 1),
    ],
)
@pytest.mark.parametrize("rows", [1, 2])
def test_names_and_values_of_bars_never_overlap(labels: list[str], least: int, rows: int) -> None:
    axes: Any = draw_bar(make_axes(), make_bars(*labels, rows=rows))
    axes.figure.draw_without_rendering()
    ticks = axes.get_xticklabels()
    assert len(ticks) >= least
    for tick, place in zip(ticks, axes.get_xticks(), strict=True):
        assert tick.get_text().replace("\n", " ") == labels[place]
    for texts in (ticks, sorted(axes.texts, key=lambda text: text.xy[0])):
        boxes = [text.get_window_extent() for text in texts]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("problem", [BANDIT, PAIRS, Problem(name="a" * 90, reward=REWARD)])
def test_nothing_is_clipped(problem: Problem) -> None:
    many = {"dpo/final_margins": [-0.000123, -0.0123], "ppo/expected_reward": [1.0, 1e-4, -3e-4]}
    root = ElementTree.fromstring(render(make_record(problem, many)))
    width, height = (float(side) for side in (root.get("viewBox") or "").split()[2:])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        style = dict(part.split(": ", 1) for part in (text.get("style") or "").split("; "))
        length = 0.64 * float(style["font-size"][:-2]) * len(text.text or "")
        before = {"start": 0.0, "middle": 0.5, "end": 1.0}[style["text-anchor"]] * length
        left = float(text.get("x") or 0) - before
        assert left >= 0, text.text
        assert left + length <= width, text.text
        assert 0 < float(text.get("y") or 0) < height, text.text


# --- the package ------------------------------------------------------------------------------


def test_importing_the_package_loads_neither_numpy_nor_matplotlib() -> None:
    code = (
        "import sys; from parity import figures;"
        "assert not {'numpy', 'matplotlib', 'msgspec'} & sys.modules.keys();"
        "[getattr(figures, name) for name in figures.__all__];"
        "assert 'matplotlib.pyplot' not in sys.modules; import matplotlib"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'pie'"):
        _ = parity.figures.pie


def test_reading_and_checking_numbers_needs_no_matplotlib() -> None:
    code = (
        "import sys; from parity import figures; [figures.compare, figures.load, figures.recorded];"
        "import parity.figures.record; figures.renderer_hash();"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
