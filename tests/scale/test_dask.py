"""A cluster that is not what it should be: other versions on a worker, a lost scheduler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import coldhash
from coldhash import MFDCF, read
from coldhash.errors import WorkerError
from coldhash.scale.batch import recommend_all_on
from coldhash.scale.dask import DaskPartitions

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,  # clusters
    pytest.mark.filterwarnings("ignore"),  # of the cluster's own, when it is torn down
]
SCHEDULER = ("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard")
WORKER = ("distributed.cli.dask_worker", "--nthreads", "1", "--no-dashboard", "--no-nanny")


@pytest.fixture
def start(tmp_path):
    """Start a process of the cluster; all end with the test."""
    started = []

    def run(*arguments, **environment):
        command = [sys.executable, "-m", *map(str, arguments)]
        with (tmp_path / f"log{len(started)}").open("wb") as log:
            process = subprocess.Popen(command, stderr=log, env=os.environ | environment)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def scheduler(start, tmp_path):
    """A scheduler in a process of its own, and its address."""
    file = tmp_path / "scheduler.json"
    process = start(*SCHEDULER, "--host", "127.0.0.1", "--scheduler-file", file)
    while not file.exists() or not file.read_text(encoding="utf-8"):
        assert process.poll() is None
        time.sleep(0.05)
    return process, json.loads(file.read_text(encoding="utf-8"))["address"]


def test_a_worker_with_another_version_is_refused(scheduler, start, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(Path(coldhash.__file__).parent, other / "coldhash")
    init = other / "coldhash" / "__init__.py"
    text = init.read_text(encoding="utf-8")
    init.write_text(text + '\n__version__ = "0.0.7"\n', encoding="utf-8")
    _, address = scheduler
    start(*WORKER, address, PYTHONPATH=str(other))
    data = read("sample", n_users=100, n_items=50)
    model = tmp_path / "m.coldhash"
    MFDCF(n_bits=16, n_rounds=1).fit(data).save(model)
    with distributed.Client(address) as client:
        client.wait_for_workers(1)
        with pytest.raises(WorkerError, match=r"worker tcp://.* has coldhash 0\.0\.7 .*here"):
            MFDCF(n_bits=16).fit(data, on=client)
        with pytest.raises(WorkerError, match=r"worker tcp://.* has coldhash 0\.0\.7 .*here"):
            recommend_all_on(client, model, tmp_path / "all")


def test_a_changed_file_is_another_version(scheduler, start, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(Path(coldhash.__file__).parent, other / "coldhash")
    with (other / "coldhash" / "arrays" / "codes.py").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    _, address = scheduler
    start(*WORKER, address, PYTHONPATH=str(other))
    with distributed.Client(address) as client:
        client.wait_for_workers(1)
        with pytest.raises(WorkerError, match=f"has coldhash {coldhash.__version__} .code"):
            MFDCF(n_bits=16).fit(read("sample", n_users=100, n_items=50), on=client)


@pytest.mark.parametrize("what", ["fit", "recommend"])
def test_a_worker_of_another_version_that_joins_late_is_refused(what, scheduler, start, tmp_path):
    """It takes over from the worker that was there at the start."""
    other = tmp_path / "other"
    shutil.copytree(Path(coldhash.__file__).parent, other / "coldhash")
    with (other / "coldhash" / "arrays" / "codes.py").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    _, address = scheduler
    first = start(*WORKER, address)
    data, path = read("sample", n_users=100, n_items=50), tmp_path / "m.coldhash"

    def replace_worker(*_):
        if first.poll() is None:
            start(*WORKER, address, PYTHONPATH=str(other))
            client.wait_for_workers(2)
            first.kill()
            first.wait()

    def fit():
        partitions = DaskPartitions(client, data.records(50))
        replace_worker()
        return partitions.sum(lambda records: records.ratings.shape[0], partitions.records)

    def recommend():
        MFDCF(n_bits=16, n_rounds=1).fit(data).save(path)
        recommend_all_on(client, path, tmp_path / "all", progress=replace_worker)

    with distributed.Client(address) as client:
        client.wait_for_workers(1)
        with pytest.raises(WorkerError, match=f"has coldhash {coldhash.__version__} .code"):
            fit() if what == "fit" else recommend()


BATCH = """
import sys
from distributed import Client
from coldhash.errors import WorkerError
from coldhash.scale import batch
batch.USERS = 10
try:
    batch.recommend_all_on(Client(sys.argv[1]), "m.coldhash", "all")
except WorkerError as error:
    sys.exit(f"error: {error}")
"""


@pytest.mark.parametrize("what", ["fit", "recommend"])
def test_a_scheduler_killed_at_work_is_told_in_one_line(what, scheduler, start, tmp_path):
    process, address = scheduler
    start(*WORKER, address, "--death-timeout", "20")
    command = ["-m", "coldhash", "fit", "--dataset", "sample", "--out", "m", "--dask", address]
    command += ["--set", "n_rounds=5000", "--set", "tolerance=0"]
    if what == "recommend":
        data = read("sample", n_users=3000, n_items=100)
        MFDCF(n_bits=16, n_rounds=1).fit(data).save(tmp_path / "m.coldhash")
        command = ["-c", BATCH, address]
    run = subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    with distributed.Client(address) as client:
        while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) < 1:
            assert run.poll() is None, run.communicate()
        process.kill()
    _, said = run.communicate(timeout=300)
    assert run.returncode == (2 if what == "fit" else 1), said
    assert "the connection to the Dask scheduler was lost; hint:" in said
    assert what == "recommend" or "Traceback" not in said  # it may be of the cluster's own
