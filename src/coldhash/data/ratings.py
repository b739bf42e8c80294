"""Ratings: a frozen users x items matrix with ids on both sides.

Every check of ratings lives here, once: what can be built is right, and nobody checks again.
A stored zero is a rating; what is not stored is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array, csr_array, issparse

from coldhash.data.duplicates import Duplicates, merged, rated_twice
from coldhash.data.ids import Ids, as_texts
from coldhash.errors import DataError, SettingError

HUGE = 1e6  # no rating scale reaches this; times and ids do


@dataclass(frozen=True, eq=False)
class Ratings:
    """Who rated what, how: `matrix` is users x items, rows sorted by item, float32.

    Examples
    --------
    >>> ratings = Ratings.from_columns(["ann", "ann", "bob"], ["x", "y", "x"], [5, 3, 0])
    >>> len(ratings), ratings.scale, ratings.per_user.tolist()
    (3, (0.0, 5.0), [2, 1])
    >>> ratings.matrix.toarray().tolist()  # the 0 of bob is a rating
    [[5.0, 3.0], [0.0, 0.0]]
    """

    matrix: csr_array
    users: Ids
    items: Ids
    times: np.ndarray | None = None  # beside matrix.data
    declared_scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check_shape(self.matrix, self.users, self.items)
        _check_form(self.matrix, self.times)
        bad = _first_bad(self.matrix.data, self.declared_scale)
        if bad is not None:
            at, why, hint = bad
            user = int(np.searchsorted(self.matrix.indptr, at, side="right") - 1)
            item = int(self.matrix.indices[at])
            raise DataError(
                f"the rating of item {self.items[item]!r} by user {self.users[user]!r} {why}",
                hint=hint,
            )
        for array in (self.matrix.data, self.matrix.indices, self.matrix.indptr, self.times):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def from_columns(
        cls,
        user_ids: Iterable[Any],
        item_ids: Iterable[Any],
        values: Any,
        *,
        times: np.ndarray | None = None,
        users: Ids | None = None,
        items: Ids | None = None,
        scale: tuple[float, float] | None = None,
        duplicates: Duplicates = "error",
        where: Callable[[int], str] = "row {}".format,
    ) -> Ratings:
        """Build from three columns. Ids not in `users` or `items` come after those.

        `duplicates` says what a pair that is there more than once counts as; its time is the
        last one's. `where` names a row in errors, e.g. "ratings.csv, line 17".
        """
        if duplicates not in get_args(Duplicates):
            raise SettingError(
                f"duplicates={duplicates!r} is not a rule",
                hint=f"one of {', '.join(get_args(Duplicates))}",
            )
        users, user_rows = _number(user_ids, users, "user", where)
        items, item_rows = _number(item_ids, items, "item", where)
        values = checked_ratings(values, scale, where)
        lengths = [len(x) for x in (user_rows, item_rows, values, times) if x is not None]
        if len(set(lengths)) > 1:
            raise DataError(f"columns of different lengths: {', '.join(map(str, lengths))}")
        shape = (len(users), len(items))
        matrix = _csr_of_positions(user_rows, item_rows, shape)
        if matrix.nnz < len(values):
            if duplicates == "error":
                raise rated_twice(user_rows, item_rows, users, items, where)
            keep, values = merged(user_rows, item_rows, values, duplicates)
            user_rows, item_rows = user_rows[keep], item_rows[keep]
            times = None if times is None else times[keep]
            matrix = _csr_of_positions(user_rows, item_rows, shape)
        body = csr_array((values[matrix.data], matrix.indices, matrix.indptr), shape=shape)
        return cls(body, users, items, None if times is None else times[matrix.data], scale)

    @classmethod
    def from_matrix(
        cls,
        matrix: Any,
        users: Iterable[Any] | None = None,
        items: Iterable[Any] | None = None,
        *,
        scale: tuple[float, float] | None = None,
    ) -> Ratings:
        """Build from a scipy sparse users x items matrix; ids default to row and column numbers."""
        if not issparse(matrix):
            raise DataError(
                f"a {type(matrix).__name__} is not a sparse matrix",
                hint="scipy.sparse.csr_array(matrix): what is not stored is unknown",
            )
        triples = matrix.tocoo()
        users = Ids.of(np.arange(matrix.shape[0]) if users is None else users, "user")
        items = Ids.of(np.arange(matrix.shape[1]) if items is None else items, "item")
        _check_shape(matrix, users, items)
        # keep the positions as they are: the rows of the matrix are the rows of the ids
        positions = _csr_of_positions(triples.row, triples.col, matrix.shape)
        if positions.nnz < triples.nnz:
            raise DataError("the matrix stores an entry twice", hint="matrix.sum_duplicates()")
        values = checked_ratings(
            triples.data,
            scale,
            lambda at: f"user {users[triples.row[at]]!r}, item {items[triples.col[at]]!r}",
        )
        body = csr_array(
            (values[positions.data], positions.indices, positions.indptr), shape=matrix.shape
        )
        return cls(body, users, items, None, scale)

    def __len__(self) -> int:
        return int(self.matrix.nnz)

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Lowest and highest rating: as declared, or else as seen in these very ratings."""
        if self.declared_scale is not None:
            return self.declared_scale
        if not len(self):
            return (0.0, 1.0)
        return float(self.matrix.data.min()), float(self.matrix.data.max())

    @property
    def sparsity(self) -> float:
        """The share of unknown entries."""
        cells = len(self.users) * len(self.items)
        return 1.0 - len(self) / cells if cells else 1.0

    @cached_property
    def per_user(self) -> np.ndarray:
        """How many ratings each user gave."""
        return np.diff(self.matrix.indptr)

    @cached_property
    def per_item(self) -> np.ndarray:
        """How many ratings each item got."""
        return np.bincount(self.matrix.indices, minlength=len(self.items))

    def of_users(self, rows: np.ndarray) -> Ratings:
        """Only these users, in this order; the items stay."""
        entries = entries_of_rows(self.matrix.indptr, rows)
        indptr = np.concatenate([[0], np.cumsum(self.per_user[rows])])
        return self._part(entries, self.matrix.indices[entries], indptr, self.users.take(rows))

    def of_items(self, rows: np.ndarray) -> Ratings:
        """Only these items, in this order; the users stay."""
        new_row = np.full(len(self.items), -1, dtype=self.matrix.indices.dtype)
        new_row[rows] = np.arange(len(rows))
        entries = np.flatnonzero(new_row[self.matrix.indices] >= 0)
        user_rows = np.repeat(np.arange(len(self.users)), self.per_user)[entries]
        item_rows = new_row[self.matrix.indices[entries]]
        order = np.lexsort((item_rows, user_rows))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(user_rows, minlength=len(self.users)))])
        items = self.items.take(rows)
        return self._part(entries[order], item_rows[order], indptr, self.users, items)

    def where(self, keep: np.ndarray) -> Ratings:
        """Only the entries marked in `keep` (beside matrix.data); users and items stay."""
        entries = np.flatnonzero(keep)
        indptr = np.concatenate([[0], np.cumsum(keep)])[self.matrix.indptr]
        return self._part(entries, self.matrix.indices[entries], indptr, self.users)

    def _part(
        self,
        entries: np.ndarray,
        indices: np.ndarray,
        indptr: np.ndarray,
        users: Ids,
        items: Ids | None = None,
    ) -> Ratings:
        items = self.items if items is None else items
        matrix = csr_array(
            (self.matrix.data[entries], indices, indptr), shape=(len(users), len(items))
        )
        times = None if self.times is None else self.times[entries]
        return Ratings(matrix, users, items, times, self.declared_scale)


