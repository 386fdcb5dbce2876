"""Installed from the wheel it takes one name, works, and writes only where it was told."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
INSIDE = ("cli", "figures", "jax_impl", "torch_impl")  # at the top of the repository only
PATIENCE = 240.0  # seconds for what takes ten, on a busy machine

LOSSES = """\
import numpy as np


def dpo_loss(logits, reference, chosen, rejected, beta):
    logps = logits - logits.max()
    logps = logps - np.log(np.sum(np.exp(logps)))
    margins = logps[chosen] - logps[rejected] - (reference[chosen] - reference[rejected])
    return np.mean(np.logaddexp(0, -beta * margins)).astype(logits.dtype)
"""

TESTED = """\
def test_losses(parity_check):
    assert parity_check("losses.py:dpo_loss", "dpo", quick=True).verdict == "match"
"""

DECOY = {  # another distribution, which ships two of our folders' names
    "cli/__init__.py": "WHOSE = 'the cli of another'\n",
    "figures/__init__.py": "WHOSE = 'the figures of another'\n",
    "decoy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: decoy\nVersion: 1.0\n",
    "decoy-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "decoy-1.0.dist-info/RECORD": "",
}

DRAWN = (".json", ".svg", "-mechanism.svg")
TRACED = (".jax.safetensors", ".torch.safetensors")


def names(folder: Path) -> set[str]:
    """The files of a folder, but for what Python compiles beside a module."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return {path.as_posix() for path in files if path.parent.name != "__pycache__"}


class Built(NamedTuple):
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    place = tmp_path_factory.mktemp("built")
    build(ROOT, place, "wheel", "sdist")
    (wheel,), (sdist,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return Built(wheel, sdist)


def build(source: Path, place: Path, *targets: str) -> None:
    wanted = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", *wanted, "-d", place]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=PATIENCE)


class Ran(NamedTuple):
    code: int
    told: str


class Installed(NamedTuple):
    """A virtual environment with the wheel and the decoy, a home and a folder for scratch."""

    root: Path

    def run(self, *command: str, cwd: Path) -> Ran:
        """Runs a command of the environment; it may write nowhere but where it stands."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
        places = {"HOME": str(self.root / "home"), "TMPDIR": str(self.root / "scratch")}
        before = names(self.root)
        done = subprocess.run(
            [self.root / "venv" / "bin" / command[0], *command[1:]],
            cwd=cwd,
            env=kept | places,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            text=True,
            check=False,
        )
        assert names(self.root) == before
        return Ran(done.returncode, done.stdout)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    root = tmp_path_factory.mktemp("installed")
    for place in ("home", "scratch"):
        (root / place).mkdir()
    decoy = root / "decoy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(decoy, "w") as archive:
        for name, content in DECOY.items():
            archive.writestr(name, content)
    venv.create(root / "venv", symlinks=True)
    # What we depend on comes from here, less the checkout: an entry's own .pth files do not count.
    (packages,) = root.glob("venv/lib/python*/site-packages")
    ours = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join(ours))
    pip = [sys.executable, "-m", "pip", "--python", root / "venv" / "bin" / "python", "install"]
    offline = ["--quiet", "--no-deps", "--no-index", built.wheel, decoy]
    subprocess.run([*pip, *offline], check=True, timeout=PATIENCE)
    return Installed(root)


def contents(wheel: Path) -> dict[str, int]:
    """Each file of a wheel with its checksum."""
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.infolist()
    assert len({entry.filename for entry in entries}) == len(entries)
    return {entry.filename: entry.CRC for entry in entries}


def test_the_wheel_takes_one_name_and_holds_every_file_once(built: Built) -> None:
    held = set(contents(built.wheel))
    assert {name.partition("/")[0] for name in held} == {"parity", "rlhf_parity-0.1.0.dist-info"}
    expected = {f"parity/{name}" for name in names(ROOT / "parity")}
    expected |= {f"parity/{folder}/{name}" for folder in INSIDE for name in names(ROOT / folder)}
    assert {name for name in held if name.startswith("parity/")} == expected
    assert {
        "parity/cli/start.py",
        "parity/objectives/faults/ppo.toml",
        "parity/figures/recorded/posttraining-04.svg",
        "parity/jax_impl/py.typed",
        "parity/problems/posttraining-04.safetensors",
        "parity/problems/posttraining-05.toml",
    } <= held


def test_the_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        assert all(member.isfile() or member.isdir() for member in archive)
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert not [folder for folder in INSIDE if (source / folder).exists()]
    build(source, tmp_path / "again", "wheel")
    (again,) = (tmp_path / "again").iterdir()
    assert contents(again) == contents(built.wheel)


def test_another_distribution_may_have_our_folders_names(
    installed: Installed, tmp_path: Path
) -> None:
    """Every command of the tests below runs beside it."""
    program = """if True:
        import parity, sys
        from importlib import import_module as load
        from parity.cli.main import main
        from parity.figures import recorded
        assert not {"cli", "figures"} & sys.modules.keys()
        print(load("cli").WHOSE, load("figures").WHOSE, *map(len, [recorded()]), parity.__file__)
    """
    ran = installed.run("python", "-c", program, cwd=tmp_path)
    place = f"{installed.root}/venv/lib/python3.{sys.version_info.minor}/site-packages"
    assert ran.told == (f"the cli of another the figures of another 3 {place}/parity/__init__.py\n")


COMMANDS = {  # its words, some of what it says, what it writes
    "run": (
        "run posttraining-05 --no-figures --out told",
        "match: 8 quantities, ",
        {"told/report.json", *(f"told/traces/posttraining-05{end}" for end in TRACED)},
    ),
    "demo": (
        "demo --out told",
        "the probe points             caught",
        {
            *(f"told/figures/posttraining-04{end}" for end in DRAWN),
            *(f"told/traces/posttraining-04{end}" for end in TRACED),
            *("told/report.json", "told/planted.json"),
        },
    ),
    "figures": ("figures", "posttraining-05  ", set()),
    "mechanics": ("mechanics clipping", "already moved far enough the right way.", set()),
    "check": ("check losses.py:dpo_loss --objective dpo --quick", "match: ", set()),
    "twins": ("twins ppo --diff", "clipped = torch.clamp(ratios", set()),
    "faults": ("faults --list", "clip-only", set()),  # the demo plants one
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_and_writes_where_it_was_told(
    installed: Installed, tmp_path: Path, command: str
) -> None:
    words, said, written = COMMANDS[command]
    given = {"losses.py"} if command == "check" else set()
    for name in given:
        (tmp_path / name).write_text(LOSSES)
    ran = installed.run("parity", *words.split(), cwd=tmp_path)
    assert ran.code == 0, ran.told
    assert said in ran.told
    assert names(tmp_path) == written | given


def test_the_committed_figures_are_those_of_the_wheel(installed: Installed, tmp_path: Path) -> None:
    """`parity figures --check`, less the fresh run: that is tested from the checkout."""
    program = """if True:
        from parity.cli.options import require_renderer
        from parity.figures import recorded, redraw
        require_renderer("")
        print([redraw(path) for path in recorded().values()])
    """
    ran = installed.run("python", "-c", program, cwd=tmp_path)
    assert ran.told == "[None, None, None]\n"
    assert names(tmp_path) == set()


def test_the_pytest_plugin_works(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text(LOSSES)
    (tmp_path / "test_losses.py").write_text(TESTED)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider")  # pytest's own folder
    ran = installed.run("python", *words, cwd=tmp_path)
    assert ran.code == 0, ran.told
    assert "1 passed" in ran.told
    assert names(tmp_path) == {"losses.py", "test_losses.py"}
