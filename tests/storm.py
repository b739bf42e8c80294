"""Hostile requests sent to a server over a few connections, and what came back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from coldhash import Recommender
from connections import Client
from hostile import Answers, Shot

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
