"""How ratings and purchases just given, and answers to questions, move a user vector.

Also which question would move it most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from coldhash.arrays import load_kernels
from coldhash.arrays.checks import Forms, check_places, take
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
LENGTH = 10  # of the list that questions are to improve
N_BEST = 200  # items of a person that may be on it
N_CONSIDERED = 500  # items to choose a question from: those that most people know
_ANSWER_ARRAYS = ("covariance", "shares", "rows", "deviations", "loadings")


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
    # by item, what is known of its neighbours, for the next who dislikes it
    _kept: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, init=False)

    def evidence(self, events: SparseRows) -> np.ndarray:
        """Compute the mean of z over the events of each row, whose values are δ."""
        above, n_events = events.data, events.counts()[:, None].astype(np.float32)
        words, weights, places = self._codes_of(events.indices)
        # both sums by one product: the rows of exposure, and below them those of preference
        values = np.concatenate([np.ones_like(above), above])
        ends = np.concatenate([events.indptr, events.indptr[1:] + len(above)])
        shape = (2 * len(n_events), len(words))
        both = SparseRows(values, np.concatenate([places, places]), ends, shape)
        added = times_codes(both, words, weights, self.codes.width)
        exposure = added[: len(n_events)] - n_events * self.expected
        sums = np.concatenate([exposure, added[len(n_events) :], n_events], axis=1)
        return np.asarray(sums / np.maximum(n_events, 1))

    def _codes_of(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return packed codes, their weights, and the place of each item's code among them."""
        if len(self.codes) * self.codes.width <= SMALL:
            return self._all_codes, self.weights, items
        distinct, places = np.unique(items, return_inverse=True)
        return self.codes.packed(distinct), self.weights[distinct], places

    @cached_property
    def _all_codes(self) -> np.ndarray:
        return self.codes.packed()

    def apply(self, history: SparseRows) -> tuple[np.ndarray, SparseRows | None]:
        """Compute how far people are from what their features say.

        Returns also the entries that are dislikes, if any.
        """
        events, counts = self.above(history), history.counts()
        below = events.data < 0
        if not below.any():
            return self._move(events, counts), None
        liked, disliked = events.select(~below), events.select(below)
        moved, owners = self._move(liked, liked.counts()), disliked.owners()
        np.add.at(moved, owners, self._move_by_each(disliked, counts[owners]))
        return moved, disliked

    def split(self, history: SparseRows) -> np.ndarray:
        """Compute what each event of one person adds to the deviation: events x bits."""
        events = self.above(history)
        below = events.data < 0
        n_events = np.where(below, len(below), np.count_nonzero(~below))
        return self._move_by_each(events, n_events)

    def _move_by_each(self, events: SparseRows, n_events: np.ndarray) -> np.ndarray:
        """Compute what each event adds to the deviation of its person."""
        n_entries, below = len(n_events), events.data < 0
        ends, shape = np.arange(n_entries + 1), (n_entries, events.shape[1])
        apart = SparseRows(events.data, events.indices, ends, shape)
        moved = self._move(apart, n_events)
        moved /= n_events[:, None].astype(np.float32)
        if below.any():  # nothing of a dislike raises the items most like it
            q, falls = self._find_neighbours(events.indices[below])
            raised = np.maximum((moved[below] * q).sum(axis=1, dtype=np.float64), 0)
            moved[below] -= raised[:, None].astype(np.float32) * falls
        return moved

    def _find_neighbours(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each item, q of its nearest items, and 1.1 q M / (q M q')."""
        if len(items) == 1 and (kept := self._kept.get(int(items[0]))) is not None:
            return kept
        distinct, places = np.unique(items, return_inverse=True)
        codes = self.codes.rows(distinct).astype(np.float32)
        itself = SparseRows.of_lists(distinct[:, None], len(self.codes))
        k = max(1, min(N_NEIGHBOURS, len(self.codes) - 1))
        near = self.codes.nearest(codes, k, Search(itself))[0]
        neighbours = self.codes.rows(near.ravel()).reshape(*near.shape, -1)
        neighbours = neighbours * self.codes.level_terms(near)[1][:, :, None]
        q = neighbours.sum(axis=1, dtype=np.float64).astype(np.float32)
        pulls = times(q, self.metric)
        lengths = np.maximum((q * pulls).sum(axis=1, dtype=np.float64), 1e-30)
        found = q[places], (LOWERED / lengths[:, None] * pulls).astype(np.float32)[places]
        if len(items) == 1 and len(self._kept) < N_KEPT:
            self._kept[int(items[0])] = found
        return found

    def disliked(self, history: SparseRows) -> SparseRows | None:
        """Return the entries that are ratings below what their items get on average, if any."""
        events = self.above(history)
        below = events.data < 0
        return events.select(below) if below.any() else None

    def above(self, history: SparseRows) -> SparseRows:
        """Return events with their values δ, ratings above the mean; 0 for those without one."""
        above = np.zeros(len(history.data), dtype=np.float32)
        if self.spread:
            above = (history.data - self.means[history.indices]) / np.float32(self.spread)
            above = np.where(np.isnan(above), np.float32(0), above)
        return SparseRows(above, history.indices, history.indptr, history.shape)

    def _move(self, events: SparseRows, n_events: np.ndarray) -> np.ndarray:
        """Compute the mean of z of each row times the map for `n_events`."""
        moved = np.zeros((len(n_events), self.codes.width), dtype=np.float32)
        kernels = load_kernels(KERNELS, (len(events.data) + len(moved)) * ROW_COST)
        if kernels is None:
            evidence = self.evidence(events)
            shares = self._shares[np.minimum(n_events, len(self._shares) - 1)]
            for at in shares.any(axis=0).nonzero()[0]:
                moved += shares[:, at, None] * times(evidence, self.maps[at])
            return moved
        words, weights, places = self._codes_of(events.indices)
        given = events.indptr.astype(np.int64), places.astype(np.int64), events.data, n_events
        codes, move = (read_only(words), read_only(weights)), kernels.move_by_events
        run_rows(move, events.indptr, *given, *codes, *self._fixed, moved)
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


class OpenList(NamedTuple):
    """The items that may be on the list of one person, and what is not known of their scores.

    The score of item j is expected to be m_j, with the variance v_j. A question is to tell which
    items belong above the score τ of the last one on the list: items count by the density of
    their scores at τ. What moves all of them alike, and so τ, changes no list and does not count.
    """

    rows: np.ndarray  # j
    codes: np.ndarray  # C: the rows √w_j (g_j d_j - mean), w_j ∝ exp(-(m_j - τ)² / 2v_j) / √v_j
    metric: np.ndarray  # C'C
    covariance: np.ndarray  # G: of the person's vector


@dataclass(frozen=True, eq=False)
class AnswerPart:
    """A Gaussian model of answers in code space.

    A person's vector lies around what else is known, x away from it, with covariance Σ. Asked
    about item i, which a share q_i of people has rated,

        k - q_i = x·a_i + noise of variance s_i²
        δ       = x·b_i + noise of variance σ²

    where k is 1 if the person knows the item and 0 if not, and δ, which only the former have, is
    the rating above the item's mean in units of its spread. Unlike an event of a history, which
    people chose themselves, the answer "I do not know it" says something, too. The loadings a and
    b are learned for the items that are rated most; others have a = 0 and b = ρ d_i, the code.
    """

    history: HistoryPart  # the codes, and what ratings are compared with
    covariance: np.ndarray  # Σ
    shares: np.ndarray  # q
    rows: np.ndarray  # the items that are rated most
    deviations: np.ndarray  # their s
    loadings: np.ndarray  # their a / s and b / σ, 2 x rows x bits
    slope: float  # ρ
    noise: float  # σ²

    @cached_property
    def _places(self) -> np.ndarray:
        """The place of each item in `rows`; that after the last is of all others."""
        places = np.full(len(self.shares), len(self.rows))
        places[self.rows] = np.arange(len(self.rows))
        return places

    def _signals(self, answers: SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return loadings, surprises and answers' places of what one person has said."""
        known, places = ~np.isnan(answers.data), self._places[answers.indices]
        learned = places < len(self.rows)
        rated, others = np.flatnonzero(known & learned), np.flatnonzero(known & ~learned)
        asked = np.flatnonzero(learned)
        own = places[asked]
        scale = np.float32(1 / np.sqrt(self.noise))
        codes = self.history.codes.rows(answers.indices[others])
        L = [self.loadings[0, own], self.loadings[1, places[rated]], codes * (self.slope * scale)]
        surprise = (known[asked] - self.shares[answers.indices[asked]]) / self.deviations[own]
        above = self.history.above(answers).data * scale
        said = np.concatenate([surprise, above[rated], above[others]])
        return np.concatenate(L), said, np.concatenate([asked, rated, others])

    def _update(self, answers: SparseRows) -> tuple[np.ndarray, np.ndarray]:
        """Return what each answer of one person adds to the vector, and the covariance left."""
        if not len(answers.indices):
            return np.zeros((0, len(self.covariance)), np.float32), self.covariance
        L, said, places = self._signals(answers)
        U = _reduction(self.covariance, L)
        G = self.covariance - U.T @ U
        moved = np.zeros((len(answers.indices), len(G)))
        np.add.at(moved, places, (L * said[:, None]) @ G)
        return moved.astype(np.float32), G

    def split(self, answers: SparseRows) -> np.ndarray:
        """Compute what each answer of one person adds to the vector: answers x bits."""
        return self._update(answers)[0]

    def deviation(self, answers: SparseRows) -> np.ndarray:
        """Compute how far answers move each person."""
        moved = [self.split(row).sum(axis=0) for row in answers.rows()]
        return np.array(moved, np.float32).reshape(-1, len(self.covariance))

    def open_list(self, vector: np.ndarray, answers: SparseRows, excluded: np.ndarray) -> OpenList:
        """Find the best items of one person, `excluded` ones apart, and what is open about them.

        `vector` is the person's without the answers.
        """
        moved, G = self._update(answers)
        codes, vector = self.history.codes, vector + moved.sum(axis=0)
        search = Search(SparseRows.of_lists([excluded], len(codes)))
        (rows,), (scores,) = codes.best(vector[None], N_BEST, search)
        rows, scores = rows[rows >= 0], scores[rows >= 0]
        C = codes.rows(rows) * codes.level_terms(rows)[1].astype(np.float32)[:, None]
        deviations = np.sqrt(np.maximum(_products(C @ G, C), 1e-30))
        above = (scores - scores[:LENGTH].min(initial=np.inf)) / deviations
        weights = np.exp(-(above**2) / 2) / deviations
        weights = (weights / weights.sum()).astype(np.float32)
        C = (C - weights @ C) * np.sqrt(weights)[:, None]
        return OpenList(rows, C, C.T @ C, G)

    def questions(self, person: OpenList, askable: np.ndarray) -> Iterator[tuple[int, float]]:
        """Iterate over items to ask about, of a mask of items, the best next one first.

        Yields the item, and how much of tr(C'C G) the answer is expected to remove from other
        items: an item that was asked about is not recommended afterwards. Each is the best
        one once those before have been answered. Items that few people know follow, in order of
        the share of people who do.
        """
        own = self._by_share(askable & (self._places < len(self.rows)))[:N_CONSIDERED]
        places = self._places[own]
        L, G = self.loadings.take(places, axis=1), person.covariance
        shares, left = self.shares[own], np.ones(len(own))
        at = np.full(len(self.rows) + 1, -1)
        at[places] = np.arange(len(own))
        asked = at[self._places[person.rows]]  # the place in `own` of each item of the list
        C, asked = person.codes[asked >= 0], asked[asked >= 0]
        for _ in own:
            LG = L @ G
            moved = _products(LG @ person.metric, LG)
            moved[:, asked] -= _products(LG.take(asked, axis=1), C) ** 2
            by_knowing, by_rating = moved / (1 + _products(LG, L))
            removed = (by_knowing + shares * by_rating) * left  # it is rated only if it is known
            best = int(np.argmax(removed))
            yield int(own[best]), float(removed[best])
            left[best] = -np.inf
            U = _reduction(G, L[:, best] * np.sqrt([[1], [shares[best]]]))
            G = G - U.T @ U
        others = askable.copy()
        others[own] = False
        yield from ((row, 0.0) for row in self._by_share(others).tolist())

    def _by_share(self, some: np.ndarray) -> np.ndarray:
        """Return the items of a mask, those that most people know first."""
        rows = np.flatnonzero(some)
        return rows[np.argsort(-self.shares[rows], kind="stable")]

    def follow_items(self, history: HistoryPart, rows: np.ndarray, n_new: int) -> AnswerPart:
        """Return the part for other items: `rows` of those it had, then `n_new` more."""
        unknown = np.full(n_new, self.shares.min(), dtype=self.shares.dtype)
        places = self._places[rows]
        kept = np.flatnonzero(places < len(self.rows))
        return replace(
            self,
            history=history,
            shares=np.concatenate([self.shares[rows], unknown]),
            rows=kept.astype(np.int32),
            deviations=self.deviations[places[kept]],
            loadings=self.loadings[:, places[kept]],
        )

    def state(self) -> State:
        """Return what only this part knows."""
        arrays = {name: getattr(self, name) for name in _ANSWER_ARRAYS}
        return {"slope": self.slope, "noise": self.noise}, arrays

    @classmethod
    def restore(cls, state: State, history: HistoryPart) -> AnswerPart:
        """Rebuild the part."""
        json, arrays = state
        width, n_items = history.codes.width, len(history.codes)
        forms: Forms = {
            "covariance": ("f", width, width),
            "shares": ("f", n_items),
            "rows": ("i", "asked"),
            "deviations": ("f", "asked"),
            "loadings": ("f", 2, "asked", width),
        }
        own = take(arrays, forms)
        check_places("rows", own["rows"], n_items)
        if n_items and not 0 < own["shares"].min() <= own["shares"].max() < 1:
            raise ModelFileError("'shares' are not between 0 and 1")
        return cls(history, **own, slope=float(json["slope"]), noise=float(json["noise"]))


def _reduction(covariance: np.ndarray, loadings: np.ndarray) -> np.ndarray:
    """Return U such that G - U'U is what signals with unit noise leave of the covariance G."""
    LG = (loadings @ covariance).astype(np.float64)
    root = np.linalg.cholesky(np.eye(len(LG)) + LG @ loadings.T)
    return np.asarray(np.linalg.solve(root, LG), dtype=np.float32)


def _products(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return a·b of each two rows; for few numbers sooner than by `np.vecdot`."""
    return np.asarray(np.einsum("...r,...r->...", rows, others))
