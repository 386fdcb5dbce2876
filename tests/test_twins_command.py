"""`parity twins`: both sources side by side, read as data."""

import subprocess
import sys
from pathlib import Path

import pytest

from parity.cli.main import main
from parity.cli.show_twins import pairs, sources

ROOT = Path(__file__).parents[1]
FILES = ("reward", "ppo", "dpo", "reinforce", "mechanics")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["twins", *arguments])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


@pytest.mark.parametrize("file", FILES)
def test_every_line_of_both_is_there_in_order(file: str) -> None:
    jax, torch = sources(file)
    assert jax == (ROOT / "jax_impl" / f"{file}.py").read_text().splitlines()
    found = list(pairs(jax, torch))
    assert [pair.jax for pair in found if pair.jax is not None] == jax
    assert [pair.torch for pair in found if pair.torch is not None] == torch


def test_twin_lines_stand_against_each_other() -> None:
    beside = {
        pair.jax: pair.torch for pair in pairs(*sources("ppo")) if pair.place == "def ppo_loss"
    }
    assert beside["    clipped = jnp.clip(ratios, 1 - clip, 1 + clip)"] == (
        "    clipped = torch.clamp(ratios, 1 - clip, 1 + clip)"
    )
    assert beside["    old_logps = jax.lax.stop_gradient(old_logps)"] == (
        "    old_logps = old_logps.detach()"
    )
    assert None not in beside
    assert None not in beside.values()


@pytest.mark.parametrize("columns", [40, 80, 119, 120, 200])
@pytest.mark.parametrize("only_differences", [False, True])
def test_no_line_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    only_differences: bool,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = run(capsys, "ppo", *(["--diff"] if only_differences else []))
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns
    words = "".join(out.split())
    assert "jnp.clip(ratios,1-clip,1+clip)" in words
    assert "torch.clamp(ratios,1-clip,1+clip)" in words
    assert ("kl_penalty,Terms(ratios,surrogate" in words) is not only_differences


def test_diff_says_to_which_function_a_line_belongs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "ppo", "--diff")
    lines = out.splitlines()
    assert any(line.strip() == "def ppo_loss" for line in lines)
    assert lines.index("      def ppo_loss") < lines.index(
        "jax       clipped = jnp.clip(ratios, 1 - clip, 1 + clip)"
    )


def test_words_that_differ_are_highlighted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    _, out, _ = run(capsys, "ppo", "--diff")
    assert "\x1b[1;33mjnp.clip\x1b[0m(ratios, 1 - clip, 1 + clip)" in out
    assert "\x1b[1;33mtorch.clamp\x1b[0m(ratios, 1 - clip, 1 + clip)" in out


def test_an_unknown_file_is_one_line_that_lists_the_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run(capsys, "pqo")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "'pqo'" in err
    assert "ppo" in err


def test_neither_framework_nor_twin_is_imported() -> None:
    script = """
import sys
from parity.cli.main import main
try:
    main(["twins", "ppo"])
finally:
    loaded = {"jax", "torch", "numpy", "parity.jax_impl", "parity.torch_impl"} & set(sys.modules)
    print(sorted(loaded), file=sys.stderr)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ended.returncode == 0
    assert ended.stderr.strip() == "[]"
