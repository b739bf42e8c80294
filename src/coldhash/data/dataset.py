"""Dataset: ratings, what is known about users and items, and the plan for using it."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array

from coldhash.data.dates import as_days
from coldhash.data.feedback import (
    Favourite,
    Feedback,
    FeedbackKind,
    Scale,
    ValueFacts,
    guess_kind,
)
from coldhash.data.ids import Ids, NameRow
from coldhash.data.plan import (
    FEW_ROWS,
    FeaturePlan,
    PlanLike,
    as_plan,
    check_plan,
    describe_columns,
    guess_plan,
)
from coldhash.data.ratings import MAX_RATING, Duplicates, Ratings
from coldhash.data.roles import OTHER_NAMES, ROLES, TITLE
from coldhash.data.tables import TableLike, as_table, infer_type, infer_types
from coldhash.errors import ColumnError, DataError, SettingError, UnlikelyData
from coldhash.render import html_table

_HEADER_HINT = "a file needs a header line (or TableFile(..., names=[...]))"
Columns = Mapping[str, str | None]  # role -> name of its column; None: there is none

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
        for title, table, ids in (
            ("user", self.users, self.ratings.users),
            ("item", self.items, self.ratings.items),
        ):
            if table.num_columns and table.num_rows != len(ids):
                raise DataError(f"{table.num_rows:,} rows of {title}s for {len(ids):,} ids")
        check_plan(self.plan, self.users, self.items)

    @classmethod
    def from_tables(
        cls,
        ratings: TableLike,
        users: TableLike | None = None,
        items: TableLike | None = None,
        *,
        columns: Columns | None = None,
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
        mapping = check_columns(columns)
        user_column, user_ids, user_table = read_id_table(users, "user", mapping)
        item_column, item_ids, item_table = read_id_table(items, "item", mapping)
        used = used_columns(user_column, item_column, mapping.pop(TITLE, None), item_table)
        wanted = Wanted(feedback, favourite, event_weights)
        rated = read_ratings(ratings, mapping, user_ids, item_ids, scale, duplicates, wanted)
        rated.feedback.warn_if_unlikely(int(rated.favourites.sum()), len(rated))
        _warn_of_ids(rated, user_ids, item_ids)
        user_table = pad_table(user_table, len(rated.users))
        item_table = pad_table(item_table, len(rated.items))
        plan = guess_plan(user_table, item_table) if plan is None else plan
        return cls(rated, user_table, item_table, plan, name, used)

    def __repr__(self) -> str:
        counts = f"{self.n_users:,} users, {len(self.item_ids):,} items, {self.n_ratings:,}"
        return f"<Dataset {self.name!r}: {counts} {self.feedback.kind}>"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("table", "column", "type", "missing", "distinct", "becomes")
        ]
        for side, table in (("users", self.users), ("items", self.items)):
            columns = describe_columns(table, getattr(self.plan, side), self.plan.labels)
            rows += [(side, name, *map(str, facts.values())) for name, facts in columns.items()]
        return escape(repr(self)) + html_table(rows)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content: equal for equal ratings, tables, plan and rule of favourites."""
        matrix, times = self.ratings.matrix, self.ratings.times
        arrays = [matrix.data, matrix.indices, matrix.indptr, *([] if times is None else [times])]
        columns = (*map(pa.array, arrays), self.user_ids.values, self.item_ids.values)
        tables = (pa.table([column], names=["x"]) for column in columns)
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
        matrix, ends = self.ratings.matrix, partition_ends(self.n_users, part_users)
        times = self.ratings.times
        return [
            UserRecords(
                first,
                _rows(matrix, first, last),
                self.users.slice(first, last - first),
                None if times is None else times[matrix.indptr[first] : matrix.indptr[last]],
            )
            for first, last in pairwise(ends)
        ]

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
        del allocate
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


def _rows(matrix: csr_array, first: int, last: int) -> csr_array:
    """Return consecutive rows without copying them."""
    begin, end = matrix.indptr[first], matrix.indptr[last]
    indptr = matrix.indptr[first : last + 1] - begin
    entries = (matrix.data[begin:end], matrix.indices[begin:end], indptr)
    return csr_array(entries, shape=(last - first, matrix.shape[1]))


def _take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(pa.array(rows)) if table.num_columns else table


def is_described(table: pa.Table, n_rows: int) -> np.ndarray:
    """Mark the rows of which at least one column is known."""
    known = np.zeros(n_rows, dtype=bool)
    for column in table.columns:
        known |= column.is_valid().to_numpy()
    return known


def pad_table(table: pa.Table, n_rows: int) -> pa.Table:
    """Add rows of nulls for the ids that occur in the ratings alone."""
    if not table.num_columns or table.num_rows == n_rows:
        return table
    rows = np.arange(n_rows)
    return table.take(pa.array(rows, mask=rows >= table.num_rows))


