"""Data larger than memory: partitions in files or on Dask, preparation, batches."""

from coldhash.scale.batch import Batch, recommend_all_on
from coldhash.scale.disk import Disk
from coldhash.scale.prepared import Prepared, prepare
from coldhash.scale.training import Memory, open_partitions

__all__ = ["Batch", "Disk", "Memory", "Prepared", "open_partitions", "prepare", "recommend_all_on"]
