"""A failing input as a Python program that anyone can paste and run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.convention import MASK, Convention
from parity.judging import Cell, CheckReport, Scene
from parity.objectives import Objective, find
from parity.stating import Layout

__all__ = ["snippet"]


class _Words(NamedTuple):
    """How a framework writes things: its imports, its functions' prefix, the log-softmax."""

    imports: tuple[str, ...]
    prefix: str
    log_softmax: str


_WORDS = {
    "torch": _Words(("import torch",), "torch", "torch.log_softmax(logits, dim=0)"),
    "jax": _Words(("import jax", "import jax.numpy as jnp"), "jnp", "jax.nn.log_softmax(logits)"),
    "numpy": _Words((), "np", "(logits - np.log(np.sum(np.exp(logits))))"),
}

LONGEST = 16  # samples or pairs that anyone wants to read


def snippet(report: CheckReport, convention: Convention, cell: Cell, scene: Scene) -> str:
    """Writes a program that calls a function where it is wrong and asserts the right value.

    Args:
        report: what was found out about the function.
        convention: how it states the objective.
        cell: where it fails, at points.
        scene: the points, and the oracle's values.

    Returns:
        The program; nothing where its input would be too long to read.
    """
    assert scene.points is not None
    objective = find(scene.points.objective)
    if scene.points.sizes[objective.counted] > LONGEST:
        return ""
    point = cell.entry.index[0]
    words = _WORDS[report.framework]
    inputs = {name: values[point] for name, values in scene.points.inputs.items()}
    quantity = cell.quantity.partition("/")[2]
    expected = np.asarray(scene.oracle.values[cell.quantity][point])
    allowed = np.asarray(scene.oracle.allowed[cell.quantity][point])
    lines = [
        f'# {report.target}, {report.objective}, {cell.dtype}: "{cell.label}"',
        f"# {cell.quantity}: found {cell.entry.left}, expected {cell.entry.right}",
        *_imports(report, words, cell.dtype),
        "",
        *(
            f"{name} = {_literal(values, words, cell.dtype)}"
            for name, values in _laid_out(inputs, objective, convention).items()
        ),
        "",
        *_function(report, words, objective, convention),
        "",
        *_found(quantity, objective, words),
        f"expected = {_plain(expected)}",
        f"allowed = {_plain(allowed)}",
        "assert np.all(np.abs(np.asarray(found, float) - expected) <= allowed), found",
    ]
    return "\n".join(lines) + "\n"


def _imports(report: CheckReport, words: _Words, dtype: str) -> list[str]:
    place, _, name = (report.adapter or report.target).rpartition(":")
    top = name.partition(".")[0]
    lines = ["import numpy as np", *words.imports]
    if report.framework == "jax" and dtype == "float64":
        lines.append('jax.config.update("jax_enable_x64", True)')
    if place.endswith(".py"):
        return [
            "import runpy",
            *lines,
            "",
            f"{top} = runpy.run_path({str(Path(place).resolve())!r})[{top!r}]",
        ]
    found = f"sys.path.append({str(Path.cwd())!r})  # from where it was checked"
    return ["import sys", *lines, "", found, f"from {place} import {top}"]


def _laid_out(
    inputs: Mapping[str, NDArray[Any]], objective: Objective, convention: Convention
) -> dict[str, NDArray[Any]]:
    """What has one entry a sample, in the shape that the function wants; padding is our choice."""
    shape = convention.option(objective, "shape")
    laid = dict(inputs)
    length = next(len(laid[n]) for n, a in objective.axes.items() if a[:1] == (objective.counted,))
    layout = Layout(shape, length)
    if shape == "B,T":
        laid[MASK] = layout.laid(np.ones(length), 0.0)
    for each in objective.inputs if shape in ("N,1", "B,T") else ():
        if each.axes == (objective.counted,):
            laid[each.name] = layout.laid(laid[each.name], each.padding)
    return laid


def _literal(values: NDArray[Any], words: _Words, dtype: str) -> str:
    kind = dtype if values.dtype.kind == "f" else "int32" if words.prefix == "jnp" else "int64"
    make = "tensor" if words.prefix == "torch" else "array"
    return f"{words.prefix}.{make}({_plain(values)}, dtype={words.prefix}.{kind})"


def _plain(values: NDArray[Any]) -> str:
    text = repr(values.tolist())
    return (
        text
        if np.isfinite(values).all()
        else text.replace("inf", "np.inf").replace("nan", "np.nan")
    )


def _text(name: str, objective: Objective, words: _Words) -> str:
    """What an argument receives, in the framework's words."""
    value = objective.definitions.get(name)
    text = value.text if value and value.text and name not in objective.by_input else name
    return text.replace("log_softmax(logits)", words.log_softmax)


def _function(
    report: CheckReport, words: _Words, objective: Objective, convention: Convention
) -> list[str]:
    """The objective as we state it, from the function as the user states it."""
    chosen = convention.in_force(objective)
    before, slash, _ = report.signature.partition("/")
    instead = {
        name: given
        for c in objective.choices
        for name, given in c.offers.get(chosen[c.name], {}).items()
    }
    arguments = []
    for theirs, ours in report.matched.items():
        text = _text(instead.get(ours, ours), objective, words)
        positional = slash and re.search(rf"\b{theirs}\b", before)
        arguments.append(text if positional else f"{theirs}={text}")
    name = (report.adapter or report.target).rpartition(":")[2]
    total = f"{words.prefix}.sum"
    masked = chosen.get("shape") == "B,T"
    counted = next(n for n, a in objective.axes.items() if a[:1] == (objective.counted,))
    count = f"{total}({MASK})" if masked else f"{counted}.shape[0]"
    body = [
        f"result = {name}({', '.join(arguments)})",
        "result = result[0] if isinstance(result, tuple) else result",
    ]
    if chosen.get("reduction") == "per-sample":
        body.append(f"result = {total}(result{f' * {MASK}' if masked else ''}) / {count}")
    elif chosen.get("reduction") == "sum":
        body.append(f"result = result / {count}")
    if chosen.get("sign") == "objective":
        body.append("result = -result")
    variables = objective.named("differentiated", "frozen")
    return [
        f"def loss({', '.join(variables)}):",
        *(f"    {line}" for line in body),
        "    return result",
    ]


def _found(quantity: str, objective: Objective, words: _Words) -> list[str]:
    """Computes the quantity that is wrong: the loss, or a gradient of it."""
    variables = objective.named("differentiated", "frozen")
    call = f"loss({', '.join(variables)})"
    if quantity == "loss":
        return [f"found = {call}{'.detach()' if words.prefix == 'torch' else ''}"]
    variable = objective.gradients[quantity]
    if words.prefix == "jnp":
        place = variables.index(variable)
        return [f"found = jax.grad(loss, argnums={place})({', '.join(variables)})"]
    return [
        f"{variable}.requires_grad_()",
        f"(found,) = torch.autograd.grad({call}, {variable}, allow_unused=True)",
        f"found = torch.zeros_like({variable}) if found is None else found",
    ]
