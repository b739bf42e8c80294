"""The operations of the API: read and check a request, compute, write the answer."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, wraps
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from coldhash.errors import ColdhashError
from coldhash.recommender.export import Planes
from coldhash.recommender.recommender import USER_ID
from coldhash.recommender.results import Recommendations, Row
from coldhash.recommender.where import Where
from coldhash.serve import schemas
from coldhash.serve.monitoring import Metrics
from coldhash.serve.registry import PersonAnswer, ServedModel, cut_title
from coldhash.serve.schemas import JSON, Limits, Person, Request, RequestError, field_error

NDJSON = "application/x-ndjson"
BATCH = "/v1/recommend/batch"
HEALTH_PATHS = ("/healthz", "/readyz")  # without a token, under any host
MODEL = "/v1/model"
SIMILAR = "/v1/items/{item_id:path}/similar"
SERVED = "coldhash.served"  # a key of scopes: the model that answers the request
HEADERS = "coldhash.headers"  # a key of scopes: the headers as a dict
BODY = "coldhash.body"  # a key of scopes: the body of a request to recommend to one person
MAX_BLOCK = 64  # people of a batch that are answered at a time, and
MAX_BLOCK_ITEMS = 2000  # items: what a client does not read is kept in memory
# An answer up to these sizes takes a fraction of a millisecond, less than the change to a thread
# and back: measured.
QUICK_BODY = 500  # bytes of the request
QUICK_K = 100
QUICK_CODES = 100_000  # items of a model with codes
QUICK_VECTORS = 2000  # items of another model

T = TypeVar("T")
People = Mapping[str, Sequence[Any]]  # "users", "user_ids" or both, of the same length
Answer = PersonAnswer | Exception
Alike = tuple[asyncio.AbstractEventLoop, ServedModel, bytes]  # what requests of a batch share


class Pool:
    """Threads for work that would block other requests.

    There are as many as cores, behind a bounded priority queue. Single requests come first, then
    batches in the order of their arrival: under load the earliest batches finish, instead of all of
    them running out of time together. A batch whose client does not read has nothing in the queue,
    so it delays nobody.

    Work whose request has timed out is removed from the queue; once started, it finishes, and its
    result is dropped.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._n_waiting = 0
        self._n_free = os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(self._n_free, "coldhash-serve")
        self.arrivals = count(1)  # orders of batches
        self._queue: list[tuple[int, int, asyncio.Future[Any], Callable[[], Any]]] = []

    async def run(self, work: Callable[[], T], order: int = 0, is_new: bool = True) -> T:
        """Run work in a thread, lower orders first; new work is refused if the queue is full."""
        if is_new and self._n_waiting >= self._max_waiting:
            raise RequestError(503, "too many requests are waiting", hint="try again later")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        heappush(self._queue, (order, next(self.arrivals), result, work))
        self._n_waiting += 1
        try:
            self._start_next()
            return await result
        finally:
            self._n_waiting -= 1

    def _start_next(self) -> None:
        while self._queue and self._n_free > 0:
            _, _, result, work = heappop(self._queue)
            if not result.done():  # cancelled: its request has timed out
                self._n_free -= 1
                running = result.get_loop().run_in_executor(self._threads, work)
                running.add_done_callback(partial(self._finish, result))

    def _finish(self, result: asyncio.Future[T], running: asyncio.Future[T]) -> None:
        self._n_free += 1
        error = running.exception()
        if not result.done():
            result.set_exception(error) if error else result.set_result(running.result())
        result.get_loop().call_soon(self._start_next)  # after a batch has queued its next block