def _warn_of_ids(ratings: Ratings, users: Ids | None, items: Ids | None) -> None:
    """Warn if the ids of a table do not fit those of the ratings."""
    if users is None and items is None:
        return
    raters = ratings.users.values.filter(pa.array(ratings.per_user > 0))
    rated = ratings.items.values.filter(pa.array(ratings.per_item > 0))
    for kind, ids, own, other in (("user", users, raters, rated), ("item", items, rated, raters)):
        if ids is not None and len(ids) >= FEW_ROWS:
            message = _find_mismatch(kind, ids.values, own, other)
            if message is not None:
                warnings.warn(message, UnlikelyData, stacklevel=3)


def _find_mismatch(kind: str, ids: pa.Array, own: pa.Array, other: pa.Array) -> str | None:
    """Tell if the ids of a table are those of the other side, or are written differently.

    `own` and `other` are the ids of this side and the other one in the ratings.
    """
    straight, swapped = _overlap(ids, own), _overlap(ids, other)
    # whole numbers may fit both sides: a table of the other side then has all ids of that side
    fits_other = swapped > max(straight + 0.5, 0.9) and _overlap(other, ids) > 0.9
    if swapped > max(10 * straight, 0.1) or fits_other:
        shares = f"{100 * swapped:.0f}% fit the other column, {100 * straight:.0f}% their own"
        return f"user and item columns look swapped: of the ids of the {kind} table {shares}"
    unknown = own.filter(pc.invert(pc.is_in(own, ids)))
    unrated = ids.filter(pc.invert(pc.is_in(ids, own)))
    places = pc.index_in(_spelling(unknown), _spelling(unrated))
    n_alike = len(places) - places.null_count
    if n_alike > len(unknown) / 10:
        at = pc.index(pc.is_valid(places), True).as_py()
        example = f"{unknown[at].as_py()!r} is {unrated[places[at].as_py()].as_py()!r} there"
        different = f"{kind}s of the ratings are written differently in the {kind} table"
        return f"{n_alike:,} {different}: {example}"
    if straight:
        return None
    example = f"{ids[0].as_py()!r} in the table, {own[0].as_py()!r} in the ratings"
    return f"none of the {len(ids):,} {kind}s of the {kind} table has a rating: {example}"


def _overlap(ids: pa.Array, others: pa.Array) -> float:
    """Return how many ids are in both, as a share of those in at least one."""
    n_both = pc.sum(pc.is_in(ids, others)).as_py() or 0
    return float(n_both / max(len(ids) + len(others) - n_both, 1))


def _spelling(ids: pa.Array) -> pa.Array:
    """Return ids without what programs change: case, spaces, zeros in front, and ".0" behind."""
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(ids))
    return pc.utf8_ltrim(pc.replace_substring_regex(plain, r"\.0$", ""), "0")


def check_columns(columns: Columns | None) -> dict[str, str | None]:
    """Return which column has which role, the roles checked."""
    roles = (*ROLES, TITLE)
    if not isinstance(columns, Mapping | None) or not {*(columns or {})} <= {*roles}:
        hint = f"the roles are {', '.join(roles)}"
        raise SettingError(f"columns={columns!r}", hint=hint)
    return dict(columns or {})


def read_id_table(
    source: TableLike | None, kind: str, columns: Columns
) -> tuple[str | None, Ids | None, pa.Table]:
    """Read a table of users or items; returns the name of its id column, its ids, and the rest."""
    if source is None:
        return columns.get(f"{kind}_id"), None, pa.table({})
    table, title, where = as_table(source, kind)
    names, role = table.column_names, f"{kind}_id"
    name = columns.get(role)
    if name is None or name not in names:
        others = (other for other in OTHER_NAMES[role] if other.endswith("_id"))
        alone = "id" in names and not {*ROLES[role], *others} & {*names}
        name = "id" if alone else find_columns(names, [role], {}, title)[role]
    ids = Ids.of(table.column(name), kind, where)
    return name, ids, infer_types(table, keep=name).drop_columns([name])


def used_columns(
    user_id: str | None, item_id: str | None, title: str | None, items: pa.Table
) -> dict[str, str]:
    """Return the columns of ids and titles by their roles; that of titles must be there."""
    if title is not None and title not in items.column_names:
        hint = f"the item table has: {', '.join(items.column_names) or '-'}"
        raise ColumnError(f"the item table has no column {title!r} for {TITLE}", hint=hint)
    used = {"user_id": user_id, "item_id": item_id, TITLE: title}
    return {role: column for role, column in used.items() if column is not None}


