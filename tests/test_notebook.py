"""The notebook runs from top to bottom in a kernel of its own, and its tables are filled."""

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "lesson.ipynb"
PATIENCE = 600  # seconds a cell, on a busy machine; all of it takes about twenty


@pytest.fixture(autouse=True)
def _no_profile_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))


def test_the_notebook_is_committed_without_outputs() -> None:
    document = nbformat.read(NOTEBOOK, as_version=nbformat.NO_CONVERT)
    nbformat.validate(document)
    for cell in document.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_it_calls_public_names_only() -> None:
    code = "\n".join(cell.source for cell in nbformat.read(NOTEBOOK, 4).cells)
    assert "._" not in code
    assert "import _" not in code


def test_its_cells_run_in_order(tmp_path: Path) -> None:
    document = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(document, timeout=PATIENCE, kernel_name="python3")
    client.execute(cwd=str(tmp_path))  # a cell that raises is an error here
    told = "".join(
        output.text
        for cell in document.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    )
    for words in (
        "verdict: match",  # lesson 04, run anew
        "policy: changes inside rollouts",
        "0.082282",  # card: KL((0.7, 0.3) to (0.5, 0.5)), 0.082283 nats
        "1.79879",  # lesson 04, recorded output: the optimum's objective
    ):
        assert words in told
