"""A mixed load on a real server for some time, with model swaps and requests that should not be.

    python benchmarks/soak.py --seconds 600

Steady connections ask for strangers, known users, batches, searches and neighbours; beside them one
sends what no client should, one connects and is slow, and the model is replaced every few seconds.

How it is judged. Errors: any answer of a well-meant request that is not a 200 and of one model
alone, and any answer to a hostile one that is not the refusal that it should get. Memory: the
private memory of the server every second; after the first quarter (caches fill, pools grow) a line
is fitted, and what it rises by from there to the end must be below the larger of 5% of the memory
and 4 times the scatter around the line. Time: the p99 of the last minute (or last third, of short
soaks) against that of the first after the first swap; 3 is allowed, since the machine may be busy
with other things. In less than ten minutes memory and time say little (caches still fill, other
work on the machine decides): a shorter soak prints them, but is judged by its answers alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

import numpy as np
from bench_serve import renamed
from http_load import Client, request_bytes, running
from table import Row, finish, parser

from coldhash import MFDCF, read

SECONDS = 600
STEADY = 6  # connections that ask all the time
PAUSE = 0.01  # seconds between their requests: a soak, not a race
SWAP_EVERY = 5.0  # seconds
GROWTH = 0.05  # of the memory, which is noise
RECOMMEND = "/v1/recommend"

# what should not be asked, and the status that it gets; None: the connection may just close
HOSTILE: list[tuple[bytes, int | None]] = [
    (request_bytes("POST", RECOMMEND, {"user": {"age": {"$gt": 0}}}), 422),
    (request_bytes("POST", RECOMMEND, {"user": {"history": {"a1": 99}}}), 422),
    (request_bytes("POST", RECOMMEND, {"user": {}, "k": 10**9}), 422),
    (request_bytes("POST", RECOMMEND, {"user_id": "nobody"}), 404),
    (request_bytes("POST", RECOMMEND, {"user": {"agee": 1}}), 422),
    (request_bytes("POST", "/v1/recommend/batch", {"users": [{}] * 2001}), 413),
    (request_bytes("POST", RECOMMEND, "x" * 1_100_000), 413),
    (request_bytes("GET", "/page/..%2f..%2fetc%2fpasswd"), 404),
    (request_bytes("GET", "/v1/items/" + "x" * 5000 + "/similar"), 404),
    (request_bytes("DELETE", "/v1/model"), 405),
    (b"GET / HTTP/1.1\r\n\r\n", 400),  # for no host
    (b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(200), 400),
    (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
    (b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{", None),  # and goes
]


class Soak:
    """What is known while it runs."""

    def __init__(self, seconds: float, letters: dict[str, str]) -> None:
        self.letters = letters  # of items, by model
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.asked: list[tuple[float, float]] = []  # when, and seconds until the answer
        self.memory: list[tuple[float, float]] = []  # when, and megabytes
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []

    def now(self) -> float:
        return time.monotonic() - self.begin

    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    def look(self, status: int, body: bytes) -> None:
        """Judge the answer to a request that was well meant."""
        self.count["answers"] += 1
        answer = json.loads(body)
        if status != 200:
            self.wrong.append(f"{status} {body[:200]!r}")
        elif "model" in answer:
            ids = set(re.findall(rb'"item_id":"(.)', body))
            if ids - {self.letters[answer["model"]].encode()}:
                self.wrong.append(f"mixed: {ids} of {answer['model']}")


def requests() -> Iterator[bytes]:
    """Yield valid requests of every kind, each a little different from the last."""
    for n in count():
        person = {"age": 18 + n % 60, "gender": ("female", "male", None)[n % 3]}
        yield request_bytes("POST", RECOMMEND, {"user": person, "k": 1 + n % 50})
        yield request_bytes("POST", RECOMMEND, {"user": {"city": f"never seen {n}"}})
        yield request_bytes("POST", RECOMMEND, {"user_id": str(1 + n % 300)})
        yield request_bytes("POST", "/v1/encode", {"user": person})
        yield request_bytes("GET", f"/v1/items?search={n % 100}")
        if n % 10 == 0:
            people = [{"age": age} for age in range(18, 68)]
            yield request_bytes("POST", "/v1/recommend/batch", {"users": people, "k": 20})
            yield request_bytes("GET", "/metrics")


async def steady(soak: Soak, port: int, ask: Iterator[bytes]) -> None:
    """Ask one thing after the other over one connection."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    while soak.goes_on():
        request = next(ask)
        start = time.perf_counter()
        status, body = await client.ask(request)
        soak.asked.append((soak.now(), time.perf_counter() - start))
        if request.startswith(b"GET /metrics"):
            soak.count["answers"] += 1
        else:
            soak.look(status, body)
        await asyncio.sleep(PAUSE)
    client.writer.close()


