"""Clocks that jump: nothing is early, late, lost or refused for it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import coldhash
from coldhash import load
from commands import coldhash_in_process
from faults.conftest import AHEAD, JUMPING
from faults.world import experiment_facts, fit_of, model_facts

pytestmark = pytest.mark.slow

PACKAGE = Path(coldhash.__file__).parent
# who may know the time of day: the age of drafts (beside a lock), and what is written into logs
BY_THE_CLOCK = {
    ("files.py", "time.time"),
    ("serve/monitoring.py", "datetime.now"),
}


def test_nothing_waits_by_the_time_of_day():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                if name in ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow"):
                    found.add((str(path.relative_to(PACKAGE)), name))
    assert found == BY_THE_CLOCK


SAVES = """
import sys
from coldhash import load
model = load(sys.argv[1])
for _ in range(40):
    model.save(sys.argv[2])
"""


def test_savers_whose_clocks_differ_do_not_take_each_others_drafts(world, with_clock, tmp_path):
    command = [sys.executable, "-c", SAVES]
    place = tmp_path / "m"
    savers = [
        subprocess.Popen([*command, str(world / name), str(place)], env=environment)
        for name, environment in (("one", None), ("two", os.environ | with_clock(AHEAD)))
    ]
    assert [saver.wait() for saver in savers] == [0, 0]
    assert place.read_bytes() in [(world / name).read_bytes() for name in ("one", "two")]
    assert not list(tmp_path.glob(".m.*"))


def test_a_server_whose_clock_jumps_answers_and_swaps(
    live, model_files, put_file, version_of, with_clock, tmp_path
):
    served = tmp_path / "served.coldhash"
    put_file(model_files["a"], served)
    server = live(served, **with_clock(JUMPING))
    for letter in "bab":
        put_file(model_files[letter], served)
        server.until_version(version_of(model_files[letter]))  # no signal: it looks by itself
        for age in range(20, 40):  # over one connection, which is kept
            answer = server.client.post("/v1/recommend", json={"user": {"age": age}})
            assert answer.status_code == 200
            assert {item["item_id"][0] for item in answer.json()["items"]} == {letter}


def test_an_experiment_and_a_fit_are_the_same_by_any_clock(world, with_clock, tmp_path):
    results = []
    for name, n_jobs in (("right", 1), ("jumping", 2)):
        folder = tmp_path / name
        folder.mkdir()
        for arguments in (
            [*fit_of(world), "--out", folder / "m"],
            ["experiment", world / "plan.toml", "--out", folder / "out", "-j", n_jobs],
        ):
            if name == "right":
                run = coldhash_in_process(*arguments)
            else:
                command = [sys.executable, "-m", "coldhash", *map(str, arguments)]
                environment = os.environ | with_clock(JUMPING)
                run = subprocess.run(command, capture_output=True, env=environment)
            assert run.returncode == 0, run.stderr
        load(folder / "m")
        results.append((model_facts(folder / "m"), experiment_facts(folder)))
    assert results[0] == results[1]
