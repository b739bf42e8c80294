"""Write the codes of a model for other engines to search.

    parquet     file    id, code (fixed-size binary), popularity; in the order of rows
    numpy       .npz    ids, codes (rows x bytes, uint8), n_bits, popularity; no pickles
    faiss       file    IndexBinaryFlat by row, and <path>.ids.parquet: id, popularity
    duckdb      file    table items: row, id, code (BLOB), popularity, word0, word1, ...;
                        the macro nearest(query, k) is the search
    postgres    folder  schema.sql, items.copy for plain PostgreSQL 14 and later; the function
                        nearest_items(query, k) is the search

A row is a place in the catalogue; with what="users" it is a training user, the table is `users`,
and there is no popularity.

Levels. Items of a model with a level have three more columns: level (8 bits), gain, the root of
what the level is worth, and steps, what it is worth in bits of a code. The distance of an item is
the number of bits that differ, and the steps that it is below the highest level:

    distance = bit_count(code ^ query) + most_steps - steps

DuckDB computes it so. FAISS and the bit strings of PostgreSQL know nothing but Hamming distances:
for these two, n_level_bits bits follow the n_bits bits of a code. An item has its steps as ones
there, a user has only ones: the Hamming distance is the same. There are most_steps of them, but no
more than 64; beyond, steps are scaled and rounded to 64, in the column, too. n_level_bits and
most_steps are in the metadata of Parquet files, and the head of schema.sql names the first.

Bits. Bit b of a code is bit b % 8 (1 << b % 8) of byte b // 8, set for +1. A code is n_bits / 8
bytes, rounded up; unused bits of the last byte are 0, so they add nothing to a distance. In a bit
string of PostgreSQL, character b from the left, counted from 0, is bit b, without padding.
`code_bytes` and `bit_strings` make queries of both kinds from user vectors.

Ties. `CodeIndex.hamming` orders by distance, then level and popularity, highest first, then row.
The SQL here does the same. So does `recommend(score="hamming")` of a model without a level; with
one it also weighs how much is known of a person, which is not in a code. FAISS orders by distance
alone, with ties in any order: for the same k items, ask for all up to the distance of the k-th
(`range_search`, which excludes its upper bound) and sort those.

    FROM nearest(?::BLOB, 10)                                     -- DuckDB, one query
    ATTACH 'users.duckdb' AS other;                               -- ... and all users at once
    SELECT u.id, best.* FROM other.users u, nearest(u.code, 10) best;
    SELECT * FROM nearest_items('0110...', 10);                   -- PostgreSQL, one query
    SELECT u.id, best.* FROM users u, nearest_items(u.code, 10) best;
    query = code_bytes(model.encode(people).vectors, n_level_bits)
    index = faiss.read_index_binary(path)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from coldhash.arrays.codes import pack, signs
from coldhash.errors import DataError, SettingError, SourceError, check_choice, import_extra
from coldhash.files import draft_folder, move_into_place
from coldhash.recommender.items import code_items
from coldhash.recommender.recommender import Recommender

What = Literal["items", "users"]

MAX_LEVEL_BITS = 64
_BLOCK_ROWS = 1 << 16  # written at a time


@dataclass(frozen=True, eq=False)
class CodeTable:
    """The codes to export: a row for each item or training user.

    Parameters
    ----------
    name
        "items" or "users".
    ids
        Their ids, strings.
    codes
        Rows x bytes, uint8.
    n_bits
        The length of a code.
    popularity
        The number of favourites of each item; None for users.
    levels
        The level of each item (uint8); None for users, and if items have none.
    gains, steps
        What each of 256 levels means, as in `CodeIndex`; None if items have no level.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> table = CodeTable.of(model, "items")
    >>> table.codes.shape, table.order
    ((100, 3), 'distance, level DESC, popularity DESC, row')
    """

    name: What
    ids: pa.Array
    codes: np.ndarray
    n_bits: int
    popularity: np.ndarray | None
    levels: np.ndarray | None = None
    gains: np.ndarray | None = None
    steps: np.ndarray | None = None

    @classmethod
    def of(cls, model: Recommender, what: What) -> CodeTable:
        """Return the codes of a model.

        Parameters
        ----------
        model
            A fitted model with codes.
        what
            "items", or "users" for those of the training data.

        Returns
        -------
        CodeTable
            A row for each item or user, in the order of the model.

        Raises
        ------
        SettingError
            The model has real-valued items, or `what` is neither "items" nor "users".
        """
        check_choice("what", what, get_args(What))
        items = code_items(model.items)
        if items is None:
            raise SettingError(
                f"{model.name} has real-valued items, so there are no codes to export",
                hint="fit a method that learns codes, e.g. MFDCF",
            )
        n_bits, tables = items.n_bits, (items.index.gains, items.index.steps)
        if what == "users":
            codes = code_bytes(model.user_vectors)
            return cls(what, model.user_ids.values, codes, n_bits, None, None, *tables)
        codes, of_items = _as_bytes(items.packed, n_bits), (model.popularity, items.levels)
        return cls(what, model.item_ids.values, codes, n_bits, *of_items, *tables)

    @property
    def most_steps(self) -> int:
        """What the highest level is worth in bits of a code; 0 if items have no level."""
        return 0 if self.steps is None else int(self.steps[-1])

    @property
    def n_level_bits(self) -> int:
        """How many bits `with_level_bits` adds to a code."""
        return min(self.most_steps, MAX_LEVEL_BITS)

    @property
    def order(self) -> str:
        """The order of answers, in SQL."""
        level = "" if self.levels is None else "level DESC, "
        popularity = "" if self.popularity is None else "popularity DESC, "
        return f"distance, {level}{popularity}row"

    def with_level_bits(self) -> CodeTable:
        """Return the table for engines that know nothing but Hamming distances.

        Returns
        -------
        CodeTable
            The level of an item as ones that follow the bits of its code, and only ones for users.
        """
        if self.steps is None:
            return self
        scale = self.n_level_bits / max(self.most_steps, 1)
        steps = np.rint(self.steps * scale).astype(np.int32)
        highest = np.full(len(self.codes), len(steps) - 1)
        rows = highest if self.levels is None else self.levels
        return replace(self, codes=_append_ones(self.codes, self.n_bits, steps, rows), steps=steps)

    def to_arrow(self) -> pa.Table:
        """Return a table of row, id, code (fixed-size binary), and what is known of items.

        Returns
        -------
        pyarrow.Table
            The metadata of the schema hold n_bits, n_level_bits and most_steps.
        """
        n_rows, n_bytes = self.codes.shape
        buffers = [None, pa.py_buffer(self.codes)]
        columns = {
            "row": np.arange(n_rows, dtype=np.int32),
            "id": self.ids,
            "code": pa.FixedSizeBinaryArray.from_buffers(pa.binary(n_bytes), n_rows, buffers),
        }
        metadata = {name: str(getattr(self, name)) for name in _METADATA}
        return pa.table(columns | self.of_items, metadata=metadata)

    @property
    def of_items(self) -> dict[str, np.ndarray]:
        """The columns that only items have."""
        columns = {} if self.popularity is None else {"popularity": self.popularity}
        if self.levels is not None and self.gains is not None and self.steps is not None:
            columns |= {"level": self.levels, "gain": self.gains[self.levels]}
            columns["steps"] = self.steps[self.levels]
        return columns


def export(
    model: Recommender,
    to: str,
    path: str | Path,
    *,
    what: What = "items",
    overwrite: bool = False,
) -> Path:
    """Write the codes of a model for another engine.

    Parameters
    ----------
    model
        A model with codes.
    to
        `parquet`, `numpy`, `faiss`, `duckdb` or `postgres`; the docstring of this module describes
        what each one writes.
    path
        The file or folder to write, in one step: a failed export leaves nothing behind.
    what
        `items`, or `users`: those of the training data.
    overwrite
        Replace what is there; a folder only if it holds nothing but an earlier export.

    Returns
    -------
    pathlib.Path
        The path written.

    Raises
    ------
    SettingError
        The engine is unknown or not installed, or the model has no codes.
    DataError
        The format cannot hold an id.
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
    ['id', 'code', 'popularity', 'level', 'gain', 'steps']
    """
    check_choice("to", to, EXPORTERS)
    table = CodeTable.of(model, what)
    target = Path(os.path.abspath(path))
    _check_free(target, overwrite)
    with draft_folder(target) as draft:
        (draft / "new").mkdir()
        try:
            EXPORTERS[to](table, draft / "new" / target.name)
        except RuntimeError as error:  # an engine cannot write
            raise OSError(str(error)) from error
        moves = [(new, target.with_name(new.name)) for new in (draft / "new").iterdir()]
        for new, place in moves:
            _check_free(place, overwrite)
            if os.path.lexists(place):
                _check_replaceable(new, place)
        log = target.with_name(f"{target.name}.wal")
        if to == "duckdb" and os.path.lexists(log):
            raise SourceError(
                f"{log} exists already: the database is open, or was not closed properly",
                hint="close it, or remove both files",
            )
        for new, place in moves:
            if not new.is_dir():
                move_into_place(new, place)
                continue
            if place.is_dir():
                os.rename(place, draft / "old")
            os.rename(new, place)
    return Path(path)


def code_bytes(vectors: np.ndarray, n_level_bits: int = 0) -> np.ndarray:
    """Return the codes of user vectors as bytes: queries for an engine.

    Parameters
    ----------
    vectors
        Users x bits, real numbers.
    n_level_bits
        For `faiss` and `postgres`: `CodeTable.n_level_bits` of the model. So many ones follow each
        code.

    Returns
    -------
    numpy.ndarray
        Users x bytes, uint8.

    Examples
    --------
    >>> code_bytes(np.array([[0.5, -1.0, 2.0, -0.1, -3.0, -0.2, -0.7, -0.4, 0.9]]))
    array([[5, 1]], dtype=uint8)
    """
    n_users, n_bits = vectors.shape
    codes = _as_bytes(pack(signs(vectors)), n_bits)
    return _append_ones(codes, n_bits, np.array([n_level_bits]), np.zeros(n_users, np.uint8))


def bit_strings(codes: np.ndarray, n_bits: int) -> list[str]:
    """Return codes as PostgreSQL writes bit strings: character b is bit b.

    Parameters
    ----------
    codes
        Rows x bytes, as `code_bytes` returns them.
    n_bits
        The length of a code, with the bits of its level.

    Returns
    -------
    list of str
        A string of n_bits characters for each row.

    Examples
    --------
    >>> bit_strings(np.array([[5, 1]], dtype=np.uint8), 9)
    ['101000001']
    """
    bits = np.unpackbits(codes, axis=1, count=n_bits, bitorder="little") + np.uint8(ord("0"))
    return [text.decode() for text in bits.view(f"S{n_bits}").ravel().tolist()]


def _as_bytes(packed: np.ndarray, n_bits: int) -> np.ndarray:
    as_bytes = np.ascontiguousarray(packed).astype("<u8", copy=False).view(np.uint8)
    return np.ascontiguousarray(as_bytes[:, : -(-n_bits // 8)])


def _append_ones(
    codes: np.ndarray, n_bits: int, counts: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Append counts[-1] bits to each code, of which the first counts[row] are ones."""
    place = np.arange(n_bits + counts[-1])
    ones = (place >= n_bits) & (place < n_bits + counts[:, None])
    longer: np.ndarray = np.packbits(ones, axis=1, bitorder="little")[rows]
    longer[:, : codes.shape[1]] |= codes
    return longer


