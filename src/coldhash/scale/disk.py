"""Partitions in files: memory is needed for one of them at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from coldhash.arrays.memory import n_bytes_of
from coldhash.data.dataset import Dataset, UserRecords
from coldhash.errors import SettingError
from coldhash.files import lock_file
from coldhash.partitions import Partitions, PerPartition, Stored, T, loaded
from coldhash.scale.prepared import Prepared
from coldhash.scale.stored import remove, store

RATING = 64  # bytes that a step needs for each rating of its partition, at most
BASE = 500_000_000  # bytes of the interpreter, the libraries and what the fit knows of items


@dataclass(frozen=True)
class Disk:
    """A folder to work in: partitions pass through memory one by one, each round is kept there.

    A fit that was killed goes on from its last round if it is started again with the same folder.
    `memory`, such as "2GB", is what it may use: a partition that cannot fit is an error at once.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash import MFDCF, read
    >>> data = read("sample", n_users=200, n_items=60)
    >>> with TemporaryDirectory() as folder:
    ...     streamed = MFDCF(n_bits=32).fit(data, on=Disk(folder))
    >>> bool((streamed.items.packed == MFDCF(n_bits=32).fit(data).items.packed).all())
    True
    """

    folder: Path | str
    memory: int | str | None = None

    def partitions(self, data: Dataset | Prepared) -> DiskPartitions:
        """Write the partitions to files."""
        if self.memory is not None and isinstance(data, Prepared):
            self._check_memory(data)
        return DiskPartitions(Path(self.folder), data.records())

    def _check_memory(self, data: Prepared) -> None:
        limit = n_bytes_of(self.memory)
        need = BASE + RATING * data.largest_part
        if need > limit:
            raise SettingError(
                f"memory={self.memory!r}: the largest of {len(data.ends) - 1:,} partitions has "
                f"{data.largest_part:,} ratings and needs about {need / 1e9:.1f} GB",
                hint="prepare again with fewer users in a partition (--part-users)",
            )


class DiskPartitions(Partitions):
    """Partitions in files of one folder; the functions see mapped arrays."""

    def __init__(self, folder: Path, records: Sequence[UserRecords | Stored]) -> None:
        self.folder = self._folder = folder
        self._values = folder / "values"
        self._lock = lock_file(folder / "lock", f"another fit works in {folder}")
        remove(self._values)  # of a fit that was killed
        self._values.mkdir()
        self._numbers = count()
        self.records = PerPartition(
            [each if isinstance(each, Stored) else self._store(each) for each in records]
        )

    def run(
        self, function: Callable[..., Any], *values: PerPartition[Any], n_kept: int
    ) -> tuple[tuple[PerPartition[Any], ...], Iterator[Any]]:
        """Apply a function to the values of every partition."""
        kept: tuple[PerPartition[Any], ...] = tuple(PerPartition([]) for _ in range(n_kept))

        def results() -> Iterator[Any]:
            for stored in zip(*(value.parts for value in values), strict=True):
                arguments = [loaded(each) for each in stored]
                *made, result = function(*arguments) if n_kept else (function(*arguments),)
                for each, value in zip(kept, made, strict=True):
                    each.parts.append(self._store(value))
                yield result

        return kept, results()

    def scatter(self, values: Sequence[T]) -> PerPartition[T]:
        """Give every partition one of some values."""
        return PerPartition([self._store(value) for value in values])

    def allocate(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return an array in a file; it stays when the name of the file is removed."""
        if 0 in shape:
            return np.empty(shape, dtype=dtype)
        return np.lib.format.open_memmap(self._values / f"{name}.npy", "w+", dtype, shape)

    def close(self) -> None:
        """Remove the values; the checkpoint stays."""
        remove(self._values)
        self._lock.close()
        with contextlib.suppress(OSError):
            if not any(file.name != "lock" for file in self._folder.iterdir()):
                remove(self._folder)

    def _store(self, value: Any) -> Any:
        return store(value, self._values / f"{next(self._numbers):08}")
