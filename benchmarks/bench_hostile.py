"""100,000 requests, most of them hostile, against a server process: nothing breaks or grows.

Every fifth request is a good one, whose answer must be the one that the model gives here. Memory is
the resident set of the server; it is compared with what it was after the first tenth, when caches
are full and everything is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hostile import Answers, Shot, shots
from http_load import Client, running
from table import Row, finish, options

from coldhash import MFDCF, Recommender, load, read

CONNECTIONS = 8
LONGEST = 60  # seconds until an answer counts as missing
K = 10


@dataclass
class Outcome:
    """What came back."""

    statuses: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)  # good requests with another answer
    bad: list[str] = field(default_factory=list)  # statuses of 500 and above
    hung: list[str] = field(default_factory=list)

    def note(self, shot: Shot, status: int, body: bytes) -> None:
        """Count an answer; 0 is none at all."""
        told = str(status) if status else "closed"
        self.statuses[told] += 1
        self.kinds.setdefault(shot.kind, Counter())[told] += 1
        if status >= 500:
            self.bad.append(f"{shot.kind}: {status} to {shot.pieces[0][:300]!r}")
        if shot.items is not None and (status != 200 or _items(body) != shot.items):
            self.wrong.append(f"{status}: {body[:300]!r}")


def _items(body: bytes) -> tuple[str, ...]:
    return tuple(item["item_id"] for item in json.loads(body)["items"])


async def storm(port: int, left: Iterator[Shot], outcome: Outcome) -> None:
    """Send shots over a bounded number of connections."""
    await asyncio.gather(*(_sender(port, left, outcome) for _ in range(CONNECTIONS)))


async def _sender(port: int, left: Iterator[Shot], outcome: Outcome) -> None:
    kept: Client | None = None
    for shot in left:
        try:
            async with asyncio.timeout(LONGEST):
                if shot.kept:
                    kept = kept or Client(*await asyncio.open_connection("127.0.0.1", port))
                    status, body = await kept.ask(shot.pieces[0])
                else:
                    status, body = await _alone(port, shot)
        except TimeoutError:
            outcome.hung.append(f"{shot.kind}: {shot.pieces[0][:300]!r}")
            await _closed(kept)
            kept = None
            continue
        except (OSError, asyncio.IncompleteReadError):  # the server may close on what is no HTTP
            status, body = 0, b""
        if shot.kept and status in (0, 413):  # an answer before all was read: not to be used again
            await _closed(kept)
            kept = None
        outcome.note(shot, status, body)
    await _closed(kept)


async def _closed(client: Client | None) -> None:
    if client is not None:
        client.writer.close()
        with contextlib.suppress(OSError):
            await client.writer.wait_closed()


async def _alone(port: int, shot: Shot) -> tuple[int, bytes]:
    """Send a shot over a connection of its own, and read all that comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):  # the answer may be there before all is sent
            for piece in shot.pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(shot.pause)
            if shot.cut:
                return 0, b""
            if not shot.whole:
                writer.write_eof()  # nothing more comes, however much was promised
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65536):
                answer += part
    finally:
        await _closed(Client(reader, writer))
    found = re.findall(rb"HTTP/1\.1 (\d{3})", answer)
    return max((int(status) for status in found), default=0), answer


def resident(pid: int) -> float:
    """Megabytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def right_answers(model: Recommender) -> Answers:
    people = [{"age": age, "gender": gender} for age in range(18, 60, 4)
              for gender in ("female", "male")]  # fmt: skip
    people += [{}] + [{"history": {model.item_ids[row]: 5}} for row in range(20)]
    return [(person, tuple(row["item_id"] for row in model.recommend(person, k=K)))
            for person in people]  # fmt: skip


def served_5xx(text: str) -> int:
    """Count what the server itself calls a mistake, also where nobody waited for the answer."""
    found = re.findall(r'coldhash_requests_total\{.*status="5\d\d"\} (\d+)', text)
    return sum(map(int, found))


def main() -> None:
    args = options(__doc__ or "")
    n = 5000 if args.quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.coldhash"
        MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=500)).save(file)
        model = load(file)
        answers, ids = right_answers(model), list(model.item_ids)
        outcome, start = Outcome(), time.perf_counter()
        command = ["-m", "coldhash", "serve", str(file), "--port", "0", "--allowed-host", "x"]
        with running(command) as (process, port):
            asyncio.run(storm(port, shots(n // 10, 1, answers, ids), outcome))
            before = resident(process.pid)
            asyncio.run(storm(port, shots(n - n // 10, 2, answers, ids), outcome))
            after = resident(process.pid)
            alive = process.poll() is None
            status, figures = asyncio.run(Client.ask_once(port, "GET", "/metrics"))
            assert status == 200
    for kind, statuses in sorted(outcome.kinds.items()):
        print(
            f"{kind:18}", ", ".join(f"{told}: {count:,}" for told, count in statuses.most_common())
        )
    for what in (outcome.bad, outcome.wrong, outcome.hung):
        print(*what[:5], sep="\n", end="\n" if what else "")
    print(f"{n:,} requests in {time.perf_counter() - start:.0f} s, {before:.1f} -> {after:.1f} MB")
    finish(
        [
            Row("requests / wanted", sum(outcome.statuses.values()) + len(outcome.hung), n, ">= 1"),
            Row("statuses of 500 and above + 1", len(outcome.bad) + 1, 1, "<= 1"),
            Row("... by the server's own count + 1", served_5xx(figures.decode()) + 1, 1, "<= 1"),
            Row("requests without an end + 1", len(outcome.hung) + 1, 1, "<= 1"),
            Row("good requests not answered right + 1", len(outcome.wrong) + 1, 1, "<= 1"),
            Row("servers alive at the end", float(alive), 1, ">= 1"),
            Row("MB at the end / after a tenth", after, before, "<= 1.05"),
        ],
        args.out,
    )


if __name__ == "__main__":
    main()
