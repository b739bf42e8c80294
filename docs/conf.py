"""Settings of the site: `make docs`, into build/site.

Pages are Markdown; those of the API are made from docstrings.

What is public is said in reference.md, and nowhere else.
"""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import coldhash

HERE = Path(__file__).parent
ROW = re.compile(r"^\| `(coldhash[\w.]*)` \| (.*?) \|", re.MULTILINE)

project = "coldhash"
version = release = coldhash.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# the source is the root of the project, so that links are the same as in the repository
include_patterns = ["*.md", "docs/*.md", "docs/api/*.rst", "experiments/*.md"]
root_doc = "docs/index"
html_theme = "furo"
html_title = f"coldhash {release}"
html_copy_source = False
myst_heading_anchors = 4
default_role = "code"  # docstrings have Markdown's single backticks
napoleon_google_docstring = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"


def public_names() -> dict[str, list[str]]:
    """Return the public names of each public module, from reference.md."""
    text = (HERE / "reference.md").read_text(encoding="utf-8")
    return {module: re.findall(r"`(\w+)`", names) for module, names in ROW.findall(text)}


def write_api_pages(app: Sphinx) -> None:
    """Write a page for each public module, and a list of them."""
    folder = HERE / "api"
    shutil.rmtree(folder, ignore_errors=True)  # pages of modules that are gone
    folder.mkdir()
    names = public_names()
    for module, public in names.items():
        parts = [f"{module}\n{'=' * len(module)}", f".. py:module:: {module}"]
        for name in public:
            value = getattr(import_module(module), name)
            kind = "class" if isclass(value) else "function" if isfunction(value) else None
            parts.append(f".. auto{kind}:: {module}.{name}" if kind else f".. py:data:: {name}")
        (folder / f"{module}.rst").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    listed = "\n   ".join(names)
    text = f"API\n===\n\n.. toctree::\n\n   {listed}\n"
    (folder / "index.rst").write_text(text, encoding="utf-8")


def name_targets(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn HTML anchors, which GitHub takes, into targets of MyST."""
    source[0] = re.sub(r'^<a id="([\w-]+)"></a>$', r"(\1)=", source[0], flags=re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Make the API pages before the others are read; diagrams are shown as their text."""
    app.connect("builder-inited", write_api_pages)
    app.connect("source-read", name_targets)
    app.add_lexer("mermaid", TextLexer)
