"""HistoryPart: how ratings or purchases just given move a user vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coldhash.arrays import load_kernels
from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import KERNELS, ROW_COST, SparseRows, read_only, times, times_codes
from coldhash.arrays.threads import run_rows
from coldhash.errors import ModelFileError
from coldhash.features.groups import State
from coldhash.recommender.items import CodeItems, Items, code_items
from coldhash.search import Search

USUAL = 1.0  # weight of an event of a new item: that of an average item
N_NEIGHBOURS = 10  # nearest items, whose mean score a dislike does not raise
N_KEPT = 4096  # items whose neighbours are kept
SMALL = 1 << 25  # bits of all codes, up to which they are kept in the order of the items
LOWERED = 1.1  # times that what would raise them is taken out: they fall a little instead
MAX_COUNT = 1 << 16  # of events that a map is for
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

    def evidence(self, history: SparseRows, above: np.ndarray | None = None) -> np.ndarray:
        """Compute the mean of z over the events of each row, from δ if that is known."""
        above = self.above(history) if above is None else above
        n_events, n_entries = _column(history.counts()), len(above)
        words, weights, places = self._codes_of(history.indices)
        # both sums by one product: the rows of exposure, and below them those of preference
        values = np.concatenate([np.ones(n_entries, np.float32), above])
        ends = np.concatenate([history.indptr, history.indptr[1:] + n_entries])
        shape = (2 * len(n_events), len(words))
        events = SparseRows(values, np.concatenate([places, places]), ends, shape)
        added = times_codes(events, words, weights, self.codes.width)
        exposure = added[: len(n_events)] - n_events * self.expected
        sums = np.concatenate([exposure, added[len(n_events) :], n_events], axis=1)
        return np.asarray(sums / np.maximum(n_events, 1))

    def _codes_of(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return packed codes, their weights, and the place of each item's code among them."""
        if len(self.codes) * self.codes.width <= SMALL:
            return self._all_codes, self.weights, items
        distinct, places = np.unique(items, return_inverse=True)
        return self.codes.index.packed(distinct), self.weights[distinct], places

    @cached_property
    def _all_codes(self) -> np.ndarray:
        return self.codes.index.packed()

    def apply(self, history: SparseRows) -> tuple[np.ndarray, SparseRows | None]:
        """Compute how far people are from what their features say.

        Returns also the entries that are dislikes, if any.
        """
        above, counts = self.above(history), history.counts()
        below = above < 0
        if not below.any():
            return self._move(history, above, counts), None
        liked, disliked = history.select(~below), history.select(below)
        moved, owners = self._move(liked, above[~below], liked.counts()), disliked.owners()
        np.add.at(moved, owners, self._move_by_each(disliked.indices, above[below], counts[owners]))
        return moved, disliked

    def split(self, history: SparseRows) -> np.ndarray:
        """Compute what each event of one person adds to the deviation: events x bits."""
        above = self.above(history)
        n_liked = np.count_nonzero(above >= 0)
        n_events = np.where(above < 0, len(above), n_liked)
        return self._move_by_each(history.indices, above, n_events)

    def _move_by_each(
        self, items: np.ndarray, above: np.ndarray, n_events: np.ndarray
    ) -> np.ndarray:
        """Compute what each of some events adds to the deviation of its person."""
        ends = np.arange(len(items) + 1)
        events = SparseRows(above, items, ends, (len(items), len(self.codes)))
        moved = self._move(events, above, n_events) / _column(n_events)
        below = above < 0
        if below.any():
            moved[below] = self._lower(items[below], moved[below])
        return np.asarray(moved)

    def _lower(self, items: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Compute what dislikes add: nothing that raises the items most like theirs."""
        if len(self.codes) < 2:
            return np.zeros_like(moved)
        q, falls = self._find_neighbours(items)
        raised = np.maximum((moved * q).sum(axis=1, dtype=np.float64), 0)
        return np.asarray(moved - raised[:, None].astype(np.float32) * falls)

    def _find_neighbours(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each item, q of its nearest items, and 1.1 q M / (q M q')."""
        if len(items) == 1 and (kept := self._kept.get(int(items[0]))) is not None:
            return kept
        distinct, places = np.unique(items, return_inverse=True)
        codes = self.codes.rows(distinct).astype(np.float32)
        itself = SparseRows.of_lists(distinct[:, None], len(self.codes))
        k = min(N_NEIGHBOURS, len(self.codes) - 1)
        near = self.codes.nearest(codes, k, Search(itself))[0]
        neighbours = self.codes.rows(near.ravel()).reshape(*near.shape, -1)
        neighbours = neighbours * self.codes.gains(near)[:, :, None]
        q = neighbours.sum(axis=1, dtype=np.float64).astype(np.float32)
        pulls = times(q, self.metric)
        lengths = np.maximum((q * pulls).sum(axis=1, dtype=np.float64), 1e-30)
        found = q[places], (LOWERED / lengths[:, None] * pulls).astype(np.float32)[places]
        if len(items) == 1 and len(self._kept) < N_KEPT:
            self._kept[int(items[0])] = found
        return found

    @cached_property
    def _kept(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """What is known of the neighbours of one item, for the next who dislikes it."""
        return {}

    def disliked(self, history: SparseRows) -> SparseRows | None:
        """Return the entries that are ratings below what their items get on average, if any."""
        below = self.above(history) < 0
        return history.select(below) if below.any() else None

    def above(self, history: SparseRows) -> np.ndarray:
        """Compute ratings above the items' means; 0 for events without a value."""
        if not self.spread:
            return np.zeros(len(history.data), dtype=np.float32)
        above = (history.data - self.means[history.indices]) / np.float32(self.spread)
        return np.where(np.isnan(above), np.float32(0), above)

    def _move(self, history: SparseRows, above: np.ndarray, n_events: np.ndarray) -> np.ndarray:
        """Compute the mean of z of each row times the map for `n_events`."""
        moved = np.zeros((len(n_events), self.codes.width), dtype=np.float32)
        kernels = load_kernels(KERNELS, (len(above) + len(moved)) * ROW_COST)
        if kernels is None:
            evidence = self.evidence(history, above)
            shares = self._shares[np.minimum(n_events, len(self._shares) - 1)]
            for at in shares.any(axis=0).nonzero()[0]:
                moved += shares[:, at, None] * times(evidence, self.maps[at])
            return moved
        words, weights, places = self._codes_of(history.indices)
        events = history.indptr.astype(np.int64), places.astype(np.int64), above, n_events
        codes, move = (read_only(words), read_only(weights)), kernels.move_by_events
        run_rows(move, history.indptr, *events, *codes, *self._fixed, moved)
        return moved

    @cached_property
    def _fixed(self) -> tuple[np.ndarray, ...]:
        """The arrays that the kernel takes for every person."""
        return tuple(map(read_only, (self.expected, self.maps, self._shares)))

    @cached_property
    def _shares(self) -> np.ndarray:
        """The share of each map by the number of events; from the last count on, the same."""
        n_events, places = np.arange(max(self.counts, default=0) + 1), np.arange(len(self.counts))
        if not len(places):
            return np.zeros((1, 0), np.float32)
        place = np.interp(np.log(np.maximum(n_events, 1)), np.log(self.counts), places)
        shares = np.maximum(1 - np.abs(place[:, None] - places), 0) * (n_events > 0)[:, None]
        return np.asarray(shares, np.float32)

    def follow_items(self, items: Items, rows: np.ndarray, n_new: int) -> HistoryPart:
        """Return the part for other items: `rows` of those it had, then `n_new` more."""
        new = np.full(n_new, USUAL, dtype=self.weights.dtype)
        means = np.full(n_new, self.means.mean(), dtype=self.means.dtype)
        return replace(
            self,
            codes=code_items(items),
            weights=np.concatenate([self.weights[rows], new]),
            means=np.concatenate([self.means[rows], means]),
        )

    def state(self) -> State:
        """Return what only this part knows: the codes are the model's."""
        return {"spread": self.spread}, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def restore(cls, state: State, codes: Items) -> HistoryPart:
        """Rebuild the part."""
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
        if not (np.diff(counts, prepend=0, append=MAX_COUNT) > 0).all():
            raise ModelFileError(f"'counts' are not ascending from 1 to {MAX_COUNT}")
        return cls(codes=code_items(codes), spread=float(json["spread"]), **own)


def _column(n_events: np.ndarray) -> np.ndarray:
    return n_events[:, None].astype(np.float32)
