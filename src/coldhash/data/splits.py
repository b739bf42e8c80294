"""Split data into training and cold parts; no rating of a cold user or item is in training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from coldhash.data.dataset import Dataset, is_described
from coldhash.data.ratings import Ratings, row_of_entries
from coldhash.errors import DataError, SettingError, check_choice, check_positive

Order = Literal["time", "random"]


def split_cold_users(
    data: Dataset, share: float = 0.2, seed: int = 0, *, described: bool = False
) -> tuple[Dataset, Dataset]:
    """Split off a share of the users.

    Parameters
    ----------
    data : Dataset
        The data to split.
    share : float
        The share of cold users, between 0 and 1.
    seed : int
        Seed of the random choice.
    described : bool
        Draw cold users only from those of whom a column is known; the share is of these.

    Returns
    -------
    train, cold : Dataset
        The training part and the cold part, both with all items.

    Raises
    ------
    SettingError
        If a part would be empty.

    Examples
    --------
    >>> from coldhash import read
    >>> train, cold = split_cold_users(read("sample", n_users=100, n_items=50), share=0.2, seed=0)
    >>> len(train.ratings.users), len(cold.ratings.users)
    (80, 20)
    """
    n_users = len(data.ratings.users)
    known = np.arange(n_users)
    if described and data.users.num_columns:
        known = np.flatnonzero(is_described(data.users, n_users))
    drawn, _ = _draw(len(known), share, seed, "users")
    cold = known[drawn]
    return data.of_users(np.setdiff1d(np.arange(n_users), cold)), data.of_users(cold)


def split_cold_items(data: Dataset, share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split off a share of the items.

    Parameters
    ----------
    data : Dataset
        The data to split.
    share : float
        The share of cold items, between 0 and 1.
    seed : int
        Seed of the random choice.

    Returns
    -------
    train, cold : Dataset
        The training part and the cold part, both with all users.

    Raises
    ------
    SettingError
        If a part would be empty.

    Examples
    --------
    >>> from coldhash import read
    >>> train, cold = split_cold_items(read("sample", n_users=100, n_items=50), share=0.2, seed=0)
    >>> len(train.ratings.items), len(cold.ratings.items), len(cold.ratings.users)
    (40, 10, 100)
    """
    cold, warm = _draw(len(data.ratings.items), share, seed, "items")
    return data.of_items(warm), data.of_items(cold)


def cold_user_splits(
    data: Dataset, share: float = 0.2, seed: int = 0, repeats: int = 5
) -> Iterator[tuple[Dataset, Dataset]]:
    """Split the users repeatedly, with the seeds `seed`, `seed + 1`, ...

    Parameters
    ----------
    data : Dataset
        The data to split.
    share : float
        The share of cold users, between 0 and 1.
    seed : int
        The first seed.
    repeats : int
        The number of splits.

    Returns
    -------
    iterator of (Dataset, Dataset)
        Training part and cold part of each split.

    Raises
    ------
    SettingError
        If a part would be empty, or `repeats` is below 1.

    Examples
    --------
    >>> from coldhash import read
    >>> splits = list(cold_user_splits(read("sample", n_users=100, n_items=50), repeats=3))
    >>> [len(cold.ratings.users) for train, cold in splits]
    [20, 20, 20]
    """
    check_positive("repeats", repeats)
    for one_seed in range(seed, seed + repeats):
        yield split_cold_users(data, share, one_seed)


