"""The operations of the API: read and check a request, compute, write the answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import NoneType
from typing import Any, get_type_hints

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from coldhash.features.people import HISTORY
from coldhash.recommender.encoders import Encoded
from coldhash.recommender.recommender import USER_ID, Recommender
from coldhash.recommender.results import Row
from coldhash.serve import schemas
from coldhash.serve.limits import JSON, Limits, RequestError, as_request_errors
from coldhash.serve.monitoring import Metrics
from coldhash.serve.pool import Pool
from coldhash.serve.registry import ServedModel

NDJSON = "application/x-ndjson"
END_LINE = orjson.OPT_APPEND_NEWLINE
JSON_ENDINGS = (b"/json", b"+json")
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
RATED = "rated "  # how the library names the contribution of a rating
MAX_REASONS = 3  # that a sentence names


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
        try:
            if self.method == "GET":
                query = QueryParams(scope["query_string"])
                found = kind.model_validate({**query, **scope["path_params"]})
            else:
                found = kind.model_validate(await _read_json(scope, receive))
        except ValidationError as error:
            raise schemas.first_error(error) from None
        schemas.check_limits(found, self.limits)
        return found


async def _read_json(scope: Scope, receive: Receive) -> object:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError(400, "the body is incomplete")
        body += message.get("body", b"")
        more = message.get("more_body", False)
    media_type = _header(scope, b"content-type").partition(b";")[0].strip().lower()
    if not (media_type.startswith(b"application/") and media_type.endswith(JSON_ENDINGS)):
        raise schemas.field_error("body", "the Content-Type is not JSON", JSON)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise schemas.field_error("body", f"not JSON: {error.msg}", "RFC 8259, in UTF-8") from None


def _header(scope: Scope, name: bytes) -> bytes:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    return headers.get(name, b"")


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
        quick = is_quick(served.model, request)
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
        as_lines = NDJSON.encode() in _header(scope, b"accept")
        chunks = self._stream(served, request, people, as_lines)
        first = await anext(chunks)  # errors of the request are raised here

        async def content() -> AsyncIterator[bytes]:
            yield first
            async for chunk in chunks:
                yield chunk

        return StreamingResponse(content(), media_type=NDJSON if as_lines else JSON)

    async def encode(self, scope: Scope, request: schemas.EncodeRequest) -> Response:
        """Encode a person: return the vector and the code."""
        scope[SERVED].check_person(request.user, self._limits.max_history)
        return await self._compute(answer_encode, scope[SERVED], request.user)

    async def explain(self, scope: Scope, request: schemas.ExplainRequest) -> Response:
        """Explain a score: return parts that add up to it, and a sentence."""
        scope[SERVED].check_person(request.user, self._limits.max_history)
        return await self._compute(answer_explain, scope[SERVED], request)

    async def search_items(self, scope: Scope, query: schemas.ItemsQuery) -> Response:
        """Find items by a part of their title or id; without one, the most popular items."""
        return await self._compute(answer_search, scope[SERVED], query.search, query.limit)

    async def similar_items(self, scope: Scope, query: schemas.SimilarQuery) -> Response:
        """Return the items most similar to one."""
        return await self._compute(answer_similar, scope[SERVED], query.item_id, query.k)

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
        found = answer_people(served, request, people)
        if not request.is_known:
            self._metrics.count_strangers(found)
        return found

    async def _stream(
        self, served: ServedModel, request: schemas.BatchRequest, people: list[Any], as_lines: bool
    ) -> AsyncIterator[bytes]:
        """Answer a block of people at a time, the next one when this one has been sent.

        The answers are in lines, or in one JSON document that ends with the version.
        """
        begin, separator, end = b"", b"", b""
        if not as_lines:
            begin, separator = b'{"answers":[', b","
            end = b'],"model":"%b"}' % served.version.encode()

        def write(start: int) -> bytes:
            rows = self._recommend(served, request, people[start : start + step])
            return separator.join(orjson.dumps(row, option=END_LINE) for row in rows)

        order, step = self._pool.arrival(), max(1, min(MAX_BLOCK, MAX_BLOCK_ITEMS // request.k))
        for start in range(0, len(people), step):
            text = await self._pool.run(partial(write, start), order, is_new=start == 0)
            yield (separator if start else begin) + text
        yield end if people else begin + end


def is_quick(model: Recommender, request: schemas.RecommendRequest) -> bool:
    """Return whether an answer is expected to take a fraction of a millisecond."""
    lists = ((request.user or {}).get(HISTORY), request.exclude, request.candidates)
    return (
        len(model.item_ids) <= (QUICK_CODES if model.has_codes else QUICK_VECTORS)
        and request.k <= QUICK_K
        and max(len(each or ()) for each in lists) <= QUICK_LIST
    )


def _as_json(answer: Row, start: float) -> Response:
    """Return an answer, with the time since `start` in a header."""
    timing = f"total;dur={(time.perf_counter() - start) * 1000:.3f}"
    return Response(orjson.dumps(answer), media_type=JSON, headers={"Server-Timing": timing})


def answer_people(
    served: ServedModel, request: schemas.PeopleRequest, people: Sequence[Any]
) -> list[Row]:
    """Recommend to people of a request: strangers, or ids of training users."""
    known = request.is_known
    with as_request_errors(request.people_fields[known]):
        if known:
            encoded = served.model.encode(user_ids=people)
        elif len(people) == 1 and not people[0].get(HISTORY):
            encoded = served.encode(people[0])
        else:
            encoded = served.model.encode(people)
        # requests share the cores, no request takes all of them
        found = served.model.recommend(encoded, **request.arguments, threads=1)
    names = people if known else [person.get(USER_ID) for person in people]
    lists = found.lists(served.catalogue.describe)
    codes = _describe_codes(served, encoded)
    return [
        {"items": items, "user_id": None if name is None else str(name), **code}
        for items, name, code in zip(lists, names, codes, strict=True)
    ]


def _describe_codes(served: ServedModel, encoded: Encoded) -> list[Row]:
    """Return the code of each person, the weights of the groups, and what was ignored."""
    n_bits, bits = served.model.items.n_bits, None
    if n_bits is not None:
        # the bytes of codes.pack(signs(vectors)), without its checks
        bits = np.packbits(encoded.vectors >= 0, axis=1, bitorder="little")
    weights = {group: shares.tolist() for group, shares in encoded.weights.items()}
    ignored: list[list[str]] = [[] for _ in encoded.vectors]
    for place, item_id in encoded.ignored:
        ignored[place].append(item_id)
    return [
        {
            "code": None if bits is None else bits[place].tobytes().hex(),
            "n_bits": n_bits,
            "weights": {group: shares[place] for group, shares in weights.items()},
            "fallback": fallback,
            "ignored": ignored[place],
            "model": served.version,
        }
        for place, fallback in enumerate(encoded.fallback.tolist())
    ]


def answer_encode(served: ServedModel, user: schemas.Person) -> Row:
    """Return a person's vector and code."""
    with as_request_errors("user"):
        encoded = served.model.encode(user)
    return {"vector": encoded.vectors[0].tolist(), **_describe_codes(served, encoded)[0]}


