"""From user vectors to lists of items: filters, fallback, distances."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.data.ids import Ids
from coldhash.errors import DataError, SettingError
from coldhash.recommender.encoders.encoded import Encoded
from coldhash.recommender.items import CodeItems, IndexedItems, Items, RealItems, best_of_scores
from coldhash.search import ItemLists


def item_lists(
    items: Items, item_ids: Ids, lists: Any, n_users: int, seen: csr_array | None
) -> ItemLists | None:
    """Turn lists of item ids, for everybody or one a user, and what was seen, into filters."""
    if lists is None and seen is None:
        return None
    assert not isinstance(items, CodeItems)
    rows = [np.zeros(0, dtype=np.int64)] * n_users
    if lists is not None:
        lists = list(lists)
        per_user = bool(lists) and not isinstance(lists[0], str | int | np.integer)
        if per_user and len(lists) != n_users:
            raise DataError(f"{len(lists)} lists of items for {n_users} users")
        found = [item_ids.rows(each) for each in (lists if per_user else [lists])]
        rows = found if per_user else found * n_users
    if seen is not None:
        own = [seen.indices[start:end] for start, end in pairwise(seen.indptr)]
        rows = [np.concatenate(pair) for pair in zip(rows, own, strict=True)]
    return items.lists(rows)


def best_items(
    items: Items,
    popularity: np.ndarray,
    encoded: Encoded,
    k: int,
    excluded: ItemLists | None,
    listed: ItemLists | None,
    threads: int,
    by_code: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the k best items of each user; who had nothing to go by gets the popular ones."""
    assert not isinstance(items, CodeItems)
    if k < 1:
        raise SettingError(f"k={k}", hint="at least 1")
    if not encoded.fallback.any():
        return items.best(encoded.vectors, k, excluded, listed, threads, by_code)
    rows, scores = items.best(encoded.vectors, k, excluded, listed, threads, by_code)
    popular = _popular(items, len(rows), k, excluded, listed)
    counts = np.where(popular >= 0, popularity[popular], -np.inf)
    mark = encoded.fallback[:, None]
    return np.where(mark, popular, rows), np.where(mark, counts, scores)


def _popular(
    items: IndexedItems | RealItems,
    n_users: int,
    k: int,
    excluded: ItemLists | None,
    listed: ItemLists | None,
) -> np.ndarray:
    """Find the most popular items: when all are level, ties decide, and ties go by popularity."""
    if isinstance(items, IndexedItems):
        silence = np.zeros((n_users, items.n_bits), dtype=np.float32)
        return items.best(silence, k, excluded, listed, 1)[0]
    level = np.zeros((n_users, len(items)))
    return best_of_scores(level, items.rank, k, excluded, listed)[0]


def distances_of(items: Items, scores: np.ndarray) -> np.ndarray:
    """Turn scores of codes (n_bits - 2 distance) back into distances."""
    assert isinstance(items, IndexedItems)
    known = np.where(np.isfinite(scores), scores, items.n_bits)
    return ((items.n_bits - known) / 2).astype(np.int32)