def read_ratings(
    source: TableLike,
    columns: Columns,
    users: Ids | None,
    items: Ids | None,
    scale: Scale | None,
    duplicates: Duplicates | None,
    wanted: Wanted,
) -> Ratings:
    """Read a table of ratings; ids not in `users` or `items` come after those."""
    numbers = dict.fromkeys(_names_of("rating", columns), pa.float32())
    table, title, where = as_table(source, "ratings", numbers)
    found = find_rating_columns(table.column_names, wanted.columns(columns), title)
    values = np.ones(table.num_rows, dtype=np.float32)
    if wanted.event_weights is not None:
        values = _weigh_events(table, found.get("event"), wanted.event_weights, title)
        rows = np.flatnonzero(values)
        table, values, name_row = table.take(pa.array(rows)), values[rows], where

        def where(row: int) -> str:
            return name_row(int(rows[row]))

    if not table.num_rows:
        raise DataError(f"{title} has columns, but no ratings", hint="is it the right file?")
    column = {role: table.column(name) for role, name in found.items()}
    if "rating" in found:
        values = _as_numbers(column["rating"], found["rating"], where)
    feedback = wanted.feedback(lambda: ValueFacts.of(values), found.get("rating"), scale)
    return Ratings.from_columns(
        column["user_id"],
        column["item_id"],
        values,
        times=_as_times(column["timestamp"]) if "timestamp" in found else None,
        users=users,
        items=items,
        scale=scale,
        duplicates=duplicates_of(duplicates, feedback),
        feedback=feedback,
        where=where,
    )


@dataclass(frozen=True)
class Wanted:
    """What a caller says about feedback."""

    kind: FeedbackKind | None = None
    favourite: Favourite | None = None
    event_weights: Mapping[str, float] | None = None

    def columns(self, columns: Columns) -> Columns:
        """Return the columns to read: events have no values."""
        is_event = self.kind == "events" or self.event_weights is not None
        return {**columns, "rating": None} if is_event else columns

    def feedback(
        self, facts: Callable[[], ValueFacts], column: str | None, scale: Scale | None
    ) -> Feedback:
        """Return the feedback, its kind guessed if it is not given."""
        if self.kind is not None or column is None:
            usual: FeedbackKind = "events" if self.event_weights is None else "counts"
            return Feedback(self.kind or usual, self.favourite)
        return Feedback(guess_kind(facts(), column) if scale is None else "ratings", self.favourite)


def duplicates_of(duplicates: Duplicates | None, feedback: Feedback) -> Duplicates:
    """Return what to do with repeated rows: those of counts and events are added up."""
    return duplicates or ("error" if feedback.kind == "ratings" else "sum")


def find_rating_columns(names: list[str], columns: Columns, title: str) -> dict[str, str]:
    """Find the columns of ratings; that of a rating or a time may be mapped to None.

    A table without a column for ratings is one of events, unless it has no column for their type
    and other columns that may be meant.
    """
    ids = ("user_id", "item_id")
    roles = [role for role in ROLES if role in ids or columns.get(role, role) is not None]
    if "rating" not in columns and not set(names) & set(_names_of("rating", columns)):
        others = [role for role in roles if role != "rating"]
        found = find_columns(names, others, columns, title)
        if "event" in found or set(names) == set(found.values()):
            return found
    return find_columns(names, roles, columns, title)


def find_columns(
    names: list[str], roles: Iterable[str], columns: Columns, title: str
) -> dict[str, str]:
    """Find the column of each role: as mapped, or under one of its usual names."""
    found: dict[str, str] = {}
    for role in roles:
        usual, others = ROLES[role], OTHER_NAMES[role]
        if role in columns:
            usual, others = (columns[role] or "",), ()
        here = [name for name in usual if name in names]
        here = here or [name for name in others if name in names][:1]
        if len(here) > 1:
            hint = f"choose one: columns={{{role!r}: {here[0]!r}}}"
            raise ColumnError(f"{title} has {' and '.join(map(repr, here))} for {role}", hint=hint)
        if here:
            found[role] = here[0]
        elif role in columns or role not in ("timestamp", "event"):
            wanted = repr(columns[role]) if columns.get(role) else f"for {role}"
            none = ", or {'rating': None} if each row is an event" if role == "rating" else ""
            raise ColumnError(
                f"{title} has no column {wanted}: it has {', '.join(map(repr, names)) or 'none'}",
                hint=f"columns={{{role!r}: NAME}}{none}; {_HEADER_HINT}",
            )
    if len(set(found.values())) < len(found):
        raise ColumnError(f"{title}: one column for two roles: {found}", hint="one column each")
    return found


