"""Files and data frames -> Arrow tables.

Arrow does the reading. This module adds `::` as a separator, members of zip files, text that stays
text (`007`), and errors that name the file, the line and the column: of a file that Arrow cannot
read, the lines are counted up to the row that Arrow names.
"""

from __future__ import annotations

import csv
import io
import os
import re
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from glob import has_magic, iglob
from itertools import accumulate, chain, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from coldhash.data import ArrowTable, LazyTable
from coldhash.data.ids import NameRow, is_text
from coldhash.errors import ColumnError, DataError, SettingError, SourceError, TableError

UNIT = "\x1f"  # the "unit separator" replaces `::`, which no reader splits at
READ_BYTES = 1 << 22  # bytes read at a time, and the length of the longest row
COLUMN_BYTES = 1024  # bytes read at a time for each column: every block makes a chunk of each
ROW_BYTES = 32  # of a row of ratings, about
UNPACKED_BYTES = 1 << 28  # bytes that any file may unpack to
EXPANSION = 200  # how many times its size a larger file may unpack to; tables stay below 50
COMPRESSION = {"gz": "gzip", "zst": "zstd"}
_READ_ERRORS = (OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)
_MAX_DEPTH = 100  # levels of lists and objects in JSON
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+"')
NULLS = ("", "NULL", "null", "NaN", "nan", "None", "N/A", "n/a", "\\N")
_FORMATS = {
    **dict.fromkeys(("csv", "tsv", "txt", "dat", "data", "inter", "item", "user"), "text"),
    **dict.fromkeys(("jsonl", "ndjson"), "json"),
    **dict.fromkeys(("parquet", "pq"), "parquet"),
}
_MAX_BLOCK = 2**31 - 1  # bytes that Arrow takes at once
_TEXT_ERROR = re.compile(
    r"(?:In CSV column #(?P<column>\d+): |CSV parse error: )Row #(?P<row>\d+): (?P<reason>.*)", re.S
)
_JSON_ERROR = re.compile(
    r"JSON parse error: (?:Column\(/?(?P<column>.*)\) )?(?P<reason>.*) in row (?P<row>\d+)$", re.S
)
_HIVE = re.compile(r"([^/=]+)=([^/]*)/")
_MARK = b"\xef\xbb\xbf"  # of the byte order
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_RECBOLE_TYPES = ("token", "token_seq", "float", "float_seq")
_USUAL = {pa.binary_view(): pa.binary(), pa.float16(): pa.float32()}  # for types with few functions
_PANDAS_INDEX = re.compile(r"__index_level_\d+__$")  # of pandas, without a name
SelectColumns: TypeAlias = Callable[[list[str], str], Mapping[str, str]]
INTEGER = r"^\s*-?(0|[1-9][0-9]*)\s*$"
DECIMAL = r"^\s*-?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?\s*$"


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """A file with a table in it, and how to read it.

    The format follows from the suffix: .csv .tsv .txt .dat (text), .jsonl .ndjson, .parquet; a
    following .gz or .zst is unpacked. The types in the header of RecBole's .inter, .user and .item
    files, such as `genre:token_seq`, are known.

    Parameters
    ----------
    path : str or Path
        The file. Of a folder or a path with wildcards, such as `logs/*.csv`, all files are one
        table, and folders such as `year=2024` a column.
    member : str, optional
        The file within a zip archive.
    separator : str, optional
        One character or `::`; guessed from the first line if not given.
    quote : str or None
        The quote character; None or empty if quotes have no meaning, which is so beside `::`.
    escape : str, optional
        The character that takes the meaning from the next one.
    names : tuple of str, optional
        The columns of a file without a header line.
    encoding : str
        The encoding of the text.

    Raises
    ------
    SettingError
        If separator, quote and escape are not three different ASCII characters.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash import Dataset
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "ratings.dat"
    ...     _ = file.write_text("7::007::5")
    ...     ratings = TableFile(path=file, names=("user_id", "item_id", "rating"))
    ...     Dataset.from_tables(ratings).ratings.items[0]
    '007'
    """

    path: Path
    member: str | None = None
    separator: str | None = None
    quote: str | None = '"'
    escape: str | None = None
    names: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    _n_before = 0  # lines, or rows of Parquet, before those of this block of a file

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "quote", self.quote or None)
        marks = [m for m in (self.separator, self.quote, self.escape) if m is not None]
        single = [m for m in marks if len(m) == 1 and m.isascii() and m not in "\r\n\0"]
        if len(set(single)) + (self.separator == "::") < len(marks):
            hint = "different ASCII characters; '::' as a separator only"
            raise SettingError(f"separator, quote and escape are {marks}", hint=hint)

    @property
    def title(self) -> str:
        """The name of the file in errors."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    @property
    def format(self) -> str:
        """One of text, json and parquet, by the suffix."""
        _, *suffixes = (self.member or self.path.name).lower().split(".")
        suffix = next((name for name in reversed(suffixes) if name not in COMPRESSION), "")
        if suffix not in _FORMATS:
            hint = ".csv, .tsv, .txt, .dat, .jsonl, .parquet, also .gz, .zst; in a zip: member="
            raise SourceError(f"{self.title}: unknown suffix {suffix!r}", hint=hint)
        return _FORMATS[suffix]

    def read(self, types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
        """Read the table.

        Parameters
        ----------
        types : dict of str to pyarrow.DataType, optional
            The types of columns of a text file that are not to be read as text; columns that are
            not there are ignored. Other formats have their own types.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        SourceError
            If the file cannot be opened or unpacked, or its suffix is unknown.
        TableError
            If the content cannot be read as a table.
        ColumnError
            If a text file has two columns of the same name.
        SettingError
            If the encoding is unknown.
        """
        n_above = self._n_above
        with ThreadPoolExecutor() as pool:
            tables = list(pool.map(lambda file: file._read_one(n_above, types or {}), self.files()))
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise TableError(str(error), file=self.title, hint="one type in all files") from None

    def read_blocks(
        self, n_bytes: int, types: Mapping[str, pa.DataType], select: SelectColumns
    ) -> Iterator[NamedTable]:
        """Read some rows at a time; a quoted field must end in the line in which it begins.

        Parameters
        ----------
        n_bytes : int
            How many bytes to read at a time.
        types : dict of str to pyarrow.DataType
            As for `read`.
        select : callable
            Takes the names of the columns of a Parquet file and its title, and returns those to
            read, by role.

        Yields
        ------
        NamedTable
            Rows of one file.

        Raises
        ------
        SourceError, TableError, ColumnError, SettingError
            As `read`.
        """
        for file in self.files():
            try:
                for block in file._blocks(n_bytes, self._n_above, select):
                    table = block._read_one(self._n_above, types)
                    yield NamedTable(table, file.title, block.where)
            except SourceError:
                raise
            except (*_READ_ERRORS, pa.ArrowException) as error:
                raise SourceError(f"{file.title}: {error}") from None

    def where(self, row: int) -> str:
        """Return the name of a row for errors: the file and, unless it is Parquet, the line.

        Parameters
        ----------
        row : int
            The row of the table that `read` returned, from 0.

        Returns
        -------
        str

        Raises
        ------
        SourceError
            If the file can no longer be read.
        """
        files = self.files()
        while len(files) > 1 and row >= (n_rows := files[0].read().num_rows):
            row -= n_rows
            files.pop(0)
        if files[0] != self:
            return files[0].where(row)
        has_header = self.format == "text" and self.names is None
        line = None if self.format == "parquet" else self._line(row + has_header)
        at = f"row {self._n_before + row}" if line is None else f"line {line}"
        return f"{self.title}, {at}"

    def _line(self, row: int) -> int | None:
        """Return the line in which a row starts; row 0 is the header line if there is one."""
        text = self._text()
        lines = (line for line, _ in self._with_separator(text)._rows(text))
        if self.format == "json":  # where only a line feed ends a line
            lines = (at for at, line in enumerate(text.split("\n"), 1) if line.strip())
        line = next(islice(lines, row, None), None)
        return None if line is None else line + self._n_before

    def files(self) -> list[TableFile]:
        """Return the files of a folder or a path with wildcards.

        Returns
        -------
        list of TableFile
            In the order of their names; only this one if it is a single file.

        Raises
        ------
        SourceError
            If there is none.
        """
        pattern = self.path / "**" if os.path.isdir(self.path) else self.path
        if pattern == self.path and os.path.exists(self.path):
            return [self]
        found = map(Path, sorted(iglob(str(pattern), recursive=True)))
        # Spark writes _SUCCESS beside them
        files = [path for path in found if path.is_file() and not path.name.startswith("_")]
        if not files:
            message = f"{self.title}: No such file or folder, or no files in it"
            raise SourceError(message, hint="a file, a folder or logs/*.parquet")
        return [replace(self, path=path) for path in files]

    @property
    def _n_above(self) -> int:
        """The number of folders above the first wildcard, whose names are no columns."""
        return len([*takewhile(lambda part: not has_magic(part), self.path.parts)])

    def _folders(self, n_above: int) -> dict[str, pa.Scalar]:
        """Return what folders such as year=2024 say, by column."""
        found = _HIVE.findall("/".join(self.path.parts[n_above:]))
        texts = {unquote(name): None if v == _HIVE_NULL else unquote(v) for name, v in found}
        return {name: pa.scalar(text, pa.string()) for name, text in texts.items()}

    def _blocks(self, n_bytes: int, n_above: int, select: SelectColumns) -> Iterator[_Block]:
        """Cut the file between rows; the header is in every block."""
        make, n_before, header, rest = partial(_Block, **vars(self)), 0, b"", b""
        if self.format == "parquet":
            with pyarrow.parquet.ParquetFile(self.path) as file:
                names = [*file.schema_arrow.names, *self._folders(n_above)]
                chosen = {*select(names, self.title).values()}
                columns = [name for name in file.schema_arrow.names if name in chosen]
                for batch in file.iter_batches(max(n_bytes // ROW_BYTES, 1), columns=columns):
                    yield make(content=pa.table(batch), _n_before=n_before)
                    n_before += len(batch)
            return
        has_header = self.format == "text" and self.names is None
        codec = COMPRESSION.get(self.path.suffix[1:].lower())
        with pa.input_stream(str(self.path), compression=codec) as stream:
            for read in chain(iter(partial(stream.read, n_bytes), b""), [b"\n"]):
                lines, end, rest = (rest + read).rpartition(b"\n")
                if lines.strip():
                    yield make(content=header + lines, _n_before=n_before - bool(header))
                if lines.strip() and has_header and not header:
                    header = lines.removeprefix(_MARK).lstrip(b"\r\n").partition(b"\n")[0] + b"\n"
                n_before += lines.count(b"\n") + len(end)

    def _read_one(self, n_above: int, types: Mapping[str, pa.DataType]) -> pa.Table:
        """Read a single file; folders such as year=2024 become columns."""
        if self.format == "parquet":
            table = self._read_parquet()
        elif self.format == "json":
            table = self._read_json(self._utf_8())
        else:
            table = self._read_text(self._utf_8(), types)
        _check_names(table.column_names, self.title)
        for name, text in self._folders(n_above).items():
            if name not in table.column_names:
                table = table.append_column(name, pa.repeat(text, len(table)))
        return table

    def _bytes(self) -> bytes:
        """Read the file, or the member of a zip archive, and unpack it according to its suffix."""
        try:
            if self.member is None:
                content = self.path.read_bytes()
            else:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
                    n_packed = archive.getinfo(self.member).compress_size
                    content = _unpack(file.read, n_packed, self.title)
            suffix = (self.member or self.path.name).rsplit(".", 1)[-1].lower()
            if suffix in COMPRESSION:
                packed = pa.BufferReader(content)
                with pa.CompressedInputStream(packed, COMPRESSION[suffix]) as stream:
                    content = _unpack(stream.read, len(content), self.title)
        except SourceError:
            raise
        except (*_READ_ERRORS, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or (error.args or ("damaged",))[0]
            raise SourceError(f"{self.title}: {reason}") from None
        return content

    def _text(self) -> str:
        """Return the content as text without a byte order mark; an error names the line."""
        content = self._bytes()
        try:
            return content.decode(self.encoding).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            other = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
            message = f"byte {content[error.start]:#04x} is not {self.encoding}"
            line = self._n_before + len(content[: error.start + 1].splitlines())
            hint = f"encoding={other!r}"
            raise TableError(message, file=self.title, line=line, hint=hint) from None
        except (LookupError, ValueError):
            raise SettingError(f"unknown encoding {self.encoding!r}", hint="'latin-1'") from None

    def _utf_8(self) -> bytes:
        """Return the content as utf-8 without a byte order mark; raise an error if it is empty."""
        if self.encoding == "utf-8":
            content = self._bytes().removeprefix(_MARK)
        else:
            content = self._text().encode(errors="surrogatepass")
        if not content.strip():
            raise TableError("the file is empty", file=self.title)
        return content

    def _read_parquet(self) -> pa.Table:
        content = self._bytes()
        try:
            table = pyarrow.parquet.ParquetFile(pa.BufferReader(content)).read()
            table.validate(full=True)
            return _simplify(table)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise TableError(f"not a whole Parquet file: {error}", file=self.title) from None

    def _read_json(self, content: bytes) -> pa.Table:
        check_depth(content, self.title)
        # one block: of several, Arrow would infer the type of a column in each
        whole = pyarrow.json.ReadOptions(block_size=min(len(content), _MAX_BLOCK))
        try:
            table = pyarrow.json.read_json(pa.BufferReader(content), whole)
            fields = [(field.name, _simple_type(field.type, False)) for field in table.schema]
            schema = pa.schema(fields)
            if schema != table.schema:  # a text that looks like a date is still a text
                options = pyarrow.json.ParseOptions(explicit_schema=schema)
                table = pyarrow.json.read_json(pa.BufferReader(content), whole, options)
            table.validate(full=True)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise self._error(error) from None
        return table

    def _read_text(self, content: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
        content = content.lstrip(b"\r\n")
        content = content if content.endswith(b"\n") else content + b"\n"  # Arrow needs one
        start = content[:READ_BYTES].decode(errors="replace")
        file = self._with_separator(start)
        names = list(self.names or next(file._rows(start))[1])
        if "\ufffd" in "".join(names):
            self._text()  # raises the error of a byte that cannot be decoded
        _check_names(names, self.title)
        if file.separator == UNIT:
            if UNIT.encode() in content:
                raise TableError("holds the byte 0x1f", file=self.title, hint="another separator")
            content = content.replace(b"::", UNIT.encode())
        spans_lines = file._spans_lines(content)
        if spans_lines:
            deque(file._rows(self._text(), strict=True), maxlen=0)
        size, n_header = max(READ_BYTES, COLUMN_BYTES * len(names)), int(self.names is None)
        reading = pyarrow.csv.ReadOptions(
            block_size=size, column_names=names, skip_rows_after_names=n_header
        )
        parsing = pyarrow.csv.ParseOptions(
            delimiter=file.separator,
            quote_char=file.quote or False,
            escape_char=self.escape or False,
            newlines_in_values=spans_lines,
        )
        kinds = {name: types.get(name, pa.string()) for name in names}
        converting = pyarrow.csv.ConvertOptions(
            column_types=kinds, null_values=[""], strings_can_be_null=True
        )
        for reading.use_threads in (True, False):  # without threads, an error names the row
            try:
                source = pa.BufferReader(content)
                table = pyarrow.csv.read_csv(source, reading, parsing, converting)
                return _read_header_types(table)
            except pa.ArrowException as error:
                failure = error
        raise self._error(failure, names)

    def _error(self, error: Exception, names: Sequence[str] = ()) -> TableError:
        """Return what Arrow says about a file, with the line and the column of the row it names."""
        self._text()  # raises the error of a byte that cannot be decoded
        found = (_TEXT_ERROR if names else _JSON_ERROR).match(str(error))
        if found is None:
            hint = f"a row may be {READ_BYTES >> 20} MiB long"
            return TableError(str(error), file=self.title, hint=hint)
        column, line = found["column"] or None, self._line(int(found["row"]) - bool(names))
        hint = "one object in each line; a column must keep one type"
        if names:
            column = column and names[int(column)]
            hint = f"columns: {', '.join(names)}; is the separator right? write 3.5, not 3,5"
        return TableError(found["reason"], file=self.title, line=line, column=column, hint=hint)

    def _with_separator(self, start: str) -> TableFile:
        """Return the file with its separator guessed: for `::`, a byte beside which is no quote."""
        separator = self.separator or guess_separator(start, self.quote)
        if separator == "::":
            return replace(self, separator=UNIT, quote=None)
        return replace(self, separator=separator)

    def _rows(self, text: str, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Iterate over the rows of a text, each with the line it starts in.

        If `strict`, raise an error at a quote that does not end where a field does.
        """
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # Arrow has no limit
        file = io.StringIO(text.replace("::", UNIT) if self.separator == UNIT else text, newline="")
        reader = csv.reader(
            file,
            delimiter=self.separator or ",",
            quotechar=self.quote,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape,
            strict=strict,
        )
        line = 1
        try:
            for row in reader:
                if row:  # like Arrow, skip empty lines
                    yield line, row
                line = reader.line_num + 1
        except csv.Error:
            message = "a quote opens here and does not end where a field does"
            hint = "double a quote within quotes, or TableFile(path=..., quote=None)"
            line += self._n_before
            raise TableError(message, file=self.title, line=line, hint=hint) from None

    def _spans_lines(self, content: bytes) -> bool:
        """Return whether a quoted field may hold a line break: Arrow must not split there."""
        if self.quote is None or self.quote.encode() not in content:
            return False
        mark = self.quote.encode()
        if self.escape is not None:
            escape = self.escape.encode()
            content = content.replace(escape + escape, b"").replace(escape + mark, b"")
        within_lines = rb'(?:[^"]++|"[^"\r\n]*+")*+'.replace(b'"', re.escape(mark))
        return re.fullmatch(within_lines, content) is None


