"""The protocols: cold users, their favourites, and what they have to be found among.

For every cold user, candidates are taken from the items that somebody has rated; the same ones for
every model. A favourite is a rating above 0.6 of the highest possible one. With `n_given` > 0 the
user first gives that many ratings, which the model sees, and the favourites among the rest are the
test. What the protocols differ in is said where they are defined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numba import prange
from scipy.sparse import csr_array

from coldhash.arrays.compiled import compiled
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import is_favourite
from coldhash.data.splits import split_first_ratings
from coldhash.errors import DataError, SettingError
from coldhash.evaluate.metrics import Ties
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.recommender import Score as RecommenderScore

BLOCK = 256  # users scored at a time
SHOWN = 10  # items in the list that a user would be shown

Score = Callable[[pa.Table, csr_array | None], np.ndarray]
Negatives = Literal["unrated", "not-liked"]
Lists = Literal["alone", "together"]
Average = Literal["pairs", "users"]


@dataclass(frozen=True)
class Protocol:
    """What favourites have to be found among, and how finding them is counted.

    `negatives`: candidates are items that the user has not rated, or also those that the user has
    rated but not as a favourite. `lists`: each favourite is ranked alone against the candidates,
    or all of a user together. `average`: hits are pooled over all test pairs, or averaged for each
    user first. `ties` is how the work that the protocol comes from counts them.

    Examples
    --------
    >>> PROTOCOLS["ddl"].ties, PROTOCOLS["sampled-1000"].ties
    ('optimistic', 'expected')
    >>> Protocol("mine", n_candidates=100, lists="together").average
    'pairs'
    """

    name: str
    n_candidates: int | None  # None: every item that somebody rated
    negatives: Negatives = "unrated"
    lists: Lists = "alone"
    average: Average = "pairs"
    ties: Ties = "expected"

    def __post_init__(self) -> None:
        if self.n_candidates is not None and self.n_candidates < 1:
            raise SettingError(f"n_candidates={self.n_candidates}", hint="at least 1, or None")
        kinds = {"negatives": Negatives, "lists": Lists, "average": Average, "ties": Ties}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if value not in get_args(kind):
                raise SettingError(f"{name}={value!r}", hint=f"one of {', '.join(get_args(kind))}")


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("sampled-1000", 1000),  # Cremonesi et al. 2010, with fair ties: the main one
        Protocol("full", None, "not-liked", "together"),
        # Zhang et al. 2018, their code: 1000 of what is not liked, and ties are hits
        Protocol("ddl", 1000, "not-liked", ties="optimistic"),
        # Du et al. 2018, their code: the full ranking, pooled, so the same as "full". They sort,
        # which breaks ties in the order of the items; here ties count as expected.
        Protocol("du", None, "not-liked", "together"),
        # MDCF, their code: 999 unrated, a mean of users. Of eq candidates level with the favourite
        # they make (k - greater) / eq hits; here it is the expected value, with eq + 1.
        Protocol("mdcf", 999, average="users"),
    )
}


@dataclass(frozen=True, eq=False)
class Trial:
    """Cold users with what they tell, their candidates, and the favourites to be found.

    Examples
    --------
    >>> from coldhash import read, split_cold_users
    >>> trial = make_trial(*split_cold_users(read("sample", n_users=200, n_items=60)), n_given=3)
    >>> trial.n_users, trial.history is not None
    (40, True)
    """

    people: pa.Table
    history: csr_array | None  # what the model is told
    candidates: np.ndarray | None  # users x candidates, -1 where fewer exist; None: all but barred
    favourites: csr_array  # users x items, stored where a favourite
    protocol: Protocol
    given: csr_array  # users x items: ratings given beforehand, never shown again
    barred: csr_array  # users x items: what cannot be a candidate
    rated: np.ndarray  # of each item: whether anybody rated it
    popularity: np.ndarray  # of each item: the training users who rated it
    n_train_users: int
    oracle: bool = False  # whether the history holds the favourites to be found: a leak

    @property
    def users(self) -> np.ndarray:
        """The user of each test pair."""
        return np.repeat(np.arange(self.n_users), np.diff(self.favourites.indptr))

    @property
    def n_users(self) -> int:
        """How many users are cold, with favourites or without."""
        return int(self.favourites.shape[0])

    def candidates_of(self, rows: slice) -> np.ndarray:
        """Give the candidates of some users; all of them are laid out only block by block."""
        if self.candidates is not None:
            return self.candidates[rows]
        free = np.tile(self.rated, (rows.stop - rows.start, 1))
        barred = self.barred[rows]
        free[np.repeat(np.arange(len(free)), np.diff(barred.indptr)), barred.indices] = False
        return np.where(free, np.arange(free.shape[1], dtype=np.int32), np.int32(-1))


@dataclass(frozen=True, eq=False)
class Ranks:
    """For each test pair: how many candidates score higher, and how many the same.

    `shown` are the ten items of the whole catalogue that each user would be shown: the best that
    the user has not given a rating for, of level ones those in the lowest rows; -1 where fewer.
    """

    greater: np.ndarray
    equal: np.ndarray
    indptr: np.ndarray  # where the pairs of each user start
    shown: np.ndarray


def make_trial(
    train: Dataset,
    cold: Dataset,
    *,
    protocol: str | Protocol = "sampled-1000",
    n_given: int = 0,
    oracle: bool = False,
    seed: int = 0,
) -> Trial:
    """Draw the candidates and set the favourites aside.

    `oracle` LEAKS: the model is told every rating of the cold users, the favourites to be found
    included. It shows what features made from all ratings, which a paper may have used, would be
    worth, not how cold users fare. MFDCF takes the ratings as evidence on top of the features.

    Examples
    --------
    >>> from coldhash import read, split_cold_users
    >>> train, cold = split_cold_users(read("sample", n_users=200, n_items=60), seed=0)
    >>> trial = make_trial(train, cold, protocol="full")
    >>> trial.n_users, trial.history is None  # strangers: the model is told no rating
    (40, True)
    """
    protocol = protocol if isinstance(protocol, Protocol) else protocol_named(protocol)
    if train.ratings.items != cold.ratings.items:
        raise DataError("the parts have different items", hint="take both from one split")
    known, rest = split_first_ratings(cold, n_given, seed)
    given = known.ratings.matrix
    liked = is_favourite(rest.ratings.matrix.data, cold.ratings.scale[1])
    favourites = rest.ratings.where(liked).matrix
    every, n_drawn = cold.ratings.matrix, protocol.n_candidates
    barred = every if protocol.negatives == "unrated" else _marks(given) + _marks(favourites)
    rated = train.ratings.per_item + cold.ratings.per_item > 0
    return Trial(
        people=cold.users,
        history=every if oracle else given if n_given else None,
        candidates=None if n_drawn is None else draw_candidates(barred, rated, n_drawn, seed),
        favourites=favourites,
        protocol=protocol,
        given=given,
        barred=barred,
        rated=rated,
        popularity=train.ratings.per_item,
        n_train_users=len(train.ratings.users),
        oracle=oracle,
    )


def protocol_named(name: str) -> Protocol:
    """Find a protocol."""
    if name not in PROTOCOLS:
        raise SettingError(f"no protocol is called {name!r}", hint=f"one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def _marks(ratings: csr_array) -> csr_array:
    """Put a one where a rating is: a sum of ratings would lose those of 0."""
    ones = np.ones(ratings.nnz, dtype=np.int8)
    return csr_array((ones, ratings.indices, ratings.indptr), shape=ratings.shape)


def draw_candidates(
    barred: csr_array, allowed: np.ndarray, n_candidates: int, seed: int
) -> np.ndarray:
    """Draw items for each user from those allowed and not barred for the user."""
    drawn = np.full((barred.shape[0], n_candidates), -1, dtype=np.int32)
    for user, rng in enumerate(np.random.default_rng(seed).spawn(barred.shape[0])):
        free = allowed.copy()
        free[barred.indices[barred.indptr[user] : barred.indptr[user + 1]]] = False
        rows = np.flatnonzero(free)
        some = rng.choice(rows, min(n_candidates, len(rows)), replace=False)
        drawn[user, : len(some)] = some
    return drawn


def scorer(model: Recommender, how: RecommenderScore = "real") -> Score:
    """Let a model score people for `rank`.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> data = read("sample", n_users=200, n_items=60)
    >>> scorer(MFDCF(n_bits=32).fit(data))(data.users, None).shape
    (200, 60)
    """
    return lambda people, history: model.score(model.encode(people, history), how)


def rank(score: Score, trial: Trial) -> Ranks:
    """Score the users block by block, count who is above and level with each favourite, and show.

    Each user is scored once.
    """
    indptr, indices = trial.favourites.indptr, trial.favourites.indices
    greater = np.empty(len(indices), dtype=np.int64)
    equal = np.empty(len(indices), dtype=np.int64)
    shown = np.empty((trial.n_users, SHOWN), dtype=np.int64)
    for start in range(0, trial.n_users, BLOCK):
        rows = slice(start, min(start + BLOCK, trial.n_users))
        history = None if trial.history is None else trial.history[rows]
        scores = np.ascontiguousarray(score(trial.people.slice(start, BLOCK), history))
        if not np.isfinite(scores).all():
            raise DataError("a model gave a score that is not a finite number")
        pairs = slice(indptr[rows.start], indptr[rows.stop])
        ends = indptr[rows.start : rows.stop + 1] - indptr[rows.start]
        greater[pairs], equal[pairs] = _count(
            scores, trial.candidates_of(rows), ends, indices[pairs]
        )
        given = trial.given[rows]
        shown[rows] = _best(scores, given.indptr, given.indices, SHOWN)
    return Ranks(greater, equal, indptr.astype(np.int64), shown)


@compiled(parallel=True)
def _count(scores, candidates, indptr, indices):  # type: ignore[no-untyped-def]
    """Count, for each favourite of each user, the candidates above it and level with it."""
    greater = np.zeros(len(indices), dtype=np.int64)
    equal = np.zeros(len(indices), dtype=np.int64)
    for u in prange(len(indptr) - 1):
        own = scores[u]
        others = np.sort(own[candidates[u][candidates[u] >= 0]])
        for j in range(indptr[u], indptr[u + 1]):
            below = np.searchsorted(others, own[indices[j]], side="left")
            upto = np.searchsorted(others, own[indices[j]], side="right")
            greater[j] = len(others) - upto
            equal[j] = upto - below
    return greater, equal


@compiled(parallel=True)
def _best(scores, indptr, indices, k):  # type: ignore[no-untyped-def]
    """Find the k best items of each user but those listed; level ones in the order of rows."""
    best = np.full((scores.shape[0], k), -1, dtype=np.int64)
    for u in prange(scores.shape[0]):
        own = scores[u]
        listed = np.zeros(len(own), dtype=np.bool_)
        listed[indices[indptr[u] : indptr[u + 1]]] = True
        for i in range(len(own)):
            j = k
            while j > 0 and (best[u, j - 1] < 0 or own[best[u, j - 1]] < own[i]):
                j -= 1
            if j < k and not listed[i]:
                for place in range(k - 1, j, -1):
                    best[u, place] = best[u, place - 1]
                best[u, j] = i
    return best
