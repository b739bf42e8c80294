"""The log when nobody reads it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys

import httpx
import pytest

from coldhash.serve import create_app
from coldhash.serve.monitoring import LogWriter

ENTRY = {"text": "x" * 1000}


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def lines_until(reader, last):
    """Read lines until one of them is about `last`."""
    text = b""
    while last not in text or not text.endswith(b"\n"):
        assert select.select([reader], [], [], 60)[0]
        text += os.read(reader, 1 << 20)
    return [json.loads(line) for line in text.splitlines()]


def test_lines_that_nobody_reads_are_dropped(pipe):
    reader, writer = pipe
    log = LogWriter(writer, max_lines=100)
    taken = [log(ENTRY) for _ in range(1000)]  # far more than the pipe and the queue hold
    assert 100 <= taken.count(True) < 1000
    last = {"text": "last"}
    lines = []
    while len(lines) < taken.count(True):
        lines += lines_until(reader, b"text")
    assert lines == [ENTRY] * taken.count(True)
    assert log(last)
    assert lines_until(reader, b"last") == [last]


def test_a_name_that_is_not_utf_8_is_logged(pipe):
    reader, writer = pipe
    log = LogWriter(writer)
    odd = {"text": os.fsdecode(b"caf\xe9.coldhash")}
    for entry in (odd, ENTRY):
        log(entry)
        assert lines_until(reader, b"text") == [entry]


def test_a_log_whose_reader_is_gone_takes_entries(pipe):
    reader, writer = pipe
    log = LogWriter(writer)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, reader)  # closes the only reading end
    os.close(devnull)
    assert all(log(ENTRY) for _ in range(10))
    log.flush(60)
    assert log(ENTRY)


def test_dropped_lines_are_a_metric(model):
    from starlette.testclient import TestClient

    with TestClient(create_app(model, log=lambda entry: False)) as client:
        for _ in range(3):
            client.get("/healthz")
        assert "coldhash_log_dropped_total 3.0" in client.get("/metrics").text


@pytest.mark.slow
def test_a_server_whose_log_nobody_reads_answers_and_stops(model_files):
    command = [sys.executable, "-m", "coldhash", "serve", model_files["a"], "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0) as process:
        try:
            url = re.search(rb"http://\S+", process.stderr.readline())[0].decode()
            with httpx.Client(base_url=url, timeout=60) as client:
                for _ in range(1500):  # more than the pipe holds
                    assert client.get("/healthz").status_code == 200
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()
