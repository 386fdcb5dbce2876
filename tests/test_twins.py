"""The twins are checked, not trusted: the same names, signatures, docstrings, lines and numbers."""

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers_noise import measure
from parity.objectives.dpo import DPO
from parity.points import Points
from parity.problem import Problem
from parity.quantities import evaluated, expected
from parity.trace import Trace

ROOT = Path(__file__).parents[1]
TWINS = ("jax_impl", "torch_impl")
FILES = sorted(path.stem for path in (ROOT / "jax_impl").glob("*.py"))
ALGORITHMS = ("reward", "ppo", "dpo", "reinforce")
DRIVERS = ("train",)  # scan here, loop there: names, signatures, docstrings only

# Every framework word that may differ in a line, from JAX to PyTorch.
TRANSLATION = {
    r"\bjax\.lax\.stop_gradient\((\w+)\)": r"\1.detach()",
    r"\bjax\.nn\.log_softmax\(([\w.]+)\)": r"torch.log_softmax(\1, dim=0)",
    r"\bjax\.nn\.softplus\(-([^()]+)\)": r"-torch.nn.functional.logsigmoid(\1)",
    r"\bjnp\.clip\b": "torch.clamp",
    r"\bjnp\.": "torch.",
    r"(?<![.\w])stop_gradient\b": "_stopped",
    r"\bjax\.Array\b": "Tensor",
    r"\bArray\b": "Tensor",
}
# Every sentence of a docstring that may.
SENTENCES = {
    "Reward fitting, signed PPO and DPO in JAX: the twin of `torch_impl`.": (
        "Reward fitting, signed PPO and DPO in PyTorch: the twin of `jax_impl`."
    ),
    "The only NumPy boundary of the JAX twin": "The only NumPy boundary of the PyTorch twin",
    "The key is split once per rollout; the second half draws.": (
        "One generator serves all rollouts, one after the other."
    ),
    "each stack compiles once": "each stack has one shape",
}


def to_torch(line: str) -> str:
    for jax, torch in TRANSLATION.items():
        line = re.sub(jax, torch, line)
    return line


def docstring(node: Any) -> str:
    text = ast.get_docstring(node) or ""
    for jax, torch in SENTENCES.items():
        text = text.replace(jax, torch)
    return text


def source(twin: str, file: str) -> str:
    return (ROOT / twin / f"{file}.py").read_text()


