"""Values of partitions in files: whatever has `load` stands for what it loads."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array


@runtime_checkable
class Stored(Protocol):
    """A value that is somewhere else."""

    def load(self) -> Any:
        """Bring it into memory."""
        ...


def loaded(value: Any) -> Any:
    """Give a value itself, from wherever it is."""
    return value.load() if isinstance(value, Stored) else value


class Lazy(Mapping[str, Any]):
    """A partition whose values are loaded when they are asked for, and kept while it lives."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = loaded(self._values[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class _Array:
    path: Path

    def load(self) -> np.ndarray:
        return np.load(self.path)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Matrix:
    entries: tuple[_Array, _Array, _Array]
    shape: tuple[int, int]

    def load(self) -> csr_array:
        return csr_array(tuple(array.load() for array in self.entries), shape=self.shape)


@dataclass(frozen=True)
class _Dict:
    values: dict[str, Any]

    def load(self) -> Mapping[str, Any]:
        return Lazy(self.values)


@dataclass(frozen=True)
class _Table:
    path: Path

    def load(self) -> pa.Table:
        with pa.OSFile(str(self.path)) as file:
            return pa.ipc.open_file(file).read_all()


def saved(value: Any, place: Path) -> Any:
    """Write a value to files that begin with `place`; anything small stays as it is."""
    if isinstance(value, np.ndarray):
        np.save(place, value)
        return _Array(place.with_name(place.name + ".npy"))
    if isinstance(value, csr_array):
        arrays = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
        entries = [saved(array, _beside(place, name)) for name, array in arrays.items()]
        return _Matrix(tuple(entries), value.shape)
    if isinstance(value, dict):
        # numbered, not named: a group may be called anything
        return _Dict(
            {k: saved(v, _beside(place, str(n))) for n, (k, v) in enumerate(value.items())}
        )
    if isinstance(value, pa.Table):
        path = _beside(place, "arrow")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, value.schema) as writer:
            writer.write_table(value)
        return _Table(path)
    return value


def _beside(place: Path, name: str) -> Path:
    return place.with_name(f"{place.name}.{name}")


Room = Callable[[str, tuple[int, ...], Any], np.ndarray]


def mapped_room(folder: Path, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Make an array in a file; it stays when the file's name is removed."""
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)


def remove(folder: Path) -> None:
    """Remove a folder of values."""
    shutil.rmtree(folder, ignore_errors=True)
