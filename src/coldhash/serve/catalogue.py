"""What to show of items: ids and titles by row, and search in them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.recommender.recommender import Recommender

TITLE = "title"
LONGEST = 300  # letters of a title that are sent; the search is in all of it
LISTED = 200_000  # items up to which ids and titles are plain texts in memory, ready to be sent


class Catalogue:
    """Ids and titles of a model's items.

    A large catalogue stays in the mapped file, which all workers share; only the lower-case texts
    that search needs are made in memory, when somebody first searches.
    """

    def __init__(self, model: Recommender) -> None:
        self._model = model
        self._titles = _titles(model.item_table)
        self._listed: list[tuple[str, str | None]] | None = None
        if len(model.item_ids) <= LISTED:
            self._listed = [self._read(row) for row in range(len(model.item_ids))]

    def warm_up(self) -> None:
        """Search once, so that the first search is as quick as the others, unless it is large."""
        if self._listed is not None:
            self.search("", 1)

    def __getitem__(self, row: int) -> tuple[str, str | None]:
        """Give an item's id and title, None if it has none."""
        return self._listed[row] if self._listed is not None else self._read(row)

    def describe(self, row: int) -> dict[str, Any]:
        """Return the columns of an item that answers show."""
        item_id, title = self[row]
        return {"item_id": item_id, "title": title}

    def title_of(self, item_id: str) -> str | None:
        """Give the title of an item by its id."""
        row = self._model.item_ids.row_of(item_id)
        return self[row][1] if row >= 0 else None

    def search(self, text: str, limit: int) -> list[tuple[str, str | None]]:
        """Find items by a part of title or id: those that begin with it first, popular ones first.

        The empty text finds the most popular items.
        """
        wanted = pc.utf8_lower(pa.scalar(text.strip())).as_py()
        begins = _either(pc.starts_with, self._lowered, wanted)
        holds = _either(pc.match_substring, self._lowered, wanted) & ~begins
        places = np.concatenate([np.flatnonzero(begins), np.flatnonzero(holds)])[:limit]
        return [self[int(row)] for row in self._order[places]]

    @property
    def _order(self) -> np.ndarray:
        """Rows, the most popular first."""
        return self._model.items.order

    @cached_property
    def _lowered(self) -> list[pa.Array]:
        """Lower-case texts to search in, the most popular item first."""
        texts = [self._model.item_ids.values]
        if self._titles is not None:
            texts.append(pc.fill_null(self._titles, ""))
        order = pa.array(self._order, pa.int64())
        return [pc.utf8_lower(each.take(order)) for each in texts]

    def _read(self, row: int) -> tuple[str, str | None]:
        title = None if self._titles is None else self._titles[row].as_py()
        if title is not None and len(title) > LONGEST:
            title = title[: LONGEST - 1] + "…"
        return self._model.item_ids[row], title


def _titles(table: pa.Table | None) -> pa.Array | None:
    if table is None or TITLE not in table.column_names:
        return None
    titles = table.column(TITLE).combine_chunks()  # one chunk: quick to look up
    if pa.types.is_nested(titles.type) or pa.types.is_binary(titles.type):
        return None  # nothing to show
    return titles.cast(pa.string())


def _either(test: pc.Function, texts: list[pa.Array], wanted: str) -> np.ndarray:
    found = [test(each, wanted).to_numpy(zero_copy_only=False) for each in texts]
    return np.asarray(np.logical_or.reduce(found))
