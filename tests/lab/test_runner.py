"""Running: the same twice, going on after a kill, and failures that cost nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from coldhash.errors import SettingError
from coldhash.files import lock_file
from coldhash.lab.experiment import Experiment
from coldhash.lab.runner import read_runs, run_experiment

pytestmark = pytest.mark.slow

PLAN = """
name = "try"
datasets = ["sample"]
splits = 2
train_shares = [0.25]
scores = ["real", "hamming"]
shots = [0, 3]

[[models]]
model = "mfdcf"
grid = {n_bits = [16, 32]}

[[models]]
model = "popularity"
"""
TIMES = ("fit_seconds", "fit_parts", "judge_seconds")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "try.toml"
    path.write_text(PLAN, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def plan(plan_file):
    return Experiment.from_toml(plan_file)


@pytest.fixture(scope="module")
def whole_out(plan, tmp_path_factory):
    """An experiment that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    run_experiment(plan, None, out)
    return out


@pytest.fixture(scope="module")
def whole(whole_out):
    return runs_of(whole_out)


def runs_of(out: Path) -> dict[str, object]:
    """Return all that the files of runs hold, without times."""
    files = sorted((out / "try" / "runs").glob("*.parquet"))
    found: dict[str, object] = {path.name: pq.read_table(path).to_pylist() for path in files}
    for row in read_runs(files):
        plain = {n: v for n, v in row.items() if n not in (*TIMES, "users_file")}
        found[json.dumps(plain, sort_keys=True)] = row["users_file"].name
    return found


@pytest.fixture
def copy(whole_out, tmp_path):
    shutil.copytree(whole_out, tmp_path / "copy")
    return tmp_path / "copy"


def table_without_times(out: Path):
    table = pq.read_table(out / "try" / "results.parquet")
    return table.drop_columns([name for name in table.column_names if "seconds" in name])


def test_the_same_experiment_twice_is_the_same(plan, whole, whole_out, tmp_path):
    run_experiment(plan, None, tmp_path, jobs=2)
    assert runs_of(tmp_path) == whole
    assert table_without_times(whole_out).equals(table_without_times(tmp_path))
    assert len(list((tmp_path / "try" / "runs").iterdir())) == 2 * 3


def test_what_is_done_is_not_done_again(plan, copy):
    before = bytes_of_runs(copy)
    calls = []
    run_experiment(plan, None, copy, progress=lambda *each: calls.append(each))
    assert bytes_of_runs(copy) == before
    assert calls == [(6, 6, "")]


def bytes_of_runs(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "try" / "runs").glob("*.parquet")}


def test_killed_in_the_middle_it_goes_on_and_its_workers_are_gone(plan, plan_file, whole, tmp_path):
    out = tmp_path / "cut"
    arguments = ["experiment", str(plan_file), "--out", str(out), "-j", "2"]
    running = subprocess.Popen(
        [sys.executable, "-m", "coldhash", *arguments], stderr=subprocess.DEVNULL
    )
    wait_until(lambda: bytes_of_runs(out))
    workers = [int(pid) for pid in children_of(running.pid)]
    running.send_signal(signal.SIGKILL)
    running.wait()
    wait_until(lambda: not any(alive(pid) for pid in workers))
    done = bytes_of_runs(out)
    assert len(done) < 6, "it was not in the middle"
    run_experiment(plan, None, out)
    assert runs_of(out) == whole
    assert done.items() <= bytes_of_runs(out).items(), "what was done was done again"


def test_a_run_that_fails_is_named_and_what_was_finished_is_kept(tmp_path):
    bad = {"model": "popularity", "label": "bad", "scores": ["hamming"]}
    broken = Experiment.model_validate(
        {"name": "try", "splits": 1, "models": [{"model": "popularity"}, bad]}
    )
    with pytest.raises(SettingError, match=r"^bad, sample, split 0: .*no question"):
        run_experiment(broken, None, tmp_path)
    kept = read_runs((tmp_path / "try" / "runs").iterdir())
    assert [row["label"] for row in kept] == ["popularity"]


def test_a_model_without_codes_is_not_asked_for_hamming_distances_alone(tmp_path):
    plan = Experiment(name="try", splits=1, scores=["hamming"], models=[{"model": "popularity"}])
    with pytest.raises(SettingError, match=r"^popularity, .* answers no question"):
        run_experiment(plan, None, tmp_path)


def test_one_process_at_a_time(plan, tmp_path):
    held = lock_file(tmp_path / "try" / ".lock")
    with held, pytest.raises(SettingError, match="another process"):
        run_experiment(plan, None, tmp_path)


def test_jobs_must_be_some(plan, tmp_path):
    with pytest.raises(SettingError, match="jobs=0"):
        run_experiment(plan, None, tmp_path, jobs=0)


def test_stamped_with_settings_versions_and_machine_but_not_its_name(whole_out):
    files = list((whole_out / "try" / "runs").iterdir())
    row = next(read_runs(files))
    assert {"coldhash", "numpy", "numba", "python", "processor", "cores"} <= set(row["stamp"])
    assert json.loads(row["settings"]).keys() <= {"n_bits"}
    for path in files:
        assert os.uname().nodename.encode() not in path.read_bytes()
        assert str(whole_out).encode() not in path.read_bytes()


def test_results_choose_average_and_compare(plan, whole_out):
    results = run_experiment(plan, None, whole_out)
    codes, popular = (
        results.where(model="mfdcf", shots=0),
        results.where(label="popularity", shots=0),
    )
    assert results.values("score") == ["real", "hamming"]
    assert popular.values("score") == ["real"], "no codes, no Hamming distance"
    real = codes.where(n_bits=16, score="real")
    by_hand = [row["accuracy@10"] for row in real.rows]
    assert real.mean("accuracy@10") == pytest.approx(sum(by_hand) / 2)
    sure = real.interval(10)
    assert sure.mean == pytest.approx(real.mean("accuracy@10"), rel=1e-5)
    assert sure.low < sure.mean < sure.high
    assert real.compare(real, 10).verdict == "tied"
    found = real.compare(popular, 10)
    assert found.difference == pytest.approx(
        real.mean("accuracy@10") - popular.mean("accuracy@10"), abs=1e-6
    )


def children_of(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [
        child for task in tasks for child in (task / "children").read_text(encoding="utf-8").split()
    ]


def alive(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
            != "Z"
        )
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
