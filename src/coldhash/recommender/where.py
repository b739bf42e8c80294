"""Filters by attributes of items: `where={"genres": ["comedy", "drama"], "year": {"min": 1990}}`.

An item matches if it matches every column that is named. A column matches one value, any value of a
list, or a range of numbers. Of a column with several labels, in a list or in a text that the
feature plan splits, any label matches, and so does the whole text.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.data.ids import Ids, is_text
from coldhash.errors import SettingError, blame
from coldhash.features.people import suggest

Value: TypeAlias = str | float | bool
Condition: TypeAlias = Value | Sequence[Value] | Mapping[str, float]
Where: TypeAlias = Mapping[str, Condition]
Kind = Literal["number", "boolean", "text"]

MAX_KEPT = 32  # subsets: a bit for each item
BOUNDS = ("min", "max")
EXPECTED = {"number": "a number", "boolean": "true or false", "text": "a text"}


@dataclass(frozen=True, eq=False)
class ColumnIndex:
    """The different values of a column, and the rows that have them."""

    name: str
    kind: Kind
    values: np.ndarray | Ids  # different from each other; numbers ascend
    places: np.ndarray  # in `values`, of what is not missing
    rows: np.ndarray  # where that is

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray, separator: str | None) -> ColumnIndex:
        """Index a column, of which `separator` divides a text into labels."""
        kind = kind_of(element_type(column.type))
        if kind is None:
            raise SettingError(f"column {name!r} holds {column.type}", hint="another column")
        flat, rows = _flatten(column, separator)
        values: np.ndarray | Ids
        if kind == "number":
            flat = flat.cast(pa.float64()) if pa.types.is_decimal(flat.type) else flat
            values, places = np.unique(_as_numpy(flat), return_inverse=True)
        else:
            encoded = flat.cast(pa.string()).dictionary_encode()
            values, places = Ids(encoded.dictionary, "value"), _as_numpy(encoded.indices)
        return cls(name, kind, values, places.astype(np.int32), rows.astype(np.int32))

    def find(self, condition: Condition) -> np.ndarray:
        """Return the rows that match."""
        matches = np.zeros(len(self.values) + 1, dtype=bool)  # the last one is of no value
        if isinstance(condition, Mapping):
            matches[self._find_range(condition)] = True
        else:
            wanted: list[Any] = condition if isinstance(condition, list) else [condition]
            matches[[self._place(self._as_key(value)) for value in wanted]] = True
        return np.asarray(self.rows[matches[self.places]])

    def _place(self, key: Any) -> int:
        if isinstance(self.values, Ids):
            return self.values.row_of(key) if key else -1
        at = bisect_left(self.values, key)
        return at if at < len(self.values) and self.values[at] == key else -1

    def _find_range(self, bounds: Mapping[str, float]) -> slice:
        if isinstance(self.values, Ids) or not bounds or not set(bounds) <= set(BOUNDS):
            hint = 'a value, a list of values or, of numbers, {"min": 1, "max": 2}'
            raise SettingError(f"column {self.name!r}: {dict(bounds)} is no range", hint=hint)
        low, high = (self._as_key(bounds[name]) if name in bounds else None for name in BOUNDS)
        first = 0 if low is None else bisect_left(self.values, low)
        last = len(self.values) if high is None else bisect_right(self.values, high)
        return slice(first, last)

    def _as_key(self, value: Value) -> Any:
        """Return a value as it is in the index; raise an error if it is of another type."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # in JSON, 1.0 is 1
        kinds = {bool: ("boolean",), int: ("number", "text"), float: ("number",), str: ("text",)}
        if self.kind not in kinds.get(type(value), ()):
            expected = EXPECTED[self.kind]
            message = f"column {self.name!r}: {value!r} is not {expected}"
            raise SettingError(message, hint=f"{expected}, or a list of them")
        if self.kind == "boolean":
            return str(value).lower()
        return value if self.kind == "number" else str(value)


