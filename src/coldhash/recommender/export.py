"""Write the items of a model for a database, which then ranks them for people by plain SQL.

    duckdb    a database with the table items; the code is in word0, word1, ... (UBIGINT)
    sqlite    the same, with words as INTEGER
    postgres  SQL for `psql -f`: the table items; the code is a bit string (BIT)
    parquet   the table as a file; the code is fixed-size binary

A row is an item, in the order of the model, with the columns

    id          the id of the item
    place       its place among items with equal scores
    popularity  the number of its favourites in the training part
    base, gain  of its level: the score of a person's vector h is gain * (base + h·d), d the code

and those of the item table, which a WHERE may use. What is neither a number nor a boolean is a
text, and a list is one in JSON, except in DuckDB and Parquet. A column that is called like one of
these has the prefix `item_`.

Bit b of a code is bit b % 64 of word b // 64, bit b % 8 of byte b // 8 or, in a bit string,
character b from the left and from 0; it is set for +1. `coldhash.recommender.planes` makes queries.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from coldhash.errors import DataError, SourceError, check_choice, import_extra
from coldhash.files import draft_folder, move_into_place
from coldhash.recommender.items import CodeItems, code_items
from coldhash.recommender.recommender import Recommender

TABLE = "items"
_BLOCK_ROWS = 1 << 16  # written at a time


def export(model: Recommender, to: str, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write the items of a model, codes and levels included, for a database.

    Parameters
    ----------
    model
        A model with codes.
    to
        `duckdb`, `sqlite`, `postgres` or `parquet`; the docstring of this module describes what
        each one writes.
    path
        The file to write, in one step: a failed export leaves nothing behind.
    overwrite
        Replace a file that is there.

    Returns
    -------
    pathlib.Path
        The path written.

    Raises
    ------
    SettingError
        The database is unknown or not installed, or the model has no codes.
    DataError
        The database cannot hold a text.
    SourceError
        The path exists, or cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash.data.sources import read
    >>> from coldhash.mfdcf.model import MFDCF
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> with TemporaryDirectory() as folder:
    ...     file = export(model, "parquet", Path(folder) / "items.parquet")
    ...     parquet.read_table(file).column_names
    ['id', 'place', 'popularity', 'base', 'gain', 'code', 'title', 'genres', 'year']
    """
    check_choice("to", to, EXPORTERS)
    items, target = code_items(model.items), Path(os.path.abspath(path))
    if target.is_dir():
        raise SourceError(f"{target} is a folder", hint="another path")
    for place in (target, target.with_name(f"{target.name}.wal")):
        if os.path.lexists(place) and not (overwrite and place == target):
            hint = "another path, or overwrite=True"
            if place != target:
                hint = "it is of a database that is open, or was not closed properly"
            raise SourceError(f"{place} exists already", hint=hint)
    with draft_folder(target) as draft:
        try:
            EXPORTERS[to](model, items, draft / "new")
        except (RuntimeError, sqlite3.Error) as error:  # a database cannot write
            raise OSError(str(error)) from error
        move_into_place(draft / "new", target)
    return Path(path)


def bit_strings(codes: np.ndarray) -> list[str]:
    """Return codes as PostgreSQL writes bit strings: character b is bit b."""
    digits = (codes > 0).astype(np.uint8) + np.uint8(ord("0"))
    return [text.decode() for text in digits.view(f"S{codes.shape[1]}").ravel().tolist()]


def _make_table(model: Recommender, items: CodeItems, codes: dict[str, pa.Array]) -> pa.Table:
    """Return what every database holds, with the codes in its own form."""
    base, gain = items.level_terms(slice(None))
    columns = {
        "id": model.item_ids.values,
        "place": items.index.rank,
        "popularity": np.asarray(model.popularity, np.float64),
        "base": base,
        "gain": gain,
        **codes,
    }
    for name in model.item_table.column_names:
        shown = f"item_{name}" if name.lower() in columns else name
        columns[shown] = model.item_table.column(name)
    return pa.table(columns)