@dataclass(eq=False)
class Operation:
    """An operation: an ASGI application that reads and checks a request, and calls `handler`.

    Bodies are read by orjson: no NaN, no lone surrogates, no endless nesting.
    """

    limits: Limits
    method: str
    path: str
    handler: Callable[[Scope, Request], Awaitable[Response | bytes]]
    request: str | None = None  # one of REQUESTS, the handler's second argument
    answer: type[BaseModel] | None = None
    text_type: str | None = None  # media type of answers that are not JSON
    recall: Callable[[Scope], bytes | None] = lambda scope: None  # an answer that is kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["endpoint"] = self
        if self.method == "POST":
            scope[BODY] = await self._read_body(scope[HEADERS], receive)
        start = time.perf_counter()
        response: Response | bytes | None = self.recall(scope)
        if response is None:
            request = {} if self.request is None else self._read(self.request, scope)
            try:
                response = await self.handler(scope, request)
            except ColdhashError as error:
                raise schemas.library_error(error, schemas.subject(request)) from None
        if isinstance(response, bytes):
            timing = f"total;dur={(time.perf_counter() - start) * 1000:.3f}"
            response = Response(response, 200, {"server-timing": timing}, JSON)
        await response(scope, receive, send)

    def _read(self, name: str, scope: Scope) -> Request:
        values = {}
        if self.method == "POST":
            try:
                values = orjson.loads(scope[BODY])
            except orjson.JSONDecodeError as error:
                reason = f"not JSON: {error.msg}"
                raise field_error("body", reason, "RFC 8259, in UTF-8") from None
        if isinstance(values, dict):
            if scope["query_string"]:
                values |= schemas.parse_query(QueryParams(scope["query_string"]))
            values |= scope.get("path_params", {})
        served: ServedModel = scope[SERVED]
        return served.types(self.limits).read(name, values)

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError(400, "the body is incomplete")
            body += message.get("body", b"")
            if len(body) > self.limits.max_body:
                hint = f"at most {self.limits.max_body:,} bytes"
                raise RequestError(413, "the body is too large for this server", hint=hint)
            more = message.get("more_body", False)
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type != JSON.encode():
            raise field_error("body", "the Content-Type is missing, or not JSON", JSON)
        return body


