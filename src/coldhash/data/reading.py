"""Tables of ratings, users and items -> ratings and ids, whatever their columns are called."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.data import ROLES, TITLE, as_days
from coldhash.data.feedback import MAX_RATING, Favourite, Feedback, FeedbackKind, Scale, guess_kind
from coldhash.data.ids import Ids, NameRow, as_texts
from coldhash.data.plan import FEW_ROWS
from coldhash.data.ratings import Duplicates, Ratings
from coldhash.data.tables import NULLS, NamedTable, TableLike, as_table, infer_types
from coldhash.errors import ColumnError, DataError, SettingError, UnlikelyData, check_choice

Columns = Mapping[str, str | None]  # role -> name of its column; None: there is none
Roles = Collection[str]
# what times may be: numbers, moments without or with a zone or of nanoseconds, dates of any form
_MOMENTS = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"))
TIME_FORMS = (pa.int64(), pa.float64(), *_MOMENTS, pa.string())


def pad_table(table: pa.Table, n_rows: int) -> pa.Table:
    """Add rows of nulls for the ids that occur in the ratings alone."""
    if not table.num_columns or table.num_rows == n_rows:
        return table
    rows = np.arange(n_rows)
    return table.take(pa.array(rows, mask=rows >= table.num_rows))


def warn_of_ids(ratings: Ratings, users: Ids | None, items: Ids | None) -> None:
    """Warn if the ids of a table do not fit those of the ratings, or fit the other column."""
    raters = ratings.users.values.filter(pa.array(ratings.per_user > 0))
    rated = ratings.items.values.filter(pa.array(ratings.per_item > 0))
    for ids, own, other in ((users, raters, rated), (items, rated, raters)):
        if ids is None or len(ids) < FEW_ROWS:
            continue
        straight, swapped = _overlap(ids.values, own), _overlap(ids.values, other)
        # whole numbers may fit both sides: a table of the other side then has all ids of that side
        is_other = swapped > max(straight + 0.5, 0.9)
        if swapped > max(10 * straight, 0.1) or is_other:
            shares = f"{100 * swapped:.0f}% fit the other column, {100 * straight:.0f}% their own"
            text = f"user and item columns look swapped: of ids in the {ids.kind} table {shares}"
        elif not straight:
            example = f"{ids[0]!r} in the table, {own[0].as_py()!r} in the ratings"
            table = f"{len(ids):,} {ids.kind}s of the {ids.kind} table"
            text = f"none of the {table} has a rating: {example}"
        else:
            continue
        warnings.warn(text, UnlikelyData, stacklevel=3)


def _overlap(ids: pa.Array, others: pa.Array) -> float:
    """Return how many ids are in both, as a share of those in at least one."""
    n_both = pc.sum(pc.is_in(ids, others)).as_py() or 0
    return float(n_both / max(len(ids) + len(others) - n_both, 1))


def read_id_table(
    source: TableLike | None, kind: str, columns: Columns
) -> tuple[str | None, Ids | None, pa.Table]:
    """Read a table of users or items; returns the name of its id column, its ids, and the rest."""
    role = f"{kind}_id"
    if source is None:
        return columns.get(role), None, pa.table({})
    table, title, where = as_table(source, kind)
    own = columns if columns.get(role) in table.column_names else {}
    name = find_columns(table.column_names, own, title, [role])[role]
    ids = Ids.of(table.column(name), kind, where)
    return name, ids, infer_types(table, keep=name).drop_columns([name])


def read_sides(
    users: TableLike | None, items: TableLike | None, columns: Columns
) -> tuple[Ids | None, pa.Table, Ids | None, pa.Table, dict[str, str]]:
    """Read the tables of users and items; the column of titles must be there.

    Returns
    -------
    user_ids, users, item_ids, items, columns
        The ids and the other columns of each table, and which columns held ids and titles.
    """
    user_column, user_ids, user_table = read_id_table(users, "user", columns)
    item_column, item_ids, item_table = read_id_table(items, "item", columns)
    named = {"user_id": user_column, "item_id": item_column}
    used = {role: column for role, column in named.items() if column is not None}
    used |= find_columns(item_table.column_names, columns, "the item table", (), [TITLE])
    return user_ids, user_table, item_ids, item_table, used


@dataclass(frozen=True)
class RatingOptions:
    """What a caller says about ratings; `Dataset.from_tables` describes it."""

    columns: Columns = field(default_factory=dict)
    kind: FeedbackKind | None = None
    favourite: Favourite | None = None
    event_weights: Mapping[str, float] | None = None
    scale: Scale | None = None
    duplicates: Duplicates | None = None

    def __post_init__(self) -> None:
        roles = (*ROLES, TITLE)
        if not isinstance(self.columns, Mapping) or not {*self.columns} <= {*roles}:
            raise SettingError(f"columns={self.columns!r}", hint=f"roles: {', '.join(roles)}")
        Feedback(self.kind or "ratings", self.favourite, self.scale)  # checks them
        check_choice("duplicates", self.duplicates or "error", get_args(Duplicates))

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of columns of a text that are not read as text."""
        return {name: pa.float32() for name in _names_of("rating", self.columns) if name}

    def find_columns(self, names: list[str], title: str) -> dict[str, str]:
        """Find the columns of ratings; that of a rating or a time may be mapped to None.

        Events have no column of ratings. A table without one is one of events if it has a column
        for their type, or no columns but ids and times.
        """
        needed, columns = ["user_id", "item_id"], self.columns
        if self.event_weights is not None:
            needed.append("event")
        if self.event_weights is not None or self.kind == "events":
            columns = {**columns, "rating": None}
        names = [name for name in names if name != "id" or name in columns.values()]  # of the row
        found = find_columns(names, columns, title, needed, ROLES)
        is_events = "event" in found or {*found.values()} == {*names}
        if "rating" not in found and columns.get("rating", "") is not None and not is_events:
            find_columns(names, columns, title, ["rating"])  # raises an error
        return found

    def feedback(self, values: Callable[[], np.ndarray], column: str | None) -> Feedback:
        """Return the feedback, its kind guessed from values if it is not given."""
        kind = self.kind
        if kind is None and column is None:
            kind = "events" if self.event_weights is None else "counts"
        if kind is None:
            kind = guess_kind(values(), column) if self.scale is None else "ratings"
        return Feedback(kind, self.favourite)

    def duplicates_of(self, feedback: Feedback) -> Duplicates:
        """Return what to do with repeated rows: those of counts and events are added up."""
        return self.duplicates or ("error" if feedback.kind == "ratings" else "sum")


