"""create_app: an ASGI application that serves a model."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope
from threadpoolctl import threadpool_limits

from coldhash.recommender.recommender import Recommender
from coldhash.serve.endpoints import SERVED, Endpoints, Operation
from coldhash.serve.limits import Limits
from coldhash.serve.middleware import ServiceMiddleware, check_token
from coldhash.serve.monitoring import Log, Metrics, event, to_stderr
from coldhash.serve.openapi import make_document
from coldhash.serve.registry import ModelRegistry, ServedModel

WATCH_SECONDS = 1.0  # between two checks of the model file
PAGE = Path(__file__).parent / "page"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def create_app(
    source: Recommender | ModelRegistry | str | Path,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    allowed_hosts: Iterable[str] | None = None,
    log: Log = to_stderr,
    watch_seconds: float = WATCH_SECONDS,
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
    _report_swaps(registry, metrics, log)
    operations = Endpoints(limits, metrics).operations()

    async def openapi(scope: Scope, _: None) -> Response:
        return JSONResponse(make_document(operations, scope[SERVED], limits, token is not None))

    async def page(scope: Scope, _: None) -> Response:
        return FileResponse(PAGE / "index.html", headers=PAGE_HEADERS)

    get = partial(Operation, limits, "GET")
    routes = [
        Route(operation.path, operation, methods=[operation.method])
        for operation in (*operations, get("/openapi.json", openapi), get("/", page))
    ]
    router = Router(
        [*routes, Mount("/page", _PageFiles(directory=PAGE))],
        redirect_slashes=False,
        lifespan=partial(_lifespan, registry, watch_seconds),
    )
    hosts = None if allowed_hosts is None else {host.lower() for host in allowed_hosts}
    return ServiceMiddleware(router, registry, limits, token, hosts, metrics, log)


def _report_swaps(registry: ModelRegistry, metrics: Metrics, log: Log) -> None:
    def count(served: ServedModel, n_workers: int) -> None:
        metrics.serving.labels(served.version, served.model.name).set(n_workers)

    def on_swap(old: ServedModel, new: ServedModel) -> None:
        count(old, 0)
        count(new, 1)
        metrics.swaps.labels("ok").inc()
        log(event("model swapped", **{"from": old.version, "model": new.version}))

    def on_refusal(error: Exception) -> None:
        metrics.swaps.labels("refused").inc()
        log(event("model refused", model=registry.current.version, error=str(error)))

    count(registry.current, 1)
    registry.on_swap, registry.on_refusal = on_swap, on_refusal


@contextlib.asynccontextmanager
async def _lifespan(
    registry: ModelRegistry, watch_seconds: float, app: object
) -> AsyncIterator[None]:
    """Watch the file while the app runs; requests share the cores, so BLAS gets one thread."""
    del app
    hangup = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
    watcher = asyncio.create_task(_watch(registry, hangup, watch_seconds))
    with threadpool_limits(1, "blas"):
        yield
    watcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watcher


async def _watch(registry: ModelRegistry, hangup: asyncio.Event, seconds: float) -> None:
    """Check the file regularly, and at once on SIGHUP, in a thread of its own."""
    # not before the start: the first call of Arrow imports pandas, where it is installed
    await asyncio.to_thread(registry.current.catalogue.warm_up)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hangup.wait(), seconds)
        force = hangup.is_set()
        hangup.clear()
        await asyncio.to_thread(registry.refresh, force)


class _PageFiles(StaticFiles):
    """The files of the page, with headers that allow nothing from elsewhere."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(PAGE_HEADERS)
        return response
