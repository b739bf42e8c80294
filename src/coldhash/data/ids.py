"""External ids <-> rows, strict both ways.

An id is a text. A whole number and its decimal spelling are the same id (`1193` is `"1193"`, but
`"007"` is not `"7"`), so that a ratings file and an item table may disagree about the type of a
column and still meet. The text is kept as it came: spaces, quotes and any script are allowed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.errors import DataError, UnknownId

FEW = 64  # up to here one binary search each beats building a hash table over all ids


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of one kind of entity, in row order; `of` builds them from anything."""

    values: pa.Array  # strings, without nulls or repeats
    kind: str = "id"  # what an error calls them: "user", "item"

    @classmethod
    def of(cls, values: Iterable[Any], kind: str = "id") -> Ids:
        """Take the ids in the order given; a repeated or missing one is an error."""
        texts = as_texts(values, kind)
        if len(pc.unique(texts)) < len(texts):
            counts = pc.value_counts(texts)
            repeated = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
            raise DataError(
                f"{kind} {repeated!r} is there more than once",
                hint=f"one row for each {kind}",
            )
        return cls(texts, kind)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.values.to_pylist())

    def __getitem__(self, row: int) -> str:
        text: str = self.values[int(row)].as_py()
        return text

    def __contains__(self, value: object) -> bool:
        return self._find(as_text(value, self.kind)) >= 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and bool(self.values.equals(other.values))

    __hash__ = None  # type: ignore[assignment]

    def rows(self, values: Iterable[Any]) -> np.ndarray:
        """Give the row of each id; an unknown one is an error that names it."""
        texts = as_texts(values, self.kind)
        rows = self._find_all(texts)
        if (rows < 0).any():
            unknown = texts[int(np.argmax(rows < 0))].as_py()
            raise UnknownId(
                f"{self.kind} {unknown!r} is not among the {len(self):,} known ones",
                hint="ids are compared as text, so '007' and '7' differ",
            )
        return rows

    def find(self, values: Iterable[Any]) -> np.ndarray:
        """Give the row of each id, -1 where it is unknown."""
        return self._find_all(as_texts(values, self.kind))

    def take(self, rows: np.ndarray) -> Ids:
        """Give the ids of some rows, in that order."""
        return Ids(self.values.take(pa.array(rows)), self.kind)

    @cached_property
    def _order(self) -> np.ndarray:
        """Rows in the byte order of their ids, which is also Python's order of texts."""
        return pc.array_sort_indices(self.values).to_numpy()  # type: ignore[no-any-return]

    def _find_all(self, texts: pa.Array) -> np.ndarray:
        if len(texts) <= FEW:
            return np.array([self._find(text) for text in texts.to_pylist()], dtype=np.int64)
        found = pc.fill_null(pc.index_in(texts, value_set=self.values), -1)
        return found.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]

    def _find(self, text: str) -> int:
        at = bisect_left(self._order, text, key=self.__getitem__)
        if at < len(self) and self[self._order[at]] == text:
            return int(self._order[at])
        return -1


def as_text(value: object, kind: str = "id") -> str:
    """Spell one id as text."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    raise DataError(
        f"{value!r} ({type(value).__name__}) cannot be a {kind} id",
        hint="an id is a non-empty text or a whole number",
    )


def as_texts(
    values: Iterable[Any], kind: str = "id", where: Callable[[int], str] | None = None
) -> pa.Array:
    """Spell a column of ids as text; `where` names a row in an error."""
    column = _as_array(values, kind)
    if pa.types.is_floating(column.type):
        column = _whole_numbers(column, kind)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    elif not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        if len(column) and column.null_count < len(column):
            raise DataError(
                f"{kind} ids are of type {column.type}",
                hint="ids are texts or whole numbers: cast the column",
            )
        column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
    missing = column.is_null() if column.null_count else pc.equal(pc.binary_length(column), 0)
    if pc.any(missing).as_py():
        row = pc.index(missing, True).as_py()
        raise DataError(
            f"{where(row) if where else f'row {row}'}: no {kind} id",
            hint="remove the row, or give it an id",
        )
    return column


def _as_array(values: Iterable[Any], kind: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, str):
        raise DataError(f"one text where {kind} ids are expected", hint=f"[{values!r}]")
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return pa.array(values.astype(object) if values.dtype.kind == "U" else values)
    return pa.array([as_text(value, kind) for value in values], pa.string())


def _whole_numbers(column: pa.Array, kind: str) -> pa.Array:
    """Undo what data frames do to whole numbers when one of them is missing."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{kind} ids are numbers with a fraction or too large for a float ({error})",
            hint="read the column as text or as int64",
        ) from None
