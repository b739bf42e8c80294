"""Files and data frames -> Arrow tables.

Reading is Arrow's work. What is added here: `::` as a separator, members of zip files, text that
stays text (`007`), and errors that name the file, the line and the column. Arrow says only that
something is wrong, so a file that fails is read once more, slowly, to find out where.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from coldhash.errors import ColumnError, DataError, SettingError, SourceError, TableError

UNIT = "\x1f"  # the "unit separator" stands in for `::`, which Arrow cannot split at
SEPARATORS = ("::", "\t", ";", ",", "|")
NULLS = ("NULL", "null", "NaN", "nan", "None", "N/A", "n/a", "\\N")  # beside the empty text
BLOCK = 1 << 22  # bytes looked at in one go
ID_TYPE = pa.dictionary(pa.int32(), pa.string())

ALIASES = {
    "user_id": ("user_id", "user", "userID", "userId"),
    "item_id": ("item_id", "item", "itemID", "itemId", "movieId"),
    "rating": ("rating", "weight"),
    "timestamp": ("timestamp", "datetime"),
}


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """A file with a table in it, and how to read it.

    The format follows the ending: .csv .tsv .txt .dat (text, separator found from the first
    line unless given), .jsonl .ndjson, .parquet; .gz and .zst behind a text ending are unpacked.
    """

    path: Path
    member: str | None = None  # the file within a zip archive
    separator: str | None = None
    quote: str | None = '"'  # None: quotes are letters like any other
    escape: str | None = None
    names: tuple[str, ...] | None = None  # the columns of a file without a header line
    encoding: str = "utf-8"

    @property
    def title(self) -> str:
        """What an error calls this file."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def read(self, column_types: Callable[[list[str]], dict[str, pa.DataType]]) -> pa.Table:
        """Read the table; `column_types` says which columns must be read as which type."""
        kind = _ending(self.member or self.path.name)
        if kind in ("parquet", "pq"):
            return self._read_parquet()
        if kind in ("jsonl", "ndjson"):
            return self._read_json_lines()
        if kind in ("csv", "tsv", "txt", "dat", "data", "item", "user"):
            return self._read_text(column_types)
        raise SourceError(
            f"{self.title}: unknown ending {kind!r}",
            hint=".csv, .tsv, .txt, .dat, .jsonl or .parquet, also with .gz or .zst",
        )

    def where(self, row: int) -> str:
        """Name a row of the table as read: file and line where lines exist."""
        if _ending(self.member or self.path.name) in ("parquet", "pq"):
            return f"{self.title}, row {row}"
        if _ending(self.member or self.path.name) in ("jsonl", "ndjson"):
            lines = (n for n, line in enumerate(self._text().splitlines(), 1) if line.strip())
        else:
            lines = (line for line, _ in self._slowly(self._text()))
            if self.names is None:
                next(lines, None)
        for number, line in enumerate(lines):
            if number == row:
                return f"{self.title}, line {line}"
        return f"{self.title}, row {row}"

    def _bytes(self) -> bytes:
        try:
            if self.member is not None:
                with zipfile.ZipFile(self.path) as archive:
                    return archive.read(self.member)
            compressed = self.path.suffix in (".gz", ".zst")
            with pa.input_stream(
                str(self.path), compression="detect" if compressed else None
            ) as file:
                return file.read()  # type: ignore[no-any-return]
        except KeyError:
            raise SourceError(f"{self.path} holds no {self.member}") from None
        except zipfile.BadZipFile as error:
            raise SourceError(f"{self.path}: not a whole zip archive: {error}") from None
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}") from None

    def _text(self) -> str:
        content = self._bytes()
        try:
            return content.decode("utf-8-sig" if self.encoding == "utf-8" else self.encoding)
        except LookupError:
            raise SettingError(f"unknown encoding {self.encoding!r}") from None
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            utf_16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
            raise TableError(
                f"byte {content[error.start]:#04x} is not {self.encoding}",
                file=self.title,
                line=line,
                hint=f"encoding={'utf-16' if utf_16 else 'latin-1'!r}",
            ) from None

    def _read_parquet(self) -> pa.Table:
        try:
            return pyarrow.parquet.read_table(pa.BufferReader(self._bytes()))
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(f"not a whole Parquet file: {error}", file=self.title) from None

    def _read_json_lines(self) -> pa.Table:
        content = self._bytes()
        if not content.strip():
            raise TableError("the file is empty", file=self.title)
        try:
            return pyarrow.json.read_json(pa.BufferReader(content))
        except pa.ArrowInvalid as error:
            raise self._json_fault(str(error)) from None

    def _json_fault(self, why: str) -> TableError:
        for number, line in enumerate(self._text().splitlines(), 1):
            try:
                row = json.loads(line) if line.strip() else {}
            except ValueError as error:
                return TableError(f"not JSON: {error}", file=self.title, line=number)
            if not isinstance(row, dict):
                return TableError("not a JSON object", file=self.title, line=number)
        return TableError(why, file=self.title, hint="a column must keep one type")

    def _read_text(self, column_types: Callable[[list[str]], dict[str, pa.DataType]]) -> pa.Table:
        content = self._bytes()
        if self.encoding != "utf-8":
            content = self._text().encode()
        content = content.removeprefix(b"\xef\xbb\xbf")
        if not content.strip():
            raise TableError("the file is empty", file=self.title)
        separator = self._separator(content)
        names = list(self.names or self._header(content, separator))
        wanted = column_types(names)
        if separator == "::":
            if UNIT.encode() in content:
                raise TableError("holds the control character 0x1f", file=self.title)
            content, separator = content.replace(b"::", UNIT.encode()), UNIT
        try:
            return pyarrow.csv.read_csv(
                pa.BufferReader(content),
                pyarrow.csv.ReadOptions(
                    column_names=names,
                    skip_rows=0,
                    block_size=BLOCK,
                    skip_rows_after_names=0 if self.names else 1,
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=separator,
                    quote_char=self.quote or False,
                    escape_char=self.escape or False,
                    newlines_in_values=self.quote is not None and _spans_lines(content, self.quote),
                ),
                pyarrow.csv.ConvertOptions(
                    column_types={name: wanted.get(name, pa.string()) for name in names},
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise self._text_fault(names, wanted, str(error)) from None

    def _separator(self, content: bytes) -> str:
        if self.separator is not None:
            if self.separator != "::" and len(self.separator) != 1:
                raise SettingError(f"separator {self.separator!r}", hint="one character, or '::'")
            return self.separator
        first = content.split(b"\n", 1)[0]
        counts = {mark: first.count(mark.encode()) for mark in SEPARATORS}
        # `::` wins where it occurs at all; of the others, the most frequent one
        return "::" if counts["::"] else max(counts, key=lambda mark: counts[mark])

    def _header(self, content: bytes, separator: str) -> list[str]:
        first = content.split(b"\n", 1)[0].rstrip(b"\r")
        try:
            line = first.decode()
        except UnicodeDecodeError:
            raise self._text_fault([], {}, "not utf-8") from None
        _, names = next(self._slowly(line, separator), (1, []))
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ColumnError(f"{self.title}: column {twice[0]!r} is there twice")
        return names

    def _slowly(self, text: str, separator: str | None = None) -> Iterator[tuple[int, list[str]]]:
        """Go through the rows one by one, each with the line it starts in."""
        separator = separator or self._separator(text.encode())
        if separator == "::":
            text, separator = text.replace("::", UNIT), UNIT
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=separator,
            quotechar=self.quote,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape,
            doublequote=True,
        )
        line = 1
        for row in reader:
            if row:  # like Arrow, pass over empty lines
                yield line, row
            line = reader.line_num + 1

    def _text_fault(self, names: list[str], wanted: dict[str, pa.DataType], why: str) -> DataError:
        """Find the line and column that Arrow could not read."""
        text = self._text()
        try:
            for line, row in self._slowly(text):
                if line == 1 and self.names is None:
                    continue
                if len(row) != len(names):
                    return TableError(
                        f"{len(row)} fields where {len(names)} are expected",
                        file=self.title,
                        line=line,
                        hint=f"columns: {', '.join(names)}",
                    )
                for name, value in zip(names, row, strict=True):
                    if not _fits(value, wanted.get(name)):
                        return TableError(
                            f"{value!r} is not a number", file=self.title, line=line, column=name
                        )
        except csv.Error as error:
            return TableError(str(error), file=self.title)
        return TableError(why, file=self.title)


def _ending(name: str) -> str:
    parts = [part.lower() for part in PurePath(name).suffixes]
    if parts and parts[-1] in (".gz", ".zst"):
        parts.pop()
    return parts[-1][1:] if parts else ""


def _spans_lines(content: bytes, quote: str) -> bool:
    """Whether a quoted field may hold a line break: then Arrow must not cut at any of them."""
    mark = quote.encode()
    if mark not in content:
        return False
    inside = 0  # 1 after an odd number of quotes
    for start in range(0, len(content), BLOCK):
        block = np.frombuffer(content, np.uint8, min(BLOCK, len(content) - start), start)
        odd = np.bitwise_xor.accumulate((block == mark[0]).view(np.uint8)) ^ inside
        if odd[block == ord("\n")].any():
            return True
        inside = odd[-1]
    return False


def _fits(value: str, wanted: pa.DataType | None) -> bool:
    if wanted is None or not value or not (pa.types.is_floating(wanted)):
        return True
    try:
        pc.cast(pa.array([value.strip()]), wanted)
    except pa.ArrowInvalid:
        return False
    return True


def as_table(
    source: Any, column_types: Callable[[list[str]], dict[str, pa.DataType]], title: str
) -> tuple[pa.Table, Callable[[int], str]]:
    """Turn a path, TableFile, data frame or dict of columns into a table and a namer of rows."""
    if isinstance(source, str | Path):
        source = TableFile(path=Path(source))
    if isinstance(source, TableFile):
        return source.read(column_types), source.where
    try:
        if isinstance(source, dict):
            table = pa.table(source)
        else:
            table = nw.from_native(source, eager_only=True).to_arrow()
    except pa.ArrowException as error:
        raise DataError(f"the {title} table: {error}", hint="a column must keep one type") from None
    except (TypeError, ValueError) as error:
        raise DataError(
            f"a {type(source).__name__} is no {title} table ({error})",
            hint="a path, a pandas, polars or pyarrow table, or a dict of columns",
        ) from None
    return table, f"row {{}} of the {title} table".format


def find_column(
    names: list[str], role: str, columns: dict[str, str | None], title: str
) -> str | None:
    """Find the column that plays a role: as mapped, or under one of its usual names."""
    mapped = columns.get(role)
    if mapped is not None:
        if mapped not in names:
            raise ColumnError(
                f"the {title} table has no column {mapped!r}",
                hint=f"it has: {', '.join(names)}",
            )
        return mapped
    found = [name for name in ALIASES[role] if name in names]
    if len(found) > 1:
        raise ColumnError(
            f"the {title} table has {' and '.join(map(repr, found))} for {role}",
            hint=f"say which: columns={{{role!r}: {found[0]!r}}}",
        )
    return found[0] if found else None


def missing_column(names: list[str], role: str, title: str) -> ColumnError:
    """Make the error for a role that no column plays."""
    return ColumnError(
        f"the {title} table has no column for {role}: it has {', '.join(map(repr, names))}",
        hint=f"columns={{{role!r}: NAME}}; "
        f"for a file without a header line TableFile(path=..., names=[...])",
    )


WHOLE = re.compile(r"^\s*-?(0|[1-9][0-9]*)\s*$").pattern
DECIMAL = re.compile(r"^\s*-?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?\s*$").pattern


def infer_types(table: pa.Table, keep: str) -> pa.Table:
    """Turn text columns that hold only numbers into numbers, and spelled-out nulls into nulls.

    A number with leading zeros is a code, not a quantity: its column stays text, as does `keep`.
    """
    for at, name in enumerate(table.column_names):
        column = table.column(name)
        if name == keep or not pa.types.is_string(column.type):
            continue
        column = pc.if_else(pc.is_in(column, pa.array(NULLS)), pa.scalar(None, pa.string()), column)
        column = _as_numbers(column)
        table = table.set_column(at, name, column)
    return table


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    known = column.drop_null()
    if not len(known):
        return column
    for pattern, number in ((WHOLE, pa.int64()), (DECIMAL, pa.float64())):
        if pc.all(pc.match_substring_regex(known, pattern)).as_py():
            try:
                return pc.utf8_trim_whitespace(column).cast(number)
            except pa.ArrowInvalid:  # more digits than the type holds, or a lone "."
                return column
    return column
