"""Who may import whom, in one name; no pickle; cheap to import; short test files."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
INSIDE = ("cli", "figures", "jax_impl", "torch_impl")  # installed, and imported, under parity
FOLDERS = ("parity", *INSIDE)
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")  # does not follow parity's links to the others
)
TESTS = sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("tests/**/*.py"))
TEXTS = ["README.md", *sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("docs/*.md"))]

# The allow-list of each folder, beside the standard library and the folder itself (design.md).
BOUNDARY = ("objectives", "problem", "samples", "points", "trace")  # what backends know of parity
ALLOWED: dict[str, set[str]] = {
    "jax_impl": {"jax", "jaxtyping"},
    "torch_impl": {"torch", "jaxtyping"},
    "parity": {"numpy", "msgspec", "safetensors"},
    "figures": {"parity", "matplotlib", "numpy", "msgspec"},
    "cli": {"parity", "parity.figures", "typer", "rich", "msgspec"},
}
ALLOWED_IN_FILE = {
    f"{twin}/backend.py": {"numpy", *(f"parity.{name}" for name in BOUNDARY)}
    for twin in ("jax_impl", "torch_impl")
} | {
    "parity/report/junit.py": {"junitparser"},
    "parity/pytest_plugin.py": {"pytest"},
    "parity/arithmetic/operations.py": {"array_api_compat"},
    "parity/stating.py": {"array_api_compat"},
}
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
    "jax_impl/backend.py": "the sibling of an objective, by its name",
    "torch_impl/backend.py": "the same",
    "figures/check.py": "its siblings that need matplotlib",
}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FRAMEWORKS = ("jax", "jaxlib", "torch", "rlax", "torchrl", "tensordict")
TWINS = ("parity.jax_impl", "parity.torch_impl")


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


def imported_as(path: str) -> str:
    """The dotted name of a folder or module of the repository."""
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"parity.{dotted}" if path.partition("/")[0] in INSIDE else dotted


def forbidden(path: str, source: str) -> list[str]:
    """What a module imports and may not."""
    folder = path.partition("/")[0]
    allowed = {imported_as(folder), *ALLOWED[folder], *ALLOWED_IN_FILE.get(path, ())}
    found = []
    for line, module in imports(source, imported_as(str(Path(path).parent))):
        top, second, *_ = f"{module}.".split(".")
        standard = top in sys.stdlib_module_names and top not in PICKLES
        told = module == "?" and path in IMPORTS_AS_TOLD
        if top == "parity" and second in INSIDE:  # "parity" alone does not allow these
            fits = f"parity.{second}" in allowed
        else:
            fits = any(f"{module}.".startswith(f"{name}.") for name in allowed)
        if not (standard or told or fits):
            found.append(f"{path}:{line}: {module}")
    return found


def read(path: str) -> str:
    return (ROOT / path).read_text()


def test_every_folder_is_looked_at_once() -> None:
    assert set(FOLDERS) == ALLOWED.keys()
    for folder in FOLDERS:
        assert any(path.startswith(f"{folder}/") for path in MODULES)
    assert len({(ROOT / path).resolve() for path in MODULES}) == len(MODULES)


@pytest.mark.parametrize("folder", INSIDE)
def test_every_other_folder_is_linked_into_parity(folder: str) -> None:
    """The checkout is imported through these links; a Git without symlinks leaves text files."""
    assert (ROOT / "parity" / folder).readlink() == Path("..", folder)


BARE = re.compile(rf"^\s*(?:from|import) +(?:{'|'.join(INSIDE)})\b.*", re.MULTILINE)


@pytest.mark.parametrize(
    "path", [path for path in [*MODULES, *TESTS, *TEXTS] if path != "tests/test_house.py"]
)
def test_nothing_imports_a_bare_name(path: str) -> None:
    """Nor does a program that a test or a document spells out."""
    assert BARE.findall(read(path)) == []


@pytest.mark.parametrize("path", MODULES)
def test_imports_are_on_the_allow_list(path: str) -> None:
    assert forbidden(path, read(path)) == []


@pytest.mark.parametrize(
    ("path", "source", "module"),
    [
        ("parity/gate.py", "import torch", "torch"),
        ("parity/gate.py", "from jax import numpy", "jax.numpy"),
        (
            "parity/gate.py",
            "def f():\n    if True:\n        import parity.jax_impl",
            "parity.jax_impl",
        ),
        ("parity/gate.py", "from parity.torch_impl.ppo import a", "parity.torch_impl.ppo.a"),
        ("parity/gate.py", "from parity import jax_impl", "parity.jax_impl"),
        ("parity/gate.py", "from . import figures", "parity.figures"),
        ("parity/gate.py", "import figures", "figures"),
        ("parity/report/text.py", "from parity.cli.main import main", "parity.cli.main.main"),
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
        ("jax_impl/backend.py", "import parity.torch_impl.backend", "parity.torch_impl.backend"),
        ("jax_impl/ppo.py", "from jax_impl.reward import State", "jax_impl.reward.State"),
        ("torch_impl/ppo.py", "from parity.jax_impl.ppo import a", "parity.jax_impl.ppo.a"),
        ("torch_impl/ppo.py", "from ..jax_impl.ppo import a", "parity.jax_impl.ppo.a"),
        ("torch_impl/ppo.py", "import jax", "jax"),
        ("figures/draw.py", "import torch", "torch"),
        ("figures/draw.py", "import parity.cli.show", "parity.cli.show"),
        ("figures/draw.py", "from parity import cli", "parity.cli"),
        ("figures/draw.py", "import parity.jax_impl", "parity.jax_impl"),
        ("cli/main.py", "import parity.torch_impl.ppo", "parity.torch_impl.ppo"),
        ("cli/main.py", "from cli import show", "cli.show"),
        ("parity/report/text.py", "from ..oracle import kl\nfrom ..cli import x", "parity.cli.x"),
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
        ("jax_impl/ppo.py", "from parity.jax_impl import reward\nfrom . import policy"),
        ("figures/draw.py", "import matplotlib.figure\nfrom parity.trace import Trace"),
        (
            "cli/main.py",
            "import typer\nfrom parity.figures import draw\nfrom parity import cli, gate",
        ),
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
        and re.match(r"(parity\.)?(jax|torch)_impl\b", node.value)
    ]
    assert not named or path in NAMES_TWINS


@pytest.mark.parametrize("path", [*MODULES, *TESTS])
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


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_a_typed_package(folder: str) -> None:
    assert (ROOT / folder / "__init__.py").is_file()
    assert (ROOT / folder / "py.typed").is_file()


def loaded_by(statement: str) -> set[str]:
    """All modules in a fresh process after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", program]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_importing_parity_is_cheap() -> None:
    assert not loaded_by("import parity") & {"numpy", "msgspec", "safetensors", *FRAMEWORKS}


