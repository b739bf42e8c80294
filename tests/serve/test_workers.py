"""Workers that are killed, stopped or left alone, beside good and damaged model files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import httpx
import numpy as np
import pyarrow as pa
import pytest

from coldhash.recommender import model_file

pytestmark = pytest.mark.slow

DYING = """
from coldhash.serve.server import Supervisor, listen
if __name__ == "__main__":
    Supervisor(target=slice, listener=listen("127.0.0.1", 0), n_workers=1, stop_seconds=9).run()
"""


@pytest.fixture
def served(model_files, tmp_path):
    return shutil.copy(model_files["a"], tmp_path / "served.coldhash")


@pytest.fixture
def server(live, served):
    """Two workers that both answer."""
    server = live(served, "--workers", "2")
    wait_for_two(server)
    return server


def wait_for_two(server):
    server._until(lambda: "} 2.0" in fresh(server, "/metrics").text)


def fresh(server, path):
    """Ask over a new connection: one to a worker that was killed is of no use."""
    return httpx.get(server.url + path, timeout=120)


def pids(server, event="worker started"):
    return [entry["pid"] for entry in server.events(event)]


def test_a_stopped_worker_does_not_delay_the_end(server):
    os.kill(pids(server)[0], signal.SIGSTOP)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0
    assert not server.events("worker killed")


def test_replacements_serve_the_last_good_model(server, served, model_files, put_file, version_of):
    put_file(model_files["b"], served)
    server._until(lambda: served_by_all(server, version_of(model_files["b"])))
    put_file(b"broken", served)
    server._until(lambda: len(server.events("model refused")) == 2)
    first = pids(server)
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    assert fresh(server, "/v1/model").json()["model"] == version_of(model_files["b"])
    server._until(lambda: len(server.events("model refused")) == 4)
    died = server.events("worker died")
    assert {entry["pid"] for entry in died} == set(first)
    assert {entry["signal"] for entry in died} == {"SIGKILL"}
    put_file(model_files["a"], served)
    server._until(lambda: served_by_all(server, version_of(model_files["a"])))


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_large_file_that_is_changed_in_place_ends_nobody(n_workers, live, model, tmp_path):
    """Too large for any cache of a reader: what is not in memory would be read again."""
    notes = pa.array([os.urandom(1 << 19) for _ in model.item_ids], pa.binary())
    table = model.item_table.append_column("notes", notes)
    served = tmp_path / "large.coldhash"
    replace(model, item_table=table).save(served)
    assert served.stat().st_size > 48 << 20
    server = live(served, "--workers", str(n_workers))
    asked = [{"user": {"age": 30}}, {"user_id": model.user_ids[-1]}]
    expected = [server.client.post("/v1/recommend", json=json).json() for json in asked]
    for size, n_refused in ((served.stat().st_size // 2, n_workers), (1, 2 * n_workers)):
        os.truncate(served, size)
        server._until(lambda n=n_refused: len(server.events("model refused")) == n)
        for _ in range(4):
            with httpx.Client(base_url=server.url, timeout=120) as client:
                found = [client.post("/v1/recommend", json=json).json() for json in asked]
                assert found == expected
                assert client.get("/v1/items", params={"search": "a"}).status_code == 200
    assert not server.events("worker died")


def served_by_all(server, version):
    wanted = f'version="{version}"}} 2.0'
    return wanted in fresh(server, "/metrics").text


def test_workers_end_with_their_parent(live, served, tmp_path):
    """They remove the copies of the model, too."""
    (tmp_path / "tmp").mkdir()
    server = live(served, "--workers", "2", TMPDIR=str(tmp_path / "tmp"))
    wait_for_two(server)
    assert list(tmp_path.glob("tmp/*/*.accepted"))
    server.process.kill()
    server.process.wait()
    while True:
        try:
            fresh(server, "/healthz")
        except httpx.ConnectError:
            break
        except httpx.TransportError:
            pass  # it was about to end
    assert not list(tmp_path.glob("tmp/*"))


def test_a_model_that_cannot_answer_starts_no_worker(served, model_files, tmp_path):
    facts, tensors = model_file.read(model_files["a"])
    tensors = {name: np.array(array) for name, array in tensors.items()}
    tensors["encoder/map/demographics"][0, 0] = np.nan  # the checksum is right
    model_file.write(tmp_path / "odd", facts, tensors)
    command = [sys.executable, "-m", "coldhash", "serve", tmp_path / "odd", "--port", "0"]
    run = subprocess.run(
        [*command, "--workers", "2"], capture_output=True, encoding="utf-8", timeout=300
    )
    assert run.returncode == 2
    assert "a part of the model is missing or odd" in run.stderr
    assert "worker started" not in run.stderr


def test_restarts_are_delayed_more_and_more(tmp_path):
    script = tmp_path / "dying.py"
    script.write_text(DYING, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, script],
        stderr=subprocess.PIPE,
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
    ) as process:
        delays = []
        while len(delays) < 4:
            entry = json.loads(process.stderr.readline())
            if entry["event"] == "worker died":
                assert entry["exit_code"] == 0
                delays.append(entry["restart_seconds"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert delays == [0, 0.5, 1, 2]
