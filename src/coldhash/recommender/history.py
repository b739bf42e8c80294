"""HistoryPart: how ratings or purchases just given move a user vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times, times_codes
from coldhash.errors import ModelFileError
from coldhash.features.groups import FeatureEncoder, State
from coldhash.recommender.items import CodeItems, Items, code_items

USUAL = 1.0  # weight of an event of a new item: that of an average item
N_NEIGHBOURS = 10  # nearest items, whose mean score a dislike does not raise
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

    def evidence(self, history: csr_array) -> np.ndarray:
        """Compute the mean of z over the events of each row."""
        n_events = np.diff(history.indptr)[:, None].astype(np.float32)
        items: Any = slice(None)
        columns = history.indices
        if len(columns) < len(self.codes):  # of a large catalogue, few events need few codes
            items, columns = np.unique(columns, return_inverse=True)
        words, weights, n_bits = (
            self.codes.index.packed(items),
            self.weights[items],
            len(self.expected),
        )

        def add_up(values: np.ndarray) -> np.ndarray:
            shape = (history.shape[0], len(words))
            events = csr_array((values, columns, history.indptr), shape=shape)
            return times_codes(events, words, weights, n_bits)

        exposure = add_up(np.ones(len(history.data), np.float32)) - n_events * self.expected
        sums = np.hstack([exposure, add_up(self.above(history)), n_events])
        return np.asarray(sums / np.maximum(n_events, 1))

    def deviation(self, history: csr_array) -> np.ndarray:
        """Compute how far people are from what their features say."""
        disliked = self.above(history) < 0
        liked = select_entries(history, ~disliked) if disliked.any() else history
        moved = self._move(self.evidence(liked), np.diff(liked.indptr))
        if disliked.any():
            np.add.at(moved, _owners(history)[disliked], self._split_dislikes(history, disliked))
        return moved

    def split(self, history: csr_array) -> np.ndarray:
        """Compute what each event of one person adds to the deviation: events x bits."""
        disliked = self.above(history) < 0
        moved = self._split(history, ~disliked, np.full(len(disliked), (~disliked).sum()))
        if disliked.any():
            moved[disliked] = self._split_dislikes(history, disliked)
        return moved

    def _split(self, history: csr_array, some: np.ndarray, n_events: np.ndarray) -> np.ndarray:
        """Compute z C_n / n of some events, with n by event; 0 for the others."""
        moved = np.zeros((len(some), len(self.expected)), np.float32)
        items, above, n = history.indices[some], self.above(history)[some], n_events[some]
        exposure = self.weights[items, None] * self.codes.rows(items).astype(np.float32)
        ones = np.ones((len(items), 1), np.float32)
        z = np.hstack([exposure - self.expected, above[:, None] * exposure, ones])
        moved[some] = self._move(z, n) / n[:, None].astype(np.float32)
        return moved

    def _split_dislikes(self, history: csr_array, disliked: np.ndarray) -> np.ndarray:
        """Compute what dislikes add: nothing that raises the items most like theirs."""
        n_events = np.diff(history.indptr)[_owners(history)]
        moved = self._split(history, disliked, n_events)[disliked]
        if len(self.codes) < 2:
            return np.zeros_like(moved)
        return np.asarray(moved - self._rises(history.indices[disliked], moved))

    def _rises(self, disliked: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Compute the part of disliked events that would raise the neighbours of their items."""
        items, places = np.unique(disliked, return_inverse=True)
        codes, itself = self.codes.rows(items).astype(np.float32), list(items[:, None])
        k = min(N_NEIGHBOURS, len(self.codes) - 1)
        near = self.codes.nearest(codes, k, self.codes.lists(itself))[0]
        neighbours = self.codes.rows(near.ravel()).reshape(*near.shape, -1)
        neighbours = neighbours * self.codes.gains(near)[:, :, None]
        q = neighbours.sum(axis=1, dtype=np.float64).astype(np.float32)
        pulls = times(q, self.metric)
        lengths = np.maximum((q * pulls).sum(axis=1, dtype=np.float64), 1e-30)
        raised = (moved * q[places]).sum(axis=1, dtype=np.float64) / lengths[places]
        return np.asarray(
            LOWERED * np.maximum(raised, 0)[:, None].astype(np.float32) * pulls[places]
        )

    def disliked(self, history: csr_array) -> csr_array | None:
        """Return the entries that are ratings below what their items get on average, if any."""
        below = self.above(history) < 0
        if not below.any():
            return None
        found = select_entries(history, below)
        ones = np.ones(len(found.indices), np.float32)  # a rating may be 0
        return csr_array((ones, found.indices, found.indptr), shape=history.shape)

    def above(self, history: csr_array) -> np.ndarray:
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


def select_entries(history: csr_array, some: np.ndarray) -> csr_array:
    """Return some of the entries."""
    indptr = np.concatenate([[0], np.cumsum(some)])[history.indptr]
    return csr_array((history.data[some], history.indices[some], indptr), shape=history.shape)


def _owners(history: csr_array) -> np.ndarray:
    """Return the row of each entry."""
    return np.repeat(np.arange(history.shape[0]), np.diff(history.indptr))
