"""Make the pages of the API reference: `make docs`, into build/api.

What is public is said in reference.md, and nowhere else: the pages hold those names and no others.
"""

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
ROW = re.compile(r"^\| `(coldhash[\w.]*)` \| (.*?) \|", re.MULTILINE)


def public_names() -> dict[str, list[str]]:
    """Read the public names of each public module."""
    text = (HERE / "reference.md").read_text(encoding="utf-8")
    return {module: re.findall(r"`(\w+)`", names) for module, names in ROW.findall(text)}


def make_pages(out: Path) -> None:
    """Write a page for each public module, and one to start from; a warning is an error."""
    import pdoc

    names = public_names()
    for module, public in names.items():
        import_module(module).__all__ = public  # type: ignore[attr-defined]
    pdoc.render.configure(docformat="numpy", show_source=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # the root brings every module of the package along: leave those out, then name the public
        pdoc.pdoc("coldhash", r"!coldhash\..*", *list(names)[1:], output_directory=out)


if __name__ == "__main__":
    make_pages(Path(sys.argv[1]))
