"""The plot of the study: how margins and smallest faults move with size, and what others see."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parity.figures.canvas import paint, place
from parity.figures.style import COLOURS, INK, MUTED

__all__ = ["draw"]

Found = dict[str, Any]

WIDTH, HEIGHT = 6.4, 6.1  # inches
_SMALL = 8
_RULES = {
    "parity": "ours",
    "torch.testing.assert_close": "assert_close",
    "chex.assert_trees_all_close": "chex",
    "numpy.testing.assert_allclose": "numpy",
    "polygraphy CompareFunc.simple": "Polygraphy",
}


def _shapes(found: Found, objective: str, dtype: str = "float32") -> list[Found]:
    return [
        row for row in found["shapes"] if (row["objective"], row["dtype"]) == (objective, dtype)
    ]


def _largest(rows: list[Found], value: Callable[[Found], float]) -> tuple[list[int], list[float]]:
    """Sizes, and the largest value over everything else of that size."""
    sizes = sorted({row["samples"] for row in rows})
    return sizes, [max(value(row) for row in rows if row["samples"] == n) for n in sizes]


def _framed(axes: Axes, title: str, samples: list[int]) -> Axes:
    axes.set_title(title, pad=8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(samples, [str(n) for n in samples])
    axes.minorticks_off()
    axes.set_xlabel("samples")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    return axes


def _scientific(value: float, _: int) -> str:
    return f"{value:.0e}".replace("e-0", "e-").replace("-", "\N{MINUS SIGN}")


def _legend(axes: Axes, ncols: int) -> None:
    """On white: the grid must not cross its words."""
    legend = axes.legend(
        loc="upper left",
        ncols=ncols,
        columnspacing=1.0,
        handlelength=1.4,
        frameon=True,
        framealpha=1.0,
        edgecolor="none",
        borderpad=0.2,
    )
    legend.set_zorder(1.5)  # above the grid, below the curves


def _faults(axes: Axes, found: Found) -> Axes:
    """Ours, and assert_close on the same gradients, by number of actions."""
    rows = _shapes(found, "ppo")
    samples = sorted({row["samples"] for row in rows})
    for colour, actions in zip(COLOURS, sorted({row["actions"] for row in rows}), strict=False):
        mine = sorted((r for r in rows if r["actions"] == actions), key=lambda r: r["samples"])
        at = [row["samples"] for row in mine]
        ours = [row["faults"]["median"] for row in mine]
        theirs = [row["assert_close"]["median"] for row in mine]
        axes.plot(at, ours, color=colour, marker="o", markersize=4, label=f"{actions} actions")
        axes.plot(at, theirs, color=colour, linestyle=(0, (3, 2)), linewidth=1.2)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 12)  # room for the legend
    axes.yaxis.set_major_formatter(_scientific)
    _legend(axes, ncols=2)
    axes.minorticks_off()
    return _framed(axes, "Least gradient fault caught (PPO)", samples)


def _ratios(axes: Axes, found: Found) -> Axes:
    """The largest deviation over the allowance, of any quantity."""
    for colour, backend, name in zip(COLOURS, ("jax", "torch"), ("JAX", "PyTorch"), strict=False):
        for dtype, line in (("float32", "-"), ("float64", (0, (3, 2)))):
            rows = [row for row in found["shapes"] if row["dtype"] == dtype]
            sizes, values = _largest(rows, lambda row, b=backend: row["any"][b])
            label = f"{name}, {dtype[5:]} bits"
            axes.plot(sizes, values, color=colour, linestyle=line, label=label)
    axes.axhline(1, color=INK, linewidth=1)
    axes.set_yscale("log", base=2)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 6)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _legend(axes, ncols=2)
    return _framed(axes, "Largest deviation / allowance", sizes)


def _chained(axes: Axes, found: Found) -> Axes:
    """Compiled JAX over what the replicas alone allow, with and without those that chain."""
    rows = _shapes(found, "ppo")
    for colour, key, label in zip(
        COLOURS, ("replicas", "bare"), ("half of them chain", "none chains"), strict=False
    ):
        sizes, values = _largest(rows, lambda row, k=key: row[k]["jax"])
        axes.plot(sizes, values, color=colour, marker="o", markersize=4, label=label)
    axes.axhline(1, color=INK, linewidth=1)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [tick for tick in (0.3, 1, 3, 10, 30, 100, 300) if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(low, high * 3)
    _legend(axes, ncols=1)
    axes.minorticks_off()
    return _framed(axes, "PPO gradient: JAX / what replicas allow", sizes)


def _others(axes: Axes, found: Found) -> Axes:
    """The recorded lessons: each rule as it is, and loosened until it raises no false alarm."""
    rules = found["side_by_side"]["lessons"]["rules"]
    for row, name in enumerate(_RULES):
        rule = rules[name]
        default = rule["default"]["median"]
        loosened = rule.get("loosened", {}).get("median")
        if rule["false_alarms"]:
            if loosened:
                axes.plot([default, loosened], [row, row], color=MUTED, linewidth=1)
            axes.plot(default, row, "o", color="white", markeredgecolor=COLOURS[1], markersize=6)
        else:
            loosened = default
        if loosened:
            axes.plot(loosened, row, "o", color=COLOURS[0], markersize=6)
    axes.set_yticks(range(len(_RULES)), list(_RULES.values()))
    axes.set_ylim(len(_RULES) - 0.5, -0.6)
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(_scientific)
    axes.set_xlabel("least fault caught, median")
    axes.set_title("Recorded lessons", pad=8)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    return axes


def _figure(found: Found) -> Figure:
    figure = Figure(figsize=(WIDTH, HEIGHT))
    wide, high = 2.45, 1.75
    _faults(place(figure, 0.6, 0.35, wide, high), found)
    _ratios(place(figure, 3.75, 0.35, wide, high), found)
    _chained(place(figure, 0.6, 2.95, wide, high), found)
    _others(place(figure, 4.5, 2.95, wide - 0.75, high), found)
    for line, text in enumerate(_notes(found)):
        figure.text(0.1 / WIDTH, (0.62 - 0.16 * line) / HEIGHT, text, fontsize=_SMALL, color=MUTED)
    return figure


def _notes(found: Found) -> Iterator[str]:
    yield "Upper left: dashed, torch.testing.assert_close on the same gradients. Upper right: all"
    yield "quantities, random data; 1 is the limit. Lower left: 3 is the limit. Lower right: open,"
    yield "at default settings, with false alarms; filled, with none, loosened if need be."
    yield f"{found['date']}, jax {found['versions']['jax']}, torch {found['versions']['torch']}"


def draw(found: Found, image: Literal["svg", "png"]) -> bytes:
    """Draws what the study found, as SVG, or as PNG to look at."""
    return paint(
        lambda: _figure(found), image, "The noise model against random problems", _notes(found)
    )