def split_first_ratings(
    cold: Dataset, n_given: int, seed: int = 0, order: Order | None = None
) -> tuple[Dataset, Dataset]:
    """Split the ratings of each user into the first few and the rest.

    Parameters
    ----------
    cold : Dataset
        The data to split.
    n_given : int
        The number of first ratings.
    seed : int
        Seed of the random choice.
    order : {"time", "random"}, optional
        The earliest ratings, or a random choice; by default the earliest where times are known.

    Returns
    -------
    given, rest : Dataset
        The first ratings and the others, both with all users.

    Raises
    ------
    SettingError
        If `n_given` is below 0, or the order is unknown.
    DataError
        If the order is that of time, and times are unknown.

    Examples
    --------
    >>> from coldhash import read
    >>> train, cold = split_cold_users(read("sample", n_users=100, n_items=50))
    >>> given, rest = split_first_ratings(cold, n_given=3)
    >>> int(given.ratings.per_user.max())
    3
    >>> len(given.ratings) + len(rest.ratings) == len(cold.ratings)
    True
    """
    ratings = cold.ratings
    given = mark_first_ratings(ratings, n_given, seed, order)
    return cold.with_ratings(ratings.where(given)), cold.with_ratings(ratings.where(~given))


def mark_first_ratings(
    ratings: Ratings, n_given: int, seed: int, order: Order | None
) -> np.ndarray:
    """Mark the ratings that `split_first_ratings` takes as the first of each user."""
    if n_given < 0:
        raise SettingError(f"n_given={n_given}", hint="0 or more")
    chance = np.random.default_rng(seed).random(len(ratings))
    user_rows = row_of_entries(ratings.matrix)
    by_time = () if resolve_order(ratings, order) == "random" else (ratings.times,)
    sequence = np.lexsort((chance, *by_time, user_rows))  # by user, then time, then chance
    place = np.empty(len(ratings), dtype=np.int64)
    starts = np.repeat(ratings.matrix.indptr[:-1], ratings.per_user)
    place[sequence] = np.arange(len(ratings)) - starts
    return place < n_given


def resolve_order(ratings: Ratings, order: Order | None) -> Order:
    """Return the order in which first ratings are given: by time where times are known."""
    if order is None:
        return "random" if ratings.times is None else "time"
    check_choice("order", order, get_args(Order))
    if order == "time" and ratings.times is None:
        raise DataError("the times of ratings are unknown", hint="order='random'")
    return order


def split_by_time(data: Dataset, at: float) -> tuple[Dataset, Dataset]:
    """Split the ratings of all users at one moment, to judge known users by what they did later.

    Parameters
    ----------
    data : Dataset
        The data to split, with times.
    at : float
        Between 0 and 1: the share of all ratings that comes before. Otherwise the time of the first
        rating that comes after.

    Returns
    -------
    train, later : Dataset
        What came before and after, both with the users who have ratings before, and with all items.

    Raises
    ------
    DataError
        If times are unknown.
    SettingError
        If there is no rating before, or none after.

    Examples
    --------
    >>> data = Dataset.from_tables(
    ...     {
    ...         "user_id": ["ann", "ann", "bob", "bob"],
    ...         "item_id": ["x", "y", "x", "z"],
    ...         "rating": [5, 4, 3, 5],
    ...         "timestamp": [10, 40, 20, 30],
    ...     }
    ... )
    >>> train, later = split_by_time(data, at=0.5)
    >>> train.ratings.per_user.tolist(), later.ratings.per_user.tolist()
    ([1, 1], [1, 1])
    """
    times = data.ratings.times
    if times is None:
        raise DataError("the times of ratings are unknown", hint="name their column: timestamp")
    moment = np.quantile(times, at, method="higher") if 0 < at < 1 else at
    before = times < moment
    if before.all() or not before.any():
        hint = f"a share between 0 and 1, or a time after {times.min()} and up to {times.max()}"
        raise SettingError(f"at={at:g} leaves a part empty", hint=hint)
    train, later = (data.with_ratings(data.ratings.where(part)) for part in (before, ~before))
    known = np.flatnonzero(train.ratings.per_user)
    return train.of_users(known), later.of_users(known)


def _draw(n: int, share: float, seed: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw which rows are cold; returns cold and warm rows, each in row order."""
    n_cold = round(share * n) if 0 < share < 1 else 0
    if not 0 < n_cold < n:
        hint = "between 0 and 1, with at least one on each side"
        raise SettingError(f"share={share:g} of {n:,} {what} leaves a part empty", hint=hint)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_cold]), np.sort(order[n_cold:])
