"""The operations of the API: read and check a request, compute, write the answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from types import NoneType
from typing import Any, get_type_hints

import orjson
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from coldhash.errors import ColdhashError
from coldhash.features.people import HISTORY
from coldhash.recommender.planes import Planes
from coldhash.recommender.recommender import USER_ID, Recommender
from coldhash.recommender.results import Row
from coldhash.serve import schemas
from coldhash.serve.limits import JSON, Limits, RequestError, library_error
from coldhash.serve.monitoring import Metrics
from coldhash.serve.pool import Pool
from coldhash.serve.registry import ServedModel

NDJSON = "application/x-ndjson"
END_LINE = orjson.OPT_APPEND_NEWLINE
JSON_ENDINGS = (b"/json", b"+json")
BATCH = "/v1/recommend/batch"
HEALTH_PATHS = ("/healthz", "/readyz")  # without a token, under any host
SIMILAR = "/v1/items/{item_id:path}/similar"
SERVED = "coldhash.served"  # a key of scopes: the model that answers the request
HEADERS = "coldhash.headers"  # a key of scopes: the headers as a dict
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
        scope["endpoint"] = self
        request = None if self.request is None else await self._read(self.request, scope, receive)
        try:
            response = await self.handler(scope, request)
        except ColdhashError as error:
            raise library_error(error, getattr(request, "field", None)) from None
        await response(scope, receive, send)

    async def _read(self, kind: type[BaseModel], scope: Scope, receive: Receive) -> BaseModel:
        try:
            if self.method == "GET":
                query = QueryParams(scope["query_string"])
                found = kind.model_validate({**query, **scope.get("path_params", {})})
            else:
                body = await self._read_json(scope[HEADERS], receive)
                if scope["query_string"] and isinstance(body, dict):
                    body |= schemas.parse_query(scope["query_string"])
                found = kind.model_validate(body)
        except ValidationError as error:
            raise schemas.first_error(error) from None
        schemas.check_limits(found, self.limits)
        if (person := vars(found).get("user")) is not None:
            scope[SERVED].check_person(person, self.limits.max_history, "user")
        return found

    async def _read_json(self, headers: dict[bytes, bytes], receive: Receive) -> object:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError(400, "the body is incomplete")
            body += message.get("body", b"")
            self.limits.check_length(len(body))  # a body need not announce its length
            more = message.get("more_body", False)
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if not media_type:
            raise schemas.field_error("body", "the request has no Content-Type", JSON)
        if not (media_type.startswith(b"application/") and media_type.endswith(JSON_ENDINGS)):
            raise schemas.field_error("body", "the Content-Type is not JSON", JSON)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            reason = f"not JSON: {error.msg}"
            raise schemas.field_error("body", reason, "RFC 8259, in UTF-8") from None


class Endpoints:
    """The operations; the scope of a request holds the model that answers it."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._pool = Pool(limits.max_waiting)

    def operations(self) -> list[Operation]:
        """Return the operations of the API."""
        get, post = (partial(Operation, self._limits, method) for method in ("GET", "POST"))
        computed = self._computed
        return [
            post("/v1/recommend", computed(self.recommend), schemas.RecommendAnswer),
            post(BATCH, self.recommend_batch, schemas.BatchAnswer, (NDJSON,)),
            post("/v1/encode", computed(encode), schemas.EncodeAnswer),
            post("/v1/explain", computed(explain), schemas.ExplainAnswer),
            get("/v1/items", computed(search_items), schemas.ItemsAnswer),
            get(SIMILAR, computed(similar_items), schemas.SimilarAnswer),
            get("/v1/model", self.model, schemas.ModelCard),
            get("/healthz", self.alive, schemas.Status),
            get("/readyz", self.ready, schemas.Status),
            get("/metrics", self.metrics, None, ("text/plain",)),
        ]

    def _computed(self, work: Callable[..., Row]) -> Callable[..., Awaitable[Response]]:
        """Return a handler that runs `work(served, request)`: in a thread, unless it is quick."""

        @wraps(work)
        async def handler(scope: Scope, request: BaseModel) -> Response:
            start, served = time.perf_counter(), scope[SERVED]
            if is_quick(served.model, request):
                return ComputedResponse(work(served, request), start)
            return ComputedResponse(await self._pool.run(partial(work, served, request)), start)

        return handler

    def recommend(self, served: ServedModel, request: schemas.RecommendRequest) -> Row:
        """Recommend to one person: a stranger, or a user of the training data."""
        request.require_people()
        users = None if request.user is None else [request.user]
        user_ids = None if request.user_id is None else [request.user_id]
        return self._recommend(served, request, users, user_ids)[0]

    async def recommend_batch(self, scope: Scope, request: schemas.BatchRequest) -> Response:
        """Recommend to many people, in one JSON document or as lines (Accept: x-ndjson)."""
        n_people, k, most = request.n_people, request.k, self._limits.max_batch_items
        if n_people * k > most:
            message = f"{n_people:,} people x k={k:,} is more than this server allows"
            hint = f"at most {most:,}: fewer people at a time, or a lower k"
            raise RequestError(413, message, field=request.field, hint=hint)
        served: ServedModel = scope[SERVED]
        as_lines = NDJSON.encode() in scope[HEADERS].get(b"accept", b"")
        begin, separator = (b"", b"") if as_lines else (b'{"answers":[', b",")
        order, step = self._pool.arrival(), max(1, min(MAX_BLOCK, MAX_BLOCK_ITEMS // k))
        errors: list[Row] = []

        def write(start: int) -> bytes:
            rows = self._recommend_rows(served, request, range(start, min(start + step, n_people)))
            for index, row in enumerate(rows, start):
                if "error" in row and not as_lines:
                    errors.append({"index": index, **row["error"]})
            lines = [row if as_lines or "error" not in row else None for row in rows]
            return separator.join(orjson.dumps(line, str, END_LINE) for line in lines)

        # errors of the options are raised here
        first = await self._pool.run(partial(write, 0), order)

        async def content() -> AsyncIterator[bytes]:  # a block when the last one has been sent
            yield begin + first
            for start in range(step, n_people, step):
                text = await self._pool.run(partial(write, start), order, is_new=False)
                yield separator + text
            if not as_lines:
                end = orjson.dumps({"errors": errors, "model": served.version})
                yield b"]," + end[1:]

        return StreamingResponse(content(), media_type=NDJSON if as_lines else JSON)

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

    def _recommend(
        self,
        served: ServedModel,
        request: schemas.PeopleRequest,
        users: list[schemas.Person] | None,
        user_ids: list[str] | None,
    ) -> list[Row]:
        """Recommend to people, and count the strangers."""
        found = answer_people(served, request, users, user_ids)
        known = [-1] * len(found) if user_ids is None else served.model.user_ids.find(user_ids)
        self._metrics.count_strangers(
            answer for answer, row in zip(found, known, strict=True) if row < 0
        )
        return found

    def _recommend_rows(
        self, served: ServedModel, request: schemas.BatchRequest, rows: Sequence[int]
    ) -> list[Row]:
        """Recommend to some people of a batch; what is wrong with one is the answer to that one."""
        answers: dict[int, Row] = {}
        for row in rows:
            try:
                if request.users is not None:
                    person = request.users[row]
                    served.check_person(person, self._limits.max_history, f"users.{row}")
                if request.user_ids is not None:
                    request.user_ids[row] = schemas.check_id(request.user_ids[row], row)
            except RequestError as error:
                answers[row] = error.content
        good = [row for row in rows if row not in answers]
        users, user_ids = (
            None if people is None else [people[row] for row in good]
            for people in (request.users, request.user_ids)
        )
        try:
            if good:
                found = self._recommend(served, request, users, user_ids)
            else:  # the options may be wrong all the same
                found = answer_people(served, request, [{}], None)[:0]
        except ColdhashError as error:
            if error.argument in schemas.OPTIONS:
                raise
            if len(good) == 1:
                found = [library_error(error, f"{request.field}.{good[0]}").content]
            else:
                found = [self._recommend_rows(served, request, [row])[0] for row in good]
        answers |= zip(good, found, strict=True)
        return [answers[row] for row in rows]


def is_quick(model: Recommender, request: BaseModel) -> bool:
    """Return whether an answer is expected to take a fraction of a millisecond."""
    if not isinstance(request, schemas.RecommendRequest) or request.k > QUICK_K or request.where:
        return False
    history = (request.user or {}).get(HISTORY) or ()
    longest = max(len(history), len(request.exclude or ()), len(request.candidates or ()))
    most = QUICK_CODES if model.has_codes else QUICK_VECTORS
    return longest <= QUICK_LIST and len(model.item_ids) <= most


class ComputedResponse(Response):
    """An answer as JSON, with the time since `start` in a header.

    The constructor of Starlette's class takes longer than the JSON.
    """

    def __init__(self, answer: Row, start: float) -> None:
        self.status_code, self.background = 200, None
        self.body = orjson.dumps(answer, default=str)
        self.raw_headers = [
            (b"content-type", JSON.encode()),
            (b"content-length", b"%d" % len(self.body)),
            (b"server-timing", b"total;dur=%.3f" % ((time.perf_counter() - start) * 1000)),
        ]


def answer_people(
    served: ServedModel,
    request: schemas.PeopleRequest,
    users: Sequence[schemas.Person] | None,
    user_ids: Sequence[str] | None,
) -> list[Row]:
    """Recommend to strangers, to training users, or to those of `user_ids` that are known."""
    names: Sequence[object]
    if user_ids is not None:
        people = None if users is None else list(users)
        encoded, described = served.describe(served.model.encode(people, user_ids=user_ids))
        names = user_ids
    else:
        assert users is not None
        encoded, described = served.encode(users)
        names = [person.get(USER_ID) for person in users]
    # requests share the cores, no request takes all of them
    found = served.model.recommend(encoded, **request.arguments, threads=1)
    describe = served.describe_items(request.fields, found.rows)
    return [
        {"items": items, "user_id": None if name is None else str(name), **person}
        for items, name, person in zip(found.lists(describe), names, described, strict=True)
    ]


def encode(served: ServedModel, request: schemas.EncodeRequest) -> Row:
    """Encode a person: return the vector and the code."""
    encoded, (described,) = served.encode([request.user])
    planes = None
    if request.planes is not None:
        found = Planes.of(encoded.vectors[0], request.planes)
        planes = {"bits": found.texts, "scale": found.scale, "offset": found.offset}
    return {"vector": encoded.vectors[0].tolist(), "planes": planes, **described}


def search_items(served: ServedModel, query: schemas.ItemsQuery) -> Row:
    """Find items by a part of their title or id; without one, the most popular items."""
    rows = served.catalogue.search(query.search, query.limit)
    describe = served.describe_items(query.fields, rows)
    return {"items": [describe(row) for row in rows.tolist()], "model": served.version}


def similar_items(served: ServedModel, query: schemas.SimilarQuery) -> Row:
    """Return the items most similar to one."""
    found = list(served.model.similar_items(query.item_id, query.k, where=query.where))
    rows = served.model.item_ids.find([str(row["item_id"]) for row in found])
    describe = served.describe_items(query.fields, rows)
    items = [
        {"distance": None, **row, **describe(at)}
        for row, at in zip(found, rows.tolist(), strict=True)
    ]
    return {"items": items, "model": served.version}


def explain(served: ServedModel, request: schemas.ExplainRequest) -> Row:
    """Explain a score: return parts that add up to it, and a sentence."""
    user, item_id = request.user, request.item_id
    found: Row = {**served.model.explain(user, item_id, popularity=request.popularity)}
    del found["nearest_users"]  # the ids of other people
    weights = found.pop("group_weights")
    title = served.catalogue.title_of(item_id)
    why = _explain_in_words(served, found, user)
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
    labels = served.model.features.labels
    named = [(field, labels.get(field, {}).get(str(user[field]))) for field in known]
    words = [f"{field} ({label})" if label else field for field, label in named]
    return _join(words) if words else name


def _join(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
