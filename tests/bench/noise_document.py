"""The tables of docs/noise.md and the plot beside it, from the numbers in docs/noise.json.

    python tests/bench/noise_document.py [FILE.json]

Tables stand between `<!-- begin NAME -->` and `<!-- end NAME -->`; what is around them is prose.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import noise_plot

from parity.files import write_whole

__all__ = ["as_power", "as_table", "fill", "tables", "write"]

Found = dict[str, Any]

BACKENDS, DTYPES = ("jax", "torch"), ("float32", "float64")
NAMES = {"jax": "JAX", "torch": "PyTorch", "both": "both"}
MODES, OBJECTIVES = ("points", "step", "trajectory"), ("reward", "ppo", "dpo", "reinforce")
SIDES = {"jax oracle": "JAX", "torch oracle": "PyTorch", "jax torch": "one another"}
SPELLINGS = ("logits[a] - logsumexp(logits)", "log_softmax of logits repeated to (N, K)")


def as_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown; the first column stands left, the others right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def as_power(value: float | None) -> str:
    """Two digits and a power of ten."""
    return "-" if value is None else re.sub(r"e([+-])0", r"e\1", f"{value:.1e}")


def _times(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2g} x" if value < 100 else f"{value:.0f} x"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 1000 else as_power(value)


def _data(row: Found) -> str:
    return row["data"] if row["data"] in ("random", "lessons") else "hard"


def _summary(found: Found) -> str:
    machine, problems = found["machine"], found["problems"]
    total = {d: sum(n for name, n in problems.items() if name.endswith(d)) for d in DTYPES}
    entries = sum(row["entries"] for row in found["margins"])
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return (
        f"    {found['command']}\n\n"
        f"{found['date']}, {found['seconds']} s ({found['cpu_seconds']} s of CPU time), "
        f"seed {found['seed']}. {machine['processor']}, {machine['cores']} cores, "
        f"Python {machine['python']}, {versions}; noise model {found['model'][:12]}. "
        f"{total['float32']:,} problems in float32 and {total['float64']:,} in float64; "
        f"{entries:,} entries compared."
    )


def _alarms(found: Found) -> str:
    """False alarms: all of these programs are right."""
    rows = []
    for name, count in found["problems"].items():
        what, dtype = name.split(", ")
        data, kind = what.split()
        mine = [
            row
            for row in found["margins"]
            if (_data(row), row["dtype"], row["mode"] == "points")
            == (data, dtype, kind == "points")
        ]
        totals = {
            key: sum(row.get(key, 0) for row in mine)
            for key in ("comparisons", "noisy", "divergent", "inconclusive")
        }
        largest = max(row["largest"] for row in mine)
        cells = [f"{n:,}" for n in (count, found["alarmed"][name], *totals.values())]
        rows.append([what, dtype, *cells, _ratio(largest)])
    head = ["data", "dtype", "problems", "alarmed", "comparisons", "noisy", "divergent"]
    held = ", ".join(f"{n:,} {verdict}" for verdict, n in found["invariants"].items())
    table = as_table([*head, "inconclusive", "largest ratio"], rows)
    return f"{table}\n\nInvariants of the runs, both dtypes: {held}."


def _margins(found: Found) -> str:
    """Largest difference over allowance, by mode, objective and class of quantity."""
    cells: dict[tuple[int, int, str], dict[tuple[str, str], float]] = {}
    for row in found["margins"]:
        if _data(row) != "hard":
            key = (MODES.index(row["mode"]), OBJECTIVES.index(row["objective"]), row["kind"])
            at = cells.setdefault(key, {})
            side = (row["dtype"], row["sides"])
            at[side] = max(at.get(side, 0.0), row["largest"])
    columns = [(dtype, sides) for dtype in DTYPES for sides in SIDES]
    rows = [
        [f"{MODES[m]}, {OBJECTIVES[o]}, {kind}", *(_ratio(at.get(column)) for column in columns)]
        for (m, o, kind), at in sorted(cells.items())
        if any(at.values())
    ]
    head = [f"{SIDES[sides]}, {dtype[5:]} bits" for dtype, sides in columns]
    return as_table(["mode, objective, class", *head], rows)


def _hard(found: Found) -> str:
    """Largest difference over allowance on hard data, with the verdict where it is no match."""
    cells: dict[str, dict[tuple[str, str], str]] = {}
    columns = [(dtype, backend) for dtype in DTYPES for backend in BACKENDS]
    for row in (r for r in found["margins"] if _data(r) == "hard"):
        backend, _, right = row["sides"].partition(" ")
        if right == "oracle":
            at = cells.setdefault(row["data"], {}).setdefault((row["dtype"], backend), [0.0, 0])
            verdict = 2 if row.get("divergent") else 1 if row.get("noisy") else 0
            at[:] = max(at[0], row["largest"]), max(at[1], verdict)
    words = ("", " noisy", " divergent")
    rows = [
        [name, *(_ratio(at[column][0]) + words[at[column][1]] for column in columns)]
        for name, at in cells.items()
    ]
    head = [f"{NAMES[backend]}, {dtype[5:]} bits" for dtype, backend in columns]
    return as_table(["objective: data", *head], rows)


def _lessons(found: Found) -> str:
    rows = [
        [
            f"{row['lesson']}, {row['quantity']}, {NAMES[row['framework']]}",
            row["count"],
            *(as_power(row[key]) for key in ("min", "median", "p95", "max")),
        ]
        for row in found["lesson_faults"]
    ]
    return as_table(("gradient of", "updates", "least", "median", "95 %", "largest"), rows)


def _sizes(found: Found) -> str:
    samples = sorted({n for _, n in found["lattice"]})
    cells = {
        (row["objective"], row["actions"], row["samples"]): row["faults"]
        for row in found["shapes"]
        if row["dtype"] == "float32"
    }
    rows = []
    for objective in OBJECTIVES:
        for actions in dict.fromkeys(k for o, k, _ in cells if o == objective):
            mine = [cells.get((objective, actions, n), {}) for n in samples]
            pairs = [f"{as_power(c.get('median'))} / {as_power(c.get('p95'))}" for c in mine]
            rows.append([f"{objective}, K = {actions}", *pairs])
    return as_table(["median / 95 %", *(f"N = {n}" for n in samples)], rows)


def _rules(found: Found, data: str) -> str:
    part = found["side_by_side"][data]
    rows = []
    for name, rule in part["rules"].items():
        ours = name == "parity"
        rows.append(
            [
                "ours" if ours else f"`{name}`",
                f"{rule['false_alarms'] / part['gradients']:.1%}",
                *(as_power(rule["default"][key]) for key in ("median", "p95")),
                _times(rule.get("blunter", {}).get("median")),
                "-" if ours else f"{rule['ten_times']:.1%}",
                "-" if ours else _times(rule["needed"]) if "needed" in rule else "none suffices",
                as_power(rule.get("loosened", {}).get("median")),
                _times(rule.get("blunter_loosened", {}).get("median")),
            ]
        )
    head = [
        f"{part['gradients']:,} gradients",
        "false alarms",
        *("least fault, median", "95 %", "blunter than ours, median", "at least 10 x"),
        *("loosened by", "least fault then, median", "blunter then, median"),
    ]
    return as_table(head, rows)


def _chaining(found: Found) -> str:
    rows = [
        [
            f"{row['objective']}, K = {row['actions']}, N = {row['samples']}",
            *(f"{row['replicas'][backend]:.2f}" for backend in BACKENDS),
            *(f"{row['bare'][backend]:.2f}" for backend in BACKENDS),
            f"{row['bare_alarms']['jax']} of {row['problems']}",
        ]
        for row in found["shapes"]
        if "bare" in row
    ]
    head = ("JAX", "PyTorch", "JAX without", "PyTorch without", "JAX alarmed without")
    return as_table(["gradient of", *head], rows)


def _replicas(found: Found) -> str:
    cells: dict[str, dict[str, float]] = defaultdict(dict)
    for row in found["over_replicas"]:
        cells[row["quantity"]][row["framework"]] = row["largest"]
    rows = [
        [quantity, *(f"{at[backend]:.2f}" for backend in BACKENDS)]
        for quantity, at in cells.items()
        if any(at.values())
    ]
    return as_table(["quantity", *(NAMES[backend] for backend in BACKENDS)], rows)


def _bounds(found: Found) -> str:
    rows = [
        [name, *(f"{entry[key]:.2g}" for key in ("min", "median", "max"))]
        for name, entry in found["bounds"].items()
    ]
    return as_table(("PPO gradient, entry by entry", "least", "median", "largest"), rows)


def _spellings(found: Found) -> str:
    rows = [
        [
            f"`{SPELLINGS[row['spelling']]}`, {NAMES[row['framework']]}",
            *(f"{row[key]:.2g}" for key in ("allowance", "bound", "formula")),
            *(f"{row[f'outside {key}']:,.0f}" for key in ("allowance", "bound", "formula")),
            f"{row['problems']:,.0f}",
        ]
        for row in found["spellings"]
    ]
    limits = ("allowance", "bound", "formula")
    head = [*(f"largest over {name}" for name in limits), *(f"outside {name}" for name in limits)]
    return as_table(["spelling", *head, "problems"], rows)


def _functions(found: Found) -> str:
    rows = [
        [name, *(f"{row[backend]:.2f}" for backend in BACKENDS)]
        for name, row in found["functions"].items()
    ]
    return as_table(["function", *(NAMES[backend] for backend in BACKENDS)], rows)


def tables(found: Found) -> dict[str, str]:
    """Returns the text of each table by the name of its place."""
    return {
        "summary": _summary(found),
        "alarms": _alarms(found),
        "margins": _margins(found),
        "hard": _hard(found),
        "lessons": _lessons(found),
        "sizes": _sizes(found),
        "rules-lessons": _rules(found, "lessons"),
        "rules-random": _rules(found, "random"),
        "chaining": _chaining(found),
        "replicas": _replicas(found),
        "bounds": _bounds(found),
        "spellings": _spellings(found),
        "functions": _functions(found),
    }


def fill(document: Path, found: Mapping[str, str]) -> None:
    """Puts tables into their places in a document.

    Raises:
        ValueError: the document has no place for one of them, or several.
    """
    text = document.read_text()
    for name, table in found.items():
        place = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        text, count = place.subn(lambda m, t=table: f"{m[1]}{t}\n{m[2]}", text)
        if count != 1:
            raise ValueError(f"{document}: {count} places for the table {name}; expected 1")
    write_whole(document, text.encode())


def write(path: Path) -> None:
    """Draws the plot, and fills the tables into the document of the same name if there is one."""
    found = json.loads(path.read_bytes())
    write_whole(path.with_suffix(".svg"), noise_plot.draw(found, "svg"))
    document = path.with_suffix(".md")
    if document.exists():
        fill(document, tables(found))


if __name__ == "__main__":
    default = Path(__file__).parents[2] / "docs" / "noise.json"
    write(Path(sys.argv[1]) if sys.argv[1:] else default)
