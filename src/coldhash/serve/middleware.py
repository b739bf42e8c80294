"""What applies to every request: request id, host, token, body and time limits, metrics, log.

One ASGI middleware for all of it: the layers of a framework would take longer than an answer.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import time
import traceback
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coldhash.errors import SettingError
from coldhash.serve.endpoints import SERVED
from coldhash.serve.limits import Limits, RequestError, error_response
from coldhash.serve.monitoring import Entry, Log, Metrics, utc_now
from coldhash.serve.registry import ModelRegistry

HEALTH_PATHS = ("/healthz", "/readyz")  # under any host
PUBLIC_PATHS = (*HEALTH_PATHS, "/")  # without a token, as are the files of the page
PAGE_FILES = "/page/"
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")
PORT = re.compile(r":\d*\Z")


def check_token(token: str) -> str:
    """Return a token without the white space around it; raise an error if it cannot work."""
    token = token.strip()
    if not token:
        raise SettingError("the token is empty", hint="set a token, or none at all")
    if not token.isascii():
        raise SettingError("the token is not ASCII", hint="letters and digits")
    return token


@dataclass(frozen=True, eq=False)
class ServiceMiddleware:
    """Checks every request, limits its time, counts it and logs it."""

    app: ASGIApp
    registry: ModelRegistry
    limits: Limits
    token: str | None
    hosts: set[str] | None
    metrics: Metrics
    log: Log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        scope["app"] = self  # the router then raises its errors
        scope[SERVED] = self.registry.current  # read once: an answer comes from one model
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given if REQUEST_ID.fullmatch(given) else os.urandom(8).hex().encode()
        reply = _Reply(scope, receive, send, request_id)
        entry: Entry = {"time": "", "request_id": request_id.decode()}
        try:
            self._check_host(scope["path"], headers)
            self._check_token(scope["path"], headers)
            length = headers.get(b"content-length", b"0")
            self._check_length(int(length[:20]) if length.isdigit() else 0)
            await self._run(scope, receive, reply)
        except HTTPException as error:
            await reply.send_error(error)
        except asyncio.CancelledError:  # the server stops, or the client is gone
            entry["error"] = "cancelled"
            raise
        except Exception as error:  # a bug: logged without its text, which may hold personal data
            entry["error"] = _locate(error)
            await reply.send_error(RequestError(500, "internal error", hint="see the log"))
        finally:
            self._record(scope, reply.status, time.perf_counter() - start, entry)

    async def _run(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        """Run the app; a thread that is still at work after the time limit is not waited for."""
        n_received = 0

        async def receive_limited() -> Message:  # a body need not announce its length
            nonlocal n_received
            message = await receive()
            n_received += len(message.get("body", b""))
            self._check_length(n_received)
            return message

        try:
            async with asyncio.timeout(self.limits.timeout) as clock:
                await self.app(scope, receive_limited, reply)
        except TimeoutError:
            if not clock.expired():
                raise
            message = f"no answer within {self.limits.timeout:g} seconds"
            raise RequestError(504, message, hint="ask for less at a time") from None

    def _check_host(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self.hosts is None or path in HEALTH_PATHS or b"host" not in headers:
            return
        if PORT.sub("", headers[b"host"].decode("latin-1").lower()) not in self.hosts:
            hint = "start it with --allowed-host HOST"
            raise RequestError(421, "not a host of this server", field="host", hint=hint)

    def _check_token(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self.token is None or path in PUBLIC_PATHS or path.startswith(PAGE_FILES):
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        is_right = hmac.compare_digest(given.strip(), self.token.encode())
        if not (is_right and scheme.lower() == b"bearer"):
            message = "the token is wrong" if given else "a token is required"
            raise RequestError(401, message, hint="Authorization: Bearer TOKEN")

    def _check_length(self, n_bytes: int) -> None:
        if n_bytes > self.limits.max_body:
            hint = f"at most {self.limits.max_body:,} bytes"
            raise RequestError(413, "the body is too large for this server", hint=hint)

    def _record(self, scope: Scope, status: int, seconds: float, entry: Entry) -> None:
        """Count and log a request: its route, never its path, which may hold anything."""
        route = getattr(scope.get("endpoint"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.seconds.labels(route).observe(seconds)
        self.metrics.requests.labels(route, method, status).inc()
        entry |= {
            "time": utc_now(),
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "model": scope[SERVED].version,
        }
        if self.log(entry) is False:
            self.metrics.dropped.inc()


@dataclass(eq=False)
class _Reply:
    """Sends an answer with the request id, and keeps its status."""

    scope: Scope
    receive: Receive
    send: Send
    request_id: bytes
    status: int = 0  # nothing was sent

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.request_id)]
        await self.send(message)

    async def send_error(self, error: HTTPException) -> None:
        """Send an error; an answer that has begun breaks off instead, which a client notices."""
        if not self.status:
            await error_response(error)(self.scope, self.receive, self)


def _locate(error: Exception) -> str:
    """Return the type of an error and the line of code that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {last.filename}:{last.lineno}"
