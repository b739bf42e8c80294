"""A real server process: start, stop, swaps under load, workers, the client of the docs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from typer import BadParameter

from coldhash.cli import app
from coldhash.errors import ColdhashError

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
SLOW = {"users": [{"age": age % 90} for age in range(1000)], "k": 120}
AS_LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture
def served(model_files, tmp_path):
    return shutil.copy(model_files["a"], tmp_path / "served.coldhash")


@pytest.mark.slow
def test_sighup_serves_the_new_file_and_a_broken_one_is_refused(
    live, served, model_files, put_file, version_of
):
    server = live(served)
    put_file(b"broken", served)
    server.process.send_signal(signal.SIGHUP)
    server.until_logged("model refused")
    assert server.version() == version_of(model_files["a"])
    put_file(model_files["b"], served)
    server.process.send_signal(signal.SIGHUP)
    server.until_version(version_of(model_files["b"]))


@pytest.mark.slow
def test_swaps_under_load_fail_and_mix_nothing(live, served, model_files, put_file, version_of):
    letters = {version_of(path): letter for letter, path in model_files.items()}
    server = live(served)
    answers, stop = [], threading.Event()

    def ask():
        with httpx.Client(base_url=server.url, timeout=120) as client:
            while not stop.is_set():
                answers.append(client.post("/v1/recommend", json={"user": {"age": 30}}))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for letter in "babab":
            put_file(model_files[letter], served)
            server.process.send_signal(signal.SIGHUP)
            server.until_version(version_of(model_files[letter]))
        while len(answers) < 500:
            assert all(thread.is_alive() for thread in threads)
            time.sleep(0.01)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {answer.status_code for answer in answers} == {200}
    bodies = [answer.json() for answer in answers]
    assert {body["model"] for body in bodies} == set(letters)
    for body in bodies:
        assert {item["item_id"][0] for item in body["items"]} == {letters[body["model"]]}


@pytest.mark.slow
def test_a_stopping_server_finishes_what_it_began(live, served):
    server = live(served, "--max-batch-items", 120_000)
    # far more than the buffers of a connection hold: it cannot be done before it is read
    with server.client.stream("POST", "/v1/recommend/batch", json=SLOW, headers=AS_LINES) as answer:
        lines = answer.iter_lines()
        first = next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert len([first, *rest]) == 1000
    assert all(len(json.loads(line)["items"]) == 120 for line in rest)
    server.process.wait(120)
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url + "/healthz")


@pytest.mark.slow
def test_workers_share_the_file_the_socket_and_the_figures(
    live, served, model_files, put_file, version_of
):
    server = live(served, "--workers", "2")
    labels = 'coldhash_model_workers{{method="mfdcf",version="{}"}} {}'

    def workers(letter, count):
        version = version_of(model_files[letter])
        return labels.format(version, count) in server.client.get("/metrics").text

    server._until(lambda: workers("a", "2.0"))
    for _ in range(10):
        assert (
            httpx.post(server.url + "/v1/recommend", json={"user": {}}, timeout=120).status_code
            == 200
        )
    assert "coldhash_strangers_total 10.0" in server.client.get("/metrics").text
    put_file(model_files["b"], served)
    server.process.send_signal(signal.SIGHUP)
    server._until(lambda: workers("b", "2.0") and workers("a", "0.0"))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0


@pytest.mark.slow
def test_options_of_the_command_reach_the_server(live, served, tmp_path):
    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    options = ("--max-k", 3, "--max-body", 100, "--allowed-host", "films.example")
    server = live(served, "--token-file", tmp_path / "token", *options)
    assert server.client.get("/v1/model").status_code == 401
    server.client.headers["Authorization"] = "Bearer secret"
    ask = {"user": {}, "k": 3}
    assert server.client.post("/v1/recommend", json=ask).status_code == 200
    assert server.client.post("/v1/recommend", json=ask | {"k": 4}).status_code == 422
    assert server.client.post("/v1/recommend", content=b" " * 101).status_code == 413
    check_hosts(server)
    assert "secret" not in server.log()


def check_hosts(server):
    for host, status in (("films.example", 200), ("evil.example", 421)):
        assert server.client.get("/v1/model", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "cannot read missing"),
        (["served", "--max-k", "0"], "max_k=0"),
        (["served", "--token-file", "empty"], "empty is empty"),
        (["served", "--token-file", "missing"], "--token-file missing"),
        (["served", "--host", "256.0.0.1"], "cannot listen"),
        (["empty", "--workers", "2"], "is empty"),
    ],
)
def test_what_is_wrong_with_the_command_is_told(tmp_path, monkeypatch, served, arguments, message):
    shutil.copy(served, tmp_path / "served")
    (tmp_path / "empty").touch()
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGHUP)
    try:
        with pytest.raises(ColdhashError, match=message):
            app(["serve", "--port", "0", *arguments], standalone_mode=False)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("arguments", [["--workers", "0"], ["--port", "70000"]])
def test_options_out_of_range_are_refused(served, arguments):
    with pytest.raises(BadParameter, match="Input should be"):
        app(["serve", str(served), *arguments], standalone_mode=False)


@pytest.mark.parametrize("token", ["", "\n"])
def test_an_empty_token_in_the_environment_is_refused(served, monkeypatch, token):
    monkeypatch.setenv("COLDHASH_TOKEN", token)
    with pytest.raises(ColdhashError, match="COLDHASH_TOKEN is empty"):
        app(["serve", "--port", "0", str(served)], standalone_mode=False)


@pytest.mark.slow
def test_hosts_and_a_token_with_a_newline_reach_the_workers(live, served):
    options = ("--workers", 2, "--allowed-host", "films.example")
    server = live(served, *options, COLDHASH_TOKEN="secret\n")
    server.client.headers["Authorization"] = "Bearer secret"
    check_hosts(server)


@pytest.mark.slow
def test_a_port_that_is_taken_is_a_mistake_of_the_users(served):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "coldhash", "serve", str(served), "--port", port]
        run = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"error: cannot listen on 127.0.0.1, port {port}")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_client_of_the_docs(live, served):
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    client = next(block for block in blocks if "class Client" in block)
    server = live(served, COLDHASH_TOKEN="docs")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", client],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        env=os.environ | {"COLDHASH_URL": server.url, "COLDHASH_TOKEN": "docs"},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("1 a")
    assert len(run.stdout.splitlines()) == 3
