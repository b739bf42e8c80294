"""The operations of the API: read and check a request, compute, write the answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property, partial
from types import NoneType
from typing import Any, get_type_hints

import orjson
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from coldhash.features.people import HISTORY
from coldhash.recommender.results import Row
from coldhash.serve import answers, schemas
from coldhash.serve.limits import HINT, Limits, RequestError
from coldhash.serve.monitoring import Metrics
from coldhash.serve.pool import Pool
from coldhash.serve.registry import ServedModel

JSON = "application/json"
NDJSON = "application/x-ndjson"
END_LINE = orjson.OPT_APPEND_NEWLINE
JSON_ENDINGS = (b"/json", b"+json")
BATCH = "/v1/recommend/batch"
SIMILAR = "/v1/items/{item_id:path}/similar"
SERVED = "coldhash.served"  # the key of a scope: the model that answers the request
MAX_BLOCK = 64  # people of a batch that are answered at a time, and
MAX_BLOCK_ITEMS = 2000  # items: what a client does not read is kept in memory
# An answer up to these sizes takes a fraction of a millisecond, less than the change to a thread
# and back: measured.
QUICK_LIST = 32  # ratings or listed items
QUICK_K = 100
QUICK_CODES = 100_000  # items of a model with codes
QUICK_VECTORS = 2000  # items of another model


@dataclass(eq=False)
class Operation:
    """An operation: an ASGI application that reads and checks a request, and calls `handler`.

    Bodies are read by orjson: no NaN, no lone surrogates, no endless nesting.
    """

    method: str
    path: str
    handler: Callable[[Scope, Any], Awaitable[Response]]
    answer: type[BaseModel] | None = None
    text_types: tuple[str, ...] = ()  # media types of answers that are not JSON

    @cached_property
    def request(self) -> type[BaseModel] | None:
        """The type of the handler's second argument; None if it needs nothing of a request."""
        _, request, _ = get_type_hints(self.handler).values()
        return None if request is NoneType else request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = None if self.request is None else await self._read(self.request, scope, receive)
        response = await self.handler(scope, request)
        await response(scope, receive, send)

    async def _read(self, kind: type[BaseModel], scope: Scope, receive: Receive) -> BaseModel:
        try:
            if self.method == "GET":
                query = QueryParams(scope["query_string"])
                return kind.model_validate({**query, **scope["path_params"]})
            return kind.model_validate(await _read_json(scope, receive))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "body"
            message = first["msg"].removeprefix("Value error, ")
            raise RequestError(422, message, field=field, hint=HINT) from None


async def _read_json(scope: Scope, receive: Receive) -> object:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError(400, "the body is incomplete")
        body += message.get("body", b"")
        more = message.get("more_body", False)
    content_type = dict(scope["headers"]).get(b"content-type", b"")
    media_type = content_type.partition(b";")[0].strip().lower()
    if not (media_type.startswith(b"application/") and media_type.endswith(JSON_ENDINGS)):
        raise RequestError(422, "the Content-Type is not JSON", field="body", hint=JSON)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        reason = f"not JSON: {error.msg}"
        raise RequestError(422, reason, field="body", hint="RFC 8259, in UTF-8") from None


