"""Files as bytes, as text, and line by line.

Going through lines is slow, but it knows where a row is and what is wrong with it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.errors import SettingError, SourceError, TableError

UNIT = "\x1f"  # the "unit separator" stands in for `::`, which no reader can split at
BLOCK = 1 << 22  # bytes looked at in one go
HARMLESS = 1 << 28  # bytes that anything may unpack to
EXPANSION = 200  # times that a file of more may grow; tables grow less than 50 times
DEEPEST = 100  # levels of lists and objects in JSON
QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+"')
OPENING, CLOSING = list(b"[{"), list(b"]}")
PACKERS = {"gz": "gzip", "zst": "zstd"}


def unpacked(path: Path, member: str | None, title: str) -> bytes:
    """Read a file, or a member of a zip archive, and unpack it if its ending says so."""
    try:
        if member is None:
            content = path.read_bytes()
        else:
            with zipfile.ZipFile(path) as archive, archive.open(member) as file:
                content = _bounded(file, archive.getinfo(member).compress_size, title)
        packer = PACKERS.get((member or path.name).rsplit(".", 1)[-1].lower())
        if packer is not None:
            with pa.CompressedInputStream(pa.BufferReader(content), packer) as file:
                content = _bounded(file, len(content), title)
    except KeyError:
        raise SourceError(f"{path} holds no {member}") from None
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"{title}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, pa.ArrowException) as error:
        raise SourceError(f"{title}: cannot be unpacked: {error}") from None
    return content


def _bounded(file: Any, n_packed: int, title: str) -> bytes:
    """Read what is unpacked, unless it is so much more than was packed that it must be a bomb."""
    limit = max(HARMLESS, EXPANSION * n_packed)
    blocks, left = [], limit
    while block := file.read(BLOCK):
        left -= len(block)
        if left < 0:
            raise SourceError(
                f"{title}: unpacks to more than {limit >> 20:,} MiB, {EXPANSION} times its size",
                hint="unpack it first if this is right",
            )
        blocks.append(block)
    return b"".join(blocks)


def decoded(content: bytes, encoding: str, title: str) -> str:
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


def found_separator(start: str, quote: str | None) -> str:
    """Look at the first line: `::` or a tab wins where it occurs, or else the most frequent."""
    first = re.split("[\r\n]", start, maxsplit=1)[0]
    if quote is not None:
        mark = re.escape(quote)
        first = re.sub(f"{mark}[^{mark}]*{mark}", "", first)
    if "::" in first:
        return "::"
    return "\t" if "\t" in first else max(",;|", key=first.count)


@dataclass(frozen=True)
class Dialect:
    """How the fields of a row are told apart."""

    separator: str
    quote: str | None
    escape: str | None

    def rows(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """Go through the rows one by one, each with the line it starts in."""
        reader = self._reader(text, strict=False)
        line = 1
        for row in reader:
            if row:  # like Arrow, pass over empty lines
                yield line, [field.replace(UNIT, "::") for field in row]
            line = reader.line_num + 1

    def check_quotes(self, text: str, file: str) -> None:
        """Refuse a quote that swallows lines and does not end where a field does."""
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
        """Whether a quoted field may hold a line break: then Arrow must not cut at any of them."""
        if self.quote is None or self.quote.encode() not in content:
            return False
        if self.escape is not None:
            mark = self.escape.encode()
            content = content.replace(mark + mark, b"").replace(mark + self.quote.encode(), b"")
        inside = 0  # 1 after an odd number of quotes
        for start in range(0, len(content), BLOCK):
            block = np.frombuffer(content, np.uint8, min(BLOCK, len(content) - start), start)
            odd = np.bitwise_xor.accumulate((block == ord(self.quote)).view(np.uint8)) ^ inside
            if odd[(block == ord("\n")) | (block == ord("\r"))].any():
                return True
            inside = odd[-1]
        return False

    def _reader(self, text: str, strict: bool) -> Any:
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # Arrow knows no limit
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


def text_fault(
    rows: Iterator[tuple[int, list[str]]],
    names: list[str],
    numbers: Collection[str],
    file: str,
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
                return TableError(
                    f"{value!r} is not a number",
                    file=file,
                    line=line,
                    column=name,
                    hint="write 3.5, and leave out rows without a number",
                )
    return None


def is_number(text: str) -> bool:
    """Whether Arrow reads this text as a number."""
    try:
        pc.cast(pa.array([text.strip()]), pa.float32())
    except pa.ArrowInvalid:
        return False
    return True


def json_fault(text: str, file: str) -> TableError | None:
    """Find the first line that is no JSON object, or in which a column changes its type."""
    kinds: dict[str, str] = {}
    for line, content in json_lines(text):
        try:
            row = json.loads(content, object_pairs_hook=_distinct_keys)
        except (ValueError, RecursionError) as error:
            return TableError(
                f"not JSON: {error}", file=file, line=line, hint="one object in each line"
            )
        if not isinstance(row, dict):
            return TableError("not a JSON object", file=file, line=line, hint='{"name": value}')
        for name, value in row.items():
            if value is None:
                continue
            kind = KINDS[type(value)]
            if kinds.setdefault(name, kind) != kind:
                return TableError(
                    f"{kind} where {kinds[name]} came before",
                    file=file,
                    line=line,
                    column=name,
                    hint="a column must keep one type",
                )
    return None


def check_depth(content: bytes, file: str) -> None:
    """Refuse JSON lines nested so deeply that readers run out of stack."""
    start, line = 0, 1
    while start < len(content):
        end = content.find(b"\n", start + BLOCK) + 1 or len(content)
        block = np.frombuffer(content, np.uint8, end - start, start)
        ends = np.append(np.flatnonzero(block == ord("\n")), len(block) - 1)
        opened = np.cumsum((block == ord("[")) | (block == ord("{")), dtype=np.int64)[ends]
        for at in np.flatnonzero(np.diff(opened, prepend=0) > DEEPEST):
            first = start + (ends[at - 1] + 1 if at else 0)
            marks = QUOTED.sub(b"", content[first : start + ends[at] + 1])
            signs = np.frombuffer(marks, np.uint8)
            steps = np.isin(signs, OPENING).astype(np.int64) - np.isin(signs, CLOSING)
            if np.cumsum(steps).max(initial=0) > DEEPEST:
                raise TableError(
                    f"nested more than {DEEPEST} deep",
                    file=file,
                    line=line + int(at),
                    hint="a value is a number, a text or a list of them",
                )
        start, line = end, line + len(ends) - 1


def json_lines(text: str) -> Iterator[tuple[int, str]]:
    """Go through the lines that are not empty; only a line feed ends one."""
    return ((n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip())


KINDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a name is there twice in one object")
    return row