def _parquet(table: CodeTable, path: Path) -> None:
    parquet.write_table(table.to_arrow().drop_columns("row"), path)


def _numpy(table: CodeTable, path: Path) -> None:
    ids = table.ids.to_pylist()
    for text in ids:
        if text.endswith("\0"):
            raise DataError(f"id {text!r}: numpy would drop the zero byte", hint="to='parquet'")
    arrays = {"ids": np.array(ids, dtype=np.str_), "codes": table.codes, **table.of_items}
    arrays |= {name: np.array(getattr(table, name)) for name in _METADATA}
    with path.open("xb") as file:  # numpy appends .npz to a name
        np.savez(file, allow_pickle=False, **arrays)


def _faiss(table: CodeTable, path: Path) -> None:
    faiss = import_extra("faiss", "export")
    table = table.with_level_bits()
    index = faiss.IndexBinaryFlat(8 * table.codes.shape[1])
    index.add(table.codes)
    faiss.write_index_binary(index, str(path))
    names = table.to_arrow().drop_columns(["row", "code"])
    parquet.write_table(names, path.with_name(f"{path.name}.ids.parquet"))


def _duckdb(table: CodeTable, path: Path) -> None:
    """Write a table and its search; whole words are counted much faster than BIT or BLOB."""
    duckdb = import_extra("duckdb", "export")
    n_bytes = table.codes.shape[1]
    word = "array_slice({}, {}, {})::BIT::UBIGINT".format  # bytes from 1 on, the last included
    ends = [(start + 1, min(start + 8, n_bytes)) for start in range(0, n_bytes, 8)]
    words = ", ".join(f"{word('code', *end)} AS word{w}" for w, end in enumerate(ends))
    distance = " + ".join(  # as INTEGER: a TINYINT holds no more than 127
        f"bit_count(xor(word{w}, {word('query', *end)}))::INTEGER" for w, end in enumerate(ends)
    )
    if table.levels is not None:
        distance += f" + {table.most_steps} - steps"
    wrong = f"error('the query is not of {n_bytes} bytes')"
    answer = ", ".join(["id", "distance", *table.of_items, "row"])
    try:
        with duckdb.connect(str(path)) as connection:
            connection.register("given", table.to_arrow())
            connection.execute(f"CREATE TABLE {table.name} AS SELECT *, {words} FROM given")
            connection.execute(
                f"CREATE MACRO nearest(query, k) AS TABLE SELECT {answer} FROM (SELECT *, "
                f"CASE WHEN octet_length(query) = {n_bytes} THEN {distance} ELSE {wrong} END "
                f"AS distance FROM {table.name}) ORDER BY {table.order} LIMIT k"
            )
    except duckdb.Error as error:
        raise OSError(str(error)) from error


