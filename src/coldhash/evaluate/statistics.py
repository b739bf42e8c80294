"""How sure an accuracy is: bootstrap over users.

Pairs of one user are not independent of each other, users are; so users are drawn, with
replacement, and all their pairs with them. Random splits overlap: a user who is cold in two splits
is the same person in both, and gets one weight for all splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coldhash.errors import DataError, SettingError
from coldhash.evaluate.protocol import Average

CHUNK = 250  # drawings made at a time

Verdict = Literal["ahead", "behind", "level"]


@dataclass(frozen=True, eq=False)
class UserHits:
    """One model, one split, one k: the hits and the test pairs of each cold user.

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
            raise DataError("user ids, hits and pairs are not equally many")
        if len(set(map(str, self.user_ids))) < len(self.user_ids):
            raise DataError("a user is there twice in one split", hint="sum up the pairs of a user")
        if not np.sum(self.pairs) > 0:
            raise DataError("a split has no test pair", hint="leave it out")


@dataclass(frozen=True)
class Interval:
    """A mean over splits, and between what it may lie.

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
    """How far ours is above theirs, between what that may lie, and what it comes to.

    Examples
    --------
    >>> Comparison(difference=0.02, low=-0.01, high=0.05, verdict="level").verdict
    'level'
    """

    difference: float
    low: float
    high: float
    verdict: Verdict  # "level" where 0 lies between


def interval(
    splits: Sequence[UserHits],
    n_boot: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    average: Average = "pairs",
) -> Interval:
    """Give the mean over splits of hits / pairs, with the interval that the users leave open.

    Examples
    --------
    >>> users = np.arange(100)
    >>> hits = UserHits(users, hits=(users % 4 == 0).astype(float), pairs=np.ones(100))
    >>> found = interval([hits])
    >>> found.mean, found.low < 0.25 < found.high
    (0.25, True)
    """
    user_ids = _distinct(splits)
    hits, counts = _summands(splits, user_ids, average)
    means = _drawn_means([hits], counts, n_boot, seed)[0]
    low, high = _bounds(means, level)
    return Interval(float((hits.sum(axis=0) / counts.sum(axis=0)).mean()), low, high)


def compare(
    ours: Sequence[UserHits],
    theirs: Sequence[UserHits],
    n_boot: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    average: Average = "pairs",
) -> Comparison:
    """Compare two models on the same users: what makes a user hard is hard for both.

    Examples
    --------
    >>> users = np.arange(100)
    >>> ours = UserHits(users, hits=(users % 2 == 0).astype(float), pairs=np.ones(100))
    >>> theirs = UserHits(users, hits=(users % 4 == 0).astype(float), pairs=np.ones(100))
    >>> compare([ours], [theirs]).verdict, compare([ours], [ours]).verdict
    ('ahead', 'level')
    """
    user_ids = _distinct(ours)
    _check_same(ours, theirs)
    our_hits, counts = _summands(ours, user_ids, average)
    their_hits, _ = _summands(theirs, user_ids, average)
    our_means, their_means = _drawn_means([our_hits, their_hits], counts, n_boot, seed)
    low, high = _bounds(our_means - their_means, level)
    difference = ((our_hits - their_hits).sum(axis=0) / counts.sum(axis=0)).mean()
    verdict: Verdict = "ahead" if low > 0 else "behind" if high < 0 else "level"
    return Comparison(float(difference), low, high, verdict)


def _distinct(splits: Sequence[UserHits]) -> dict[str, int]:
    """Give each user of all splits a row."""
    if not splits:
        raise DataError("no split to judge by")
    every = sorted({str(user_id) for split in splits for user_id in split.user_ids})
    return {user_id: row for row, user_id in enumerate(every)}


def _check_same(ours: Sequence[UserHits], theirs: Sequence[UserHits]) -> None:
    if len(ours) != len(theirs):
        raise DataError(f"{len(ours)} splits against {len(theirs)}", hint="judge both on the same")
    for number, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        if _pairs_by_user(one) != _pairs_by_user(two):
            raise DataError(
                f"split {number}: not the same users and pairs", hint="judge both by one trial"
            )


def _pairs_by_user(split: UserHits) -> dict[str, float]:
    names = (str(user_id) for user_id in split.user_ids)
    return dict(zip(names, np.asarray(split.pairs).tolist(), strict=True))


def _summands(
    splits: Sequence[UserHits], user_ids: dict[str, int], average: Average
) -> tuple[np.ndarray, np.ndarray]:
    """Lay out what is summed up above and below the line of an accuracy: users x splits."""
    if average not in ("pairs", "users"):
        raise SettingError(f"average={average!r}", hint="one of pairs, users")
    hits, pairs = np.zeros((2, len(user_ids), len(splits)))
    for column, split in enumerate(splits):
        rows = [user_ids[str(user_id)] for user_id in split.user_ids]
        hits[rows, column], pairs[rows, column] = split.hits, split.pairs
    if average == "pairs":
        return hits, pairs
    return hits / np.maximum(pairs, 1), (pairs > 0).astype(np.float64)


def _drawn_means(
    hits: list[np.ndarray], counts: np.ndarray, n_boot: int, seed: int
) -> list[np.ndarray]:
    """Give each model's mean over splits in each drawing of users."""
    if n_boot < 1:
        raise SettingError(f"n_boot={n_boot}", hint="at least 1; 2000 is usual")
    n_splits, columns = counts.shape[1], np.hstack([counts, *hits])
    drawn = np.vstack([weights @ columns for weights in _weights(len(counts), n_boot, seed)])
    below = drawn[:, :n_splits]
    complete = (below > 0).all(axis=1)  # a drawing may miss every user of a small split
    if not complete.any():
        raise DataError("too few users to draw from", hint="take more users, or fewer splits")
    return [
        (drawn[complete, start : start + n_splits] / below[complete]).mean(axis=1)
        for start in range(n_splits, drawn.shape[1], n_splits)
    ]


def _weights(n_users: int, n_boot: int, seed: int) -> Iterator[np.ndarray]:
    """Draw users with replacement: how often each one came, some drawings at a time."""
    rng = np.random.default_rng(seed)
    for start in range(0, n_boot, CHUNK):
        n = min(CHUNK, n_boot - start)
        places = rng.integers(n_users, size=(n, n_users)) + n_users * np.arange(n)[:, None]
        counted = np.bincount(places.ravel(), minlength=n * n_users)
        yield counted.reshape(n, n_users).astype(np.float64)


def _bounds(means: np.ndarray, level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise SettingError(f"level={level:g}", hint="between 0 and 1")
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