def _names_of(role: str, columns: Columns) -> Sequence[str]:
    """Return the names that the column of a role may have."""
    if role in columns:
        return [columns[role] or ""]
    return [*ROLES[role], *OTHER_NAMES[role]]


def _weigh_events(
    table: pa.Table, name: str | None, weights: Mapping[str, float], title: str
) -> np.ndarray:
    """Return how much each event counts."""
    kinds = pa.array([], pa.string()).dictionary_encode()
    if name is not None:
        column = table.column(name).cast(pa.string())
        kinds = column.combine_chunks().dictionary_encode("encode")
    weight_of = weigh_kinds(kinds.dictionary.to_pylist(), name, weights, title)
    return np.array([*weight_of.values()])[kinds.indices.to_numpy()]  # type: ignore[no-any-return]


def weigh_kinds(
    kinds: Sequence[str | None], name: str | None, weights: Mapping[str, float], title: str
) -> dict[str | None, float]:
    """Return how much an event of each kind counts; `name` is the column of kinds."""
    if name is None:
        message = f"{title} has no column for the type of an event"
        raise ColumnError(message, hint="columns={'event': NAME}")
    try:
        known = {str(kind): float(weight) for kind, weight in weights.items()}
        valid = all(0 <= weight <= MAX_RATING for weight in known.values())
    except (AttributeError, TypeError, ValueError):
        valid = False
    if not valid:
        hint = "a number for each type, 0 to leave it out (--event-weight TYPE=WEIGHT)"
        raise SettingError(f"event_weights={weights!r}", hint=hint)
    for kind in kinds:
        if kind not in known:
            hint = f"there are weights for {', '.join(known) or 'none'}; 0 leaves a type out"
            raise DataError(f"{title}, column {name!r}: no weight for {kind!r}", hint=hint)
    unused = [kind for kind in known if kind not in kinds]
    if unused:
        message = f"event_weights: no event of {title} has the type {', '.join(map(repr, unused))}"
        warnings.warn(message, UnlikelyData, stacklevel=2)
    return {kind: known[str(kind)] for kind in kinds}


def _as_numbers(column: pa.ChunkedArray, name: str, where: NameRow) -> np.ndarray:
    if column.null_count:
        place = f"{where(pc.index(pc.is_null(column), True).as_py())}, column {name!r}"
        raise DataError(f"{place}: no rating", hint="remove rows without a rating")
    if pa.types.is_string(column.type):
        texts = pc.utf8_trim_whitespace(column)
        try:
            column = texts.cast(pa.float64())
        except pa.ArrowInvalid as error:  # Failed to parse string: 'x' as ...
            text = str(error).partition("'")[2].rpartition("'")[0]
            place = f"{where(pc.index(texts, text).as_py())}, column {name!r}"
            hint = "write 3.5, and leave out rows without a number"
            raise DataError(f"{place}: {text!r} is not a number", hint=hint) from None
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise DataError(f"ratings are of type {column.type}", hint="numbers")
    return column.to_numpy()  # type: ignore[no-any-return]


def _as_times(column: pa.ChunkedArray) -> np.ndarray | None:
    """Return times as sortable whole numbers; None where some are missing or all are equal.

    Whole numbers stay as they are, dates become microseconds since 1970, and anything else its
    rank. Texts are dates, or a warning tells that they are not.
    """
    if pa.types.is_nested(column.type):
        raise DataError(f"times are of type {column.type}", hint="columns={'timestamp': None}")
    column = infer_type(column)
    if pa.types.is_string(column.type):
        column = _read_dates(column)
    if column.null_count or pc.count_distinct(column).as_py() < 2:
        return None
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        with suppress(pa.ArrowInvalid):  # moments that differ by less
            column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)))
            column = column.cast(pa.int64())
    if not pa.types.is_signed_integer(column.type):
        column = pc.rank(column.combine_chunks(), tiebreaker="dense")
    return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def _read_dates(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as moments; as nulls, with a warning, where one is not a date."""
    for unit, zone in (("us", None), ("us", "UTC"), ("ns", None)):  # a zone in no text, or in all
        with suppress(pa.ArrowInvalid):
            return texts.cast(pa.timestamp(unit, zone))
    encoded = texts.combine_chunks().dictionary_encode()
    try:
        days = pa.array([as_days(text) for text in encoded.dictionary.to_pylist()])
    except DataError:
        warn_of_times(encoded.dictionary[0].as_py())
        return pa.chunked_array([pa.nulls(len(texts))])
    return pa.chunked_array([days.take(encoded.indices)])


def warn_of_times(example: str) -> None:
    """Warn that the texts of a column of times are not dates."""
    message = f"times such as {example!r} are not clear, so the order of events is unknown"
    warnings.warn(f"{message}; hint: write 2024-01-31", UnlikelyData, stacklevel=2)
