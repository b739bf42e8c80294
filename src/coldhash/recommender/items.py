"""The item side of a model: codes, or real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import take
from coldhash.arrays.codes import pack, signs, unpack
from coldhash.arrays.products import times
from coldhash.search import CodeIndex, ItemLists
from coldhash.search.lanes import GROUP


@dataclass(frozen=True, eq=False)
class CodeItems:
    """A code for each item, as a model has just learned them."""

    packed: np.ndarray  # items x words, uint64
    n_bits: int

    @property
    def width(self) -> int:
        """How many numbers a user vector has."""
        return self.n_bits

    @classmethod
    def of(cls, codes: np.ndarray) -> CodeItems:
        """Pack rows of +1 and -1."""
        return cls(pack(codes), codes.shape[1])

    def __len__(self) -> int:
        return len(self.packed)

    def rows(self, items: Any = slice(None)) -> np.ndarray:
        """Give the codes of some items as +1 and -1, int8."""
        return unpack(self.packed[items], self.n_bits)

    def indexed(self, popularity: np.ndarray) -> IndexedItems:
        """Lay the codes out for search."""
        return IndexedItems(CodeIndex.of(self.packed, self.n_bits, popularity))


@dataclass(frozen=True, eq=False)
class IndexedItems:
    """A code for each item, laid out for search: n_bits / 8 bytes an item, rounded up."""

    index: CodeIndex

    @property
    def width(self) -> int:
        """How many numbers a user vector has."""
        return self.index.n_bits

    @property
    def n_bits(self) -> int:
        """How long the codes are."""
        return self.index.n_bits

    @property
    def bytes_per_item(self) -> float:
        """What an item costs in memory."""
        return -(-self.n_bits // 8)

    @property
    def packed(self) -> np.ndarray:
        """The packed codes, in the order of the catalogue."""
        return self.index.packed()

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, items: Any = slice(None)) -> np.ndarray:
        """Give the codes of some items as +1 and -1, int8."""
        return self.index.rows(items)

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """Score all items for some users."""
        return times(vectors, self.rows().T.astype(np.float32))

    def best(
        self,
        vectors: np.ndarray,
        k: int,
        excluded: ItemLists | None,
        listed: ItemLists | None,
        threads: int,
        by_code: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k best items of each user: rows and scores, -1 and -inf where fewer exist."""
        if not by_code:
            return self.index.weighted(vectors, k, excluded, listed, threads)
        rows, distances = self.index.hamming(pack(signs(vectors)), k, excluded, listed, threads)
        return rows, np.where(rows < 0, -np.inf, self.n_bits - 2.0 * distances)

    def lists(self, lists: Sequence[Any]) -> ItemLists:
        """Turn lists of item rows, one a user, into what `best` wants."""
        return self.index.lists(lists)


@dataclass(frozen=True, eq=False)
class RealItems:
    """A vector of real numbers for each item, dense or sparse."""

    vectors: np.ndarray | csr_array
    popularity: np.ndarray | None = None

    @property
    def width(self) -> int:
        """How many numbers a user vector has."""
        return int(self.vectors.shape[1])

    def indexed(self, popularity: np.ndarray) -> RealItems:
        """Note how ties are broken."""
        return RealItems(self.vectors, popularity)

    @cached_property
    def rank(self) -> np.ndarray:
        """Give each item's place in the order in which ties are broken."""
        popularity = np.zeros(len(self)) if self.popularity is None else self.popularity
        order = np.argsort(-popularity, kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return rank

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    @property
    def bytes_per_item(self) -> float:
        """What an item costs in memory."""
        arrays = item_arrays(self).values()
        return sum(array.nbytes for array in arrays) / len(self)

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """Score all items for some users."""
        if isinstance(self.vectors, np.ndarray):
            return times(vectors, self.vectors.T)
        return np.asarray(vectors @ self.vectors.T)

    def best(
        self,
        vectors: np.ndarray,
        k: int,
        excluded: ItemLists | None,
        listed: ItemLists | None,
        threads: int,
        by_code: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k best items of each user: rows and scores, -1 and -inf where fewer exist."""
        del threads, by_code
        return best_of_scores(self.scores(vectors), self.rank, k, excluded, listed)

    def lists(self, lists: Sequence[Any]) -> ItemLists:
        """Turn lists of item rows, one a user, into what `best` wants."""
        starts = np.concatenate([[0], np.cumsum([len(each) for each in lists])])
        flat = np.concatenate([np.asarray(each, dtype=np.int64) for each in lists])
        return starts, flat


def best_of_scores(
    scores: np.ndarray,
    rank: np.ndarray,
    k: int,
    excluded: ItemLists | None,
    listed: ItemLists | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Sort out the k best of ready scores, ties by rank; lists hold item rows."""
    k = min(k, scores.shape[1])
    rows = np.full((len(scores), k), -1, dtype=np.int64)
    best = np.full((len(scores), k), -np.inf)
    for user in range(len(scores)):
        allowed = np.ones(scores.shape[1], dtype=bool)
        if listed is not None:
            allowed[:] = False
            allowed[listed[1][listed[0][user] : listed[0][user + 1]]] = True
        if excluded is not None:
            allowed[excluded[1][excluded[0][user] : excluded[0][user + 1]]] = False
        items = np.flatnonzero(allowed)
        first = items[np.lexsort((rank[items], -scores[user, items]))[:k]]
        rows[user, : len(first)] = first
        best[user, : len(first)] = scores[user, first]
    return rows, best


Items = CodeItems | IndexedItems | RealItems


def item_arrays(items: Items) -> dict[str, np.ndarray]:
    """Give the item side as plain arrays."""
    if isinstance(items, IndexedItems):
        index = items.index
        return {"stripes": index.stripes, "order": index.order, "rank": index.rank}
    assert isinstance(items, RealItems)
    if isinstance(items.vectors, np.ndarray):
        return {"vectors": items.vectors}
    sparse = items.vectors
    parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr}
    return parts | {"shape": np.array(sparse.shape, dtype=np.int64)}


def stored_items(
    arrays: dict[str, np.ndarray], n_bits: int | None, popularity: np.ndarray
) -> Items:
    """Rebuild the item side."""
    n = len(popularity)
    if n_bits is not None:
        stripes = ("u1", -(-n // GROUP), -(-n_bits // 8), GROUP)
        forms = {"stripes": stripes, "order": ("i4", n), "rank": ("i4", n)}
        return IndexedItems(CodeIndex(**take(arrays, forms), n_bits=n_bits))
    if "vectors" in arrays:
        return RealItems(take(arrays, {"vectors": ("f", n, "width")})["vectors"], popularity)
    forms = {"data": ("f", "entries"), "indices": ("i", "entries"), "indptr": ("i", n + 1)}
    _, width = take(arrays, {"shape": ("i", 2)})["shape"].tolist()
    entries = tuple(take(arrays, forms).values())
    return RealItems(csr_array(entries, shape=(n, width)), popularity)
