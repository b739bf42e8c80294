"""A module imports only from stages above it, and importing the package is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import coldhash

PACKAGE = Path(coldhash.__file__).parent
STAGES = """errors files render arrays data partitions features search recommender scale mfdcf
baselines registry evaluate update serve lab cli __main__""".split()
HEAVY = {"numpy", "scipy", "numba", "pyarrow", "pydantic", "typer", "rich"}


def stage_of(module: str) -> int:
    return STAGES.index(module.split(".")[1])


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def module_files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", module_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_stage_imports_only_from_stages_above_it(path):
    own = "coldhash." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] == "coldhash" and len(parts) > 1 and parts[1] != "__version__":
            assert stage_of(module) <= stage_of(own), f"{own} imports {module}"


def test_every_stage_exists():
    names = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in module_files()}
    assert names == set(STAGES)


def test_files_are_replaced_and_locked_in_one_place():
    users = {
        path.name
        for path in module_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.replace", "fcntl.flock")
    }
    assert users == {"files.py"}


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    return set(run.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_after("import coldhash") & HEAVY


def test_help_loads_only_what_parses_the_command_line():
    assert loaded_after("import coldhash.cli") & HEAVY == {"typer"}
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "coldhash", "--help"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in run.stderr.splitlines()}
    assert "describe" in run.stdout
    assert loaded & HEAVY == {"typer"}


def test_one_answer_on_the_command_line_loads_neither_numba_nor_scipy(tmp_path):
    model = coldhash.MFDCF(n_bits=32).fit(coldhash.read("sample", n_users=200, n_items=60))
    model.save(tmp_path / "m.coldhash")
    person = '{"age": 30, "history": {"7": 5, "12": 1}}'
    command = ["coldhash", "recommend", str(tmp_path / "m.coldhash"), "--user", person, "--json"]
    command += ["--where", "genres=comedy", "--where", 'year={"min": 1990}']
    code = f"import sys\nfrom coldhash.cli import main\nsys.argv = {command}\nmain()\n"
    loaded = loaded_after(f"try:\n  exec({code!r})\nexcept SystemExit:\n  pass")
    assert "pyarrow" in loaded
    assert not loaded & {"numba", "scipy", "pandas"}


def leaves_the_encoding_to_the_locale(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    given = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
    modes = [each.value for each in call.args if isinstance(each, ast.Constant)]
    as_text = name == "open" and (isinstance(call.func, ast.Name) or {"w", "a", "x"} & {*modes})
    if as_text and any("b" in str(mode) for mode in modes[-1:]):
        return False
    return "encoding" not in given and bool(
        as_text or name in ("read_text", "write_text") or given.get("text") is True
    )


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_no_text_depends_on_the_locale(folder):
    found = [
        f"{path}:{node.lineno}"
        for path in (Path(__file__).parents[1] / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and leaves_the_encoding_to_the_locale(node)
    ]
    assert found == []
