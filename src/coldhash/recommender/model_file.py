"""Model files: JSON and arrays in the safetensors layout, with a checksum.

    8 bytes      the length of the header, little-endian
    header       JSON: first, under `__metadata__`, the format version and, as one JSON text,
                 everything that is not an array; then for each tensor its type, shape and place
    tensors      one after the other, in an order in which each is aligned
    checksum     the last tensor: SHA-256 of all bytes before it

Any safetensors reader opens it, and nothing in it can run. It is written beside its place and then
renamed, so that a crash leaves the old file or the new one. It is read by memory map: processes
that load the same file share its pages. To change it, put another file in its place: a file that
is overwritten changes for everybody who has mapped it, and one that is cut off ends their process
(SIGBUS). The service maps a private copy.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from coldhash.errors import ChecksumError, ModelFileError
from coldhash.files import open_regular, replace_file

FORMAT = 4
CHECKSUM = "checksum"
N_CHECKSUM = 32
N_VERSION = 16  # hexadecimal digits of the checksum that are the version of a model
N_LENGTH = 8
HEAD = re.compile(rb'{"__metadata__":{"format":"coldhash","version":"([0-9]{1,9})"')
LARGEST_HEADER = 100_000_000  # as the safetensors readers have it
LINE = 64  # bytes of a cache line, and what Arrow aligns to
TYPES = {"BOOL": np.dtype(bool)}
for _form in "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8".split():  # F16, F32, ...
    TYPES[f"{_form[0].upper()}{8 * int(_form[1])}"] = np.dtype(_form)
TYPE_NAMES = {form: name for name, form in TYPES.items()}
AGAIN = "save the model again, or copy the file again"
# what a header that is not as written may lead to
ODD = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


def write(path: Path, facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Write a file in one step: a reader sees the old one or the new one."""
    arrays = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    # each is aligned: whole cache lines come first, then wide types
    names = sorted(arrays, key=lambda n: (arrays[n].nbytes % LINE > 0, -arrays[n].itemsize))
    header = _header(facts, {name: arrays[name] for name in names})
    if len(header) > LARGEST_HEADER:
        raise ModelFileError(
            f"{path}: {len(header):,} bytes of labels and settings are more than a file can hold",
            hint="a column has too many labels: give it a larger min_count",
        )
    parts: list[bytes | memoryview] = [header]
    parts += [arrays[name].reshape(-1).view(np.uint8).data for name in names]
    digest = hashlib.sha256()
    with replace_file(path) as file:
        for part in parts:
            digest.update(part)
            file.write(part)
        file.write(digest.digest())


