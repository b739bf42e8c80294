"""Values of partitions in files, read as mapped arrays: only what is touched is read."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.partitions import Stored, loaded


class StoredArray:
    """An array in a file of its own, which is removed when nothing refers to it any more."""

    def __init__(self, path: Path, array: np.ndarray) -> None:
        np.save(path, array)
        self._path = path
        weakref.finalize(self, path.unlink, missing_ok=True)

    def load(self) -> np.ndarray:
        """Map the file; writing to the array does not change it."""
        return np.asarray(np.load(self._path, mmap_mode="c"))


class StoredTable:
    """An Arrow table in a file."""

    def __init__(self, path: Path, table: pa.Table) -> None:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        self._path = path

    def load(self) -> pa.Table:
        """Read the table."""
        with pa.OSFile(str(self._path)) as file:
            return pa.ipc.open_file(file).read_all()


@dataclass(frozen=True, eq=False)
class Assembled:
    """A value made of stored parts."""

    make: Callable[..., Any]
    parts: Mapping[str, Any]

    def load(self) -> Any:
        """Load the parts and put them together."""
        return self.make(**{name: loaded(part) for name, part in self.parts.items()})


def store(value: Any, path: Path) -> Any:
    """Write a value to files whose names begin with `path`; anything small stays as it is."""
    if isinstance(value, np.ndarray):
        return StoredArray(path.with_name(f"{path.name}.npy"), value)
    if isinstance(value, csr_array):
        shape = tuple(value.shape)
        arrays = {"data": value.data, "indices": value.indices, "indptr": value.indptr}

        def matrix(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> csr_array:
            return csr_array((data, indices, indptr), shape=shape)

        return Assembled(matrix, _store_all(arrays, path))
    if isinstance(value, dict):
        names = list(value)

        def restore(**parts: Any) -> dict[str, Any]:
            return dict(zip(names, parts.values(), strict=True))

        # numbered, not named: a group may be called anything
        numbered = {f"_{n}": each for n, each in enumerate(value.values())}
        return Assembled(restore, _store_all(numbered, path))
    if isinstance(value, pa.Table):
        return StoredTable(path.with_name(f"{path.name}.arrow"), value)
    if is_dataclass(value) and not isinstance(value, type) and not isinstance(value, Stored):
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        return Assembled(type(value), _store_all(own, path))
    return value


def _store_all(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    return {
        name: store(each, path.with_name(f"{path.name}.{name}")) for name, each in values.items()
    }


def remove(folder: Path) -> None:
    """Remove a folder of values."""
    shutil.rmtree(folder, ignore_errors=True)
