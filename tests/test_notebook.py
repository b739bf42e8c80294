"""The example notebook runs from top to bottom and shows what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FILE = EXAMPLES / "shop.ipynb"
DATA = Path(os.environ.get("COLDHASH_DATA", "nowhere"))
REAL = pytest.mark.skipif(
    not (DATA / "complete-journey.zip").exists(),
    reason="COLDHASH_DATA names no folder with complete-journey.zip",
)


def code_cells(file: Path) -> list[dict]:
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def outputs(file: Path) -> dict[str, str]:
    """What each cell shows, by its code; nothing may be written to stderr."""
    found = {}
    for cell in code_cells(file):
        said = [str(each.get("text", each.get("data"))) for each in cell["outputs"]]
        assert "stderr" not in [each.get("name") for each in cell["outputs"]], said
        found["".join(cell["source"])] = "".join(said)
    return found


def test_figures_and_results_are_stored_in_it():
    assert sum("image/png" in shown for shown in outputs(FILE).values()) == 4
    numbers = [cell["execution_count"] for cell in code_cells(FILE)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("data", ["made up", pytest.param("real", marks=REAL)])
def test_every_cell_runs(tmp_path, data):
    folder = str(DATA) if data == "real" else str(tmp_path)
    out = tmp_path / "run.ipynb"
    # in a process of its own: the notebook libraries warn, and warnings are errors here
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / "run_notebook.py"), str(FILE), str(out)],
        env=os.environ | {"COLDHASH_DATA": folder},
        capture_output=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stderr
    shown = "".join(outputs(out).values())
    assert "the popular items, as nothing usable is known: user 0" in shown
    assert "the same answer: True" in shown
    assert shown.count("image/png") == 4
