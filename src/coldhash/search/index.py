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
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from coldhash.arrays import prefer_numpy
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
NO_LISTS = (np.zeros(0, np.int64), np.zeros(0, np.int32))
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

    def hamming(
        self, queries: np.ndarray, k: int, search: Search = EVERYTHING
    ) -> tuple[np.ndarray, np.ndarray]:
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
        if queries.dtype != CODE or queries.ndim != 2 or queries.shape[1] != self._n_words:
            raise DataError(f"{queries.shape} {queries.dtype} are no codes of {self.n_bits} bits")
        return self._find(queries, self._cached_terms(search.popularity, True), k, search)

    def weighted(
        self, queries: np.ndarray, k: int, search: Search = EVERYTHING, *, additive: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
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
        if queries.ndim != 2 or queries.shape[1] != self.n_bits:
            raise DataError(f"{queries.shape} are no queries of {self.n_bits} numbers")
        if queries.dtype != REAL:
            with np.errstate(over="ignore", invalid="ignore"):  # it is refused by the scan
                queries = queries.astype(np.float32)
        terms = self._cached_terms(search.popularity, False, additive)
        try:
            return self._find(queries, terms, k, search)
        except FloatingPointError as error:
            raise DataError(str(error)) from None

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
    def _n_words(self) -> int:
        return n_words(self.n_bits)

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

    def _find(
        self, queries: np.ndarray, terms: np.ndarray, k: int, search: Search
    ) -> tuple[np.ndarray, np.ndarray]:
        """Call the kernel, and return what it finds: rows, and distances or scores."""
        within, threads = search.within, search.threads
        n_queries, n_items, by_code = len(queries), len(self.order), queries.dtype == CODE
        if k < 1 or threads < 1:
            raise SettingError(f"k={k}, threads={threads}", hint="at least 1")
        skip, skipped = only, chosen = NO_LISTS
        if search.excluded is not None:
            skip, skipped = self._positions(search.excluded, n_queries)
        if search.candidates is not None:
            only, chosen = self._positions(search.candidates, n_queries)
        if within is None:
            within = self._everything
        elif len(within) != len(self.stripes):
            raise DataError(f"{within.shape} words are no subset of {n_items} items")
        if not queries.flags.carray:
            queries = queries.copy()  # or numba would compile the kernel anew
        if prefer_numpy("coldhash.search.kernels", n_items * (self.n_bits + n_queries)):
            scan, threads = _scan_by_numpy, 1
        else:
            scan = _kernels().search
        parts = 1
        if n_queries < threads and search.candidates is None:  # too few queries: split the items
            parts = max(1, min(threads, len(self.stripes) // SPLIT_GROUPS))
        shape = (parts * n_queries, k if k < n_items else n_items)
        rows, values = np.empty(shape, WHOLE), np.empty(shape, WHOLE if by_code else SCORE)
        codes, reals, distances, scores = queries, NO_REALS, values, NO_SCORES
        if not by_code:
            codes, reals, distances, scores = NO_CODES, queries, NO_DISTANCES, values
        levels = NO_LEVELS if self.levels is None else self.levels
        arguments = (
            codes, reals, rows, distances, scores, self.stripes, self.order, levels, terms, within,
            skip, skipped, only, chosen, 0, n_queries, 0, 1,
        )  # fmt: skip
        if threads == 1 or (parts == 1 and n_queries <= TILE):
            scan(*arguments)
        else:
            _run(scan, arguments[:-4], n_queries, parts, threads)
        if parts == 1:
            return rows, values
        rows, values = (np.hstack(np.split(each, parts)) for each in (rows, values))
        keys = (self.rank[rows], values if by_code else -values, rows < 0)
        best = np.lexsort(keys)[:, : shape[1]]
        return np.take_along_axis(rows, best, axis=1), np.take_along_axis(values, best, axis=1)

    def _positions(self, rows: SparseRows, n_queries: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the list of each query begins, and the positions of all lists."""
        if rows.shape != (n_queries, len(self.order)):
            raise DataError(f"lists of {rows.shape} for {n_queries} queries, {len(self)} items")
        return rows.indptr.astype(np.int64, copy=False), self.rank.take(rows.indices)


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


def _run(
    scan: Callable[..., None],
    arguments: tuple[object, ...],
    n_queries: int,
    parts: int,
    threads: int,
) -> None:
    """Call the kernel for a few queries and a part of the items at a time, on several threads."""
    step = TILE * (n_queries // (4 * threads * TILE) + 1)  # uneven costs even out
    some = [(at, min(at + step, n_queries)) for at in range(0, n_queries, step)]
    jobs = [(*ends, part, parts) for part in range(parts) for ends in some]
    for _ in run_pieces(lambda job: scan(*arguments, *job), jobs, threads):
        pass


def _stripe(packed: np.ndarray, n_bits: int) -> np.ndarray:
    """Store packed codes, in tie order, as groups of 64, byte by byte."""
    n_bytes = -(-n_bits // 8)
    rows = np.ascontiguousarray(packed).astype("<u8", copy=False).view(np.uint8)[:, :n_bytes]
    rows = np.pad(rows, ((0, -len(packed) % GROUP), (0, 0)))
    return np.ascontiguousarray(rows.reshape(-1, GROUP, n_bytes).transpose(0, 2, 1))


def _scan_by_numpy(*arguments: Any) -> None:
    """Find the best items of queries, as `kernels.search` does with the same arguments.

    It is for a process that asks only once, and computes all scores. The bits are the same.
    """
    codes, reals, rows, distances, scores, stripes, order, levels, worth, allowed, *rest = arguments
    skip, skipped, only, chosen, *_ = rest
    n_items, by_code = len(order), len(codes) > 0
    weights, units = _code_weights(codes, stripes) if by_code else _real_weights(reals, stripes)
    as_bytes = stripes.transpose(0, 2, 1).reshape(-1, stripes.shape[1])[:n_items]
    bits = np.unpackbits(as_bytes, axis=1, bitorder="little").astype(np.float64)
    # whole numbers below 2^53, whose sums are exact in any order
    sums = np.maximum(weights, 0).sum(axis=1, keepdims=True) - weights @ bits.T
    bases, gains = worth[:, levels if len(levels) else 0, None].reshape(2, -1)
    halves = 0.0 if by_code else np.abs(weights).sum(axis=1, keepdims=True) / 2
    costs = -gains * (bases + 2 * units * (halves - sums))
    values, missing = (distances, -1) if by_code else (scores, -np.inf)
    rows[:], values[:] = -1, missing
    for query in range(len(rows)):
        usable = np.unpackbits(allowed.astype("<u8").view(np.uint8), bitorder="little")[:n_items]
        if len(only):
            usable[:] = 0
            usable[chosen[only[query] : only[query + 1]]] = 1
        if len(skip):
            usable[skipped[skip[query] : skip[query + 1]]] = 0
        positions = np.flatnonzero(usable)
        best = positions[np.argsort(costs[query, positions], kind="stable")[: rows.shape[1]]]
        rows[query, : len(best)] = order[best]
        values[query, : len(best)] = costs[query, best] if by_code else -costs[query, best]


def _code_weights(codes: np.ndarray, stripes: np.ndarray) -> tuple[np.ndarray, float]:
    """Return 1 or -1 for each bit of packed queries, and the unit: two of these are a bit."""
    as_bytes = codes.astype("<u8").view(np.uint8)[:, : stripes.shape[1]]
    return np.unpackbits(as_bytes, axis=1, bitorder="little") * 2.0 - 1.0, 0.5


def _real_weights(reals: np.ndarray, stripes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers for each bit of real queries, with their signs, and the units."""
    missing = 8 * stripes.shape[1] - reals.shape[1]
    if not np.isfinite(reals).all():
        raise FloatingPointError(NOT_FINITE)
    values = np.pad(reals.astype(np.float64), ((0, 0), (0, missing)))
    first, second, third, fourth = (np.abs(values[:, bit::4]) for bit in range(4))
    heaviest = (first + second + third + fourth).max(axis=1, keepdims=True)
    units = np.where(heaviest > 0, heaviest / WEIGHT_LIMIT, 1.0)
    return np.copysign(np.floor(np.abs(values) / units + 0.5), values), units
