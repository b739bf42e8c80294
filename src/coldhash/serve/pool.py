"""Threads for work that would hold up other requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from coldhash.serve.refused import Refused

P = ParamSpec("P")
T = TypeVar("T")


class Pool:
    """As many threads as cores, and a line in front of them that is not endless.

    Not the framework's own threads: those cannot be left behind. Here, work whose request has run
    out of time is taken out of the line, or, once begun, finishes unheard.
    """

    def __init__(self, max_waiting: int) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._max_waiting = max_waiting
        self._waiting = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do some work in a thread."""
        if self._waiting >= self._max_waiting:
            raise Refused(
                503, "too much to do", hint="ask again later", headers={"Retry-After": "1"}
            )
        if self._threads is None:
            self._threads = ThreadPoolExecutor(os.cpu_count(), "coldhash-serve")
        self._waiting += 1
        try:
            future = self._threads.submit(work, *args, **kwargs)
            return await asyncio.wrap_future(future)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let the threads go; an app that is started again gets new ones."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
