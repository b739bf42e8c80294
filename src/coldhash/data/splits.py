"""Split data into training and cold parts; no rating of a cold user or item is in training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError


def split_cold_users(data: Dataset, share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split off a share of the users.

    Parameters
    ----------
    data : Dataset
        The data to split.
    share : float
        The share of cold users, between 0 and 1.
    seed : int
        Seed of the random choice.

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
    cold, warm = _draw(len(data.ratings.users), share, seed, "users")
    return data.of_users(warm), data.of_users(cold)


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
    if repeats < 1:
        raise SettingError(f"repeats={repeats}", hint="at least 1")
    for one_seed in range(seed, seed + repeats):
        yield split_cold_users(data, share, one_seed)


def split_first_ratings(cold: Dataset, n_given: int, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split the ratings of each user into the first few and the rest.

    Parameters
    ----------
    cold : Dataset
        The data to split.
    n_given : int
        The number of first ratings: the earliest where times are known, otherwise a random choice.
    seed : int
        Seed of the random choice.

    Returns
    -------
    given, rest : Dataset
        The first ratings and the others, both with all users.

    Raises
    ------
    SettingError
        If `n_given` is below 0.

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
    if n_given < 0:
        raise SettingError(f"n_given={n_given}", hint="0 or more")
    ratings = cold.ratings
    chance = np.random.default_rng(seed).random(len(ratings))
    user_rows = np.repeat(np.arange(len(ratings.users)), ratings.per_user)
    keys = (chance, user_rows) if ratings.times is None else (chance, ratings.times, user_rows)
    order = np.lexsort(keys)  # by user, then time, then chance
    place = np.empty(len(ratings), dtype=np.int64)
    place[order] = np.arange(len(ratings)) - np.repeat(ratings.matrix.indptr[:-1], ratings.per_user)
    given = place < n_given
    return cold.with_ratings(ratings.where(given)), cold.with_ratings(ratings.where(~given))


def _draw(n: int, share: float, seed: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw which rows are cold; returns cold and warm rows, each in row order."""
    n_cold = round(share * n) if 0 < share < 1 else 0
    if not 0 < n_cold < n:
        hint = "between 0 and 1, with at least one on each side"
        raise SettingError(f"share={share:g} of {n:,} {what} leaves a part empty", hint=hint)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_cold]), np.sort(order[n_cold:])
