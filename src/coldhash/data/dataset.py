"""Dataset: ratings, what is known about users and items, and the plan for using it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array

from coldhash.data.ids import Ids
from coldhash.data.lines import is_number
from coldhash.data.plan import FeaturePlan, guess_plan
from coldhash.data.ratings import Duplicates, Ratings
from coldhash.data.tables import (
    ALIASES,
    ID_TYPE,
    as_table,
    find_column,
    infer_types,
    need_column,
    title_of,
)
from coldhash.errors import ColumnError, DataError, SettingError

PART_USERS = 65_536  # users of one partition: where one ends changes how sums are rounded


def partition_ends(n_users: int, part_users: int = PART_USERS) -> list[int]:
    """Return where partitions of users begin, and where the last one ends."""
    return [*range(0, max(n_users, 1), part_users), n_users]


@dataclass(frozen=True, eq=False)
class UserRecords:
    """What the data say of some consecutive users."""

    first: int  # the row of the first of them
    ratings: csr_array  # users x items
    table: pa.Table  # their columns; without columns where nothing is known


@dataclass(frozen=True, eq=False)
class Dataset:
    """Ratings with a row of `users` for each user and a row of `items` for each item.

    The tables have no id column: row i of `users` is about `ratings.users[i]`. What is not known
    is null, so a user who is in the ratings alone has a row of nulls.

    Examples
    --------
    >>> from coldhash import read
    >>> data = read("sample", n_users=100, n_items=50)
    >>> data.ratings.matrix.shape, data.users.column_names
    ((100, 50), ['age', 'gender', 'occupation', 'city'])
    """

    ratings: Ratings
    users: pa.Table
    items: pa.Table
    plan: FeaturePlan
    name: str = "data"

    def __post_init__(self) -> None:
        for title, table, ids in (
            ("user", self.users, self.ratings.users),
            ("item", self.items, self.ratings.items),
        ):
            if table.num_columns and table.num_rows != len(ids):
                raise DataError(f"{table.num_rows:,} rows of {title}s for {len(ids):,} ids")
        for title, table, groups in (
            ("user", self.users, self.plan.users),
            ("item", self.items, self.plan.items),
        ):
            known = set(table.column_names)
            for group, columns in groups.items():
                for column in columns:
                    if column not in known:
                        raise ColumnError(
                            f"the plan's group {group!r} wants column {column!r}",
                            hint=f"the {title} table has: {', '.join(table.column_names) or '-'}",
                        )

    @classmethod
    def from_tables(
        cls,
        ratings: Any,
        users: Any = None,
        items: Any = None,
        *,
        columns: Mapping[str, str | None] | None = None,
        plan: FeaturePlan | None = None,
        scale: tuple[float, float] | None = None,
        duplicates: Duplicates = "error",
        name: str = "data",
    ) -> Dataset:
        """Build from tables: paths, `TableFile`s, pandas, polars or pyarrow tables, or dicts.

        Parameters
        ----------
        ratings, users, items
            One row per rating, user and item. Users and items that only the ratings know are
            kept and simply lack features; listed ones without a rating are kept too.
        columns
            The name of the column for `user_id`, `item_id`, `rating` or `timestamp` where it is
            not one of the usual ones. `{"rating": None}`: there is none, each row counts as 1.
        plan
            Which columns become which features; guessed from the tables if not given.
        scale
            Lowest and highest possible rating, if known.
        duplicates
            What to do with a user who rated an item twice: "error", or take the "last" one in
            the order of the table, the "mean" or the "max".

        Examples
        --------
        >>> data = Dataset.from_tables(
        ...     ratings={"user_id": [1, 1, 2], "item_id": ["a", "b", "a"], "rating": [5, 3, 4]},
        ...     users={"user_id": [1, 2], "city": ["Oslo", "Bergen"]},
        ... )
        >>> len(data.ratings), data.ratings.users[1]
        (3, '2')
        """
        mapping = dict(columns or {})
        unknown = [role for role in mapping if role not in ALIASES]
        if unknown:
            raise SettingError(
                f"columns: {unknown[0]!r} is not a role", hint=f"one of {', '.join(ALIASES)}"
            )
        user_ids, user_table = side_table(users, "user", mapping)
        item_ids, item_table = side_table(items, "item", mapping)
        rated = ratings_table(ratings, mapping, user_ids, item_ids, scale, duplicates)
        user_table = padded(user_table, len(rated.users))
        item_table = padded(item_table, len(rated.items))
        plan = guess_plan(user_table, item_table) if plan is None else plan
        return cls(rated, user_table, item_table, plan, name)

    @property
    def user_ids(self) -> Ids:
        """The ids of users, in row order."""
        return self.ratings.users

    @property
    def item_ids(self) -> Ids:
        """The ids of items, in row order."""
        return self.ratings.items

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest rating there may be."""
        return self.ratings.scale

    @property
    def n_users(self) -> int:
        """The number of users."""
        return len(self.ratings.users)

    @property
    def n_ratings(self) -> int:
        """The number of ratings."""
        return len(self.ratings)

    def records(self, part_users: int = PART_USERS) -> list[UserRecords]:
        """Return the users in partitions of at most `part_users`."""
        matrix, ends = self.ratings.matrix, partition_ends(self.n_users, part_users)
        return [
            UserRecords(
                first,
                matrix if len(ends) == 2 else _rows(matrix, first, last),
                self.users.slice(first, last - first) if self.users.num_columns else self.users,
            )
            for first, last in pairwise(ends)
        ]

    def seen(self, allocate: Callable[..., np.ndarray] | None = None) -> csr_array:
        """Return what users rated (users x items); nothing has to be allocated for it."""
        del allocate
        return self.ratings.matrix

    def of_users(self, rows: np.ndarray) -> Dataset:
        """Only these users, with the whole catalogue."""
        return replace(self, ratings=self.ratings.of_users(rows), users=_take(self.users, rows))

    def of_items(self, rows: np.ndarray) -> Dataset:
        """Only these items, with all users."""
        return replace(self, ratings=self.ratings.of_items(rows), items=_take(self.items, rows))

    def with_ratings(self, ratings: Ratings) -> Dataset:
        """Put other ratings of the same users and items in."""
        return replace(self, ratings=ratings)

    def with_plan(self, plan: FeaturePlan) -> Dataset:
        """Use another plan for the same data."""
        return replace(self, plan=plan)


