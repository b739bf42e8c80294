"""HistoryPart: how ratings or purchases just given move a user vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.arrays.rows import SparseRows
from coldhash.errors import ModelFileError
from coldhash.features.groups import FeatureEncoder, State
from coldhash.recommender.items import CodeItems, Items, code_items

if TYPE_CHECKING:
    from scipy.sparse import csr_array

USUAL = 1.0  # weight of an event of a new item: that of an average item
N_NEIGHBOURS = 10  # nearest items, whose mean score a dislike does not raise
N_KEPT = 4096  # items whose neighbours are kept
FEW = 16  # disliked items; of more, the neighbours are searched together
LOWERED = 1.1  # times that what would raise them is taken out: they fall a little instead
_ARRAYS = ("weights", "means", "expected", "metric", "counts", "maps")


@dataclass(frozen=True, eq=False)
class HistoryPart:
    """How ratings or purchases just given move a user vector away from what the features say.

    An event of item i, with code d_i and weight w_i, is the row z_i of

        exposure     w_i d_i - e   that it was rated or bought, with e the usual event
        preference   w_i δ_i d_i   with δ_i the rating above the item's mean, in units of `spread`
        intercept    1

    and adds  v_i = z_i C_n / n  to the vector of a person with n events. C is learned for several
    n, and interpolated in log n between them.

    An item is disliked if it was rated below its mean. What is liked counts as if there were no
    dislikes: with n the number of such events. Having been rated, a disliked item may still say
    that people like its neighbours, but a dislike does not raise them: where v_i raises the mean
    score of the nearest items, that is with q = Σ g_j d_j over them  v_i·q > 0,  it becomes

        v_i - 1.1 (v_i·q) / (q M q')  q M

    about the nearest vector, by the scores of all items, that does not raise them: M = (D'V D)⁻¹.
    """

    codes: CodeItems
    weights: np.ndarray  # w
    means: np.ndarray  # mean ratings
    spread: float  # of ratings around the means; 0: events without a value, no preference
    expected: np.ndarray  # e
    metric: np.ndarray  # M
    counts: np.ndarray  # the n that C was learned for, ascending
    maps: np.ndarray  # C, counts x (exposure, preference, 1) x bits

    def with_maps(self, maps: Mapping[int, np.ndarray]) -> HistoryPart:
        """Return the part with a map for each number of events."""
        counts = sorted(maps)
        stacked = np.array([maps[n] for n in counts], np.float32).reshape(-1, *self.maps.shape[1:])
        return replace(self, counts=np.array(counts, np.int64), maps=stacked)

    def evidence(self, history: csr_array | SparseRows) -> np.ndarray:
        """Compute the mean of z over the events of each row."""
        n_events = np.diff(history.indptr)[:, None].astype(np.float32)
        weights = self.weights[history.indices]
        items, columns = np.unique(history.indices, return_inverse=True)
        codes = self.codes.rows(items).astype(np.float32)

        def add_up(values: np.ndarray) -> np.ndarray:
            shape = (history.shape[0], len(items))
            return times(SparseRows(values, columns, history.indptr, shape), codes)

        exposure = add_up(weights) - n_events * self.expected
        sums = np.hstack([exposure, add_up(weights * self._above(history)), n_events])
        return np.asarray(sums / np.maximum(n_events, 1))

    def deviation(self, history: csr_array | SparseRows) -> np.ndarray:
        """Compute how far people are from what their features say."""
        history = _as_rows(history)
        disliked = self._above(history) < 0
        liked = history.select(~disliked) if disliked.any() else history
        moved = self._move(self.evidence(liked), np.diff(liked.indptr))
        if disliked.any():
            np.add.at(moved, history.owners()[disliked], self._split_dislikes(history, disliked))
        return moved

    def split(self, history: csr_array | SparseRows) -> np.ndarray:
        """Compute what each event of one person adds to the deviation: events x bits."""
        history = _as_rows(history)
        disliked = self._above(history) < 0
        moved = self._split(history, ~disliked, np.full(len(disliked), (~disliked).sum()))
        if disliked.any():
            moved[disliked] = self._split_dislikes(history, disliked)
        return moved

    def _split(self, history: SparseRows, some: np.ndarray, n_events: np.ndarray) -> np.ndarray:
        """Compute z C_n / n of some events, with n by event; 0 for the others."""
        moved = np.zeros((len(some), len(self.expected)), np.float32)
        items, above, n = history.indices[some], self._above(history)[some], n_events[some]
        exposure = self.weights[items, None] * self.codes.rows(items).astype(np.float32)
        ones = np.ones((len(items), 1), np.float32)
        z = np.hstack([exposure - self.expected, above[:, None] * exposure, ones])
        moved[some] = self._move(z, n) / n[:, None].astype(np.float32)
        return moved

    def _split_dislikes(self, history: SparseRows, disliked: np.ndarray) -> np.ndarray:
        """Compute what dislikes add: nothing that raises the items most like theirs."""
        n_events = np.diff(history.indptr)[history.owners()]
        moved = self._split(history, disliked, n_events)[disliked]
        if len(self.codes) < 2:
            return np.zeros_like(moved)
        return np.asarray(moved - self._rises(history.indices[disliked], moved))

    def _rises(self, disliked: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Compute the part of disliked events that would raise the neighbours of their items."""
        items, places = np.unique(disliked, return_inverse=True)
        if len(items) <= FEW:
            found = [self._neighbours(item) for item in items.tolist()]
            q, pulls = (np.concatenate(parts) for parts in zip(*found, strict=True))
        else:
            q, pulls = self._find_neighbours(items)
        lengths = np.maximum((q * pulls).sum(axis=1, dtype=np.float64), 1e-30)
        raised = (moved * q[places]).sum(axis=1, dtype=np.float64) / lengths[places]
        return np.asarray(
            LOWERED * np.maximum(raised, 0)[:, None].astype(np.float32) * pulls[places]
        )

    def _find_neighbours(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return q and q M of the nearest items of some items."""
        codes, itself = self.codes.rows(items).astype(np.float32), list(items[:, None])
        k = min(N_NEIGHBOURS, len(self.codes) - 1)
        near = self.codes.nearest(codes, k, self.codes.lists(itself))[0]
        neighbours = self.codes.rows(near.ravel()).reshape(*near.shape, -1)
        neighbours = neighbours * self.codes.gains(near)[:, :, None]
        q = neighbours.sum(axis=1, dtype=np.float64).astype(np.float32)
        return q, times(q, self.metric)

    @cached_property
    def _neighbours(self) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
        """What `_find_neighbours` returns of one item, kept for the next who dislikes it."""
        return lru_cache(N_KEPT)(lambda item: self._find_neighbours(np.array([item])))

    def disliked(self, history: csr_array | SparseRows) -> SparseRows | None:
        """Return the entries that are ratings below what their items get on average, if any."""
        below = self._above(history) < 0
        if not below.any():
            return None
        return _as_rows(history).select(below)

    def _above(self, history: csr_array | SparseRows) -> np.ndarray:
        """Compute ratings above the items' means; 0 for events without a value."""
        if not self.spread:
            return np.zeros(len(history.data), dtype=np.float32)
        above = (history.data - self.means[history.indices]) / np.float32(self.spread)
        return np.where(np.isnan(above), np.float32(0), above)

    def _move(self, evidence: np.ndarray, n_events: np.ndarray) -> np.ndarray:
        moved = np.zeros((len(evidence), self.maps.shape[2]), dtype=np.float32)
        if len(self.counts):
            place = np.interp(
                np.log(np.maximum(n_events, 1)), np.log(self.counts), np.arange(len(self.counts))
            )
            for at, matrix in enumerate(self.maps):
                share = np.maximum(1 - np.abs(place - at), 0) * (n_events > 0)
                if share.any():
                    moved += share[:, None].astype(np.float32) * times(evidence, matrix)
        return moved

    def follow_items(
        self, items: Items, features: FeatureEncoder, rows: np.ndarray, n_new: int
    ) -> HistoryPart:
        """Return the part for other items: `rows` of those it had, then `n_new` more."""
        del features
        new = np.full(n_new, USUAL, dtype=self.weights.dtype)
        means = np.full(n_new, self.means.mean(), dtype=self.means.dtype)
        return replace(
            self,
            codes=_as_codes(items),
            weights=np.concatenate([self.weights[rows], new]),
            means=np.concatenate([self.means[rows], means]),
        )

    def state(self) -> State:
        """Return what only this part knows: the codes are the model's."""
        return {"spread": self.spread}, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def restore(cls, state: State, codes: Items, features: FeatureEncoder) -> HistoryPart:
        """Rebuild the part."""
        del features
        json, arrays = state
        width = codes.width
        forms: Forms = {
            "weights": ("f", len(codes)),
            "means": ("f", len(codes)),
            "expected": ("f", width),
            "metric": ("f", width, width),
            "counts": ("i", "counts"),
            "maps": ("f", "counts", 2 * width + 1, width),
        }
        own = take(arrays, forms)
        counts = own["counts"]
        if len(counts) and not (counts[0] >= 1 and (np.diff(counts) > 0).all()):
            raise ModelFileError("'counts' are not ascending from 1")
        return cls(codes=_as_codes(codes), spread=float(json["spread"]), **own)


def _as_codes(items: Items) -> CodeItems:
    codes = code_items(items)
    if codes is None:
        raise ModelFileError("a history needs items with codes")
    return codes


def _as_rows(history: csr_array | SparseRows) -> SparseRows:
    return SparseRows(history.data, history.indices, history.indptr, history.shape)
