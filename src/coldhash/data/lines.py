"""Read files as bytes, as text and line by line.

Going through lines is slow, but it can tell where a row is and what is wrong with it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.errors import SettingError, SourceError, TableError

if TYPE_CHECKING:
    from _csv import Reader

UNIT = "\x1f"  # the "unit separator" replaces `::`, which no reader splits at
READ_BYTES = 1 << 22  # bytes read at a time, and the length of the longest row
UNPACKED_BYTES = 1 << 28  # bytes that any file may unpack to
EXPANSION = 200  # how many times its size a larger file may unpack to; tables stay below 50
COMPRESSION = {"gz": "gzip", "zst": "zstd"}
_MAX_DEPTH = 100  # levels of lists and objects in JSON
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_JSON_TYPES = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


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
    except OSError as error:
        raise SourceError(f"{title}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, pa.ArrowException) as error:
        raise SourceError(f"{title}: cannot be unpacked: {error}") from None
    return content


def _unpack(read: Callable[[int], bytes], n_packed: int, title: str) -> bytes:
    """Read what is unpacked, unless it is so much that the file must be malicious."""
    limit = max(UNPACKED_BYTES, EXPANSION * n_packed)
    blocks, left = [], limit
    while block := read(READ_BYTES):
        left -= len(block)
        if left < 0:
            raise SourceError(
                f"{title}: unpacks to more than {limit >> 20:,} MiB, {EXPANSION} times its size",
                hint="unpack it first if this is right",
            )
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
    first = re.split("[\r\n]", start, maxsplit=1)[0]
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
                    raise TableError(
                        "a quote opens here and does not end where a field does",
                        file=file,
                        line=line,
                        hint="double a quote within quotes, or TableFile(path=..., quote=None)",
                    ) from None

    def spans_lines(self, content: bytes) -> bool:
        """Return whether a quoted field may hold a line break: Arrow must not split there."""
        if self.quote is None or self.quote.encode() not in content:
            return False
        mark = self.quote.encode()
        if self.escape is not None:
            escape = self.escape.encode()
            content = content.replace(escape + escape, b"").replace(escape + mark, b"")
        inside = 0  # 1 after an odd number of quotes
        for start in range(0, len(content), READ_BYTES):
            block = np.frombuffer(content[start : start + READ_BYTES], np.uint8)
            odd = np.bitwise_xor.accumulate((block == ord(mark)).view(np.uint8)) ^ inside
            if odd[(block == ord("\n")) | (block == ord("\r"))].any():
                return True
            inside = odd[-1]
        return False

    def _reader(self, text: str, strict: bool) -> Reader:
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # Arrow has no limit
        if self.separator == "::":
            text = text.replace("::", UNIT)
        return csv.reader(
            io.StringIO(text, newline=""),
            delimiter=UNIT if self.separator == "::" else self.separator,
            quotechar=self.quote,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape,
            strict=strict,
        )


def find_text_error(
    rows: Iterator[tuple[int, list[str]]], names: list[str], numbers: Collection[str], file: str
) -> TableError | None:
    """Find the first row that has too many or too few fields, or a text for a number."""
    for line, row in rows:
        if len(row) != len(names):
            return TableError(
                f"{len(row)} fields where {len(names)} are expected",
                file=file,
                line=line,
                hint=f"columns: {', '.join(names)}; is the separator right?",
            )
        for name, value in zip(names, row, strict=True):
            if name in numbers and value and not is_number(value):
                hint = "write 3.5, and leave out rows without a number"
                message = f"{value!r} is not a number"
                return TableError(message, file=file, line=line, column=name, hint=hint)
    return None


def is_number(text: str) -> bool:
    """Return whether Arrow reads this text as a number."""
    try:
        pc.cast(pa.array([text.strip()]), pa.float32())
    except pa.ArrowInvalid:
        return False
    return True


def find_json_error(text: str, file: str) -> TableError | None:
    """Find the first line that is not a JSON object, or in which a column changes its type."""
    types: dict[str, str] = {}
    for line, content in json_lines(text):
        try:
            row = json.loads(content, object_pairs_hook=_unique_keys)
        except (ValueError, RecursionError) as error:
            hint = "one object in each line"
            return TableError(f"not JSON: {error}", file=file, line=line, hint=hint)
        if not isinstance(row, dict):
            return TableError("not a JSON object", file=file, line=line, hint='{"name": value}')
        for name, value in row.items():
            found = types.get(name) if value is None else _JSON_TYPES[type(value)]
            if found is not None and types.setdefault(name, found) != found:
                message = f"{found} where {types[name]} came before"
                hint = "a column must keep one type"
                return TableError(message, file=file, line=line, column=name, hint=hint)
    return None


def check_depth(content: bytes, file: str) -> None:
    """Raise an error at a JSON line nested so deeply that readers run out of stack."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.count(b"[") + line.count(b"{") > _MAX_DEPTH:
            marks = _QUOTED.sub(b"", line)
            depths = accumulate((mark in b"[{") - (mark in b"]}") for mark in marks)
            if max(depths) > _MAX_DEPTH:
                raise TableError(
                    f"nested more than {_MAX_DEPTH} deep",
                    file=file,
                    line=number,
                    hint="a value is a number, a text or a list of them",
                )


def json_lines(text: str) -> Iterator[tuple[int, str]]:
    """Iterate over the lines that are not empty; only a line feed ends one."""
    return ((n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip())


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a name is there twice in one object")
    return row
