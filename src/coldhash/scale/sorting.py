"""The external sort of ratings, by DuckDB: text ids in, rows sorted by user out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldhash.data.dataset import find_rating_columns
from coldhash.data.ids import Ids
from coldhash.data.lines import guess_separator
from coldhash.data.ratings import MAX_RATING, as_ratings
from coldhash.data.tables import TableFile
from coldhash.errors import DataError, SettingError, SourceError, TableError
from coldhash.scale.stored import remove

SHARE = 0.6  # of the memory is DuckDB's, which goes somewhat over it; the rest is ours


@dataclass(frozen=True)
class Sizes:
    """What the ratings turned out to be."""

    n_users: int
    n_items: int
    scale: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Sorting:
    """A DuckDB file beside the partitions; each of its tables is made once."""

    folder: Path
    source: Path
    base: Any  # the connection

    @classmethod
    @contextmanager
    def open(cls, folder: Path, source: Path, memory: int) -> Iterator[Sorting]:
        """Open the file, or begin it."""
        try:
            import duckdb
        except ImportError:
            raise SettingError(
                "DuckDB, which sorts, is not installed", hint="pip install 'coldhash[scale]'"
            ) from None
        if not source.exists():
            raise SourceError(f"{source}: no such file")
        base = None
        try:
            base = duckdb.connect(str(folder / "sort.duckdb"))
            base.execute(f"SET memory_limit = '{int(memory * SHARE)}B'")
            base.execute(f"SET temp_directory = '{_quoted(folder / 'sort.tmp')}'")
            yield cls(folder, source, base)
        except duckdb.OutOfMemoryException as error:
            raise SettingError(
                f"{memory / 1e9:.1f} GB are too little to sort: {_first_line(error)}",
                hint="more memory, such as memory='2GB'",
            ) from None
        except duckdb.IOException as error:  # a full disk, most likely
            raise SourceError(
                f"cannot write {folder}: {_first_line(error)}",
                hint="make room, or name another folder",
            ) from None
        except duckdb.Error as error:
            raise TableError(_first_line(error), file=str(source)) from None
        finally:
            if base is not None:
                with contextlib.suppress(duckdb.Error):  # a full disk, which was told already
                    base.close()

    def sort(
        self,
        columns: dict[str, str | None],
        users: Ids | None,
        items: Ids | None,
        scale: tuple[float, float] | None,
    ) -> Sizes:
        """Give users and items rows, and sort the ratings by user; done once."""
        if not self._has("sorted"):
            self._once("raw", self._read_query(columns))
            self._check(scale)
            for kind, known in (("user", users), ("item", items)):
                self._number(kind, known)
            self._once(
                "sorted",
                "SELECT u.row AS user_row, i.row AS item_row, CAST(rating AS FLOAT) AS rating, "
                "line FROM raw JOIN users u USING (user_id) JOIN items i USING (item_id) "
                "ORDER BY user_row",
            )
        self.base.execute("DROP TABLE IF EXISTS raw")
        low, high = self._one("SELECT min(rating), max(rating) FROM sorted")
        n_users, n_items = (self._one(f"SELECT count(*) FROM {name}")[0] for name in _NUMBERED)
        return Sizes(n_users, n_items, (float(low), float(high)))

    def ids(self, kind: str, first: int, last: int) -> pa.Array:
        """Give the ids of some rows, in order."""
        table = self._table(
            f"SELECT {kind}_id FROM {kind}s WHERE row >= {first} AND row < {last} ORDER BY row"
        )
        return table.column(0).cast(pa.string()).combine_chunks()

    def ratings(
        self, first: int, last: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Give the ratings of some users: user (from 0) and item rows, values, rows of the file."""
        table = self._table(
            f"SELECT CAST(user_row - {first} AS INTEGER), CAST(item_row AS INTEGER), rating, line "
            f"FROM sorted WHERE user_row >= {first} AND user_row < {last}"
        )
        users, items, values, lines = (table.column(at).to_numpy() for at in range(4))
        return users, items, values, lines

    def _read_query(self, columns: dict[str, str | None]) -> str:
        """Read three columns as they are, and number the rows."""
        file = TableFile(path=self.source)
        if file.format == "json":
            raise SourceError(f"{self.source}: JSON lines", hint="CSV, TSV or Parquet")
        if file.format == "parquet":
            names = pq.read_schema(self.source).names
            table = f"read_parquet('{_quoted(self.source)}', file_row_number = true)"
            line = "file_row_number"
        else:
            with contextlib.closing(pa.input_stream(str(self.source))) as stream:
                start = stream.read(1 << 16).decode("utf-8", errors="replace").lstrip("\ufeff")
            mark = guess_separator(start, '"')
            table = (
                f"read_csv('{_quoted(self.source)}', delim = '{mark}', header = true, "
                "all_varchar = true, quote = '\"', strict_mode = true, nullstr = '')"
            )
            names = [one[0] for one in self.base.execute(f"DESCRIBE FROM {table}").fetchall()]
            line = "row_number() OVER () - 1"
        found = find_rating_columns(names, columns, str(self.source))
        rating = f'"{found["rating"]}"' if "rating" in found else "1"
        return (
            f"SELECT {_as_id(found['user_id'])} AS user_id, {_as_id(found['item_id'])} AS item_id, "
            f"TRY_CAST({rating} AS DOUBLE) AS rating, {line} AS line FROM {table}"
        )

    def _check(self, scale: tuple[float, float] | None) -> None:
        """Refuse what cannot be a rating, by the rules for ratings in memory."""
        low, high = scale or (0.0, MAX_RATING)
        bad = self._one(
            "SELECT line, user_id, item_id, rating FROM raw WHERE user_id IS NULL OR user_id = '' "
            "OR item_id IS NULL OR item_id = '' OR rating IS NULL "
            f"OR NOT (rating >= {float(low)} AND rating <= {float(high)}) ORDER BY line LIMIT 1"
        )
        if bad is None:
            if not self._one("SELECT count(*) FROM raw")[0]:
                raise DataError(f"{self.source} has columns, but no ratings")
            return
        line, user, item, rating = bad
        where = f"{self.source}, row {line}"
        for kind, value in (("user", user), ("item", item)):
            if not value:
                raise DataError(f"{where}: no {kind} id", hint="remove the row, or give it an id")
        if rating is None:
            raise DataError(f"{where}: no rating, or not a number", hint="remove such rows")
        as_ratings(np.array([rating]), scale, lambda _: where)

    def _number(self, kind: str, known: Ids | None) -> None:
        """Give ids rows: the known ones first, new ones in order of appearance."""
        values = pa.array([], pa.string()) if known is None else known.values.cast(pa.string())
        side = pa.table({f"{kind}_id": values, "row": pa.array(np.arange(len(values)))})
        self.base.register("side", side)
        self._once(
            f"{kind}s",
            f"SELECT {kind}_id, row FROM side UNION ALL SELECT {kind}_id, {len(values)} + "
            f"row_number() OVER (ORDER BY first) - 1 AS row FROM (SELECT {kind}_id, "
            f"min(line) AS first FROM raw ANTI JOIN side USING ({kind}_id) GROUP BY {kind}_id)",
        )
        self.base.unregister("side")

    def _once(self, name: str, query: str) -> None:
        """Make a table, unless it was made before."""
        if not self._has(name):
            self.base.execute(f"CREATE TABLE {name} AS {query}")

    def _has(self, name: str) -> bool:
        query = "SELECT count(*) FROM information_schema.tables WHERE table_name = ?"
        return bool(self.base.execute(query, [name]).fetchall()[0][0])

    def _table(self, query: str) -> pa.Table:
        return self.base.sql(query).to_arrow_table()

    def _one(self, query: str) -> Any:
        rows = self.base.execute(query).fetchall()  # all: an unfinished result blocks the next
        return rows[0] if rows else None


def forget_sorting(folder: Path) -> None:
    """Remove the sorted ratings: the partitions hold them."""
    for file in folder.glob("sort.duckdb*"):
        file.unlink()
    remove(folder / "sort.tmp")


_NUMBERED = ("users", "items")


def _as_id(name: str) -> str:
    """Spell ids as texts; whole numbers in decimal, whatever their type."""
    quoted = '"' + name.replace('"', '""') + '"'
    return (
        f"CASE WHEN typeof({quoted}) IN ('DOUBLE', 'FLOAT') "
        f"THEN CAST(TRY_CAST({quoted} AS BIGINT) AS VARCHAR) ELSE CAST({quoted} AS VARCHAR) END"
    )


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
