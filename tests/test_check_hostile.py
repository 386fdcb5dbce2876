"""Functions that misbehave: a clear message, the documented exit code, no process left behind."""

import os
import re
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers_check import convention
from helpers_cli import Ran
from parity.checks import Target, check_all
from parity.errors import BackendError, InputError, ParityError
from parity.judging import CheckReport

PATIENCE = 240.0  # seconds for what takes ten, on a busy machine

# name: (source of a DPO loss, exit code, what the message says)
TORCH: dict[str, tuple[str, int, str]] = {
    "too_few_arguments": ("def f(logits): return logits.sum()", 2, r"no argument takes beta"),
    "no_arguments": ("def f(): return 1.0", 2, r"found f\(\); expected arguments among logits"),
    "unknown_argument": ("def f(logits, beta, magic): return 0", 2, r"'magic' is none of our"),
    "star_arguments": ("def f(*args): return 0", 2, r"found f\(\*args\)"),
    "missing": ("def g(logits, beta): return 0", 2, r"has no f"),
    "not_callable": ("f = 3", 2, r"got int, which cannot be called"),
    "syntax": ("def f(:", 2, r"cannot be imported: SyntaxError"),
    "import_raises": ("raise RuntimeError('at import')", 2, r"RuntimeError: at import"),
    "import_exits": ("import sys; sys.exit(0)", 2, r"cannot be imported: SystemExit"),
    "builtin": ("f = max", 2, r"no signature|none of our inputs|no argument"),
    "returns_none": ("def f(logits, reference, chosen, rejected, beta): pass", 1, "NoneType"),
    "returns_text": (
        "def f(logits, beta): return 'loss'",
        1,
        "returned str; expected torch.Tensor",
    ),
    "returns_list": ("def f(logits, beta): return [logits.sum()]", 1, "returned list"),
    "returns_dict": ("def f(logits, beta): return {'loss': logits.sum()}", 1, "returned dict"),
    "returns_float": ("def f(logits, beta): return logits.sum().item()", 1, "returned float"),
    "returns_numpy": (
        "def f(logits, beta): return logits.detach().numpy().sum()",
        1,
        "numpy.float",
    ),
    "returns_complex": ("def f(logits, beta): return logits.sum() * 1j", 1, "complex64; expected"),
    "returns_integer": ("def f(logits, beta): return logits.sum().long()", 1, "int64; expected"),
    "returns_bool": ("def f(logits, beta): return logits.sum() > 0", 1, r"and bool; expected"),
    "returns_half": ("def f(logits, beta): return logits.sum().half()", 1, "float16; expected"),
    "returns_vector": ("def f(logits, beta): return logits * 2", 1, r"shape \[3\].*--reduction"),
    "returns_coroutine": ("async def f(logits, beta): return logits.sum()", 1, "coroutine"),
    "returns_generator": ("def f(logits, beta): yield logits.sum()", 1, "returned generator"),
    "returns_nan": (
        "def f(logits, beta): return logits.sum() * float('nan')",
        1,
        "dpo/loss: .*NaN",
    ),
    "detached": ("def f(logits, beta): return logits.detach().sum()", 1, "carries no gradient"),
    "calls_backward": (
        """
        def f(logits, beta):
            loss = logits.sum() * beta
            loss.backward()
            return loss
        """,
        1,
        "backward|second time|freed|dpo/loss",
    ),
    "raises": (
        "def f(logits, beta): raise ValueError('two\\nlines')",
        1,
        r"ValueError: two lines at",
    ),
    "raises_what_no_file_holds": (
        "def f(logits, beta): raise ValueError('\\ud800 \\x1b[31m \\0')",
        1,
        r"ValueError: \\ud800 \\x1b\[31m \\x00 at",
    ),
    "raises_what_has_no_words": (
        """
        class Mute(Exception):
            def __str__(self): raise RuntimeError("in str")
        def f(logits, beta): raise Mute
        """,
        1,
        r"^in float32: raised Mute at",
    ),
    "is_called_what_no_file_holds": (
        """
        Odd = type("Odd\\x1b", (), {})
        def f(logits, beta, unused="\\ud800"): return Odd()
        f.__name__, f.__doc__ = "\\ud800", "\\ud800"
        """,
        1,
        r"returned _parity_target_.*Odd\\x1b; expected torch",
    ),
    "default_has_no_words": (
        """
        class Mute:
            def __repr__(self): raise RuntimeError("in repr")
        def f(logits, beta, unused=Mute()): return logits.sum()
        """,
        2,
        "has no signature that Python can read",
    ),
    "prints_what_no_file_holds": (
        "def f(logits, beta): os.write(1, b'\\xff\\x1b'); return logits.sum()",
        1,
        r"note: prints while it computes: '.*\\x1b'",
    ),
    "raises_base": ("def f(logits, beta): raise KeyboardInterrupt", 1, "raised KeyboardInterrupt"),
    "exits": ("import sys\ndef f(logits, beta): sys.exit(0)", 1, "raised SystemExit: 0"),
    "recurses": ("def f(logits, beta): return f(logits, beta)", 1, "raised RecursionError"),
    "asks_for_input": ("def f(logits, beta): return float(input())", 1, "raised EOFError"),
    "raises_in_its_gradient": (
        """
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x.sum()
            @staticmethod
            def backward(ctx, g): raise ArithmeticError("no way back")
        def f(logits, beta): return Bad.apply(logits)
        """,
        1,
        "differentiating it raised ArithmeticError: no way back",
    ),
    "changes_inputs": (
        "def f(logits, beta): logits.mul_(2); return logits.sum()",
        1,
        "changed its input logits in place",
    ),
    "changes_indices": (
        "def f(logits, chosen, beta): chosen.fill_(0); return logits[chosen].mean()",
        1,
        "changed its input chosen in place",
    ),
    "seeds": ("def f(logits, beta): torch.manual_seed(0); return logits.sum()", 1, "random state"),
    "draws": ("def f(logits, beta): return (logits * torch.rand(3)).sum()", 1, "torch's random"),
    "changes_default_dtype": (
        "def f(logits, beta): torch.set_default_dtype(torch.float64); return logits.sum()",
        1,
        "changed torch's default dtype",
    ),
    "changes_gradient_mode": (
        "def f(logits, beta): y = logits.sum(); torch.set_grad_enabled(False); return y",
        1,
        "changed torch's gradient mode",
    ),
    "changes_folder": (
        "def f(logits, beta): os.chdir('/'); return logits.sum()",
        1,
        "current folder",
    ),
    "allocates": (
        "def f(logits, beta): return torch.ones(10**12).sum() * logits.sum()",
        1,
        "raised (RuntimeError|MemoryError)",
    ),
    "prints": (
        "def f(logits, beta): print('hello'); return logits.sum()",
        1,
        "note: prints while it computes: 'hello'",
    ),
    "writes_to_stdout": (
        "def f(logits, beta): os.write(1, b'{\"done\": 0}\\n'); return logits.sum()",
        1,
        "note: prints while it computes: '{\"done\": 0}'",
    ),
    "spawns_threads": (
        """
        def f(logits, beta):
            threading.Thread(target=threading.Event().wait, name="mine").start()
            return logits.sum()
        """,
        1,
        "note: leaves 1 threads|note: leaves",
    ),
    "forks": (
        "def f(logits, beta): os.fork(); return logits.sum()",
        1,
        "dpo/loss",
    ),
}

