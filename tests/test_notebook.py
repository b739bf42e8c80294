"""The example notebook runs from top to bottom and shows what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "examples" / "strangers.ipynb"
# in a process of its own: the notebook libraries warn of themselves, and warnings are errors here
RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def code_cells(file: Path) -> list[dict]:
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_it_is_stored_without_outputs():
    assert [cell["outputs"] for cell in code_cells(FILE)] == [[]] * len(code_cells(FILE))
    assert all(cell["execution_count"] is None for cell in code_cells(FILE))


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> dict[str, str]:
    """What each cell shows, by a line of its code."""
    out = tmp_path_factory.mktemp("notebook") / "run.ipynb"
    run = subprocess.run(
        [sys.executable, "-c", RUN, str(FILE), str(out)], capture_output=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stderr
    found = {}
    for cell in code_cells(out):
        said = [str(each.get("text", each.get("data"))) for each in cell["outputs"]]
        found["".join(cell["source"])] = "".join(said)
        assert "stderr" not in [each.get("name") for each in cell["outputs"]], said
    return found


def output(shown: dict[str, str], part: str) -> str:
    (found,) = [text for code, text in shown.items() if part in code]
    return found


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_it_says(shown):
    assert "[True, True, False]" in output(shown, "Atlantis")
    assert "mfdcf is ahead" in output(shown, "splits=2")
    assert "image/png" in output(shown, "draw(")
    assert "the same answer: True" in output(shown, "ch.load")
