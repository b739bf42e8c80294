"""Splits: who is cold. No rating of a cold user or item stays in the training part."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError


def split_cold_users(data: Dataset, share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Set aside a share of the users: gives (training part, cold part), the catalogue in both.

    Examples
    --------
    >>> from coldhash.data.sources import read
    >>> train, cold = split_cold_users(read("sample", n_users=100, n_items=50), share=0.2, seed=0)
    >>> len(train.ratings.users), len(cold.ratings.users)
    (80, 20)
    """
    cold, warm = _draw(len(data.ratings.users), share, seed, "users")
    return data.of_users(warm), data.of_users(cold)


def split_cold_items(data: Dataset, share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Set aside a share of the items: gives (training part, cold part), all users in both.

    Examples
    --------
    >>> from coldhash.data.sources import read
    >>> train, cold = split_cold_items(read("sample", n_users=100, n_items=50), share=0.2, seed=0)
    >>> len(train.ratings.items), len(cold.ratings.items), len(cold.ratings.users)
    (40, 10, 100)
    """
    cold, warm = _draw(len(data.ratings.items), share, seed, "items")
    return data.of_items(warm), data.of_items(cold)


def cold_user_splits(
    data: Dataset, share: float = 0.2, seed: int = 0, repeats: int = 5
) -> Iterator[tuple[Dataset, Dataset]]:
    """Split the users again and again, with the seeds `seed`, `seed + 1`, ...

    Examples
    --------
    >>> from coldhash.data.sources import read
    >>> splits = list(cold_user_splits(read("sample", n_users=100, n_items=50), repeats=3))
    >>> [len(cold.ratings.users) for train, cold in splits]
    [20, 20, 20]
    """
    if repeats < 1:
        raise SettingError(f"repeats={repeats}", hint="at least 1")
    for one_seed in range(seed, seed + repeats):
        yield split_cold_users(data, share, one_seed)


def split_first_ratings(cold: Dataset, n_given: int, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split the ratings of each user: gives (the first `n_given`, the rest), all users in both.

    The first ones by time, where times are known; otherwise a seeded random choice.

    Examples
    --------
    >>> from coldhash.data.sources import read
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
    """Draw which rows are cold: gives (cold rows, warm rows), each in row order."""
    n_cold = round(share * n) if 0 < share < 1 else 0
    if not 0 < n_cold < n:
        raise SettingError(
            f"share={share:g} of {n:,} {what} leaves a part empty",
            hint="between 0 and 1, with at least one on each side",
        )
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_cold]), np.sort(order[n_cold:])
