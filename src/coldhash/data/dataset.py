"""Dataset: ratings, what is known about users and items, and the plan for using it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.data.ids import Ids, as_texts
from coldhash.data.plan import FeaturePlan, guess_plan
from coldhash.data.ratings import Duplicates, Ratings
from coldhash.data.tables import (
    ALIASES,
    ID_TYPE,
    as_table,
    find_column,
    infer_types,
    missing_column,
)
from coldhash.errors import ColumnError, DataError, SettingError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Ratings with a row of `users` for each user and a row of `items` for each item.

    The tables have no id column: row i of `users` is about `ratings.users[i]`. What is not known
    is null, so a user who is in the ratings alone has a row of nulls.
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
            for group, columns in groups.items():
                for column in columns:
                    if column not in table.column_names:
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
            What to do with a user who rated an item twice: error, last, mean or max.

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
        user_ids, user_table = _side_table(users, "user", mapping)
        item_ids, item_table = _side_table(items, "item", mapping)
        rated = _ratings_table(ratings, mapping, user_ids, item_ids, scale, duplicates)
        user_table = _padded(user_table, len(rated.users))
        item_table = _padded(item_table, len(rated.items))
        plan = guess_plan(user_table, item_table) if plan is None else plan
        return cls(rated, user_table, item_table, plan, name)

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


def described(table: pa.Table, n_rows: int) -> np.ndarray:
    """Mark the rows of which at least one column is known."""
    known = np.zeros(n_rows, dtype=bool)
    for column in table.columns:
        known |= pc.is_valid(column).to_numpy()
    return known


def _ratings_table(
    source: Any,
    columns: dict[str, str | None],
    users: Ids | None,
    items: Ids | None,
    scale: tuple[float, float] | None,
    duplicates: Duplicates,
) -> Ratings:
    def column_of(names: list[str], role: str) -> str | None:
        return find_column(names, role, columns, "ratings")

    def column_types(names: list[str]) -> dict[str, pa.DataType]:
        found = {role: column_of(names, role) for role in ALIASES}
        types = {"user_id": ID_TYPE, "item_id": ID_TYPE, "rating": pa.float32()}
        return {found[role]: types[role] for role in types if found[role] is not None}  # type: ignore[misc]

    table, where = as_table(source, column_types, "ratings")
    names = table.column_names
    user_name, item_name = column_of(names, "user_id"), column_of(names, "item_id")
    for role, found in (("user_id", user_name), ("item_id", item_name)):
        if found is None:
            raise missing_column(names, role, "ratings")
    if not table.num_rows:
        raise DataError("the ratings table has columns, but not one rating in it")
    return Ratings.from_columns(
        table.column(user_name),
        table.column(item_name),
        _rating_values(table, column_of(names, "rating"), columns, where),
        times=_times(table, column_of(names, "timestamp")),
        users=users,
        items=items,
        scale=scale,
        duplicates=duplicates,
        where=where,
    )


def _rating_values(
    table: pa.Table, name: str | None, columns: dict[str, str | None], where: Any
) -> np.ndarray:
    if name is None:
        if "rating" in columns:  # mapped to None: there is no rating, only the fact
            return np.ones(table.num_rows, dtype=np.float32)
        error = missing_column(table.column_names, "rating", "ratings")
        raise ColumnError(
            error.message, hint="columns={'rating': None} if each row is simply a yes"
        )
    column = table.column(name)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise DataError(f"{where(row)}: no rating", hint="remove rows without a rating")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _as_floats(column, name, where)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise DataError(f"ratings are of type {column.type}", hint="numbers from 0 upwards")
    return column.to_numpy()  # type: ignore[no-any-return]


def _as_floats(column: pa.ChunkedArray, name: str, where: Any) -> pa.ChunkedArray:
    try:
        return column.cast(pa.float32())
    except pa.ArrowInvalid:
        for row, value in enumerate(column.to_pylist()):
            try:
                float(value)
            except ValueError:
                raise DataError(
                    f"{where(row)}, column {name!r}: {value!r} is not a number"
                ) from None
        raise


def _times(table: pa.Table, name: str | None) -> np.ndarray | None:
    """Give times as whole numbers that sort; None where they are missing or say nothing."""
    if name is None:
        return None
    column = table.column(name)
    if pa.types.is_string(column.type):
        column = infer_types(table.select([name]), keep="").column(0)
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    elif pa.types.is_string(column.type):  # ISO dates sort as texts do
        column = pc.rank(column.combine_chunks(), tiebreaker="dense").cast(pa.int64())
    if column.null_count or pc.count_distinct(column).as_py() < 2:
        return None
    return column.cast(pa.int64(), safe=False).to_numpy()  # type: ignore[no-any-return]


def _side_table(
    source: Any, title: str, columns: dict[str, str | None]
) -> tuple[Ids | None, pa.Table]:
    """Read a table of users or items: its ids, and its other columns."""
    if source is None:
        return None, pa.table({})
    role = f"{title}_id"

    def id_column(names: list[str]) -> str:
        mapped = columns.get(role)
        if mapped is not None and mapped in names:
            return mapped
        found = find_column(names, role, {}, title)
        if found is None and "id" in names:
            found = "id"
        if found is None:
            raise missing_column(names, role, title)
        return found

    table, where = as_table(source, lambda names: {id_column(names): pa.string()}, title)
    name = id_column(table.column_names)
    ids = Ids.of(as_texts(table.column(name), title, where), title)
    return ids, infer_types(table, keep=name).drop_columns([name])


def _take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(pa.array(rows)) if table.num_columns else table


def _padded(table: pa.Table, n_rows: int) -> pa.Table:
    """Add rows of nulls for the ids that only the ratings know."""
    if not table.num_columns or table.num_rows == n_rows:
        return table
    rows = np.arange(n_rows)
    return table.take(pa.array(rows, mask=rows >= table.num_rows))