def definitions(twin: str, file: str) -> dict[str, Any]:
    """Functions and classes at the top of a file, by name."""
    body = ast.parse(source(twin, file)).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def exported(twin: str, file: str) -> list[str] | None:
    for node in ast.parse(source(twin, file)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def signature(function: ast.FunctionDef) -> list[tuple[str, ...]]:
    """Kind, name, annotation and default of every parameter in order; then the return type."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    kinds = ["positional only"] * len(arguments.posonlyargs) + ["positional"] * len(arguments.args)
    rows = [*zip(kinds, positional, defaults, strict=True)]
    rows += [("variadic", arguments.vararg, None)] if arguments.vararg else []
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    rows += [("keyword", argument, default) for argument, default in keywords]
    rows += [("keywords", arguments.kwarg, None)] if arguments.kwarg else []
    return [
        (kind, argument.arg, text(argument.annotation), text(default))
        for kind, argument, default in rows
    ] + [("returns", text(function.returns))]


def text(node: ast.AST | None) -> str:
    return "" if node is None else to_torch(ast.unparse(node))


def lines(twin: str, file: str, name: str) -> list[str]:
    """Source of a definition without its docstring, which is compared apart."""
    node = definitions(twin, file)[name]
    rows = source(twin, file).splitlines()
    documented = node.body[0] if ast.get_docstring(node) is not None else None
    kept = [
        number
        for number in range(node.lineno, node.end_lineno + 1)
        if documented is None or not documented.lineno <= number <= documented.end_lineno
    ]
    return [rows[number - 1] for number in kept]


def lockstep() -> Iterator[tuple[str, str]]:
    """Every definition of the algorithms except the drivers: losses, collects, updates, states."""
    for file in ALGORITHMS:
        for name in definitions("jax_impl", file):
            if name not in DRIVERS:
                yield file, name


def test_the_same_files() -> None:
    jax, torch = (
        {path.name for path in (ROOT / twin).iterdir() if path.is_file()} for twin in TWINS
    )
    assert jax == torch
    assert {*ALGORITHMS, "backend", "sampling", "__init__"} <= set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_the_same_public_names(file: str) -> None:
    names = exported("jax_impl", file)
    assert names == exported("torch_impl", file)
    assert names is not None or file == "__init__"
    public = [
        [name for name in definitions(twin, file) if not name.startswith("_")] for twin in TWINS
    ]
    assert public[0] == public[1]


@pytest.mark.parametrize("file", FILES)
def test_the_same_docstrings(file: str) -> None:
    modules = [ast.parse(source(twin, file)) for twin in TWINS]
    assert docstring(modules[0]) == docstring(modules[1])
    assert docstring(modules[0])
    jax, torch = (definitions(twin, file) for twin in TWINS)
    for name, node in jax.items():
        if name in torch:
            assert docstring(node) == docstring(torch[name]), name
        if not name.startswith("_"):
            assert docstring(node), name


@pytest.mark.parametrize("file", FILES)
def test_the_same_signatures(file: str) -> None:
    jax, torch = (definitions(twin, file) for twin in TWINS)
    for name, node in jax.items():
        if isinstance(node, ast.FunctionDef) and name in torch:
            assert signature(node) == signature(torch[name]), name


def test_every_parameter_is_documented() -> None:
    for file in (*ALGORITHMS, "derivative", "sampling"):
        for name, node in definitions("jax_impl", file).items():
            if isinstance(node, ast.FunctionDef) and not name.startswith("_"):
                documented = re.findall(r"^    (\w+): ", docstring(node), re.MULTILINE)
                assert documented == [row[1] for row in signature(node)[:-1]], name


def test_lockstep_holds_what_the_design_names() -> None:
    named = set(lockstep())
    for file, losses in (("reward", "preference"), ("ppo", "ppo"), ("dpo", "dpo")):
        assert {(file, f"{losses}_loss"), (file, "update"), (file, "State")} <= named
    assert ("ppo", "collect") in named


@pytest.mark.parametrize(("file", "name"), list(lockstep()))
def test_line_against_line(file: str, name: str) -> None:
    jax, torch = (lines(twin, file, name) for twin in TWINS)
    assert len(jax) == len(torch)
    for ours, theirs in zip(jax, torch, strict=True):
        assert to_torch(ours) == theirs


@pytest.mark.parametrize(
    ("jax", "torch"),
    [
        ("    a = jnp.minimum(x, y)", "    a = torch.maximum(x, y)"),
        ("    a = jnp.mean(x)", "    a = torch.sum(x)"),
        ("    a = jax.lax.stop_gradient(a)", "    a = a"),
        ("    a = jax.nn.log_softmax(x)", "    a = torch.log_softmax(y, dim=0)"),
        ("    a = jax.nn.softplus(-x)", "    a = -torch.nn.functional.logsigmoid(-x)"),
        ("    return -a + beta * b", "    return -a - beta * b"),
        ('    x: Float[Array, "action"],', '    x: Float[Tensor, "sample"],'),
    ],
)
def test_translation_hides_no_difference(jax: str, torch: str) -> None:
    assert to_torch(jax) != torch


@pytest.mark.parametrize("twin", TWINS)
def test_annotations_are_enforced_while_testing(twin: str) -> None:
    """pyproject.toml has jaxtyping check both twins with beartype; a wrong shape must not pass."""
    module = import_module(f"parity.{twin}.dpo")
    zeros = import_module("jax.numpy" if twin == "jax_impl" else "torch").zeros
    index = zeros(2, dtype=int)
    loss, terms = module.dpo_loss(zeros(3), zeros(3), index, index, zeros(()))
    assert (loss.shape, terms.margins.shape) == ((), (2,))
    with pytest.raises(Exception, match="'reference'") as refused:
        module.dpo_loss(zeros(3), zeros(2), index, index, zeros(()))
    assert type(refused.value).__name__ == "TypeCheckError"


# Numbers.


@pytest.mark.parametrize("objective", ["reward", "ppo", "dpo", "reinforce"])
def test_evaluations_agree_at_points(
    draw_points: Callable[..., Points], evaluate: Callable[..., Trace], objective: str
) -> None:
    points = draw_points(objective, 3, 12, 2, 16)
    jax, torch = evaluate("jax", points), evaluate("torch", points)
    shapes = evaluated(objective, points.sizes)
    for trace in (jax, torch):
        assert_as_declared(trace, shapes)
    for name, allowed in measure(points).allowed.items():
        # design.md: two implementations may differ by the sum of their allowances
        difference = np.abs(jax[name].astype(np.float64) - torch[name])
        assert (difference <= 2 * allowed).all(), name


def assert_as_declared(trace: Trace, specs: dict[Any, tuple[int, ...]]) -> None:
    assert list(trace.quantities) == [spec.name for spec in specs]
    for spec, shape in specs.items():
        quantity = trace.quantities[spec.name]
        assert (quantity.axes, quantity.kind) == (spec.axes, spec.kind)
        assert quantity.values.shape == shape
        assert quantity.values.dtype == ("int64" if spec.integer else trace.dtype)


@pytest.mark.parametrize(
    ("lesson", "dtype"),
    [
        ("posttraining-04", "float32"),
        ("posttraining-05", "float32"),
        ("policy-gradient-kl-control", "float32"),
        ("posttraining-05", "float64"),
    ],
)
def test_runs_record_what_the_catalogue_declares(
    trace_of: Callable[..., Trace],
    problems: dict[str, Problem],
    implementation: str,
    lesson: str,
    dtype: str,
) -> None:
    trace = trace_of(lesson, implementation, dtype)
    assert_as_declared(trace, expected(problems[lesson]))
    assert (trace.implementation, trace.dtype) == (implementation, dtype)
    assert trace.problem_digest == problems[lesson].digest
    assert {implementation, "numpy"} <= trace.environment.keys()


@pytest.mark.parametrize(
    "lesson", ["posttraining-04", "posttraining-05", "policy-gradient-kl-control"]
)
def test_frozen_inputs_have_a_gradient_of_exactly_0_in_training(
    trace_of: Callable[..., Trace], implementation: str, lesson: str
) -> None:
    trace = trace_of(lesson, implementation)
    frozen = [name for name in trace.quantities if "/gradient_" in name]
    assert frozen
    for name in frozen:
        assert (trace[name] == 0).all(), name
    for name in ("reference", "scores"):  # and what is carried stays what it was, bit for bit
        for objective in ("ppo", "dpo", "reinforce"):
            if f"{objective}/{name}" in trace:
                values = trace[f"{objective}/{name}"]
                rows = values.reshape(-1, values.shape[-1])
                assert (rows == rows[0]).all()


@pytest.mark.parametrize("objective", ["ppo", "dpo", "reinforce"])
def test_frozen_inputs_have_a_gradient_of_exactly_0_at_points(
    draw_points: Callable[..., Points],
    evaluate: Callable[..., Trace],
    implementation: str,
    objective: str,
) -> None:
    trace = evaluate(implementation, draw_points(objective, 3, 12, 2, 16))
    frozen = [name for name in trace.quantities if "/gradient_" in name]
    assert frozen
    for name in frozen:
        assert (trace[name] == 0).all(), name
    assert (trace[f"{objective}/gradient"] != 0).any()


def test_a_replaced_piece_is_the_one_that_trains(
    backend: Callable[[str], Any], implementation: str
) -> None:
    """The seam: a piece is handed in, and nothing needs to be patched."""
    ours = backend(implementation)
    problem = Problem(
        name="seam",
        dpo=DPO(logits=(0.5, 0.0, 1.0), preferences=((0, 1),), updates=2, rate=0.5, beta=1.0),
    )
    pieces = import_module(f"parity.{implementation}_impl.dpo").PIECES

    def doubled(*inputs: Any) -> Any:
        loss, terms = pieces.loss(*inputs)
        return 2 * loss, terms

    plain = ours.train(problem, None)
    other = ours.train(problem, None, pieces={"dpo": pieces._replace(loss=doubled)})
    np.testing.assert_array_equal(other["dpo/loss"][0], 2 * plain["dpo/loss"][0])
    np.testing.assert_array_equal(other["dpo/gradient"][0], 2 * plain["dpo/gradient"][0])
    assert (other["dpo/logits"] != plain["dpo/logits"]).any()
