"""The external sort of ratings by DuckDB: a file of ratings in, rows sorted by user out."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldhash.data import ratings, reading
from coldhash.data.feedback import MAX_RATING, Feedback, Scale
from coldhash.data.ids import Ids
from coldhash.data.ratings import Duplicates, Ratings
from coldhash.data.reading import RatingOptions
from coldhash.data.tables import DECIMAL, INTEGER, NULLS, TableFile, guess_separator
from coldhash.errors import DataError, SettingError, SourceError, TableError, import_extra
from coldhash.files import DISK_HINT

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SORT_SHARE = 0.6  # of the memory is DuckDB's, which exceeds it somewhat
WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")  # types of times that stay as they are
FLOATS = ("DOUBLE", "FLOAT")
EXACT = "TIMESTAMP_NS"
NO_TIME = "CAST(NULL AS BIGINT)"
DATES = ["%Y/%m/%d", "%d-%b-%Y", "%d-%B-%Y", "%d %b %Y", "%d %B %Y", "%d.%m.%Y", "%d.%m.%Y %H:%M"]
QUOTE, DOUBLE = "'", '"'


@dataclass(frozen=True, eq=False)
class RatingSorter:
    """A DuckDB file beside the partitions; each of its tables is made once."""

    source: Path
    base: DuckDBPyConnection

    @classmethod
    @contextmanager
    def open(cls, folder: Path, source: Path, memory: int) -> Iterator[RatingSorter]:
        """Open the file of a folder, or create it."""
        duckdb = import_extra("duckdb", "scale")
        limits = {"memory_limit": f"{int(memory * SORT_SHARE)}B"}
        limits["temp_directory"] = str(folder / "sort.tmp")
        try:
            with duckdb.connect(str(folder / "sort.duckdb"), config=limits) as base:
                yield cls(source, base)
        except duckdb.Error as error:
            reason = str(error).strip().splitlines()[0]
            if isinstance(error, duckdb.OutOfMemoryException):
                message = f"{memory / 1e9:.1f} GB are too little to sort: {reason}"
                raise SettingError(message, hint="more, such as memory='2GB'") from None
            if isinstance(error, duckdb.IOException):  # most likely a full disk
                raise SourceError(f"cannot write {folder}: {reason}", hint=DISK_HINT) from None
            raise TableError(reason, file=str(source)) from None

    @staticmethod
    def remove(folder: Path) -> None:
        """Remove the file of a folder."""
        for file in folder.glob("sort.duckdb*"):
            file.unlink()
        shutil.rmtree(folder / "sort.tmp", ignore_errors=True)

    def sort(
        self, users: Ids | None, items: Ids | None, options: RatingOptions
    ) -> tuple[int, int, Feedback]:
        """Sort the ratings by user, with rows for ids, unless that is done.

        Returns
        -------
        n_users, n_items, feedback
            The numbers of users and items, and what the ratings are.
        """
        query, rating = self._read_query(options)
        tables = {name for (name,) in self.base.execute("SHOW TABLES").fetchall()}
        if "sorted" not in tables:
            self._create("raw", query)
            self._check(options.scale)
            for kind, known in (("user", users), ("item", items)):
                self._number(kind, known)
            self._create(
                "sorted",
                "SELECT u.row AS user_row, i.row AS item_row, CAST(rating AS FLOAT) AS rating, "
                f"{self._time()} AS time, line "
                "FROM raw JOIN users u USING (user_id) JOIN items i USING (item_id) "
                "ORDER BY user_row",
            )
        self.base.execute("DROP TABLE IF EXISTS raw")
        counts = "SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM items)"
        n_users, n_items = self._first_row(counts)
        return n_users, n_items, options.feedback(self._typical_values, rating)

    def _typical_values(self) -> np.ndarray:
        """Return a few values, from which the kind of feedback is guessed as from all of them."""
        values = self._first_row(
            "SELECT min(rating), quantile_disc(rating, 0.5), max(rating), "
            "min(rating) FILTER (rating <> floor(rating)) FROM sorted"
        )
        return np.array([value for value in values if value is not None], np.float64)

    def ids(self, kind: str, first: int = 0, last: int = 2**62) -> Ids:
        """Return the ids of some rows, in order."""
        table = self._table(
            f"SELECT {kind}_id FROM {kind}s WHERE row >= {first} AND row < {last} ORDER BY row"
        )
        return Ids.of(table.column(0), kind)

    def ratings(self, first: int, last: int, duplicates: Duplicates) -> pa.Table:
        """Return the ratings of some users, sorted by row of the user, from 0, and of the item."""
        table = self._table(
            f"SELECT CAST(user_row - {first} AS INTEGER), CAST(item_row AS INTEGER), rating, line, "
            f"time FROM sorted WHERE user_row >= {first} AND user_row < {last} ORDER BY line"
        )
        users, items, values, lines = (table.column(at).to_numpy() for at in range(4))
        times = None if table.column(4).null_count else table.column(4).to_numpy()
        shape = (last - first, int(items.max(initial=0)) + 1)
        found, times = ratings.sort_ratings(users, items, values, times, shape, duplicates)
        if duplicates == "error" and found.nnz < len(values):
            ids = (self.ids("user", first, last), self.ids("item"))
            raise ratings.duplicate_error(users, items, *ids, lambda at: self._where(lines[at]))
        user = ratings.row_of_entries(found).astype(np.int32)
        columns = {"user": user, "item": found.indices, "rating": found.data}
        return pa.table(columns if times is None else columns | {"time": times})

    def _time(self) -> str:
        """Return the expression of the times in `raw`, as whole numbers that sort as in memory.

        Whole numbers stay as they are, dates become micro- or nanoseconds since 1970, anything else
        its rank. There are none where some are missing, all are equal, or texts are not dates.
        """
        known = "count(time) = count(*) AND min(time) < max(time)"
        kind, is_known = self._first_row(f"SELECT any_value(typeof(time)), {known} FROM raw")
        if is_known and kind in WHOLE:
            return "CAST(time AS BIGINT)"
        if is_known and (kind == "DATE" or kind.startswith("TIMESTAMP")):
            return "epoch_ns(time)" if kind == EXACT else "epoch_us(time)"
        if is_known and kind == "VARCHAR":
            for test, number in (
                (f"regexp_full_match(time, '{INTEGER}')", "TRY_CAST(trim(time) AS BIGINT)"),
                (f"regexp_full_match(time, '{DECIMAL}')", "TRY_CAST(trim(time) AS DOUBLE)"),
                ("true", f"epoch_ns(TRY_CAST(time AS {EXACT}))"),
                ("true", f"epoch_us(try_strptime(time, {DATES}))"),
            ):
                fits = f"CASE WHEN {test} THEN {number} IS NOT NULL ELSE false END"
                if self._first_row(f"SELECT bool_and({fits}) FROM raw")[0]:
                    is_whole = "DOUBLE" not in number
                    return number if is_whole else f"dense_rank() OVER (ORDER BY {number})"
            reading.warn_of_times(self._first_row("SELECT time FROM raw LIMIT 1")[0])
            return NO_TIME
        return "dense_rank() OVER (ORDER BY time)" if is_known else NO_TIME

    def _read_query(self, options: RatingOptions) -> tuple[str, str | None]:
        """Return how columns are read as they are, with row numbers, and the name of ratings."""
        files = TableFile(path=self.source).files()
        paths = ", ".join(_quote(str(file.path), QUOTE) for file in files)
        if files[0].format == "json":
            raise SourceError(f"{self.source}: JSON lines", hint="CSV, TSV or Parquet")
        table = f"read_parquet([{paths}], union_by_name = true)"
        if files[0].format == "text":
            with contextlib.closing(pa.input_stream(str(files[0].path))) as stream:
                start = stream.read(1 << 16).decode("utf-8", errors="replace").lstrip("\ufeff")
            table = (
                f"read_csv([{paths}], delim = '{guess_separator(start, DOUBLE)}', header = true, "
                "all_varchar = true, quote = '\"', strict_mode = true, nullstr = '', "
                "union_by_name = true)"
            )
        described = self.base.execute(f"DESCRIBE FROM {table}").fetchall()
        types, title = {row[0]: row[1] for row in described}, str(self.source)
        found = options.find_columns(list(types), title)
        column = {role: _quote(name, DOUBLE) for role, name in found.items()}
        rating = column.get("rating", "1")
        if options.event_weights is not None:
            kind = f"CAST({column['event']} AS VARCHAR)"
            kinds = self.base.execute(f"SELECT DISTINCT {kind} FROM {table}").fetchall()
            weight_of = reading.weigh_kinds([row[0] for row in kinds], options.event_weights, title)
            cases = (f"WHEN {_quote(str(each), QUOTE)} THEN {w!r}" for each, w in weight_of.items())
            rating = f"CASE {kind} {' '.join(cases)} END"
        ids = [
            f"TRY_CAST({column[role]} AS BIGINT)" if types[found[role]] in FLOATS else column[role]
            for role in ("user_id", "item_id")
        ]
        time = column.get("timestamp", NO_TIME)
        kind = types[found["timestamp"]] if "timestamp" in found else ""
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
            raise DataError(f"times are of type {kind}", hint="columns={'timestamp': None}")
        if kind in ("VARCHAR", *FLOATS):
            missing = ", ".join(_quote(text, QUOTE) for text in NULLS)
            time = f"CASE WHEN CAST({time} AS VARCHAR) NOT IN ({missing}) THEN {time} END"
        query = (
            f"SELECT CAST({ids[0]} AS VARCHAR) AS user_id, CAST({ids[1]} AS VARCHAR) AS item_id, "
            f"TRY_CAST({rating} AS DOUBLE) AS rating, {time} AS time, "
            f"row_number() OVER () - 1 AS line FROM {table}"
        )
        if options.event_weights is not None:
            query = f"SELECT * FROM ({query}) WHERE rating <> 0"
        return query, found.get("rating")

    def _check(self, scale: Scale | None) -> None:
        """Raise an error for what cannot be a rating, by the rules for ratings in memory."""
        low, high = scale or (-MAX_RATING, MAX_RATING)
        *columns, line = self._table(
            "SELECT user_id, item_id, rating, line FROM raw WHERE coalesce(user_id, '') = '' "
            "OR coalesce(item_id, '') = '' OR rating IS NULL "
            f"OR NOT (rating >= {float(low)} AND rating <= {float(high)}) ORDER BY line LIMIT 1"
        ).columns
        if len(line):
            Ratings.from_columns(*columns, scale=scale, where=lambda _: self._where(line[0]))
        if not self._first_row("SELECT count(*) FROM raw")[0]:
            raise DataError(f"{self.source} has columns, but no ratings")

    def _where(self, line: object) -> str:
        return f"{self.source}, row {line}"

    def _number(self, kind: str, known: Ids | None) -> None:
        """Assign rows to ids: the known ones first, new ones in order of appearance."""
        values = pa.array([], pa.string()) if known is None else known.values
        side = pa.table({f"{kind}_id": values, "row": pa.array(np.arange(len(values)))})
        self.base.register("side", side)
        self._create(
            f"{kind}s",
            f"SELECT {kind}_id, row FROM side UNION ALL SELECT {kind}_id, {len(values)} + "
            f"row_number() OVER (ORDER BY first) - 1 AS row FROM (SELECT {kind}_id, "
            f"min(line) AS first FROM raw ANTI JOIN side USING ({kind}_id) GROUP BY {kind}_id)",
        )
        self.base.unregister("side")

    def _create(self, name: str, query: str) -> None:
        self.base.execute(f"CREATE TABLE IF NOT EXISTS {name} AS {query}")

    def _table(self, query: str) -> pa.Table:
        return self.base.sql(query).to_arrow_table()

    def _first_row(self, query: str) -> Any:
        rows = self.base.execute(query).fetchall()  # all: an unfinished result blocks the next
        return rows[0] if rows else None


def _quote(text: str, mark: str) -> str:
    return mark + text.replace(mark, 2 * mark) + mark
