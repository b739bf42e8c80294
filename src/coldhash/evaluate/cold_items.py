"""Cold items: how well items that nobody has rated find the users who will like them.

A share of the items is held out with all its ratings. Each favourite of a training user among the
cold items is ranked alone against other cold items that the user has not rated, up to
`n_candidates`. As nobody has rated any of them, popularity cannot help: it is what content says, or
nothing. Beside a model stand the neighbours by content, and chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.codes import signs
from coldhash.data.dataset import Dataset
from coldhash.data.splits import split_cold_items
from coldhash.data.targets import is_favourite
from coldhash.errors import DataError, SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.features.fitting import fit_content
from coldhash.recommender.recommender import Recommender

COUNTS = (10, 30, 100, 300, None)  # neighbours to choose from; None: all
POWERS = (1.0, 2.0, 4.0)  # of the likeness


@dataclass(frozen=True, eq=False)
class ItemTrial:
    """For each user the cold items to tell apart, and the favourites among them.

    Examples
    --------
    >>> from coldhash import read, split_cold_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> make_item_trial(cold).candidates.shape
    (200, 12)
    """

    candidates: np.ndarray  # users x cold items, True where it competes
    favourites: csr_array  # users x cold items, stored where a favourite


def make_item_trial(cold: Dataset, *, n_candidates: int = 1000, seed: int = 0) -> ItemTrial:
    """Draw the candidates of each user: cold items that somebody rated, but not the user.

    Examples
    --------
    >>> from coldhash import read, split_cold_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> trial = make_item_trial(cold, n_candidates=5)
    >>> int(trial.candidates.sum(axis=1).max())
    5
    """
    if n_candidates < 1:
        raise SettingError(f"n_candidates={n_candidates}", hint="at least 1")
    ratings = cold.ratings
    free = np.broadcast_to(ratings.per_item > 0, ratings.matrix.shape).copy()
    owners = np.repeat(np.arange(len(ratings.users)), ratings.per_user)
    free[owners, ratings.matrix.indices] = False
    if (ratings.per_item > 0).sum() > n_candidates:
        for user, rng in enumerate(np.random.default_rng(seed).spawn(len(free))):
            rows = np.flatnonzero(free[user])
            free[user, rng.permutation(rows)[n_candidates:]] = False
    liked = ratings.where(is_favourite(ratings.matrix.data, ratings.scale[1])).matrix
    return ItemTrial(free, liked)


def item_accuracy_at(k: int, scores: np.ndarray, trial: ItemTrial) -> float:
    """Give Accuracy@k of scores (users x cold items), pooled over users.

    Examples
    --------
    >>> from coldhash import read, split_cold_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> trial = make_item_trial(cold)
    >>> chance = item_accuracy_at(1, np.zeros(trial.candidates.shape), trial)
    >>> 0.05 < chance < 0.2
    True
    """
    if scores.shape != trial.favourites.shape:
        raise DataError(f"scores of shape {scores.shape}, not {trial.favourites.shape}")
    if not np.isfinite(scores).all():
        raise DataError("a score is not a finite number")
    pairs = list(_places(scores, trial))
    if not pairs:
        return float("nan")
    greater, equal = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return accuracy_at(k, greater, equal)


def _places(scores: np.ndarray, trial: ItemTrial) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Count, for each favourite of each user, the candidates above it and level with it."""
    indptr, indices = trial.favourites.indptr, trial.favourites.indices
    for user in np.flatnonzero(np.diff(indptr)):
        own = scores[user, indices[indptr[user] : indptr[user + 1]]]
        others = np.sort(scores[user, trial.candidates[user]])
        above = np.searchsorted(others, own, side="right")
        yield len(others) - above, above - np.searchsorted(others, own, side="left")