@dataclass(frozen=True, kw_only=True)
class _Block(TableFile):
    """Some rows of a file."""

    content: Any  # bytes of a text with its header, or a table of Parquet
    _n_before: int

    def _bytes(self) -> bytes:
        return self.content  # type: ignore[no-any-return]

    def _read_parquet(self) -> pa.Table:
        self.content.validate(full=True)
        return _simplify(self.content)


def _unpack(read: Callable[[int], bytes], n_packed: int, title: str) -> bytes:
    """Read what is unpacked, unless it is so much that the file must be malicious."""
    limit = max(UNPACKED_BYTES, EXPANSION * n_packed)
    blocks, left = [], limit
    while block := read(READ_BYTES):
        left -= len(block)
        if left < 0:
            message = f"unpacks to more than {limit >> 20:,} MiB, {EXPANSION} times its size"
            raise SourceError(f"{title}: {message}", hint="unpack it first if this is right")
        blocks.append(block)
    return b"".join(blocks)


def guess_separator(start: str, quote: str | None) -> str:
    """Guess the separator from the first line: `::`, a tab, or else the most frequent one."""
    first = re.split("[\r\n]", start.lstrip("\r\n")[:READ_BYTES], maxsplit=1)[0]
    if quote is not None:
        mark = re.escape(quote)
        first = re.sub(f"{mark}[^{mark}]*{mark}", "", first)
    if "::" in first:
        return "::"
    return "\t" if "\t" in first else max(",;|", key=first.count)


