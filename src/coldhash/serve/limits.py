"""Limits of requests: how large, and how many wait; the error that a request is answered with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

from pydantic import PositiveFloat, PositiveInt
from starlette.exceptions import HTTPException

from coldhash.errors import ColdhashError, UnknownId, check_types

T = TypeVar("T")

JSON = "application/json"
HINT = "see /openapi.json"
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}  # of errors


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request; the answer to a request beyond them names the limit.

    Parameters
    ----------
    max_body
        Bytes of the body.
    max_k
        Items of an answer.
    max_batch
        People of a batch.
    max_batch_items
        People x k of a batch.
    max_history
        Ratings of one person.
    max_waiting
        Requests that wait for a thread.
    timeout
        Seconds, from the head of the request to the last byte of the answer.

    Raises
    ------
    SettingError
        A limit is not a positive number.

    Examples
    --------
    >>> Limits(max_k=50, timeout=5.0).max_k
    50
    """

    max_body: PositiveInt = 1_000_000
    max_k: PositiveInt = 1000
    max_batch: PositiveInt = 1000
    max_batch_items: PositiveInt = 20_000
    max_history: PositiveInt = 1000
    max_waiting: PositiveInt = 256
    timeout: PositiveFloat = 30.0

    def __post_init__(self) -> None:
        check_types(self)

    def check_length(self, n_bytes: int) -> None:
        """Raise a request error if a body is too long."""
        if n_bytes > self.max_body:
            hint = f"at most {self.max_body:,} bytes"
            raise RequestError(413, "the body is too large for this server", hint=hint)


class RequestError(HTTPException):
    """An error of a request: the status, the message, the field that is wrong and a hint."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(status, message, HEADERS.get(status))
        self.field, self.hint = field, hint


def error_content(error: HTTPException) -> dict[str, dict[str, str | None]]:
    """Return what an answer says of an error; those of Starlette name no field."""
    field, hint = getattr(error, "field", None), getattr(error, "hint", HINT)
    return {"error": {"field": field, "message": error.detail, "hint": hint}}


def library_error(error: ColdhashError, field: str | None) -> RequestError:
    """Return an error of the library as that of a request, about a field."""
    status = 404 if isinstance(error, UnknownId) else 422
    return RequestError(status, error.message, field=error.argument or field, hint=error.hint)


class Pool:
    """Threads for work that would block other requests.

    There are as many as cores, behind a bounded priority queue. Single requests come first, then
    batches in the order of their arrival: under load the earliest batches finish, instead of all of
    them running out of time together. A batch whose client does not read has nothing in the queue,
    so it delays nobody.

    Work whose request has timed out is removed from the queue; once started, it finishes, and its
    result is dropped.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._n_waiting = 0
        self._n_free = os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(self._n_free, "coldhash-serve")
        self._arrivals = count(1)
        self._queue: list[tuple[int, int, asyncio.Future[Any], Callable[[], Any]]] = []

    def arrival(self) -> int:
        """Return the priority of a batch that arrives now."""
        return next(self._arrivals)

    async def run(self, work: Callable[[], T], order: int = 0, is_new: bool = True) -> T:
        """Run work in a thread, lower orders first; new work is refused if the queue is full."""
        if is_new and self._n_waiting >= self._max_waiting:
            raise RequestError(503, "too many requests are waiting", hint="try again later")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        heappush(self._queue, (order, next(self._arrivals), result, work))
        self._n_waiting += 1
        try:
            self._start_next()
            return await result
        finally:
            self._n_waiting -= 1

    def _start_next(self) -> None:
        while self._queue and self._n_free > 0:
            _, _, result, work = heappop(self._queue)
            if not result.done():  # cancelled: its request has timed out
                self._n_free -= 1
                running = result.get_loop().run_in_executor(self._threads, work)
                running.add_done_callback(partial(self._finish, result))

    def _finish(self, result: asyncio.Future[T], running: asyncio.Future[T]) -> None:
        self._n_free += 1
        error = running.exception()
        if not result.done():
            result.set_exception(error) if error else result.set_result(running.result())
        result.get_loop().call_soon(self._start_next)  # after a batch has queued its next block
