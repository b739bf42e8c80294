"""Threads for work that would block other requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

from coldhash.serve.limits import RequestError

T = TypeVar("T")


class Pool:
    """As many threads as cores, behind a bounded priority queue.

    Single requests come first, then batches in the order of their arrival: under load the earliest
    batches finish, instead of all of them running out of time together. A batch whose client does
    not read has nothing in the queue, so it delays nobody.

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
        if error is not None and not result.done():
            result.set_exception(error)
        elif not result.done():
            result.set_result(running.result())
        result.get_loop().call_soon(self._start_next)  # after a batch has queued its next block
