"""External ids <-> rows, strict both ways.

An id is a text. A whole number and its decimal spelling are the same id (`1193` is `"1193"`, but
`"007"` is not `"7"`), so that a ratings file and an item table may disagree about the type of a
column and still meet. The text is kept as it came: spaces, quotes and any script are allowed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.arrays.checks import take
from coldhash.errors import DataError, UnknownId

FEW = 64  # up to here one binary search each beats building a hash table over all ids
EXACT = 2.0**53  # from here on a float may be another whole number than the one it was made from


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of one kind of entity, in row order; `of` builds them from anything.

    Examples
    --------
    >>> films = Ids.of([1193, "661", "007"], "film")
    >>> films.rows(["007", 661]).tolist(), films.find(["7"]).tolist()
    ([2, 1], [-1])
    >>> films[0], 1193 in films
    ('1193', True)
    """

    values: pa.Array  # strings, without nulls or repeats
    kind: str = "id"  # what an error calls them: "user", "item"

    @classmethod
    def of(
        cls,
        values: Iterable[Any],
        kind: str = "id",
        where: Callable[[int], str] = "row {}".format,
    ) -> Ids:
        """Take the ids in the order given; a repeated or missing one is an error."""
        texts = as_texts(values, kind, where)
        if len(pc.unique(texts)) < len(texts):
            raise _repeated(texts, kind, where)
        return cls(texts, kind)

    @classmethod
    def stored(cls, arrays: Mapping[str, np.ndarray], kind: str, verify: bool = True) -> Ids:
        """Take ids that `arrays` gave, without copying or sorting them again.

        With `verify` all of them are checked, so that each is safe to read.
        """
        offsets = take(arrays, {"offsets": ("i4 i8", "ends")})["offsets"]
        take(arrays, {"bytes": ("u1", "bytes"), "order": ("u4", len(offsets) - 1)})
        large = offsets.dtype == np.int64
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(arrays["bytes"])]
        form = pa.large_string() if large else pa.string()
        ids = cls(pa.Array.from_buffers(form, len(offsets) - 1, buffers), kind)
        checked = ids.values
        if verify and arrays["bytes"].max(initial=0) < 128:  # ASCII: no need to decode each id
            form = pa.large_binary() if large else pa.binary()
            checked = pa.Array.from_buffers(form, len(checked), buffers)
        checked.validate(full=verify)
        ids.__dict__["_order"] = arrays["order"]
        return ids

    def arrays(self) -> dict[str, np.ndarray]:
        """Give the ids as plain arrays, for a model file."""
        large = self.values.nbytes >= 2**31
        values = self.values.cast(pa.large_string() if large else pa.string())
        values = pa.concat_arrays([values])  # a slice would keep offsets that start elsewhere
        _, offsets, content = values.buffers()
        kind = np.dtype(np.int64 if large else np.int32)
        starts = np.frombuffer(offsets, kind, len(values) + 1) if len(values) else np.zeros(1, kind)
        starts = starts - starts[0]
        n_bytes = int(starts[-1])
        body = np.frombuffer(content, np.uint8, n_bytes) if n_bytes else np.zeros(0, np.uint8)
        return {"offsets": starts, "bytes": body, "order": self._order.astype(np.uint32)}

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.values.to_pylist())

    def __getitem__(self, row: int | np.integer[Any]) -> str:
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

    def row_of(self, text: str) -> int:
        """Give the row of one id, -1 if it is unknown."""
        return self._find(text)

    def texts(self, rows: np.ndarray) -> list[list[str]]:
        """Give the ids of a table of rows, line by line; -1 is nobody."""
        return [[self[row] for row in line if row >= 0] for line in rows.tolist()]

    def take(self, rows: np.ndarray) -> Ids:
        """Give the ids of some rows, in that order; a row twice is an error."""
        return Ids.of(self.values.take(pa.array(rows, pa.int64())), self.kind)

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
        f"{value!r} ({type(value).__name__}) is no {kind} id",
        hint="an id is a non-empty text or a whole number",
    )


def as_texts(
    values: Iterable[Any],
    kind: str = "id",
    where: Callable[[int], str] = "row {}".format,
) -> pa.Array:
    """Spell a column of ids as text; `where` names a row in an error."""
    column = _as_array(values, kind)
    if column.null_count == len(column):
        column = pa.nulls(len(column), pa.string())  # of no type worth complaining about
    elif pa.types.is_floating(column.type):
        column = _whole_numbers(column, kind, where)
    elif not (pa.types.is_integer(column.type) or is_text(column.type)):
        raise DataError(
            f"{kind} ids are of type {column.type}",
            hint="ids are texts or whole numbers: cast the column",
        )
    column = column.cast(pa.string())
    missing = pc.fill_null(pc.equal(pc.binary_length(column), 0), True)
    if pc.any(missing).as_py():
        raise DataError(
            f"{where(pc.index(missing, True).as_py())}: no {kind} id",
            hint="remove the row, or give it an id",
        )
    return column


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts, whatever the layout."""
    return any(
        test(kind)
        for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _as_array(values: Iterable[Any], kind: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, str | int) or (isinstance(values, np.ndarray) and values.ndim != 1):
        raise DataError(
            f"{values!r} where a list of {kind} ids is expected", hint="[...] around a single id"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        return pa.array(values)
    try:
        return pa.array([as_text(value, kind) for value in values], pa.string())
    except UnicodeEncodeError as error:
        raise DataError(
            f"{error.object!r} is no {kind} id: it is not valid Unicode",
            hint="half of a surrogate pair: decode the text anew",
        ) from None


def _whole_numbers(column: pa.Array, kind: str, where: Callable[[int], str]) -> pa.Array:
    """Undo what data frames do to whole numbers when one of them is missing."""
    numbers = column.to_numpy(zero_copy_only=False)  # null and NaN alike are NaN
    whole = np.isnan(numbers) | ((np.abs(numbers) < EXACT) & (numbers == np.rint(numbers)))
    if not whole.all():
        row = int(np.argmin(whole))
        raise DataError(
            f"{where(row)}: {numbers[row]!s} is no {kind} id: "
            "it has a fraction, or more digits than a float keeps",
            hint="read the column as text or as int64",
        )
    return pa.array(numbers, from_pandas=True).cast(pa.int64())


def _repeated(texts: pa.Array, kind: str, where: Callable[[int], str]) -> DataError:
    codes = texts.dictionary_encode().indices.to_numpy()  # numbered in order of appearance
    first = np.unique(codes, return_index=True)[1]
    again = int(np.setdiff1d(np.arange(len(codes)), first)[0])
    return DataError(
        f"{where(again)}: {kind} {texts[again].as_py()!r} is there already, "
        f"in {where(int(first[codes[again]]))}",
        hint=f"one row for each {kind}",
    )
