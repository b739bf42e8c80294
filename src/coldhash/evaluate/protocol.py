"""The protocol: cold users, their favourites, and a thousand other items each.

For every cold user, `n_candidates` items are drawn that the user has not rated at all, from the
items that somebody has rated; the same ones for every model. Each favourite (a rating above 0.6 of
the highest possible) is ranked alone against them. With `n_given` > 0 the user first gives that
many ratings, which the model sees, and the favourites among the rest are the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit, prange
from scipy.sparse import csr_array

from coldhash.data.dataset import Dataset
from coldhash.data.splits import split_first_ratings
from coldhash.errors import DataError, SettingError
from coldhash.recommend import Recommender
from coldhash.recommend import Score as RecommenderScore
from coldhash.targets import is_favourite

BLOCK = 256  # users scored at a time

Score = Callable[[pa.Table, csr_array | None], np.ndarray]


@dataclass(frozen=True, eq=False)
class Trial:
    """Cold users with what they tell, their candidates, and the favourites to be found."""

    people: pa.Table
    history: csr_array | None
    candidates: np.ndarray  # users x candidates, -1 where fewer exist
    favourites: csr_array  # users x items, stored where a favourite

    @property
    def users(self) -> np.ndarray:
        """The user of each test pair."""
        return np.repeat(np.arange(len(self.candidates)), np.diff(self.favourites.indptr))


@dataclass(frozen=True, eq=False)
class Ranks:
    """For each test pair: how many candidates score higher, and how many the same."""

    greater: np.ndarray
    equal: np.ndarray


def make_trial(
    train: Dataset, cold: Dataset, *, n_given: int = 0, n_candidates: int = 1000, seed: int = 0
) -> Trial:
    """Draw the candidates and set the favourites aside."""
    if n_candidates < 1:
        raise SettingError(f"n_candidates={n_candidates}", hint="at least 1")
    if train.ratings.items != cold.ratings.items:
        raise DataError("the parts have different items", hint="take both from one split")
    given, rest = split_first_ratings(cold, n_given, seed)
    somebodys = train.ratings.per_item + cold.ratings.per_item > 0
    return Trial(
        cold.users,
        given.ratings.matrix if n_given else None,
        draw_candidates(cold.ratings.matrix, somebodys, n_candidates, seed),
        rest.ratings.where(is_favourite(rest.ratings.matrix.data, cold.ratings.scale[1])).matrix,
    )


def draw_candidates(
    rated: csr_array, allowed: np.ndarray, n_candidates: int, seed: int
) -> np.ndarray:
    """Draw items for each user from those allowed and not rated by the user."""
    drawn = np.full((rated.shape[0], n_candidates), -1, dtype=np.int32)
    for user, rng in enumerate(np.random.default_rng(seed).spawn(rated.shape[0])):
        free = allowed.copy()
        free[rated.indices[rated.indptr[user] : rated.indptr[user + 1]]] = False
        rows = np.flatnonzero(free)
        some = rng.choice(rows, min(n_candidates, len(rows)), replace=False)
        drawn[user, : len(some)] = some
    return drawn


def scorer(model: Recommender, how: RecommenderScore = "real") -> Score:
    """Let a model score people for `rank`."""
    return lambda people, history: model.score(model.encode(people, history), how)


def rank(score: Score, trial: Trial) -> Ranks:
    """Score the users block by block and count who is above and level with each favourite."""
    n_users = len(trial.candidates)
    greater = np.empty(trial.favourites.nnz, dtype=np.int64)
    equal = np.empty(trial.favourites.nnz, dtype=np.int64)
    indptr, indices = trial.favourites.indptr, trial.favourites.indices
    for start in range(0, n_users, BLOCK):
        rows = slice(start, min(start + BLOCK, n_users))
        history = None if trial.history is None else trial.history[rows]
        scores = score(trial.people.slice(start, BLOCK), history)
        if not np.isfinite(scores).all():
            raise DataError("a model gave a score that is not a finite number")
        pairs = slice(indptr[rows.start], indptr[rows.stop])
        ends = indptr[rows.start : rows.stop + 1] - indptr[rows.start]
        greater[pairs], equal[pairs] = _count(
            np.ascontiguousarray(scores), trial.candidates[rows], ends, indices[pairs]
        )
    return Ranks(greater, equal)


@njit(parallel=True, cache=True)
def _count(scores, candidates, indptr, indices):  # type: ignore[no-untyped-def]
    """Count, for each favourite of each user, the candidates above it and level with it."""
    greater = np.zeros(len(indices), dtype=np.int64)
    equal = np.zeros(len(indices), dtype=np.int64)
    for u in prange(len(indptr) - 1):
        for j in range(indptr[u], indptr[u + 1]):
            own = scores[u, indices[j]]
            for i in candidates[u]:
                if i >= 0:
                    other = scores[u, i]
                    greater[j] += other > own
                    equal[j] += other == own
    return greater, equal
