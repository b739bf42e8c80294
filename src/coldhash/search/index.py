"""CodeIndex: all item codes, in the layout of the scan and in the order in which ties are broken.

Of two items with the same score the one with the higher level comes first, then the more popular
one, then the one that comes first in the catalogue. Positions of the index are in this order, so
that ties need no comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from coldhash.arrays import load_kernels
from coldhash.arrays.codes import n_words, unpack
from coldhash.arrays.products import SparseRows
from coldhash.arrays.threads import run_pieces
from coldhash.errors import DataError, SettingError

GROUP = 64  # items per group: two 256-bit registers of byte lanes
TILE = 4  # queries summed together: their sums just fill the registers
ROUNDING = 15  # bits dropped from exact table entries in the rounded tables
WEIGHT_LIMIT = 127.5 * (1 << ROUNDING)  # heaviest half byte: 7 bits rounded, two fit a byte
MAX_BITS = 2048  # distances up to here are summed in 16 bits
N_LEVELS = 256
NOT_FINITE = "a query holds NaN or infinity"
SPLIT_GROUPS = 1 << 10  # a single query is split over threads in parts no smaller than this

Subset: TypeAlias = np.ndarray  # a bit for each position, in words of 64
Rows: TypeAlias = Sequence[int] | np.ndarray
Answer: TypeAlias = tuple[np.ndarray, np.ndarray]  # rows, and distances or scores
Lists: TypeAlias = tuple[np.ndarray, np.ndarray, bool]  # as for the kernel
How: TypeAlias = tuple[Callable[..., None], np.ndarray, int, Subset, Lists]  # kernel, terms, k ...
NO_LISTS = (np.zeros(0, np.int64), np.zeros(0, np.int32), False)
NO_LEVELS = np.zeros(0, np.uint8)
NO_TERMS = np.array([[0.0], [1.0]])
NO_CODES, NO_REALS = np.zeros((0, 0), np.uint64), np.zeros((0, 0), np.float32)
NO_DISTANCES, NO_SCORES = np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float64)
CODE, REAL = NO_CODES.dtype, NO_REALS.dtype  # of packed queries and of real ones
WHOLE, SCORE = NO_DISTANCES.dtype, NO_SCORES.dtype


class Search(NamedTuple):
    """Which items a search looks at, all by default, and how.

    Parameters
    ----------
    excluded, candidates
        Items to leave out, and the only ones to look at, for each query: queries x items, as
        `coldhash.arrays.products.SparseRows`, of which only the places of entries count.
    within
        The items to look at for all queries, from `CodeIndex.subset`; `candidates` go before it.
    threads
        How many threads may be used; it changes no result.
    by_code
        Whether `Recommender` items are to be ranked for the codes of people, not for the people.
    popularity
        How much levels count, 0 to 1.

    Examples
    --------
    >>> seen = SparseRows.of_lists([[0, 2]], n_columns=5)
    >>> Search(excluded=seen).excluded.indices.tolist()
    [0, 2]
    """

    excluded: SparseRows | None = None
    candidates: SparseRows | None = None
    within: Subset | None = None
    threads: int = 1
    by_code: bool = False
    popularity: float = 1.0


EVERYTHING = Search()


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
    ) -> Self:
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
        return cls(_stripe(packed[order], n_bits), order, rank, n_bits, levels, gains, steps)

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

    def hamming(self, queries: np.ndarray, k: int, search: Search = EVERYTHING) -> Answer:
        """Find the k nearest codes of packed queries, steps of levels included.

        Parameters
        ----------
        queries
            Packed codes.
        k
            How many to find.
        search
            Which items to look at.

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
        if queries.dtype != CODE or queries.shape[1:] != self._words:
            raise DataError(f"{queries.shape} {queries.dtype} are no codes of {self.n_bits} bits")
        return self._find(queries, self.terms(search.popularity, True), k, search)

    def weighted(
        self, queries: np.ndarray, k: int, search: Search = EVERYTHING, *, additive: bool = False
    ) -> Answer:
        """Find the k codes d with the largest q·d of real queries q, or score with levels.

        Weights are rounded to about 2⁻²² of the heaviest four bits; the rest is exact, ties
        included.

        Parameters
        ----------
        queries
            Real vectors, queries x bits.
        k, search
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
        if queries.dtype != REAL:
            with np.errstate(over="ignore", invalid="ignore"):  # it is refused by the scan
                queries = queries.astype(np.float32)
        terms = self.terms(search.popularity, False, additive)
        return self._find(queries, terms, k, search)

    @cached_property
    def terms(self) -> Callable[..., np.ndarray]:
        """What `compute_terms` returns, kept for the last few arguments."""
        return lru_cache(maxsize=16)(self.compute_terms)

    def compute_terms(self, popularity: float, by_code: bool, additive: bool = False) -> np.ndarray:
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
        table = np.ones((2, N_LEVELS))
        if by_code:
            table[0] = np.rint(popularity * (self.steps - self.steps[-1]))
        elif additive:
            table[0] = popularity * self.gains.astype(np.float64)
        else:
            power = popularity / 2
            table[0] = popularity * self.gains.astype(np.float64) / (0.5 + power / 2)
            # by the C library, which does not depend on the processor as numpy's powers do
            table[1] = [np.float32(math.pow(gain, power)) for gain in self.gains]
        return table

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
    def _words(self) -> tuple[int]:
        return (n_words(self.n_bits),)

    @cached_property
    def _everything(self) -> Subset:
        """All positions, without the padding of the last group."""
        words = np.full(len(self.stripes), ~np.uint64(0))
        if len(self) % GROUP:
            words[-1] >>= np.uint64(GROUP - len(self) % GROUP)
        return words

    def _find(self, queries: np.ndarray, terms: np.ndarray, k: int, search: Search) -> Answer:
        """Find the k best items of each query: rows, and distances or scores."""
        excluded, candidates, within, threads, _, _ = search
        if k < 1 or threads < 1:
            raise SettingError(f"k={k}, threads={threads}", hint="at least 1")
        lists = NO_LISTS
        if excluded is not None or candidates is not None:
            lists = self._positions(excluded, candidates, len(queries))
        if within is None:
            within = self._everything
        elif len(within) != len(self.stripes):
            raise DataError(f"{within.shape} words are no subset of {len(self)} items")
        n_operations = len(self.order) * (self.n_bits + len(queries))
        kernels = load_kernels("coldhash.search.kernels", n_operations)
        if kernels is None:
            return self._scan(queries, (_scan_by_numpy, terms, k, within, lists))
        how = (kernels.scan, terms, k, within, lists)
        if threads == 1 or (len(queries) <= TILE and len(self.stripes) < 2 * SPLIT_GROUPS):
            return self._scan(queries, how)
        return self._scan_in_parts(queries, how, threads)

    def _scan(self, queries: np.ndarray, how: How, part: int = 0, parts: int = 1) -> Answer:
        """Allocate an answer, and let the kernel fill it."""
        scan, terms, k, within, (starts, positions, listed) = how
        n_items, queries = len(self.order), np.ascontiguousarray(queries)
        shape = (len(queries), k if k < n_items else n_items)
        rows: np.ndarray = np.empty(shape, WHOLE)
        values: np.ndarray
        if queries.dtype == CODE:
            values = np.empty(shape, WHOLE)
            codes, reals, distances, scores = queries, NO_REALS, values, NO_SCORES
        else:
            values = np.empty(shape, SCORE)
            codes, reals, distances, scores = NO_CODES, queries, NO_DISTANCES, values
        scan(
            codes, reals, rows, distances, scores, self.stripes, self.order, self._levels,
            terms, within, starts, positions, listed, part, parts,
        )  # fmt: skip
        return rows, values

    def _scan_in_parts(self, queries: np.ndarray, how: How, threads: int) -> Answer:
        """Scan for a few queries at a time, or in parts of the items if they are too few."""
        scan, terms, k, within, (starts, positions, listed) = how
        n_queries, parts = len(queries), 1
        step = TILE * (n_queries // (4 * threads * TILE) + 1)  # uneven costs even out
        if n_queries < threads and not listed:
            parts = max(1, min(threads, len(self.stripes) // SPLIT_GROUPS))
            step = threads if parts > 1 else step

        def scan_some(job: tuple[int, int]) -> Answer:
            at, part = job
            some = (starts[at : at + step + 1], positions, listed)
            how = (scan, terms, k, within, some)
            return self._scan(queries[at : at + step], how, part, parts)

        jobs = [(at, part) for at in range(0, max(1, n_queries), step) for part in range(parts)]
        found = zip(*run_pieces(scan_some, jobs, threads), strict=True)
        rows, values = (np.concatenate(each, axis=int(parts > 1)) for each in found)
        if parts == 1:
            return rows, values
        keys = (self.rank[rows], values if queries.dtype == CODE else -values, rows < 0)
        best = np.lexsort(keys)[:, : min(k, len(self))]
        return np.take_along_axis(rows, best, axis=1), np.take_along_axis(values, best, axis=1)

    @cached_property
    def _levels(self) -> np.ndarray:
        return NO_LEVELS if self.levels is None else self.levels

    def _positions(
        self, excluded: SparseRows | None, candidates: SparseRows | None, n_queries: int
    ) -> Lists:
        """Return where the list of each query begins, all positions, and if only these count."""
        for rows in (excluded, candidates):
            if rows is not None and rows.shape != (n_queries, len(self)):
                raise DataError(f"lists of {rows.shape} for {n_queries} queries, {len(self)} items")
        rows = excluded if candidates is None else candidates
        if excluded is not None and candidates is not None:
            rows = candidates.select(~np.isin(candidates.places(), excluded.places()))
        assert rows is not None
        starts = rows.indptr.astype(np.int64, copy=False)
        return starts, self.rank.take(rows.indices), candidates is not None


def _check_table(name: str, table: np.ndarray | None, dtype: type, highest: float) -> None:
    """Raise an error if this is no table by level: from 0 to highest, not descending."""
    if table is None or table.dtype != dtype or table.shape != (N_LEVELS,):
        raise DataError(f"{name} are not {N_LEVELS} numbers of type {dtype.__name__}")
    if not (table[0] >= 0 and table[-1] <= highest and (table[:-1] <= table[1:]).all()):
        raise DataError(f"{name} are not between 0 and {highest}, or descend")


def _stripe(packed: np.ndarray, n_bits: int) -> np.ndarray:
    """Store packed codes, in tie order, as groups of 64, byte by byte."""
    n_bytes = -(-n_bits // 8)
    rows = np.ascontiguousarray(packed).astype("<u8", copy=False).view(np.uint8)[:, :n_bytes]
    rows = np.pad(rows, ((0, -len(packed) % GROUP), (0, 0)))
    return np.ascontiguousarray(rows.reshape(-1, GROUP, n_bytes).transpose(0, 2, 1))


def _scan_by_numpy(  # type: ignore[no-untyped-def]
    codes, reals, rows, distances, scores, stripes, order, levels, worth, allowed,
    starts, positions, listed, *_
) -> None:  # fmt: skip
    """Find the best items of queries, as `kernels.scan` does with the same arguments.

    It is for a process that asks only once, and computes all scores. The bits are the same.
    """
    n_items, n_bytes, by_code = len(order), stripes.shape[1], len(codes) > 0
    values, missing = (distances, -1) if by_code else (scores, -np.inf)
    if by_code:
        weights, units = _bits(codes.astype("<u8").view(np.uint8)[:, :n_bytes]), np.array(0.5)
    else:
        weights, units = _whole_weights(reals, 2 * n_bytes)
    items = _bits(stripes.transpose(0, 2, 1).reshape(-1, n_bytes)[:n_items])
    bases, gains = worth[:, levels if len(levels) else 0, None].reshape(2, -1)
    # whole numbers below 2^53, whose sums are exact in any order; a bit that differs takes 2
    costs = -gains * (bases + units * (weights @ items.T - (8 * n_bytes if by_code else 0)))
    rows[:], values[:] = -1, missing
    for query in range(len(rows)):
        usable = np.unpackbits(allowed.astype("<u8").view(np.uint8), bitorder="little")[:n_items]
        if listed:
            usable[:] = 0
        if len(starts):
            usable[positions[starts[query] : starts[query + 1]]] = listed
        at = np.flatnonzero(usable)
        best = at[np.argsort(costs[query, at], kind="stable")[: rows.shape[1]]]
        rows[query, : len(best)] = order[best]
        values[query, : len(best)] = costs[query, best] if by_code else -costs[query, best]


def _bits(as_bytes: np.ndarray) -> np.ndarray:
    """Return the bits of rows of bytes as +1 and -1."""
    return np.unpackbits(as_bytes, axis=1, bitorder="little") * 2.0 - 1.0


def _whole_weights(reals: np.ndarray, n_halves: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers for each bit of real queries, and the units of each query."""
    if not np.isfinite(reals).all():
        raise DataError(NOT_FINITE)
    values = np.zeros((len(reals), 4 * n_halves))
    values[:, : reals.shape[1]] = reals
    heaviest = np.abs(values).reshape(-1, n_halves, 4).sum(axis=2).max(axis=1, keepdims=True)
    units = np.where(heaviest > 0, heaviest / WEIGHT_LIMIT, 1.0)
    return np.copysign(np.floor(np.abs(values) / units + 0.5), values), units
