"""People as callers describe them -> columns of values, and their histories as ratings."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from coldhash.arrays.products import SparseRows
from coldhash.data import ArrowTable
from coldhash.data.ids import Ids, as_text
from coldhash.errors import DataError, UnknownColumns
from coldhash.features.columns import Value

HISTORY = "history"
ANSWERS = "answers"
_PEOPLE = "a dict such as {'age': 25}, a list of dicts, or a table"
Person: TypeAlias = Mapping[str, object]
# one person, several, or a pandas, polars or pyarrow table or a file of them
People: TypeAlias = Person | Sequence[Person] | ArrowTable | str | Path


def as_columns(people: People) -> tuple[Mapping[str, Value], int]:
    """Turn one dict, several or a table into columns of values; returns also how many people."""
    if isinstance(people, Mapping):
        return {name: [value] for name, value in people.items()}, 1
    if isinstance(people, Sequence) and not isinstance(people, str):
        for person in people:
            if not isinstance(person, Mapping):
                raise DataError(f"a {type(person).__name__} is not a person", hint=_PEOPLE)
        names = dict.fromkeys(name for person in people for name in person)
        return {name: [person.get(name) for person in people] for name in names}, len(people)
    from coldhash.data.tables import as_table  # slow to import, and one person does not need it

    table = as_table(people, "user").table
    return {name: table.column(name) for name in table.column_names}, table.num_rows


def check_fields(people: People, names: Iterable[str], known: Collection[str]) -> None:
    """Raise an error for a field of a dict that is not known; warn of such columns of a table."""
    extra = [name for name in names if name not in known]
    if not extra:
        return
    if not isinstance(people, str) and isinstance(people, Mapping | Sequence):
        hint = suggest(extra[0], known) or f"one of {', '.join(known)}"
        message = f"no field of a person is called {extra[0]!r}"
        raise DataError(message, hint=f"{hint} (or unknown='ignore')")
    meant = [(name, suggest(name, known)) for name in extra]
    texts = [f"{name!r} ({hint})" if hint else repr(name) for name, hint in meant]
    message = f"the model does not know {', '.join(texts)}; hint: unknown='ignore'"
    warnings.warn(message, UnknownColumns, stacklevel=5)  # where `recommend` is called


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question about the name that may be meant; empty if none is like it."""
    from difflib import get_close_matches

    close = get_close_matches(str(name), known, 1)
    return f"did you mean {close[0]}?" if close else ""


class Histories(NamedTuple):
    """Ratings that people have given (people x items); those of unknown items are left out."""

    ratings: SparseRows | None  # None: nobody has given any
    ignored: list[tuple[int, str]]  # the person's row, and the id of the unknown item


def read_histories(
    column: Value, n_rows: int, items: Ids, scale: tuple[float, float], answers: bool = False
) -> Histories:
    """Turn histories, dicts of item id -> rating or lists of item ids, into ratings.

    An item that the model has never seen is left out and reported;
    a rating outside the scale is an error. An item without a rating, bought or seen, is a NaN.
    `answers` are dicts, in which a NaN stands for None: the person does not know the item.
    """
    if isinstance(column, pa.ChunkedArray):
        column = _read_column(column)
    if column is None or not any(column):
        return Histories(None, [])
    ends, ignored = [0], []
    rated: list[int] = []
    values: list[float] = []
    for row, history in enumerate(column):
        if answers and history is not None and not isinstance(history, Mapping):
            raise DataError("answers are not a dict", hint='{"1193": 5, "661": None}')
        given: dict[int, float] = {}
        for item_id in _item_ids(history):
            text = as_text(item_id, "item")
            rating = np.nan
            if isinstance(history, Mapping) and not (answers and history[item_id] is None):
                rating = _check_rating(text, history[item_id], scale)
            item = items.row_of(text)
            if item < 0:
                ignored.append((row, text))
            else:
                given[item] = rating
        rated += given.keys()
        values += given.values()
        ends.append(len(rated))
    entries = (np.array(values, np.float32), np.array(rated, np.int32), np.array(ends, np.int32))
    return Histories(SparseRows(*entries, (n_rows, len(items))), ignored)


def _read_column(column: pa.ChunkedArray) -> list[Value]:
    """Return lists as they are; objects of a JSON lines file share all their keys."""
    rows: list[Value] = column.to_pylist()
    if pa.types.is_list(column.type):
        return rows
    return [{k: v for k, v in dict(row or {}).items() if v is not None} for row in rows]


def _item_ids(history: Value) -> Iterable[Value]:
    """Return the items of a history."""
    if not history or isinstance(history, Mapping | list | tuple | set | frozenset):
        return history or ()
    hint = 'a dict of item id -> rating, such as {"1193": 5}, or a list of item ids'
    raise DataError(f"a history of type {type(history).__name__}", hint=hint)


def _check_rating(item: str, value: Value, scale: tuple[float, float]) -> float:
    low, high = scale
    if isinstance(value, int | float | np.number) and low <= value <= high:
        return float(value)
    hint = f"a number from {low:g} to {high:g}"
    raise DataError(f"the rating {value!r} of item {item!r} is outside the scale", hint=hint)