def _postgres(table: CodeTable, path: Path) -> None:
    table = table.with_level_bits()
    n_bits = table.n_bits + table.n_level_bits
    schema = _SCHEMA.format(
        name=table.name,
        code_bits=table.n_bits,
        level_bits=table.n_level_bits,
        n_bits=n_bits,
        order=table.order,
        columns="".join(f",\n    {name} {_TYPES[name]} NOT NULL" for name in table.of_items),
    )
    path.mkdir()
    (path / "schema.sql").write_text(schema, encoding="utf-8")
    with (path / f"{table.name}.copy").open("x", encoding="utf-8", newline="\n") as file:
        rows = table.to_arrow()
        for start in range(0, len(rows), _BLOCK_ROWS):
            columns = rows.slice(start, _BLOCK_ROWS).to_pydict()
            columns["id"] = map(_escape_copy, columns["id"])
            columns["code"] = bit_strings(table.codes[start : start + _BLOCK_ROWS], n_bits)
            for values in zip(*columns.values(), strict=True):
                print(*values, sep="\t", file=file)


def _escape_copy(text: str) -> str:
    """Escape a text as COPY of PostgreSQL does."""
    if "\0" in text:
        raise DataError(f"id {text!r}: PostgreSQL has no zero byte in texts", hint="to='parquet'")
    return text.translate(_COPY_ESCAPES)