# Without a framework, so that a worker starts at once: name: (source, exit code, message)
DEADLY: dict[str, tuple[str, int, str]] = {
    "leaves": ("def f(logits, beta): os._exit(0)", 3, "ended before its jobs were done"),
    "leaves_with_code": ("def f(logits, beta): os._exit(7)", 3, "crashed with exit code 7"),
    "kills_itself": ("def f(logits, beta): os.kill(os.getpid(), 9)", 3, "killed by SIGKILL"),
    "hangs": (
        "def f(logits, beta):\n    while True: pass",
        3,
        "no answer within",
    ),
    "hangs_at_import": ("import time; time.sleep(1000)", 3, "no answer within"),
    "starts_a_process": (
        "def f(logits, beta): subprocess.Popen(['sleep', '997']); os._exit(1)",
        3,
        "crashed with exit code 1",
    ),
}


def write(folder: Path, name: str, source: str, *, framework: str = "") -> str:
    head = "import os, subprocess, sys, threading\n" + (
        f"import {framework}\n" if framework else ""
    )
    (folder / f"{name}.py").write_text(head + textwrap.dedent(source) + "\n")
    return f"{folder / name}.py:f"


def told(result: CheckReport | ParityError) -> tuple[int, str]:
    """The exit code and all that is said."""
    if isinstance(result, InputError):
        return 2, str(result)
    if isinstance(result, BackendError):
        return 3, str(result)
    assert isinstance(result, CheckReport)
    notes = " ".join(f"note: {note}" for note in result.notes)
    first = result.first
    cell = f"{first.quantity}: {first.entry.left}" if first else ""
    return int(result.verdict != "match"), f"{result.fault} {cell} {notes}"


def silent(_who: str, _stage: str) -> None:
    pass


def processes_of(folder: Path) -> list[str]:
    """Processes whose command line names the folder, or a tell-tale sleep, a moment later."""
    for _ in range(50):
        if not (found := _processes_of(folder)):
            break
        time.sleep(0.1)
    return found


def _processes_of(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if "sleep 997" in line or str(folder) in line:
                found.append(line)
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """All targets that leave the process alive, in one process a dtype."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("hostile")
    targets = [
        Target(
            write(folder, name, source, framework="torch"),
            "dpo",
            framework="torch",
            convention=convention(),
        )
        for name, (source, _, _) in TORCH.items()
    ]
    results = check_all(targets, PATIENCE, silent, quick=True)
    return dict(zip(TORCH, map(told, results), strict=True))


@pytest.mark.parametrize("name", TORCH)
def test_misbehaviour_is_told(name: str, outcomes: dict[str, tuple[int, str]]) -> None:
    _, code, pattern = TORCH[name]
    found, text = outcomes[name]
    assert found == code, text
    assert "\n" not in text
    assert re.search(pattern, text), text


@pytest.mark.parametrize("name", DEADLY)
def test_a_death_is_told_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    source, code, pattern = DEADLY[name]
    target = Target(write(tmp_path, name, source), "dpo", framework="numpy")
    patience = 1.5 if "hang" in name else PATIENCE
    start = time.monotonic()
    with pytest.raises(BackendError, match=pattern) as caught:
        check_all([target], patience, silent, quick=True)
    assert told(caught.value)[0] == code
    assert name in str(caught.value)
    assert time.monotonic() - start < patience + 20
    assert processes_of(tmp_path) == []


def test_the_command_ends_with_the_documented_codes(
    inside: Callable[..., Ran], tmp_path: Path
) -> None:
    codes: dict[str, Any] = {
        "fails": ("def f(logits, beta): raise ValueError('no')", 1),
        "refused": ("def f(logits): return 0", 2),
        "dies": ("def f(logits, beta): os._exit(0)", 3),
    }
    for name, (source, code) in codes.items():
        target = write(tmp_path, name, source)
        ended = inside("check", target, "--objective", "dpo", "--quick", cwd=tmp_path)
        assert ended.code == code, ended.err
        assert "Traceback" not in ended.err + ended.out
