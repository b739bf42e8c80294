"""More threads and processes than cores: slower, and the same to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from faults.conftest import BENCHMARKS

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


FIT = """
import hashlib, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from bench_kills import command, fit_of, model_facts
world, out = Path(sys.argv[1]), Path(sys.argv[3])
command(*fit_of(world), "--out", out)
facts = model_facts(out)
print(hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest())
"""


def test_eight_processes_that_fit_at_once_fit_the_same(world, tmp_path):
    def fit(n):
        arguments = [world, BENCHMARKS, tmp_path / f"m{n}"]
        command = [sys.executable, "-c", FIT, *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, encoding="utf-8")
        assert run.returncode == 0, run.stderr
        return run.stdout.splitlines()[-1]

    alone = fit(0)
    with ThreadPoolExecutor(N) as pool:
        assert set(pool.map(fit, range(1, N + 1))) == {alone}
