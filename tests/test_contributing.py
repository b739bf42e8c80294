"""The worked example of CONTRIBUTING.md works: a method in one file and one line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE, LINE = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
NAME = "likeness"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The project with the file written and the line added, as the text says."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, folder / part)  # compiled kernels too
    for part in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / part, folder / part)
    file = f"src/coldhash/baselines/{NAME}.py"
    assert f"`{file}`" in TEXT
    (folder / file).write_text(FILE, encoding="utf-8")
    registry = folder / "src" / "coldhash" / "registry.py"
    table, head = registry.read_text(encoding="utf-8"), "_CLASSES = {\n"
    assert head in table
    registry.write_text(table.replace(head, head + LINE), encoding="utf-8")
    return folder


def run(copy: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=copy,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_keeps_the_contract_and_its_example_runs(copy):
    file = f"src/coldhash/baselines/{NAME}.py"
    tests = ("tests/test_contract.py", "tests/test_architecture.py", "--doctest-modules", file)
    told = run(copy, "pytest", *tests, "-k", NAME, "-q", "-p", "no:cacheprovider", "-rp")
    for expected, count in (("test_contract", 10), ("test_architecture", 1), (f"{NAME}.py::", 1)):
        assert len(re.findall(rf"^PASSED .*{expected}", told, re.MULTILINE)) >= count


def test_it_is_written_as_we_write(copy):
    run(copy, "ruff", "check", "src/coldhash/baselines", "src/coldhash/registry.py")
    run(copy, "ruff", "format", "--check", "src/coldhash/baselines")


COMMANDS = """
import sys
from coldhash.cli import app
for line in sys.argv[1:]:
    print("$", line, flush=True)
    app(line.split(), standalone_mode=False)
"""


def test_the_command_line_knows_it_and_judges_it(copy):
    (copy / "commands.py").write_text(COMMANDS, encoding="utf-8")
    told = run(
        copy, "commands",
        f"fit --dataset sample --model {NAME} --set contrast=0.8 --out m.coldhash",
        'recommend m.coldhash --user {"age":34} -k 3',
        "inspect m.coldhash",
        f"evaluate --dataset sample --models {NAME},popularity --splits 1",
    )  # fmt: skip
    _, _, answer, facts, judged = told.split("$ ")
    assert len(answer.strip().splitlines()) == 4  # the command and three lines
    assert NAME in facts
    assert "ahead" in judged  # what is known of strangers must be worth something
