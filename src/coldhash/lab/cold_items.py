"""Evaluate new items: how well items that nobody has rated find the users who will like them.

A share of the items is held out with all its ratings. Every favourite of a training user among them
is ranked against all new items that the user has not rated, and against other items as well. The
peers score items by content alone, for the same users: neighbours of their favourites, a ridge
regression of each user's favourites on content, and the popularity of categories. Their forms are
chosen on held-out training items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, get_args

import numpy as np
from scipy.sparse import csr_array

from coldhash.baselines.shared import favourite_matrix
from coldhash.data.dataset import Dataset, split_cold_items
from coldhash.errors import DataError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.features.fitting import fit_content
from coldhash.recommender.recommender import Recommender

NeighbourForm = Literal["sum", "user", "mean"]
COUNTS = (10, 30, 100, 300, None)  # numbers of neighbours to try; None: all
POWERS = (1.0, 2.0, 4.0)  # powers of the similarity to try
RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
MAX_COLUMNS = 2048  # of content in a ridge regression: the commonest
MAX_HELD_OUT = 1000  # items that the form of a peer is chosen by


def item_accuracy_at(
    k: int, scores: np.ndarray, cold: Dataset, others: np.ndarray | None = None
) -> float:
    """Compute Accuracy@k of the favourites among new items, pooled over users.

    Parameters
    ----------
    k
        Length of the list.
    scores
        Users x new items.
    cold
        The cold part of `split_cold_items`.
    others
        Scores of other items that compete with them (users x items); -inf for one that must not.

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
    >>> chance = item_accuracy_at(1, np.zeros((200, 12)), cold)
    >>> 0.05 < chance < 0.2
    True
    """
    ratings, favourites = cold.ratings.matrix, favourite_matrix(cold)
    if scores.shape != favourites.shape:
        raise DataError(f"scores of shape {scores.shape}, not {favourites.shape}")
    if not np.isfinite(scores).all():
        raise DataError("a score is not a finite number")
    greater, equal = [np.zeros(0)], [np.zeros(0)]
    for user in np.flatnonzero(np.diff(favourites.indptr)):
        own = favourites.indices[favourites.indptr[user] : favourites.indptr[user + 1]]
        rated = ratings.indices[ratings.indptr[user] : ratings.indptr[user + 1]]
        rivals = np.delete(scores[user], rated)
        if others is not None:
            rivals = np.concatenate([rivals, others[user]])
        rivals.sort()
        up_to = np.searchsorted(rivals, scores[user, own], side="right")
        greater.append(len(rivals) - up_to)
        equal.append(up_to - np.searchsorted(rivals, scores[user, own], side="left"))
    return accuracy_at(k, np.concatenate(greater), np.concatenate(equal))


def model_scores(
    model: Recommender, users: Sequence[str], items: Sequence[str], by_code: bool = False
) -> np.ndarray:
    """Score items of a model for its own users.

    Parameters
    ----------
    model
        A fitted model that has the items.
    users, items
        Ids.
    by_code
        Compare codes with codes.

    Returns
    -------
    numpy.ndarray
        Users x items.

    Examples
    --------
    >>> from coldhash import MFDCF, read, split_cold_items
    >>> from coldhash.update import add_items
    >>> train, cold = split_cold_items(read("sample", n_users=200, n_items=60))
    >>> new = cold.items.append_column("item_id", cold.ratings.items.values)
    >>> model, _ = add_items(MFDCF(n_bits=32).fit(train), new)
    >>> model_scores(model, list(cold.ratings.users), list(cold.ratings.items)).shape
    (200, 12)
    """
    vectors = model.user_vectors[model.user_ids.rows(users)]
    part = model.items.select(model.item_ids.rows(items), np.zeros(len(items)))
    return np.asarray(part.scores(vectors, by_code=by_code))


# scores of users x wanted items, from users x known items (1: a favourite) and the contents of
# known and of wanted items (items x columns)
ContentPeer = Callable[[csr_array, csr_array, csr_array], np.ndarray]


def score_by_neighbours(
    liked: csr_array,
    known: csr_array,
    wanted: csr_array,
    k: int | None = None,
    power: float = 1.0,
    form: NeighbourForm = "sum",
) -> np.ndarray:
    """Score items by their similarity to a user's favourites: content kNN.

    Parameters
    ----------
    liked
        Users x known items, 1 for a favourite.
    known, wanted
        Content, items x columns.
    k
        Number of neighbours; None for all.
    power
        Power of the cosine similarity.
    form
        "sum" over the k most similar training items, of which the user's favourites count; "mean":
        the same divided by the sum of all k; "user": over the user's k most similar favourites.

    Returns
    -------
    numpy.ndarray
        Users x wanted items.

    Examples
    --------
    >>> liked, known = csr_array([[1.0, 0.0]]), csr_array([[1.0, 0.0], [0.0, 1.0]])
    >>> score_by_neighbours(liked, known, known, k=1).tolist()
    [[1.0, 0.0]]
    """
    similarity = content_similarity(known, wanted) ** np.float32(power)
    if k is not None and k < similarity.shape[1]:
        if form == "user":
            return _sum_nearest(liked, similarity, k)
        cut = np.partition(similarity, -k, axis=1)[:, -k][:, None]
        similarity = np.where(similarity >= cut, similarity, np.float32(0))
    if form == "mean":
        similarity /= np.maximum(similarity.sum(axis=1, keepdims=True), 1e-9)
    return np.asarray(liked @ similarity.T)


def _sum_nearest(liked: csr_array, similarity: np.ndarray, k: int) -> np.ndarray:
    scores = np.zeros((liked.shape[0], len(similarity)), dtype=np.float32)
    for user in range(liked.shape[0]):
        own = similarity[:, liked.indices[liked.indptr[user] : liked.indptr[user + 1]]]
        if own.shape[1] > k:
            own = np.partition(own, -k, axis=1)[:, -k:]
        scores[user] = own.sum(axis=1)
    return scores


def score_by_ridge(
    liked: csr_array, known: csr_array, wanted: csr_array, ridge: float = 100.0
) -> np.ndarray:
    """Score items by a ridge regression of the favourites of each user on content.

    Parameters
    ----------
    liked, known, wanted
        As for `score_by_neighbours`.
    ridge
        The ridge.

    Returns
    -------
    numpy.ndarray
        Users x wanted items.

    Examples
    --------
    >>> liked, known = csr_array([[1.0, 0.0]]), csr_array([[1.0, 0.0], [0.0, 1.0]])
    >>> score_by_ridge(liked, known, known, ridge=1e-3).round(1).tolist()
    [[1.0, 0.0]]
    """
    counts = np.bincount(known.indices, minlength=known.shape[1])
    columns = np.sort(np.argsort(-counts, kind="stable")[:MAX_COLUMNS])
    x = known[:, columns].astype(np.float64)
    centre = np.asarray(x.mean(axis=0)).ravel()
    gram = (x.T @ x).toarray() - x.shape[0] * np.outer(centre, centre)
    gram[np.diag_indices_from(gram)] += ridge
    means = np.asarray(liked.mean(axis=1), np.float64).reshape(-1, 1)
    right = (liked @ x).toarray() - x.shape[0] * means * centre
    weights = np.linalg.solve(gram, right.T)
    return np.asarray((wanted[:, columns] @ weights).T + means - (centre @ weights)[:, None])


def score_by_category(liked: csr_array, known: csr_array, wanted: csr_array) -> np.ndarray:
    """Score items by the mean popularity of the items that share a column, over their columns.

    Parameters
    ----------
    liked, known, wanted
        As for `score_by_neighbours`.

    Returns
    -------
    numpy.ndarray
        Users x wanted items.

    Examples
    --------
    >>> liked, known = csr_array([[1.0, 0.0]]), csr_array([[1.0, 0.0], [0.0, 1.0]])
    >>> score_by_category(liked, known, known).round(1).tolist()
    [[0.8, 0.2]]
    """
    popularity = np.asarray(liked.sum(axis=0), np.float64).ravel()
    sums, counts = abs(known).T @ popularity, np.asarray(abs(known).sum(axis=0)).ravel()
    of_column = (sums + popularity.mean()) / (counts + 1)
    total = np.maximum(np.asarray(abs(wanted).sum(axis=1)).ravel(), 1e-9)
    return np.tile((abs(wanted) @ of_column) / total, (liked.shape[0], 1))


def content_similarity(known: csr_array, wanted: csr_array) -> np.ndarray:
    """Compute the cosines of wanted (rows) and known items (columns), at least 0."""
    lengths = [np.sqrt(np.asarray((part * part).sum(axis=1))) for part in (wanted, known)]
    cosines = (wanted @ known.T).toarray()
    cosines /= np.maximum(np.outer(*lengths), 1e-9)
    return np.maximum(cosines, 0).astype(np.float32)  # type: ignore[no-any-return]


def choose_peers(train: Dataset, seed: int = 0, k: int = 10) -> dict[str, ContentPeer]:
    """Choose the best form of every peer on held-out training items.

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
    dict of str to function
        Under "content kNN", "ridge on content" and "popularity of category", functions of users x
        known items (1 for a favourite), and of the contents of known and of wanted items.

    Examples
    --------
    >>> from coldhash import read
    >>> best = choose_peers(read("sample", n_users=100, n_items=50))
    >>> list(best)
    ['content kNN', 'ridge on content', 'popularity of category']
    """
    share = min(0.1, MAX_HELD_OUT / len(train.ratings.items))
    inner, held = split_cold_items(train, share, seed)
    encoder = fit_content(inner.plan, inner.items)
    known = encoder.apply(inner.items, len(inner.ratings.items))
    wanted = encoder.apply(held.items, len(held.ratings.items))
    liked = favourite_matrix(inner)
    forms: dict[str, list[ContentPeer]] = {
        "content kNN": [
            partial(score_by_neighbours, k=count, power=power, form=form)
            for count in COUNTS
            for power in POWERS
            for form in get_args(NeighbourForm)
            if count is not None or form != "user"  # with all of them it is the sum
        ],
        "ridge on content": [partial(score_by_ridge, ridge=ridge) for ridge in RIDGES],
        "popularity of category": [score_by_category],
    }

    def accuracy(peer: ContentPeer) -> float:
        return item_accuracy_at(k, peer(liked, known, wanted), held)

    return {name: max(each, key=accuracy) for name, each in forms.items()}
