"""Who may import whom, read from every module; no pickle; cheap to import; short test files."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
)

# The allow-list of each folder, beside the standard library and the folder itself (design.md).
BOUNDARY = ("problem", "samples", "points", "quantities", "trace")  # what backends know of parity
ALLOWED: dict[str, set[str]] = {
    "jax_impl": {"jax", "jaxtyping"},
    "torch_impl": {"torch", "jaxtyping"},
    "parity": {"numpy", "msgspec", "safetensors"},
    "figures": {"parity", "matplotlib", "numpy", "msgspec"},
    "cli": {"parity", "figures", "typer", "rich", "msgspec"},
}
ALLOWED_IN_FILE = {
    f"{twin}/backend.py": {"numpy", *(f"parity.{name}" for name in BOUNDARY)}
    for twin in ("jax_impl", "torch_impl")
} | {"parity/report/junit.py": {"junitparser"}, "parity/pytest_plugin.py": {"pytest"}}
ADAPTERS = {  # loaded in a worker, and only when asked for
    "parity/peers/rlax_peer.py": {"jax", "rlax"},
    "parity/peers/torchrl_peer.py": {"tensordict", "torch", "torchrl"},
}
ALLOWED_IN_FILE |= ADAPTERS
NAMES_TWINS = ("parity/backends.py", "parity/worker.py")  # as strings
IMPORTS_AS_TOLD = {
    "parity/worker.py": "the backend that its order names, in a process of its own",
    "parity/calling.py": "the same, beside a function of the user's",
    "parity/deriving.py": "the same, where autodiff has to give the gradient",
    "parity/targets.py": "a function of the user's",
    "figures/check.py": "its siblings that need matplotlib",
}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FRAMEWORKS = ("jax", "jaxlib", "torch", "jax_impl", "torch_impl", "rlax", "torchrl", "tensordict")


class Import(NamedTuple):
    line: int
    module: str  # dotted; what `from a import b` may import is a.b


def imports(source: str, package: str) -> Iterator[Import]:
    """Every import of a module: at the top, in functions, under TYPE_CHECKING, or by a string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (Import(node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in {"import_module", "__import__"}:
            yield Import(node.lineno, _module_named_by(node, package))


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _module_named_by(call: ast.Call, package: str) -> str:
    """What `import_module(…)` imports, as far as the source tells; "?" if it does not."""
    argument = call.args[0] if call.args else None
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    text = ast.unparse(argument) if argument is not None else ""
    return f"{package}.?" if text.startswith("f'{__name__}.") else "?"


def forbidden(path: str, source: str) -> list[str]:
    """What a module imports and may not."""
    folder = path.partition("/")[0]
    allowed = {folder, *ALLOWED[folder], *ALLOWED_IN_FILE.get(path, ())}
    found = []
    for line, module in imports(source, str(Path(path).parent).replace("/", ".")):
        top = module.partition(".")[0]
        standard = top in sys.stdlib_module_names and top not in PICKLES
        told = module == "?" and path in IMPORTS_AS_TOLD
        if not (standard or told or any(f"{module}.".startswith(f"{name}.") for name in allowed)):
            found.append(f"{path}:{line}: {module}")
    return found


def read(path: str) -> str:
    return (ROOT / path).read_text()


def test_every_package_is_looked_at() -> None:
    assert set(PACKAGES) == ALLOWED.keys()
    for package in PACKAGES:
        assert any(path.startswith(f"{package}/") for path in MODULES)


@pytest.mark.parametrize("path", MODULES)
def test_imports_are_on_the_allow_list(path: str) -> None:
    assert forbidden(path, read(path)) == []


@pytest.mark.parametrize(
    ("path", "source", "module"),
    [
        ("parity/gate.py", "import torch", "torch"),
        ("parity/gate.py", "from jax import numpy", "jax.numpy"),
        ("parity/gate.py", "def f():\n    if True:\n        import jax_impl.ppo", "jax_impl.ppo"),
        ("parity/gate.py", "from torch_impl.backend import train", "torch_impl.backend.train"),
        ("parity/gate.py", "import figures", "figures"),
        ("parity/report/text.py", "from cli.main import main", "cli.main.main"),
        ("parity/gate.py", "import importlib\nimportlib.import_module('jax')", "jax"),
        ("parity/gate.py", "__import__('matplotlib')", "matplotlib"),
        ("parity/gate.py", "from importlib import import_module as f; import_module(x)", "?"),
        ("parity/worker.py", "import torch", "torch"),
        ("parity/worker.py", "import importlib\nimportlib.import_module('torch')", "torch"),
        ("parity/gate.py", "import pickle", "pickle"),
        ("parity/gate.py", "import scipy", "scipy"),
        ("parity/testing.py", "import pytest", "pytest"),
        ("jax_impl/ppo.py", "import numpy as np", "numpy"),
        ("jax_impl/ppo.py", "from parity import oracle", "parity.oracle"),
        ("jax_impl/backend.py", "from parity import oracle", "parity.oracle"),
        ("jax_impl/backend.py", "from parity.noise import measure", "parity.noise.measure"),
        ("jax_impl/backend.py", "import torch_impl.backend", "torch_impl.backend"),
        ("torch_impl/ppo.py", "from jax_impl.ppo import Terms", "jax_impl.ppo.Terms"),
        ("torch_impl/ppo.py", "import jax", "jax"),
        ("figures/draw.py", "import torch", "torch"),
        ("figures/draw.py", "import cli.show", "cli.show"),
        ("figures/draw.py", "import jax_impl", "jax_impl"),
        ("cli/main.py", "import torch_impl.ppo", "torch_impl.ppo"),
        ("parity/report/text.py", "from ..oracle import kl\nfrom ...cli import x", "cli.x"),
    ],
)
def test_the_allow_list_catches(path: str, source: str, module: str) -> None:
    assert [line.rpartition(": ")[2] for line in forbidden(path, source)] == [module]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("parity/gate.py", "import numpy.typing\nfrom parity import noise\nfrom . import oracle"),
        ("parity/report/text.py", "from ..oracle import kl\nimport json, xml.sax.saxutils"),
        (
            "parity/__init__.py",
            "from importlib import import_module\nimport_module(f'{__name__}.x')",
        ),
        ("parity/worker.py", "import importlib\nimportlib.import_module(order.module)"),
        (
            "jax_impl/backend.py",
            "from parity.problem import Problem\nimport numpy as np\nimport jax",
        ),
        ("figures/draw.py", "import matplotlib.figure\nfrom parity.trace import Trace"),
        ("cli/main.py", "import typer\nfrom figures import draw\nfrom parity import gate"),
    ],
)
def test_the_allow_list_lets_pass(path: str, source: str) -> None:
    assert forbidden(path, source) == []


