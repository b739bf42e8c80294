"""Dataset: ratings, what is known about users and items, the plan for using it, and splits.

No rating of a cold user or item is in the training part of a split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.data import reading
from coldhash.data.feedback import Favourite, Feedback, FeedbackKind, Scale
from coldhash.data.ids import Ids
from coldhash.data.plan import FeaturePlan, PlanLike, as_plan, describe_columns, guess_plan
from coldhash.data.ratings import Duplicates, Ratings, row_of_entries
from coldhash.data.tables import TableLike
from coldhash.errors import DataError, SettingError, check_choice, check_positive
from coldhash.render import html_table

Order = Literal["time", "random"]

PART_USERS = 65_536  # users of one partition at most, unless another number is asked for
FEW_PART_USERS = 1024  # and at least, where there are fewer than ...
PARTS = 4  # ... this many partitions for threads to work on


def partition_ends(n_users: int, part_users: int | None = None) -> list[int]:
    """Return where partitions of users begin, and where the last one ends.

    Where one ends changes how sums are rounded, so it depends on nothing but the number of users.
    """
    if part_users is None:
        n_parts = max(-(-n_users // PART_USERS), min(PARTS, n_users // FEW_PART_USERS), 1)
        part_users = max(-(-n_users // n_parts), 1)
    return [*range(0, max(n_users, 1), part_users), n_users]


@dataclass(frozen=True, eq=False)
class UserRecords:
    """What is known of some consecutive users."""

    first: int  # the row of the first of them
    ratings: csr_array  # users x items
    table: pa.Table  # their columns; without columns where nothing is known
    times: np.ndarray | None = None  # when each rating was given, in the order of `ratings.data`


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Ratings, a table of users, a table of items, and a feature plan.

    The tables have no id column: row i of `users` is about `ratings.users[i]`. What is not known
    is null, so a user who occurs in the ratings alone has a row of nulls.

    Parameters
    ----------
    ratings : Ratings
        The ratings.
    users, items : pyarrow.Table
        One row for each user and item, or no columns at all.
    plan : FeaturePlan
        Which columns become which features.
    name : str
        The name of the data set in reports.
    columns : dict
        Which columns held the ids and titles: `user_id`, `item_id`, `title` -> name of the column.

    Raises
    ------
    DataError
        If a table does not fit the ratings.
    ColumnError
        If the plan names a column that is not there.

    Examples
    --------
    >>> from coldhash import read
    >>> data = read("sample", n_users=100, n_items=50)
    >>> data.ratings.matrix.shape, data.users.column_names
    ((100, 50), ['age', 'gender', 'occupation', 'city'])
    >>> data
    <Dataset 'sample': 100 users, 50 items, 721 ratings>
    """

    ratings: Ratings
    users: pa.Table
    items: pa.Table
    plan: FeaturePlan
    name: str = "data"
    columns: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sides = (("user", self.users, self.user_ids), ("item", self.items, self.item_ids))
        for side, table, ids in sides:
            if table.num_columns and table.num_rows != len(ids):
                raise DataError(f"{table.num_rows:,} rows of {side}s for {len(ids):,} ids")
        self.plan.check_tables(self.users, self.items)

    @classmethod
    def from_tables(
        cls,
        ratings: TableLike,
        users: TableLike | None = None,
        items: TableLike | None = None,
        *,
        columns: reading.Columns | None = None,
        plan: PlanLike | None = None,
        scale: Scale | None = None,
        duplicates: Duplicates | None = None,
        feedback: FeedbackKind | None = None,
        favourite: Favourite | None = None,
        event_weights: Mapping[str, float] | None = None,
        name: str = "data",
    ) -> Dataset:
        """Build from tables: paths, `TableFile`s, pandas, polars or pyarrow tables, or dicts.

        Parameters
        ----------
        ratings, users, items : path, TableFile, table or dict of columns
            One row per rating, user and item. Users and items that occur in the ratings alone are
            kept and lack features; listed ones without a rating are kept too.
        columns : dict, optional
            The name of the column for `user_id`, `item_id`, `rating`, `timestamp` or `event` where
            it is not one of the usual ones. `{"rating": None}`: none, each row is an event.
            `title`: the column of the item table that answers show.
        plan : FeaturePlan, dict or path of a TOML file, optional
            Which columns become which features; guessed from the tables if not given.
        scale : tuple of float, optional
            The lowest and the highest possible rating.
        duplicates : {"error", "last", "mean", "max", "sum"}, optional
            What to do with a user who rated an item twice: raise an error, or take the last one in
            the order of the table, the mean, the highest or the sum. By default an error for
            ratings, and the sum for counts and events.
        feedback : {"ratings", "counts", "events"}, optional
            What the values are: how good something is, how often it happened, or only that it did
            (then they are not read). Guessed if not given: all values equal, or no column but ids
            and times, are events. Whole numbers from 0 upwards in a column called `count`,
            `quantity`, `plays` or the like, or with a highest value above 10 and at least five
            times the median, are counts. What has a declared scale is ratings.
        favourite : float or str, optional
            Which ratings make an item a favourite, in training and in evaluation: a number (that
            rating and more), a share of the scale ("60%", the default for ratings), or
            "user-mean" (above the mean of the user). Counts and events are all favourites.
        event_weights : dict of str to float, optional
            How much an event of each type counts, such as `{"view": 1, "purchase": 5}`; 0 leaves a
            type out. The type is in the column `event`, `event_type` or `type`, and a column of
            ratings is not read. By default every event counts 1.
        name : str
            The name of the data set in reports.

        Returns
        -------
        Dataset

        Raises
        ------
        ColumnError
            If a column is missing.
        DataError
            If a table holds something impossible; `TableError` names the line of a file.
        SourceError
            If a file cannot be read.

        Examples
        --------
        >>> data = Dataset.from_tables(
        ...     ratings={"user_id": [1, 1, 2], "item_id": ["a", "b", "a"], "rating": [5, 3, 4]},
        ...     users={"user_id": [1, 2], "city": ["Oslo", "Bergen"]},
        ... )
        >>> len(data.ratings), data.ratings.users[1]
        (3, '2')
        """
        plan = None if plan is None else as_plan(plan)
        rules = (feedback, favourite, event_weights, scale, duplicates)
        options = reading.RatingOptions(columns or {}, *rules)
        tables = reading.read_sides(users, items, options.columns)
        user_ids, user_table, item_ids, item_table, used = tables
        rated = reading.read_ratings(ratings, user_ids, item_ids, options)
        rated.feedback.warn_if_unlikely(int(rated.favourites.sum()), len(rated))
        reading.warn_of_ids(rated, user_ids, item_ids)
        user_table = reading.pad_table(user_table, len(rated.users))
        item_table = reading.pad_table(item_table, len(rated.items))
        plan = guess_plan(user_table, item_table) if plan is None else plan
        return cls(rated, user_table, item_table, plan, name, used)

    def __repr__(self) -> str:
        counts = f"{self.n_users:,} users, {len(self.item_ids):,} items, {self.n_ratings:,}"
        return f"<Dataset {self.name!r}: {counts} {self.feedback.kind}>"

    def _repr_html_(self) -> str:
        rows = []
        for side, table in (("users", self.users), ("items", self.items)):
            columns = describe_columns(table, getattr(self.plan, side), self.plan.labels)
            rows += [(side, name, *map(str, facts.values())) for name, facts in columns.items()]
        header = ("table", "column", "type", "missing", "distinct", "becomes")
        return escape(repr(self)) + html_table([header, *rows])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content: equal for equal ratings, tables, plan and rule of favourites."""
        matrix, times = self.ratings.matrix, self.ratings.times
        columns = [matrix.data, matrix.indices, matrix.indptr, *([] if times is None else [times])]
        columns += [self.user_ids.values, self.item_ids.values]
        tables = (pa.table({"x": column}) for column in columns)
        digest = hashlib.sha256(repr((self.feedback, self.plan)).encode())
        for table in (*tables, self.users, self.items):
            digest.update(str(table.schema).encode())
            for batch in table.combine_chunks().to_batches():
                digest.update(batch.serialize())
        return digest.hexdigest()[:16]

    @property
    def user_ids(self) -> Ids:
        """The ids of users, in row order."""
        return self.ratings.users

    @property
    def item_ids(self) -> Ids:
        """The ids of items, in row order."""
        return self.ratings.items

    @property
    def scale(self) -> Scale:
        """The lowest and the highest possible rating."""
        return self.ratings.scale

    @property
    def feedback(self) -> Feedback:
        """What the ratings are, and which of them make an item a favourite."""
        return self.ratings.feedback

    @property
    def n_users(self) -> int:
        """The number of users."""
        return len(self.ratings.users)

    @property
    def n_ratings(self) -> int:
        """The number of ratings."""
        return len(self.ratings)

    def records(self, part_users: int | None = None) -> list[UserRecords]:
        """Return the users in partitions, as the fit reads them.

        Parameters
        ----------
        part_users : int, optional
            The number of users in each partition but the last, at least 1; by default up to
            65,536, and fewer where that makes up to 4 partitions of at least 1,024.

        Returns
        -------
        list of UserRecords
            Consecutive users with their ratings and columns, without copies.
        """
        matrix, times, parts = self.ratings.matrix, self.ratings.times, []
        for first, last in pairwise(partition_ends(self.n_users, part_users)):
            own = slice(matrix.indptr[first], matrix.indptr[last])
            indptr = matrix.indptr[first : last + 1] - own.start
            entries = (matrix.data[own], matrix.indices[own], indptr)
            ratings = csr_array(entries, shape=(last - first, matrix.shape[1]))
            own_times = None if times is None else times[own]
            parts.append(UserRecords(first, ratings, self.users[first:last], own_times))
        return parts

    def seen(self, allocate: Callable[..., np.ndarray] | None = None) -> csr_array:
        """Return what users rated.

        Parameters
        ----------
        allocate : callable, optional
            Ignored; `Prepared.seen` has the same signature and needs it.

        Returns
        -------
        csr_array
            Users x items, the matrix of `ratings`.
        """
        return self.ratings.matrix

    def of_users(self, rows: np.ndarray) -> Dataset:
        """Return the data of some users, with all items.

        Parameters
        ----------
        rows : array of int
            The rows of the users to keep, in the order of the result.

        Returns
        -------
        Dataset

        Raises
        ------
        DataError
            If a row is repeated.
        """
        return replace(self, ratings=self.ratings.of_users(rows), users=_take(self.users, rows))

    def of_items(self, rows: np.ndarray) -> Dataset:
        """Return the data of some items, with all users.

        Parameters
        ----------
        rows : array of int
            The rows of the items to keep, in the order of the result.

        Returns
        -------
        Dataset

        Raises
        ------
        DataError
            If a row is repeated.
        """
        return replace(self, ratings=self.ratings.of_items(rows), items=_take(self.items, rows))

    def with_ratings(self, ratings: Ratings) -> Dataset:
        """Return the same data with other ratings.

        Parameters
        ----------
        ratings : Ratings
            Ratings of the same users and items, in the same row order.

        Returns
        -------
        Dataset

        Raises
        ------
        DataError
            If the tables do not fit the ratings.
        """
        return replace(self, ratings=ratings)

    def with_feedback(
        self, feedback: FeedbackKind | None = None, favourite: Favourite | None = None
    ) -> Dataset:
        """Return the same data with another rule of what is a favourite.

        Parameters
        ----------
        feedback : {"ratings", "counts", "events"}, optional
            What the values are; by default what they were.
        favourite : float or str, optional
            Which ratings are favourites, as for `from_tables`; by default the rule of the kind.

        Returns
        -------
        Dataset

        Raises
        ------
        SettingError
            If a value is not one of these.

        Examples
        --------
        >>> from coldhash import read
        >>> read("sample", n_users=100, n_items=50).with_feedback(favourite=5).feedback.rule
        '5 and more'
        """
        made = Feedback(feedback or self.feedback.kind, favourite, self.feedback.scale)
        ratings = replace(self.ratings, declared_feedback=made)
        made.warn_if_unlikely(int(ratings.favourites.sum()), len(ratings))
        return self.with_ratings(ratings)

    def with_plan(self, plan: PlanLike) -> Dataset:
        """Return the same data with another feature plan.

        Parameters
        ----------
        plan : FeaturePlan, dict or path of a TOML file
            Which columns become which features.

        Returns
        -------
        Dataset

        Raises
        ------
        ColumnError
            If the plan names a column that is not there.
        SettingError
            If it is not a plan.
        """
        return replace(self, plan=as_plan(plan))


def _take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(pa.array(rows)) if table.num_columns else table


def is_described(table: pa.Table, n_rows: int) -> np.ndarray:
    """Mark the rows of which at least one column is known."""
    known = np.zeros(n_rows, dtype=bool)
    for column in table.columns:
        known |= column.is_valid().to_numpy()
    return known


def split_cold_users(
    data: Dataset, share: float = 0.2, seed: int = 0, *, described: bool = False
) -> tuple[Dataset, Dataset]:
    """Split off a share of the users.

    Parameters
    ----------
    data : Dataset
        The data to split.
    share : float
        The share of cold users, between 0 and 1.
    seed : int
        Seed of the random choice.
    described : bool
        Draw cold users only from those of whom a column is known; the share is of these.

    Returns
    -------
    train, cold : Dataset
        The training part and the cold part, both with all items.

    Raises
    ------
    SettingError
        If a part would be empty.

    Examples
    --------
    >>> from coldhash import read
    >>> train, cold = split_cold_users(read("sample", n_users=100, n_items=50), share=0.2, seed=0)
    >>> len(train.ratings.users), len(cold.ratings.users)
    (80, 20)
    """
    n_users = len(data.ratings.users)
    known = np.arange(n_users)
    if described and data.users.num_columns:
        known = np.flatnonzero(is_described(data.users, n_users))
    drawn, _ = _draw(len(known), share, seed, "users")
    cold = known[drawn]
    return data.of_users(np.setdiff1d(np.arange(n_users), cold)), data.of_users(cold)


def split_cold_items(data: Dataset, share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split off a share of the items.

    Parameters
    ----------
    data : Dataset
        The data to split.
    share : float
        The share of cold items, between 0 and 1.
    seed : int
        Seed of the random choice.

    Returns
    -------
    train, cold : Dataset
        The training part and the cold part, both with all users.

    Raises
    ------
    SettingError
        If a part would be empty.

    Examples
    --------
    >>> from coldhash import read
    >>> train, cold = split_cold_items(read("sample", n_users=100, n_items=50), share=0.2, seed=0)
    >>> len(train.ratings.items), len(cold.ratings.items), len(cold.ratings.users)
    (40, 10, 100)
    """
    cold, warm = _draw(len(data.ratings.items), share, seed, "items")
    return data.of_items(warm), data.of_items(cold)


