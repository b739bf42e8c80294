"""create_app: a model as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from threadpoolctl import threadpool_limits

from coldhash import __version__
from coldhash.recommender.recommender import Recommender
from coldhash.serve import schemas
from coldhash.serve.endpoints import JSON, Endpoints
from coldhash.serve.errors import Refused
from coldhash.serve.limits import Limits
from coldhash.serve.log import Log, event, to_stderr
from coldhash.serve.metrics import Metrics
from coldhash.serve.middleware import Gate, checked_token
from coldhash.serve.openapi import document_of
from coldhash.serve.pool import Pool
from coldhash.serve.registry import Served, Shelf

PAGE = Path(__file__).parent / "page"
WATCH_SECONDS = 1.0  # between two looks at the model file
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
JSON_ENDINGS = (b"/json", b"+json")
HINTS = {
    404: "see /openapi.json for what there is",
    405: "see /openapi.json for what there is",
    413: "ask for less at a time",
}


def create_app(
    source: Recommender | Shelf | str | Path,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    allowed_hosts: Iterable[str] | None = None,
    log: Log = to_stderr,
    watch_seconds: float = WATCH_SECONDS,
) -> FastAPI:
    """Serve a model, or a model file, which is watched: a new one in its place is served at once.

    With a `token`, all requests need it but those for health and for the page. `allowed_hosts` are
    the names in the header `Host`, without a port, under which the app answers; None allows all.
    `log` takes an entry for each request.

    Examples
    --------
    >>> from fastapi.testclient import TestClient
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> with TestClient(create_app(model, log=lambda entry: None)) as client:
    ...     answer = client.post("/v1/recommend", json={"user": {"age": 30}, "k": 3})
    >>> answer.status_code, len(answer.json()["items"])
    (200, 3)
    """
    token = None if token is None else checked_token(token)
    shelf = source if isinstance(source, Shelf) else Shelf.of(source)
    limits = limits or Limits()
    metrics, pool = Metrics(), Pool(limits.max_waiting)
    _report_swaps(shelf, metrics, log)
    app = FastAPI(
        title="coldhash",
        version=__version__,
        description="Recommend to people you have never seen.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=partial(_lifespan, shelf, pool, watch_seconds),
    )
    app.openapi = document_of(app, shelf, limits, token is not None)  # type: ignore[method-assign]
    app.router.route_class = _JsonRoute
    _add_routes(app, Endpoints(limits, metrics, pool))
    _add_page(app)
    for kind in (Refused, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refuse)
    routes = [each for each in app.routes if isinstance(each, _JsonRoute)]
    direct = {route.path: route for route in routes if route.body_field is not None}
    app.add_middleware(
        Gate, direct=direct, limits=limits, token=token, allowed_hosts=allowed_hosts,
        metrics=metrics, shelf=shelf, log=log,
    )  # fmt: skip
    return app


def _report_swaps(shelf: Shelf, metrics: Metrics, log: Log) -> None:
    named = shelf.current.version, shelf.current.model.name
    metrics.serve(*named)

    def swapped(served: Served) -> None:
        nonlocal named
        before, named = named, (served.version, served.model.name)
        metrics.serve(*named, before=before)
        metrics.swaps.labels("ok").inc()
        log(event("model swapped", **{"from": before[0], "model": served.version}))

    def refused(error: Exception) -> None:
        metrics.swaps.labels("refused").inc()
        log(event("model refused", model=named[0], error=str(error)))

    shelf.on_swap, shelf.on_refusal = swapped, refused


@contextlib.asynccontextmanager
async def _lifespan(
    shelf: Shelf, pool: Pool, watch_seconds: float, app: FastAPI
) -> AsyncIterator[None]:
    """Watch the file while the app runs; requests share the cores, so BLAS gets one thread."""
    del app
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()  # by SIGHUP
    main = threading.current_thread() is threading.main_thread()
    if main and hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, asked.set)
    watcher = asyncio.create_task(_watch(shelf, asked, watch_seconds))
    with threadpool_limits(1, "blas"):
        yield
    watcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watcher
    pool.close()


async def _watch(shelf: Shelf, asked: asyncio.Event, seconds: float) -> None:
    """Look at the file now and then; loading a new one is done by a thread of its own."""
    # not before the start: Arrow's first steps import pandas, where there is one
    await asyncio.to_thread(shelf.current.catalogue.warm_up)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), seconds)
        force = asked.is_set()
        asked.clear()
        await asyncio.to_thread(shelf.refresh, force)


class _JsonRoute(APIRoute):
    """A route that reads and checks its JSON body itself, and that the gate calls directly.

    FastAPI describes it; its own way from a request to the endpoint takes longer than an answer.
    A body is read by orjson: no NaN, no lone surrogates, no endless nesting.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.body_field is not None:
            self._model = cast(type[BaseModel], self.body_field.field_info.annotation)
            self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the body has no end")
            body += message.get("body", b"")
            more = message.get("more_body", False)
        response = await self.endpoint(Request(scope), self._checked(scope, body))
        await response(scope, receive, send)

    def _checked(self, scope: Scope, body: bytes) -> BaseModel:
        given = dict(scope["headers"]).get(b"content-type", b"")
        media_type = given.partition(b";")[0].strip().lower()
        if not (media_type.startswith(b"application/") and media_type.endswith(JSON_ENDINGS)):
            raise Refused(422, "not JSON by its Content-Type", field="body", hint=JSON)
        try:
            return self._model.model_validate(orjson.loads(body))
        except orjson.JSONDecodeError as error:
            message = f"not JSON: {error.msg}"
            raise Refused(422, message, field="body", hint="RFC 8259, in UTF-8") from None
        except ValidationError as error:
            raise _as_refused(error.errors()[0], "body") from None