def model_scores(model: Recommender, cold: Dataset, by_code: bool = False) -> np.ndarray:
    """Score cold items, which the model must have by now, for its own users.

    Examples
    --------
    >>> from coldhash import MFDCF, read, split_cold_items
    >>> from coldhash.update import add_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> new = cold.items.append_column("item_id", cold.ratings.items.values)
    >>> model, _ = add_items(MFDCF(n_bits=32, new_items=True).fit(train), new)
    >>> model_scores(model, cold).shape
    (200, 12)
    """
    users = model.user_vectors[model.user_ids.rows(cold.ratings.users.values)]
    rows = model.item_ids.rows(cold.ratings.items.values)
    vectors = model.items.rows(rows).astype(np.float32)
    return np.asarray((signs(users, np.float32) if by_code else users) @ vectors.T)


@dataclass(frozen=True)
class ContentNeighbours:
    """Content kNN: a cold item is worth to a user what the favourites like it are.

    `of_user`: the k favourites of the user that are most like the item. Otherwise the k training
    items most like it, of which the user's favourites count: popular neighbours reach more users.

    Examples
    --------
    >>> from coldhash import read, split_cold_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> ContentNeighbours(k=10, power=1.0, of_user=True).scores(train, cold).shape
    (200, 12)
    """

    k: int | None
    power: float
    of_user: bool

    def scores(self, train: Dataset, cold: Dataset) -> np.ndarray:
        """Score the cold items for all users."""
        likeness = content_likeness(train, cold) ** np.float32(self.power)
        ratings = train.ratings
        liked = ratings.where(is_favourite(ratings.matrix.data, ratings.scale[1])).matrix
        ones = np.ones(liked.nnz, dtype=np.float32)
        liked = csr_array((ones, liked.indices, liked.indptr), shape=liked.shape)
        if self.k is None or self.k >= likeness.shape[1]:
            return np.asarray(liked @ likeness.T)
        if not self.of_user:
            cut = np.partition(likeness, -self.k, axis=1)[:, -self.k][:, None]
            return np.asarray(liked @ np.where(likeness >= cut, likeness, np.float32(0)).T)
        scores = np.zeros((liked.shape[0], len(likeness)), dtype=np.float32)
        for user in range(liked.shape[0]):
            own = likeness[:, liked.indices[liked.indptr[user] : liked.indptr[user + 1]]]
            if own.shape[1] > self.k:
                own = np.partition(own, -self.k, axis=1)[:, -self.k :]
            scores[user] = own.sum(axis=1)
        return scores


def content_likeness(train: Dataset, cold: Dataset) -> np.ndarray:
    """Give the cosines of the content of cold items (rows) and training items (columns)."""
    encoder, known = fit_content(train.plan, train.items, len(train.ratings.items))
    columns = {name: cold.items.column(name) for name in encoder.columns}
    new = encoder.apply(columns, len(cold.ratings.items))
    lengths = [np.sqrt(np.asarray((part * part).sum(axis=1))) for part in (new, known)]
    cosines = (new @ known.T).toarray() / np.maximum(np.outer(*lengths), 1e-9)
    return np.maximum(cosines, 0).astype(np.float32)  # type: ignore[no-any-return]


def choose_neighbours(train: Dataset, seed: int = 0, k: int = 10) -> ContentNeighbours:
    """Choose the best of all forms of content kNN on training items held out for it.

    Examples
    --------
    >>> from coldhash import read
    >>> best = choose_neighbours(read("sample", n_users=100, n_items=50))
    >>> best.k in COUNTS, best.power in POWERS
    (True, True)
    """
    inner, held = split_cold_items(train, 0.2, seed)
    trial = make_item_trial(held, seed=seed)
    forms = [
        ContentNeighbours(count, power, of_user)
        for count in COUNTS
        for power in POWERS
        for of_user in (False, True)
        if count is not None or not of_user  # with all of them the two are the same
    ]
    found = [item_accuracy_at(k, form.scores(inner, held), trial) for form in forms]
    return forms[int(np.argmax(found))]
