"""The model file: JSON and arrays in the safetensors layout, with a checksum.

    8 bytes      the length of the header, little-endian
    header       JSON: for each tensor its type, shape and place; under `__metadata__` the format
                 version and, as one JSON text, everything that is not an array
    tensors      one after the other, wide types first, so that each is aligned
    checksum     the last tensor: SHA-256 of all bytes before it

Any safetensors reader opens it, and nothing in it can run. It is written beside its place and then
renamed, so that a crash leaves the old file or the new one. It is read by memory map: processes
that serve the same file share its pages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from coldhash.errors import ChecksumError, ModelFileError, SourceError

FORMAT = 1
CHECKSUM = "checksum"
N_CHECKSUM = 32
N_LENGTH = 8
LARGEST_HEADER = 100_000_000  # as the safetensors readers have it
TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "I64": np.int64,
    "U64": np.uint64,
    "I32": np.int32,
    "U32": np.uint32,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
NAMES = {np.dtype(form): name for name, form in TYPES.items()}


def write(path: Path, facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Write a file in one step: whoever looks sees the old one or the new one."""
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    header = _header(facts, arrays)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    digest = hashlib.sha256()
    try:
        with draft.open("xb") as file:
            for part in (header, *(_bytes_of(arrays[name]) for name in _placed(arrays))):
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise SourceError(
            f"cannot write {path}: {error.strerror}; what was there is untouched",
            hint="make room, or name another folder",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def read(path: Path, verify: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Map a file into memory: what is not an array, and the arrays.

    Without `verify` the checksum is not looked at: only for files that nobody else can have
    touched.
    """
    mapped = _mapped(path)
    if len(mapped) < N_LENGTH + N_CHECKSUM:
        raise ModelFileError(f"{path} is too short to be a model file")
    if verify:
        body = memoryview(mapped)[:-N_CHECKSUM]
        whole = hashlib.sha256(body).digest() == mapped[-N_CHECKSUM:]
        body.release()
        if not whole:
            raise ChecksumError(
                f"{path}: the checksum does not fit: the file is damaged or no model file",
                hint="save the model again, or copy the file again",
            )
    facts, places = _parsed(path, mapped)
    start = N_LENGTH + int.from_bytes(mapped[:N_LENGTH], "little")
    view = np.frombuffer(mapped, dtype=np.uint8)
    tensors = {name: _tensor(path, view[start:], name, place) for name, place in places.items()}
    return facts, tensors


def _header(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    metadata = {"format": "coldhash", "version": str(FORMAT), "facts": json.dumps(facts)}
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in _placed(arrays):
        start, end = end, end + arrays[name].nbytes
        entries[name] = _entry(NAMES[arrays[name].dtype], arrays[name].shape, start, end)
    entries[CHECKSUM] = _entry("U8", (N_CHECKSUM,), end, end + N_CHECKSUM)
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 64)  # the tensors start aligned
    return len(text).to_bytes(N_LENGTH, "little") + text


def _entry(dtype: str, shape: tuple[int, ...], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def _placed(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Order tensors so that each starts at a multiple of its item size."""
    return sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))


def _bytes_of(array: np.ndarray) -> Any:
    return array.reshape(-1).view(np.uint8).data  # hashed and written without a copy


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # so that the new name survives a power cut
    finally:
        os.close(handle)


def _mapped(path: Path) -> mmap.mmap | bytes:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""
            # copy-on-write: nobody writes, so pages stay shared; compiled code takes arrays that
            # could be written to by a much quicker way than read-only ones
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from None


def _parsed(path: Path, mapped: mmap.mmap | bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the header: facts and places of tensors."""
    length = int.from_bytes(mapped[:N_LENGTH], "little")
    if length > min(LARGEST_HEADER, len(mapped) - N_LENGTH):
        raise ModelFileError(f"{path}: its header claims {length:,} bytes: no model file")
    try:
        entries = json.loads(mapped[N_LENGTH : N_LENGTH + length])
        metadata = entries.pop("__metadata__")
        foreign = metadata["format"] != "coldhash"
        version = int(metadata["version"])
        entries.pop(CHECKSUM)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        foreign, version = True, 0
    if foreign:
        raise ModelFileError(f"{path} is not a model file of coldhash")
    if version > FORMAT:
        raise ModelFileError(
            f"{path} is of format {version}, newer than this version reads ({FORMAT})",
            hint="upgrade coldhash",
        )
    return json.loads(metadata["facts"]), entries


def _tensor(path: Path, body: np.ndarray, name: str, place: Any) -> np.ndarray:
    try:
        start, end = place["data_offsets"]
        form, shape = np.dtype(TYPES[place["dtype"]]), tuple(place["shape"])
        if not 0 <= start <= end <= len(body):
            raise ValueError("outside the file")
        return body[start:end].view(form).reshape(shape)
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path}: tensor {name!r} cannot be read: {error}") from None


def arrow_bytes(table: pa.Table) -> np.ndarray:
    """Turn a table into bytes that can be a tensor."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def arrow_table(content: np.ndarray) -> pa.Table:
    """Undo `arrow_bytes`, without copying."""
    return pa.ipc.open_file(pa.py_buffer(content)).read_all()
