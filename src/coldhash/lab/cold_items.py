"""Evaluate cold items: how well items that nobody has rated find the users who will like them.

A share of the items is held out with all its ratings. Each favourite of a training user among the
cold items is ranked against other cold items that the user has not rated, up to `n_candidates`.
Nobody has rated any of them, so popularity cannot help. The baselines are content kNN and chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from coldhash.baselines.shared import favourite_matrix
from coldhash.data.dataset import Dataset
from coldhash.data.splits import split_cold_items
from coldhash.errors import DataError, SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import count_candidates, draw_candidates
from coldhash.features.fitting import fit_content
from coldhash.recommender.recommender import Recommender

COUNTS = (10, 30, 100, 300, None)  # numbers of neighbours to try; None: all
POWERS = (1.0, 2.0, 4.0)  # powers of the similarity to try


@dataclass(frozen=True, eq=False)
class ItemTrial:
    """The cold items that compete for each user, and the favourites among them.

    Parameters
    ----------
    candidates
        Rows of cold items, users x candidates, padded with -1.
    favourites
        Users x cold items, stored where an item is a favourite.

    Examples
    --------
    >>> from coldhash import read, split_cold_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> make_item_trial(cold).candidates.shape
    (200, 12)
    """

    candidates: np.ndarray
    favourites: csr_array


def make_item_trial(cold: Dataset, *, n_candidates: int = 1000, seed: int = 0) -> ItemTrial:
    """Draw the candidates of each user: cold items that somebody rated, but not the user.

    Parameters
    ----------
    cold
        The cold part of `split_cold_items`.
    n_candidates
        Candidates of a user at most.
    seed
        Seed of the candidates.

    Returns
    -------
    ItemTrial

    Raises
    ------
    SettingError
        If `n_candidates` is below 1.

    Examples
    --------
    >>> from coldhash import read, split_cold_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> trial = make_item_trial(cold, n_candidates=5)
    >>> trial.candidates.shape
    (200, 5)
    """
    if n_candidates < 1:
        raise SettingError(f"n_candidates={n_candidates}", hint="at least 1")
    rated = cold.ratings.per_item > 0
    n_drawn = min(n_candidates, int(rated.sum()))
    candidates = draw_candidates(cold.ratings.matrix, rated, n_drawn, seed)
    return ItemTrial(candidates, favourite_matrix(cold))


def item_accuracy_at(k: int, scores: np.ndarray, trial: ItemTrial) -> float:
    """Compute Accuracy@k of scores, pooled over users.

    Parameters
    ----------
    k
        Length of the list.
    scores
        Users x cold items.
    trial
        Candidates and favourites.

    Returns
    -------
    float
        nan if there is no favourite.

    Raises
    ------
    DataError
        If the scores have another shape, or one is not finite.

    Examples
    --------
    >>> from coldhash import read, split_cold_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> trial = make_item_trial(cold)
    >>> chance = item_accuracy_at(1, np.zeros(trial.favourites.shape), trial)
    >>> 0.05 < chance < 0.2
    True
    """
    favourites = trial.favourites
    if scores.shape != favourites.shape:
        raise DataError(f"scores of shape {scores.shape}, not {favourites.shape}")
    if not np.isfinite(scores).all():
        raise DataError("a score is not a finite number")
    scores = np.ascontiguousarray(scores)
    counts = count_candidates(scores, trial.candidates, favourites.indptr, favourites.indices)
    return accuracy_at(k, *counts)


def model_scores(model: Recommender, cold: Dataset, by_code: bool = False) -> np.ndarray:
    """Score cold items, which were added to the model, for its own users.

    Parameters
    ----------
    model
        A fitted model that has the cold items.
    cold
        The cold part of `split_cold_items`.
    by_code
        Compare codes with codes.

    Returns
    -------
    numpy.ndarray
        Users x cold items.

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
    scores = model.items.scores(users, by_code=by_code)
    return np.asarray(scores[:, model.item_ids.rows(cold.ratings.items.values)])


@dataclass(frozen=True)
class ContentNeighbours:
    """Content kNN: score a cold item by its similarity to a user's favourites.

    Parameters
    ----------
    k
        Number of neighbours; None for all.
    power
        Power of the cosine similarity.
    of_user
        Take the k most similar favourites of the user. If False, take the k most similar training
        items, of which the user's favourites count.

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
        """Score the cold items for all users.

        Parameters
        ----------
        train, cold
            The two parts of `split_cold_items`.

        Returns
        -------
        numpy.ndarray
            Users x cold items, float32; higher is better.
        """
        similarity = content_similarity(train, cold) ** np.float32(self.power)
        liked = favourite_matrix(train)
        if self.k is None or self.k >= similarity.shape[1]:
            return np.asarray(liked @ similarity.T)
        if not self.of_user:
            cut = np.partition(similarity, -self.k, axis=1)[:, -self.k][:, None]
            return np.asarray(liked @ np.where(similarity >= cut, similarity, np.float32(0)).T)
        scores = np.zeros((liked.shape[0], len(similarity)), dtype=np.float32)
        for user in range(liked.shape[0]):
            own = similarity[:, liked.indices[liked.indptr[user] : liked.indptr[user + 1]]]
            if own.shape[1] > self.k:
                own = np.partition(own, -self.k, axis=1)[:, -self.k :]
            scores[user] = own.sum(axis=1)
        return scores


def content_similarity(train: Dataset, cold: Dataset) -> np.ndarray:
    """Compute the cosines of the content of cold items (rows) and training items (columns)."""
    encoder = fit_content(train.plan, train.items)
    known = encoder.apply(train.items, len(train.ratings.items))
    new = encoder.apply(cold.items, len(cold.ratings.items))
    lengths = [np.sqrt(np.asarray((part * part).sum(axis=1))) for part in (new, known)]
    cosines = (new @ known.T).toarray() / np.maximum(np.outer(*lengths), 1e-9)
    return np.maximum(cosines, 0).astype(np.float32)  # type: ignore[no-any-return]


def choose_neighbours(train: Dataset, seed: int = 0, k: int = 10) -> ContentNeighbours:
    """Choose the best variant of content kNN on held-out training items.

    Parameters
    ----------
    train
        The training part of `split_cold_items`.
    seed
        Seed of the inner split.
    k
        Choose by Accuracy@k.

    Returns
    -------
    ContentNeighbours

    Examples
    --------
    >>> from coldhash import read
    >>> best = choose_neighbours(read("sample", n_users=100, n_items=50))
    >>> best.k in COUNTS, best.power in POWERS
    (True, True)
    """
    inner, held = split_cold_items(train, 0.2, seed)
    trial = make_item_trial(held, seed=seed)
    variants = [
        ContentNeighbours(count, power, of_user)
        for count in COUNTS
        for power in POWERS
        for of_user in (False, True)
        if count is not None or not of_user  # with all of them the two are the same
    ]
    found = [item_accuracy_at(k, each.scores(inner, held), trial) for each in variants]
    return variants[int(np.argmax(found))]
