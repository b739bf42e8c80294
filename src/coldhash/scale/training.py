"""Where a fit keeps its partitions: in memory, in files, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError
from coldhash.partitions import MemoryPartitions, Partitions
from coldhash.scale.disk import Disk, DiskPartitions
from coldhash.scale.prepared import Prepared

if TYPE_CHECKING:
    from distributed import Client

    Place: TypeAlias = "Memory | Disk | Client | None"
else:  # pdoc evaluates it, and Dask may not be installed
    Place: TypeAlias = object


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
        if isinstance(data, Prepared):
            on.check_memory(data)
        users = DiskPartitions(on.folder, data.records())
    elif hasattr(on, "scheduler_info") and not on.asynchronous:
        from coldhash.scale.dask import DaskPartitions  # needs the extra `dask`

        users = DaskPartitions(on, data.records())
    else:
        raise SettingError(
            f"on={on!r} is not a place for a fit",
            hint="None, Memory(), Disk(folder), or a synchronous dask.distributed.Client",
        )
    try:
        yield users
    finally:
        users.close()