def check_depth(content: bytes, file: str) -> None:
    """Raise an error at a JSON line nested so deeply that readers run out of stack."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.count(b"[") + line.count(b"{") > _MAX_DEPTH:
            marks = _QUOTED.sub(b"", line)
            depths = accumulate((mark in b"[{") - (mark in b"]}") for mark in marks)
            if max(depths) > _MAX_DEPTH:
                message, hint = f"nested more than {_MAX_DEPTH} deep", "numbers, texts or lists"
                raise TableError(message, file=file, line=number, hint=hint)


def _read_header_types(table: pa.Table) -> pa.Table:
    """Split the sequences of a file of RecBole, whose header holds the types of columns."""
    header = [name.rpartition(":") for name in table.column_names]
    if not all(kind in _RECBOLE_TYPES for _, _, kind in header):
        return table
    columns = {}
    for (name, _, kind), column in zip(header, table.columns, strict=True):
        if kind.endswith("_seq"):
            column = pc.split_pattern(pc.utf8_trim_whitespace(column), " ")
        columns[name] = column.cast(pa.list_(pa.float64())) if kind == "float_seq" else column
    return pa.table(columns)


# files, a table of pandas, polars, pyarrow or DuckDB, also a lazy one, or a dict of columns
TableLike: TypeAlias = str | Path | TableFile | ArrowTable | LazyTable | Mapping[str, object]


class NamedTable(NamedTuple):
    """A table that was read, its name in errors, and a function that names one of its rows."""

    table: pa.Table
    title: str
    where: NameRow


def as_table(
    source: TableLike, title: str, types: Mapping[str, pa.DataType] | None = None
) -> NamedTable:
    """Read a table from any source; `types` are those of columns in a text file."""
    if isinstance(source, str | Path):
        source = TableFile(path=Path(source))
    if isinstance(source, TableFile):
        return NamedTable(source.read(types), source.title, source.where)
    table, name = _from_frame(source, title), f"the {title} table"
    _check_names(table.column_names, name)
    return NamedTable(table, name, f"row {{}} of {name}".format)


def _check_names(names: list[str], title: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ColumnError(f"{title}: column {repeated[0]!r} is there twice", hint="rename one")
    if "\0" in "".join(names):
        hint = "encoding='utf-16-le' or 'utf-16-be'"
        raise ColumnError(f"{title}: zero bytes in names of columns", hint=hint)


def _from_frame(source: TableLike, title: str) -> pa.Table:
    try:
        if isinstance(source, Mapping):  # Arrow takes no matrix as a column
            wide = [n for n, c in source.items() if isinstance(c, np.ndarray) and c.ndim == 2]
            source = {**source, **{name: list(np.asarray(source[name])) for name in wide}}
        if hasattr(source, "collect"):  # of polars
            source = source.collect()
        elif hasattr(source, "to_table") and not hasattr(source, "__arrow_c_stream__"):
            source = source.to_table()  # a pyarrow.dataset.Dataset
        # of polars rather by its own method: a categorical column is a view otherwise
        table = pa.table(source.to_arrow() if hasattr(source, "to_arrow") else source)
        table.validate(full=True)
        return _simplify(table)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        hint = "a path, a pandas, polars or pyarrow table, or a dict of columns of one type each"
        message = f"a {type(source).__name__} is not a {title} table ({error})"
        raise DataError(message, hint=hint) from None


def _simplify(table: pa.Table) -> pa.Table:
    """Cast columns to the simplest type that holds the same values; drop an unnamed index."""
    names = enumerate(table.column_names)
    table = table.select([at for at, name in names if not _PANDAS_INDEX.match(name)])
    fields = [field.with_type(_simple_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _simple_type(kind: pa.DataType, dates: bool = True) -> pa.DataType:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _simple_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_simple_type(kind.value_type, dates))
    if isinstance(kind, pa.BaseExtensionType):  # such as a period of pandas
        return _simple_type(kind.storage_type)
    if pa.types.is_decimal(kind):
        return pa.float64()
    is_date = pa.types.is_timestamp(kind)
    return pa.string() if is_text(kind) or (is_date and not dates) else _USUAL.get(kind, kind)


def infer_types(table: pa.Table, keep: str) -> pa.Table:
    """Turn text columns that hold only numbers into numbers, and spelled-out nulls into nulls.

    A number with leading zeros is a code, not a quantity: its column stays text, as does `keep`.
    """
    columns = zip(table.column_names, table.columns, strict=True)
    return pa.table({name: each if name == keep else infer_type(each) for name, each in columns})


def infer_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn a column of texts into numbers, or lists of them, if it holds nothing else."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if not pa.types.is_string(column.type):
        return column
    column = pc.if_else(pc.is_in(column, pa.array(NULLS)), pa.scalar(None, pa.string()), column)
    known = column.drop_null()
    if len(known) and known[0].as_py().startswith("["):
        return _infer_lists(column)
    if not len(known) or not re.match(DECIMAL, known[0].as_py()):
        return column
    for pattern, number in ((INTEGER, pa.int64()), (DECIMAL, pa.float64())):
        if pc.all(pc.match_substring_regex(known, pattern)).as_py():
            with suppress(pa.ArrowInvalid):  # more digits than the type holds, or a lone "."
                return pc.utf8_trim_whitespace(column).cast(number)
            break
    return column


def _infer_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn texts such as "[0.1, 0.2]" or "[0.1 0.2]" into lists of numbers."""
    if not pc.all(pc.match_substring_regex(column, r"^\[[^\[\]]*[0-9.][^\[\]]*\]$")).as_py():
        return column
    lists = pc.split_pattern_regex(pc.utf8_trim(column, "[] "), r"[,\s]+")
    for number in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return lists.cast(pa.list_(number))
    return column