_COPY_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_METADATA = ("n_bits", "n_level_bits", "most_steps")
_TYPES = {
    "popularity": "double precision",
    "level": "smallint",
    "gain": "real",
    "steps": "integer",
}
_SCHEMA = """\
-- Codes of {code_bits} bits; character b of a code, from the left and from 0, is bit b.
-- {level_bits} bits of the level follow: a query has only ones there.
-- In this folder, and then the 10 nearest {name} to a code:
--   psql -f schema.sql -c "\\copy {name} FROM '{name}.copy' WITH (ENCODING 'UTF8')"
--   psql -c "SELECT * FROM nearest_{name}('0110...', 10)"
CREATE TABLE {name} (
    row integer NOT NULL UNIQUE,
    id text PRIMARY KEY,
    code bit({n_bits}) NOT NULL{columns}
);
CREATE FUNCTION nearest_{name}(query varbit, k integer)
RETURNS TABLE (id text, distance bigint) LANGUAGE sql STABLE AS $$
    SELECT id, bit_count(code # query) AS distance FROM {name} ORDER BY {order} LIMIT k
$$;
"""


def _check_free(path: Path, overwrite: bool) -> None:
    if os.path.lexists(path) and not overwrite:
        raise SourceError(f"{path} exists already", hint="another path, or overwrite=True")


def _check_replaceable(new: Path, old: Path) -> None:
    """Raise an error if a file would replace a folder, or a folder one with other files in it."""
    if new.is_dir() != old.is_dir() or (old.is_dir() and old.is_symlink()):
        kind = "a folder" if old.is_dir() else "a file"
        raise SourceError(f"{old} is {kind} that this export cannot replace", hint="another path")
    others = set(os.listdir(old)) - set(os.listdir(new)) if old.is_dir() else None
    if others:
        raise SourceError(
            f"{old} also holds {min(others)!r}, which is not of this export",
            hint="another path, or remove the folder yourself",
        )


EXPORTERS: dict[str, Callable[[CodeTable, Path], None]] = {
    "parquet": _parquet,
    "numpy": _numpy,
    "faiss": _faiss,
    "duckdb": _duckdb,
    "postgres": _postgres,
}
