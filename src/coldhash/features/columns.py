"""A column of values -> a block of numbers: one value or a million, by its fitted form.

A column of a table is encoded once per distinct value, so a million users cost a gather.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.arrays.checks import check_places, take
from coldhash.errors import DataError, ModelFileError
from coldhash.features.forms import (
    FORMS,
    Entries,
    FittedColumn,
    Given,
    Knots,
    Labels,
    Standard,
    Words,
    plain_numbers,
)


def columns_state(
    columns: Mapping[str, FittedColumn],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Give what was learned of some columns, as JSON and arrays."""
    json: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        part, more = column.state()
        json[name] = {"form": type(column).__name__, **part}
        arrays |= {f"{name}/{key}": array for key, array in more.items()}
    return json, arrays


def stored_columns(
    json: Mapping[str, Any], arrays: Mapping[str, np.ndarray], prefix: str
) -> dict[str, FittedColumn]:
    """Rebuild columns from what `columns_state` gave; the arrays' names begin with `prefix`."""
    fitted: dict[str, FittedColumn] = {}
    owned: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        start, _, last = key.rpartition("/")
        owned.setdefault(start, {})[last] = array
    for name, part in json.items():
        own = owned.get(f"{prefix}{name}", {})
        rest = {key: value for key, value in part.items() if key != "form"}
        form: Any = FORMS[part["form"]]
        column = fitted[name] = form(**rest, **take(own, form.TENSORS))
        if isinstance(column, Labels | Words):
            check_places(name, np.array([*column.columns.values()], dtype=np.int64), column.width)
        if isinstance(column, Knots) and not (np.diff(column.knots) > 0).all():
            raise ModelFileError(f"the knots of {name!r} are not in order")
    return fitted


def example_value(column: FittedColumn) -> Any:
    """Return a value that the column knows."""
    if isinstance(column, Labels | Words):
        return next(iter(column.columns), None)
    if isinstance(column, Knots):
        return float(column.knots.mean())
    return column.centre if isinstance(column, Standard) else [1.0] * column.width


def distinct_values(column: Any) -> tuple[Sequence[Any], np.ndarray | None]:
    """Give a column's distinct values and, for each row, which one it has (None: one each)."""
    if not isinstance(column, pa.ChunkedArray | pa.Array):
        return column, None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_nested(column.type):
        return _lists(column), None
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _lists(column: pa.Array) -> Sequence[Any]:
    """Give lists of numbers as arrays: a million embeddings must not become Python floats."""
    if not pa.types.is_floating(column.type.value_type):
        return column.to_pylist()  # type: ignore[no-any-return]
    lengths = column.value_lengths().fill_null(0).to_numpy()
    flat, ends = column.flatten().to_numpy(zero_copy_only=False), np.cumsum(lengths)
    return [flat[end - n : end] if n else None for end, n in zip(ends, lengths, strict=True)]


def dense_block(
    column: FittedColumn, values: Sequence[Any], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Turn values into rows of numbers, and say which are known; unknown rows are zeros."""
    block = np.zeros((len(values), column.width), dtype=np.float32)
    known = np.zeros(len(values), dtype=bool)
    for row, value in enumerate(values):
        try:
            if isinstance(column, Given):
                vector = column.vector(value)
                known[row] = vector is not None
                if vector is not None:
                    block[row] = vector
            else:
                cells = column.cells(value)
                known[row] = bool(cells)
                for at, number in cells:
                    block[row, at] += number
        except DataError as error:
            raise _named(error, name, row, value) from None
    return block, known


def encode_values(column: FittedColumn, values: Sequence[Any], name: str) -> Entries:
    """Give how many cells each value has, and all their columns and numbers; none is unknown."""
    if isinstance(column, Knots | Standard):
        plain = plain_numbers(values)
        if plain is not None:
            return column.entries(plain)
    rows = []
    for row, value in enumerate(values):
        try:
            rows.append(column.cells(value))
        except DataError as error:
            raise _named(error, name, row, value) from None
    columns = np.array([at for row in rows for at, _ in row], dtype=np.int32)
    numbers = np.array([number for row in rows for _, number in row], dtype=np.float32)
    return np.array([len(row) for row in rows], np.int64), columns, numbers


def sparse_block(column: FittedColumn, values: Sequence[Any], name: str) -> csr_array:
    """Turn values into sparse rows; an empty row is unknown."""
    lengths, columns, numbers = encode_values(column, values, name)
    indptr = np.cumsum([0, *lengths])
    block = csr_array((numbers, columns, indptr), shape=(len(values), column.width))
    block.sum_duplicates()  # two rare labels of one value meet in one column
    return block


def _named(error: DataError, name: str, row: int, value: Any) -> DataError:
    shown = repr(value) if isinstance(value, str | int | float) else f"value {row}"
    return DataError(f"column {name!r}, {shown}: {error.message}", hint=error.hint)
