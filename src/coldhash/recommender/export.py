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
character b from the left and from 0; it is set for +1.

`query_sql` makes queries, in which a person is a few bit planes: a vector h is rounded to n planes,
h ≈ s Σ_j 2^j p_j, with p_j of +1 and -1 and one scale s for all coordinates, chosen so that the sum
of squared errors is the smallest. Then, for a code d of b bits,

    h·d ≈ s (offset - 2 Σ_j 2^j bit_count(d xor p_j)),   offset = b (2^n - 1),

which any database computes that counts bits, and the score is gain * (base + h·d) with the columns
above.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from coldhash.arrays.codes import pack
from coldhash.errors import (
    DataError,
    SettingError,
    SourceError,
    check_choice,
    check_positive,
    import_extra,
)
from coldhash.features.people import Person
from coldhash.files import draft_folder, move_into_place
from coldhash.recommender.items import CodeItems, code_items
from coldhash.recommender.recommender import Recommender

TABLE = "items"
MAX_PLANES = 8
N_SCALES = 64  # that are tried
NARROWEST = 0.2  # of the range of a vector, which the smallest one covers
_BLOCK_ROWS = 1 << 16  # written at a time


def export(model: Recommender, to: str, path: str | Path) -> Path:
    """Write the items of a model, codes and levels included, for a database.

    Parameters
    ----------
    model
        A model with codes.
    to
        `duckdb`, `sqlite`, `postgres` or `parquet`; the docstring of this module describes what
        each one writes.
    path
        The file to write, in one step: a failed export leaves nothing behind. One that is there is
        not replaced.

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
    >>> from pyarrow import parquet
    >>> with TemporaryDirectory() as folder:
    ...     file = export(model, "parquet", Path(folder) / "items.parquet")
    ...     parquet.read_table(file).column_names
    ['id', 'place', 'popularity', 'base', 'gain', 'code', 'title', 'genres', 'year']
    """
    check_choice("to", to, EXPORTERS)
    items, target = code_items(model.items), Path(os.path.abspath(path))
    for place in (target, target.with_name(f"{target.name}.wal")):  # the log of a database
        if os.path.lexists(place):
            raise SourceError(f"{place} exists already", hint="another path, or remove it first")
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
    base, gain = items.level_terms()
    columns = {
        "id": model.item_ids.values,
        "place": items.rank,
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
    return {f"word{place}": words for place, words in enumerate(items.packed().T)}


def _parquet(model: Recommender, items: CodeItems, path: Path) -> None:
    from pyarrow import parquet  # a service, which makes planes, does not need it

    n_bytes = -(-items.n_bits // 8)
    codes = np.ascontiguousarray(
        items.packed().astype("<u8", copy=False).view(np.uint8)[:, :n_bytes]
    )
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
            write = partial(json.dumps, default=str) if pa.types.is_nested(column.type) else str
            texts = [None if value is None else write(value) for value in table[place].to_pylist()]
            table = table.set_column(place, column.name, pa.array(texts, pa.string()))
    return table


def _column_types(table: pa.Table) -> str:
    types = {column.name: _TYPES.get(column.type, "text") for column in table.schema}
    names = (name.replace('"', '""') for name in types)
    return ", ".join(f'"{name}" {kind}' for name, kind in zip(names, types.values(), strict=True))


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


@dataclass(frozen=True, eq=False)
class Planes:
    """A vector as bit planes, the lowest first.

    Parameters
    ----------
    bits
        Planes x coordinates, +1 and -1 (int8).
    scale
        What 1 of the lowest plane is worth.

    Examples
    --------
    >>> planes = Planes.of(np.array([3.0, 1.0, -1.0, -3.0], dtype=np.float32), 2)
    >>> planes.bits.tolist(), planes.scale
    ([[1, -1, 1, -1], [1, 1, -1, -1]], 1.0)
    """

    bits: np.ndarray
    scale: float

    @classmethod
    def of(cls, vector: np.ndarray, n_planes: int = 4) -> Planes:
        """Round a vector to planes.

        Parameters
        ----------
        vector
            Real numbers.
        n_planes
            How many planes: each one costs the database a count of bits for each item.

        Returns
        -------
        Planes
            The planes with the smallest squared error, of the scales that are tried.

        Raises
        ------
        SettingError
            `n_planes` is not between 1 and 8.
        """
        if not 1 <= n_planes <= MAX_PLANES:
            raise SettingError(f"planes={n_planes}", hint=f"1 to {MAX_PLANES}")
        vector = np.asarray(vector, np.float64)
        most = 2**n_planes - 1
        steps = np.abs(vector).max(initial=0.0) / most * np.linspace(NARROWEST, 1, N_SCALES)
        if not steps[-1] > 0:
            return cls(np.ones((n_planes, len(vector)), np.int8), 0.0)
        digits = np.clip(np.rint((vector / steps[:, None] + most) / 2), 0, most)
        odd = 2 * digits - most  # what the planes add up to
        scales = (odd @ vector) / (odd**2).sum(axis=1)
        best = int(np.argmin(((vector - scales[:, None] * odd) ** 2).sum(axis=1)))
        places = np.arange(n_planes)[:, None]
        bits = (digits[best].astype(np.int64) >> places & 1) * 2 - 1
        return cls(bits.astype(np.int8), float(np.float32(scales[best])))

    @property
    def offset(self) -> int:
        """What the planes add up to where all bits agree with a code."""
        n_planes, n_bits = self.bits.shape
        return int(n_bits * (2**n_planes - 1))

    @property
    def texts(self) -> list[str]:
        """The planes in hexadecimal: bit b is bit b % 8 of byte b // 8."""
        packed = np.packbits(self.bits > 0, axis=1, bitorder="little")
        return [plane.tobytes().hex() for plane in packed]


def query_sql(
    model: Recommender,
    to: str,
    person: Person,
    k: int = 10,
    *,
    planes: int = 4,
    condition: str | None = None,
) -> str:
    """Return the SQL that ranks the items of an exported database for a person.

    Parameters
    ----------
    model
        The model that was exported.
    to
        `duckdb`, `sqlite` or `postgres`.
    person
        As for `Recommender.recommend`; items of the history are left out.
    k
        How many items.
    planes
        How many bit planes: with 4, lists are about as accurate as the model's own.
    condition
        What stands after WHERE, such as `year >= 1990`: SQL, which is not checked.

    Returns
    -------
    str
        A query of id and score. SQLite has to know a function `bit_count` of an integer.

    Raises
    ------
    SettingError
        The model has no codes, or `planes` is not between 1 and 8.
    DataError
        A value or a rating cannot be right.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> sql = query_sql(model, "duckdb", {"age": 30}, k=3, condition="year >= 2000")
    >>> print(sql[sql.index("FROM") :])
    FROM items
    WHERE (year >= 2000)
    ORDER BY score DESC, place
    LIMIT 3;
    """
    check_choice("to", to, COUNTS)
    check_positive("k", k)
    code_items(model.items)
    encoded = model.encode([person])
    found = Planes.of(encoded.vectors[0], planes)
    counts = " + ".join(
        f"{2**place} * ({COUNTS[to](plane[None])})" for place, plane in enumerate(found.bits)
    )
    conditions = [] if condition is None else [f"({condition})"]
    if encoded.history is not None and len(encoded.history.indices):
        seen = [model.item_ids[row] for row in encoded.history.indices.tolist()]
        texts = ", ".join("'" + item_id.replace("'", "''") + "'" for item_id in seen)
        conditions.append(f"id NOT IN ({texts})")
    where = f"WHERE {' AND '.join(conditions)}\n" if conditions else ""
    scale = f"CAST({found.scale:.9e} AS double precision)"
    return (
        f"SELECT id, gain * (base + {scale} * ({found.offset} - 2 * ({counts}))) AS score\n"
        f"FROM {TABLE}\n{where}ORDER BY score DESC, place\nLIMIT {k};"
    )


def _count_words(plane: np.ndarray) -> str:
    words = enumerate(pack(plane)[0].tolist())
    # as DOUBLE: exact, and faster than integers, which are checked
    return " + ".join(f"bit_count(xor(word{w}, {word}::UBIGINT))::DOUBLE" for w, word in words)


def _count_signed_words(plane: np.ndarray) -> str:
    words = enumerate(pack(plane)[0].view(np.int64).tolist())  # SQLite has no exclusive or
    return " + ".join(f"bit_count((word{w} | {word}) - (word{w} & {word}))" for w, word in words)


def _count_bits(plane: np.ndarray) -> str:
    return f"bit_count(code # B'{bit_strings(plane)[0]}')"


COUNTS = {"duckdb": _count_words, "sqlite": _count_signed_words, "postgres": _count_bits}
