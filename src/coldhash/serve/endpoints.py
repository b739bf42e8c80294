"""The endpoints: check, compute, count, write."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import Path, Query, Request
from starlette.responses import Response, StreamingResponse

from coldhash.features.people import HISTORY
from coldhash.serve import answers
from coldhash.serve.answers import RecommendOptions
from coldhash.serve.errors import Refused
from coldhash.serve.fields import check_person
from coldhash.serve.limits import Limits
from coldhash.serve.metrics import Metrics
from coldhash.serve.middleware import SERVED
from coldhash.serve.pool import Pool
from coldhash.serve.registry import Served
from coldhash.serve.schemas import Ask, AskCode, AskMany, AskWhy

JSON = "application/json"
NDJSON = "application/x-ndjson"
BLOCK = 64  # people of a batch that are answered at a time,
BLOCK_ITEMS = 2000  # ... and items: what a client does not read is kept in memory
FEW = 32  # ratings or listed items up to which an answer takes a fraction of a millisecond
SMALL = 100_000  # ... on a catalogue of up to so many codes
SMALL_REAL = 2000  # ... or vectors


@dataclass(frozen=True, eq=False)
class Endpoints:
    """What the service does; each request brings the model it is about in its scope."""

    limits: Limits
    metrics: Metrics
    pool: Pool

    async def recommend(self, request: Request, ask: Ask) -> Response:
        """Recommend to one person: a stranger, or a user of the training data."""
        served: Served = request.scope[SERVED]
        options = self._wish(ask)
        if (ask.user is None) == (ask.user_id is None):
            raise Refused(422, "say for whom", field="user", hint="either user or user_id")
        users, user_ids, at = None, None, "user_id"
        if ask.user is not None:
            self._check(served, [ask.user], ["user"])
            users, at = [ask.user], "user"
        else:
            assert ask.user_id is not None
            user_ids = [ask.user_id]
        start = time.perf_counter()
        if is_quick(served, users, options):
            # measured: the hop to a thread and back costs more than this answer takes
            answer = answers.recommend(served, users, user_ids, options, at)[0]
        else:
            found = await self.pool.run(answers.recommend, served, users, user_ids, options, at)
            answer = found[0]
        took = time.perf_counter() - start
        if users is not None:
            self.metrics.count_answers([answer])
        return as_json(answer, took)

    async def recommend_batch(self, request: Request, ask: AskMany) -> Response:
        """Recommend to many people, in one JSON document or as lines (Accept: x-ndjson)."""
        served: Served = request.scope[SERVED]
        options = self._wish(ask)
        if (ask.users is None) == (ask.user_ids is None):
            raise Refused(422, "say for whom", field="users", hint="either users or user_ids")
        people: list[Any] = ask.users if ask.users is not None else ask.user_ids or []
        at = "users" if ask.users is not None else "user_ids"
        if len(people) > self.limits.max_batch:
            raise _over(at, len(people), self.limits.max_batch)
        if len(people) * options.k > self.limits.max_batch_items:
            most = f"at most {self.limits.max_batch_items:,}: fewer people at a time, or a lower k"
            message = f"{len(people):,} people x k={options.k:,} is more than this server takes"
            raise Refused(413, message, field=at, hint=most)
        if ask.users is not None:
            self._check(served, ask.users, (f"users.{place}" for place in range(len(people))))
        blocks = self._blocks(served, people, ask.users is not None, options, at)
        nobody: list[bytes] = []
        first = await anext(blocks, nobody)  # what is wrong with the request is raised here
        if NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(_as_lines(first, blocks), media_type=NDJSON)
        return StreamingResponse(_as_document(first, blocks, served.version), media_type=JSON)

    async def encode(self, request: Request, ask: AskCode) -> Response:
        """Turn a person into a vector and a code."""
        served: Served = request.scope[SERVED]
        self._check(served, [ask.user], ["user"])
        start = time.perf_counter()
        answer = await self.pool.run(answers.encode, served, ask.user)
        return as_json(answer, time.perf_counter() - start)

    async def explain(self, request: Request, ask: AskWhy) -> Response:
        """Say why an item suits a person: parts that add up to the score, and a sentence."""
        served: Served = request.scope[SERVED]
        self._check(served, [ask.user], ["user"])
        start = time.perf_counter()
        answer = await self.pool.run(answers.explain, served, ask.user, ask.item_id)
        return as_json(answer, time.perf_counter() - start)

    async def items(
        self,
        request: Request,
        search: Annotated[str, Query(max_length=200, description="Part of title or id.")] = "",
        limit: Annotated[int, Query(ge=1, le=100, description="How many to give.")] = 20,
    ) -> Response:
        """Find items by a part of their title or id; without one, the most popular items."""
        served: Served = request.scope[SERVED]
        start = time.perf_counter()
        found = await self.pool.run(served.catalogue.search, search, limit)
        items = [{"item_id": item_id, "title": title} for item_id, title in found]
        return as_json({"items": items, "model": served.version}, time.perf_counter() - start)

    async def similar(
        self,
        request: Request,
        item_id: Annotated[str, Path(min_length=1)],
        k: Annotated[int, Query(ge=1, description="How many items.")] = 10,
    ) -> Response:
        """Give the items most like one."""
        served: Served = request.scope[SERVED]
        if k > self.limits.max_k:
            raise _over("k", k, self.limits.max_k)
        start = time.perf_counter()
        answer = await self.pool.run(answers.similar, served, item_id, k)
        return as_json(answer, time.perf_counter() - start)

    async def model(self, request: Request) -> Response:
        """Say what the model is, and what it wants to know of people."""
        served: Served = request.scope[SERVED]
        return Response(served.card, media_type=JSON)

    async def alive(self) -> Response:
        """Say that the process lives."""
        return Response(b'{"status":"ok"}', media_type=JSON)

    async def ready(self) -> Response:
        """Say that a model is loaded and has answered once; before, nothing listens here."""
        return Response(b'{"status":"ready"}', media_type=JSON)

    async def figures(self) -> Response:
        """Give the figures for Prometheus."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    def _wish(self, ask: Ask | AskMany) -> RecommendOptions:
        if ask.k > self.limits.max_k:
            raise _over("k", ask.k, self.limits.max_k)
        return RecommendOptions(
            k=ask.k,
            exclude=ask.exclude,
            candidates=ask.candidates,
            score=ask.score,
            exclude_seen=ask.exclude_seen,
        )

    def _check(
        self, served: Served, people: Iterable[dict[str, Any]], places: Iterable[str]
    ) -> None:
        scale, most = served.model.scale, self.limits.max_history
        for person, at in zip(people, places, strict=True):
            check_person(person, served.fields, scale, most, at)

    async def _blocks(
        self, served: Served, people: list[Any], strangers: bool, options: RecommendOptions, at: str
    ) -> AsyncIterator[list[bytes]]:
        """Answer some people at a time; the next ones when these have been sent."""
        order, step = self.pool.arrival(), max(1, min(BLOCK, BLOCK_ITEMS // options.k))
        for start in range(0, len(people), step):
            some = people[start : start + step]
            users, user_ids = (some, None) if strangers else (None, some)
            yield await self.pool.run_in_order(
                order, start == 0, self._written, served, users, user_ids, options, at
            )

    def _written(
        self,
        served: Served,
        users: list[Any] | None,
        user_ids: list[Any] | None,
        options: RecommendOptions,
        at: str,
    ) -> list[bytes]:
        """Answer some people, and write the answers as JSON."""
        found = answers.recommend(served, users, user_ids, options, at)
        if users is not None:
            self.metrics.count_answers(found)
        return [orjson.dumps(each) for each in found]


def is_quick(served: Served, users: list[dict[str, Any]] | None, options: RecommendOptions) -> bool:
    """Whether an answer takes a fraction of a millisecond, as far as can be foreseen."""
    model = served.model
    small = len(model.item_ids) <= (SMALL if model.has_codes else SMALL_REAL)
    rated = 0 if users is None else len(users[0].get(HISTORY) or ())
    listed = max(len(options.exclude or ()), len(options.candidates or ()))
    return small and max(rated, listed) <= FEW and options.k <= SMALL // 1000


def as_json(content: dict[str, Any], seconds: float) -> Response:
    """Write an answer, and in a header how long the computation took."""
    return Response(orjson.dumps(content), media_type=JSON, headers=_timing(seconds))


def _timing(seconds: float) -> dict[str, str]:
    return {"Server-Timing": f"total;dur={seconds * 1000:.3f}"}


def _over(field: str, given: int, most: int) -> Refused:
    return Refused(422, f"{given:,} is more than this server takes", field=field,
                   hint=f"at most {most:,}")  # fmt: skip


async def _as_lines(first: list[bytes], rest: AsyncIterator[list[bytes]]) -> AsyncIterator[bytes]:
    yield b"".join(each + b"\n" for each in first)
    async for block in rest:
        yield b"".join(each + b"\n" for each in block)


async def _as_document(
    first: list[bytes], rest: AsyncIterator[list[bytes]], version: str
) -> AsyncIterator[bytes]:
    yield b'{"answers":[' + b",".join(first)
    async for block in rest:
        yield b"," + b",".join(block)
    yield b'],"model":"' + version.encode() + b'"}'
