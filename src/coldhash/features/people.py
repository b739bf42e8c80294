"""What a caller says about people -> columns of values, and histories as ratings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.data.ids import Ids
from coldhash.data.tables import as_table
from coldhash.errors import DataError

HISTORY = "history"


def as_columns(people: Any) -> tuple[Mapping[str, Any], int]:
    """Turn one dict, dicts or a table into columns of values."""
    if isinstance(people, Mapping):
        return {name: [value] for name, value in people.items()}, 1
    if isinstance(people, Sequence) and not isinstance(people, str):
        names = dict.fromkeys(name for person in people for name in _checked(person))
        return {name: [person.get(name) for person in people] for name in names}, len(people)
    table, _ = as_table(people, lambda _: {}, "user")
    return {name: table.column(name) for name in table.column_names}, table.num_rows


def _checked(person: Any) -> Mapping[str, Any]:
    if not isinstance(person, Mapping):
        raise DataError(
            f"a {type(person).__name__} is not a person",
            hint="a dict such as {'age': 25}, a list of dicts, or a table",
        )
    return person


def histories(column: Any, n_rows: int, items: Ids) -> csr_array | None:
    """Turn histories, dicts of item id -> rating, into people x items; unknown items are left out.

    None if nobody has a history.
    """
    if column is None or not any(column):
        return None
    owners, rated, values = [], [], []
    for row, history in enumerate(column):
        if not history:
            continue
        if not isinstance(history, Mapping):
            raise DataError(
                f"a history of type {type(history).__name__}",
                hint='a dict of item id -> rating, such as {"1193": 5}',
            )
        at = items.find(history.keys())
        known = at >= 0
        owners.append(np.full(known.sum(), row))
        rated.append(at[known])
        values.append(np.array([float(x) for x in history.values()], dtype=np.float32)[known])
    flat = (np.concatenate(values), (np.concatenate(owners), np.concatenate(rated)))
    return csr_array(flat, shape=(n_rows, len(items)))