class Endpoints:
    """The operations; the scope of a request holds the model that answers it."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._pool = Pool(limits.max_waiting)
        # quick requests that are answered next, by loop, model, kind of people and options
        self._arrived: dict[Alike, list[tuple[Request, asyncio.Future[Answer]]]] = {}

    def operations(self) -> list[Operation]:
        """Return the operations of the API."""
        get, post = (partial(Operation, self._limits, method) for method in ("GET", "POST"))
        run, kept = self._computed, partial(post, recall=self.recall)
        return [
            kept("/v1/recommend", self.recommend, "RecommendRequest", schemas.RecommendAnswer),
            post(BATCH, self.recommend_batch, "BatchRequest", schemas.BatchAnswer, NDJSON),
            post("/v1/encode", run(encode), "EncodeRequest", schemas.EncodeAnswer),
            post("/v1/explain", run(explain), "ExplainRequest", schemas.ExplainAnswer),
            post("/v1/ask", run(ask), "AskRequest", schemas.AskAnswer),
            get("/v1/items", run(search_items), "ItemsQuery", schemas.ItemsAnswer),
            get(SIMILAR, run(similar_items), "SimilarQuery", schemas.ItemsAnswer),
            get(MODEL, self.model),
            get("/healthz", self.alive),
            get("/readyz", self.ready),
            get("/metrics", self.metrics, None, None, "text/plain"),
        ]

    def _computed(self, work: Callable[..., Row]) -> Callable[..., Awaitable[bytes]]:
        """Return a handler that runs `work(served, **request)` in a thread."""

        @wraps(work)
        async def handler(scope: Scope, request: Request) -> bytes:
            answer = await self._pool.run(partial(work, scope[SERVED], **request))
            return orjson.dumps(answer, default=str)

        return handler

    async def recommend(self, scope: Scope, request: Request) -> bytes:
        """Recommend to one person: a stranger, or a user of the training data."""
        served: ServedModel = scope[SERVED]
        n_quick = QUICK_CODES if served.model.has_codes else QUICK_VECTORS
        is_simple = len(scope[BODY]) <= QUICK_BODY and not scope["query_string"]
        is_quick = is_simple and request["k"] <= QUICK_K and not request["where"]
        if is_quick and len(served.model.item_ids) <= n_quick:
            answer = await self._answer_soon(served, request)
        else:
            work = partial(self._answer, served, request, group_people([request]))
            (answer,) = await self._pool.run(work)
        if isinstance(answer, Exception):
            raise answer
        if is_simple and request["user_id"] is None:
            served.cache_answer(scope[BODY], request["user"], answer)
        return answer.body

    def _answer_soon(self, served: ServedModel, request: Request) -> asyncio.Future[Answer]:
        """Answer a request in one go with those that come in at the same time, options alike.

        That takes a fraction of the time of one after the other.
        """
        loop = asyncio.get_running_loop()
        options = [*group_people([request]), *map(request.__getitem__, schemas.OPTIONS)]
        key = loop, served, orjson.dumps(options)
        if key not in self._arrived:
            self._arrived[key] = []
            loop.call_soon(self._answer_arrived, key)
        answer: asyncio.Future[Answer] = loop.create_future()
        self._arrived[key].append((request, answer))
        return answer

    def _answer_arrived(self, key: Alike) -> None:
        requests, results = zip(*self._arrived.pop(key), strict=True)
        answers = self._answer(key[1], requests[0], group_people(requests))
        for result, answer in zip(results, answers, strict=True):
            if not result.done():  # its request has timed out, or the client is gone
                result.set_result(answer)

    def _answer(self, served: ServedModel, request: Request, people: People) -> list[Answer]:
        """Recommend to people; what is wrong with one of them is the answer to that one."""
        try:
            answers = answer_people(served, request, people)
        except Exception as error:
            n_people = len(next(iter(people.values())))
            if not n_people:
                raise
            if n_people == 1 or getattr(error, "argument", None) in schemas.OPTIONS:
                return [error] * n_people
            each = ({name: [of[at]] for name, of in people.items()} for at in range(n_people))
            return [self._answer(served, request, alone)[0] for alone in each]
        self._metrics.count(answers)
        return [*answers]

    def recall(self, scope: Scope) -> bytes | None:
        """Return the answer to an earlier request with the same body, if it is kept."""
        served: ServedModel = scope[SERVED]
        answer = None if scope["query_string"] else served.answers.get(scope[BODY])
        if answer is None:
            return None
        self._metrics.count([answer])
        return answer.body

    async def recommend_batch(self, scope: Scope, request: Request) -> Response:
        """Recommend to many people, in one JSON document or as lines (Accept: x-ndjson)."""
        users, user_ids, k = request["users"], request["user_ids"], request["k"]
        n_people = len(user_ids if users is None else users)
        if n_people != len(users if user_ids is None else user_ids):
            message = f"{len(user_ids)} user_ids for {len(users)} users"
            raise RequestError(400, message, field="user_ids", hint="one for each of users")
        if n_people * k > self._limits.max_batch_items:
            message = f"{n_people:,} people x k={k:,} is more than this server allows"
            hint = f"at most {self._limits.max_batch_items:,}: fewer people at a time, or a lower k"
            raise RequestError(413, message, field=schemas.subject(request), hint=hint)
        served: ServedModel = scope[SERVED]
        as_lines = NDJSON.encode() in scope[HEADERS].get(b"accept", b"")
        begin, separator, end = b"", b"", b""
        if not as_lines:
            model = orjson.dumps({"model": served.version})
            begin, separator, end = b'{"answers":[', b",", b"]," + model[1:]
        order, step = next(self._pool.arrivals), max(1, min(MAX_BLOCK, MAX_BLOCK_ITEMS // k))

        def write(start: int) -> bytes:
            if not start:
                answer_people(served, request, {"users": []})  # raises errors of the options
            rows = range(start, min(start + step, n_people))
            return separator.join(self._write_rows(served, request, rows))

        first = await self._pool.run(partial(write, 0), order)

        async def content() -> AsyncIterator[bytes]:  # a block when the last one has been sent
            yield begin + first
            for start in range(step, n_people, step):
                text = await self._pool.run(partial(write, start), order, is_new=False)
                yield separator + text
            yield end

        return StreamingResponse(content(), media_type=NDJSON if as_lines else JSON)

    async def model(self, scope: Scope, _: Request) -> bytes:
        """Return a description of the model, and the fields of a person that it uses."""
        card: bytes = scope[SERVED].card
        return card

    async def alive(self, scope: Scope, _: Request) -> bytes:
        """Return ok if the process answers."""
        return b'{"status":"ok"}'

    async def ready(self, scope: Scope, _: Request) -> bytes:
        """Return ready: a server listens only after its model has answered once."""
        return b'{"status":"ready"}'

    async def metrics(self, scope: Scope, _: Request) -> Response:
        """Return the metrics for Prometheus."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    def _write_rows(
        self, served: ServedModel, request: Request, rows: Sequence[int]
    ) -> Iterator[bytes]:
        """Recommend to some people of a batch; an error of one of them stands in its place."""
        types = served.types(self._limits)
        written: dict[int, bytes] = {}
        good: dict[int, Person] = {}
        for row in rows:
            try:
                good[row] = types.read_row(request, row)
            except RequestError as error:
                written[row] = schemas.error_body(error)
        given = [name for name in ("users", "user_ids") if request[name] is not None]
        people = {name: [each[name] for each in good.values()] for name in given}
        for row, answer in zip(good, self._answer(served, request, people), strict=True):
            if isinstance(answer, PersonAnswer):
                written[row] = answer.body
            elif isinstance(answer, ColdhashError) and answer.argument not in schemas.OPTIONS:
                named = schemas.library_error(answer, f"{given[-1]}.{row}")
                written[row] = schemas.error_body(named)
            else:
                raise answer
        return (written[row] + b"\n" for row in rows)