def answer_search(served: ServedModel, text: str, limit: int) -> Row:
    """Return the items that a search finds."""
    return {"items": served.catalogue.search(text, limit), "model": served.version}


def answer_similar(served: ServedModel, item_id: str, k: int) -> Row:
    """Return the items most similar to one."""
    with as_request_errors("item_id"):
        found = served.model.similar_items(item_id, k)
    items = [
        {"title": served.catalogue.title_of(str(row["item_id"])), "distance": None, **row}
        for row in found
    ]
    return {"items": items, "model": served.version}


def answer_explain(served: ServedModel, request: schemas.ExplainRequest) -> Row:
    """Return what contributed to the score of an item.

    The ids of the most similar training users, which the library returns, are left out: they are
    other people's.
    """
    with as_request_errors("user"):
        explained = served.model.explain(
            request.user, request.item_id, popularity=request.popularity
        )
    found: Row = {**explained}
    del found["nearest_users"]
    weights = found.pop("group_weights")
    title = served.catalogue.title_of(found["item_id"])
    why = _explain_in_words(served, found, request.user)
    return {**found, "weights": weights, "title": title, "why": why, "model": served.version}


def _explain_in_words(served: ServedModel, found: Mapping[str, Any], user: schemas.Person) -> str:
    if found["fallback"]:
        return "Nothing usable is known of this person, so popularity decides."
    ordered = sorted(found["contributions"].items(), key=lambda part: -part[1])
    reasons = [_name_reason(served, name, user) for name, value in ordered if value > 0]
    if not reasons:
        return "Nothing that is known of this person speaks for this item."
    rest = len(reasons) - MAX_REASONS
    if rest > 0:
        reasons[MAX_REASONS:] = [f"{rest} smaller reasons" if rest > 1 else "one smaller reason"]
    return f"Because of {_join(reasons)}."


def _name_reason(served: ServedModel, name: str, user: schemas.Person) -> str:
    history, item_id = user.get(HISTORY) or {}, name.removeprefix(RATED)
    if name.startswith(RATED) and item_id in history:
        title = served.catalogue.title_of(item_id) or item_id
        if isinstance(history, list):
            return f"{title} in your history"
        return f"your rating of {title} ({history[item_id]:g})"
    fields = [field.name for field in served.fields.values() if field.group == name]
    known = [field for field in fields if user.get(field) not in (None, "")]
    return _join(known) if known else name


def _join(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
