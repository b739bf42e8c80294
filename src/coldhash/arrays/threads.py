"""Pieces of work on several threads: which piece is done by which thread changes no result.

Compiled functions, BLAS and most of numpy let other threads run. The number of threads is numba's
(`numba.set_num_threads`, NUMBA_NUM_THREADS); the pieces are the same for any number.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

_PIECES = 8  # that rows are divided into
_FEW_ROWS = 64  # for so few, handing them to threads costs more than it saves
_here = threading.local()  # `busy` in a thread that works on a piece
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)  # a forked process has none of the threads


def run_pieces(
    function: Callable[[T], R], pieces: Iterable[T], n_threads: int | None = None
) -> Iterator[R]:
    """Apply a function to pieces, and yield the results in order.

    As many pieces as there are threads are taken at once, and one more waits.
    """
    from concurrent.futures import ThreadPoolExecutor

    from numba import get_num_threads  # which a process that asks once does not load

    n_threads = n_threads or get_num_threads()
    if n_threads == 1 or _is_busy():
        yield from map(function, pieces)
        return
    if n_threads not in _pools:
        _pools[n_threads] = ThreadPoolExecutor(n_threads, "coldhash")
    waiting: deque[Future[R]] = deque()
    try:
        for piece in pieces:
            waiting.append(_pools[n_threads].submit(_work, function, piece))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@cache
def _numpy_blas() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # to make one takes longer than many a product


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which the products of numpy are sums in the same order everywhere."""
    return _numpy_blas().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


def run_rows(function: Callable[..., None], ends: np.ndarray | range, *arguments: object) -> None:
    """Call a function with arguments and a range of rows, for ranges with about as many entries.

    `ends` says how many entries there are before each row and after the last, as in a CSR matrix.
    """
    n_rows = len(ends) - 1
    if n_rows <= _FEW_ROWS or _is_busy():
        function(*arguments, 0, n_rows)
        return
    shares = np.linspace(ends[0], ends[-1], _PIECES + 1)[1:-1]
    rows = [0, *np.searchsorted(ends, shares).clip(max=n_rows).tolist(), n_rows]
    for _ in run_pieces(lambda at: function(*arguments, *rows[at : at + 2]), range(_PIECES)):
        pass


def _is_busy() -> bool:
    """Return whether this thread works on a piece: its own work stays there."""
    return getattr(_here, "busy", False)


def _work(function: Callable[[T], R], piece: T) -> R:
    _here.busy = True
    return function(piece)
