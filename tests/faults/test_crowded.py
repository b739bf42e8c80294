"""More threads and processes than cores: slower, and the same to the bit."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from coldhash import load
from faults.conftest import BENCHMARKS

PEOPLE = [{"age": age, "gender": ("female", "male")[age % 2]} for age in range(10, 90)] * 3
N = 8


def test_eight_threads_get_the_same_answers_as_one(world):
    model = load(world / "old")
    alone = model.recommend(PEOPLE, k=10, threads=1)

    def ask(n):
        return model.recommend(PEOPLE, k=10, threads=1 + n % 4)

    with ThreadPoolExecutor(N) as pool:
        for crowded in pool.map(ask, range(3 * N)):
            assert crowded.item_ids == alone.item_ids
            np.testing.assert_array_equal(crowded.scores, alone.scores)


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


@pytest.mark.slow
def test_eight_processes_that_fit_at_once_fit_the_same(world, tmp_path):
    def fit(n):
        arguments = [world, BENCHMARKS, tmp_path / f"m{n}"]
        command = [sys.executable, "-c", FIT, *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        return run.stdout.splitlines()[-1]

    alone = fit(0)
    with ThreadPoolExecutor(N) as pool:
        assert set(pool.map(fit, range(1, N + 1))) == {alone}
