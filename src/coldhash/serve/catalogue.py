"""Ids and titles of items, and search in them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.recommender.recommender import Recommender
from coldhash.recommender.results import Row

TITLE = "title"
MAX_TITLE = 300  # characters of a title that are sent; the search is in all of it
MAX_IN_MEMORY = 200_000  # items of a catalogue whose ids and titles are kept as Python strings


class Catalogue:
    """Ids and titles of a model's items.

    A large catalogue stays in the mapped file, which all workers share; only the lower-case texts
    that search needs are made in memory, by the first search.
    """

    def __init__(self, model: Recommender) -> None:
        self._ids = model.item_ids
        self._titles = _read_titles(model.item_table)
        self._order = model.items.order  # rows, the most popular first
        self._in_memory: list[tuple[str, str | None]] | None = None
        if len(self._ids) <= MAX_IN_MEMORY:
            self._in_memory = [self._read(row) for row in range(len(self._ids))]

    def warm_up(self) -> None:
        """Search once if the catalogue is small, so that the first request does not take longer."""
        if self._in_memory is not None:
            self.search("", 1)

    def describe(self, row: int) -> Row:
        """Return the id and the title of an item, None if it has no title."""
        item_id, title = self._read(row) if self._in_memory is None else self._in_memory[row]
        return {"item_id": item_id, "title": title}

    def title_of(self, item_id: str) -> str | None:
        """Return the title of an item by its id."""
        row = self._ids.row_of(item_id)
        return self.describe(row)["title"] if row >= 0 else None

    def search(self, text: str, limit: int) -> list[Row]:
        """Find items by a part of title or id: those that start with it first, popular ones first.

        The empty text finds the most popular items.
        """
        wanted = pc.utf8_lower(pa.scalar(text.strip())).as_py()
        starts = _match_any(pc.starts_with, self._lowered, wanted)
        contains = _match_any(pc.match_substring, self._lowered, wanted) & ~starts
        places = np.concatenate([np.flatnonzero(starts), np.flatnonzero(contains)])[:limit]
        return [self.describe(int(row)) for row in self._order[places]]

    @cached_property
    def _lowered(self) -> list[pa.Array]:
        """Lower-case texts to search in, the most popular item first."""
        texts = [self._ids.values]
        if self._titles is not None:
            texts.append(pc.fill_null(self._titles, ""))
        order = pa.array(self._order, pa.int64())
        return [pc.utf8_lower(text.take(order)) for text in texts]

    def _read(self, row: int) -> tuple[str, str | None]:
        title = None if self._titles is None else self._titles[row].as_py()
        if title is not None and len(title) > MAX_TITLE:
            title = title[: MAX_TITLE - 1] + "…"
        return self._ids[row], title


def _read_titles(table: pa.Table | None) -> pa.Array | None:
    if table is None or TITLE not in table.column_names:
        return None
    titles = table.column(TITLE).combine_chunks()  # one chunk: quick to look up
    if pa.types.is_nested(titles.type) or pa.types.is_binary(titles.type):
        return None  # nothing to show
    return titles.cast(pa.string())


def _match_any(test: pc.Function, texts: list[pa.Array], wanted: str) -> np.ndarray:
    found = [test(text, wanted).to_numpy(zero_copy_only=False) for text in texts]
    return np.asarray(np.logical_or.reduce(found))
