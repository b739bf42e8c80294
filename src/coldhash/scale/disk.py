"""Partitions streamed from files: memory for one of them at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coldhash.arrays.memory import n_bytes_of
from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError
from coldhash.files import lock_file
from coldhash.mfdcf.checkpoint import Checkpoint
from coldhash.partitions import Step, raw_parts
from coldhash.scale.prepared import Prepared
from coldhash.scale.stored import Lazy, mapped_room, remove, saved

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

    @property
    def checkpoint(self) -> Checkpoint:
        """Where rounds are kept."""
        return Checkpoint(Path(self.folder) / "checkpoint")

    def partitions(self, data: Dataset | Prepared) -> OnDisk:
        """Lay the partitions out."""
        parts = data.raw_parts() if isinstance(data, Prepared) else raw_parts(data)
        if self.memory is not None and isinstance(data, Prepared):
            self._check_memory(data)
        return OnDisk(Path(self.folder), parts)

    def _check_memory(self, data: Prepared) -> None:
        limit = n_bytes_of(self.memory)
        need = BASE + RATING * data.largest_part
        if need > limit:
            raise SettingError(
                f"memory={self.memory!r}: the largest of {len(data.ends) - 1:,} partitions has "
                f"{data.largest_part:,} ratings and needs about {need / 1e9:.1f} GB",
                hint="prepare again with fewer users in a partition (--part-users)",
            )


class OnDisk:
    """Partitions in files of one folder."""

    def __init__(self, folder: Path, parts: list[dict[str, Any]]) -> None:
        self._folder, self._values = folder, folder / "values"
        self._lock = lock_file(folder / "lock", f"another fit works in {folder}")
        remove(self._values)  # of a fit that was killed
        self._values.mkdir()
        self._parts: list[dict[str, Any]] = [{} for _ in parts]
        for at, part in enumerate(parts):
            self._write(at, part)

    def __len__(self) -> int:
        return len(self._parts)

    def each(self, step: Step, *shared: Any) -> Iterator[Any]:
        """Apply a step to every partition; the results come in order."""
        for at, part in enumerate(self._parts):
            changes, result = step.work(Lazy(part), *shared)
            self._write(at, changes)
            yield result

    def put(self, name: str, values: Sequence[Any]) -> None:
        """Give every partition a value."""
        for at, value in enumerate(values):
            self._write(at, {name: value})

    def drop(self, *names: str) -> None:
        """Forget values."""
        for at, part in enumerate(self._parts):
            for name in names:
                part.pop(name, None)
                for file in self._values.glob(f"{at:08}.{name}.*"):
                    file.unlink()

    def room(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Make an array for something about all users."""
        return mapped_room(self._values, name, shape, dtype)

    def close(self) -> None:
        """Remove the values; what was kept of rounds stays."""
        remove(self._values)
        self._lock.close()
        with contextlib.suppress(OSError):
            if not any(file.name != "lock" for file in self._folder.iterdir()):
                remove(self._folder)

    def _write(self, at: int, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self._parts[at][name] = saved(value, self._values / f"{at:08}.{name}")
