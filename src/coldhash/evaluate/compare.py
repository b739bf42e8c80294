"""Compare models on the same cold users: bootstrap intervals, paired tests, a table of models.

The test pairs of one user depend on each other; users do not. The bootstrap therefore draws users
with replacement, each with all its pairs. A user who is cold in several splits is drawn once for
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from coldhash.data.dataset import Dataset
from coldhash.data.splits import Order, cold_user_splits
from coldhash.errors import DataError, SettingError, check_choice
from coldhash.evaluate.judge import KS, judge
from coldhash.evaluate.protocol import PROTOCOLS, Average, make_trial, scorer
from coldhash.recommender.recommender import Score
from coldhash.registry import Model

_DRAWINGS_PER_CHUNK = 250

Verdict = Literal["ahead", "behind", "level"]


@dataclass(frozen=True, eq=False)
class UserHits:
    """Hits and test pairs of each cold user, for one model, one split and one k.

    Parameters
    ----------
    user_ids
        Ids of the users, each once.
    hits
        Expected number of hits of each user.
    pairs
        Number of test pairs of each user.

    Raises
    ------
    DataError
        If the arrays differ in length, an id is repeated, or there is no test pair.

    Examples
    --------
    >>> UserHits(np.array(["ann", "bob"]), hits=np.array([1.0, 0.0]), pairs=np.array([2, 1])).pairs
    array([2, 1])
    """

    user_ids: np.ndarray
    hits: np.ndarray
    pairs: np.ndarray

    def __post_init__(self) -> None:
        if not len(self.user_ids) == len(self.hits) == len(self.pairs):
            raise DataError("user_ids, hits and pairs differ in length")
        if len(set(map(str, self.user_ids))) < len(self.user_ids):
            raise DataError("a user appears twice in one split", hint="add up the pairs of a user")
        if not np.sum(self.pairs) > 0:
            raise DataError("a split has no test pair", hint="leave it out")


@dataclass(frozen=True)
class Interval:
    """A mean over splits with the bounds of its confidence interval.

    Examples
    --------
    >>> Interval(mean=0.2, low=0.15, high=0.25).low
    0.15
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """The difference between two models, first minus second, with its confidence interval.

    Parameters
    ----------
    difference, low, high
        Mean difference and the bounds of its interval.
    verdict
        Whether the first model is "ahead" or "behind"; "level" if the interval contains 0.

    Examples
    --------
    >>> Comparison(difference=0.02, low=-0.01, high=0.05, verdict="level").verdict
    'level'
    """

    difference: float
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True)
class ComparisonRow:
    """The results of one model at one number of given ratings.

    Parameters
    ----------
    model
        Name of the model.
    shots
        Ratings that each cold user gave first.
    metrics
        Means over splits of the metrics of `Judgement`.
    accuracy
        Accuracy@k with ties and averages as the protocol counts them.
    verdict
        How the first model compares with this one; None for the first model itself.

    Examples
    --------
    >>> row = ComparisonRow("ridge", 0, {"mrr": 0.3}, Interval(0.2, 0.15, 0.25), verdict="ahead")
    >>> row.accuracy.mean
    0.2
    """

    model: str
    shots: int
    metrics: dict[str, float]
    accuracy: Interval
    verdict: Verdict | None


@dataclass(frozen=True)
class ComparisonTable:
    """What `compare_models` found: a row for each model and number of given ratings.

    Parameters
    ----------
    k
        Length of the list for intervals and verdicts.
    rows
        The results.
    order
        How given ratings were chosen: by "time" or at "random"; None if none was given.

    Examples
    --------
    >>> row = ComparisonRow("ridge", 0, {"mrr": 0.3}, Interval(0.2, 0.15, 0.25), verdict=None)
    >>> ComparisonTable(k=10, rows=(row,)).rows[0].model
    'ridge'
    """

    k: int
    rows: tuple[ComparisonRow, ...]
    order: Order | None = None


