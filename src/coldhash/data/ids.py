"""External ids <-> rows, strict both ways.

An id is a text. A whole number and its decimal form are the same id (`1193` is `"1193"`, but
`"007"` is not `"7"`), so a ratings file and an item table may differ in the type of a column. The
text is kept as it is: spaces, quotes and any script are allowed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.arrays.checks import take
from coldhash.errors import DataError, UnknownId

_FEW = 64  # so few ids are found faster by binary search than by a hash table of all ids
_SMALL = 1 << 14  # ids up to which a table of all is kept in memory
_EXACT = 2.0**53  # from here on a float may differ from the whole number it was made from

IdValue: TypeAlias = str | int | np.integer
NameRow: TypeAlias = Callable[[int], str]  # names a row in errors, e.g. "ratings.csv, line 17"


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of users or items, in row order; `Ids.of` builds them from any sequence.

    Parameters
    ----------
    values : pyarrow.Array of string
        The ids, without nulls or repeats.
    kind : str
        What errors call them: "user", "item".

    Examples
    --------
    >>> films = Ids.of([1193, "661", "007"], "film")
    >>> films.rows(["007", 661]).tolist(), films.find(["7"]).tolist()
    ([2, 1], [-1])
    >>> films[0], 1193 in films
    ('1193', True)
    """

    values: pa.Array
    kind: str = "id"

    @classmethod
    def of(
        cls, values: Iterable[IdValue], kind: str = "id", where: NameRow = "row {}".format
    ) -> Ids:
        """Build from ids in row order.

        Parameters
        ----------
        values : sequence of str or int, or a pyarrow or numpy array of them
            The ids.
        kind : str
            What errors call them.
        where : callable
            Returns the name of a row for errors.

        Returns
        -------
        Ids

        Raises
        ------
        DataError
            If an id is missing, repeated, or neither a text nor a whole number.

        Examples
        --------
        >>> len(Ids.of(["a", 7]))
        2
        """
        texts = _combine(as_texts(values, kind, where))
        if len(pc.unique(texts)) < len(texts):
            again, first, _ = find_repeat(texts.dictionary_encode().indices.to_numpy())
            text = texts[again].as_py()
            message = f"{where(again)}: {kind} {text!r} is there already, in {where(first)}"
            raise DataError(message, hint=f"one row for each {kind}")
        return cls(texts, kind)

    @classmethod
    def stored(cls, arrays: Mapping[str, np.ndarray], kind: str, verify: bool = True) -> Ids:
        """Restore ids from what `arrays` returned, without copying or sorting them.

        Parameters
        ----------
        arrays : dict of str to array
            What `arrays` returned.
        kind : str
            What errors call the ids.
        verify : bool
            Whether to check each id, as is needed for a file that is not trusted.

        Returns
        -------
        Ids

        Raises
        ------
        ModelFileError
            If an array is missing, or of a wrong type or shape.
        pyarrow.ArrowInvalid
            If the arrays do not hold valid texts.
        """
        offsets = take(arrays, {"offsets": ("i4", "ends")})["offsets"]
        take(arrays, {"bytes": ("u1", "bytes"), "order": ("u4", len(offsets) - 1)})
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(arrays["bytes"])]
        ids = cls(pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers), kind)
        checked = ids.values
        if verify and arrays["bytes"].max(initial=0) < 128:  # ASCII: no need to decode each id
            checked = pa.Array.from_buffers(pa.binary(), len(checked), buffers)
        checked.validate(full=verify)
        ids.__dict__["_order"] = arrays["order"]
        return ids

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the ids as plain arrays, for a model file.

        Returns
        -------
        dict of str to array
            `bytes`: all ids as UTF-8; `offsets`: where each one begins, and the end of the last;
            `order`: the rows in the order of their ids.
        """
        values = pa.concat_arrays([self.values])  # a slice has offsets that do not start at 0
        _, offsets, content = values.buffers()
        n_offsets = len(values) + 1 if len(values) else 0
        starts = np.frombuffer(offsets or b"", np.int32, n_offsets)
        starts = starts - starts[0] if len(values) else np.zeros(1, np.int32)
        body = np.frombuffer(content or b"", np.uint8, int(starts[-1]))
        return {"offsets": starts, "bytes": body, "order": self._order.astype(np.uint32)}

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.values.to_pylist())

    def __getitem__(self, row: int | np.integer) -> str:
        return str(self.values[int(row)].as_py())

    def __contains__(self, value: object) -> bool:
        return self.row_of(as_text(value, self.kind)) >= 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and bool(self.values.equals(other.values))

    def rows(self, values: Iterable[IdValue]) -> np.ndarray:
        """Return the row of each id.

        Parameters
        ----------
        values : sequence of str or int
            The ids.

        Returns
        -------
        array of int64

        Raises
        ------
        UnknownId
            If an id is unknown.

        Examples
        --------
        >>> Ids.of(["a", "b"]).rows(["b"]).tolist()
        [1]
        """
        as_they_are = isinstance(values, pa.Array | np.ndarray | str)
        given = values if as_they_are or not isinstance(values, Iterable) else list(values)
        rows = self.find(given)
        if (rows < 0).any():
            unknown = as_texts(given, self.kind)[int(np.argmax(rows < 0))].as_py()
            message = f"{self.kind} {unknown!r} is not among the {len(self):,} known ones"
            raise UnknownId(message, hint="ids are compared as text, so '007' and '7' differ")
        return rows

    def find(self, values: Iterable[IdValue]) -> np.ndarray:
        """Return the row of each id, -1 where it is unknown.

        Parameters
        ----------
        values : sequence of str or int
            The ids.

        Returns
        -------
        array of int64

        Raises
        ------
        DataError
            If a value is not a valid id.
        """
        if isinstance(values, list) and len(values) <= _FEW:
            few = [as_text(value, self.kind) for value in values]
            rows = np.array([self.row_of(text) for text in few], dtype=np.int64)
            if (rows < 0).any():
                as_texts(few, self.kind)  # raises an error for what is no text
            return rows
        texts = _combine(as_texts(values, self.kind))
        if len(texts) <= _FEW:
            return self.find(texts.to_pylist())
        found = pc.fill_null(pc.index_in(texts, value_set=self.values), -1)
        return found.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]

    def row_of(self, text: str) -> int:
        """Return the row of one id, -1 if it is unknown.

        Parameters
        ----------
        text : str
            The id, as text.

        Returns
        -------
        int
        """
        if len(self) <= _SMALL:
            return self._rows.get(text, -1)
        at = bisect_left(self._order, text, key=self.__getitem__)
        if at < len(self) and self[self._order[at]] == text:
            return int(self._order[at])
        return -1

    def texts(self, rows: np.ndarray) -> list[list[str]]:
        """Return the ids of a matrix of rows.

        Parameters
        ----------
        rows : array of int
            Two-dimensional; negative entries are left out.

        Returns
        -------
        list of list of str
            The ids of each line of the matrix.
        """
        return [[self[row] for row in line if row >= 0] for line in rows.tolist()]

    def take(self, rows: np.ndarray) -> Ids:
        """Return the ids of some rows.

        Parameters
        ----------
        rows : array of int
            The rows to keep, in the order of the result.

        Returns
        -------
        Ids

        Raises
        ------
        DataError
            If a row is repeated.
        """
        return Ids.of(self.values.take(pa.array(rows, pa.int64())), self.kind)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {text: row for row, text in enumerate(self.values.to_pylist())}

    @cached_property
    def _order(self) -> np.ndarray:
        """Rows in the byte order of their ids, which is also Python's order of texts."""
        return pc.array_sort_indices(self.values).to_numpy()  # type: ignore[no-any-return]


