"""Ratings: a frozen users x items matrix with ids on both sides, and what a rating is worth.

Every check of ratings is here: ratings that could be built are valid, and no other module checks
again. A stored zero is a rating; what is not stored is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array, csr_matrix

from coldhash.data.feedback import MAX_RATING, Feedback, Scale, check_scale, guess_kind
from coldhash.data.ids import Ids, IdValue, NameRow, assign_rows, find_repeat
from coldhash.errors import DataError, check_choice

Duplicates = Literal["error", "last", "mean", "max", "sum"]
TargetKind = Literal["favourite", "share", "known"]


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of items by users.

    Parameters
    ----------
    matrix : csr_array of float32
        Users x items, the entries of each row sorted by item.
    users, items : Ids
        The ids of rows and columns.
    times : array, optional
        When each rating was given, in the order of `matrix.data`.
    declared_scale : tuple of float, optional
        The lowest and the highest possible rating.
    declared_feedback : Feedback, optional
        What the numbers are, and which of them make an item a favourite; guessed if not given.

    Raises
    ------
    DataError
        If the shape does not fit the ids, or a rating is impossible.

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
    times: np.ndarray | None = None
    declared_scale: Scale | None = None
    declared_feedback: Feedback | None = None

    def __post_init__(self) -> None:
        matrix, shape = self.matrix, (len(self.users), len(self.items))
        if matrix.shape != shape:
            turned = matrix.shape == shape[::-1]
            hint = "it looks transposed: matrix.T" if turned else "a row for each user"
            sizes = "{:,} x {:,} does not fit {:,} users x {:,} items".format(*matrix.shape, *shape)
            raise DataError(f"a matrix of {sizes}", hint=hint)
        if matrix.format != "csr" or matrix.dtype != np.float32 or not matrix.has_canonical_format:
            hint = "m = matrix.tocoo(); Ratings.from_columns(m.row, m.col, m.data)"
            raise DataError("the matrix is not float32 in CSR form with sorted entries", hint=hint)
        if self.times is not None and len(self.times) != matrix.nnz:
            raise DataError(f"{len(self.times):,} times for {matrix.nnz:,} ratings")

        def name(at: int) -> str:
            user = int(np.searchsorted(matrix.indptr, at, side="right") - 1)
            return f"user {self.users[user]!r}, item {self.items[matrix.indices[at]]!r}"

        _check_values(matrix.data, self.declared_scale, name)
        for array in (matrix.data, matrix.indices, matrix.indptr, self.times):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def from_columns(
        cls,
        user_ids: Iterable[IdValue],
        item_ids: Iterable[IdValue],
        values: ArrayLike,
        *,
        times: np.ndarray | None = None,
        users: Ids | None = None,
        items: Ids | None = None,
        scale: Scale | None = None,
        duplicates: Duplicates = "error",
        feedback: Feedback | None = None,
        where: NameRow = "row {}".format,
    ) -> Ratings:
        """Build from three columns.

        Parameters
        ----------
        user_ids, item_ids : sequence of str or int
            Who rated what.
        values : array
            The ratings.
        times : array, optional
            When each rating was given.
        users, items : Ids, optional
            Known ids, which come first; other ids follow in order of appearance.
        scale : tuple of float, optional
            The lowest and the highest possible rating.
        duplicates : {"error", "last", "mean", "max", "sum"}
            What to do with a user who rated an item more than once. The time kept is that of the
            last row, or the first time with "sum".
        feedback : Feedback, optional
            What the values are, and which of them make an item a favourite; guessed if not given.
        where : callable
            Returns the name of a row for errors.

        Returns
        -------
        Ratings

        Raises
        ------
        DataError
            If a rating is impossible, or repeated with `duplicates="error"`.

        Examples
        --------
        >>> Ratings.from_columns([1, 1], ["x", "x"], [2, 4], duplicates="mean").matrix.data
        array([3.], dtype=float32)
        """
        check_choice("duplicates", duplicates, get_args(Duplicates))
        scale = None if scale is None else check_scale(scale)
        users, user_rows = assign_rows(user_ids, users, "user", where)
        items, item_rows = assign_rows(item_ids, items, "item", where)
        values = as_ratings(values, scale, where)
        lengths = [len(x) for x in (user_rows, item_rows, values, times) if x is not None]
        if len(set(lengths)) > 1:
            raise DataError(f"columns of different lengths: {', '.join(map(str, lengths))}")
        shape = (len(users), len(items))
        matrix, times = sort_ratings(user_rows, item_rows, values, times, shape, duplicates)
        if duplicates == "error" and matrix.nnz < len(values):
            raise duplicate_error(user_rows, item_rows, users, items, where)
        return cls(matrix, users, items, times, scale, feedback)

    def __len__(self) -> int:
        return int(self.matrix.nnz)

    @cached_property
    def scale(self) -> Scale:
        """The lowest and the highest rating: as declared, or else as found."""
        if self.declared_scale is not None:
            return self.declared_scale
        if not len(self):
            return (0.0, 1.0)
        return float(self.matrix.data.min()), float(self.matrix.data.max())

    @cached_property
    def feedback(self) -> Feedback:
        """What the numbers are, and which of them make an item a favourite."""
        feedback = self.declared_feedback
        if feedback is None:
            guessed = self.declared_scale is None and len(self)
            feedback = Feedback(guess_kind(self.matrix.data) if guessed else "ratings")
        return feedback if feedback.scale is not None else replace(feedback, scale=self.scale)

    @cached_property
    def favourites(self) -> np.ndarray:
        """Which ratings are favourites, in the order of `matrix.data`."""
        return self.feedback.is_favourite(self.matrix)

    @property
    def sparsity(self) -> float:
        """The share of unknown entries."""
        return 1.0 - len(self) / max(len(self.users) * len(self.items), 1)

    @cached_property
    def per_user(self) -> np.ndarray:
        """The number of ratings of each user."""
        return np.diff(self.matrix.indptr)

    @cached_property
    def per_item(self) -> np.ndarray:
        """The number of ratings of each item."""
        return np.bincount(self.matrix.indices, minlength=len(self.items))

    def of_users(self, rows: np.ndarray) -> Ratings:
        """Return the ratings of some users, with all items.

        Parameters
        ----------
        rows : array of int
            The rows of the users to keep, in the order of the result.

        Returns
        -------
        Ratings

        Raises
        ------
        DataError
            If a row is repeated.
        """
        return self._take(self._entries[rows], self.users.take(rows), self.items)

    def of_items(self, rows: np.ndarray) -> Ratings:
        """Return the ratings of some items, with all users.

        Parameters
        ----------
        rows : array of int
            The rows of the items to keep, in the order of the result.

        Returns
        -------
        Ratings

        Raises
        ------
        DataError
            If a row is repeated.
        """
        items, entries = self.items.take(rows), self._entries[:, rows]
        entries.sort_indices()
        return self._take(entries, self.users, items)

    def where(self, keep: np.ndarray) -> Ratings:
        """Return some of the ratings, with all users and items.

        Parameters
        ----------
        keep : array of bool
            Which ratings to keep, in the order of `matrix.data`.

        Returns
        -------
        Ratings
        """
        kept = np.flatnonzero(keep)
        indptr = np.concatenate([[0], np.cumsum(keep)])[self.matrix.indptr]
        body = (kept, self.matrix.indices[kept], indptr)
        return self._take(csr_array(body, shape=self.matrix.shape), self.users, self.items)

    def to_csr_matrix(self) -> csr_matrix:
        """Return a copy for other libraries, such as implicit: not frozen, with int32 indices.

        Returns
        -------
        scipy.sparse.csr_matrix of float32
            Users x items.

        Examples
        --------
        >>> matrix = Ratings.from_columns(["ann"], ["x"], [5]).to_csr_matrix()
        >>> matrix.data[0] = 1  # `Ratings.matrix` is read-only
        """
        matrix = self.matrix
        entries = (matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32))
        return csr_matrix(entries, shape=matrix.shape, copy=True)

    @property
    def _entries(self) -> csr_array:
        """The matrix with the position of each rating in place of its value."""
        return with_values(self.matrix, np.arange(len(self)))

    def _take(self, entries: csr_array, users: Ids, items: Ids) -> Ratings:
        """Return the ratings at the positions that a matrix holds."""
        matrix = with_values(entries, self.matrix.data[entries.data])
        times = None if self.times is None else self.times[entries.data]
        return Ratings(matrix, users, items, times, self.declared_scale, self.feedback)


def row_of_entries(matrix: csr_array) -> np.ndarray:
    """Return the row of each stored entry of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def with_values(matrix: csr_array, values: np.ndarray) -> csr_array:
    """Return a matrix with the stored entries of another one, and these values."""
    return csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def as_ones(matrix: csr_array) -> csr_array:
    """Return a matrix of ones with the stored entries of another one, whatever their values."""
    return with_values(matrix, np.ones(len(matrix.indices), dtype=np.float32))


