"""Read files as bytes, as text and line by line.

Going through lines is slow, but it can tell in which line a row is.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from coldhash.errors import SettingError, SourceError, TableError

if TYPE_CHECKING:
    from _csv import Reader

UNIT = "\x1f"  # the "unit separator" replaces `::`, which no reader splits at
READ_BYTES = 1 << 22  # bytes read at a time, and the length of the longest row
COLUMN_BYTES = 1024  # bytes read at a time for each column: every block makes a chunk of each
UNPACKED_BYTES = 1 << 28  # bytes that any file may unpack to
EXPANSION = 200  # how many times its size a larger file may unpack to; tables stay below 50
COMPRESSION = {"gz": "gzip", "zst": "zstd"}
_READ_ERRORS = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, pa.ArrowException)
_MAX_DEPTH = 100  # levels of lists and objects in JSON
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+"')


def read_bytes(path: Path, member: str | None, title: str) -> bytes:
    """Read a file, or a member of a zip archive, and unpack it according to its suffix."""
    try:
        if member is None:
            content = path.read_bytes()
        else:
            with zipfile.ZipFile(path) as archive, archive.open(member) as file:
                content = _unpack(file.read, archive.getinfo(member).compress_size, title)
        suffix = (member or path.name).rsplit(".", 1)[-1].lower()
        if suffix in COMPRESSION:
            packed = pa.BufferReader(content)
            with pa.CompressedInputStream(packed, COMPRESSION[suffix]) as stream:
                content = _unpack(stream.read, len(content), title)
    except KeyError:
        raise SourceError(f"{path} holds no {member}") from None
    except SourceError:
        raise
    except _READ_ERRORS as error:
        raise SourceError(f"{title}: {getattr(error, 'strerror', None) or error}") from None
    return content


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


def decode(content: bytes, encoding: str, title: str) -> str:
    """Turn bytes into text without a byte order mark; an error names the line."""
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        utf_16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        raise TableError(
            f"byte {content[error.start]:#04x} is not {encoding}",
            file=title,
            line=len(content[: error.start + 1].splitlines()),
            hint=f"encoding={'utf-16' if utf_16 else 'latin-1'!r}",
        ) from None
    except (LookupError, ValueError):
        raise SettingError(f"unknown encoding {encoding!r}", hint="'utf-8', 'latin-1'") from None


def guess_separator(start: str, quote: str | None) -> str:
    """Guess the separator from the first line: `::`, a tab, or else the most frequent one."""
    first = re.split("[\r\n]", start.lstrip("\r\n")[:READ_BYTES], maxsplit=1)[0]
    if quote is not None:
        mark = re.escape(quote)
        first = re.sub(f"{mark}[^{mark}]*{mark}", "", first)
    if "::" in first:
        return "::"
    return "\t" if "\t" in first else max(",;|", key=first.count)


@dataclass(frozen=True)
class Dialect:
    """How the fields of a row are separated."""

    separator: str
    quote: str | None
    escape: str | None

    def rows(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """Iterate over the rows, each with the line it starts in."""
        reader = self._reader(text, strict=False)
        line = 1
        for row in reader:
            if row:  # like Arrow, skip empty lines
                yield line, [field.replace(UNIT, "::") for field in row]
            line = reader.line_num + 1

    def check_quotes(self, text: str, file: str) -> None:
        """Raise an error at a quote that spans lines and does not end where a field does."""
        reader = self._reader(text, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                next(reader)
            except StopIteration:
                return
            except csv.Error:
                if reader.line_num > line:
                    message = "a quote opens here and does not end where a field does"
                    hint = "double a quote within quotes, or TableFile(path=..., quote=None)"
                    raise TableError(message, file=file, line=line, hint=hint) from None

    def spans_lines(self, content: bytes) -> bool:
        """Return whether a quoted field may hold a line break: Arrow must not split there."""
        if self.quote is None or self.quote.encode() not in content:
            return False
        mark = self.quote.encode()
        if self.escape is not None:
            escape = self.escape.encode()
            content = content.replace(escape + escape, b"").replace(escape + mark, b"")
        within_lines = rb'(?:[^"]++|"[^"\r\n]*+")*+'.replace(b'"', re.escape(mark))
        return re.fullmatch(within_lines, content) is None

    def parse(
        self,
        content: bytes,
        types: dict[str, pa.DataType],
        has_header: bool,
        spans_lines: bool,
        *,
        use_threads: bool,
    ) -> pa.Table:
        """Read a table with the given columns by Arrow; without threads, errors name the row."""
        double = self.separator == "::"
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content.replace(b"::", UNIT.encode()) if double else content),
            pyarrow.csv.ReadOptions(
                use_threads=use_threads,
                block_size=max(READ_BYTES, COLUMN_BYTES * len(types)),
                column_names=list(types),
                skip_rows_after_names=int(has_header),
            ),
            pyarrow.csv.ParseOptions(
                delimiter=self.separator.replace("::", UNIT),
                quote_char=self.quote or False,
                escape_char=self.escape or False,
                newlines_in_values=spans_lines,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=True
            ),
        )
        return _restore_colons(table) if double and self.quote else table

    def _reader(self, text: str, strict: bool) -> Reader:
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # Arrow has no limit
        text = text.replace("::", UNIT) if self.separator == "::" else text
        return csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self.separator.replace("::", UNIT),
            quotechar=self.quote,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape,
            strict=strict,
        )


def _restore_colons(table: pa.Table) -> pa.Table:
    """Undo the replacement of `::` within quotes."""
    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = pc.replace_substring(table.column(at), UNIT, "::")
            table = table.set_column(at, field.name, texts)
    return table


def check_depth(content: bytes, file: str) -> None:
    """Raise an error at a JSON line nested so deeply that readers run out of stack."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.count(b"[") + line.count(b"{") > _MAX_DEPTH:
            marks = _QUOTED.sub(b"", line)
            depths = accumulate((mark in b"[{") - (mark in b"]}") for mark in marks)
            if max(depths) > _MAX_DEPTH:
                message, hint = f"nested more than {_MAX_DEPTH} deep", "numbers, texts or lists"
                raise TableError(message, file=file, line=number, hint=hint)


def json_lines(text: str) -> Iterator[tuple[int, str]]:
    """Iterate over the lines that are not empty; only a line feed ends one."""
    return ((n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip())
