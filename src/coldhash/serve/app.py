"""create_app: an ASGI application that serves a model.

One middleware does what applies to every request (request id, host, token, body and time limits,
metrics, log): the layers of a framework would take longer than an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from threadpoolctl import threadpool_limits

from coldhash import __version__
from coldhash.errors import SettingError
from coldhash.recommender.recommender import Recommender
from coldhash.serve import schemas
from coldhash.serve.endpoints import HEADERS, HEALTH_PATHS, MODEL, SERVED, Endpoints, Operation
from coldhash.serve.monitoring import Entry, Log, Metrics, event, to_stderr, utc_now
from coldhash.serve.registry import ModelRegistry, ServedModel
from coldhash.serve.schemas import JSON, REF, REQUESTS, Limits, Request, RequestError, Schema

PAGE = Path(__file__).parent / "page"
POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'; img-src 'self' https: http:"  # images of items
)
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
PAGE_FILES = "/page/"  # without a token, as is the page
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
NEW_IDS = itertools.count(int.from_bytes(os.urandom(7)))  # cheaper than random ones
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")
PORT = re.compile(r":\d*\Z")


def create_app(
    source: Recommender | ModelRegistry | str | Path,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    allowed_hosts: Iterable[str] | None = None,
    allowed_origins: Sequence[str] = (),
    log: Log = to_stderr,
    watch_seconds: float = 1.0,
) -> ASGIApp:
    """Return an ASGI application that serves a model, or a model file and its replacements.

    Parameters
    ----------
    source
        A model, or the path of a model file; a new file in its place is served at once.
    limits
        Limits of requests; None: the defaults.
    token
        The token that requests need, except those for health and for the page; None: no token.
    allowed_hosts
        The names in the header `Host`, without a port, that are answered; None: all.
    allowed_origins
        Origins of web pages, such as `https://shop.example`, whose scripts may send requests
        (CORS); `*` for any.
    log
        Called with an entry for each request; it returns False if it dropped the entry.
    watch_seconds
        Seconds between two checks of the file.

    Returns
    -------
    ASGIApp
        The application, for uvicorn or another ASGI server.

    Raises
    ------
    SettingError
        The token is empty or not ASCII.
    SourceError, ModelFileError
        The file cannot be read, or is not a model file.

    Examples
    --------
    >>> from starlette.testclient import TestClient
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> with TestClient(create_app(model, log=lambda entry: None)) as client:
    ...     answer = client.post("/v1/recommend", json={"user": {"age": 30}, "k": 3})
    >>> answer.status_code, len(answer.json()["items"])
    (200, 3)
    """
    token = None if token is None else check_token(token)
    registry = source if isinstance(source, ModelRegistry) else ModelRegistry(source)
    limits, metrics = limits or Limits(), Metrics()
    metrics.count_workers(registry.current, 1)
    operations = Endpoints(limits, metrics).operations()

    async def openapi(scope: Scope, _: Request) -> bytes:
        return orjson.dumps(make_document(operations, scope[SERVED], limits, token is not None))

    async def page(scope: Scope, _: Request) -> Response:
        return FileResponse(PAGE / "index.html", headers=PAGE_HEADERS)

    @contextlib.asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        watcher = asyncio.create_task(_watch(registry, metrics, log, watch_seconds))
        with threadpool_limits(1, "blas"):  # requests share the cores
            yield
        watcher.cancel()

    get = partial(Operation, limits, "GET")
    every = (*operations, get("/openapi.json", openapi), get("/", page))
    routes = [Route(each.path, each, methods=[each.method]) for each in every]
    router = Router(
        [*routes, Mount("/page", _PageFiles(directory=PAGE))],
        redirect_slashes=False,
        lifespan=lifespan,
    )
    hosts = None if allowed_hosts is None else {host.lower() for host in allowed_hosts}
    direct: dict[tuple[str, str], ASGIApp] = {(each.method, each.path): each for each in every}
    app = ServiceMiddleware(router, direct, registry, limits, token, hosts, metrics, log)
    if not allowed_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=allowed_origins,
        allow_methods=("GET", "POST"),
        allow_headers=("Authorization", "Content-Type", "Accept", "X-Request-ID"),
        expose_headers=("X-Request-ID", "Server-Timing", "Retry-After"),
    )


async def _watch(registry: ModelRegistry, metrics: Metrics, log: Log, seconds: float) -> None:
    """Check the file regularly, and at once on SIGHUP, in a thread of its own."""
    hangup = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hangup.wait(), seconds)
        force, old = hangup.is_set(), registry.current
        hangup.clear()
        try:
            if not await asyncio.to_thread(registry.refresh, force):
                continue
        except Exception as error:  # whatever is wrong with it, there is a model that works
            metrics.swaps.labels("refused").inc()
            log(event("model refused", model=old.version, error=str(error)))
            continue
        new = registry.current
        metrics.count_workers(old, 0)
        metrics.count_workers(new, 1)
        metrics.swaps.labels("ok").inc()
        log(event("model swapped", **{"from": old.version, "model": new.version}))


class _PageFiles(StaticFiles):
    """The files of the page, with headers that allow nothing from elsewhere."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(PAGE_HEADERS)
        return response


def check_token(token: str) -> str:
    """Return a token without the white space around it; raise an error if it cannot work."""
    token = token.strip()
    if not token or not token.isascii():
        hint = "letters and digits, or no token at all"
        raise SettingError("the token is empty or not ASCII", hint=hint)
    return token