def group_people(requests: Sequence[Request]) -> People:
    """Return the people of requests to recommend that differ in nothing else, as of a batch."""
    given = [name for name in ("user", "user_id") if requests[0][name] is not None]
    return {f"{name}s": [request[name] for request in requests] for name in given}


def answer_people(served: ServedModel, request: Request, people: People) -> list[PersonAnswer]:
    """Recommend to strangers, to training users, or to those of `user_ids` that are known."""
    users, user_ids = people.get("users"), people.get("user_ids")
    names: Sequence[object] = user_ids or [person.get(USER_ID) for person in users or ()]
    encoded = served.model.encode(users, user_ids=user_ids)
    options = {name: request[name] for name in schemas.OPTIONS}
    # requests share the cores, no request takes all of them
    found = served.model.recommend(encoded, **options, threads=1)
    answers = []
    for items, name, person in zip(list_items(found), names, served.describe(encoded), strict=True):
        person["user_id"] = None if name is None else str(name)
        body = orjson.dumps({"items": items, **person}, default=str)
        missing = [group for group, share in person["weights"].items() if share == 0]
        known = user_ids is not None and served.model.user_ids.row_of(str(name)) >= 0
        answers.append(PersonAnswer(body, person["fallback"], missing, known))
    return answers


def list_items(found: Recommendations) -> Iterator[list[Row]]:
    """Return the items of each person, best first."""
    describe, scores = found.items.describe, found.scores.tolist()
    for person, rows in enumerate(found.rows.tolist()):
        ranked = zip(rows, scores[person], count(1))
        items = [
            {**cut_title(describe(row)), "score": score, "rank": rank}
            for row, score, rank in ranked
            if row >= 0
        ]
        if found.distances is not None:
            near = found.distances[person].tolist()
            for item in items:
                item["distance"] = None if found.fallback[person] else near[item["rank"] - 1]
        yield items


def encode(served: ServedModel, user: Person, planes: int | None) -> Row:
    """Encode a person: return the vector and the code."""
    encoded = served.model.encode([user])
    (described,) = served.describe(encoded)
    rounded = None
    if planes is not None:
        found = Planes.of(encoded.vectors[0], planes)
        rounded = {"bits": found.texts, "scale": found.scale, "offset": found.offset}
    return {"vector": encoded.vectors[0].tolist(), "planes": rounded, **described}


def search_items(served: ServedModel, search: str, limit: int, fields: list[str] | None) -> Row:
    """Find items by a part of their title or id; without one, the most popular items."""
    rows = served.search_items(search, limit)
    describe = served.model.show(fields).describe
    items = [cut_title(describe(row)) for row in rows.tolist()]
    return {"items": items, "model": served.version}


def similar_items(
    served: ServedModel, item_id: str, k: int, fields: list[str] | None, where: Where | None
) -> Row:
    """Return the items most similar to one."""
    found = served.model.similar_items(item_id, k, where=where, fields=fields)
    items = [{"distance": None, **cut_title(item)} for item in found]
    return {"items": items, "model": served.version}


def explain(served: ServedModel, user: Person, item_id: str, popularity: float) -> Row:
    """Explain a score: return parts that add up to it."""
    found: Row = {**served.model.explain(user, item_id, popularity=popularity)}
    del found["nearest_users"]  # the ids of other people
    weights = found.pop("group_weights")
    return {**found, "weights": weights, "model": served.version}


def ask(served: ServedModel, **request: Any) -> Row:
    """Return what to ask a person next, by what the answer is expected to improve."""
    return {"questions": served.model.ask(**request), "model": served.version}
