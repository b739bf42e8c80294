"""More threads and processes than cores: slower, and the same to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.world import model_facts

pytestmark = pytest.mark.slow

N = 8


CROWD = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numba
import numpy as np
from coldhash import load
model = load(sys.argv[1])
people = [{"age": age, "gender": ("female", "male")[age % 2]} for age in range(10, 90)] * 3
alone = model.recommend(people, k=10, threads=1)
with ThreadPoolExecutor(8) as pool:
    for crowded in pool.map(lambda n: model.recommend(people, k=10, threads=1 + n % 4), range(24)):
        assert crowded.item_ids == alone.item_ids
        np.testing.assert_array_equal(crowded.scores, alone.scores)
print(numba.threading_layer())
"""


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_eight_threads_get_the_same_answers_as_one(layer, world):
    """Also where OpenMP is not installed: numba's own threads end a process that shares them."""
    run = subprocess.run(
        [sys.executable, "-c", CROWD, str(world / "old")],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "8"},
    )
    if layer == "omp" and "No threading layer could be loaded" in run.stderr:
        pytest.skip("OpenMP is not installed")
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [layer]


FITS = """
import os, sys
from pathlib import Path
from coldhash import load
from faults.world import command, fit_of
world, out, n_processes = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
load(world / "old").recommend({"age": 30}, k=1, threads=1)  # imports, but starts no threads

def start(name):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            command(*fit_of(world), "--out", out / name)
            status = 0
        finally:
            os._exit(status)
    return child

def end(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

assert end(start("alone")) == 0
children = [start(f"m{n}") for n in range(n_processes)]
assert [end(child) for child in children] == [0] * n_processes
"""


def test_eight_processes_that_fit_at_once_fit_the_same(world, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", FITS, str(world), str(tmp_path), str(N)],
        capture_output=True,
        encoding="utf-8",
        cwd=Path(__file__).parents[1],
    )
    assert run.returncode == 0, run.stderr
    alone = model_facts(tmp_path / "alone")
    for n in range(N):
        assert model_facts(tmp_path / f"m{n}") == alone
