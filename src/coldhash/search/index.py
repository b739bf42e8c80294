"""CodeIndex: all item codes, in the layout of the scan and in the order in which ties are broken.

Of two items with the same score the more popular one comes first, then the one that comes first in
the catalogue. Positions of the index are in this order, so that ties need no comparison.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from coldhash.arrays.codes import n_words, unpack
from coldhash.errors import DataError, SettingError
from coldhash.search.kernels import hamming_kernel, weighted_kernel
from coldhash.search.lanes import GROUP, TILE

NARROW_BITS = 254  # Hamming distances up to here are summed in bytes
MAX_BITS = 2048  # weighted distances up to here are summed in 16 bits
SPLIT_GROUPS = 1 << 10  # a single query is split over threads in ranges no smaller than this

RowLists: TypeAlias = tuple[np.ndarray, np.ndarray]  # starts and sorted positions, by query
Rows: TypeAlias = Sequence[int] | np.ndarray
NO_LISTS: RowLists = (np.zeros(0, np.int64), np.zeros(0, np.int32))
SUM8, SUM16 = np.zeros(0, np.uint8), np.zeros(0, np.uint16)  # the type of a kernel's sums


@dataclass(frozen=True, eq=False)
class CodeIndex:
    """Codes of items for exact search: n_bits / 8 bytes an item, and the order.

    Parameters
    ----------
    stripes
        Codes by position, in groups of 64, byte by byte (groups x bytes x 64, uint8).
    order
        The row of each position (int32).
    rank
        The position of each row (int32).
    n_bits
        Length of codes.

    Examples
    --------
    >>> from coldhash.arrays.codes import pack
    >>> codes = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, 1, 1, -1]])
    >>> index = CodeIndex.of(pack(codes), n_bits=4, popularity=np.array([3, 2, 1]))
    >>> rows, distances = index.hamming(pack(codes[:1]), k=2)
    >>> rows.tolist(), distances.tolist()
    ([[0, 2]], [[0, 1]])
    """

    stripes: np.ndarray
    order: np.ndarray
    rank: np.ndarray
    n_bits: int

    @classmethod
    def of(cls, packed: np.ndarray, n_bits: int, popularity: np.ndarray) -> CodeIndex:
        """Build an index of packed codes.

        Parameters
        ----------
        packed
            The codes, as `pack` returns them.
        n_bits
            Length of codes.
        popularity
            A number for each code; of equal scores the larger one comes first.

        Returns
        -------
        CodeIndex
            The index.

        Raises
        ------
        SettingError, DataError
            `n_bits` is out of range, or the shape of the codes does not fit.
        """
        if not 1 <= n_bits <= MAX_BITS:
            raise SettingError(f"n_bits={n_bits}", hint=f"1 to {MAX_BITS}")
        if packed.shape != (len(popularity), n_words(n_bits)):
            raise DataError(
                f"{packed.shape} words are not {len(popularity)} codes of {n_bits} bits"
            )
        # descending and stable, without a minus sign, which unsigned counts would not survive
        backwards = np.argsort(popularity[::-1], kind="stable")[::-1]
        order = (len(popularity) - 1 - backwards).astype(np.int32)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return cls(stripe(packed[order], n_bits), order, rank, n_bits)

    def __len__(self) -> int:
        return len(self.order)

    def packed(self, items: Rows | slice = slice(None)) -> np.ndarray:
        """Return the packed codes of some rows.

        Parameters
        ----------
        items
            The rows, or a slice of them; all by default.

        Returns
        -------
        array of uint64
            Rows x words, as `pack` returns them.
        """
        at = np.asarray(self.rank[items], dtype=np.int64)
        as_bytes = np.zeros((len(at), n_words(self.n_bits) * 8), dtype=np.uint8)
        as_bytes[:, : self.stripes.shape[1]] = self.stripes[at // GROUP, :, at % GROUP]
        return as_bytes.view("<u8").astype(np.uint64, copy=False)

    def rows(self, items: Rows | slice = slice(None)) -> np.ndarray:
        """Return the unpacked codes of some rows.

        Parameters
        ----------
        items
            The rows, or a slice of them; all by default.

        Returns
        -------
        array of int8
            Rows x bits, +1 and -1.
        """
        return unpack(self.packed(items), self.n_bits)

    def hamming(
        self,
        queries: np.ndarray,
        k: int,
        excluded: RowLists | None = None,
        listed: RowLists | None = None,
        threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k nearest codes of packed queries.

        Parameters
        ----------
        queries
            Packed codes.
        k
            How many to find.
        excluded, listed
            Items to leave out, and the only ones to look at, from `lists`.
        threads
            How many threads may be used; it changes no result.

        Returns
        -------
        rows, distances
            Queries x k, the nearest first; -1 where fewer exist.

        Raises
        ------
        DataError, SettingError
            The queries or lists do not fit, or `k` or `threads` is below 1.
        """
        n_bytes = self.stripes.shape[1]
        if queries.dtype != np.uint64 or queries.shape[1:] != (n_words(self.n_bits),):
            raise DataError(f"{queries.shape} {queries.dtype} are no codes of {self.n_bits} bits")
        codes = np.ascontiguousarray(queries, dtype="<u8").view(np.uint8)
        if codes.shape[1] != n_bytes:
            codes = np.ascontiguousarray(codes[:, :n_bytes])
        sums = SUM8 if self.n_bits <= NARROW_BITS else SUM16
        outputs = (np.int32, np.int32)
        found = self._run(hamming_kernel, codes, k, excluded, listed, threads, sums, outputs)
        return found[0], found[1]

    def weighted(
        self,
        queries: np.ndarray,
        k: int,
        excluded: RowLists | None = None,
        listed: RowLists | None = None,
        threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k codes d with the largest q·d of real queries q.

        Weights are rounded to about 2⁻²² of the heaviest four bits; the rest is exact, ties
        included.

        Parameters
        ----------
        queries
            Real vectors, queries x bits.
        k, excluded, listed, threads
            As for `hamming`.

        Returns
        -------
        rows, scores
            Queries x k, the best first; -1 and -inf where fewer exist.

        Raises
        ------
        DataError, SettingError
            As for `hamming`, or a query holds NaN or infinity.
        """
        if queries.shape[1:] != (self.n_bits,):
            raise DataError(f"{queries.shape} are no queries of {self.n_bits} numbers")
        if queries.dtype != np.float32:
            with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
                queries = queries.astype(np.float32)
        queries = np.ascontiguousarray(queries)
        if not np.isfinite(queries).all():
            raise DataError("a query holds NaN or infinity")
        outputs = (np.int32, np.int32, np.float64)
        found = self._run(weighted_kernel, queries, k, excluded, listed, threads, SUM16, outputs)
        return found[0], found[2]

    def lists(self, lists: Sequence[Rows]) -> RowLists:
        """Convert lists of rows to the form that `hamming` and `weighted` take.

        Parameters
        ----------
        lists
            A list of rows for each query.

        Returns
        -------
        starts, positions
            Where the list of each query begins, and the sorted positions of all lists.

        Raises
        ------
        DataError
            A row is not in the index.
        """
        rows = [np.asarray(each, dtype=np.int64) for each in lists]
        if any(((each < 0) | (each >= len(self))).any() for each in rows):
            raise DataError(f"a list names rows outside 0 to {len(self) - 1}")
        positions = [np.unique(self.rank[each]) for each in rows]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in positions])])
        flat = np.concatenate(positions) if positions else np.zeros(0, np.int32)
        return starts.astype(np.int64), flat.astype(np.int32)

    def _run(
        self,
        kernel: Callable[..., None],
        queries: np.ndarray,
        k: int,
        excluded: RowLists | None,
        listed: RowLists | None,
        threads: int,
        sums: np.ndarray,
        outputs: tuple[type[np.generic], ...],
    ) -> list[np.ndarray]:
        """Call the kernel, and return the arrays it fills: rows, distances, maybe scores."""
        n_queries, n_groups = len(queries), len(self.stripes)
        _check(k, threads, n_queries, excluded, listed)
        if not queries.flags.writeable:  # or numba would compile the kernel anew
            queries = queries.copy()
        filters = (*(excluded or NO_LISTS), *(listed or NO_LISTS))
        shape = (n_queries, min(k, len(self.order)))

        def scan(first: int, last: int, begin: int, end: int, found: list[np.ndarray]) -> None:
            skip, skipped, only, chosen = filters
            some, ends = slice(begin, end), slice(begin, end + 1)
            mine = (skip[ends], skipped, only[ends], chosen, sums, queries[some])
            kernel(self.stripes, self.order, first, last, *mine, *[each[some] for each in found])

        parts = min(threads, n_groups // SPLIT_GROUPS)
        if 0 < n_queries < threads and parts > 1 and listed is None:
            edges = [n_groups * part // parts for part in range(parts + 1)]
            ranges = [[np.empty(shape, dtype) for dtype in outputs] for _ in range(parts)]
            tasks = [(*edges[i : i + 2], 0, n_queries, ranges[i]) for i in range(parts)]
            run_in_threads(scan, tasks, threads)
            return _merge(ranges)
        found = [np.empty(shape, dtype) for dtype in outputs]
        if threads == 1 or n_queries <= 1:
            kernel(self.stripes, self.order, 0, n_groups, *filters, sums, queries, *found)
            return found
        step = TILE * -(-n_queries // (4 * threads * TILE))  # chunks of uneven cost even out
        begins = range(0, n_queries, step)
        tasks = [(0, n_groups, begin, begin + step, found) for begin in begins]
        run_in_threads(scan, tasks, threads)
        return found


def _check(
    k: int, threads: int, n_queries: int, excluded: RowLists | None, listed: RowLists | None
) -> None:
    """Raise an error for what would make the kernels read past the end of an array."""
    if k < 1:
        raise SettingError(f"k={k}", hint="at least 1")
    if threads < 1:
        raise SettingError(f"threads={threads}", hint="at least 1")
    for lists in (excluded, listed):
        if lists is not None and len(lists[0]) != n_queries + 1:
            raise DataError(f"{len(lists[0]) - 1} lists for {n_queries} queries")


def stripe(packed: np.ndarray, n_bits: int) -> np.ndarray:
    """Store packed codes, in tie order, as groups of 64, byte by byte."""
    n_items, n_bytes = len(packed), -(-n_bits // 8)
    stripes = np.zeros((-(-n_items // GROUP), n_bytes, GROUP), dtype=np.uint8)
    rows = np.ascontiguousarray(packed).astype("<u8", copy=False).view(np.uint8)[:, :n_bytes]
    full = n_items // GROUP
    stripes[:full] = rows[: full * GROUP].reshape(full, GROUP, n_bytes).transpose(0, 2, 1)
    if n_items % GROUP:
        stripes[full, :, : n_items % GROUP] = rows[full * GROUP :].T
    return stripes


def _merge(found: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Take the best k of all ranges; they come in tie order, which a stable sort keeps."""
    joined = [np.concatenate(values, axis=1) for values in zip(*found, strict=True)]
    rows, distances = joined[:2]
    distances = np.where(rows < 0, np.iinfo(np.int32).max, distances)
    best = np.argsort(distances, axis=1, kind="stable")[:, : found[0][0].shape[1]]
    return [np.take_along_axis(values, best, axis=1) for values in joined]


@cache
def _thread_pool(process: int) -> ThreadPoolExecutor:
    """Start the threads of a process: they do not survive a fork."""
    del process
    return ThreadPoolExecutor(os.cpu_count())


def run_in_threads(task: Callable[..., None], arguments: Sequence[Any], threads: int) -> None:
    """Run a task on the caller and on threads - 1 others; the kernels release the GIL."""
    pool, queue = _thread_pool(os.getpid()), iter(arguments)

    def drain() -> None:
        for each in queue:
            task(*each)

    pending = [pool.submit(drain) for _ in range(min(threads, len(arguments)) - 1)]
    drain()
    for future in pending:
        if not future.cancel():  # one that has not begun has nothing left to do
            future.result()
