"""The item side of a model: a code or a real-valued vector for each item, laid out for search."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coldhash.arrays.checks import check_computed, take
from coldhash.arrays.codes import pack, signs
from coldhash.arrays.products import SparseRows, times
from coldhash.errors import SettingError
from coldhash.search import CodeIndex, Search, Subset
from coldhash.search.index import EVERYTHING, GROUP, N_LEVELS

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# rows and scores, users x k; -1 and -inf where fewer exist
Best: TypeAlias = tuple[np.ndarray, np.ndarray]


class CodeItems(CodeIndex):
    """A code for each item: n_bits / 8 bytes, rounded up, and maybe a byte for its level."""

    @classmethod
    def of_codes(
        cls, codes: np.ndarray, popularity: np.ndarray, *levels: np.ndarray | None
    ) -> CodeItems:
        """Pack rows of +1 and -1; `levels`, gains and steps are as for `CodeIndex.of`."""
        return cls.of(pack(codes), codes.shape[1], popularity, *levels)

    @property
    def width(self) -> int:
        """The length of user vectors."""
        return self.n_bits

    @property
    def bytes_per_item(self) -> float:
        """What an item costs in memory."""
        return -(-self.n_bits // 8) + (self.levels is not None)

    def levels_of(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the levels of some rows; 0 if items have none."""
        places = self.rank[rows]
        return np.zeros_like(places) if self.levels is None else self.levels[places]

    def scores(
        self, vectors: np.ndarray, popularity: float = 1.0, by_code: bool = False
    ) -> np.ndarray:
        """Compute the scores of all items for some users, or, `by_code`, for their codes."""
        if by_code:
            vectors = signs(vectors, np.float32) if self.levels is None else with_lengths(vectors)
        scores = times(vectors, self.rows().T.astype(np.float32))
        if self.levels is not None:
            bases, gains = self.level_terms(popularity=popularity, additive=by_code)
            scores += bases.astype(np.float32)
            scores *= gains.astype(np.float32)
        return scores

    def level_terms(
        self,
        rows: np.ndarray | slice = slice(None),
        popularity: float = 1.0,
        additive: bool = False,
    ) -> np.ndarray:
        """Return the bases and the gains of some items: scores are gain * (base + h·d)."""
        return self.terms(popularity, False, additive)[:, self.levels_of(rows)]

    def distances(self, vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Compute Hamming distances between the codes of people and of items (people x items)."""
        found = self.packed(np.maximum(rows, 0).ravel())
        codes = np.repeat(pack(signs(vectors)), rows.shape[1], axis=0)
        bits = np.bitwise_count(codes ^ found).sum(axis=1, dtype=np.int32)
        return np.asarray(bits.reshape(rows.shape))

    def best(self, vectors: np.ndarray, k: int, search: Search = EVERYTHING) -> Best:
        """Find the k items with the highest scores, or, `by_code`, the nearest codes."""
        if search.by_code and self.levels is None:
            return self.nearest(vectors, k, search)
        if search.by_code:
            vectors = with_lengths(vectors)
        return self.weighted(vectors, k, search, additive=search.by_code)

    def nearest(self, vectors: np.ndarray, k: int, search: Search = EVERYTHING) -> Best:
        """Find the k items with the nearest codes, whatever their levels."""
        codes = pack(signs(vectors))
        rows, distances = self.hamming(codes, k, search._replace(popularity=0.0))
        return rows, np.where(rows < 0, -np.inf, self.n_bits - 2.0 * distances)

    def select(
        self,
        rows: np.ndarray,
        popularity: np.ndarray,
        codes: np.ndarray | None = None,
        levels: np.ndarray | None = None,
    ) -> CodeItems:
        """Return an item side with these rows, and then with more codes; `popularity` is of all.

        `levels` are those of the new codes, for items with levels.
        """
        packed, own = self.packed(rows), None if self.levels is None else self.levels_of(rows)
        if codes is not None:
            packed = np.vstack([packed, pack(codes)])
        if own is not None and levels is not None:
            own = np.concatenate([own, levels])
        return CodeItems.of(packed, self.n_bits, popularity, own, self.gains, self.steps)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything as plain arrays, for a model file."""
        names = ("stripes", "order", "rank", "levels", "gains", "steps")
        found = {name: getattr(self, name) for name in names}
        return {name: array for name, array in found.items() if array is not None}


@dataclass(frozen=True, eq=False)
class RealItems:
    """A vector of real numbers for each item, dense or sparse."""

    vectors: np.ndarray | csr_array
    popularity: np.ndarray
    n_bits: None = None
    levels: None = None

    @property
    def width(self) -> int:
        """The length of user vectors."""
        return int(self.vectors.shape[1])

    @property
    def bytes_per_item(self) -> float:
        """What an item costs in memory."""
        return sum(array.nbytes for array in self.arrays().values()) / len(self)

    @cached_property
    def order(self) -> np.ndarray:
        """Rows in the order in which ties are broken: the most popular first."""
        return np.argsort(-self.popularity, kind="stable")

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    def rows(self, items: Any = slice(None)) -> np.ndarray:
        """Return some items as dense vectors."""
        part = self.vectors[items]
        return np.asarray(part if isinstance(part, np.ndarray) else part.toarray())

    def scores(
        self, vectors: np.ndarray, popularity: float = 1.0, by_code: bool = False
    ) -> np.ndarray:
        """Compute the scores of all items for some users."""
        del popularity, by_code
        if isinstance(self.vectors, np.ndarray):
            return times(vectors, self.vectors.T)
        return np.asarray(vectors @ self.vectors.T)

    def best(self, vectors: np.ndarray, k: int, search: Search = EVERYTHING) -> Best:
        """Find the k items with the highest scores; ties go by popularity."""
        excluded, candidates, within = search[:3]
        with np.errstate(all="ignore"):  # what overflows is an error
            scores = self.scores(vectors).astype(np.float64)
        check_computed(scores)
        allowed = np.ones(scores.shape, dtype=bool)
        if within is not None:
            allowed[:] = within
        if candidates is not None:
            allowed[:] = False
            allowed[candidates.owners(), candidates.indices] = True
        if excluded is not None:
            allowed[excluded.owners(), excluded.indices] = False
        scores[~allowed] = -np.inf
        rows = np.lexsort((np.broadcast_to(-self.popularity, scores.shape), -scores))[:, :k]
        best = np.take_along_axis(scores, rows, axis=1)
        return np.where(best > -np.inf, rows, -1), best

    nearest = best

    def subset(self, mask: np.ndarray) -> Subset:
        """Turn a mask of rows into what `best` takes."""
        return mask

    def select(self, rows: np.ndarray, popularity: np.ndarray) -> RealItems:
        """Return an item side with these rows only."""
        return RealItems(self.vectors[rows], popularity)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything as plain arrays, for a model file."""
        if isinstance(self.vectors, np.ndarray):
            return {"vectors": self.vectors}
        sparse = self.vectors
        parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr}
        return parts | {"shape": np.array(sparse.shape, dtype=np.int64)}


Items: TypeAlias = CodeItems | RealItems


def restore_items(
    arrays: dict[str, np.ndarray], n_bits: int | None, has_levels: bool, popularity: np.ndarray
) -> Items:
    """Rebuild the item side from what `arrays` returned."""
    n = len(popularity)
    if n_bits is not None:
        stripes = ("u1", -(-n // GROUP), -(-n_bits // 8), GROUP)
        forms = {"stripes": stripes, "order": ("i4", n), "rank": ("i4", n)}
        if has_levels:
            forms |= {"levels": ("u1", n), "gains": ("f4", N_LEVELS), "steps": ("i4", N_LEVELS)}
        return CodeItems(**take(arrays, forms), n_bits=n_bits)
    if "vectors" in arrays:
        return RealItems(take(arrays, {"vectors": ("f", n, "width")})["vectors"], popularity)
    from scipy.sparse import csr_array

    forms = {"data": ("f", "entries"), "indices": ("i", "entries"), "indptr": ("i", n + 1)}
    _, width = take(arrays, {"shape": ("i", 2)})["shape"].tolist()
    entries = tuple(take(arrays, forms).values())
    return RealItems(csr_array(entries, shape=(n, width)), popularity)


def with_lengths(vectors: np.ndarray) -> np.ndarray:
    """Return the codes of vectors, +1 and -1, times half the mean length of their coordinates.

    Beside levels the length counts: it is how much is known of a person. In the order of √p + x/2,
    one number a person turns bits into levels.
    """
    lengths = np.abs(vectors).mean(axis=1, keepdims=True, dtype=np.float64) / 2
    return np.asarray(signs(vectors, np.float32) * lengths.astype(np.float32))


def code_items(items: Items) -> CodeItems:
    """Return items that are codes; raise an error if they are not."""
    if not isinstance(items, CodeItems):
        hint = "fit a method that learns codes, e.g. MFDCF"
        raise SettingError("the model has real-valued items, so there are no codes", hint=hint)
    return items


def move_to_the_end(
    rows: np.ndarray, scores: np.ndarray, some: SparseRows
) -> tuple[np.ndarray, np.ndarray]:
    """Move some of the items of each person behind all others, whatever their scores."""
    places = np.arange(len(rows))[:, None] * some.shape[1] + rows
    last = np.isin(places, some.owners() * some.shape[1] + some.indices)
    order = np.argsort(np.where(rows < 0, 2, last), axis=1, kind="stable")
    lowest = np.where(last | (rows < 0), np.inf, scores).min(axis=1, keepdims=True)
    scores = np.where(last, np.minimum(scores, lowest), scores)
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
