"""The same fit in memory, from disk and on a Dask cluster: users in partitions."""