def compare_models(
    data: Dataset,
    models: Mapping[str, Model],
    *,
    splits: int = 5,
    share: float = 0.2,
    shots: Sequence[int] = (0,),
    order: Order | None = None,
    protocol: str = "sampled-1000",
    score: Score = "real",
    k: int = 10,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> ComparisonTable:
    """Fit every model on every split and judge it on the same users and candidates.

    Parameters
    ----------
    data
        Ratings and features.
    models
        Settings of the models by name; the first one is compared with each of the others.
    splits
        Number of random splits.
    share
        Share of the users that are cold in a split.
    shots
        Numbers of ratings that a cold user gives first.
    order
        Give the first ratings by "time", or a "random" choice; None: by time where times are known.
    protocol
        A key of `PROTOCOLS`.
    score
        "real", or "hamming" to compare codes with codes.
    k
        Length of the list for intervals and verdicts.
    seed
        Seed of the first split; each further split adds 1.
    progress
        Called with fits done, fits in all, and a description of the last fit.

    Returns
    -------
    ComparisonTable

    Raises
    ------
    SettingError
        If the protocol is unknown or a model cannot be scored in that way.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> from coldhash.registry import MODELS
    >>> models = {"mfdcf": MFDCF(n_bits=32), "popularity": MODELS["popularity"]()}
    >>> table = compare_models(read("sample", n_users=500, n_items=200), models, splits=2)
    >>> [(row.model, row.verdict) for row in table.rows]  # mfdcf is ahead of popularity
    [('mfdcf', None), ('popularity', 'ahead')]
    """
    metrics: dict[tuple[str, int], list[dict[str, float]]] = {}
    hits: dict[tuple[str, int], list[UserHits]] = {}
    ks = tuple(sorted({*KS, k}))
    check_choice("protocol", protocol, PROTOCOLS)
    counting = PROTOCOLS[protocol]
    for number, (train, cold) in enumerate(cold_user_splits(data, share, seed, splits)):
        trials = {
            n: make_trial(
                train, cold, protocol=counting, n_given=n, order=order, seed=seed + number
            )
            for n in shots
        }
        user_ids = np.array(list(cold.ratings.users), dtype=object)
        for place, (name, settings) in enumerate(models.items(), 1):
            fitted = settings.fit(train, seed=seed + number)
            for n, trial in trials.items():
                judged = judge(scorer(fitted, score), trial, ks)
                found = judged.hits if counting.ties == "expected" else judged.hits_optimistic
                at_k = UserHits(user_ids, found[:, ks.index(k)], judged.pairs)
                metrics.setdefault((name, n), []).append(judged.metrics)
                hits.setdefault((name, n), []).append(at_k)
            if progress is not None:
                done = number * len(models) + place
                progress(done, splits * len(models), f"{name}, split {number}")

    def make_row(name: str, n: int) -> ComparisonRow:
        own, first, average = hits[name, n], next(iter(models)), counting.average
        by_split = metrics[name, n]
        means = {key: float(np.mean([each[key] for each in by_split])) for key in by_split[0]}
        verdict = None if name == first else compare(hits[first, n], own, average=average).verdict
        return ComparisonRow(name, n, means, interval(own, average=average), verdict)

    given = trials[max(shots)].order
    return ComparisonTable(k, tuple(make_row(name, n) for name, n in metrics), given)


def interval(
    splits: Sequence[UserHits],
    n_boot: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    average: Average = "pairs",
) -> Interval:
    """Compute the mean over splits of hits / pairs with its bootstrap interval.

    Parameters
    ----------
    splits
        Hits of one model, split by split.
    n_boot
        Number of bootstrap drawings.
    level
        Confidence level.
    seed
        Seed of the drawings.
    average
        Pool the "pairs", or average over "users".

    Returns
    -------
    Interval

    Raises
    ------
    DataError
        If there is no split, or too few users.
    SettingError
        If a parameter is out of range.

    Examples
    --------
    >>> users = np.arange(100)
    >>> hits = UserHits(users, hits=(users % 4 == 0).astype(float), pairs=np.ones(100))
    >>> found = interval([hits])
    >>> found.mean, found.low < 0.25 < found.high
    (0.25, True)
    """
    return Interval(*_bootstrap(*_arrange(splits), n_boot, level, seed, average))


def compare(
    first: Sequence[UserHits],
    second: Sequence[UserHits],
    n_boot: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    average: Average = "pairs",
) -> Comparison:
    """Compare two models on the same users, pair by pair.

    Parameters
    ----------
    first, second
        Hits of the two models, split by split, on the same users and pairs.
    n_boot, level, seed, average
        As for `interval`.

    Returns
    -------
    Comparison

    Raises
    ------
    DataError
        If the models were not judged on the same users and pairs.
    SettingError
        If a parameter is out of range.

    Examples
    --------
    >>> users = np.arange(100)
    >>> often = UserHits(users, hits=(users % 2 == 0).astype(float), pairs=np.ones(100))
    >>> rarely = UserHits(users, hits=(users % 4 == 0).astype(float), pairs=np.ones(100))
    >>> compare([often], [rarely]).verdict, compare([often], [often]).verdict
    ('ahead', 'level')
    """
    hits, pairs = _arrange(first)
    second_hits, second_pairs = _arrange(second)
    ids, second_ids = ([{*map(str, s.user_ids)} for s in side] for side in (first, second))
    if ids != second_ids or not np.array_equal(pairs, second_pairs):
        hint = "judge both models on the same trials"
        raise DataError("the splits of the two models differ in users or pairs", hint=hint)
    found = _bootstrap(hits - second_hits, pairs, n_boot, level, seed, average)
    _, low, high = found
    return Comparison(*found, "ahead" if low > 0 else "behind" if high < 0 else "level")


def _arrange(splits: Sequence[UserHits]) -> tuple[np.ndarray, np.ndarray]:
    """Arrange hits and pairs as users x splits; users are in the order of their ids."""
    if not splits:
        raise DataError("no split to compute an interval from")
    every = sorted({str(user_id) for split in splits for user_id in split.user_ids})
    rows = {user_id: row for row, user_id in enumerate(every)}
    hits, pairs = np.zeros((2, len(rows), len(splits)))
    for column, split in enumerate(splits):
        own = [rows[str(user_id)] for user_id in split.user_ids]
        hits[own, column], pairs[own, column] = split.hits, split.pairs
    return hits, pairs


def _bootstrap(
    hits: np.ndarray, pairs: np.ndarray, n_boot: int, level: float, seed: int, average: Average
) -> tuple[float, float, float]:
    """Return the mean over splits of hits / pairs, and the bounds of its interval."""
    check_choice("average", average, get_args(Average))
    if n_boot < 1:
        raise SettingError(f"n_boot={n_boot}", hint="at least 1; 2000 is usual")
    if not 0 < level < 1:
        raise SettingError(f"level={level:g}", hint="between 0 and 1")
    if average == "users":
        hits, pairs = hits / np.maximum(pairs, 1), (pairs > 0).astype(np.float64)
    columns = np.hstack([pairs, hits])
    drawn = np.vstack([weights @ columns for weights in _draw_weights(len(hits), n_boot, seed)])
    totals, found = np.hsplit(drawn, 2)
    complete = (totals > 0).all(axis=1)  # a drawing may miss every user of a small split
    if not complete.any():
        raise DataError("too few users to draw from", hint="take more users, or fewer splits")
    means = (found[complete] / totals[complete]).mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float((hits.sum(axis=0) / pairs.sum(axis=0)).mean()), float(low), float(high)


def _draw_weights(n_users: int, n_boot: int, seed: int) -> Iterator[np.ndarray]:
    """Draw users with replacement and yield how often each was drawn, chunk by chunk."""
    rng = np.random.default_rng(seed)
    for start in range(0, n_boot, _DRAWINGS_PER_CHUNK):
        n = min(_DRAWINGS_PER_CHUNK, n_boot - start)
        places = rng.integers(n_users, size=(n, n_users)) + n_users * np.arange(n)[:, None]
        counted = np.bincount(places.ravel(), minlength=n * n_users)
        yield counted.reshape(n, n_users).astype(np.float64)
