"""Places for a fit: in memory, in files, on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError
from coldhash.partitions import MemoryPartitions, Partitions
from coldhash.scale.disk import Disk
from coldhash.scale.prepared import Prepared

if TYPE_CHECKING:
    from distributed import Client

    Place: TypeAlias = "Memory | Disk | Client | None"
else:
    Place: TypeAlias = object


@dataclass(frozen=True)
class Memory:
    """All partitions in the memory of this process.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100), on=Memory()).name
    'mfdcf'
    """

    def partitions(self, data: Dataset | Prepared) -> MemoryPartitions:
        """Load the partitions."""
        return MemoryPartitions(data.records())


@contextmanager
def open_partitions(data: Dataset | Prepared, on: Place = None) -> Iterator[Partitions]:
    """Bring the partitions of a data set to where a fit is to run.

    Parameters
    ----------
    data
        A data set, or a prepared folder.
    on
        None: in memory, or in files below a prepared folder.

    Raises
    ------
    SettingError
        `on` is not a place, or another fit works in the folder.
    """
    if on is None:
        on = Disk(data.folder / "work") if isinstance(data, Prepared) else Memory()
    if isinstance(on, Memory | Disk):
        users: Partitions = on.partitions(data)
    elif hasattr(on, "submit") and hasattr(on, "scheduler_info"):
        from coldhash.scale.dask import DaskPartitions  # needs the extra `dask`

        users = DaskPartitions(on, data.records())
    else:
        raise SettingError(
            f"on={on!r} is no place for a fit",
            hint="None, Memory(), Disk(folder), or a dask.distributed.Client",
        )
    try:
        yield users
    finally:
        users.close()
