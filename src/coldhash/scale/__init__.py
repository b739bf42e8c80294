"""Data larger than memory: partitions in files or on Dask, preparation, batches."""

from coldhash.scale.batch import recommend_all_on
from coldhash.scale.places import Disk, Memory, open_partitions
from coldhash.scale.prepared import Prepared, prepare

__all__ = ["Disk", "Memory", "Prepared", "open_partitions", "prepare", "recommend_all_on"]