def _add_routes(app: FastAPI, endpoints: Endpoints) -> None:
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": schemas.Error} for status in (401, 404, 413, 421, 422, 503, 504)
    }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    refusals = {status: {"content": error, "description": "Refused."} for status in errors}
    lines = {"application/x-ndjson": {"schema": {"type": "string"}}}
    batch = errors | {200: {"content": lines, "description": "An answer for each person."}}
    open_ = {"responses": {}, "tags": ["operation"]}
    table: list[tuple[str, str, Callable[..., Awaitable[Response]], Any, dict[str, Any]]] = [
        ("POST", "/v1/recommend", endpoints.recommend, schemas.Answer, {}),
        ("POST", "/v1/recommend/batch", endpoints.recommend_batch, schemas.Answers,
         {"responses": batch}),
        ("POST", "/v1/encode", endpoints.encode, schemas.Encoding, {}),
        ("POST", "/v1/explain", endpoints.explain, schemas.Why, {}),
        ("GET", "/v1/items", endpoints.items, schemas.Found, {}),
        ("GET", "/v1/items/{item_id:path}/similar", endpoints.similar, schemas.Similar, {}),
        ("GET", "/v1/model", endpoints.model, schemas.Card, {}),
        ("GET", "/healthz", endpoints.alive, schemas.State, open_),
        ("GET", "/readyz", endpoints.ready, schemas.State, open_),
        ("GET", "/metrics", endpoints.figures, None,
         {"response_class": PlainTextResponse, "responses": refusals}),
    ]  # fmt: skip
    for method, path, endpoint, model, more in table:
        options = {"responses": errors, "response_model": model} | more
        app.add_api_route(path, endpoint, methods=[method], **options)


class _PageFiles(StaticFiles):
    """The files of the page, with headers that let nothing in from elsewhere."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(PAGE_HEADERS)
        return response


def _add_page(app: FastAPI) -> None:
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", headers=PAGE_HEADERS)

    app.add_api_route("/", page, methods=["GET", "HEAD"], include_in_schema=False)
    app.mount("/page", _PageFiles(directory=PAGE))


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer with an error, always in the same shape."""
    del request
    if isinstance(error, RequestValidationError):  # in the query
        first = error.errors()[0]
        error = _as_refused({**first, "loc": first["loc"][1:]}, str(first["loc"][0]))
    elif isinstance(error, HTTPException):
        hint = HINTS.get(error.status_code)
        error = Refused(error.status_code, error.detail, hint=hint, headers=error.headers)
    assert isinstance(error, Refused)
    return Response(error.body, error.status, error.headers, JSON)


def _as_refused(error: Any, place: str) -> Refused:
    field = ".".join(map(str, error["loc"])) or place
    message = str(error["msg"]).removeprefix("Value error, ")
    return Refused(422, message, field=field, hint="see /openapi.json")
