"""The service on MovieLens-1M, loaded from a second process: speed, swaps, start, memory.

The peer of an answer is a constant of the same size, from uvicorn with a ten-line app in a process
of its own, with the same HTTP parser. The models that are swapped have different items, so that a
mixed answer shows. The memory of workers is proportional set size: a page that n of them share
counts 1/n for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from bench_store import catalogue
from http_load import LONGEST, Client, load, must_be_200, raw_load, request_bytes, running
from table import Row, finish, options

from coldhash import MFDCF, Dataset, Ids, Recommender, read

CONNECTIONS = 32
AGES = (1, 18, 25, 35, 45, 50, 56)
BARE = """
import socket, sys
from uvicorn import Config, Server

body = b"x" * int(sys.argv[1])
headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})

listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print(f"serving on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
Server(Config(app, lifespan="off", log_level="warning", access_log=False)).run([listener])
"""


def usual(n: int) -> dict[str, Any]:
    """Return one of the 294 kinds of people of MovieLens, in turn."""
    return {"gender": "FM"[n % 2], "age": AGES[n // 2 % 7], "occupation": str(n // 14 % 21)}


def unlike(n: int) -> dict[str, Any]:
    """Return somebody new: no kept answer helps."""
    return usual(n) | {"occupation": f"never seen {time.perf_counter_ns()}"}


def requests(who: Callable[[int], dict[str, Any]], n: int) -> list[bytes]:
    """Return requests to recommend to n people."""
    return [request_bytes("POST", "/v1/recommend", {"user": who(at), "k": 10}) for at in range(n)]


def speed(file: Path, quick: bool) -> list[Row]:
    """Compare with a bare server: time to an answer, requests a second, and at half of that."""
    n_requests, rounds = (1000, 3) if quick else (3000, 7)
    size = len(json.dumps(_one_answer(file)))
    p50, rates, p99 = (defaultdict[str, list[float]](list) for _ in range(3))
    with (
        running(["-m", "coldhash", "serve", str(file), "--port", "0"]) as (_, port),
        running(["-c", BARE, str(size)]) as (_, bare),
    ):
        kinds = (("usual", port, usual), ("unlike", port, unlike), ("bare", bare, usual))
        for turn in range(rounds + 1):  # in turns, so that noise meets all alike; one to warm up
            for name, to, who in kinds:
                # new ones for each load: the server keeps answers, so the same would be cached
                first, many, halved = (requests(who, n_requests) for _ in range(3))
                alone = raw_load(to, first, 1)
                start = time.perf_counter()
                raw_load(to, many, CONNECTIONS)
                rate = n_requests / (time.perf_counter() - start)
                if turn:
                    p50[name].append(float(np.median(alone) * 1000))
                    rates[name].append(rate)
                    half = raw_load(to, halved, CONNECTIONS, float(np.median(rates[name])) / 2)
                    p99[name].append(float(np.quantile(half, 0.99) * 1000))

    def row(what: str, found: dict[str, list[float]], name: str, target: str) -> Row:
        ours, peer = (float(np.median(found[each])) for each in (name, "bare"))
        return Row(f"{what} / bare uvicorn", ours, peer, target, f"uvicorn {version('uvicorn')}")

    rate_of = f"requests a second, {CONNECTIONS} connections"
    return [
        row("p50 ms, 1 connection", p50, "usual", "<= 2"),
        row("p50 ms, 1 connection, no two alike", p50, "unlike", "<= 4"),
        row(f"{rate_of}, kept answers", rates, "usual", ">= 0.5"),
        row(f"{rate_of}, no two alike", rates, "unlike", ">= 0.4"),
        row("p99 ms at half of the highest load of each", p99, "usual", "<= 2"),
    ]


def batch(file: Path, quick: bool) -> list[Row]:
    """Measure a batch of 1,000 strangers, no two alike."""
    with running(["-m", "coldhash", "serve", str(file), "--port", "0"]) as (_, port):
        seconds = []
        for _ in range(4 if quick else 12):
            asked = {"users": [unlike(n) for n in range(1000)], "k": 10}
            request = request_bytes("POST", "/v1/recommend/batch", asked)
            seconds.append(asyncio.run(load(port, [request], 1, must_be_200))[0])
    return [
        Row("a stranger of a batch of 1,000, µs / 40", float(np.median(seconds)) * 1000, 40, "<= 1")
    ]


def _one_answer(file: Path) -> dict[str, Any]:
    answers: list[bytes] = []
    with running(["-m", "coldhash", "serve", str(file), "--port", "0"]) as (_, port):
        request = request_bytes("POST", "/v1/recommend", {"user": usual(0), "k": 10})
        asyncio.run(load(port, [request], 1, lambda status, body: answers.append(body)))
    return dict(json.loads(answers[0]))


def renamed(model: Recommender, letter: str) -> Recommender:
    ids = Ids.of([f"{letter}{row}" for row in range(len(model.item_ids))], "item")
    return replace(model, item_ids=ids)


def swaps(model: Recommender, folder: Path, quick: bool) -> list[Row]:
    """Swap two models while requests come in; each answer must be of one of them alone."""
    n_requests, n_swaps = (2000, 5) if quick else (10_000, 20)
    served, letters = folder / "served.coldhash", {}
    for letter in "ab":
        renamed(model, letter).save(folder / letter)
        letters[(folder / letter).read_bytes()[-32:].hex()[:16]] = letter
    os.link(folder / "a", served)
    count = {"answers": 0, "made": 0, "swaps": 0, "errors": 0, "mixed": 0}

    def look(status: int, body: bytes) -> None:
        count["answers"] += 1
        if status != 200:
            count["errors"] += 1
            return
        answer = json.loads(body)
        letter = letters[answer["model"]]
        count["mixed"] += {item["item_id"][0] for item in answer["items"]} != {letter}
        # a late answer of the model before is no swap back
        count["swaps"] += count["swaps"] < count["made"] and letter == "ab"[count["made"] % 2]

    async def swap(process: subprocess.Popen[str]) -> None:
        for turn in range(n_swaps):
            while count["swaps"] < turn or count["answers"] < turn * n_requests // n_swaps:
                await asyncio.sleep(0.005)
            os.link(folder / "ba"[turn % 2], folder / "next")
            os.replace(folder / "next", served)
            count["made"] += 1
            process.send_signal(signal.SIGHUP)

    async def both(process: subprocess.Popen[str], port: int) -> None:
        swapping = asyncio.create_task(swap(process))
        request = request_bytes("POST", "/v1/recommend", {"user": {"age": 30}, "k": 10})
        while not swapping.done() or count["swaps"] < n_swaps or count["answers"] < n_requests:
            await load(port, [request] * 100, 8, look)
        await swapping

    with running(["-m", "coldhash", "serve", str(served), "--port", "0"]) as (process, port):
        asyncio.run(asyncio.wait_for(both(process, port), LONGEST))
    return [
        Row("requests during swaps / wanted", count["answers"], n_requests, ">= 1"),
        Row("swaps that were seen / made", count["swaps"], n_swaps, ">= 1"),
        Row("failed requests during swaps + 1", count["errors"] + 1, 1, "<= 1"),
        Row("mixed answers during swaps + 1", count["mixed"] + 1, 1, "<= 1"),
    ]


def seconds_to_ready(file: Path, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats + 1):  # the first one fills the cache of compiled code
        start = time.perf_counter()
        with running(["-m", "coldhash", "serve", str(file), "--port", "0"]):
            best = min(best, time.perf_counter() - start)
    return best


def memory(file: Path, n_workers: int) -> dict[str, float]:
    """Serve and ask; gives megabytes of all processes: all, private, and of the model's copy."""
    command = ["-m", "coldhash", "serve", str(file), "--port", "0", "--workers", str(n_workers)]
    with running(command) as (process, port):
        asyncio.run(asyncio.wait_for(_all_up(port, n_workers), LONGEST))
        request = request_bytes("POST", "/v1/recommend", {"user": {"age": 30}, "k": 100})
        asyncio.run(load(port, [request] * 50 * n_workers, 4 * n_workers, must_be_200))
        children = (
            Path(f"/proc/{process.pid}/task/{process.pid}/children")
            .read_text(encoding="utf-8")
            .split()
        )
        pids = [
            pid
            for pid in (str(process.pid), *children)
            if any(map(_is_copy, _mappings(pid, "maps")))
        ]
        assert len(pids) - n_workers in (0, 1)  # the parent has tried the model, too
        each = [_megabytes(pid) for pid in pids]
    return {name: sum(own[name] for own in each) for name in each[0]}


async def _all_up(port: int, n_workers: int) -> None:
    """Wait until all workers have loaded the model and answered once."""
    wanted = re.compile(rb"coldhash_model_workers\{.*\} %d\.0" % n_workers)
    while not wanted.search((await Client.ask_once(port, "GET", "/metrics"))[1]):
        await asyncio.sleep(0.1)


def _mappings(pid: str, name: str) -> list[str]:
    return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8").splitlines()


def _is_copy(mapping: str) -> bool:
    """Tell whether a line is about a mapped copy: without a name, or with one for all workers."""
    return tempfile.gettempdir() in mapping and mapping.endswith(
        (" (deleted)", ".new", ".accepted")
    )


def _megabytes(pid: str) -> dict[str, float]:
    found = {"all": 0.0, "private": 0.0, "file": 0.0}
    of_file = False
    for line in _mappings(pid, "smaps"):
        name, _, value = line.partition(":")
        if "-" in line.split(" ", 1)[0]:  # a new mapping begins
            of_file = _is_copy(line)
        elif name == "Pss":
            found["all"] += int(value.split()[0]) / 1024
            found["file"] += of_file * int(value.split()[0]) / 1024
        elif name.startswith("Private_"):
            found["private"] += (not of_file) * int(value.split()[0]) / 1024
    return found


def shared(small: Recommender, folder: Path, n_items: int) -> list[Row]:
    """Compare four workers with one, and with the heap that each of the others needs anyway."""
    file = folder / "large.coldhash"
    catalogue(small, n_items, n_items // 100).save(file)
    one, four = memory(file, 1), memory(file, 4)
    for name, figures in (("one worker", one), ("four workers", four)):
        print(f"{name}:", ", ".join(f"{part} {mb:,.0f} MB" for part, mb in figures.items()))
    bound = one["all"] + 3 * one["private"]
    return [
        Row("MB of 4 workers / one and 3 private heaps", four["all"], bound, "<= 1.3"),
        Row("MB of the mapped file, 4 workers / one", four["file"], one["file"], "<= 1.3"),
    ]


def main() -> None:
    args = options(__doc__ or "")
    data: Dataset = read("sample") if args.data is None else read("ml-1m", args.data)
    small = MFDCF(n_bits=64).fit(read("sample", n_users=200, n_items=120))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "m.coldhash"
        MFDCF(n_bits=64).fit(data).save(file)
        ready = seconds_to_ready(file, 2 if args.quick else 5)
        rows = [
            *speed(file, args.quick),
            *batch(file, args.quick),
            *swaps(small, folder, args.quick),
            Row("seconds from start to ready / 2", ready, 2, "<= 1"),
            *shared(small, folder, 1_000_000 if args.quick else 10_000_000),
        ]
    finish(rows, args.out)


if __name__ == "__main__":
    main()