def assign_rows(
    values: Iterable[IdValue], known: Ids | None, kind: str, where: NameRow
) -> tuple[Ids, np.ndarray]:
    """Return ids, the known ones first and new ones in order of appearance, and each one's row."""
    encoded = _combine(as_texts(values, kind, where).dictionary_encode())
    seen, row_of_code = encoded.dictionary, encoded.indices.to_numpy()
    if known is None:
        return Ids(seen, kind), row_of_code
    rows = known.find(seen)
    new = rows < 0
    rows[new] = len(known) + np.arange(new.sum())
    if new.any():
        known = Ids(pa.concat_arrays([known.values, seen.filter(pa.array(new))]), kind)
    return known, rows[row_of_code]


def find_repeat(codes: np.ndarray) -> tuple[int, int, int]:
    """Find the first number that came before; returns where it is and was, and all repetitions."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    repeats = np.setdiff1d(np.arange(len(codes)), first)
    return int(repeats[0]), int(first[inverse[repeats[0]]]), len(repeats)


def as_text(value: object, kind: str = "id") -> str:
    """Return one id as text."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    hint = "an id is a non-empty text or a whole number"
    raise DataError(f"{value!r} ({type(value).__name__}) is not a valid {kind} id", hint=hint)


def as_texts(
    values: Iterable[IdValue], kind: str = "id", where: NameRow = "row {}".format
) -> pa.Array | pa.ChunkedArray:
    """Return a column of ids as text; `where` names a row in an error."""
    column = _as_array(values, kind)
    if column.null_count == len(column):
        column = pa.nulls(len(column), pa.string())
    elif pa.types.is_floating(column.type):
        column = _as_integers(column, kind, where)
    elif not (pa.types.is_integer(column.type) or is_text(column.type)):
        raise DataError(f"{kind} ids are of type {column.type}", hint="texts or whole numbers")
    column = column.cast(pa.string())
    missing = pc.fill_null(pc.equal(pc.binary_length(column), 0), True)
    if pc.any(missing).as_py():
        message = f"{where(pc.index(missing, True).as_py())}: no {kind} id"
        raise DataError(message, hint="remove the row, or add its id")
    return column


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts, whatever the layout."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _combine(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _as_array(values: Iterable[IdValue], kind: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        is_coded = pa.types.is_dictionary(values.type)
        return values.cast(values.type.value_type) if is_coded else values
    is_flat = values.ndim == 1 if isinstance(values, np.ndarray) else isinstance(values, Iterable)
    if isinstance(values, str) or not is_flat:
        raise DataError(f"{values!r} is not a list of {kind} ids", hint="[...] around a single id")
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        return pa.array(values)
    try:
        return pa.array([as_text(value, kind) for value in values], pa.string())
    except UnicodeEncodeError as error:
        hint = "half of a surrogate pair: decode the text again"
        raise DataError(f"{error.object!r} is not a valid {kind} id", hint=hint) from None


def _as_integers(column: pa.Array | pa.ChunkedArray, kind: str, where: NameRow) -> pa.Array:
    """Undo what data frames do to whole numbers when one of them is missing."""
    numbers = _combine(column).to_numpy(zero_copy_only=False)  # null and NaN alike are NaN
    whole = np.isnan(numbers) | ((np.abs(numbers) < _EXACT) & (numbers == np.rint(numbers)))
    if not whole.all():
        row = int(np.argmin(whole))
        hint = "read the column as text or as int64: a float keeps 15 digits"
        raise DataError(f"{where(row)}: {numbers[row]!s} is not a valid {kind} id", hint=hint)
    return pa.array(numbers, from_pandas=True).cast(pa.int64())