def cold_user_splits(
    data: Dataset, share: float = 0.2, seed: int = 0, repeats: int = 5
) -> Iterator[tuple[Dataset, Dataset]]:
    """Split the users repeatedly, with the seeds `seed`, `seed + 1`, ...

    Parameters
    ----------
    data : Dataset
        The data to split.
    share : float
        The share of cold users, between 0 and 1.
    seed : int
        The first seed.
    repeats : int
        The number of splits.

    Returns
    -------
    iterator of (Dataset, Dataset)
        Training part and cold part of each split.

    Raises
    ------
    SettingError
        If a part would be empty, or `repeats` is below 1.

    Examples
    --------
    >>> from coldhash import read
    >>> splits = list(cold_user_splits(read("sample", n_users=100, n_items=50), repeats=3))
    >>> [len(cold.ratings.users) for train, cold in splits]
    [20, 20, 20]
    """
    check_positive("repeats", repeats)
    for one_seed in range(seed, seed + repeats):
        yield split_cold_users(data, share, one_seed)


def split_first_ratings(
    cold: Dataset, n_given: int, seed: int = 0, order: Order | None = None
) -> tuple[Dataset, Dataset]:
    """Split the ratings of each user into the first few and the rest.

    Parameters
    ----------
    cold : Dataset
        The data to split.
    n_given : int
        The number of first ratings.
    seed : int
        Seed of the random choice.
    order : {"time", "random"}, optional
        The earliest ratings, or a random choice; by default the earliest where times are known.

    Returns
    -------
    given, rest : Dataset
        The first ratings and the others, both with all users.

    Raises
    ------
    SettingError
        If `n_given` is below 0, or the order is unknown.
    DataError
        If the order is that of time, and times are unknown.

    Examples
    --------
    >>> from coldhash import read
    >>> train, cold = split_cold_users(read("sample", n_users=100, n_items=50))
    >>> given, rest = split_first_ratings(cold, n_given=3)
    >>> int(given.ratings.per_user.max())
    3
    >>> len(given.ratings) + len(rest.ratings) == len(cold.ratings)
    True
    """
    ratings = cold.ratings
    given = mark_first_ratings(ratings, n_given, seed, order)
    return cold.with_ratings(ratings.where(given)), cold.with_ratings(ratings.where(~given))


