"""CodeIndex: all item codes, laid out for the scan and in the order in which ties are broken.

Of two items with the same score the more popular one comes first, then the one that comes first in
the catalogue. Positions of the index are in this order, so that ties need no comparison.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from coldhash.codes import n_words, unpack
from coldhash.errors import DataError, SettingError
from coldhash.search.kernels import hamming_kernel, weighted_kernel
from coldhash.search.lanes import GROUP, TILE

NARROW_BITS = 254  # Hamming distances up to here are summed in bytes
SPLIT_GROUPS = 1 << 10  # a lone query is split over threads in ranges no smaller than this

Lists = tuple[np.ndarray, np.ndarray]  # starts and sorted positions, query after query
NO_LISTS: Lists = (np.zeros(0, np.int64), np.zeros(0, np.int32))


@dataclass(frozen=True, eq=False)
class CodeIndex:
    """Codes by position: n_bits / 8 bytes an item, and the order."""

    stripes: np.ndarray  # groups x bytes x 64, uint8
    order: np.ndarray  # position -> row, int32
    rank: np.ndarray  # row -> position, int32
    n_bits: int

    @classmethod
    def of(cls, packed: np.ndarray, n_bits: int, popularity: np.ndarray) -> CodeIndex:
        """Lay packed codes out, the popular ones first."""
        order = np.argsort(-popularity, kind="stable").astype(np.int32)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return cls(stripe(packed[order], n_bits), order, rank, n_bits)

    def __len__(self) -> int:
        return len(self.order)

    def packed(self, items: Any = slice(None)) -> np.ndarray:
        """Give the packed codes of some rows."""
        at = np.asarray(self.rank[items], dtype=np.int64)
        as_bytes = np.zeros((len(at), n_words(self.n_bits) * 8), dtype=np.uint8)
        as_bytes[:, : self.stripes.shape[1]] = self.stripes[at // GROUP, :, at % GROUP]
        return as_bytes.view("<u8").astype(np.uint64, copy=False)

    def rows(self, items: Any = slice(None)) -> np.ndarray:
        """Give the codes of some rows as +1 and -1, int8."""
        return unpack(self.packed(items), self.n_bits)

    def hamming(
        self,
        queries: np.ndarray,
        k: int,
        excluded: Lists | None = None,
        listed: Lists | None = None,
        threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k nearest codes of packed queries: rows (-1 where fewer exist), distances."""
        n_bytes = self.stripes.shape[1]
        codes = np.ascontiguousarray(queries).view(np.uint8)
        if codes.shape[1] != n_bytes:
            codes = np.ascontiguousarray(codes[:, :n_bytes])
        kind = np.uint8 if 8 * n_bytes <= NARROW_BITS else np.uint16
        found = self._run(hamming_kernel, codes, k, excluded, listed, threads, kind, ())
        return self._as_rows(found[0]), found[1]

    def weighted(
        self,
        queries: np.ndarray,
        k: int,
        excluded: Lists | None = None,
        listed: Lists | None = None,
        threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k codes d with the largest q·d: rows (-1 where fewer exist), scores.

        Weights are rounded to about 2⁻²² of the heaviest four bits; the rest is exact, ties
        included.
        """
        if not np.isfinite(queries).all():
            raise DataError("a query holds NaN or infinity")
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        more = (np.float64,)
        found = self._run(weighted_kernel, queries, k, excluded, listed, threads, np.uint16, more)
        return self._as_rows(found[0]), found[2]

    def lists(self, lists: Sequence[Any]) -> Lists:
        """Turn lists of rows, one a query, into what the scan wants."""
        positions = [np.unique(self.rank[np.asarray(rows, dtype=np.int64)]) for rows in lists]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in positions])])
        flat = np.concatenate(positions) if positions else np.zeros(0, np.int32)
        return starts.astype(np.int64), flat.astype(np.int32)

    def _as_rows(self, positions: np.ndarray) -> np.ndarray:
        return np.where(positions < 0, -1, self.order[np.maximum(positions, 0)])

    def _run(
        self,
        kernel: Callable[..., None],
        queries: np.ndarray,
        k: int,
        excluded: Lists | None,
        listed: Lists | None,
        threads: int,
        kind: type[np.generic],
        more: tuple[type[np.generic], ...],
    ) -> list[np.ndarray]:
        """Call the kernel once, or for chunks of queries, or for ranges of items of a few queries.

        Gives the kernel's outputs: positions, distances, and those of the types in `more`.
        """
        if k < 1:
            raise SettingError(f"k={k}", hint="at least 1")
        n_queries, n_groups, n_items = len(queries), len(self.stripes), len(self.order)
        tile = 1 if n_queries == 1 else TILE if kind is np.uint8 else TILE // 2
        skip, skipped = excluded or NO_LISTS
        only, chosen = listed or NO_LISTS
        types = (np.int32, np.int32, *more)
        if threads == 1:
            found = [np.empty((n_queries, min(k, n_items)), dtype) for dtype in types]
            sums = np.empty((tile, GROUP), kind)
            filters = (skip, skipped, only, chosen)
            kernel(self.stripes, n_items, 0, n_groups, *filters, queries, sums, *found)
            return found
        parts, step = 1, max(tile * -(-n_queries // (4 * threads * tile)), 1)
        if n_queries < threads and not len(only) and n_groups >= 2 * SPLIT_GROUPS:
            parts, step = min(threads, n_groups // SPLIT_GROUPS), max(n_queries, 1)
        out = [np.empty((parts, n_queries, min(k, n_items)), dtype) for dtype in types]

        def task(part: int, begin: int) -> None:
            rows, ends = slice(begin, begin + step), slice(begin, begin + step + 1)
            edges = n_groups * part // parts, n_groups * (part + 1) // parts
            sums = np.empty((tile, GROUP), kind)
            filters = (skip[ends], skipped, only[ends], chosen)
            mine = [values[part, rows] for values in out]
            kernel(self.stripes, n_items, *edges, *filters, queries[rows], sums, *mine)

        share(task, list(itertools.product(range(parts), range(0, n_queries, step))), threads)
        return [values[0] for values in out] if parts == 1 else _merged(out)


def stripe(packed: np.ndarray, n_bits: int) -> np.ndarray:
    """Turn packed codes, in tie order, into groups of 64, byte by byte."""
    n_items, n_bytes = len(packed), -(-n_bits // 8)
    stripes = np.zeros((-(-n_items // GROUP), n_bytes, GROUP), dtype=np.uint8)
    rows = np.ascontiguousarray(packed).astype("<u8", copy=False).view(np.uint8)[:, :n_bytes]
    full = n_items // GROUP
    stripes[:full] = rows[: full * GROUP].reshape(full, GROUP, n_bytes).transpose(0, 2, 1)
    if n_items % GROUP:
        stripes[full, :, : n_items % GROUP] = rows[full * GROUP :].T
    return stripes


def _merged(out: list[np.ndarray]) -> list[np.ndarray]:
    """Take the best k of all ranges; they come in tie order, which a stable sort keeps."""
    k = out[0].shape[2]
    joined = [np.concatenate(list(values), axis=1) for values in out]
    ranks = np.where(joined[0] < 0, np.iinfo(np.int32).max, joined[1])
    best = np.argsort(ranks, axis=1, kind="stable")[:, :k]
    return [np.take_along_axis(values, best, axis=1) for values in joined]


_workers: ThreadPoolExecutor | None = None


def _forget_workers() -> None:
    global _workers
    _workers = None


os.register_at_fork(after_in_child=_forget_workers)  # threads do not survive a fork


def share(task: Callable[..., None], arguments: Sequence[Any], threads: int) -> None:
    """Run a task on the caller and on threads - 1 others; the kernels release the GIL."""
    global _workers
    if _workers is None:
        _workers = ThreadPoolExecutor(os.cpu_count())
    queue = iter(arguments)

    def drain() -> None:
        for each in queue:
            task(*each)

    pending = [_workers.submit(drain) for _ in range(min(threads, len(arguments)) - 1)]
    drain()
    for future in pending:
        future.result()