class ItemFilter:
    """Finds the items that match, by an index of each column that is made when it is first used.

    Parameters
    ----------
    n_items
        The number of items.
    table
        The item table; one without columns may have no rows.
    separators
        What divides the texts of columns into labels.
    subset
        Converts a mask of rows to what a search takes.
    """

    def __init__(
        self,
        n_items: int,
        table: pa.Table,
        separators: Mapping[str, str],
        subset: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        match = partial(_match, n_items, cache(partial(_index_column, table, separators)))
        self._match = match
        # without self, so that a model is gone at once when it is not used any more
        self._subset = lru_cache(MAX_KEPT)(lambda text: subset(match(text)))

    def mask(self, where: Where) -> np.ndarray:
        """Return whether each item matches."""
        return self._match(_as_json(where))

    def subset(self, where: Where | None) -> np.ndarray | None:
        """Return the items that match as a search takes them; the last ones asked for are kept."""
        return None if where is None else self._subset(_as_json(where))


def kind_of(form: pa.DataType) -> Kind | None:
    """Return what values of a column are compared as; None if they cannot be."""
    types = pa.types
    if types.is_integer(form) or types.is_floating(form) or types.is_decimal(form):
        return "number"
    if types.is_boolean(form):
        return "boolean"
    return "text" if is_text(form) or types.is_temporal(form) else None


def element_type(form: pa.DataType) -> pa.DataType:
    """Return the type of the values in a column: those of its lists, if it holds lists."""
    nested = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    coded = pa.types.is_dictionary(form) or any(test(form) for test in nested)
    return element_type(form.value_type) if coded else form


def _flatten(column: pa.ChunkedArray, separator: str | None) -> tuple[pa.Array, np.ndarray]:
    """Return the values of a column that are not missing, and the row of each."""
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    rows = np.arange(len(values))
    if element_type(values.type) != values.type or separator is not None:
        whole = separator is not None and is_text(values.type)
        lists = pc.split_pattern(values, separator) if whole else values
        labels, parents = pc.list_flatten(lists), _as_numpy(pc.list_parent_indices(lists))
        if whole:
            labels = pa.concat_arrays([pc.utf8_trim_whitespace(labels), values])
        values, rows = labels, np.concatenate([parents, rows]) if whole else parents
    if pa.types.is_floating(values.type):
        known = pc.invert(pc.is_null(values, nan_is_null=True))
    else:
        known = values.is_valid()
    return values.filter(known), rows[_as_numpy(pc.indices_nonzero(known))]


def _as_numpy(numbers: pa.Array) -> np.ndarray:
    """Return an array without nulls; `to_numpy` would import pandas, which takes a second."""
    return np.from_dlpack(numbers) if len(numbers) else np.zeros(0, np.int64)


def find_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of an item table; raise an error if it has no such column."""
    if name not in table.column_names:
        hint = suggest(name, table.column_names) or f"it has: {', '.join(table.column_names)}"
        raise SettingError(f"the item table has no column {name!r}", hint=hint)
    return table.column(name)


def _index_column(table: pa.Table, separators: Mapping[str, str], name: str) -> ColumnIndex:
    return ColumnIndex.of(name, find_column(table, name), separators.get(name))


def _match(n_items: int, index: Callable[[str], ColumnIndex], text: str) -> np.ndarray:
    mask = np.ones(n_items, dtype=bool)
    with blame("where"):
        for name, condition in json.loads(text).items():
            matches = np.zeros(n_items, dtype=bool)
            matches[index(name).find(condition)] = True
            mask &= matches
    return mask


def _as_json(where: Where) -> str:
    """Return conditions as a text: a key under which 1 and true differ."""
    return json.dumps(dict(where), sort_keys=True, default=_plain)


def _plain(value: object) -> object:
    """Return what JSON does not know as a list, a dict, a number or a text."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, set | frozenset | np.ndarray) else str(value)