class Endpoints:
    """The handlers of the operations; the scope of a request holds the model that answers it."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._pool = Pool(limits.max_waiting)

    def operations(self) -> list[Operation]:
        """Return the operations of the API."""
        return [
            Operation("POST", "/v1/recommend", self.recommend, schemas.RecommendAnswer),
            Operation("POST", BATCH, self.recommend_batch, schemas.BatchAnswer, (NDJSON,)),
            Operation("POST", "/v1/encode", self.encode, schemas.EncodeAnswer),
            Operation("POST", "/v1/explain", self.explain, schemas.ExplainAnswer),
            Operation("GET", "/v1/items", self.search_items, schemas.ItemsAnswer),
            Operation("GET", SIMILAR, self.similar_items, schemas.SimilarAnswer),
            Operation("GET", "/v1/model", self.model, schemas.ModelCard),
            Operation("GET", "/healthz", self.alive, schemas.Status),
            Operation("GET", "/readyz", self.ready, schemas.Status),
            Operation("GET", "/metrics", self.metrics, None, ("text/plain",)),
        ]

    async def recommend(self, scope: Scope, request: schemas.RecommendRequest) -> Response:
        """Recommend to one person: a stranger, or a user of the training data."""
        served: ServedModel = scope[SERVED]
        field, person = _choose(user=request.user, user_id=request.user_id)
        self._check_k(request.k)
        if request.user is not None:
            served.check_person(request.user, self._limits.max_history)
        start = time.perf_counter()
        compute = partial(self._recommend, served, request, field)
        quick = is_quick(served, request, request.user or {})
        (answer,) = compute([person]) if quick else await self._pool.run(partial(compute, [person]))
        return _as_json(answer, start)

    async def recommend_batch(self, scope: Scope, request: schemas.BatchRequest) -> Response:
        """Recommend to many people, in one JSON document or as lines (Accept: x-ndjson)."""
        served: ServedModel = scope[SERVED]
        field, people = _choose(users=request.users, user_ids=request.user_ids)
        self._check_k(request.k)
        n_people, limits = len(people), self._limits
        if n_people > limits.max_batch:
            raise _too_many(field, n_people, limits.max_batch)
        if n_people * request.k > limits.max_batch_items:
            message = f"{n_people:,} people x k={request.k:,} is more than this server allows"
            hint = f"at most {limits.max_batch_items:,}: fewer people at a time, or a lower k"
            raise RequestError(413, message, field=field, hint=hint)
        for place, person in enumerate(request.users or ()):
            served.check_person(person, limits.max_history, f"users.{place}")
        as_lines = NDJSON.encode() in dict(scope["headers"]).get(b"accept", b"")
        compute = partial(self._recommend, served, request, field)
        chunks = self._stream(compute, people, request.k, None if as_lines else served.version)
        first = await anext(chunks)  # errors of the request are raised here

        async def content() -> AsyncIterator[bytes]:
            yield first
            async for chunk in chunks:
                yield chunk

        return StreamingResponse(content(), media_type=NDJSON if as_lines else JSON)

    async def encode(self, scope: Scope, request: schemas.EncodeRequest) -> Response:
        """Encode a person: return the vector and the code."""
        scope[SERVED].check_person(request.user, self._limits.max_history)
        return await self._compute(answers.encode, scope[SERVED], request.user)

    async def explain(self, scope: Scope, request: schemas.ExplainRequest) -> Response:
        """Explain a score: return parts that add up to it, and a sentence."""
        scope[SERVED].check_person(request.user, self._limits.max_history)
        return await self._compute(answers.explain, scope[SERVED], request.user, request.item_id)

    async def search_items(self, scope: Scope, query: schemas.ItemsQuery) -> Response:
        """Find items by a part of their title or id; without one, the most popular items."""
        served: ServedModel = scope[SERVED]

        def search() -> Row:
            items = served.catalogue.search(query.search, query.limit)
            return {"items": items, "model": served.version}

        return await self._compute(search)

    async def similar_items(self, scope: Scope, query: schemas.SimilarQuery) -> Response:
        """Return the items most similar to one."""
        self._check_k(query.k)
        return await self._compute(answers.similar, scope[SERVED], query.item_id, query.k)

    async def model(self, scope: Scope, _: None) -> Response:
        """Return a description of the model, and the fields of a person that it uses."""
        return Response(scope[SERVED].card, media_type=JSON)

    async def alive(self, scope: Scope, _: None) -> Response:
        """Return ok if the process answers."""
        return JSONResponse({"status": "ok"})

    async def ready(self, scope: Scope, _: None) -> Response:
        """Return ready: a server listens only after its model has answered once."""
        return JSONResponse({"status": "ready"})

    async def metrics(self, scope: Scope, _: None) -> Response:
        """Return the metrics for Prometheus."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    def _check_k(self, k: int) -> None:
        if k > self._limits.max_k:
            raise _too_many("k", k, self._limits.max_k)

    async def _compute(self, work: Callable[..., Row], *args: object) -> Response:
        """Run a computation in a thread."""
        start = time.perf_counter()
        return _as_json(await self._pool.run(partial(work, *args)), start)

    def _recommend(
        self,
        served: ServedModel,
        options: schemas.RecommendOptions,
        field: str,
        people: list[Any],
    ) -> list[Row]:
        found = answers.recommend(served, options, field, people)
        if field not in answers.TRAINING_USERS:
            self._metrics.count_strangers(found)
        return found

    async def _stream(
        self,
        compute: Callable[[list[Any]], list[Row]],
        people: list[Any],
        k: int,
        version: str | None,
    ) -> AsyncIterator[bytes]:
        """Answer a block of people at a time, the next one when this one has been sent.

        The answers are in one JSON document that ends with the version, or, without one, in lines.
        """
        begin, separator, end = b"", b"", b""
        if version is not None:
            begin, separator, end = b'{"answers":[', b",", b'],"model":"%b"}' % version.encode()

        def write(start: int) -> bytes:
            rows = compute(people[start : start + step])
            return separator.join(orjson.dumps(row, option=END_LINE) for row in rows)

        order, step = self._pool.arrival(), max(1, min(MAX_BLOCK, MAX_BLOCK_ITEMS // k))
        for start in range(0, len(people), step):
            text = await self._pool.run(partial(write, start), order, is_new=start == 0)
            yield (separator if start else begin) + text
        yield end if people else begin + end


def is_quick(
    served: ServedModel, options: schemas.RecommendOptions, person: schemas.Person
) -> bool:
    """Return whether an answer is expected to take a fraction of a millisecond."""
    model = served.model
    lists = (person.get(HISTORY), options.exclude, options.candidates)
    return (
        len(model.item_ids) <= (QUICK_CODES if model.has_codes else QUICK_VECTORS)
        and options.k <= QUICK_K
        and max(len(each or ()) for each in lists) <= QUICK_LIST
    )


def _choose(**given: Any) -> tuple[str, Any]:
    """Return the only argument that is not None, and its name."""
    chosen = [(name, value) for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        names = " or ".join(given)
        message = f"{len(chosen)} of {' and '.join(given)}"
        raise RequestError(422, message, field=next(iter(given)), hint=f"either {names}")
    return chosen[0]


def _too_many(field: str, given: int, limit: int) -> RequestError:
    message = f"{given:,} is more than this server allows"
    return RequestError(422, message, field=field, hint=f"at most {limit:,}")


def _as_json(answer: Row, start: float) -> Response:
    """Return an answer, with the time since `start` in a header."""
    timing = f"total;dur={(time.perf_counter() - start) * 1000:.3f}"
    return Response(orjson.dumps(answer), media_type=JSON, headers={"Server-Timing": timing})