def read(
    path: Path, verify: bool = True, file: BinaryIO | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Map a file into memory: what is not an array, and the arrays.

    An open `file` is mapped instead of the one at `path`, which errors name.

    Without `verify` only the header is checked, and that all its tensors are there in full length.
    What they hold is taken on trust, so that a damaged id or index may give a wrong answer or crash
    the process: only for files that nobody can have touched since they were verified.
    """
    mapped = _mapped(path, file)
    start = _start(path, mapped)
    if verify:
        with memoryview(mapped) as whole, whole[:-N_CHECKSUM] as body:
            if hashlib.sha256(body).digest() != whole[-N_CHECKSUM:]:
                raise ChecksumError(f"{path} is damaged: the checksum does not fit", hint=AGAIN)
        mapped.madvise(mmap.MADV_DONTNEED)  # what is not used need not be in memory
    try:
        entries = json.loads(mapped[N_LENGTH:start])
        facts = json.loads(entries.pop("__metadata__")["facts"])
        return facts, _tensors(mapped, start, entries)
    except ODD as error:
        raise ModelFileError(f"{path}: its header cannot be read: {error!r}") from None


def _header(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    metadata = {"format": "coldhash", "version": str(FORMAT), "facts": json.dumps(facts)}
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in {**arrays, CHECKSUM: np.empty(N_CHECKSUM, np.uint8)}.items():
        start, end = end, end + array.nbytes
        kind = TYPE_NAMES[array.dtype]
        entries[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(N_LENGTH + len(text)) % LINE)  # the tensors start aligned
    return len(text).to_bytes(N_LENGTH, "little") + text


def _mapped(path: Path, file: BinaryIO | None) -> mmap.mmap:
    with open_regular(path) if file is None else nullcontext(file) as opened:
        if os.fstat(opened.fileno()).st_size == 0:
            raise ModelFileError(f"{path} is empty: no model file")
        # copy-on-write: nobody writes, so pages stay shared; compiled code takes arrays
        # that could be written to by a much quicker way than read-only ones
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)


def _start(path: Path, mapped: mmap.mmap) -> int:
    """Find where the tensors start, by as little of the file as tells what it is."""
    head = HEAD.match(mapped, N_LENGTH)
    if head is None:
        raise ModelFileError(f"{path} is not a model file of coldhash")
    version = int(head[1])
    if version != FORMAT:
        if version < FORMAT:
            why = f"was written by coldhash 0.1 (format {version}, this version reads {FORMAT})"
            hint = "fit the model again, by `fit` and `save` or `coldhash fit`"
        else:
            why = f"is of format {version}, newer than this version reads ({FORMAT})"
            hint = "upgrade coldhash"
        raise ModelFileError(f"{path} {why}", hint=hint)
    length = int.from_bytes(mapped[:N_LENGTH], "little")
    if length > min(LARGEST_HEADER, len(mapped) - N_LENGTH - N_CHECKSUM):
        raise ModelFileError(f"{path} is damaged: its header claims {length:,} bytes", hint=AGAIN)
    return N_LENGTH + length


def _tensors(mapped: mmap.mmap, start: int, entries: dict[str, Any]) -> dict[str, np.ndarray]:
    """Cut the tensors out; as each begins where the last one ends, nothing may be missing."""
    tensors: dict[str, np.ndarray] = {}
    end = 0
    for name, entry in entries.items():
        form, shape = TYPES[entry["dtype"]], entry["shape"]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"{name!r} has the shape {shape}")
        begin, end = end, end + math.prod(shape) * form.itemsize
        if entry["data_offsets"] != [begin, end] or begin % form.itemsize:
            raise ValueError(f"{name!r} is out of place")
        if start + end > len(mapped):
            raise ValueError(f"{name!r} is cut off")
        values = np.frombuffer(mapped, form, math.prod(shape), start + begin)
        tensors[name] = values.reshape(shape)
    if start + end != len(mapped) or tensors.pop(CHECKSUM).nbytes != N_CHECKSUM:
        raise ValueError("the file does not end where the tensors do")
    return tensors


def read_version(file: BinaryIO) -> str:
    """Return the version of the model in an open file: the start of the checksum at its end."""
    handle = file.fileno()
    start = max(os.fstat(handle).st_size - N_CHECKSUM, 0)
    return os.pread(handle, N_CHECKSUM, start).hex()[:N_VERSION]


def file_date(nanoseconds: int) -> str:
    """Return the time of a file as a text; it is not in the file, which only the fit decides."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat(timespec="seconds")


def arrow_bytes(table: pa.Table) -> np.ndarray:
    """Turn a table into bytes that can be a tensor."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    sink.write(bytes(-sink.tell() % LINE))
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def arrow_table(content: np.ndarray, verify: bool = True) -> pa.Table:
    """Undo `arrow_bytes`, without copying; with `verify` every value in it is safe to read."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(content)).read_all()
        table.validate(full=verify)
        if len({*table.column_names}) < table.num_columns:
            raise ValueError("two columns have the same name")
    except (pa.ArrowException, OSError, *ODD) as error:
        raise ModelFileError(f"the table cannot be read: {error}") from None
    return table
