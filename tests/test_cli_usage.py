"""Help, version, schemas; bad usage is one line, exit code 2, and nothing touched."""

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers_cli import DPO, PARITY, PATIENCE, PPO, Ran, contents, environment, old_results, parity
from parity.files import write_arrays
from parity.problem import parse_problem
from parity.samples import Samples, SamplesHeader

# Help, version, schemas: quick and light.


def test_help_loads_no_framework(tmp_path: Path) -> None:
    heavy = ["jax", "torch", "matplotlib", "numpy", "safetensors"]
    heavy += ["parity.jax_impl", "parity.torch_impl"]
    program = f"""
        import json, sys
        from parity.cli.main import main
        sys.argv = ["parity", *sys.argv[1:]]
        try:
            main()
        except SystemExit as end:
            found = sorted(set({heavy}) & set(sys.modules))
            print(json.dumps([end.code, found]))
    """
    for arguments in (["--help"], ["samples", "draw", "--help"], ["--version"]):
        done = subprocess.run(
            [sys.executable, "-P", "-c", textwrap.dedent(program), *arguments],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert json.loads(done.stdout.splitlines()[-1]) == [0, []], arguments
        assert done.stderr == ""


def test_help_and_version(tmp_path: Path) -> None:
    (tmp_path / "cli.py").write_text("raise RuntimeError('a decoy was imported')")
    ran = parity("--help", cwd=tmp_path, COLUMNS="80", PYTHONIOENCODING="ascii")
    assert (ran.code, ran.err) == (0, "")
    for command in ("run", "samples", "figures", "schema"):
        assert re.search(rf"^ +{command} ", ran.out, re.MULTILINE)
    assert max(map(len, ran.out.splitlines())) <= 80
    ran = parity("--version", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"parity \d+\.\d+\.\d+\n", ran.out)


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ("trace", {"implementation", "dtype", "quantities", "digest", "environment"}),
        ("problem", {"name", "samples", "reward", "ppo", "dpo"}),
    ],
)
def test_schemas(
    inside: Callable[..., Ran], tmp_path: Path, document: str, fields: set[str]
) -> None:
    ran = inside("schema", document, cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    schema = json.loads(ran.out)
    root = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert fields <= set(root["properties"])


# Bad usage: one line, exit code 2, and nothing touched.


@pytest.fixture(scope="session")
def bad(once: Callable[..., Path]) -> Path:
    """A folder of unusable inputs."""

    def fill(folder: Path) -> None:
        problem = parse_problem(PPO.encode(), "ppo.toml")
        assert problem.ppo is not None
        shape = (problem.ppo.rollouts, problem.ppo.samples)
        good = Samples(
            actions=np.zeros(shape, np.int64),
            behaviour=np.zeros((shape[0], 3), np.float32),
            problem="ppo",
            problem_digest=problem.digest,
            seed=5,
            sampler="jax",
            versions={},
        )
        outside = good.actions.copy()
        outside[1, 2] = 3
        other = parse_problem(PPO.replace("beta = 0.3", "beta = 0.4").encode(), "other.toml")
        tapes = {
            "shape": replace(good, actions=good.actions[:, :-1]),
            "range": replace(good, actions=outside),
            "beta": replace(good, problem="other", problem_digest=other.digest),
        }
        for name, tape in tapes.items():
            tape.save(folder / f"{name}.safetensors")
        header = SamplesHeader(
            problem="ppo",
            problem_digest=problem.digest,
            seed=5,
            sampler="jax",
            versions={},
            digest="0" * 64,
        )
        arrays = {"actions": good.actions, "behaviour": good.behaviour}
        write_arrays(folder / "digest.safetensors", header, arrays)
        (folder / "half.safetensors").write_bytes((folder / "beta.safetensors").read_bytes()[:99])
        for name in ("shape", "range", "beta", "digest", "half", "absent"):
            (folder / f"{name}.toml").write_text(f'samples = "{name}.safetensors"\n{PPO}')
        (folder / "broken.toml").write_text("[dpo\nlogits = 1")
        (folder / "nan.toml").write_text(DPO.replace("rate = 0.4", "rate = nan"))
        (folder / "unknown.toml").write_text(f"{DPO}gamma = 1\n")
        (folder / "negative.toml").write_text(DPO.replace("updates = 3", "updates = 0"))
        (folder / "large.toml").write_text(PPO.replace("samples = 8", "samples = 2000000000"))
        (folder / "latin.toml").write_bytes("title = 'é'\n".encode("latin-1"))
        (folder / "dpo.toml").write_text(DPO)
        (folder / "a-file").write_text("mine")
        (folder / "cluttered").mkdir()
        (folder / "cluttered" / "traces").write_text("mine")
        old_results(folder / "out")

    return once("bad-usage", fill)


RUN = ["run", "--out", "out"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*RUN, "posttraining-99"], "posttraining-99: no such lesson or file; expected one of "),
        ([*RUN, "no.toml"], "no.toml: cannot be read: No such file"),
        ([*RUN, "out"], "out: cannot be read: Is a directory"),
        ([*RUN, "broken.toml"], "broken.toml: not TOML: "),
        ([*RUN, "latin.toml"], "latin.toml: not TOML: "),
        ([*RUN, "nan.toml"], "nan.toml: dpo.rate: got nan; expected float > 0"),
        ([*RUN, "unknown.toml"], "unknown.toml: dpo.gamma: got 1; expected no such field"),
        ([*RUN, "negative.toml"], "negative.toml: dpo.updates: got 0; expected int >= 1"),
        ([*RUN, "large.toml"], r"large: needs about [\d.]+ GiB of memory"),
        ([*RUN, "absent.toml"], "absent.safetensors: cannot be read"),
        ([*RUN, "half.toml"], "half.safetensors: not a readable parity file"),
        ([*RUN, "digest.toml"], r"digest.safetensors: digest: got \w+; expected 0{64}"),
        ([*RUN, "shape.toml"], r"shape.safetensors: actions: got shape \[3, 7\]; expected \[3, 8"),
        ([*RUN, "range.toml"], r"range.safetensors: actions\[1, 2\]: got 3; expected 0 to 2"),
        ([*RUN, "range.toml", "--reuse-samples"], r"range.safetensors: actions\[1, 2\]: got 3"),
        ([*RUN, "beta.toml"], "drawn for another problem, other.*--reuse-samples replays it"),
        ([*RUN, "dpo.toml", "dpo.toml"], "name: got 'dpo' twice"),
        ([*RUN, "posttraining-05", "nan.toml"], "nan.toml: dpo.rate: got nan"),  # before any work
        (["run", "--out", "a-file", "dpo.toml"], "--out: got a-file, which is not a folder"),
        (["run", "--out", "a-file/x", "dpo.toml"], "--out: got a-file/x, which is not a folder"),
        (["run", "--out", "cluttered", "dpo.toml"], "cluttered/traces, which is not a folder"),
        (["run", "--out", ""], "--out.*got ''; expected a folder.*--help"),
        (["demo", "--out", ""], "--out.*got ''; expected a folder.*--help"),
        (
            ["check", "f.py:f", "--objective", "dpo", "--repro", "a-file/x"],
            "--repro: got a-file/x; expected a file in a folder that can be written",
        ),
        (["check", "f.py:f", "--objective", "dpo", "--repro", "."], "--repro: got .; expected"),
        (["faults", "--figure", "a-file/x.svg"], "--figure: got a-file/x.svg; expected a file"),
        (["check"], "--objective or --against: missing; expected one of the two, or"),
        (["check", "f.py:f", "--sign", "objective"], "--objective or --against: missing"),
        (["check", "--objective", "dpo"], "TARGET: missing; expected package.module:function"),
        (
            ["check", "f.py:f", "--objective", "dpo", "--against", "g.py:f"],
            "--objective and --against: got both; expected one of the two",
        ),
        (["run", "--timeout", "inf"], "got inf; expected a finite number of seconds"),
        (["run", "--timeout", "nan"], "--timeout"),
        ([*RUN, "--allow-noisy", "*"], "--reason: missing; expected together with --allow-noisy"),
        ([*RUN, "--reason", "so"], "--allow-noisy: missing; expected together with --reason"),
        ([*RUN, "--allow-noisy", "*", "--reason", " "], "--reason: got ' '; expected the reason"),
        ([*RUN, "--dtype", "float16"], "float16.*--help"),
        ([*RUN, "--format", "xml"], "xml.*--help"),
        ([*RUN, "--timeout", "0"], "timeout.*--help"),
        ([*RUN, "--timeout", "soon"], "timeout.*--help"),
        ([*RUN, "--figures"], "--figures.*--help"),
        (["walk"], "walk.*--help"),
        (["schema", "poem"], "poem.*--help"),
        (["samples", "draw", "dpo.toml", "-o", "out/tape"], "dpo.toml: ppo: missing; expected a"),
        (["samples", "draw", "beta.toml"], "output.*--help"),
        (["samples", "verify", "dpo.toml"], "dpo.toml: samples: missing; expected a recorded tape"),
        (["samples", "verify", "beta.safetensors"], "problem_digest: got .*expected that of a rec"),
        (["samples", "verify", "digest.safetensors"], "digest.safetensors: digest: got "),
    ],
)
def test_bad_usage_is_one_line(
    bad: Path, inside: Callable[..., Ran], arguments: list[str], said: str
) -> None:
    before = contents(bad)
    ran = inside(*arguments, cwd=bad)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1, ran.err
    assert ran.err.startswith("parity")
    assert re.search(said, ran.err), ran.err
    assert contents(bad) == before


