from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from coldhash import MFDCF, load, read
from coldhash.errors import SettingError, SourceError
from coldhash.scale import batch
from coldhash.scale.batch import recommend_all_on, write_part

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,  # a cluster
    pytest.mark.filterwarnings("ignore"),  # of the cluster's own, when it is torn down
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.coldhash"
    MFDCF(n_bits=32).fit(read("sample", n_users=500, n_items=120)).save(path)
    return path


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def whole(files):
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def expected(path, k, **options):
    model = load(path)
    return model.recommend(user_ids=model.user_ids.values, k=k, **options).to_arrow().to_pylist()


@pytest.mark.parametrize("options", [{}, {"score": "hamming", "exclude": ["3", "5"]}])
def test_the_same_as_for_all_users_at_once(client, path, tmp_path, options, monkeypatch):
    monkeypatch.setattr(batch, "USERS", 70)
    reported = []
    files = recommend_all_on(
        client, path, tmp_path, 5,
        progress=lambda done, total: reported.append((done, total)), **options,
    )  # fmt: skip
    assert len(files) == 8
    assert reported == [(n, 8) for n in range(9)]
    assert whole(files) == expected(path, 5, **options)
    assert len(list(tmp_path.iterdir())) == 9  # and the note: no drafts


def test_what_is_there_is_not_done_again(client, path, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "USERS", 100)
    first = recommend_all_on(client, path, tmp_path, 3)
    first[1].unlink()
    before = {file: file.stat().st_mtime_ns for file in first if file.exists()}
    reported = []
    again = recommend_all_on(
        client, path, tmp_path, 3, progress=lambda *done: reported.append(done)
    )
    assert reported == [(4, 5), (5, 5)]
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert whole(again) == expected(path, 3)


def test_another_batch_in_the_folder_is_refused(client, path, tmp_path, monkeypatch):
    recommend_all_on(client, path, tmp_path / "out", 3)
    for changed in ({"k": 4}, {"score": "hamming"}):
        with pytest.raises(SettingError, match="other options"):
            recommend_all_on(client, path, tmp_path / "out", **({"k": 3} | changed))
    other = tmp_path / "other.coldhash"
    MFDCF(n_bits=16).fit(read("sample", n_users=500, n_items=120)).save(other)
    with pytest.raises(SettingError, match="another model"):
        recommend_all_on(client, other, tmp_path / "out", 3)
    monkeypatch.setattr(batch, "USERS", 100)  # as in another version
    with pytest.raises(SettingError, match="other options"):
        recommend_all_on(client, path, tmp_path / "out", 3)


def test_a_mistake_reaches_the_caller_and_leaves_no_file(client, path, tmp_path):
    with pytest.raises(Exception, match="no such item"):
        recommend_all_on(client, path, tmp_path, 3, exclude=["no such item"])
    assert [p.name for p in tmp_path.iterdir()] == ["batch.json"]


def test_a_model_that_changed_under_the_workers_is_refused(path, tmp_path):
    with pytest.raises(SourceError, match="has changed"):
        write_part(path, "0" * 12, 10, {"k": 3}, tmp_path / "part", 0)
    assert not list(tmp_path.iterdir())


def test_a_worker_killed_in_the_middle(client, path, tmp_path, monkeypatch):
    """Its tasks go to the other one, or to the one that the nanny starts in its place."""
    monkeypatch.setattr(batch, "USERS", 10)
    killed = []

    def kill_once(done, total):
        if done == 5 and not killed:
            killed.append(client.run(os.getpid))
            os.kill(next(iter(killed[0].values())), signal.SIGKILL)

    files = recommend_all_on(client, path, tmp_path, 3, progress=kill_once)
    assert len(killed) == 1
    assert whole(files) == expected(path, 3)


BATCH = """
import sys
from distributed import Client, LocalCluster
from coldhash.scale import batch, recommend_all_on
batch.USERS = 1
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            recommend_all_on(client, sys.argv[1], sys.argv[2], 3)
"""


def test_killed_and_started_again(client, path, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "USERS", 1)
    script, out = tmp_path / "batch.py", tmp_path / "out"
    script.write_text(BATCH, encoding="utf-8")
    run = subprocess.Popen(
        [sys.executable, str(script), str(path), str(out)], start_new_session=True
    )
    try:
        while len(list(out.glob("part-*"))) < 20 and run.poll() is None:
            time.sleep(0.01)
    finally:
        os.killpg(run.pid, signal.SIGKILL)  # with its workers: the session is its own
        run.wait()
    present = len(list(out.glob("part-*")))
    assert 20 <= present < 500
    reported = []
    files = recommend_all_on(client, path, out, 3, progress=lambda done, _: reported.append(done))
    assert reported[0] == present
    assert whole(files) == expected(path, 3)