def read_ratings(
    source: TableLike, users: Ids | None, items: Ids | None, options: RatingOptions
) -> Ratings:
    """Read a table of ratings; ids not in `users` or `items` come after those."""
    table, title, where = as_table(source, "ratings", options.types)
    found = options.find_columns(table.column_names, title)
    rows, values, column = read_values(NamedTable(table, title, where), found, options)
    if not len(rows):
        raise DataError(f"{title} has columns, but no ratings", hint="is it the right file?")
    feedback = options.feedback(lambda: values, found.get("rating"))
    return Ratings.from_columns(
        column["user_id"],
        column["item_id"],
        values,
        times=_as_times(column["timestamp"]) if "timestamp" in found else None,
        users=users,
        items=items,
        scale=options.scale,
        duplicates=options.duplicates_of(feedback),
        feedback=feedback,
        where=lambda row: where(int(rows[row])),
    )


def read_values(
    named: NamedTable, found: Mapping[str, str], options: RatingOptions
) -> tuple[np.ndarray, np.ndarray, dict[str, pa.ChunkedArray]]:
    """Return which rows count, what each of them is worth, and their columns by role."""
    table, title, where = named
    rows = np.arange(table.num_rows)
    values = np.ones(len(rows), dtype=np.float32)
    if options.event_weights is not None:
        labels = as_texts(table.column(found["event"]), "event", where)
        kinds = labels.combine_chunks().dictionary_encode()
        weights = _weigh_kinds(kinds.dictionary.to_pylist(), options.event_weights, title)
        values = weights[kinds.indices.to_numpy()]
        rows = np.flatnonzero(values)
        table, values = table.take(pa.array(rows)), values[rows]
    if "rating" in found and len(rows):
        values = _as_numbers(table.column(found["rating"]), found["rating"], where)
    return rows, values, {role: table.column(name) for role, name in found.items()}


