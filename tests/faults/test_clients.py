"""Clients that are slow, gone, or many: the others are answered, and what they held is freed."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time

import httpx
import pytest

pytestmark = pytest.mark.slow

ASK = {"user": {"age": 30}, "k": 3}
LARGE = {"users": [{"age": age % 90} for age in range(1000)], "k": 120}


def connected(server, small=False):
    host, port = server.url.removeprefix("http://").split(":")
    made = socket.socket()
    if small:  # so that an answer does not fit on the way
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(120)
    made.connect((host, int(port)))
    return made


def head(path, length, accept="*/*"):
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Accept: {accept}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def n_connections(server):
    """Count the sockets that the server holds."""
    folder = f"/proc/{server.process.pid}/fd"
    found = 0
    for name in os.listdir(folder):
        try:
            found += os.readlink(f"{folder}/{name}").startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def everything(connection):
    """Read until the other side closes; a reset is an end too."""
    content = b""
    try:
        while part := connection.recv(1 << 16):
            content += part
    except ConnectionError:
        pass
    return content


def test_slow_and_half_open_clients_are_answered_or_dropped(live, model_files):
    """Three seconds for a request, and eight for a connection on which nothing comes to an end."""
    server = live(model_files["a"], "--timeout", 3, "--max-batch-items", 120_000)
    server.client.close()
    before = n_connections(server)
    silent, half_head, half_body, deaf, second = (
        connected(server, small) for small in (False, False, False, True, False)
    )
    half_head.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-")
    half_body.sendall(head("/v1/recommend", 100) + b'{"user"')
    body = json.dumps(LARGE).encode()
    deaf.sendall(head("/v1/recommend/batch", len(body), "application/x-ndjson") + body)
    body = json.dumps(ASK).encode()
    second.sendall(head("/v1/recommend", len(body)) + body)
    told = b""
    while not told.endswith(b"}"):  # the head may come before the body
        told += second.recv(1 << 16)
    assert told.startswith(b"HTTP/1.1 200")
    second.sendall(b"GET /healthz HTT")
    with httpx.Client(base_url=server.url, timeout=120) as client:
        assert client.post("/v1/recommend", json=ASK).status_code == 200
    told = half_body.recv(1 << 16)
    assert told.startswith(b"HTTP/1.1 504")
    while b"}}" not in told:
        told += half_body.recv(1 << 16)
    assert b"no answer within 3 seconds" in told
    for connection in (silent, half_head, second):
        assert everything(connection) == b""
    server._until(lambda: n_connections(server) <= before + 1)  # the half body may be kept alive
    assert everything(deaf).count(b"\n") < 1000, "it got all, so it was not deaf"
    for connection in (silent, half_head, half_body, deaf, second):
        connection.close()
    assert httpx.post(server.url + "/v1/recommend", json=ASK, timeout=120).status_code == 200


def test_a_thousand_idle_connections_keep_nobody_out(live, model_files):
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 1500:
        pytest.skip("so many files cannot be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), most))
    server = live(model_files["a"])
    idle = [connected(server) for _ in range(1000)]
    try:
        server._until(lambda: n_connections(server) >= 1000)
        for _ in range(20):
            answer = httpx.post(server.url + "/v1/recommend", json=ASK, timeout=120)
            assert answer.status_code == 200
        body = json.dumps(ASK).encode()
        for connection in idle[::100]:  # and those who were idle may ask
            connection.sendall(head("/v1/recommend", len(body)) + body)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    server._until(lambda: n_connections(server) < 100)


def test_a_log_that_nobody_reads_stops_nothing(model_files, put_file, version_of, tmp_path):
    """Not the answers, and not the next model."""
    served = tmp_path / "served.coldhash"
    put_file(model_files["a"], served)
    command = [sys.executable, "-m", "coldhash", "serve", str(served), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8") as process:
        try:
            url = process.stderr.readline().split()[-1]
            process.stderr.close()
            with httpx.Client(base_url=url, timeout=120) as client:
                for letter in "bab":
                    put_file(model_files[letter], served)
                    wanted = version_of(model_files[letter])
                    while client.get("/v1/model").json()["model"] != wanted:
                        assert process.poll() is None
                    assert client.post("/v1/recommend", json=ASK).status_code == 200
        finally:
            process.terminate()


def test_a_killed_worker_is_replaced_and_a_killed_parent_frees_the_port(live, model_files):
    server = live(model_files["a"], "--workers", "2")
    port = server.url.rsplit(":", 1)[1]

    def workers():
        path = f"/proc/{server.process.pid}/task/{server.process.pid}/children"
        with open(path, encoding="utf-8") as file:
            pids = file.read().split()
        found = []
        for pid in pids:
            with (
                contextlib.suppress(OSError),  # it has just ended
                open(f"/proc/{pid}/cmdline", encoding="utf-8") as command,
            ):
                if "spawn_main" in command.read():
                    found.append(int(pid))
        return found

    server._until(lambda: len(workers()) == 2)
    first = workers()
    os.kill(first[0], 9)
    server._until(lambda: len(set(workers()) - set(first)) == 1 and len(workers()) == 2)
    for _ in range(10):
        answer = httpx.post(server.url + "/v1/recommend", json=ASK, timeout=120)
        assert answer.status_code == 200
    server.process.kill()
    server.process.wait()

    def is_free():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(port))) != 0

    for _ in range(9000):
        if is_free():
            break
        time.sleep(0.02)
    again = live(model_files["a"])
    assert again.client.get("/readyz").status_code == 200
    assert is_free()
