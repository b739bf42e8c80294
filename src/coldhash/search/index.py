"""CodeIndex: all item codes, in the layout of the scan and in the order in which ties are broken.

Of two items with the same score the one with the higher level comes first, then the more popular
one, then the one that comes first in the catalogue. Positions of the index are in this order, so
that ties need no comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from types import ModuleType
from typing import TypeAlias

import numpy as np

from coldhash.arrays import prefer_numpy
from coldhash.arrays.codes import n_words, unpack
from coldhash.arrays.threads import run_pieces
from coldhash.errors import DataError, SettingError
from coldhash.search import plain
from coldhash.search.plain import GROUP, TILE, stripe

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
CODE, REAL = NO_CODES.dtype, NO_REALS.dtype  # of packed queries and of real ones
ROW, DISTANCE, SCORE = NO_LISTS[1].dtype, NO_DISTANCES.dtype, NO_SCORES.dtype


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
        if queries.dtype != CODE or queries.shape[1:] != self._code_shape:
            raise DataError(f"{queries.shape} {queries.dtype} are no codes of {self.n_bits} bits")
        terms = self._cached_terms(popularity, True)
        return self._run(queries, terms, k, excluded, listed, within, threads)

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
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            queries = queries.astype(np.float32, copy=False)
            # float64 holds any sum of float32: it is finite if all are
            total = np.add.reduce(queries, axis=None, dtype=np.float64)
        if not math.isfinite(total):
            raise DataError("a query holds NaN or infinity")
        terms = self._cached_terms(popularity, False, additive)
        return self._run(queries, terms, k, excluded, listed, within, threads)

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
        starts = np.array([0, *accumulate(map(len, positions))], np.int64)
        return starts, np.concatenate([NO_LISTS[1], *positions])

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
    def _code_shape(self) -> tuple[int]:
        return (n_words(self.n_bits),)

    @cached_property
    def _cached_terms(self) -> Callable[..., np.ndarray]:
        return lru_cache(maxsize=16)(self.terms)

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
        terms: np.ndarray,
        k: int,
        excluded: RowLists | None,
        listed: RowLists | None,
        within: Subset | None,
        threads: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Call the kernel, and return what it finds: rows, and distances or scores."""
        n_queries, n_items, n_groups = len(queries), len(self.order), len(self.stripes)
        if k < 1 or threads < 1:
            raise SettingError(f"k={k}, threads={threads}", hint="at least 1")
        for lists in (excluded, listed):
            if lists is not None and len(lists[0]) != n_queries + 1:
                raise DataError(f"{len(lists[0]) - 1} lists for {n_queries} queries")
        allowed = self._everything if within is None else within
        if len(allowed) != n_groups:
            raise DataError(f"{allowed.shape} words are no subset of {n_items} items")
        if not queries.flags.carray:
            queries = queries.copy()  # or numba would compile the kernel anew
        if prefer_numpy("coldhash.search.kernels", n_items * (self.n_bits + n_queries)):
            search, threads = plain.search, 1
        else:
            search = _kernels().search
        parts, step = 1, n_queries
        if threads > 1:
            step = TILE * (n_queries // (4 * threads * TILE) + 1)  # uneven costs even out
            if n_queries < threads and listed is None:  # too few queries: split the items
                parts = max(1, min(threads, n_groups // SPLIT_GROUPS))
        by_code, k = queries.dtype == CODE, min(k, n_items)
        rows = np.empty((parts * n_queries, k), ROW)
        values = np.empty(rows.shape, DISTANCE if by_code else SCORE)
        arguments: tuple[np.ndarray, ...] = (
            *((queries, NO_REALS) if by_code else (NO_CODES, queries)),
            *((rows, values, NO_SCORES) if by_code else (rows, NO_DISTANCES, values)),
            *self._arrays,
            *(terms, allowed),
            *(excluded or NO_LISTS),
            *(listed or NO_LISTS),
        )
        if parts == 1 and step >= n_queries:
            search(*arguments, 0, n_queries, 0, 1)
            return rows, values
        some = [(at, min(at + step, n_queries)) for at in range(0, n_queries, step)]
        jobs = [(*ends, part, parts) for part in range(parts) for ends in some]
        for _ in run_pieces(lambda job: search(*arguments, *job), jobs, threads):
            pass
        if parts == 1:
            return rows, values
        rows, values = (np.hstack(np.split(each, parts)) for each in (rows, values))
        order = (self.rank[rows], values if by_code else -values, rows < 0)
        best = np.lexsort(order)[:, :k]
        return np.take_along_axis(rows, best, axis=1), np.take_along_axis(values, best, axis=1)

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that the kernels take."""
        return self.stripes, self.order, NO_LEVELS if self.levels is None else self.levels


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
