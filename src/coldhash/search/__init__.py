"""Codes -> the nearest codes, exactly."""

from coldhash.search.index import CodeIndex, ItemLists

__all__ = ["CodeIndex", "ItemLists"]
