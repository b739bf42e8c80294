"""Codes -> the nearest codes, exactly."""

from coldhash.search.index import CodeIndex, RowLists, Subset

__all__ = ["CodeIndex", "RowLists", "Subset"]
