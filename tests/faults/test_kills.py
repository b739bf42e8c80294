"""A few of the kills of `benchmarks/bench_kills.py`, which makes two hundred of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from faults.conftest import BENCHMARKS

pytestmark = pytest.mark.slow


N_KILLS = 3  # of each of four jobs


def test_a_killed_job_leaves_nothing_damaged_and_ends_the_same_when_started_again(tmp_path):
    script, out = str(BENCHMARKS / "bench_kills.py"), tmp_path / "kills.json"
    command = [sys.executable, script, "--kills", str(N_KILLS), "--out", str(out)]
    run = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert out.exists(), run.stderr
    found = {
        row["what"].split(" / ")[0]: row["ours"]
        for row in json.loads(out.read_text(encoding="utf-8"))["rows"]
    }
    assert found["kills that hit a running job"] == 4 * N_KILLS
    for what in ("corrupt files", "restarts that did not complete", "restarts with another result"):
        assert found[what] == 0, run.stderr
