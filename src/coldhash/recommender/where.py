"""Filters by attributes of items: `where={"genres": ["comedy", "drama"], "year": {"min": 1990}}`.

An item matches if it matches every column that is named. A column matches one value, any value of a
list, or a range of numbers. Of a column with several labels, in a list or in a text that the
feature plan splits, any label matches, and so does the whole text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from operator import methodcaller
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.data.ids import Ids, is_text
from coldhash.errors import SettingError, blame
from coldhash.features.columns import FittedColumn
from coldhash.features.people import suggest
from coldhash.recommender.items import Items

Value: TypeAlias = str | float | bool
Condition: TypeAlias = Value | Sequence[Value] | Mapping[str, float]
Where: TypeAlias = Mapping[str, Condition]
Kind = Literal["number", "boolean", "text"]

MAX_KEPT = 32  # subsets: a bit for each item
BOUNDS = {"min": -np.inf, "max": np.inf}
EXPECTED = {"number": "a number", "boolean": "true or false", "text": "a text"}


class ColumnIndex(NamedTuple):
    """The values of a column that are not missing, and the rows that have them."""

    name: str
    kind: Kind
    values: Ids | np.ndarray  # different texts, or numbers
    places: np.ndarray | slice  # of each value in `values`
    rows: np.ndarray  # of each value

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray, separator: str | None) -> ColumnIndex:
        """Index a column, of which `separator` divides a text into labels."""
        kind = kind_of(column.type)
        if kind is None:
            raise SettingError(f"column {name!r} holds {column.type}", hint="another column")
        values, rows = _flatten(column, separator)
        if kind == "number":
            return cls(name, kind, _as_numpy(values), slice(None), rows)
        coded = values.cast(pa.string()).dictionary_encode()
        return cls(name, kind, Ids(coded.dictionary, "value"), _as_numpy(coded.indices), rows)

    def find(self, condition: Condition) -> np.ndarray:
        """Return the rows that match."""
        matches = np.zeros(len(self.values), dtype=bool)
        if isinstance(condition, Mapping):
            if isinstance(self.values, Ids) or not condition or not {*condition} <= {*BOUNDS}:
                hint = 'a value, a list of values or, of numbers, {"min": 1, "max": 2}'
                raise SettingError(f"column {self.name!r}: {condition} is no range", hint=hint)
            low, high = (self._as_key(condition.get(name, end)) for name, end in BOUNDS.items())
            matches |= (self.values >= low) & (self.values <= high)
        else:
            wanted: list[Any] = condition if isinstance(condition, list) else [condition]
            for key in [self._as_key(value) for value in wanted]:
                if isinstance(self.values, np.ndarray):
                    matches |= self.values == key
                elif (place := self.values.row_of(key)) >= 0:
                    matches[place] = True
        return np.asarray(self.rows[matches[self.places]])

    def _as_key(self, value: Value) -> Any:
        """Return a value as it is in the index; raise an error if it is of another type."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # in JSON, 1.0 is 1
        kinds = {bool: ("boolean",), int: ("number", "text"), float: ("number",), str: ("text",)}
        if self.kind not in kinds.get(type(value), ()):
            expected = EXPECTED[self.kind]
            message = f"column {self.name!r}: {value!r} is not {expected}"
            raise SettingError(message, hint=f"{expected}, or a list of them")
        if self.kind != "number":
            return str(value).lower() if self.kind == "boolean" else str(value)
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            return np.inf if value > 0 else -np.inf
        return value


class ItemFilter:
    """Finds the items that match, by an index of each column that is made when it is first used.

    Parameters
    ----------
    items
        The item side of the model.
    table
        The item table; one without columns may have no rows.
    fitted
        The columns that were learned from: some divide texts into labels.
    """

    def __init__(self, items: Items, table: pa.Table, fitted: Mapping[str, FittedColumn]) -> None:
        # functions without self, so that a model is gone at once when it is not used any more
        @cache
        def index(name: str) -> ColumnIndex:
            separator = getattr(fitted.get(name), "separator", None) or None
            return ColumnIndex.of(name, find_column(table, name), separator)

        def match(text: str) -> np.ndarray:
            mask = np.ones(len(items), dtype=bool)
            with blame("where"):
                for name, condition in json.loads(text).items():
                    matches = np.zeros(len(items), dtype=bool)
                    matches[index(name).find(condition)] = True
                    mask &= matches
            return mask

        self._match = match
        self._subset = lru_cache(MAX_KEPT)(lambda text: items.subset(match(text)))

    def mask(self, where: Where) -> np.ndarray:
        """Return whether each item matches."""
        return self._match(_as_json(where))

    def subset(self, where: Where | None) -> np.ndarray | None:
        """Return the items that match as a search takes them; the last ones asked for are kept."""
        return None if where is None else self._subset(_as_json(where))


def kind_of(form: pa.DataType) -> Kind | None:
    """Return what the values of a column, or of its lists, are compared as; None if they cannot."""
    types = pa.types
    if types.is_list(form):
        return kind_of(form.value_type)
    if types.is_integer(form) or types.is_floating(form):
        return "number"
    if types.is_boolean(form):
        return "boolean"
    return "text" if is_text(form) or types.is_temporal(form) else None


def _flatten(column: pa.ChunkedArray, separator: str | None) -> tuple[pa.Array, np.ndarray]:
    """Return the values of a column that are not missing, and the row of each."""
    values = column.combine_chunks()
    rows = np.arange(len(values), dtype=np.int32)
    texts = values if separator is not None and is_text(values.type) else None
    lists = values if texts is None else pc.split_pattern(texts, separator)
    if pa.types.is_list(lists.type):
        values, rows = pc.list_flatten(lists), rows[_as_numpy(pc.list_parent_indices(lists))]
    if texts is not None:
        values = pa.concat_arrays([pc.utf8_trim_whitespace(values), texts])
        rows = np.concatenate([rows, np.arange(len(texts), dtype=np.int32)])
    known = _as_numpy(pc.indices_nonzero(values.is_valid()))
    return values.drop_null(), rows[known]


def _as_numpy(numbers: pa.Array) -> np.ndarray:
    """Return an array without nulls; `to_numpy`, as `pa.array`, would import pandas."""
    return np.from_dlpack(numbers) if len(numbers) else np.zeros(0, np.int64)


def find_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of an item table; raise an error if it has no such column."""
    if name not in table.column_names:
        hint = suggest(name, table.column_names) or f"it has: {', '.join(table.column_names)}"
        raise SettingError(f"the item table has no column {name!r}", hint=hint)
    return table.column(name)


def _as_json(where: Where) -> str:
    """Return conditions as a text: a key under which 1 and true differ."""
    try:
        conditions = {str(name): condition for name, condition in where.items()}
        return json.dumps(conditions, sort_keys=True, default=methodcaller("tolist"))  # of numpy
    except (AttributeError, TypeError, ValueError):
        hint = 'columns and values, such as {"year": {"min": 1990}}'
        with blame("where"):
            raise SettingError(f"where={where!r:.80}", hint=hint) from None
