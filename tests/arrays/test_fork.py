"""A process forked from one that has fitted or answered goes on, with the same results."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# what is compared: answers to more people than are answered by one thread, and a second fit
COMMON = """
import hashlib, os, sys, warnings
warnings.simplefilter("ignore")
import numba
from coldhash import MFDCF, load, read

data = read("sample", n_users=300, n_items=100)
people = [{"age": age, "gender": ("female", "male")[age % 2]} for age in range(10, 90)] * 3

def answers(model):
    found = model.recommend(people, k=10, threads=2)
    return hashlib.sha256(repr((found.item_ids, found.scores.tobytes())).encode()).hexdigest()

def fit():
    return MFDCF(n_bits=16, n_rounds=2).fit(data)
"""

MULTIPROCESSING = (
    COMMON
    + """
import multiprocessing
model = fit()
here = answers(model)

def work(n):
    return answers(model if n % 2 else fit())

with multiprocessing.get_context("fork").Pool(2) as pool:
    there = pool.map_async(work, range(4)).get(300)
assert there == [here] * 4, (here, there)
assert fit().name and answers(model) == here  # the parent still has its threads
print(numba.threading_layer())
"""
)

PRELOADED = (
    COMMON
    + """
fit().save(sys.argv[1])
model = load(sys.argv[1])  # gunicorn --preload: the master loads, workers are forked from it
here = answers(model)
for _ in range(2):
    read_end, write_end = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(write_end, answers(model).encode())
        os._exit(0)
    os.close(write_end)
    there = os.read(read_end, 1000).decode()
    _, status = os.waitpid(worker, 0)
    assert status == 0 and there == here, (status, here, there)
print(numba.threading_layer())
"""
)


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
@pytest.mark.parametrize("script", [MULTIPROCESSING, PRELOADED], ids=["multiprocessing", "preload"])
def test_forked_processes_fit_and_answer_the_same(script, layer, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.coldhash")],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"},
        timeout=400,
    )
    if layer == "omp" and "No threading layer could be loaded" in run.stderr:
        pytest.skip("OpenMP is not installed")
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [layer]
