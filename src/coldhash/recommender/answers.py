"""Answers to questions: how they move a user vector, and which question would move it most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coldhash.arrays.checks import Forms, check_places, take
from coldhash.arrays.rows import SparseRows
from coldhash.errors import ModelFileError
from coldhash.features.groups import State
from coldhash.recommender.history import HistoryPart

_ARRAYS = ("covariance", "shares", "rows", "loadings")
MOST_ASKED = 1000  # items considered for a question: those that an answer says most about

LEAST_NOISE = 0.2  # the share of the variance of knowing an item that is noise, at least


@dataclass(frozen=True, eq=False)
class AnswerPart:
    """A Gaussian model of answers in code space.

    A person's vector lies around what else is known, x away from it, with covariance Σ. Asked
    about item i, with code d_i, which a share q_i of people has rated,

        k - q_i = x·a_i     + noise of the rest of the variance q_i (1 - q_i)
        δ       = x·(ρ d_i) + noise of variance σ²

    where k is 1 if the person knows the item and 0 if not, and δ, which only the former have, is
    the rating above the item's mean in units of its spread. Unlike an event of a history, which
    people chose themselves, the answer "I do not know it" says something, too. The loadings a are
    learned for the items that are rated most; those of others are 0.
    """

    history: HistoryPart  # the codes, and what ratings are compared with
    covariance: np.ndarray  # Σ
    shares: np.ndarray  # q
    rows: np.ndarray  # the items that are rated most
    loadings: np.ndarray  # their a, rows x bits
    slope: float  # ρ
    noise: float  # σ²

    @cached_property
    def _places(self) -> np.ndarray:
        """The row of each item in `loadings`; the one after the last is of all others."""
        places = np.full(len(self.shares), len(self.rows))
        places[self.rows] = np.arange(len(self.rows))
        return places

    @cached_property
    def _deviations(self) -> np.ndarray:
        """The roots of the variances of the noise of k: of what the vector does not explain."""
        variances = self.shares * (1 - self.shares)
        explained = np.einsum("ir,ir->i", self.loadings @ self.covariance, self.loadings)
        rest = np.maximum(variances[self.rows] - explained, LEAST_NOISE * variances[self.rows])
        variances[self.rows] = rest
        return np.asarray(np.sqrt(variances))

    @cached_property
    def _scaled(self) -> np.ndarray:
        """Loadings in units of the noise, and a row of zeros."""
        scaled = self.loadings / self._deviations[self.rows, None]
        return np.vstack([scaled, 0 * self.covariance[:1]])

    def _of_knowing(self, items: np.ndarray) -> np.ndarray:
        return np.asarray(self._scaled[self._places[items]])

    def _of_rating(self, items: np.ndarray) -> np.ndarray:
        scale = np.float32(self.slope / np.sqrt(self.noise))
        return np.asarray(self.history.codes.rows(items) * scale)

    @cached_property
    def metric(self) -> np.ndarray:
        """Q: the variance of h·d between items is tr(Q Σ), with items weighed by √p.

        What moves all items alike changes no list and does not count.
        """
        codes = self.history.codes
        gains = codes.gains(np.arange(len(codes))).astype(np.float64)
        D, weights = codes.rows().astype(np.float32), (gains / gains.sum()).astype(np.float32)
        D = D - weights @ D
        return np.asarray(D.T @ (D * weights[:, None]), dtype=np.float64)

    def split(self, answers: SparseRows) -> np.ndarray:
        """Compute what each answer of one person adds to the vector: answers x bits."""
        items, known = answers.indices, ~np.isnan(answers.data)
        surprise = (known - self.shares[items]) / self._deviations[items]
        pulls = self._of_knowing(items) * surprise[:, None]
        above = self.history.above(answers) / np.sqrt(self.noise)
        pulls = pulls + self._of_rating(items) * above[:, None]
        return np.asarray(pulls @ self._posterior(answers), dtype=np.float32)

    def deviation(self, answers: SparseRows) -> np.ndarray:
        """Compute how far answers move each person."""
        moved = [self.split(row).sum(axis=0) for row in answers.rows()]
        return np.array(moved, np.float32).reshape(-1, len(self.covariance))

    def _posterior(self, answers: SparseRows) -> np.ndarray:
        """Compute the covariance of x after the answers of one person."""
        items = answers.indices
        rated = self._of_rating(items[~np.isnan(answers.data)])
        L = np.vstack([self._of_knowing(items), rated]).astype(np.float64)
        LS = L @ self.covariance
        return np.asarray(self.covariance - LS.T @ np.linalg.solve(np.eye(len(L)) + LS @ L.T, LS))

    def variance(self, answers: SparseRows) -> float:
        """Compute the variance tr(Q G) that the answers of one person leave."""
        return max(float(np.vdot(self._posterior(answers), self.metric)), 1e-30)

    def questions(self, answers: SparseRows, rows: np.ndarray) -> Iterator[tuple[int, float]]:
        """Iterate over items of `rows` to ask one person about, the best next one first.

        Yields the item, and how much of the variance tr(Q G) the answer is expected to remove.
        Each is the best one once those before have been answered.
        """
        G = self._posterior(answers).astype(np.float32)
        rows = rows[np.argsort(-self.shares[rows], kind="stable")[:MOST_ASKED]]
        kinds = [(self._of_knowing(rows), np.float32(1))]
        if self.slope:
            kinds.append((self._of_rating(rows), self.shares[rows]))  # only if it is known
        Q = self.metric.astype(np.float32)
        left = np.ones(len(rows), dtype=np.float32)
        for _ in range(len(rows)):
            GQG, removed = G @ Q @ G, np.zeros(len(rows), np.float32)
            for L, chance in kinds:
                before = 1 + np.einsum("ir,ir->i", L @ G, L)
                removed += chance * np.einsum("ir,ir->i", L @ GQG, L) / before
            best = int(np.argmax(removed * left))
            yield int(rows[best]), float(removed[best])
            left[best] = 0
            for L, chance in kinds:
                pulled, share = G @ L[best], np.broadcast_to(chance, left.shape)[best]
                G = G - np.outer(pulled, pulled) * (share / (1 + share * (pulled @ L[best])))

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
            loadings=self.loadings[places[kept]],
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
            "loadings": ("f", "asked", width),
        }
        own = take(arrays, forms)
        check_places("rows", own["rows"], n_items)
        if n_items and not 0 < own["shares"].min() <= own["shares"].max() < 1:
            raise ModelFileError("'shares' are not between 0 and 1")
        return cls(history, **own, slope=float(json["slope"]), noise=float(json["noise"]))
