"""The documents: every link leads somewhere, every page is found, every public name is shown."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import coldhash

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    places = (".", "docs", "experiments", "examples")
    return sorted(page for place in places for page in (ROOT / place).glob("*.md"))


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def links_of(page: Path) -> list[tuple[Path, str]]:
    """The files of the project that a page links to, and the headings within them."""
    found = []
    for target in LINK.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))):
        if "://" not in target:
            path, _, heading = target.partition("#")
            found.append(((page.parent / path).resolve() if path else page, heading))
    return found


def headings_of(page: Path) -> set[str]:
    """The anchors of a page, spelled as GitHub spells them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target, heading in links_of(page):
        assert target.exists(), f"{page.name} links to {target}"
        if heading:
            assert heading in headings_of(target), f"{page.name} links to {target.name}#{heading}"


def test_every_page_is_found_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            waiting += [target for target, _ in links_of(page) if target.is_file()]
    assert names(sorted(set(pages()) - reached)) == []


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == coldhash.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{coldhash.__version__}] - " in changes


def test_the_navigation_lists_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (tree,) = [code for _, code in FENCE.findall(index.replace("```{toctree}", "```toctree"))]
    listed = {(ROOT / "docs" / f"{line}.md").resolve() for line in tree.split("\n\n")[1].split()}
    assert names(sorted({*pages(), ROOT / "docs/api/index.md"} - listed)) == ["docs/index.md"]


def test_the_picture_is_that_of_the_results():
    picture = script("picture")
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.draw(picture.read_ratios())


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def script(name: str):
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PUBLIC = script("conf").public_names()
EVERY_NAME = [(module, name) for module, public in PUBLIC.items() for name in public]


def test_the_reference_names_the_root():
    assert sorted(PUBLIC["coldhash"]) == sorted(coldhash.__all__)
    assert len(EVERY_NAME) == len(set(EVERY_NAME))


@pytest.mark.parametrize(("module", "name"), EVERY_NAME)
def test_every_public_name_has_an_example(module, name):
    """Which is run by `tests/test_public_api.py`."""
    home = import_module(module)
    value = getattr(home, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert doctest.DocTestParser().get_examples(value.__doc__ or ""), f"no example of {name}"
    else:  # a table has no docstring: one of its module must use it
        tests = doctest.DocTestFinder().find(home)
        assert any(name in example.source for test in tests for example in test.examples)


def imports_in_documents() -> list[tuple[str, str, str]]:
    found = []
    # a new method, as CONTRIBUTING.md shows one, is inside: it may use what methods use
    for page in set(pages()) - {ROOT / "CONTRIBUTING.md"}:
        for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
            if language == "python":
                for node in ast.walk(ast.parse(code)):
                    if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "coldhash":
                        found += [(page.name, node.module, alias.name) for alias in node.names]
    return found


def test_what_the_documents_import_is_public():
    imports = imports_in_documents()
    assert imports
    assert [each for each in imports if each[2] not in PUBLIC.get(each[1], [])] == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """A link or an anchor that leads nowhere, or a page outside of the navigation, is one."""
    build = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--conf-dir", str(ROOT / "docs")]
    command = [sys.executable, *build, str(ROOT), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    for module, public in PUBLIC.items():
        page = (tmp_path / "docs" / "api" / f"{module}.html").read_text(encoding="utf-8")
        assert [name for name in public if f'id="{module}.{name}"' not in page] == []


def test_the_readmes_own_tables_are_read(tmp_path, monkeypatch):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = [code for _, code in FENCE.findall(readme) if "customer" in code]
    (tmp_path / "ratings.csv").write_text(
        "customer,sku,rating\n1,007,5\n2,007,3\n", encoding="utf-8"
    )
    (tmp_path / "users.csv").write_text("customer,city\n1,Oslo\n2,Bergen\n", encoding="utf-8")
    items = pa.table({"sku": ["007"], "title": ["Heat"]})
    pyarrow.parquet.write_table(items, tmp_path / "items.parquet")
    monkeypatch.chdir(tmp_path)
    names = {"ch": coldhash}
    exec(code, names)
    assert list(names["data"].ratings.items) == ["007"]
    assert names["data"].users.column_names == ["city"]