def as_ratings(values: ArrayLike, scale: Scale | None, where: NameRow) -> np.ndarray:
    """Return ratings as float32, checked before the conversion could change them."""
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "buif":
        message = f"ratings of type {values.dtype} in {values.ndim} dimensions"
        raise DataError(message, hint="one number for each rating")
    values = values.astype(np.promote_types(values.dtype, np.float32), copy=False)
    _check_values(values, scale, where)
    return values.astype(np.float32)


def _check_values(values: np.ndarray, scale: Scale | None, where: NameRow) -> None:
    """Raise an error at the first impossible rating."""
    low, high = (-MAX_RATING, MAX_RATING) if scale is None else check_scale(scale)
    if not len(values) or (values.min() >= low and values.max() <= high):  # false for NaN
        return
    at = int(np.argmax(~((values >= low) & (values <= high))))
    fault, hint = f"{values[at]:g}, not a number", "leave out unknown ratings"
    if np.isfinite(values[at]):
        fault = f"{values[at]:g}, outside the scale {low:g} to {high:g}"
        hint = "is this column a time or an id?" if scale is None else "correct the scale"
    raise DataError(f"{where(at)}: the rating is {fault}", hint=hint)


def sort_ratings(
    user_rows: np.ndarray,
    item_rows: np.ndarray,
    values: np.ndarray,
    times: np.ndarray | None,
    shape: tuple[int, int],
    rule: Duplicates,
) -> tuple[csr_array, np.ndarray | None]:
    """Sort ratings into CSR, and their times; a rule is applied to repeated pairs, if any."""
    positions = np.arange(len(values), dtype=np.int32 if len(values) < 2**31 else np.int64)
    entries = coo_array((positions, (user_rows, item_rows)), shape=shape).tocsr()
    entries.sort_indices()
    if entries.nnz < len(values):
        known = positions if times is None else times
        columns = {"user": user_rows, "item": item_rows, "rating": values.astype(np.float64)}
        table = pa.table(columns | {"time": known})
        merge = "last" if rule == "error" else rule
        merge_times = "min" if rule == "sum" else "last"
        groups = table.group_by(["user", "item"], use_threads=False)  # in order of appearance
        merged = groups.aggregate([("rating", merge), ("time", merge_times)])
        user_rows, item_rows, values, some = (column.to_numpy() for column in merged.columns)
        # a sum of valid values, such as quantities in grams, may be larger than a rating
        values = values.clip(-MAX_RATING, MAX_RATING).astype(np.float32)
        times = None if times is None else some
        return sort_ratings(user_rows, item_rows, values, times, shape, rule)
    times = None if times is None else times[entries.data]
    return with_values(entries, values[entries.data]), times


