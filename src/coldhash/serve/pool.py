"""Threads for work that would hold up other requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from typing import ParamSpec, TypeVar

from coldhash.serve.errors import Refused

P = ParamSpec("P")
T = TypeVar("T")


class Pool:
    """As many threads as cores, and a bounded priority queue in front of them.

    Single requests come first, then batches in the order of their arrival: under load the earliest
    batches finish, instead of all of them running out of time together. A batch whose client does
    not read has nothing in the queue, so it delays nobody.

    Work whose request has run out of time is removed from the queue; once begun, it finishes, and
    its result is dropped.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._arrivals = count(1)
        self._threads: ThreadPoolExecutor | None = None
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._free = os.cpu_count() or 1
        self._waiting = 0

    def arrival(self) -> int:
        """Return the priority of a batch that arrives now."""
        return next(self._arrivals)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the work of a single request in a thread."""
        return await self.run_in_order(0, True, work, *args, **kwargs)

    async def run_in_order(
        self, order: int, refuse: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do some work in a thread, lower orders first; `refuse` it if the queue is full."""
        if refuse and self._waiting >= self._max_waiting:
            raise Refused(
                503, "too much to do", hint="ask again later", headers={"Retry-After": "1"}
            )
        self._waiting += 1
        try:
            await self._wait_for_thread(order)
            return await self._run_in_thread(lambda: work(*args, **kwargs))
        finally:
            self._waiting -= 1

    async def _wait_for_thread(self, order: int) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heappush(self._queue, (order, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has got a thread in the meantime
                self._release()
            raise

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(os.cpu_count(), "coldhash-serve")
        future = loop.run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        finally:
            if future.done():
                # not at once: a batch puts its next block into the queue first
                loop.call_soon(self._release)
            else:  # the request has run out of time, and its thread still works
                future.add_done_callback(lambda _: self._release())

    def _release(self) -> None:
        """Hand a thread that has become free to the first in the queue."""
        while self._queue:
            turn = heappop(self._queue)[-1]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def close(self) -> None:
        """Shut the threads down; an app that is started again gets new ones."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._threads, self._queue, self._free = None, [], os.cpu_count() or 1
