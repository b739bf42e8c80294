"""A server in another process, and load on it over raw connections that are kept alive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tests_path  # noqa: F401

from connections import Client, request_bytes

__all__ = ["LONGEST", "Client", "load", "must_be_200", "raw_load", "request_bytes", "running"]

LONGEST = 120  # seconds that any part may take


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a server, wait until it is ready, and stop it; gives the process and the port."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as talk,
        subprocess.Popen([sys.executable, *command], stderr=talk, encoding="utf-8") as process,
    ):
        try:
            yield process, asyncio.run(asyncio.wait_for(_ready(process, talk), LONGEST))
        finally:
            process.send_signal(signal.SIGTERM)


async def _ready(process: subprocess.Popen[str], talk: Any) -> int:
    while True:
        assert process.poll() is None, "the server ended"
        # without moving to the beginning: the server writes where the file is
        said = os.pread(talk.fileno(), 1 << 16, 0).decode()
        if found := re.search(r"http://[^\s:]+:(\d+)\s", said):
            port = int(found[1])
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                if (await Client.ask_once(port, "GET", "/readyz"))[0] == 200:
                    return port
        await asyncio.sleep(0.01)


async def load(
    port: int,
    requests: Iterable[bytes],
    connections: int,
    look: Callable[[int, bytes], None],
) -> np.ndarray:
    """Send requests over some connections, each its next one on an answer; gives their seconds."""
    left = iter(requests)
    seconds: list[float] = []

    async def connection() -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        for request in left:
            start = time.perf_counter()
            status, body = await client.ask(request)
            seconds.append(time.perf_counter() - start)
            look(status, body)
        client.writer.close()

    await asyncio.wait_for(asyncio.gather(*(connection() for _ in range(connections))), LONGEST)
    return np.array(seconds)


def raw_load(
    port: int, requests: list[bytes], connections: int, rate: float = float("inf")
) -> np.ndarray:
    """Send requests like `load`, by bare sockets: the client costs as little as it can.

    With a `rate`, a request is due every 1 / rate seconds, whether others are answered or not, and
    its time counts from then.
    """
    due = time.perf_counter() + np.arange(len(requests)) / rate
    sent, seconds = 0, []
    started: dict[socket.socket, float] = {}
    received: dict[socket.socket, bytes] = {}
    free = []
    with selectors.DefaultSelector() as ready:
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port), LONGEST)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(connection, selectors.EVENT_READ)
            free.append(connection)
        while len(seconds) < len(requests):
            now = time.perf_counter()
            while free and sent < len(requests) and due[sent] <= now:
                connection = free.pop()
                started[connection] = now if rate == float("inf") else due[sent]
                received[connection] = b""
                connection.sendall(requests[sent])
                sent += 1
            waiting = free and sent < len(requests)
            for key, _ in ready.select(max(0.0, due[sent] - now) if waiting else LONGEST):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                received[connection] += connection.recv(1 << 16)
                if is_whole(received[connection]):
                    seconds.append(time.perf_counter() - started[connection])
                    free.append(connection)
        for connection in free:
            connection.close()
    return np.array(seconds)


def is_whole(answer: bytes) -> bool:
    """Return whether an answer is complete; it must be a 200."""
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        assert answer, "the server closed the connection"
        return False
    assert head.startswith(b"HTTP/1.1 200 "), answer
    return len(body) == int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])


def must_be_200(status: int, body: bytes) -> None:
    assert status == 200, body
