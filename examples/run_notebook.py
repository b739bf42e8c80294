"""Run a notebook and write it with its outputs: `python examples/run_notebook.py IN OUT`."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main(source: Path, out: Path) -> None:
    """Run every cell in the folder of the notebook; the first error ends it."""
    notebook = nbformat.read(source, as_version=4)
    place = {"metadata": {"path": str(source.parent)}}
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources=place, record_timing=False
    ).execute()
    notebook.metadata.language_info = {"name": "python"}  # no version of this machine
    nbformat.write(notebook, out)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
