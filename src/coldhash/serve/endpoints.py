"""The operations of the API: read and check a request, compute, write the answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from coldhash.errors import ColdhashError
from coldhash.features.people import HISTORY
from coldhash.recommender.planes import Planes, weigh_levels
from coldhash.recommender.recommender import USER_ID, Recommender
from coldhash.recommender.results import Recommendations, Row
from coldhash.serve import schemas
from coldhash.serve.limits import JSON, Limits, RequestError, library_error
from coldhash.serve.monitoring import Metrics
from coldhash.serve.pool import Pool
from coldhash.serve.registry import PersonAnswer, ServedModel

NDJSON = "application/x-ndjson"
JSON_ENDINGS = (b"/json", b"+json")
BATCH = "/v1/recommend/batch"
HEALTH_PATHS = ("/healthz", "/readyz")  # without a token, under any host
SIMILAR = "/v1/items/{item_id:path}/similar"
SERVED = "coldhash.served"  # a key of scopes: the model that answers the request
HEADERS = "coldhash.headers"  # a key of scopes: the headers as a dict
BODY = "coldhash.body"  # a key of scopes: the body of a request to recommend to one person
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
    request: type[BaseModel] | None = None  # of the handler's second argument
    answer: type[BaseModel] | None = None
    text_type: str | None = None  # media type of answers that are not JSON
    recall: Callable[[Scope], Response | None] = lambda scope: None  # an answer that is kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["endpoint"] = self
        if self.method == "POST":
            scope[BODY] = await self._read_body(scope[HEADERS], receive)
        response = self.recall(scope)
        if response is None:
            request = None if self.request is None else self._read(self.request, scope)
            try:
                response = await self.handler(scope, request)
            except ColdhashError as error:
                raise library_error(error, getattr(request, "field", None)) from None
        await response(scope, receive, send)

    def _read(self, kind: type[BaseModel], scope: Scope) -> BaseModel:
        try:
            if self.method == "GET":
                query = QueryParams(scope["query_string"])
                found = kind.model_validate({**query, **scope.get("path_params", {})})
            else:
                body = orjson.loads(scope[BODY])
                if scope["query_string"] and isinstance(body, dict):
                    body |= schemas.parse_query(scope["query_string"])
                found = kind.model_validate(body)
        except orjson.JSONDecodeError as error:
            reason = f"not JSON: {error.msg}"
            raise schemas.field_error("body", reason, "RFC 8259, in UTF-8") from None
        except ValidationError as error:
            raise schemas.first_error(error) from None
        schemas.check_limits(found, self.limits)
        if (person := vars(found).get("user")) is not None:
            scope[SERVED].check_person(person, self.limits.max_history, "user")
        return found

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
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
        return body


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
            post(
                "/v1/recommend",
                self.recommend,
                schemas.RecommendRequest,
                schemas.RecommendAnswer,
                recall=self.recall,
            ),
            post(BATCH, self.recommend_batch, schemas.BatchRequest, schemas.BatchAnswer, NDJSON),
            post("/v1/encode", computed(encode), schemas.EncodeRequest, schemas.EncodeAnswer),
            post("/v1/explain", computed(explain), schemas.ExplainRequest, schemas.ExplainAnswer),
            post("/v1/ask", computed(ask), schemas.AskRequest, schemas.AskAnswer),
            get("/v1/items", computed(search_items), schemas.ItemsQuery, schemas.ItemsAnswer),
            get(SIMILAR, computed(similar_items), schemas.SimilarQuery, schemas.SimilarAnswer),
            get("/v1/model", self.model, None, schemas.ModelCard),
            get("/healthz", self.alive, None, schemas.Status),
            get("/readyz", self.ready, None, schemas.Status),
            get("/metrics", self.metrics, None, None, "text/plain"),
        ]

    def _computed(self, work: Callable[..., Row]) -> Callable[..., Awaitable[Response]]:
        """Return a handler that runs `work(served, request)`: in a thread, unless it is quick."""

        @wraps(work)
        async def handler(scope: Scope, request: BaseModel) -> Response:
            start = time.perf_counter()
            answer = await self._pool.run(partial(work, scope[SERVED], request))
            return _timed(orjson.dumps(answer, default=str), start)

        return handler

    async def recommend(self, scope: Scope, request: schemas.RecommendRequest) -> Response:
        """Recommend to one person: a stranger, or a user of the training data."""
        start, served = time.perf_counter(), scope[SERVED]
        request.require_people()
        users = None if request.user is None else [request.user]
        user_ids = None if request.user_id is None else [request.user_id]
        work = partial(answer_people, served, request, users, user_ids)
        (answer,) = work() if is_quick(served.model, request) else await self._pool.run(work)
        self._metrics.count(answer)
        if users is not None and user_ids is None and not scope["query_string"]:
            served.cache_answer(scope[BODY], users[0], answer)
        return _timed(answer.body, start)

    def recall(self, scope: Scope) -> Response | None:
        """Return the answer to an earlier request with the same body, if it is kept."""
        start = time.perf_counter()
        answer = None if scope["query_string"] else scope[SERVED].answers.get(scope[BODY])
        if answer is None:
            return None
        self._metrics.count(answer)
        return _timed(answer.body, start)

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
            lines = []
            for index, row in enumerate(rows, start):
                if isinstance(row, PersonAnswer):
                    self._metrics.count(row)
                    lines.append(row.body + b"\n")
                elif as_lines:
                    lines.append(orjson.dumps(row.content) + b"\n")
                else:
                    lines.append(b"null\n")
                    errors.append({"index": index, **row.content["error"]})
            return separator.join(lines)

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

    def _recommend_rows(
        self, served: ServedModel, request: schemas.BatchRequest, rows: Sequence[int]
    ) -> list[PersonAnswer | RequestError]:
        """Recommend to some people of a batch; what is wrong with one is the answer to that one."""
        answers: dict[int, PersonAnswer | RequestError] = {}
        for row in rows:
            try:
                if request.users is not None:
                    person = request.users[row]
                    served.check_person(person, self._limits.max_history, f"users.{row}")
                if request.user_ids is not None:
                    request.user_ids[row] = schemas.check_id(request.user_ids[row], row)
            except RequestError as error:
                answers[row] = error
        good = [row for row in rows if row not in answers]
        users, user_ids = (
            None if people is None else [people[row] for row in good]
            for people in (request.users, request.user_ids)
        )
        found: Sequence[PersonAnswer | RequestError]
        try:
            if good:
                found = answer_people(served, request, users, user_ids)
            else:  # the options may be wrong all the same
                found = answer_people(served, request, [{}], None)[:0]
        except ColdhashError as error:
            if error.argument in schemas.OPTIONS:
                raise
            if len(good) == 1:
                found = [library_error(error, f"{request.field}.{good[0]}")]
            else:
                found = [self._recommend_rows(served, request, [row])[0] for row in good]
        answers |= zip(good, found, strict=True)
        return [answers[row] for row in rows]


def is_quick(model: Recommender, request: schemas.RecommendRequest) -> bool:
    """Return whether an answer is expected to take a fraction of a millisecond."""
    if request.k > QUICK_K or request.where:
        return False
    history = (request.user or {}).get(HISTORY) or ()
    longest = max(len(history), len(request.exclude or ()), len(request.candidates or ()))
    most = QUICK_CODES if model.has_codes else QUICK_VECTORS
    return longest <= QUICK_LIST and len(model.item_ids) <= most


def _timed(body: bytes, start: float) -> Response:
    """Return an answer as JSON, with the time since `start` in a header."""
    milliseconds = (time.perf_counter() - start) * 1000
    return Response(body, 200, {"server-timing": f"total;dur={milliseconds:.3f}"}, JSON)


def answer_people(
    served: ServedModel,
    request: schemas.PeopleRequest,
    users: Sequence[schemas.Person] | None,
    user_ids: Sequence[str] | None,
) -> list[PersonAnswer]:
    """Recommend to strangers, to training users, or to those of `user_ids` that are known."""
    names: Sequence[object] = user_ids or [person.get(USER_ID) for person in users or ()]
    encoded = served.model.encode(users, user_ids=user_ids)
    # requests share the cores, no request takes all of them
    found = served.model.recommend(encoded, **request.arguments, threads=1)
    lists = write_lists(found, served.describe_items(request.fields, found.rows))
    answers = []
    for items, name, person in zip(lists, names, served.describe(encoded), strict=True):
        person["user_id"] = None if name is None else str(name)
        body = b'{"items":[' + items + b"]," + orjson.dumps(person)[1:]
        missing = [group for group, share in person["weights"].items() if share == 0]
        known = user_ids is not None and served.model.user_ids.row_of(str(name)) >= 0
        answers.append(PersonAnswer(body, person["fallback"], missing, known))
    return answers


def write_lists(found: Recommendations, describe: Callable[[int], bytes]) -> Iterator[bytes]:
    """Write the items of each person as JSON, separated by commas.

    `describe` returns the beginning of an item by its row. To join what is written already takes
    a fraction of the time of writing dictionaries.
    """
    ends = [b',"rank":%d}' % (place + 1) for place in range(found.rows.shape[1])]
    for person, rows in enumerate(found.rows.tolist()):
        scores = orjson.dumps(found.scores[person].tolist())[1:-1].split(b",")
        if found.distances is not None:
            near = [b"null"] * len(rows)
            if not found.fallback[person]:
                near = [b"%d" % bits for bits in found.distances[person].tolist()]
            scores = [b'%b,"distance":%b' % pair for pair in zip(scores, near, strict=True)]
        yield b",".join(
            [
                b'%b,"score":%b%b' % (describe(row), score, end)
                for row, score, end in zip(rows, scores, ends, strict=True)
                if row >= 0
            ]
        )


def encode(served: ServedModel, request: schemas.EncodeRequest) -> Row:
    """Encode a person: return the vector and the code."""
    encoded = served.model.encode([request.user])
    (described,) = served.describe(encoded)
    planes = None
    if request.planes is not None:
        found = Planes.of(encoded.vectors[0], request.planes)
        planes = {"bits": found.texts, "scale": found.scale, "offset": found.offset}
        weights = weigh_levels(served.model, request.popularity)
        planes["base_weight"], planes["gain_power"] = weights
    return {"vector": encoded.vectors[0].tolist(), "planes": planes, **described}


def search_items(served: ServedModel, query: schemas.ItemsQuery) -> Row:
    """Find items by a part of their title or id; without one, the most popular items."""
    rows = served.catalogue.search(query.search, query.limit)
    describe = served.describe_items(query.fields, rows)
    items = [orjson.Fragment(describe(row) + b"}") for row in rows.tolist()]
    return {"items": items, "model": served.version}


def similar_items(served: ServedModel, query: schemas.SimilarQuery) -> Row:
    """Return the items most similar to one."""
    found = served.model.similar_items(query.item_id, query.k, where=query.where)
    rows = served.model.item_ids.rows(found.ids)
    describe = served.describe_items(query.fields, rows)
    near = [None] * len(rows) if found.distances is None else found.distances.tolist()
    items = []
    for place, row in enumerate(rows.tolist()):
        about = {"score": float(found.scores[place]), "rank": place + 1, "distance": near[place]}
        items.append(orjson.Fragment(describe(row) + b"," + orjson.dumps(about)[1:]))
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


def ask(served: ServedModel, request: schemas.AskRequest) -> Row:
    """Return what to ask a person next, by what the answer is expected to improve."""
    options = {name: value for name, value in request if name != "user"}
    return {"questions": served.model.ask(request.user, **options), "model": served.version}


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