def find_columns(
    names: list[str], columns: Columns, title: str, needed: Roles, optional: Roles = ()
) -> dict[str, str]:
    """Find the column of each role: as mapped, or the first that has one of its usual names."""
    found: dict[str, str] = {}
    for role in dict.fromkeys((*needed, *optional)):
        name = next((name for name in _names_of(role, columns) if name in names), None)
        if name is not None:
            found[role] = name
        elif role in needed or columns.get(role) is not None:
            wanted = f"{columns[role]!r} for {role}" if columns.get(role) else f"for {role}"
            none = ", or {'rating': None} if each row is an event" if role == "rating" else ""
            there = ", ".join(map(repr, names)) or "none"
            header = "a file needs a header line (or TableFile(..., names=[...]))"
            hint = f"columns={{{role!r}: NAME}}{none}; {header}"
            raise ColumnError(f"{title} has no column {wanted}: it has {there}", hint=hint)
    if len(set(found.values())) < len(found):
        raise ColumnError(f"{title}: one column for two roles: {found}", hint="one column each")
    return found


def _names_of(role: str, columns: Columns) -> Iterable[str | None]:
    """Return the names that the column of a role may have."""
    return [columns[role]] if role in columns else ROLES.get(role, ())


def _weigh_kinds(kinds: list[str], weights: Mapping[str, float], title: str) -> np.ndarray:
    """Return how much an event of each kind counts."""
    known: dict[str, float] = {}
    with suppress(AttributeError, TypeError, ValueError):
        known = {str(kind): float(weight) for kind, weight in weights.items()}
    if not known or not all(0 <= weight <= MAX_RATING for weight in known.values()):
        hint = "a number for each type, 0 to leave it out (--event-weight TYPE=WEIGHT)"
        raise SettingError(f"event_weights={weights!r}", hint=hint)
    for kind in kinds:
        if kind not in known:
            hint = f"there are weights for {', '.join(known)}; 0 leaves a type out"
            raise DataError(f"{title}: no weight for {kind!r}", hint=hint)
    return np.array([known[kind] for kind in kinds])


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
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"column {name!r}: ratings are of type {kind}", hint="numbers such as 3.5")
    return column.to_numpy()  # type: ignore[no-any-return]


def _as_times(column: pa.ChunkedArray) -> np.ndarray | None:
    """Return times as sortable whole numbers; None where some are missing or all are equal.

    Texts are times, or a warning tells that they are not.
    """
    found = (number_times(column, form) for form in TIME_FORMS)
    numbers = next((each for each in found if each is not None), None)
    if numbers is None:
        warn_of_times(column)
    if numbers is None or numbers.null_count or pc.count_distinct(numbers).as_py() < 2:
        return None
    return numbers.to_numpy()  # type: ignore[no-any-return]


def number_times(column: pa.ChunkedArray, form: pa.DataType) -> pa.Array | None:
    """Return times as whole numbers in the same order; None if one is not of a form.

    Whole numbers stay as they are, dates become microseconds since 1970 where that is exact.
    """
    kind = column.type
    if not (pa.types.is_primitive(kind) or kind in (pa.string(), pa.null())):
        raise DataError(f"times are of type {kind}", hint="columns={'timestamp': None}")
    column = column.combine_chunks()
    try:
        if pa.types.is_string(column.type):
            column = pc.if_else(pc.is_in(column, pa.array(NULLS)), None, column)
            column = pc.utf8_trim_whitespace(column)
            column = _as_days(column) if form == pa.string() else column.cast(form)
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            unit, zone = getattr(form, "unit", "us"), getattr(column.type, "tz", None)
            column = column.cast(pa.timestamp(unit, zone))
        if pa.types.is_temporal(column.type) and column.type.bit_width == 32:
            column = column.cast(pa.int32())
        if pa.types.is_temporal(column.type) or pa.types.is_integer(column.type):
            return column.cast(pa.int64())
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # no -0.0
    except (pa.ArrowInvalid, DataError):
        return None
    bits = numbers.view(np.int64)  # in the order of positive floats, against that of negative ones
    bits = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return pa.array(bits, mask=np.isnan(numbers))


def _as_days(texts: pa.Array) -> pa.Array:
    """Return dates in any form as days."""
    encoded = texts.dictionary_encode()
    days = pa.array([as_days(text) for text in encoded.dictionary.to_pylist()], pa.float64())
    return days.take(encoded.indices)


def warn_of_times(texts: pa.ChunkedArray) -> None:
    """Warn that the texts of a column of times are not dates."""
    example = texts.drop_null()[0].as_py()
    message = f"times such as {example!r} are not clear, so the order of events is unknown"
    warnings.warn(f"{message}; hint: write 2024-01-31", UnlikelyData, stacklevel=2)
