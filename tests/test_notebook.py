"""The notebook runs from top to bottom in a fresh process, and its tables are filled."""

import json
import subprocess
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).parents[1] / "docs" / "lesson.ipynb"


def test_the_notebook_is_committed_without_outputs() -> None:
    document = json.loads(NOTEBOOK.read_text())
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    identities = [cell["id"] for cell in document["cells"]]
    assert len(identities) == len(set(identities))
    for cell in document["cells"]:
        assert set(cell) >= {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_its_cells_run_in_order_in_a_fresh_process(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script = tmp_path / "cells.py"
    script.write_text("\n\n".join(code))
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    for told in (
        "verdict: match",  # lesson 04, run anew
        "policy: changes inside rollouts",
        "0.082282",  # card: KL((0.7, 0.3) to (0.5, 0.5)), 0.082283 nats
        "1.79879",  # lesson 04, recorded output: the optimum's objective
    ):
        assert told in ended.stdout