def duplicate_error(
    user_rows: np.ndarray, item_rows: np.ndarray, users: Ids, items: Ids, where: NameRow
) -> DataError:
    """Return the error that names the first repeated pair."""
    again, first, n_repeats = find_repeat(user_rows.astype(np.int64) * len(items) + item_rows)
    pair = f"user {users[user_rows[again]]!r} rated item {items[item_rows[again]]!r}"
    message = f"{where(again)}: {pair} already, in {where(first)}; repeated in all: {n_repeats:,}"
    return DataError(message, hint="choose a rule: duplicates='last', 'mean', 'max' or 'sum'")


@dataclass(frozen=True)
class RatingTarget:
    """From a rating to the target of a model that predicts all entries, unknown ones as 0.

    Parameters
    ----------
    kind : {"favourite", "share", "known"}
        `favourite`: 1 for a favourite, `other` for any other rating, a stored 0 included.
        `share`: rating / highest, both above the lowest rating if that is below 0; 1 for counts and
        events. `known`: 1 for every rating.
    feedback : Feedback
        What ratings are, and which of them are favourites.
    other : float
        The target of a rating that is not a favourite.
    """

    kind: TargetKind
    feedback: Feedback
    other: float = 0.3

    def __post_init__(self) -> None:
        check_choice("target", self.kind, get_args(TargetKind))

    def __call__(self, ratings: csr_array) -> csr_array:
        """Return the targets of users x items as float32."""
        if self.kind == "favourite":
            favourite = self.feedback.is_favourite(ratings).astype(np.float32)
            return with_values(ratings, np.maximum(favourite, np.float32(self.other)))
        if self.kind == "known" or self.feedback.kind != "ratings":
            return as_ones(ratings)
        low, high = self.feedback.scale or (0.0, 1.0)
        low = min(low, 0.0)
        shares = (ratings.data - low) / max(high - low, 1e-9)
        return with_values(ratings, shares.astype(np.float32))
