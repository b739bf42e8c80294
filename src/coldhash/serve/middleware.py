"""What every request passes: request id, host, token, body and time limits, metrics, log.

Written against ASGI itself: a middleware class of the framework would cost more than an answer.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coldhash.errors import SettingError
from coldhash.serve.errors import Refused
from coldhash.serve.limits import Limits
from coldhash.serve.log import Log, now
from coldhash.serve.metrics import Metrics
from coldhash.serve.registry import Shelf

HEALTH = ("/healthz", "/readyz")  # under any host
OPEN = (*HEALTH, "/")  # without a token; and the files of the page
PAGE = "/page/"
SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")
SERVED = "coldhash.served"  # where a request finds its model
TOO_LARGE = "the body is larger than this server takes"

PORT = re.compile(r":\d*\Z")


def checked_token(token: str) -> str:
    """Return a token without the white space around it; a token that cannot work is an error."""
    token = token.strip()
    if not token:
        raise SettingError("the token is empty", hint="set one, or none at all")
    if not token.isascii():
        raise SettingError("the token holds more than ASCII", hint="letters and digits")
    return token


class Gate:
    """The middleware around the whole app."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        direct: Mapping[str, Route],
        limits: Limits,
        token: str | None,
        allowed_hosts: Iterable[str] | None,
        metrics: Metrics,
        shelf: Shelf,
        log: Log,
    ) -> None:
        self._app = app
        self._direct = direct
        self._limits = limits
        self._token = None if token is None else token.encode()
        self._hosts = None if allowed_hosts is None else {host.lower() for host in allowed_hosts}
        self._metrics = metrics
        self._shelf = shelf
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, and account for it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        scope[SERVED] = self._shelf.current  # once: an answer comes from one model
        headers = dict(scope["headers"])
        request_id = _request_id(headers)
        reply = _Reply(send, request_id)
        entry: dict[str, Any] = {"time": "", "request_id": request_id.decode()}
        try:
            refused = self._refusal(scope["path"], headers)
            if refused is None:
                await self._within_time(scope, _limited(receive, self._limits.max_body), reply)
            else:
                await reply.refuse(refused)
        except Refused as refused:
            await reply.refuse(refused)
        except asyncio.CancelledError:  # the server stops, or the client is gone
            entry["error"] = "cancelled"
            raise
        except Exception as error:  # a mistake of ours: told without what the request held
            entry["error"] = _place(error)
            await reply.refuse(Refused(500, "the server made a mistake", hint="see its log"))
        finally:
            self._account(scope, reply.status, time.perf_counter() - start, entry)

    async def _within_time(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        """Run the app; work in a thread cannot be stopped, but nobody waits for it any more."""
        try:
            async with asyncio.timeout(self._limits.timeout) as clock:
                route = self._direct.get(scope["path"])
                if route is None or scope["method"] not in (route.methods or ()):
                    await self._app(scope, receive, reply)
                else:  # without the layers of the framework
                    scope["route"] = route
                    await route.app(scope, receive, reply)
        except TimeoutError:
            if not clock.expired():
                raise
            message = f"no answer within {self._limits.timeout:g} seconds"
            await reply.refuse(Refused(504, message, hint="ask for less at a time"))

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> Refused | None:
        if self._hosts is not None and path not in HEALTH and b"host" in headers:
            host = PORT.sub("", headers[b"host"].decode("latin-1").lower())
            if host not in self._hosts:
                return Refused(421, "this server is not known under that host", field="host",
                               hint="start it with --allowed-host HOST")  # fmt: skip
        if self._token is not None and path not in OPEN and not path.startswith(PAGE):
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            fits = hmac.compare_digest(given.strip(), self._token)
            if not (fits and scheme.lower() == b"bearer"):
                return Refused(
                    401,
                    "a token is needed" if not given else "the token does not fit",
                    hint="Authorization: Bearer TOKEN",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._limits.max_body:
            return Refused(413, TOO_LARGE, hint=f"at most {self._limits.max_body:,} bytes")
        return None

    def _account(self, scope: Scope, status: int, seconds: float, entry: dict[str, Any]) -> None:
        # never the path itself, which may hold anything
        route = getattr(scope.get("route"), "path", None) or "other"
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.count_request(route, method, status, seconds)
        entry |= {
            "time": now(),
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "model": scope[SERVED].version,
        }
        if self._log(entry) is False:
            self._metrics.dropped.inc()


class _Reply:
    """Sends on what the app answers, with the request id, and notes the status."""

    def __init__(self, send: Send, request_id: bytes) -> None:
        self.status = 0  # nothing was sent
        self._send = send
        self._request_id = request_id

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self._request_id)]
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        """Send an error; an answer that is on its way already breaks off, which a client sees."""
        if self.status:
            return
        body = refused.body
        pairs = {"content-type": "application/json", "content-length": str(len(body))}
        pairs |= refused.headers
        headers = [(name.lower().encode(), value.encode()) for name, value in pairs.items()]
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _limited(receive: Receive, max_body: int) -> Receive:
    """Count the body as it comes in: it need not say beforehand how long it is."""
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > max_body:
            raise Refused(413, TOO_LARGE, hint=f"at most {max_body:,} bytes")
        return message

    return limited


def _request_id(headers: dict[bytes, bytes]) -> bytes:
    given = headers.get(b"x-request-id", b"")
    return given if SANE_ID.fullmatch(given) else os.urandom(8).hex().encode()


def _place(error: Exception) -> str:
    """Say where an error came from, without its text, which may hold what somebody sent."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return " ".join([type(error).__name__, *(f"{each.filename}:{each.lineno}" for each in last)])
