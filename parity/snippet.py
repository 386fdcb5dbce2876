"""A failing input as a Python program that anyone can paste and run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.judging import Cell, CheckReport, Scene
from parity.points import INPUTS

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

_DERIVED = {
    "policy_logps": "{log_softmax}",
    "logps": "{log_softmax}[actions]",
    "reference_logps": "reference[actions]",
    "chosen_logps": "{log_softmax}[chosen]",
    "rejected_logps": "{log_softmax}[rejected]",
    "reference_chosen_logps": "reference[chosen]",
    "reference_rejected_logps": "reference[rejected]",
    "chosen_scores": "chosen @ weights",
    "rejected_scores": "rejected @ weights",
}
_VARIABLE = {"reward": "weights"}  # of the others: logits


def snippet(report: CheckReport, cell: Cell, scene: Scene) -> str:
    """Writes a program that calls a function where it is wrong and asserts the right value.

    Args:
        report: what was found out about the function.
        cell: where it fails, at points.
        scene: the points, and the oracle's values.

    Returns:
        The program; nothing where its input would be too long to read.
    """
    assert scene.points is not None
    if max(scene.points.sizes.get(axis, 0) for axis in ("sample", "pair")) > LONGEST:
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
            for name, values in _laid_out(inputs, report).items()
        ),
        "",
        *_function(report, words, scene.points.objective),
        "",
        *_found(quantity, _differentiable(scene.points.objective), words),
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


def _laid_out(inputs: Mapping[str, NDArray[Any]], report: CheckReport) -> dict[str, NDArray[Any]]:
    """What has one entry a sample, in the shape that the function wants; padding is our choice."""
    shape = report.convention.shape
    counted = {"old_logps": -0.9, "actions": 0, "advantages": 2.0}
    if "weights" not in inputs:
        counted |= {"chosen": 0, "rejected": 1}
    length = len(inputs["actions"] if "actions" in inputs else inputs["chosen"])
    width = (2 * length + 2) // 3
    places = np.arange(length)
    places = np.where(places < length - width, places, places + 2 * width - length)
    laid = dict(inputs)
    if shape == "B,T":
        laid["mask"] = np.ones(length)
        counted["mask"] = 0.0
    for name, fill in counted.items():
        if name not in laid or shape == "N":
            continue
        if shape == "N,1":
            laid[name] = laid[name][:, None]
            continue
        full = np.full(2 * width, fill, laid[name].dtype)
        full[places] = laid[name]
        laid[name] = full.reshape(2, -1)
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


def _differentiable(objective: str) -> list[str]:
    """The policy first, then what must be frozen."""
    names = ("weights", "logits", "old_logps", "advantages", "reference")
    return [name for name in names if name in INPUTS[objective]]


def _function(report: CheckReport, words: _Words, objective: str) -> list[str]:
    """The objective as we state it, from the function as the user states it."""
    convention = report.convention
    counted = "chosen" if "chosen" in INPUTS[objective] else "actions"
    before, slash, _ = report.signature.partition("/")
    arguments = []
    for theirs, ours in report.matched.items():
        text = _DERIVED.get(ours, ours).format(log_softmax=words.log_softmax)
        if ours == "logits" and convention.policy == "logps":
            text = words.log_softmax
        positional = slash and re.search(rf"\b{theirs}\b", before)
        arguments.append(text if positional else f"{theirs}={text}")
    name = (report.adapter or report.target).rpartition(":")[2]
    total = f"{words.prefix}.sum"
    masked = convention.shape == "B,T"
    count = f"{total}(mask)" if masked else f"{counted}.shape[0]"
    body = [
        f"result = {name}({', '.join(arguments)})",
        "result = result[0] if isinstance(result, tuple) else result",
    ]
    if convention.reduction == "per-sample":
        body.append(f"result = {total}(result{' * mask' if masked else ''}) / {count}")
    elif convention.reduction == "sum":
        body.append(f"result = result / {count}")
    if convention.sign == "objective":
        body.append("result = -result")
    if convention.kl == "absent":
        logps = words.log_softmax
        kl = f"{words.prefix}.exp({logps}) * ({logps} - reference)"
        body.append(f"result = result + beta * {total}({kl})")
    return [
        f"def loss({', '.join(_differentiable(objective))}):",
        *(f"    {line}" for line in body),
        "    return result",
    ]


def _found(quantity: str, variables: list[str], words: _Words) -> list[str]:
    """Computes the quantity that is wrong: the loss, or a gradient of it."""
    call = f"loss({', '.join(variables)})"
    if quantity == "loss":
        return [f"found = {call}{'.detach()' if words.prefix == 'torch' else ''}"]
    variable = quantity.removeprefix("gradient").removeprefix("_") or variables[0]
    if words.prefix == "jnp":
        place = variables.index(variable)
        return [f"found = jax.grad(loss, argnums={place})({', '.join(variables)})"]
    return [
        f"{variable}.requires_grad_()",
        f"(found,) = torch.autograd.grad({call}, {variable}, allow_unused=True)",
        f"found = torch.zeros_like({variable}) if found is None else found",
    ]
