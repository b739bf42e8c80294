"""Memory of a server under 40 clients that all ask for the largest batches, some without reading.

Idle is the resident set after a warm-up by one client; the peak is the largest one that is seen
while the clients ask, every 20 ms. Clients that read must all get whole answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import tempfile
from pathlib import Path

from bench_hostile import resident
from http_load import Client, request_bytes, running
from table import Row, finish, options

from coldhash import MFDCF, read

CLIENTS = 40
DEAF = 10  # of them, which send requests and never read
K = 20
BATCH = request_bytes("POST", "/v1/recommend/batch", {"users": [{}] * 1000, "k": K})
LARGEST = request_bytes("POST", "/v1/recommend/batch", {"users": [{}] * 20, "k": 1000})
TOO_LARGE = request_bytes("POST", "/v1/recommend/batch", {"users": [{}] * 1000, "k": 1000})


async def reading(port: int, n_requests: int) -> int:
    """Ask for batches one after the other; returns how many answers are whole."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    whole = 0
    for n in range(n_requests):
        status, body = await client.ask((BATCH, LARGEST)[n % 2])
        whole += status == 200 and len(json.loads(body)["answers"]) in (20, 1000)
    assert (await client.ask(TOO_LARGE))[0] == 413
    client.writer.close()
    return whole


async def deaf(port: int, stop: asyncio.Event) -> None:
    """Send batches as fast as the server takes them, and read nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", port))
    stopped = asyncio.create_task(stop.wait())
    with connection, contextlib.suppress(ConnectionError):
        while not stop.is_set():
            sending = asyncio.create_task(loop.sock_sendall(connection, BATCH))
            await asyncio.wait({sending, stopped}, return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()


async def storm(port: int, pid: int, n_requests: int) -> tuple[int, float]:
    """Let all clients ask at once; returns the number of whole answers and the peak memory."""
    stop, peak = asyncio.Event(), resident(pid)

    async def watch() -> None:
        nonlocal peak
        while not stop.is_set():
            peak = max(peak, resident(pid))
            await asyncio.sleep(0.02)

    others = [asyncio.create_task(deaf(port, stop)) for _ in range(DEAF)]
    others.append(asyncio.create_task(watch()))
    whole = await asyncio.gather(*(reading(port, n_requests) for _ in range(CLIENTS - DEAF)))
    stop.set()
    await asyncio.gather(*others)
    return sum(whole), peak


def main() -> None:
    args = options(__doc__ or "")
    n_requests = 2 if args.quick else 20
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.coldhash"
        MFDCF(n_bits=32).fit(read("sample")).save(file)
        with running(["-m", "coldhash", "serve", str(file), "--port", "0"]) as (process, port):
            asyncio.run(reading(port, 4))
            idle = resident(process.pid)
            whole, peak = asyncio.run(storm(port, process.pid, n_requests))
    wanted = (CLIENTS - DEAF) * n_requests
    print(f"{wanted} batches of 20,000 items, {DEAF} clients that do not read")
    finish(
        [
            Row("whole answers / asked for by clients that read", whole, wanted, ">= 1"),
            Row("peak MB under load / idle", peak, idle, "<= 1.5"),
        ],
        args.out,
    )


if __name__ == "__main__":
    main()
