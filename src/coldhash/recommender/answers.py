"""Answers to questions: how they move a user vector, and which question would move it most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coldhash.arrays.checks import Forms, check_places, take
from coldhash.arrays.products import SparseRows
from coldhash.errors import ModelFileError
from coldhash.features.groups import State
from coldhash.recommender.history import HistoryPart
from coldhash.search import Search

LENGTH = 10  # of the list that questions are to improve
N_BEST = 200  # items of a person that may be on it
N_CONSIDERED = 500  # items to choose a question from: those that most people know
_ARRAYS = ("covariance", "shares", "rows", "deviations", "loadings")


@dataclass(frozen=True, eq=False)
class OpenList:
    """The items that may be on the list of one person, and what is not known of their scores.

    The score of item j is expected to be m_j, with the variance v_j. A question is to tell which
    items belong above the score τ of the last one on the list: items count by the density of
    their scores at τ. What moves all of them alike, and so τ, changes no list and does not count.
    """

    rows: np.ndarray  # j
    codes: np.ndarray  # C: the rows √w_j (g_j d_j - mean), w_j ∝ exp(-(m_j - τ)² / 2v_j) / √v_j
    covariance: np.ndarray  # G: of the person's vector

    @cached_property
    def metric(self) -> np.ndarray:
        """C'C."""
        return np.asarray(self.codes.T @ self.codes)

    @property
    def variance(self) -> float:
        """The mean variance of scores tr(C'C G)."""
        return max(float(np.vdot(self.metric, self.covariance)), 1e-30)


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
        above = self.history.above(answers) * scale
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
        C = codes.rows(rows) * codes.gains(rows)[:, None]
        deviations = np.sqrt(np.maximum(_products(C @ G, C), 1e-30))
        above = (scores - scores[:LENGTH].min(initial=np.inf)) / deviations
        weights = np.exp(-(above**2) / 2) / deviations
        weights = (weights / weights.sum()).astype(np.float32)
        return OpenList(rows, (C - weights @ C) * np.sqrt(weights)[:, None], G)

    @cached_property
    def _by_share(self) -> np.ndarray:
        """The items of `rows`, those that most people know first."""
        rows = np.sort(self.rows)
        return rows[np.argsort(-self.shares[rows], kind="stable")]

    def questions(self, person: OpenList, askable: np.ndarray) -> Iterator[tuple[int, float]]:
        """Iterate over items to ask about, of a mask of items, the best next one first.

        Yields the item, and how much of `person.variance` the answer is expected to remove from
        other items: an item that was asked about is not recommended afterwards. Each is the best
        one once those before have been answered. Items that few people know follow, in order of
        the share of people who do.
        """
        own = self._by_share[askable[self._by_share]][:N_CONSIDERED]
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
        rows = np.flatnonzero(others)
        yield from ((int(row), 0.0) for row in rows[np.argsort(-self.shares[rows], kind="stable")])

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
        arrays = {name: getattr(self, name) for name in _ARRAYS}
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