@pytest.mark.parametrize("path", [path for path in MODULES if path.startswith("parity/")])
def test_twins_are_named_in_two_places_only(path: str) -> None:
    named = [
        node.value
        for node in ast.walk(ast.parse(read(path)))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.match(r"(jax|torch)_impl\b", node.value)
    ]
    assert not named or path in NAMES_TWINS


@pytest.mark.parametrize(
    "path",
    [*MODULES, *sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("tests/**/*.py"))],
)
def test_nothing_is_pickled(path: str) -> None:
    assert pickled(read(path)) == []


def pickled(source: str) -> list[str]:
    """Uses of pickle and its kin, and of what pickles in passing unless it is told not to."""
    tops = {module.partition(".")[0] for _, module in imports(source, "package")}
    found = sorted(tops & PICKLES)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            told = "allow_pickle=False" in [ast.unparse(keyword) for keyword in node.keywords]
            if re.fullmatch(r"torch\.(load|save)", called):
                found.append(called)
            if re.fullmatch(r"(np|numpy|jnp)\.(load|save|savez\w*)", called) and not told:
                found.append(called)
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", ["pickle"]),
        ("def f():\n    from shelve import open", ["shelve"]),
        ("__import__('dill')", ["dill"]),
        ("torch.load(path)", ["torch.load"]),
        ("np.load(path)", ["np.load"]),
        ("np.load(path, allow_pickle=True)", ["np.load"]),
        ("np.load(path, allow_pickle=False)", []),
        ("json.load(file)", []),
    ],
)
def test_pickles_are_found(source: str, found: list[str]) -> None:
    assert pickled(source) == found


def test_no_file_of_tests_passes_400_lines() -> None:
    lines = {path.name: read(str(path)).count("\n") for path in ROOT.glob("tests/**/*.py")}
    assert {name: count for name, count in lines.items() if count > 400} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    assert (ROOT / package / "__init__.py").is_file()
    assert (ROOT / package / "py.typed").is_file()


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh process after a statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", program]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_importing_parity_is_cheap() -> None:
    assert not loaded_by("import parity") & {"numpy", "msgspec", "safetensors", *FRAMEWORKS}


def test_all_of_parity_loads_no_framework() -> None:
    names = [
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in MODULES
        if path.startswith("parity/") and path not in ADAPTERS
    ]
    loaded = loaded_by("\n".join(f"import {name}" for name in names))
    assert {"parity", "numpy", "msgspec", "safetensors"} <= loaded
    assert not loaded & {*FRAMEWORKS, "jaxtyping", "matplotlib", "figures", "cli", "typer"}


def test_the_command_line_loads_neither_frameworks_nor_matplotlib() -> None:
    assert not loaded_by("import cli.main") & {*FRAMEWORKS, "matplotlib"}
