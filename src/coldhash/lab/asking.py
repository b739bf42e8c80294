"""Judge questions: ask cold users about items, answer from their ratings, rank the rest.

A cold user knows an item if they have rated it. Items that were asked about are neither favourites
nor candidates afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.arrays.products import SparseRows
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import row_of_entries, with_values
from coldhash.evaluate import judge
from coldhash.evaluate.protocol import Protocol, Trial, make_trial
from coldhash.recommender.items import CodeItems
from coldhash.recommender.recommender import Recommender

N_QUESTIONS = (1, 3, 5, 10)
# each favourite alone, as in the other sets, among all jokes: nearly all are rated
AMONG_ALL = Protocol(n_candidates=None, negatives="not-liked")
PROTOCOLS: dict[str, str | Protocol] = {
    "jester": AMONG_ALL,
    "ml-1m": "sampled-1000",
    "ml-100k": "sampled-1000",
}
FEWEST = 30  # training users in a node of a decision tree
N_BINS = 5  # of ratings, for entropy


@dataclass(frozen=True, eq=False)
class Panel:
    """Cold users with everything that they have rated, dense: there are few of them."""

    model: Recommender
    train: Dataset
    trial: Trial
    ratings: np.ndarray  # users x items; NaN where an item is unknown

    @classmethod
    def of(
        cls, model: Recommender, train: Dataset, cold: Dataset, protocol: str | Protocol
    ) -> Panel:
        """Draw the candidates of the cold users."""
        matrix = cold.ratings.matrix
        ratings = np.full(matrix.shape, np.nan, np.float32)
        ratings[row_of_entries(matrix), matrix.indices] = matrix.data
        return cls(model, train, make_trial(train, cold, protocol=protocol), ratings)

    def answers(self, asked: np.ndarray) -> csr_array:
        """Return what users say: a rating, or NaN for what they do not know."""
        indptr = np.concatenate([[0], np.cumsum(asked.sum(axis=1))])
        return csr_array((self.ratings[asked], np.nonzero(asked)[1], indptr), shape=asked.shape)

    def judge(self, asked: np.ndarray) -> tuple[float, float]:
        """Compute Accuracy@10 on what was not asked about, and the share of known items asked."""
        trial, part = self.trial, self.model.encoder.answers
        assert part is not None
        candidates = trial.candidates_of(slice(0, trial.n_users))
        gone = np.take_along_axis(asked, np.maximum(candidates, 0), axis=1)
        rest = replace(
            trial,
            favourites=csr_array(trial.favourites.toarray() * ~asked),
            candidates=np.where(gone, np.int32(-1), candidates),
            history=self.answers(asked),
        )

        def score(people: pa.Table, given: csr_array | None) -> np.ndarray:
            assert given is not None
            vectors = self.model.encode(people, unknown="ignore").vectors
            return self.model.items.scores(vectors + part.deviation(SparseRows.of(given)))

        accuracy = judge(score, rest, (10,)).metrics["accuracy@10"]
        return accuracy, float(np.isfinite(self.ratings[asked]).mean()) if asked.any() else 1.0

    def ask(self, pick: Pick) -> dict[int, tuple[float, float]]:
        """Ask every user, and judge after some numbers of questions."""
        asked, found = np.zeros(self.ratings.shape, dtype=bool), {}
        for n in range(1, max(N_QUESTIONS) + 1):
            asked[np.arange(len(asked)), pick(self, asked)] = True
            if n in N_QUESTIONS:
                found[n] = self.judge(asked)
        return found


Pick = Callable[[Panel, np.ndarray], np.ndarray]  # from what was asked to an item for each user


def pick_ours(panel: Panel, asked: np.ndarray) -> np.ndarray:
    """Pick what `Recommender.ask` would."""
    part = panel.model.encoder.answers
    assert part is not None
    vectors = panel.model.encode(panel.trial.people, unknown="ignore").vectors
    answers = SparseRows.of(panel.answers(asked)).rows()
    picked = []
    for own, vector, said in zip(asked, vectors, answers, strict=True):
        open_list = part.open_list(vector, said, np.flatnonzero(own))
        picked.append(next(part.questions(open_list, ~own))[0])
    return np.array(picked, np.int64)


def strategies(panel: Panel, seed: int = 0) -> Iterator[tuple[str, Pick]]:
    """Iterate over ours and what it is compared with, all with the same use of answers."""
    ratings = panel.train.ratings
    matrix, (low, high) = ratings.matrix, panel.train.scale
    bins = ((matrix.data - low) / (high - low) * N_BINS).astype(np.int64).clip(0, N_BINS - 1)
    counts = np.zeros((matrix.shape[1], N_BINS))
    np.add.at(counts, (matrix.indices, bins), 1)
    shares = (counts + 1 / N_BINS) / (counts.sum(axis=1, keepdims=True) + 1)
    entropy = -(shares * np.log(shares)).sum(axis=1)
    chance = np.random.default_rng(seed).random(panel.ratings.shape)
    rated = ratings.per_item > 0
    yield "ours", pick_ours
    yield "popularity", _pick_highest(panel.model.popularity)
    yield "entropy", _pick_highest(entropy)
    yield "popularity x entropy", _pick_highest(np.log(np.maximum(ratings.per_item, 1)) * entropy)
    yield "random", _pick_highest(np.where(rated, chance, -1))
    yield "decision tree", Tree(panel).pick


def _pick_highest(scores: np.ndarray) -> Pick:
    return lambda _, asked: np.where(asked, -np.inf, scores).argmax(axis=1)


class Tree:
    """A decision tree over items, grown where users come along.

    A node asks about the item whose answers (liked more than the mean, less, unknown) explain most
    of the variance of the vectors of its training users, as Golbandi, Koren and Lempel (2011) do
    of ratings.
    """

    def __init__(self, panel: Panel) -> None:
        matrix, model = panel.train.ratings.matrix, panel.model
        means = np.bincount(matrix.indices, matrix.data, matrix.shape[1])
        self._means = means / np.maximum(panel.train.ratings.per_item, 1)
        items = model.items
        assert isinstance(items, CodeItems)
        codes = items.rows().astype(np.float64)
        squares = items.level_terms()[1].astype(np.float32) ** 2
        apart = codes - np.average(codes, axis=0, weights=squares)
        metric = (apart.T * (squares / squares.sum())) @ apart
        root = np.linalg.cholesky(metric + 1e-6 * np.eye(len(metric)))
        self._vectors = (model.user_vectors - model.user_vectors.mean(axis=0)) @ root
        above = matrix.data >= self._means[matrix.indices]
        self._liked, self._disliked = (
            with_values(matrix, some.astype(np.float32)) for some in (above, ~above)
        )
        self._orders: dict[bytes, np.ndarray] = {}
        self._nodes = [np.arange(len(self._vectors))] * len(panel.ratings)  # of users
        self._picked = np.zeros(len(panel.ratings), np.int64)

    def pick(self, panel: Panel, asked: np.ndarray) -> np.ndarray:
        """Move each user to the node of the last answer, and pick the question of that node."""
        for user, own in enumerate(asked):
            if own.any():
                item = self._picked[user]
                branch = self._branch(self._nodes[user], item, panel.ratings[user, item])
                if len(branch) >= FEWEST:
                    self._nodes[user] = branch
            order = self._order(self._nodes[user])
            self._picked[user] = order[~own[order]][0]
        return self._picked.copy()

    def _branch(self, rows: np.ndarray, item: int, rating: float) -> np.ndarray:
        liked, disliked = (
            np.asarray(each[rows][:, [item]].toarray())[:, 0] > 0
            for each in (self._liked, self._disliked)
        )
        if np.isnan(rating):
            return np.asarray(rows[~liked & ~disliked])
        return np.asarray(rows[liked if rating >= self._means[item] else disliked])

    def _order(self, rows: np.ndarray) -> np.ndarray:
        """Return items, the one that explains most first."""
        key = rows.tobytes()
        if key not in self._orders:
            vectors, explained = self._vectors[rows], 0.0
            rest, n_rest = vectors.sum(axis=0)[None], np.array(float(len(rows)))
            for each in (self._liked[rows], self._disliked[rows]):
                sums, counts = each.T @ vectors, np.asarray(each.sum(axis=0))
                explained = explained + (sums**2).sum(axis=1) / np.maximum(counts, 1)
                rest, n_rest = rest - sums, n_rest - counts
            explained = explained + (rest**2).sum(axis=1) / np.maximum(n_rest, 1)
            self._orders[key] = np.argsort(-explained, kind="stable")
        return self._orders[key]