def test_all_of_parity_loads_no_framework() -> None:
    names = [
        imported_as(path) for path in MODULES if path.startswith("parity/") and path not in ADAPTERS
    ]
    loaded = loaded_by("\n".join(f"import {name}" for name in names))
    assert {"parity", "numpy", "msgspec", "safetensors"} <= loaded
    assert not loaded & {*FRAMEWORKS, *TWINS, "jaxtyping", "matplotlib", "typer"}
    assert not loaded & {"parity.figures", "parity.cli"}


def test_the_command_line_loads_neither_frameworks_nor_matplotlib() -> None:
    assert not loaded_by("import parity.cli.main") & {*FRAMEWORKS, *TWINS, "matplotlib"}


# Who builds on whom inside parity: a module imports from its own layer and from those before it.
LAYERS: dict[str, tuple[str, ...]] = {
    "ground": ("errors", "files", "validation"),
    "arithmetic": ("arithmetic",),
    "users' code": ("targets", "recognition", "watch"),
    "objectives": ("objectives",),
    "lessons": ("lessons", "points", "problem", "quantities", "samples", "states", "trace"),
    "calling": ("convention", "stating", "plain", "calling", "deriving"),
    "comparison": ("comparison", "structure", "coverage", "invariants", "widening"),
    "judging": ("judging", "parting", "gate", "diagnosis", "report", "snippet"),
    "running": (
        "against",
        "backends",
        "checks",
        "config",
        "faults",
        "followup",
        "mechanics",
        "peers",
        "runs",
        "verify",
        "worker",
    ),
    "public": ("__init__", "api", "pytest_plugin", "testing"),
}
LAYER_OF = {name: place for place, names in enumerate(LAYERS.values()) for name in names}
BACK_UP = {("report", "faults"): "outcomes of planted bugs are reported like all others"}
OF_PARITY = [path for path in MODULES if path.startswith("parity/")]


def module_of(path: str) -> str:
    return path.split("/")[1].removesuffix(".py")


@pytest.mark.parametrize("path", OF_PARITY)
def test_layers_build_on_those_before_them(path: str) -> None:
    own = module_of(path)
    above = []
    for line, imported in imports(read(path), imported_as(str(Path(path).parent))):
        top, other, *_ = f"{imported}..".split(".")
        known = top == "parity" and other in LAYER_OF and (own, other) not in BACK_UP
        if known and LAYER_OF[other] > LAYER_OF[own]:
            above.append(f"{path}:{line}: {imported}")
    assert above == []


# ── An objective is named in its spec, in its twins, and nowhere else ──────────────────────────

NAMED = re.compile(r"\b(?:ppo|dpo|reinforce)\b")
MAY_NAME = ("parity/objectives/", "parity/peers/")


@pytest.mark.parametrize("path", [p for p in OF_PARITY if not p.startswith(MAY_NAME)])
def test_no_module_names_an_objective(path: str) -> None:
    assert NAMED.findall(read(path)) == []


def test_every_objective_has_a_file_in_both_twins() -> None:
    from parity.objectives import trained

    for name in trained():
        for twin in ("jax_impl", "torch_impl"):
            assert (ROOT / twin / f"{name}.py").is_file()


def test_every_built_in_declaration_is_sound() -> None:
    from parity.objectives import built_in
    from parity.objectives.flaws import flaws

    assert {name: [*flaws(each)] for name, each in built_in().items()} == {
        name: [] for name in built_in()
    }