async def hostile(soak: Soak, port: int) -> None:
    """Send what should not be, each over a connection of its own."""
    for request, wanted in cycle(HOSTILE):
        if not soak.goes_on():
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):  # a large body is refused before it is read
            writer.write(request)
            await writer.drain()
        if wanted is not None:
            with contextlib.suppress(ConnectionError):
                head = await reader.read(12)
                soak.count["hostile"] += 1
                if head and int(head[9:12]) != wanted:
                    soak.wrong.append(f"{request[:60]!r} got {head!r}, not {wanted}")
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        await asyncio.sleep(0.05)


async def slow(soak: Soak, port: int) -> None:
    """Connect, send a part of a request, wait, and disconnect."""
    while soak.goes_on():
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/recommend HTTP/1.1\r\nhost:")
        soak.count["slow"] += 1
        await asyncio.sleep(2.0)
        writer.transport.abort()


async def swap(soak: Soak, process: subprocess.Popen[str], folder: Path, served: Path) -> None:
    """Put the other model in the place of the one that is served."""
    for letter in cycle("ba"):
        await asyncio.sleep(SWAP_EVERY)
        if not soak.goes_on():
            return
        os.link(folder / letter, folder / "next")
        os.replace(folder / "next", served)
        process.send_signal(signal.SIGHUP)
        soak.count["swaps"] += 1


async def weigh(soak: Soak, process: subprocess.Popen[str]) -> None:
    """Note the private memory of the server every second."""
    while soak.goes_on():
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8")
        kilobytes = sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+) kB", text))
        soak.memory.append((soak.now(), kilobytes / 1024))
        await asyncio.sleep(1.0)


async def everything(
    soak: Soak, process: subprocess.Popen[str], port: int, folder: Path, served: Path
) -> None:
    ask = requests()
    await asyncio.gather(
        *(steady(soak, port, ask) for _ in range(STEADY)),
        hostile(soak, port),
        slow(soak, port),
        swap(soak, process, folder, served),
        weigh(soak, process),
    )


def growth(memory: list[tuple[float, float]]) -> tuple[float, float]:
    """Return by how many megabytes a line through the memory rises, and its noise."""
    times, sizes = np.array(memory[len(memory) // 4 :]).T
    slope, base = np.polyfit(times, sizes, 1)
    scatter = float(np.std(sizes - (slope * times + base)))
    noise = max(GROWTH * float(np.median(sizes)), 4 * scatter)
    return float(slope) * float(times[-1] - times[0]), noise


def late(asked: list[tuple[float, float]], first: float, last: float) -> float:
    """Return the p99, in milliseconds, of the answers within a time."""
    return 1000 * float(np.quantile([took for at, took in asked if first <= at < last], 0.99))


def main() -> None:
    more = parser(__doc__ or "")
    more.add_argument("--seconds", type=float, default=SECONDS)
    args = more.parse_args()
    with tempfile.TemporaryDirectory(prefix="coldhash-soak-") as name:
        folder, letters = Path(name), {}
        model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=120))
        for letter in "ab":
            renamed(model, letter).save(folder / letter)
            letters[(folder / letter).read_bytes()[-32:].hex()[:16]] = letter
        served = folder / "served.coldhash"
        os.link(folder / "a", served)
        with running(["-m", "coldhash", "serve", str(served), "--port", "0"]) as (process, port):
            soak = Soak(args.seconds, letters)
            asyncio.run(everything(soak, process, port, folder, served))
            seen = asyncio.run(Client.ask_once(port, "GET", "/metrics"))[1].decode()
    swaps = float(re.findall(r'swaps_total\{result="ok"\} (\S+)', seen)[0])
    span = min(60.0, args.seconds / 3)
    first = late(soak.asked, SWAP_EVERY, SWAP_EVERY + span)
    last = late(soak.asked, args.seconds - span, args.seconds)
    print(f"{args.seconds:.0f} s: {dict(soak.count)}; memory "
          f"{soak.memory[len(soak.memory) // 4][1]:.1f} MB after a quarter, "
          f"{soak.memory[-1][1]:.1f} MB at the end; "
          f"p99 {first:.1f} ms, then {last:.1f} ms")  # fmt: skip
    for each in soak.wrong[:10]:
        print(f"wrong: {each}")
    rows = [
        Row("wrong answers / all", len(soak.wrong), soak.count["answers"], "<= 0"),
        Row("swaps that were seen / made", swaps, soak.count["swaps"], ">= 1"),
    ]
    if args.seconds >= SECONDS:
        rise, noise = growth(soak.memory)
        rows += [
            Row("rise of memory, MB / noise", rise, noise, "<= 1"),
            Row("p99, end / beginning", last, first, "<= 3"),
        ]
    finish(rows, args.out)


if __name__ == "__main__":
    main()
