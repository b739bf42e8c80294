"""Places for a fit: all partitions in memory, in files, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from coldhash.data.dataset import Dataset, UserRecords
from coldhash.errors import SettingError
from coldhash.files import lock_file
from coldhash.partitions import MemoryPartitions, Partitions, Stored
from coldhash.scale.prepared import Prepared, n_bytes_of

if TYPE_CHECKING:
    from distributed import Client

    Place: TypeAlias = "Memory | Disk | Client | None"
else:  # documentation tools evaluate it, and Dask may not be installed
    Place: TypeAlias = object


RATING_BYTES = 64  # that a step needs for each rating of its partition, at most
BASE_BYTES = 500_000_000  # of the interpreter, the libraries and what the fit knows of items


@dataclass(frozen=True)
class Disk:
    """Fit from files, one partition in memory at a time, with a checkpoint after every round.

    A fit that was killed continues after its last round if it is started with the same folder.

    Parameters
    ----------
    folder
        The folder to work in; it is removed at the end of the fit if nothing else is in it.
    memory
        How much memory may be used, such as "2GB": a fit of a prepared folder whose largest
        partition needs more raises an error before it starts. None: any amount.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash import MFDCF, read
    >>> data = read("sample", n_users=200, n_items=60)
    >>> with TemporaryDirectory() as folder:
    ...     streamed = MFDCF(n_bits=32).fit(data, on=Disk(folder))
    >>> bool((streamed.items.packed() == MFDCF(n_bits=32).fit(data).items.packed()).all())
    True
    """

    folder: Path | str
    memory: int | str | None = None


class DiskPartitions(MemoryPartitions):
    """Partitions in files of one folder; functions get memory-mapped arrays."""

    folder: Path
    _apply = map  # one partition in memory at a time; threads share its rows

    def __init__(self, folder: str | Path, records: Sequence[UserRecords | Stored]) -> None:
        self.folder, self._values = Path(folder), Path(folder, "values")
        self._lock = lock_file(self.folder / "lock", f"another fit works in {folder}")
        shutil.rmtree(self._values, ignore_errors=True)  # of a fit that was killed
        self._values.mkdir()
        self._numbers = count()
        self.records = self.scatter(records)

    def allocate(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
        """Return an array in a file; it can be used after the file is removed."""
        if 0 in shape:
            return np.empty(shape, dtype=dtype)
        return np.lib.format.open_memmap(self._values / f"{name}.npy", "w+", dtype, shape)

    def close(self) -> None:
        """Remove the values; the checkpoint stays."""
        shutil.rmtree(self._values, ignore_errors=True)
        self._lock.close()
        with contextlib.suppress(OSError):
            if not any(file.name != "lock" for file in self.folder.iterdir()):
                shutil.rmtree(self.folder, ignore_errors=True)

    def _store(self, value: Any) -> Any:
        """Write arrays, also those in dicts and dataclasses, to files; keep records as they are."""
        if isinstance(value, Stored | UserRecords):
            return value
        if isinstance(value, np.ndarray):
            return _store_array(self._values / f"{next(self._numbers):08}.npy", value)
        if isinstance(value, csr_array):
            arrays = [self._store(each) for each in (value.data, value.indices, value.indptr)]
            shape = value.shape
            return _StoredValue(lambda: csr_array(tuple(a.load() for a in arrays), shape=shape))
        return _map_entries(self._store, value)

    def _load(self, part: Any) -> Any:
        return part.load() if isinstance(part, Stored) else _map_entries(self._load, part)


@dataclass(frozen=True, eq=False)
class _StoredValue:
    """A value that is made of stored arrays."""

    load: Callable[[], Any]


def _store_array(path: Path, array: np.ndarray) -> _StoredValue:
    """Write an array to a file, which is removed when nothing refers to it any more."""
    np.save(path, array)
    # writing to what is mapped does not change the file
    stored = _StoredValue(lambda: np.asarray(np.load(path, mmap_mode="c")))
    weakref.finalize(stored, path.unlink, missing_ok=True)
    return stored


def _map_entries(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the entries of a dict or the fields of a dataclass."""
    if isinstance(value, dict):
        return {key: function(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        return replace(value, **{name: function(getattr(value, name)) for name in names})
    return value


@dataclass(frozen=True)
class Memory:
    """Fit with all partitions in the memory of this process.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100), on=Memory()).name
    'mfdcf'
    """


@contextmanager
def open_partitions(data: Dataset | Prepared, on: Place = None) -> Iterator[Partitions]:
    """Bring the partitions of a data set to where a fit is to run.

    Parameters
    ----------
    data
        A data set, or a prepared folder.
    on
        `Memory()`, `Disk(folder)` or a `dask.distributed.Client`. None: in memory, or in files
        below a prepared folder.

    Yields
    ------
    Partitions
        Closed at the end of the block.

    Raises
    ------
    SettingError
        `on` is none of these, another fit works in the folder, or a partition needs more memory
        than there is.

    Examples
    --------
    >>> from coldhash import read
    >>> with open_partitions(read("sample", n_users=300, n_items=100), Memory()) as users:
    ...     users.sum(lambda records: records.ratings.shape[0], users.records)
    300
    """
    if on is None:
        on = Disk(data.folder / "work") if isinstance(data, Prepared) else Memory()
    if isinstance(on, Memory):
        users: Partitions = MemoryPartitions(data.records())
    elif isinstance(on, Disk):
        if isinstance(data, Prepared) and on.memory is not None:
            need = BASE_BYTES + RATING_BYTES * data.largest_part
            if need > n_bytes_of(on.memory):
                needs = f"{data.largest_part:,} ratings and needs about {need / 1e9:.1f} GB"
                message = f"memory={on.memory!r}: the largest partition has {needs}"
                hint = "prepare again with fewer users in a partition (--part-users)"
                raise SettingError(message, hint=hint)
        users = DiskPartitions(on.folder, data.records())
    elif hasattr(on, "scheduler_info") and not on.asynchronous:
        from coldhash.scale.dask import DaskPartitions  # needs the extra `dask`

        users = DaskPartitions(on, data.records())
    else:
        hint = "None, Memory(), Disk(folder), or a synchronous dask.distributed.Client"
        raise SettingError(f"on={on!r} is not a place for a fit", hint=hint)
    with contextlib.closing(users):
        yield users
