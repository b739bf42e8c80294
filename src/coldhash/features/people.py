"""What a caller says about people -> columns of values, and histories as ratings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.data.ids import Ids, as_text
from coldhash.errors import DataError

HISTORY = "history"


def as_columns(people: Any) -> tuple[Mapping[str, Any], int]:
    """Turn one dict, dicts or a table into columns of values."""
    if isinstance(people, Mapping):
        return {name: [value] for name, value in people.items()}, 1
    if isinstance(people, Sequence) and not isinstance(people, str):
        names = dict.fromkeys(name for person in people for name in _checked(person))
        return {name: [person.get(name) for person in people] for name in names}, len(people)
    from coldhash.data.tables import as_table  # readers of files, which one person does not need

    table, _ = as_table(people, lambda _: {}, "user")
    return {name: table.column(name) for name in table.column_names}, table.num_rows


def _checked(person: Any) -> Mapping[str, Any]:
    if not isinstance(person, Mapping):
        raise DataError(
            f"a {type(person).__name__} is not a person",
            hint="a dict such as {'age': 25}, a list of dicts, or a table",
        )
    return person


@dataclass(frozen=True, eq=False)
class Histories:
    """Ratings that people just gave (people x items), and those of unknown items, left out."""

    ratings: csr_array
    ignored: list[tuple[int, str]]  # the person's place in the call, and the item id


def read_histories(
    column: Any, n_rows: int, items: Ids, scale: tuple[float, float]
) -> Histories | None:
    """Turn histories, dicts of item id -> rating, into ratings; None if nobody has one.

    An item that the model has never seen is left out and reported; a rating outside the scale is
    an error.
    """
    if isinstance(column, pa.ChunkedArray):  # objects of a JSON lines file share all their keys
        rows = [dict(row) if row else {} for row in column.to_pylist()]
        column = [{k: v for k, v in row.items() if v is not None} for row in rows]
    if column is None or not any(column):
        return None
    ends, rated, values, ignored = [0], [], [], []
    for row, history in enumerate(column):
        ends.append(ends[-1])
        if not history:
            continue
        if not isinstance(history, Mapping):
            raise DataError(
                f"a history of type {type(history).__name__}",
                hint='a dict of item id -> rating, such as {"1193": 5}',
            )
        for item_id, value in history.items():
            text = as_text(item_id, "item")
            rating, item = _checked_rating(text, value, scale), items.row_of(text)
            if item < 0:
                ignored.append((row, text))
            else:
                ends[-1] += 1
                rated.append(item)
                values.append(rating)
    entries = (np.array(values, np.float32), np.array(rated, np.int32), np.array(ends, np.int32))
    return Histories(csr_array(entries, shape=(n_rows, len(items))), ignored)


def _checked_rating(item: str, value: Any, scale: tuple[float, float]) -> float:
    low, high = scale
    if isinstance(value, int | float | np.number) and low <= value <= high:
        return float(value)
    raise DataError(
        f"the rating {value!r} of item {item!r} is outside the scale",
        hint=f"a number from {low:g} to {high:g}",
    )
