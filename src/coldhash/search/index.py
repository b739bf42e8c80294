"""CodeIndex: all item codes, in the layout of the scan and in the order in which ties are broken.

Of two items with the same score the one with the higher level comes first, then the more popular
one, then the one that comes first in the catalogue. Positions of the index are in this order, so
that ties need no comparison.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coldhash.arrays.codes import n_words, unpack
from coldhash.arrays.startup import prefer_numpy
from coldhash.errors import DataError, SettingError
from coldhash.search.plain import GROUP, TILE, hamming_distances, stripe, weighted_distances

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MAX_BITS = 2048  # distances up to here are summed in 16 bits
N_LEVELS = 256
SPLIT_GROUPS = 1 << 10  # a single query is split over threads in parts no smaller than this

RowLists: TypeAlias = tuple[np.ndarray, np.ndarray]  # starts and sorted positions, by query
Subset: TypeAlias = np.ndarray  # a bit for each position, in words of 64
Rows: TypeAlias = Sequence[int] | np.ndarray
NO_LISTS: RowLists = (np.zeros(0, np.int64), np.zeros(0, np.int32))
NO_LEVELS = np.zeros(0, np.uint8)
NO_TERMS = np.array([[0.0], [1.0]])
NO_CODES, NO_REALS = np.zeros((0, 0), np.uint64), np.zeros((0, 0), np.float32)
NO_DISTANCES, NO_SCORES = np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float64)


@dataclass(frozen=True, eq=False)
class CodeIndex:
    """Codes of items for exact search: n_bits / 8 bytes an item, and the order.

    Items may have a level, a byte beside the code: what an item is worth to everybody. With it,
    scores are not q·d but  g^a (2λ/(1+a) g + q·d)  with the gain g of the level, λ the popularity
    that is asked for and a = λ/2, and distances grow by λ times the steps that the level is below
    the highest.

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
    levels
        The level of each position (uint8), descending; None if items have none.
    gains
        The gain of each of 256 levels (float32), not descending.
    steps
        The number of steps of each of 256 levels (int32), not descending.

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
    levels: np.ndarray | None = None
    gains: np.ndarray | None = None
    steps: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.levels is not None:
            _check_table("gains", self.gains, np.float32, float(np.finfo(np.float32).max))
            _check_table("steps", self.steps, np.int32, MAX_BITS)

    @classmethod
    def of(
        cls,
        packed: np.ndarray,
        n_bits: int,
        popularity: np.ndarray,
        levels: np.ndarray | None = None,
        gains: np.ndarray | None = None,
        steps: np.ndarray | None = None,
    ) -> CodeIndex:
        """Build an index of packed codes.

        Parameters
        ----------
        packed
            The codes, as `pack` returns them.
        n_bits
            Length of codes.
        popularity
            A number for each code; of equal scores the larger one comes first.
        levels
            The level of each code (uint8), if they have one.
        gains, steps
            What levels mean, as for the class.

        Returns
        -------
        CodeIndex
            The index.

        Raises
        ------
        SettingError, DataError
            `n_bits` is out of range, the shape of the codes or levels does not fit, or gains or
            steps are not what they should be.
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
        if levels is not None:
            if levels.dtype != np.uint8 or levels.shape != order.shape:
                raise DataError(f"{levels.shape} {levels.dtype} are not {len(order)} levels")
            order = order[np.argsort(255 - levels[order], kind="stable")]
            levels = levels[order]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return cls(stripe(packed[order], n_bits), order, rank, n_bits, levels, gains, steps)

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
        popularity: float = 1.0,
        within: Subset | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k nearest codes of packed queries, steps of levels included.

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
        popularity
            How much levels count, 0 to 1.
        within
            The items to look at for all queries, from `subset`; `listed` goes before it.

        Returns
        -------
        rows, distances
            Queries x k, the nearest first; -1 where fewer exist.

        Raises
        ------
        DataError, SettingError
            The queries or lists do not fit, `k` or `threads` is below 1, or `popularity` is not
            between 0 and 1.
        """
        if queries.dtype != np.uint64 or queries.shape[1:] != (n_words(self.n_bits),):
            raise DataError(f"{queries.shape} {queries.dtype} are no codes of {self.n_bits} bits")
        codes = np.ascontiguousarray(queries)
        terms = self.terms(popularity, by_code=True)
        return self._run(codes, k, excluded, listed, within, threads, terms)

    def weighted(
        self,
        queries: np.ndarray,
        k: int,
        excluded: RowLists | None = None,
        listed: RowLists | None = None,
        threads: int = 1,
        popularity: float = 1.0,
        additive: bool = False,
        within: Subset | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k codes d with the largest q·d of real queries q, or score with levels.

        Weights are rounded to about 2⁻²² of the heaviest four bits; the rest is exact, ties
        included.

        Parameters
        ----------
        queries
            Real vectors, queries x bits.
        k, excluded, listed, threads, popularity, within
            As for `hamming`.
        additive
            With levels, find the largest λ g + q·d instead.

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
        if popularity == 1 and not additive:
            terms = self._usual_terms
        else:
            terms = self.terms(popularity, by_code=False, additive=additive)
        return self._run(queries, k, excluded, listed, within, threads, terms)

    def terms(self, popularity: float, by_code: bool, additive: bool = False) -> np.ndarray:
        """Return what is added for each level, and then multiplied by.

        Parameters
        ----------
        popularity
            How much levels count, 0 to 1.
        by_code
            Whether the terms are those of minus a Hamming distance, or of q·d.
        additive
            Whether those of q·d are λ g and 1, or 2λ/(1+a) g and g^a.

        Returns
        -------
        array
            Bases and gains (2 x levels); of a single level if items have none.

        Raises
        ------
        SettingError
            `popularity` is not between 0 and 1.
        """
        if not 0 <= popularity <= 1:
            raise SettingError(f"popularity={popularity}", hint="0 to 1")
        if self.gains is None or self.steps is None:
            return NO_TERMS
        table = np.empty((2, N_LEVELS))
        if by_code:
            table[0], table[1] = np.rint(popularity * (self.steps - self.steps[-1])), 1
        elif additive:
            table[0], table[1] = popularity * self.gains.astype(np.float64), 1
        else:
            power = popularity / 2
            table[0] = popularity * self.gains.astype(np.float64) / (0.5 + power / 2)
            if popularity == 1:
                table[1] = np.sqrt(self.gains)
            else:  # by the C library, which does not depend on the processor as numpy's powers do
                table[1] = [np.float32(math.pow(gain, power)) for gain in self.gains]
        return table

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
        positions = [_drop_repeats(np.sort(self.rank[each])) for each in rows]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in positions])])
        flat = np.concatenate(positions) if positions else np.zeros(0, np.int32)
        return starts.astype(np.int64), flat.astype(np.int32)

    def subset(self, mask: np.ndarray) -> Subset:
        """Convert a mask of rows to the form that `hamming` and `weighted` take.

        Parameters
        ----------
        mask
            Whether each row counts.

        Returns
        -------
        array of uint64
            A bit for each position.

        Raises
        ------
        DataError
            The mask is not as long as the index.
        """
        if mask.shape != self.order.shape:
            raise DataError(f"a mask of {len(mask)} for {len(self)} items")
        bits = np.zeros(len(self.stripes) * GROUP, dtype=bool)
        bits[self.rank[np.flatnonzero(mask)]] = True
        return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64, copy=False)

    @cached_property
    def _usual_terms(self) -> np.ndarray:
        return self.terms(1.0, by_code=False)

    @cached_property
    def _everything(self) -> Subset:
        """All positions, without the padding of the last group."""
        words = np.full(len(self.stripes), ~np.uint64(0))
        if len(self) % GROUP:
            words[-1] >>= np.uint64(GROUP - len(self) % GROUP)
        return words

    def _run(
        self,
        queries: np.ndarray,
        k: int,
        excluded: RowLists | None,
        listed: RowLists | None,
        within: Subset | None,
        threads: int,
        terms: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Call the kernel, and return what it finds: rows, and distances or scores."""
        n_queries = len(queries)
        _check(k, threads, n_queries, excluded, listed)
        if within is not None and within.shape != self._everything.shape:
            raise DataError(f"{within.shape} words are no subset of {len(self)} items")
        if not queries.flags.writeable:  # or numba would compile the kernel anew
            queries = queries.copy()
        shape = (n_queries, min(k, len(self.order)))
        by_code = queries.dtype == np.uint64
        dtype = np.int32 if by_code else np.float64  # distances, or scores
        skip, skipped = excluded or NO_LISTS
        only, chosen = listed or NO_LISTS
        allowed = self._everything if within is None else within
        if 0 in shape:
            return np.empty(shape, np.int32), np.empty(shape, dtype)
        if prefer_numpy(n_queries * self.stripes.size * 8):
            rows, values = np.empty(shape, np.int32), np.empty(shape, dtype)
            for query in range(n_queries):
                usable = _unpack(allowed)[: len(self)]
                if listed is not None:
                    usable[:] = False
                    usable[chosen[only[query] : only[query + 1]]] = True
                if excluded is not None:
                    usable[skipped[skip[query] : skip[query + 1]]] = False
                found = self._scan(queries[query], terms, shape[1], np.flatnonzero(usable))
                rows[query], values[query] = found
            return rows, values
        search, items = _kernels().search, (*self._arrays, terms, allowed)

        def run(queries: np.ndarray, rows: np.ndarray, values: np.ndarray, *rest: Any) -> None:
            if by_code:
                search(queries, NO_REALS, rows, NO_SCORES, values, *items, *rest)
            else:
                search(NO_CODES, queries, rows, values, NO_DISTANCES, *items, *rest)

        if threads == 1:
            rows, values = np.empty(shape, np.int32), np.empty(shape, dtype)
            run(queries, rows, values, 0, 1, skip, skipped, only, chosen)
            return rows, values
        parts, step = 1, TILE * -(-n_queries // (4 * threads * TILE))  # uneven costs even out
        if n_queries < threads and listed is None:  # too few queries: split the items
            parts = max(1, min(threads, len(self.stripes) // SPLIT_GROUPS))
        rows, values = np.empty((parts, *shape), np.int32), np.empty((parts, *shape), dtype)

        def scan(part: int, begin: int) -> None:
            some, ends = slice(begin, begin + step), slice(begin, begin + step + 1)
            found = (queries[some], rows[part, some], values[part, some])
            run(*found, part, parts, skip[ends], skipped, only[ends], chosen)

        begins = range(0, n_queries, step)
        run_in_threads(scan, [(part, begin) for part in range(parts) for begin in begins], threads)
        return (rows[0], values[0]) if parts == 1 else self._merge(rows, values)

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that the kernels take."""
        return self.stripes, self.order, NO_LEVELS if self.levels is None else self.levels

    def _scan(
        self, query: np.ndarray, terms: np.ndarray, k: int, positions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what the kernels find for one query among some positions, by NumPy."""
        n_items = len(self.order)
        bases, gains = terms[:, 0 if self.levels is None else self.levels]
        if query.dtype == np.uint64:
            missing, costs = -1.0, hamming_distances(query, self.stripes)[:n_items] - bases
        else:
            distances, unit, half = weighted_distances(query, self.stripes)
            missing, costs = -np.inf, -gains * (bases + 2 * unit * (half - distances[:n_items]))
        best = positions[np.argsort(costs[positions], kind="stable")[:k]]
        rows, values = np.full(k, -1, np.int32), np.full(k, missing, costs.dtype)
        rows[: len(best)] = self.order[best]
        values[: len(best)] = costs[best] if query.dtype == np.uint64 else -costs[best]
        return rows, values

    def _merge(self, rows: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take the best k of what several threads have found: parts x queries x k."""
        k = rows.shape[2]
        rows, values = (np.hstack(found) for found in (list(rows), list(values)))
        costs = -values if values.dtype == np.float64 else values
        best = np.lexsort((self.rank[rows], costs, rows < 0))[:, :k]
        return np.take_along_axis(rows, best, axis=1), np.take_along_axis(values, best, axis=1)


def _check(
    k: int, threads: int, n_queries: int, excluded: RowLists | None, listed: RowLists | None
) -> None:
    """Raise an error for what would make the kernels read past the end of an array."""
    for name, value in (("k", k), ("threads", threads)):
        if value < 1:
            raise SettingError(f"{name}={value}", hint="at least 1")
    for lists in (excluded, listed):
        if lists is not None and len(lists[0]) != n_queries + 1:
            raise DataError(f"{len(lists[0]) - 1} lists for {n_queries} queries")


def _unpack(subset: Subset) -> np.ndarray:
    """Return a mask of positions."""
    return np.unpackbits(subset.astype("<u8").view(np.uint8), bitorder="little").astype(bool)


def _drop_repeats(positions: np.ndarray) -> np.ndarray:
    """Return sorted positions without repeats; `np.unique` takes twice as long for few."""
    repeated = positions[1:] == positions[:-1]
    return positions[np.flatnonzero(np.append(True, ~repeated))] if repeated.any() else positions


def _check_table(name: str, table: np.ndarray | None, dtype: type, highest: float) -> None:
    """Raise an error if this is no table by level: from 0 to highest, not descending."""
    if table is None or table.dtype != dtype or table.shape != (N_LEVELS,):
        raise DataError(f"{name} are not {N_LEVELS} numbers of type {dtype.__name__}")
    if not (table[0] >= 0 and table[-1] <= highest and (table[:-1] <= table[1:]).all()):
        raise DataError(f"{name} are not between 0 and {highest}, or descend")


@cache
def _kernels() -> ModuleType:
    """Import the compiled functions, and numba with them, when they are first called."""
    from coldhash.search import kernels

    return kernels


@cache
def _thread_pool(process: int) -> ThreadPoolExecutor:
    """Start the threads of a process: they do not survive a fork."""
    del process
    from concurrent.futures import ThreadPoolExecutor

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