def _rows(matrix: csr_array, first: int, last: int) -> csr_array:
    begin, end = matrix.indptr[first], matrix.indptr[last]
    entries = (
        matrix.data[begin:end],
        matrix.indices[begin:end],
        matrix.indptr[first : last + 1] - begin,
    )
    return csr_array(entries, shape=(last - first, matrix.shape[1]))


def described(table: pa.Table, n_rows: int) -> np.ndarray:
    """Mark the rows of which at least one column is known."""
    known = np.zeros(n_rows, dtype=bool)
    for column in table.columns:
        known |= pc.is_valid(column).to_numpy()
    return known


def ratings_table(
    source: Any,
    columns: dict[str, str | None],
    users: Ids | None,
    items: Ids | None,
    scale: tuple[float, float] | None,
    duplicates: Duplicates,
) -> Ratings:
    """Read ratings; ids not in `users` or `items` come after those."""
    title = title_of(source, "ratings")

    def column_types(names: list[str]) -> dict[str, pa.DataType]:
        found = rating_roles(names, columns, title)
        types = {"user_id": ID_TYPE, "item_id": ID_TYPE, "rating": pa.float32()}
        return {found[role]: types[role] for role in types if role in found}

    table, where = as_table(source, column_types, "ratings")
    found = rating_roles(table.column_names, columns, title)
    if not table.num_rows:
        raise DataError(f"{title} has columns, but not one rating", hint="is it the right file?")
    return Ratings.from_columns(
        table.column(found["user_id"]),
        table.column(found["item_id"]),
        _rating_values(table, found["rating"], where)
        if "rating" in found
        else np.ones(table.num_rows, dtype=np.float32),
        times=_times(table.column(found["timestamp"])) if "timestamp" in found else None,
        users=users,
        items=items,
        scale=scale,
        duplicates=duplicates,
        where=where,
    )


