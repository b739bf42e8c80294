"""Threads for work that would block other requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

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
        self._waiting = 0
        self._free = os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(self._free, "coldhash-serve")
        self._arrivals = count(1)
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []

    def arrival(self) -> int:
        """Return the priority of a batch that arrives now."""
        return next(self._arrivals)

    async def run(self, work: Callable[[], T], order: int = 0, is_new: bool = True) -> T:
        """Run work in a thread, lower orders first; new work is refused if the queue is full."""
        if is_new and self._waiting >= self._max_waiting:
            raise RequestError(503, "too many requests are waiting", hint="try again later")
        self._waiting += 1
        try:
            await self._acquire_thread(order)
            return await self._run(work)
        finally:
            self._waiting -= 1

    async def _acquire_thread(self, order: int) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heappush(self._queue, (order, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it got a thread in the meantime
                self._release_thread()
            raise

    def _release_thread(self) -> None:
        while self._queue:
            turn = heappop(self._queue)[-1]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _run(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        finally:
            if future.done():
                loop.call_soon(self._release_thread)  # after a batch has queued its next block
            else:  # cancelled while the thread works
                future.add_done_callback(lambda _: self._release_thread())
