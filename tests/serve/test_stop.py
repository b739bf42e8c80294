"""Connections: no delayed answers, and none is reset when the server stops."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import time

import pytest

from coldhash.serve.server import DRAIN, listen

N_CONNECTIONS = 50
BODY = b'{"user": {"age": 30}}'
REQUEST = (
    b"POST /v1/recommend HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n" % len(BODY)
) + BODY


def test_accepted_connections_have_no_delay():
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.fixture
def server(live, model_files, tmp_path):
    return live(shutil.copy(model_files["a"], tmp_path / "served.coldhash"))


async def connect(server):
    port = int(server.url.rsplit(":", 1)[1])
    opened = [asyncio.open_connection("127.0.0.1", port) for _ in range(N_CONNECTIONS)]
    return await asyncio.gather(*opened)


async def answer(reader):
    """Read an answer; return whether it announces the end of the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200 ")
    length = head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]
    await reader.readexactly(int(length))
    return b"connection: close\r\n" in head


@pytest.mark.slow
def test_requests_that_are_sent_before_the_stop_are_answered(server):
    async def talk():
        connections = await connect(server)
        for reader, writer in connections:
            writer.write(REQUEST)
            assert not await answer(reader)
        server.process.send_signal(signal.SIGSTOP)
        for _, writer in connections:
            writer.write(REQUEST)
            await writer.drain()
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        for reader, writer in connections:
            await answer(reader)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(asyncio.wait_for(talk(), 120))


@pytest.mark.slow
def test_no_connection_is_reset_when_a_busy_server_stops(server):
    answered, end = 0, float("inf")

    async def ask_until_the_end(reader, writer):
        nonlocal answered
        closing = False
        while not closing:
            writer.write(REQUEST)
            sent = time.monotonic()
            try:
                closing = await answer(reader)
            except (ConnectionError, asyncio.IncompleteReadError):
                assert sent > end  # so late that the server need not wait for it
                return writer.close()
            answered += 1
        assert await reader.read() == b""
        writer.close()

    async def talk():
        nonlocal end
        connections = await connect(server)
        asking = [asyncio.create_task(ask_until_the_end(*each)) for each in connections]
        while answered < 5 * N_CONNECTIONS:
            await asyncio.sleep(0.01)
        end = time.monotonic() + DRAIN
        server.process.send_signal(signal.SIGTERM)
        ended = await asyncio.gather(*asking, return_exceptions=True)
        assert ended == [None] * N_CONNECTIONS

    asyncio.run(asyncio.wait_for(talk(), 120))


@pytest.mark.slow
def test_idle_connections_are_closed_when_the_server_stops(server):
    async def talk():
        connections = await connect(server)
        for reader, writer in connections[::2]:  # the others never ask
            writer.write(REQUEST)
            await answer(reader)
        server.process.send_signal(signal.SIGTERM)
        assert [await reader.read() for reader, _ in connections] == [b""] * N_CONNECTIONS
        for _, writer in connections:
            writer.close()

    asyncio.run(asyncio.wait_for(talk(), 120))


@pytest.mark.slow
def test_heads_without_a_body_and_100_continue_are_sent(server):
    address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    with socket.create_connection(address, 60) as connection, connection.makefile("rb") as answers:
        connection.sendall(b"HEAD / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert answers.readline().startswith(b"HTTP/1.1 200 ")
        while answers.readline() != b"\r\n":
            pass
        head, _, body = REQUEST.partition(b"\r\n\r\n")
        connection.sendall(head + b"\r\nexpect: 100-continue\r\n\r\n")
        assert answers.readline().startswith(b"HTTP/1.1 100 ")
        assert answers.readline() == b"\r\n"
        connection.sendall(body)
        assert answers.readline().startswith(b"HTTP/1.1 200 ")