def _words(items: CodeItems) -> dict[str, np.ndarray]:
    return {f"word{place}": words for place, words in enumerate(items.packed.T)}


def _parquet(model: Recommender, items: CodeItems, path: Path) -> None:
    n_bytes = -(-items.n_bits // 8)
    codes = np.ascontiguousarray(items.packed.astype("<u8", copy=False).view(np.uint8)[:, :n_bytes])
    buffers = [None, pa.py_buffer(codes)]
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(n_bytes), len(items), buffers)
    parquet.write_table(_make_table(model, items, {"code": column}), path)


def _duckdb(model: Recommender, items: CodeItems, path: Path) -> None:
    duckdb = import_extra("duckdb", "export")
    try:
        with duckdb.connect(str(path)) as connection:
            connection.register("given", _make_table(model, items, _words(items)))
            connection.execute(f"CREATE TABLE {TABLE} AS FROM given")
    except duckdb.Error as error:
        raise OSError(str(error)) from error


def _sqlite(model: Recommender, items: CodeItems, path: Path) -> None:
    signed = {name: words.view(np.int64) for name, words in _words(items).items()}
    table = _plain_columns(_make_table(model, items, signed))
    marks = ", ".join("?" * table.num_columns)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE {TABLE} ({_column_types(table)}, PRIMARY KEY (id))")
        for block in table.to_batches(_BLOCK_ROWS):
            rows = zip(*block.to_pydict().values(), strict=True)
            connection.executemany(f"INSERT INTO {TABLE} VALUES ({marks})", rows)


def _postgres(model: Recommender, items: CodeItems, path: Path) -> None:
    codes = pa.array(bit_strings(items.rows()))
    table = _plain_columns(_make_table(model, items, {"code": codes}))
    types = _column_types(table).replace('"code" text', f'"code" bit({items.n_bits})')
    with path.open("x", encoding="utf-8", newline="\n") as file:
        print("-- psql -f THIS_FILE", "SET client_encoding = 'UTF8';", sep="\n", file=file)
        print(f"CREATE TABLE {TABLE} ({types}, PRIMARY KEY (id));", file=file)
        print(f"COPY {TABLE} FROM stdin;", file=file)
        for block in table.to_batches(_BLOCK_ROWS):
            for row in zip(*block.to_pydict().values(), strict=True):
                print(*map(_escape_copy, row), sep="\t", file=file)
        print("\\.", file=file)


def _plain_columns(table: pa.Table) -> pa.Table:
    """Return a table of numbers, booleans and texts only."""
    for place, column in enumerate(table.schema):
        if not (column.type in _TYPES or pa.types.is_string(column.type)):
            values = table.column(place).to_pylist()
            nested = pa.types.is_nested(column.type)
            texts = [
                None if value is None else json.dumps(value, default=str) if nested else str(value)
                for value in values
            ]
            table = table.set_column(place, column.name, pa.array(texts, pa.string()))
    return table


def _column_types(table: pa.Table) -> str:
    types = {column.name: _TYPES.get(column.type, "text") for column in table.schema}
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())


def quoted(name: str) -> str:
    """Return a name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _escape_copy(value: object) -> str:
    """Return a value as COPY of PostgreSQL reads it."""
    if value is None:
        return r"\N"
    text = str(value)
    if "\0" in text:
        raise DataError(f"{text!r}: PostgreSQL has no zero byte in texts", hint="to='parquet'")
    return text.translate(_COPY_ESCAPES)


_COPY_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_TYPES: dict[pa.DataType, str] = {
    **dict.fromkeys(
        (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
        "bigint",
    ),
    **dict.fromkeys((pa.float32(), pa.float64()), "double precision"),
    pa.bool_(): "boolean",
}
EXPORTERS: dict[str, Callable[[Recommender, CodeItems, Path], None]] = {
    "duckdb": _duckdb,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "parquet": _parquet,
}
