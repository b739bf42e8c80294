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
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from coldhash.features.people import HISTORY
from coldhash.recommender.results import Row
from coldhash.serve import answers, schemas
from coldhash.serve.limits import JSON, Limits, RequestError
from coldhash.serve.monitoring import Metrics
from coldhash.serve.pool import Pool
from coldhash.serve.registry import ServedModel

NDJSON = "application/x-ndjson"
END_LINE = orjson.OPT_APPEND_NEWLINE
JSON_ENDINGS = ("/json", "+json")
BATCH = "/v1/recommend/batch"
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

    limits: Limits
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
        request = Request(scope, receive)
        values = {**request.query_params, **request.path_params}
        try:
            found = kind.model_validate(
                values if self.method == "GET" else await _read_json(request)
            )
        except ValidationError as error:
            raise schemas.first_error(error) from None
        schemas.check_limits(found, self.limits)
        return found


async def _read_json(request: Request) -> object:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not (media_type.startswith("application/") and media_type.endswith(JSON_ENDINGS)):
        raise schemas.field_error("body", "the Content-Type is not JSON", JSON)
    try:
        return orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise schemas.field_error("body", f"not JSON: {error.msg}", "RFC 8259, in UTF-8") from None
    except ClientDisconnect:
        raise RequestError(400, "the body is incomplete") from None


class Endpoints:
    """The handlers of the operations; the scope of a request holds the model that answers it."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._pool = Pool(limits.max_waiting)

    def operations(self) -> list[Operation]:
        """Return the operations of the API."""
        get, post = (partial(Operation, self._limits, method) for method in ("GET", "POST"))
        return [
            post("/v1/recommend", self.recommend, schemas.RecommendAnswer),
            post(BATCH, self.recommend_batch, schemas.BatchAnswer, (NDJSON,)),
            post("/v1/encode", self.encode, schemas.EncodeAnswer),
            post("/v1/explain", self.explain, schemas.ExplainAnswer),
            get("/v1/items", self.search_items, schemas.ItemsAnswer),
            get("/v1/items/{item_id:path}/similar", self.similar_items, schemas.SimilarAnswer),
            get("/v1/model", self.model, schemas.ModelCard),
            get("/healthz", self.alive, schemas.Status),
            get("/readyz", self.ready, schemas.Status),
            get("/metrics", self.metrics, None, ("text/plain",)),
        ]

    async def recommend(self, scope: Scope, request: schemas.RecommendRequest) -> Response:
        """Recommend to one person: a stranger, or a user of the training data."""
        served: ServedModel = scope[SERVED]
        person = getattr(request, request.field)
        if request.user is not None:
            served.check_person(request.user, self._limits.max_history)
        start = time.perf_counter()
        compute = partial(self._recommend, served, request, [person])
        quick = is_quick(served, request, request.user or {})
        (answer,) = compute() if quick else await self._pool.run(compute)
        return _as_json(answer, start)

    async def recommend_batch(self, scope: Scope, request: schemas.BatchRequest) -> Response:
        """Recommend to many people, in one JSON document or as lines (Accept: x-ndjson)."""
        served: ServedModel = scope[SERVED]
        people = getattr(request, request.field)
        n_items, most = len(people) * request.k, self._limits.max_batch_items
        if n_items > most:
            message = f"{len(people):,} people x k={request.k:,} is more than this server allows"
            hint = f"at most {most:,}: fewer people at a time, or a lower k"
            raise RequestError(413, message, field=request.field, hint=hint)
        for place, person in enumerate(request.users or ()):
            served.check_person(person, self._limits.max_history, f"users.{place}")
        as_lines = NDJSON in Request(scope).headers.get("accept", "")
        compute = partial(self._recommend, served, request)
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
        return await self._compute(answers.search, scope[SERVED], query.search, query.limit)

    async def similar_items(self, scope: Scope, query: schemas.SimilarQuery) -> Response:
        """Return the items most similar to one."""
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

    async def _compute(self, work: Callable[..., Row], *args: object) -> Response:
        """Run a computation in a thread."""
        start = time.perf_counter()
        return _as_json(await self._pool.run(partial(work, *args)), start)

    def _recommend(
        self, served: ServedModel, request: schemas.PeopleRequest, people: list[Any]
    ) -> list[Row]:
        found = answers.recommend(served, request, people)
        if not request.is_known:
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


def _as_json(answer: Row, start: float) -> Response:
    """Return an answer, with the time since `start` in a header."""
    timing = f"total;dur={(time.perf_counter() - start) * 1000:.3f}"
    return Response(orjson.dumps(answer), media_type=JSON, headers={"Server-Timing": timing})
