"""A few of the kills of `benchmarks/bench_kills.py`, which makes two hundred of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

N_KILLS = 2  # of each of four jobs


def test_a_killed_job_leaves_nothing_damaged_and_ends_the_same_when_started_again():
    """In a process of its own: jobs are forked, from one that has started no threads."""
    command = [sys.executable, "-m", "faults.kills", str(N_KILLS)]
    tests = Path(__file__).parents[1]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tests)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["kills"] == 4 * N_KILLS
    for what in ("corrupt", "stuck", "different"):
        assert found.get(what, 0) == 0, run.stderr