def mark_first_ratings(
    ratings: Ratings, n_given: int, seed: int, order: Order | None
) -> np.ndarray:
    """Mark the ratings that `split_first_ratings` takes as the first of each user."""
    if n_given < 0:
        raise SettingError(f"n_given={n_given}", hint="0 or more")
    chance = np.random.default_rng(seed).random(len(ratings))
    user_rows = row_of_entries(ratings.matrix)
    by_time = () if resolve_order(ratings, order) == "random" else (ratings.times,)
    sequence = np.lexsort((chance, *by_time, user_rows))  # by user, then time, then chance
    place = np.empty(len(ratings), dtype=np.int64)
    starts = np.repeat(ratings.matrix.indptr[:-1], ratings.per_user)
    place[sequence] = np.arange(len(ratings)) - starts
    return place < n_given


def resolve_order(ratings: Ratings, order: Order | None) -> Order:
    """Return the order in which first ratings are given: by time where times are known."""
    if order is None:
        return "random" if ratings.times is None else "time"
    check_choice("order", order, get_args(Order))
    if order == "time" and ratings.times is None:
        raise DataError("the times of ratings are unknown", hint="order='random'")
    return order


def split_by_time(data: Dataset, at: float) -> tuple[Dataset, Dataset]:
    """Split the ratings of all users at one moment, to judge known users by what they did later.

    Parameters
    ----------
    data : Dataset
        The data to split, with times.
    at : float
        Between 0 and 1: the share of all ratings that comes before. Otherwise the time of the first
        rating that comes after.

    Returns
    -------
    train, later : Dataset
        What came before and after, both with the users who have ratings before, and with all items.

    Raises
    ------
    DataError
        If times are unknown.
    SettingError
        If there is no rating before, or none after.

    Examples
    --------
    >>> data = Dataset.from_tables(
    ...     {
    ...         "user_id": ["ann", "ann", "bob", "bob"],
    ...         "item_id": ["x", "y", "x", "z"],
    ...         "rating": [5, 4, 3, 5],
    ...         "timestamp": [10, 40, 20, 30],
    ...     }
    ... )
    >>> train, later = split_by_time(data, at=0.5)
    >>> train.ratings.per_user.tolist(), later.ratings.per_user.tolist()
    ([1, 1], [1, 1])
    """
    times = data.ratings.times
    if times is None:
        raise DataError("the times of ratings are unknown", hint="name their column: timestamp")
    moment = np.quantile(times, at, method="higher") if 0 < at < 1 else at
    before = times < moment
    if before.all() or not before.any():
        hint = f"a share between 0 and 1, or a time after {times.min()} and up to {times.max()}"
        raise SettingError(f"at={at:g} leaves a part empty", hint=hint)
    train, later = (data.with_ratings(data.ratings.where(part)) for part in (before, ~before))
    known = np.flatnonzero(train.ratings.per_user)
    return train.of_users(known), later.of_users(known)


def _draw(n: int, share: float, seed: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw which rows are cold; returns cold and warm rows, each in row order."""
    n_cold = round(share * n) if 0 < share < 1 else 0
    if not 0 < n_cold < n:
        hint = "between 0 and 1, with at least one on each side"
        raise SettingError(f"share={share:g} of {n:,} {what} leaves a part empty", hint=hint)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_cold]), np.sort(order[n_cold:])
