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

_ARRAYS = ("covariance", "shares", "rows", "deviations", "loadings")


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

    @cached_property
    def _weighted(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows c_i ∝ g_i (d_i - mean) of C for `rows`, and C'C over all items.

        What moves all items alike changes no list and does not count.
        """
        codes = self.history.codes
        squares = codes.gains(np.arange(len(codes))).astype(np.float64) ** 2
        weights = (squares / squares.sum()).astype(np.float32)
        D = codes.rows().astype(np.float32)
        C = (D - weights @ D) * np.sqrt(weights)[:, None]
        return C[self.rows], np.asarray(C.T @ C, dtype=np.float64)

    @property
    def metric(self) -> np.ndarray:
        """Q: the variance of g (h·d), what h adds to the scores of items, is tr(Q Σ) on average."""
        return self._weighted[1]

    def split(self, answers: SparseRows) -> np.ndarray:
        """Compute what each answer of one person adds to the vector: answers x bits."""
        L, said, places = self._signals(answers)
        U = _reduction(self.covariance, L)
        pulled = L * said[:, None]
        moved = np.zeros((len(answers.indices), len(U.T)))
        np.add.at(moved, places, pulled @ (self.covariance - U.T @ U))
        return moved.astype(np.float32)

    def deviation(self, answers: SparseRows) -> np.ndarray:
        """Compute how far answers move each person."""
        moved = [self.split(row).sum(axis=0) for row in answers.rows()]
        return np.array(moved, np.float32).reshape(-1, len(self.covariance))

    def reduction(self, answers: SparseRows) -> np.ndarray:
        """Compute U such that Σ - U'U is the covariance G that the answers of one person leave."""
        return _reduction(self.covariance, self._signals(answers)[0])

    def variance(self, reduction: np.ndarray) -> float:
        """Compute the variance tr(Q G) that is left after a reduction."""
        G = self.covariance - reduction.T @ reduction
        return max(float(np.vdot(G, self.metric)), 1e-30)

    @cached_property
    def _prior(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """l·Σ l, l·ΣQΣ l and l·Σ c of all loadings l and of the codes c of their items."""
        LS = self.loadings @ self.covariance
        others = (self.loadings, LS @ self.metric, self._weighted[0])
        spread, moved, itself = ((LS * each).sum(axis=2) for each in others)
        return spread, moved, itself

    def questions(self, reduction: np.ndarray, rows: np.ndarray) -> Iterator[tuple[int, float]]:
        """Iterate over items of `rows` to ask about after a reduction, the best next one first.

        Yields the item, and how much of the variance tr(Q G) the answer is expected to remove from
        the scores of other items: an item that was asked about is not recommended afterwards. Each
        is the best one once those before have been answered. Items whose answers are not learned
        follow in order of the share of people who know them.
        """
        places = self._places[rows]
        learned = places < len(self.rows)
        own, places = rows[learned], places[learned]
        L, C = self.loadings[:, places], self._weighted[0][places]
        spread, moved, itself = (each[:, places] for each in self._prior)
        chance = np.stack([np.ones(len(own)), self.shares[own]])  # rated only if it is known
        G, Q, left = self.covariance, self.metric.astype(np.float32), np.ones(len(own))
        U = reduction
        for _ in own:
            A, B = L @ U.T, L @ (G @ Q @ U.T)
            spread = spread - (A * A).sum(axis=2)  # l·G l and l·GQG l with G less by U'U
            moved = moved + (A * (A @ (U @ Q @ U.T) - 2 * B)).sum(axis=2)
            itself = itself - (A * (C @ U.T)).sum(axis=2)
            G = G - U.T @ U
            removed = (chance * (moved - itself**2) / (1 + spread)).sum(axis=0) * left
            best = int(np.argmax(removed))
            yield int(own[best]), float(removed[best])
            left[best] = -np.inf
            U = _reduction(G, L[:, best] * np.sqrt(chance[:, best, None]))
        others = rows[~learned]
        yield from ((int(row), 0.0) for row in others[np.argsort(-self.shares[others])])

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
