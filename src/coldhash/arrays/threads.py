"""Pieces of work on several threads: which piece is done by which thread changes no result.

Compiled functions, BLAS and most of numpy let other threads run. The number of threads is numba's
(`numba.set_num_threads`, NUMBA_NUM_THREADS); the pieces are the same for any number.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from itertools import islice
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

_PIECES = 8  # that rows are divided into
_FEW_ROWS = 64  # for so few, handing them to threads costs more than it saves
_numpy_blas = cache(ThreadpoolController)  # to make one takes longer than many a product
_here = threading.local()  # `busy` in a thread that works on a piece
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)  # a forked process has none of the threads


def run_pieces(
    function: Callable[[T], R], pieces: Iterable[T], n_threads: int | None = None
) -> Iterator[R]:
    """Apply a function to pieces, and yield the results in order.

    The calling thread does pieces, too: to hand over each and wait for it costs more than a short
    one takes. One more piece is ready than there are threads.
    """
    from numba import get_num_threads  # which a process that asks once does not load

    n_threads = n_threads or get_num_threads()
    if n_threads == 1 or getattr(_here, "busy", False):  # the work of a piece stays in its thread
        yield from map(function, pieces)
        return
    if n_threads not in _pools:
        _pools[n_threads] = ThreadPoolExecutor(n_threads - 1, "coldhash")
    rest, waiting, ready = iter(pieces), deque[Future[R]](), deque[tuple[Future[R], T]]()
    try:
        while True:
            for piece in islice(rest, n_threads + 1 - len(waiting)):
                waiting.append(Future())
                ready.append((waiting[-1], piece))
                if len(waiting) > 1:  # the first is for this thread, if nobody is sooner
                    _pools[n_threads].submit(_do_next, function, ready)
            if not waiting:
                return
            if waiting[0].done() or not _do_next(function, ready):
                yield waiting.popleft().result()
    finally:
        ready.clear()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which the products of numpy are sums in the same order everywhere."""
    return _numpy_blas().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


def run_rows(function: Callable[..., None], ends: np.ndarray | range, *arguments: object) -> None:
    """Call a function with arguments and a range of rows, for ranges with about as many entries.

    `ends` says how many entries there are before each row and after the last, as in a CSR matrix.
    """
    n_rows = len(ends) - 1
    if n_rows <= _FEW_ROWS or getattr(_here, "busy", False):
        function(*arguments, 0, n_rows)
        return
    shares = np.linspace(ends[0], ends[-1], _PIECES + 1)[1:-1]
    rows = [0, *np.searchsorted(ends, shares).clip(max=n_rows).tolist(), n_rows]
    for _ in run_pieces(lambda at: function(*arguments, *rows[at : at + 2]), range(_PIECES)):
        pass


def _do_next(function: Callable[[T], R], ready: deque[tuple[Future[R], T]]) -> bool:
    """Do the next piece that no other thread has taken, if there is any."""
    try:
        future, piece = ready.popleft()
    except IndexError:
        return False
    _here.busy = True
    try:
        future.set_result(function(piece))
    except BaseException as error:  # raised where the result is asked for
        future.set_exception(error)
    finally:
        _here.busy = False
    return True
