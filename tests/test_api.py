"""What `import parity` offers: little, typed, and nothing before it is asked for."""

import subprocess
import sys
import textwrap
import typing
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import parity
from parity.comparison import Verdict
from parity.errors import InputError
from parity.judging import CheckReport
from parity.problem import Problem
from parity.report import LessonReport
from parity.samples import Samples
from parity.trace import Trace

LESSON = "posttraining-05"
PATIENCE = 600.0  # seconds for what takes ten, on a busy machine


def test_what_is_exported() -> None:
    assert parity.__all__ == sorted(parity.__all__)
    assert set(parity.__all__) <= set(dir(parity))
    for name in parity.__all__:
        assert getattr(parity, name) is not None
    assert (parity.Problem, parity.Samples, parity.Trace) == (Problem, Samples, Trace)
    assert parity.Verdict == Verdict
    for function in (parity.run, parity.check, parity.compare, parity.load_trace):
        assert callable(function)
        assert "return" in typing.get_type_hints(function)
        assert function.__doc__
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        _ = parity.magic


def alone(source: str) -> str:
    """What a fresh interpreter prints."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return ended.stdout.strip()


def test_importing_it_loads_nothing() -> None:
    heavy = "{'numpy', 'msgspec', 'safetensors', 'jax', 'torch', 'matplotlib', 'typer'}"
    assert alone(f"import sys, parity; print(sorted({heavy} & sys.modules.keys()))") == "[]"


@pytest.mark.parametrize("before", [True, False])
def test_no_module_takes_the_place_of_a_function(before: bool) -> None:
    """Importing a module sets it on its package: no module bears the name of a function."""
    exported = ("check", "compare", "run")
    modules = [path.stem for path in Path(parity.__file__).parent.glob("*.py")]
    assert not {*exported} & {*modules}
    imports = ["import parity.runs, parity.checks, parity.comparison, parity.gate, parity.api"]
    first = [f"import parity; parity.{name}" for name in exported]
    lines = imports + first if before else first + imports
    for name in exported:
        lines.append(f"print(callable(parity.{name}))")
        lines += [f"from parity import {name}", f"print(callable({name}))"]
    assert alone("\n".join(lines)).split() == ["True"] * 6


def test_run_refuses_another_precision() -> None:
    with pytest.raises(InputError, match="dtype: got 'float16'; expected float32 or float64"):
        parity.run(LESSON, dtype="float16")


def test_compare(trace_of: Callable[..., Trace], problems: dict[str, Problem]) -> None:
    jax, torch = (trace_of(LESSON, name) for name in ("jax", "torch"))
    report = parity.compare(LESSON, jax, torch)
    assert isinstance(report, LessonReport)
    assert report.verdict == "match"
    assert {c.mode for c in report.comparisons} == {"step", "trajectory"}
    assert parity.compare(problems[LESSON], torch).verdict == "match"
    moved = torch["dpo/loss"].copy()
    moved[7] *= 1.01
    quantities = dict(torch.quantities)
    quantities["dpo/loss"] = type(quantities["dpo/loss"])("dpo/loss", ("update",), "value", moved)
    changed = Trace("torch", torch.dtype, quantities, torch.problem_digest)
    broken = parity.compare(LESSON, jax, changed)
    assert broken.verdict == "divergent"
    assert broken.blamed == ["torch"]
    assert broken.first_divergence is not None
    assert broken.first_divergence.at == {"update": 7}


@pytest.mark.parametrize(
    ("lesson", "count", "message"),
    [
        (LESSON, 0, "traces: got none; expected at least one"),
        (LESSON, 2, "got implementations jax, jax; expected different names"),
        ("posttraining-04", 1, "traces: jax: problem_digest: got "),
    ],
)
def test_what_compare_refuses(
    lesson: str, count: int, message: str, trace_of: Callable[..., Trace]
) -> None:
    with pytest.raises(InputError) as refused:
        parity.compare(lesson, *[trace_of(LESSON, "jax")] * count)
    assert message in str(refused.value)


LOSS = """
import numpy as np

def loss(chosen_scores, rejected_scores):
    return np.mean(np.logaddexp(0, rejected_scores - chosen_scores))
"""


def test_check_takes_a_name_or_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_user").mkdir()
    (tmp_path / "of_a_user" / "losses.py").write_text(LOSS)
    monkeypatch.syspath_prepend(tmp_path)
    by_name = parity.check("of_a_user.losses:loss", "preference", quick=True)
    assert isinstance(by_name, CheckReport)
    assert by_name.verdict == "match"
    given = parity.check(import_module("of_a_user.losses").loss, "preference", quick=True)
    assert (given.verdict, given.target) == ("match", "of_a_user.losses:loss")
    with pytest.raises(InputError, match="expected a function at the top of a module"):
        parity.check(lambda: 0, "dpo")