@dataclass(frozen=True, eq=False)
class ServiceMiddleware:
    """Checks every request, limits its time, counts it and logs it."""

    router: ASGIApp
    direct: dict[tuple[str, str], ASGIApp]  # by method and path, without the router
    registry: ModelRegistry
    limits: Limits
    token: str | None
    hosts: set[str] | None
    metrics: Metrics
    log: Log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.router(scope, receive, send)
            return
        start, status = time.perf_counter(), 0  # nothing was sent
        headers = scope[HEADERS] = dict(scope["headers"])
        scope["app"] = self  # the router then raises its errors
        scope[SERVED] = self.registry.current  # read once: an answer comes from one model
        given = headers.get(b"x-request-id", b"")
        request_id = given if REQUEST_ID.fullmatch(given) else b"%016x" % next(NEW_IDS)
        failure: Entry = {}

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        async def refuse(error: HTTPException) -> None:
            if not status:  # an answer that has begun breaks off, which a client notices
                content = schemas.error_body(error)
                response = Response(content, error.status_code, error.headers, JSON)
                await response(scope, receive, reply)

        try:
            self._check_access(scope["path"], headers)
            app = self.direct.get((scope["method"], scope["path"]), self.router)
            async with asyncio.timeout(self.limits.timeout):  # a thread at work is not waited for
                await app(scope, receive, reply)
        except HTTPException as error:
            await refuse(error)
        except TimeoutError:
            message = f"no answer within {self.limits.timeout:g} seconds"
            await refuse(RequestError(504, message, hint="ask for less at a time"))
        except asyncio.CancelledError:  # the server stops, or the client is gone
            failure["error"] = "cancelled"
            raise
        except Exception as error:  # a bug: logged without its text, which may hold personal data
            last = traceback.extract_tb(error.__traceback__)[-1]
            failure["error"] = f"{type(error).__name__} {last.filename}:{last.lineno}"
            await refuse(RequestError(500, "internal error", hint="see the log"))
        finally:
            self._record(scope, status, request_id, time.perf_counter() - start, failure)

    def _check_access(self, path: str, headers: dict[bytes, bytes]) -> None:
        """Raise a request error for another host, or without the token."""
        if path in HEALTH_PATHS:
            return
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.hosts is not None and b"host" in headers and PORT.sub("", host) not in self.hosts:
            hint = "start it with --allowed-host HOST"
            raise RequestError(421, "not a host of this server", field="host", hint=hint)
        if self.token is None or path == "/" or path.startswith(PAGE_FILES):
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        is_right = hmac.compare_digest(given.strip(), self.token.encode())
        if not (is_right and scheme.lower() == b"bearer"):
            message = "the token is wrong" if given else "a token is required"
            raise RequestError(401, message, hint="Authorization: Bearer TOKEN")

    def _record(
        self, scope: Scope, status: int, request_id: bytes, seconds: float, failure: Entry
    ) -> None:
        """Count and log a request: its route, never its path, which may hold anything."""
        route = getattr(scope.get("endpoint"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.seconds(route).observe(seconds)
        self.metrics.requests(route, method, status).inc()
        entry = {
            "time": utc_now(),
            "request_id": request_id.decode(),
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "model": scope[SERVED].version,
            **failure,
        }
        if self.log(entry) is False:
            self.metrics.dropped.inc()


def make_document(
    operations: Sequence[Operation], served: ServedModel, limits: Limits, has_token: bool
) -> Schema:
    """Describe operations, for one model."""
    types: list[type[BaseModel]] = [served.types(limits).request(name) for name in REQUESTS]
    types += [schemas.ErrorAnswer, *(each.answer for each in operations if each.answer is not None)]
    _, forms = models_json_schema([(kind, "validation") for kind in types], ref_template=REF)
    models: Schema = forms["$defs"]
    person, item_ids = served.model.features.example(), served.model.item_ids
    item_id = item_ids[0] if len(item_ids) else "1"
    example = {"user": person, "users": [person, {}], "k": 3, "item_id": item_id}
    for name, fields in REQUESTS.items():
        models[name]["examples"] = [{field: example[field] for field in example if field in fields}]
    paths = {
        operation.path.replace(":path", ""): {
            operation.method.lower(): _describe(operation, models, has_token)
        }
        for operation in operations
    }
    paths[MODEL]["get"]["responses"]["200"]["content"][JSON]["example"] = orjson.loads(served.card)
    schemes = {"token": {"type": "http", "scheme": "bearer"}} if has_token else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "coldhash", "version": __version__},
        "paths": paths,
        "components": {"schemas": models, "securitySchemes": schemes},
    }


def _describe(operation: Operation, models: Schema, has_token: bool) -> Schema:
    content: Schema = {} if operation.answer is None else _as_json(operation.answer.__name__)
    if operation.text_type is not None:
        content[operation.text_type] = {"schema": {"type": "string"}}
    content = content or {JSON: {"schema": {"type": "object"}}}
    found: Schema = {
        "operationId": operation.handler.__name__,
        "description": operation.handler.__doc__,
        "security": [{"token": []}] if has_token and operation.path not in HEALTH_PATHS else [],
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {"description": "An error.", "content": _as_json("ErrorAnswer")},
        },
    }
    if operation.request is None:
        return found
    if operation.method == "POST":
        return found | {"requestBody": {"required": True, "content": _as_json(operation.request)}}
    request = models.pop(operation.request)
    parameters = [
        {
            "name": name,
            "in": "path" if f"{{{name}" in operation.path else "query",
            "required": name in request.get("required", ()),
            **({"content": {JSON: {"schema": schema}}} if name == "where" else {"schema": schema}),
            **({"style": "form", "explode": False} if name == "fields" else {}),
        }
        for name, schema in request["properties"].items()
    ]
    return found | {"parameters": parameters}


def _as_json(name: str) -> Schema:
    return {JSON: {"schema": {"$ref": REF.format(model=name)}}}
