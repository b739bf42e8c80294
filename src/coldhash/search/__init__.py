"""Codes -> the nearest codes, exactly."""

from coldhash.search.index import CodeIndex, RowLists

__all__ = ["CodeIndex", "RowLists"]
