"""Protocols of evaluation: cold users, their favourites, and the candidates they compete with.

The candidates of a cold user are items that somebody has rated, the same for every model. A
favourite is what the rule of the data says (`Dataset.feedback`). With `n_given` > 0 the model
sees that many ratings of the user, and the favourites among the rest are the test. Known users are
judged in the same way by what they rated after the training data end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.compiled import compiled
from coldhash.arrays.threads import run_rows
from coldhash.data.dataset import Dataset, Order, mark_first_ratings, resolve_order
from coldhash.data.ratings import Ratings, as_ones, row_of_entries
from coldhash.errors import DataError, check_choice, check_types
from coldhash.recommender.recommender import USER_ID, Recommender, Score

SCORE_BLOCK = 256  # users scored at a time
LIST_LENGTH = 10  # of the list that a user would get

ScoreFunction = Callable[[pa.Table, csr_array | None], np.ndarray]
Average = Literal["pairs", "users"]
Ties = Literal["expected", "optimistic", "pessimistic"]


@dataclass(frozen=True)
class Protocol:
    """Which candidates favourites are ranked against, and how hits are counted.

    Parameters
    ----------
    n_candidates
        Number of candidates drawn for each user; None for every item that somebody rated.
    negatives
        Candidates are items that the user has not rated ("unrated"), or also rated items that are
        no favourites ("not-liked").
    lists
        Rank each favourite "alone" against the candidates, or a user's favourites "together".
    average
        Pool hits over all test "pairs", or average over "users".
    ties
        How the work that the protocol comes from counts ties.

    Raises
    ------
    SettingError
        If a value is not one of these.

    Examples
    --------
    >>> PROTOCOLS["ddl"].ties, PROTOCOLS["sampled-1000"].ties
    ('optimistic', 'expected')
    >>> Protocol(n_candidates=100, lists="together").average
    'pairs'
    """

    n_candidates: PositiveInt | None
    negatives: Literal["unrated", "not-liked"] = "unrated"
    lists: Literal["alone", "together"] = "alone"
    average: Average = "pairs"
    ties: Ties = "expected"

    def __post_init__(self) -> None:
        check_types(self)


PROTOCOLS = {
    "sampled-1000": Protocol(1000),  # Cremonesi et al. 2010, with expected ties: the default
    "full": Protocol(None, "not-liked", "together"),
    # Zhang et al. 2018, their code: 1000 items that are not liked, and ties are hits
    "ddl": Protocol(1000, "not-liked", ties="optimistic"),
    # Du et al. 2018, their code: the full ranking, pooled, so the same as "full". They sort,
    # which breaks ties in the order of the items; here ties count by their expected value.
    "du": Protocol(None, "not-liked", "together"),
    # MDCF, their code: 999 unrated, a mean of users. Of eq candidates tied with the favourite
    # they count (k - greater) / eq hits; here it is the expected value, with eq + 1.
    "mdcf": Protocol(999, average="users"),
}


@dataclass(frozen=True, eq=False)
class Trial:
    """Cold users, what the model is given of them, their candidates, and their favourites.

    Parameters
    ----------
    people
        Features of the cold users, or the ids of known users in a column `user_id`.
    history
        Ratings that the model is given, users x items; None if none.
    candidates
        Rows of items, users x candidates, padded with -1; None for all rated items that are not
        excluded.
    favourites
        Users x items, stored where an item is a favourite.
    protocol
        How hits are counted.
    given
        Ratings given beforehand, users x items; these items are not recommended again.
    excluded
        Users x items, stored where an item cannot be a candidate.
    rated
        Whether anybody rated each item.
    popularity
        Number of training users who rated each item.
    n_train_users
        Number of training users.
    order
        How the given ratings were chosen: by "time" or at "random"; None if none was given.

    Examples
    --------
    >>> from coldhash import read, split_cold_users
    >>> trial = make_trial(*split_cold_users(read("sample", n_users=200, n_items=60)), n_given=3)
    >>> trial.n_users, trial.history is not None
    (40, True)
    """

    people: pa.Table
    history: csr_array | None
    candidates: np.ndarray | None
    favourites: csr_array
    protocol: Protocol
    given: csr_array
    excluded: csr_array
    rated: np.ndarray
    popularity: np.ndarray
    n_train_users: int
    order: Order | None = None

    @property
    def n_users(self) -> int:
        """Number of cold users, with favourites or without."""
        return int(self.favourites.shape[0])

    def candidates_of(self, rows: slice) -> np.ndarray:
        """Return the candidates of some users; full rankings are laid out block by block.

        Parameters
        ----------
        rows
            Rows of users; start and stop must be given.

        Returns
        -------
        numpy.ndarray
            Rows of items, users x candidates, padded with -1.
        """
        if self.candidates is not None:
            return self.candidates[rows]
        free = np.tile(self.rated, (rows.stop - rows.start, 1))
        excluded = self.excluded[rows]
        free[row_of_entries(excluded), excluded.indices] = False
        return np.where(free, np.arange(free.shape[1], dtype=np.int32), np.int32(-1))


@dataclass(frozen=True, eq=False)
class Ranks:
    """For each favourite of a trial, how many candidates score higher and how many the same.

    `top_items` are the ten best items of the whole catalogue for each user, without those that the
    user has given a rating for; ties are in the order of rows, and -1 pads a shorter list.
    """

    greater: np.ndarray
    equal: np.ndarray
    top_items: np.ndarray


def make_trial(
    train: Dataset,
    cold: Dataset,
    *,
    protocol: str | Protocol = "sampled-1000",
    n_given: int = 0,
    order: Order | None = None,
    oracle: bool = False,
    seed: int = 0,
) -> Trial:
    """Draw the candidates of the cold users and set their favourites aside.

    Parameters
    ----------
    train, cold
        The two parts of a split of users.
    protocol
        A `Protocol`, or a key of `PROTOCOLS`.
    n_given
        Ratings of each cold user that the model is given.
    order
        Give the first ratings by "time", or a "random" choice; None: by time where times are known.
    oracle
        Give the model every rating of the cold users, the favourites included. This is a leak: it
        measures the value of features made from all ratings.
    seed
        Seed of the candidates, and of a random choice of ratings.

    Returns
    -------
    Trial

    Raises
    ------
    DataError
        If the parts have different items, or times are asked for and unknown.
    SettingError
        If the protocol or the order is unknown.

    Examples
    --------
    >>> from coldhash import read, split_cold_users
    >>> train, cold = split_cold_users(read("sample", n_users=200, n_items=60), seed=0)
    >>> trial = make_trial(train, cold, protocol="full")
    >>> trial.n_users, trial.history is None  # the model is given no rating
    (40, True)
    """
    ratings = cold.ratings
    first = mark_first_ratings(ratings, n_given, seed, order)
    known, rest = ratings.where(first), ratings.where(~first)
    # by the rule for all ratings of a user, given or not
    liked = ratings.where(ratings.favourites & ~first).matrix
    trial = _make_trial(train.ratings, known, rest, liked, protocol, seed)
    return replace(
        trial,
        people=cold.users if cold.users.num_columns else trial.people,
        history=ratings.matrix if oracle else known.matrix if n_given else None,
        order=resolve_order(ratings, order) if n_given else None,
    )


def make_known_trial(
    train: Dataset, later: Dataset, *, protocol: str | Protocol = "sampled-1000", seed: int = 0
) -> Trial:
    """Set aside what training users came to like later; `scorer(model, known=True)` judges it.

    Parameters
    ----------
    train, later
        The two parts of `split_by_time`: the same users, before and after.
    protocol
        A `Protocol`, or a key of `PROTOCOLS`.
    seed
        Seed of the candidates.

    Returns
    -------
    Trial
        What users rated in the training part is neither a candidate nor a favourite.

    Raises
    ------
    DataError
        If the parts have different items or users.
    SettingError
        If the protocol is unknown.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from coldhash import MFDCF, read, split_by_time
    >>> from coldhash.evaluate import judge
    >>> sample = read("sample", n_users=200, n_items=60)
    >>> times = np.random.default_rng(0).permutation(len(sample.ratings))
    >>> data = sample.with_ratings(replace(sample.ratings, times=times))
    >>> train, later = split_by_time(data, at=0.8)
    >>> trial = make_known_trial(train, later)
    >>> found = judge(scorer(MFDCF(n_bits=32).fit(train), known=True), trial)
    >>> 0 < found.metrics["accuracy@10"] < 1
    True
    """
    if train.ratings.users != later.ratings.users:
        raise DataError("the parts have different users", hint="take both from split_by_time")
    liked = later.ratings.where(later.ratings.favourites).matrix
    return _make_trial(train.ratings, train.ratings, later.ratings, liked, protocol, seed)


def _make_trial(
    train: Ratings,
    known: Ratings,
    rest: Ratings,
    favourites: csr_array,
    protocol: str | Protocol,
    seed: int,
) -> Trial:
    """Draw candidates for people of whom some ratings are known and the rest is the test."""
    if isinstance(protocol, str):
        check_choice("protocol", protocol, PROTOCOLS)
        protocol = PROTOCOLS[protocol]
    if train.items != rest.items:
        raise DataError("the parts have different items", hint="take both from one split")
    given, n_drawn = known.matrix, protocol.n_candidates
    tested = rest.matrix if protocol.negatives == "unrated" else favourites
    excluded = as_ones(given) + as_ones(tested)  # a sum of ratings would lose those of 0
    rated = train.per_item + known.per_item + rest.per_item > 0
    return Trial(
        # nothing but ids: a table without columns would have no rows
        people=pa.table({USER_ID: rest.users.values}),
        history=None,
        candidates=None if n_drawn is None else draw_candidates(excluded, rated, n_drawn, seed),
        favourites=favourites,
        protocol=protocol,
        given=given,
        excluded=excluded,
        rated=rated,
        popularity=train.per_item,
        n_train_users=len(train.users),
    )


def draw_candidates(
    excluded: csr_array, allowed: np.ndarray, n_candidates: int, seed: int
) -> np.ndarray:
    """Draw items for each user from those allowed and not excluded for the user."""
    drawn = np.full((excluded.shape[0], n_candidates), -1, dtype=np.int32)
    for user, rng in enumerate(np.random.default_rng(seed).spawn(excluded.shape[0])):
        free = allowed.copy()
        free[excluded.indices[excluded.indptr[user] : excluded.indptr[user + 1]]] = False
        rows = np.flatnonzero(free)
        some = rng.choice(rows, min(n_candidates, len(rows)), replace=False)
        drawn[user, : len(some)] = some
    return drawn


def scorer(
    model: Recommender, how: Score = "real", *, popularity: float = 1.0, known: bool = False
) -> ScoreFunction:
    """Return a function by which a model scores people, for `judge` and `rank`.

    Parameters
    ----------
    model
        A fitted model.
    how
        "real", or "hamming" to compare codes with codes.
    popularity
        How much the level of items counts, for a model with levels.
    known
        Look people up among the training users by their `user_id`; see `make_known_trial`.

    Returns
    -------
    Callable
        Takes a table of people and their ratings or None; returns scores, people x items.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> data = read("sample", n_users=200, n_items=60)
    >>> scorer(MFDCF(n_bits=32).fit(data))(data.users, None).shape
    (200, 60)
    """
    if known:
        return lambda people, _: model.score(
            model.encode(user_ids=people.column(USER_ID).to_pylist()), how, popularity
        )
    # trials hold all columns of users, and not every plan uses all of them
    return lambda people, history: model.score(
        model.encode(people, history, unknown="ignore"), how, popularity
    )


def rank(score: ScoreFunction, trial: Trial) -> Ranks:
    """Score each user once, and count the candidates above each favourite and tied with it.

    Parameters
    ----------
    score
        Returns the scores of all items for a table of people; see `scorer`.
    trial
        Users, candidates and favourites.

    Returns
    -------
    Ranks

    Raises
    ------
    DataError
        If scores are not those of people x items, or one is not finite.

    Examples
    --------
    >>> from coldhash import read, split_cold_users
    >>> trial = make_trial(*split_cold_users(read("sample", n_users=200, n_items=60)))
    >>> ranks = rank(lambda people, history: np.zeros((len(people), 60)), trial)
    >>> int(ranks.greater.max())  # nothing is above a constant score
    0
    """
    indptr, indices = trial.favourites.indptr, trial.favourites.indices
    greater, equal = np.empty((2, len(indices)), dtype=np.int64)
    top_items = np.empty((trial.n_users, LIST_LENGTH), dtype=np.int64)
    for start in range(0, trial.n_users, SCORE_BLOCK):
        rows = slice(start, min(start + SCORE_BLOCK, trial.n_users))
        history = None if trial.history is None else trial.history[rows]
        scores = np.ascontiguousarray(score(trial.people.slice(start, SCORE_BLOCK), history))
        shape = (rows.stop - rows.start, trial.given.shape[1])
        if scores.shape != shape:
            raise DataError(f"a model returned scores of shape {scores.shape}", hint=f"{shape}")
        if not np.isfinite(scores).all():
            raise DataError("a model returned a score that is not a finite number")
        pairs, each = slice(indptr[rows.start], indptr[rows.stop]), np.arange(len(scores) + 1)
        ends, given = indptr[rows.start : rows.stop + 1] - indptr[rows.start], trial.given[rows]
        competing = (trial.candidates_of(rows), ends, indices[pairs])
        run_rows(count_candidates, each, scores, *competing, greater[pairs], equal[pairs])
        run_rows(_find_best, each, scores, given.indptr, given.indices, top_items[rows])
    return Ranks(greater, equal, top_items)


@compiled(nogil=True)
def count_candidates(scores, candidates, indptr, indices, greater, equal, first, last):  # type: ignore[no-untyped-def]
    """Count, for each favourite of some users, the candidates above it and tied with it."""
    for u in range(first, last):
        own, drawn = scores[u], candidates[u]
        others = own[drawn[drawn >= 0]]
        for j in range(indptr[u], indptr[u + 1]):
            score, above, tied = own[indices[j]], 0, 0
            for other in others:  # by vector instructions: sooner than a sort
                above += other > score
                tied += other == score
            greater[j], equal[j] = above, tied


@compiled(nogil=True)
def _find_best(scores, indptr, indices, best, first, last):  # type: ignore[no-untyped-def]
    """Find the best items of some users except those listed; ties are in the order of rows."""
    k = best.shape[1]
    for u in range(first, last):
        own = scores[u].astype(np.float64)
        own[indices[indptr[u] : indptr[u + 1]]] = -np.inf
        best[u] = -1
        for i in range(len(own)):
            j = k
            while j > 0 and (best[u, j - 1] < 0 or own[best[u, j - 1]] < own[i]):
                j -= 1
            if j < k and own[i] > -np.inf:
                for place in range(k - 1, j, -1):
                    best[u, place] = best[u, place - 1]
                best[u, j] = i