def test_bad_usage_from_outside(bad: Path) -> None:
    """As above, where a process of its own says it."""
    before = contents(bad)
    for arguments, said in (
        ([*RUN, "nan.toml"], "parity: nan.toml: dpo.rate: got nan; expected float > 0.0\n"),
        (["schema"], "parity schema: Missing argument 'document'. Choose from: report, trace, "),
    ):
        ran = parity(*arguments, cwd=bad)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.err.splitlines()) == 1
        assert ran.err.startswith(said)
    assert contents(bad) == before


def test_no_arguments_is_help_and_bad_usage(tmp_path: Path) -> None:
    ran = parity(cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: parity" in ran.err


def test_an_interruption_while_it_still_loads_is_one_too() -> None:
    """The import of the command line itself is interrupted."""
    source = """
        import sys

        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "parity.cli.main":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        from parity.cli.start import main

        main()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "parity: interrupted\n")


def test_the_exit_code_survives_an_unwritable_terminal(bad: Path) -> None:
    """An exception on the way out must not look like a verdict, 1."""
    with Path("/dev/full").open("w") as full_disk:
        for arguments, code in ((["run", "no.toml"], 2), (["--wrong"], 2)):
            done = subprocess.run([PARITY, *arguments], cwd=bad, stderr=full_disk, check=False)
            assert done.returncode == code
        done = subprocess.run(
            [PARITY, "schema", "report"],
            cwd=bad,
            stdout=full_disk,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 3