def rating_roles(names: list[str], columns: dict[str, str | None], title: str) -> dict[str, str]:
    """Find the column for each role; only a time may be missing, and a rating if mapped to None."""
    found = {role: need_column(names, role, columns, title) for role in ("user_id", "item_id")}
    if columns.get("rating", "") is not None:
        hint = "columns={'rating': NAME}, or {'rating': None} if each row is simply a yes"
        found["rating"] = need_column(names, "rating", columns, title, hint)
    time = find_column(names, "timestamp", columns, title)
    if time is not None:
        found["timestamp"] = time
    if len(set(found.values())) < len(found):
        raise ColumnError(f"{title}: one column for two roles: {found}", hint="one column each")
    return found


def _rating_values(table: pa.Table, name: str, where: Callable[[int], str]) -> np.ndarray:
    column = table.column(name)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise DataError(
            f"{where(row)}, column {name!r}: no rating", hint="remove rows without a rating"
        )
    if pa.types.is_string(column.type):
        column = _as_floats(column, name, where)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise DataError(f"ratings are of type {column.type}", hint="numbers from 0 upwards")
    return column.to_numpy()  # type: ignore[no-any-return]


def _as_floats(column: pa.ChunkedArray, name: str, where: Callable[[int], str]) -> pa.ChunkedArray:
    try:
        return pc.utf8_trim_whitespace(column).cast(pa.float64())
    except pa.ArrowInvalid:
        texts = column.to_pylist()
        row = next(row for row, text in enumerate(texts) if not is_number(text))
        raise DataError(
            f"{where(row)}, column {name!r}: {texts[row]!r} is not a number",
            hint="write 3.5, and leave out rows without a number",
        ) from None


def _times(column: pa.ChunkedArray) -> np.ndarray | None:
    """Give times as whole numbers that sort; None where they are missing or say nothing."""
    if pa.types.is_nested(column.type):
        raise DataError(f"times are of type {column.type}", hint="columns={'timestamp': None}")
    column = infer_types(pa.table({"time": column}), keep="").column(0)
    if column.null_count or pc.count_distinct(column).as_py() < 2:
        return None
    if not pa.types.is_signed_integer(column.type):  # dates, floats; ISO dates sort as texts do
        column = pc.rank(column.combine_chunks(), tiebreaker="dense")
    return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def side_table(
    source: Any, title: str, columns: dict[str, str | None]
) -> tuple[Ids | None, pa.Table]:
    """Read a table of users or items: its ids, and its other columns."""
    if source is None:
        return None, pa.table({})
    role = f"{title}_id"

    def id_column(names: list[str]) -> str:
        mapped = columns.get(role)
        if mapped in names:
            return mapped
        alone = "id" in names and not any(name in names for name in ALIASES[role])
        return "id" if alone else need_column(names, role, {}, title_of(source, title))

    table, where = as_table(source, lambda names: {id_column(names): pa.string()}, title)
    name = id_column(table.column_names)
    ids = Ids.of(table.column(name), title, where)
    return ids, infer_types(table, keep=name).drop_columns([name])


def _take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(pa.array(rows)) if table.num_columns else table


def padded(table: pa.Table, n_rows: int) -> pa.Table:
    """Add rows of nulls for the ids that only the ratings know."""
    if not table.num_columns or table.num_rows == n_rows:
        return table
    rows = np.arange(n_rows)
    return table.take(pa.array(rows, mask=rows >= table.num_rows))
