"""Codes -> the nearest codes, exactly."""

from coldhash.search.index import CodeIndex, Search, Subset

__all__ = ["CodeIndex", "Search", "Subset"]