def entries_of_rows(indptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Give the positions of all stored entries of some rows of a CSR matrix, row by row."""
    counts = np.diff(indptr)[rows]
    ends = np.cumsum(counts)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return np.repeat(indptr[rows], counts) + within  # type: ignore[no-any-return]


def _number(
    values: Any, known: Ids | None, kind: str, where: Callable[[int], str]
) -> tuple[Ids, np.ndarray]:
    """Give each id its row: the known ones first, new ones in order of appearance."""
    if isinstance(values, pa.ChunkedArray) and pa.types.is_dictionary(values.type):
        values = values.unify_dictionaries().combine_chunks()  # one dictionary for all chunks
    if not (isinstance(values, pa.DictionaryArray) and not values.null_count):
        values = as_texts(values, kind, where).dictionary_encode()
    # a dictionary may hold texts that no row uses, in any order, even twice: number them afresh
    codes = values.indices.dictionary_encode()
    first = codes.indices.to_numpy()
    spelled = as_texts(
        values.dictionary.take(codes.dictionary),
        kind,
        lambda code: where(int(np.argmax(first == code))),
    ).dictionary_encode()
    seen, row_of_code = spelled.dictionary, spelled.indices.to_numpy()
    if known is None:
        return Ids(seen, kind), row_of_code[first]
    rows = known.find(seen)
    new = rows < 0
    rows[new] = len(known) + np.arange(new.sum())
    if new.any():
        known = Ids(pa.concat_arrays([known.values, seen.filter(pa.array(new))]), kind)
    return known, rows[row_of_code[first]]


def _csr_of_positions(
    user_rows: np.ndarray, item_rows: np.ndarray, shape: tuple[int, int]
) -> csr_array:
    """Sort entries into CSR, carrying each one's position; repeats are summed (fewer entries)."""
    positions = np.arange(len(user_rows), dtype=np.int32 if len(user_rows) < 2**31 else np.int64)
    matrix = coo_array((positions, (user_rows, item_rows)), shape=shape).tocsr()
    matrix.sort_indices()
    return matrix


def checked_ratings(
    values: Any, scale: tuple[float, float] | None, where: Callable[[int], str]
) -> np.ndarray:
    """Give ratings as float32, checked before a rating that is too large could become another."""
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "buif":
        raise DataError(
            f"ratings of type {values.dtype} in {values.ndim} dimensions",
            hint="one number for each rating",
        )
    values = values.astype(np.promote_types(values.dtype, np.float32), copy=False)
    bad = _first_bad(values, scale)
    if bad is not None:
        row, why, hint = bad
        raise DataError(f"{where(row)}: the rating {why}", hint=hint)
    return values.astype(np.float32)  # type: ignore[no-any-return]


def _check_shape(matrix: csr_array, users: Ids, items: Ids) -> None:
    expected = (len(users), len(items))
    if matrix.shape == expected:
        return
    hint = "rows are users, columns are items"
    if matrix.shape == expected[::-1]:
        hint = f"it looks transposed: {hint}, so pass matrix.T"
    raise DataError(
        f"a matrix of {matrix.shape[0]:,} x {matrix.shape[1]:,} does not fit "
        f"{expected[0]:,} users x {expected[1]:,} items",
        hint=hint,
    )


def _check_form(matrix: csr_array, times: np.ndarray | None) -> None:
    if matrix.format != "csr" or matrix.dtype != np.float32 or not matrix.has_canonical_format:
        raise DataError(
            "the matrix is not float32 in CSR form with sorted entries",
            hint="Ratings.from_matrix takes any sparse matrix",
        )
    if times is not None and len(times) != matrix.nnz:
        raise DataError(f"{len(times):,} times for {matrix.nnz:,} ratings")


def _first_bad(
    values: np.ndarray, scale: tuple[float, float] | None
) -> tuple[int, str, str | None] | None:
    """Find the first impossible rating: its position, what is wrong, and a hint."""
    low, high = (0.0, HUGE) if scale is None else _limits(scale)
    if not len(values) or (values.min() >= low and values.max() <= high):  # false for NaN
        return None
    at = int(np.argmax(~((values >= low) & (values <= high))))
    value = float(values[at])
    if not np.isfinite(value):
        return at, f"is {value}, not a number", "leave out unknown ratings"
    if scale is not None:
        return at, f"is {value:g}, outside the scale {low:g} to {high:g}", "correct the scale"
    if value < 0:
        return at, f"is {value:g}, below zero", "shift the scale so that it starts at zero"
    return at, f"is {value:g}, above {HUGE:g}", "is this column a time or an id?"


def _limits(scale: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = map(float, scale)
        if -np.inf < low <= high < np.inf:
            return low, high
    except (TypeError, ValueError):
        pass
    raise SettingError(f"scale={scale!r}", hint="the lowest and the highest possible rating")
