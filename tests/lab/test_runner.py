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
from coldhash.lab.experiment import Experiment
from coldhash.lab.results_log import ResultsLog
from coldhash.lab.runner import run_experiment

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
TIMES = {"fit_seconds", "fit_parts"}


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
    return open_log(whole_out)


def open_log(out: Path) -> ResultsLog:
    with ResultsLog(out, "try") as log:
        return log


@pytest.fixture
def copy(whole_out, tmp_path):
    shutil.copytree(whole_out, tmp_path / "copy")
    return tmp_path / "copy"


def without_times(log: ResultsLog) -> dict[str, str]:
    found = {}
    for key, line in log.lines.items():
        judged = [{n: v for n, v in each.items() if n != "seconds"} for each in line["judgements"]]
        plain = {name: value for name, value in line.items() if name not in TIMES}
        found[key] = json.dumps(plain | {"judgements": judged}, sort_keys=True)
    return found


def bytes_of_users(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "try" / "users").iterdir())}


def table_without_times(out: Path):
    table = pq.read_table(out / "try" / "results.parquet")
    return table.drop_columns([name for name in table.column_names if "seconds" in name])


def test_the_same_experiment_twice_is_the_same(plan, whole, whole_out, tmp_path):
    run_experiment(plan, None, tmp_path, jobs=2)
    second = open_log(tmp_path)
    assert without_times(whole) == without_times(second)
    assert bytes_of_users(whole_out) == bytes_of_users(tmp_path)
    assert table_without_times(whole_out).equals(table_without_times(tmp_path))
    assert len(second.lines) == 2 * 3


def test_what_is_done_is_not_done_again(plan, copy):
    before = (copy / "try" / "runs.jsonl").read_bytes()
    calls = []
    run_experiment(plan, None, copy, progress=lambda *each: calls.append(each))
    assert (copy / "try" / "runs.jsonl").read_bytes() == before
    assert calls == [(6, 6, "")]


def test_a_line_that_was_cut_off_is_done_again(plan, whole, copy):
    path = copy / "try" / "runs.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    run_experiment(plan, None, copy)
    assert without_times(open_log(copy)) == without_times(whole)
    lines = [json.loads(line)["key"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert sorted(lines) == sorted(whole.lines)


def test_killed_in_the_middle_it_goes_on_and_its_workers_are_gone(plan, plan_file, whole, tmp_path):
    arguments = ["experiment", str(plan_file), "--out", str(tmp_path / "cut"), "-j", "2"]
    running = subprocess.Popen(
        [sys.executable, "-m", "coldhash", *arguments], stderr=subprocess.DEVNULL
    )
    log = tmp_path / "cut" / "try" / "runs.jsonl"
    wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 1)
    workers = [int(pid) for pid in children_of(running.pid)]
    running.send_signal(signal.SIGKILL)
    running.wait()
    wait_until(lambda: not any(alive(pid) for pid in workers))
    done = log.read_bytes()
    assert done.count(b"\n") < len(whole.lines), "it was not in the middle"
    run_experiment(plan, None, tmp_path / "cut")
    assert without_times(open_log(tmp_path / "cut")) == without_times(whole)
    kept = done[: done.rfind(b"\n") + 1]
    assert log.read_bytes().startswith(kept), "what was done was done again"


def test_a_run_that_fails_is_named_and_the_others_are_kept(tmp_path):
    bad = {"model": "popularity", "label": "bad", "settings": {"cell": ["shoe size"]}}
    broken = Experiment.model_validate(
        {"name": "try", "splits": 1, "models": [bad, {"model": "popularity"}]}
    )
    with pytest.raises(SettingError, match=r"1 of 2 runs failed; bad, sample.*shoe size"):
        run_experiment(broken, None, tmp_path)
    with ResultsLog(tmp_path, "try") as log:
        assert [line["label"] for line in log.lines.values()] == ["popularity"]


def test_one_process_at_a_time(tmp_path):
    with ResultsLog(tmp_path, "try"), pytest.raises(SettingError, match="another process"):
        ResultsLog(tmp_path, "try")
    ResultsLog(tmp_path, "try").__exit__()


def test_jobs_must_be_some(plan, tmp_path):
    with pytest.raises(SettingError, match="jobs=0"):
        run_experiment(plan, None, tmp_path, jobs=0)


def test_stamped_with_settings_versions_and_machine_but_not_its_name(whole, whole_out):
    line = next(iter(whole.lines.values()))
    assert {"coldhash", "numpy", "numba", "python", "processor", "cores"} <= set(line["stamp"])
    text = (whole_out / "try" / "runs.jsonl").read_text(encoding="utf-8")
    assert os.uname().nodename not in text
    assert str(whole_out) not in text


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
