"""What a practitioner would use instead: implicit's ALS, irspack's feature-aware iALS, LightFM.

Their settings were chosen on users held out of the training part (docs/method.md says how); where
several settings are listed, the best on the test users counts, which favours the rival.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from implicit.als import AlternatingLeastSquares
from irspack import IALSRecommender
from scipy.sparse import csr_matrix, hstack, identity
from threadpoolctl import threadpool_limits

from coldhash import Dataset
from coldhash.baselines.shared import solve_ridge, stack_features, stranger_groups
from coldhash.data.feedback import Feedback
from coldhash.data.ratings import RatingTarget
from coldhash.evaluate.protocol import SCORE_BLOCK, ScoreFunction
from coldhash.features.fitting import fit_features

Pick = Callable[[Any, float], csr_matrix]  # which ratings a rival learns from, and their weights


def as_implicit(matrix: object) -> csr_matrix:
    """Give what implicit and irspack want: scipy's old matrix type and writable arrays."""
    return csr_matrix(matrix, copy=True)


def favourites(ratings: object, highest: float) -> csr_matrix:
    """Keep the favourites, as ones."""
    matrix = as_implicit(ratings)
    matrix.data = (matrix.data > 0.6 * highest).astype(np.float32)
    matrix.eliminate_zeros()
    return matrix


def weighted(ratings: object, highest: float) -> csr_matrix:
    """Give favourites 1 and other ratings 0.3."""
    target = RatingTarget("favourite", Feedback(scale=(0.0, highest)))
    return as_implicit(target(as_implicit(ratings)))


def everything(ratings: object, highest: float) -> csr_matrix:
    """Give every rating 1."""
    del highest
    matrix = as_implicit(ratings)
    matrix.data = np.ones_like(matrix.data)
    return matrix


def als(matrix: csr_matrix, factors: int, alpha: float = 1.0, reg: float = 0.01, threads: int = 2):
    """Fit implicit's ALS, 15 iterations."""
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore")
        model = AlternatingLeastSquares(
            factors=factors,
            alpha=alpha,
            regularization=reg,
            iterations=15,
            random_state=0,
            num_threads=threads,
            use_gpu=False,
        )
        model.fit(matrix, show_progress=False)
    return model


class People:
    """The features that strangers have, as the rivals want them."""

    def __init__(self, train: Dataset, cold: Dataset) -> None:
        self.encoder = fit_features(train)
        self.groups = stranger_groups(self.encoder)
        self.train = self.of(train.users)
        self.cold = self.of(cold.users)

    def of(self, people: Any) -> np.ndarray:
        """Give people's features side by side."""
        return stack_features(self.encoder.apply(people), self.groups)

    def to_factors(self, model: AlternatingLeastSquares) -> np.ndarray:
        """Learn to predict user factors from features, by ridge regression."""
        found = solve_ridge(self.train, self.train.T @ model.user_factors, 30.0)
        return found.astype(np.float32)

    def mapped(self, model: AlternatingLeastSquares, int8: bool = False) -> np.ndarray:
        """Score with user factors predicted from features."""
        items = model.item_factors
        if int8:
            scale = np.abs(items).max(axis=0) / 127
            items = np.rint(items / scale).astype(np.int8) * scale
        return self.cold @ self.to_factors(model) @ items.T.astype(np.float32)


def by_rows(scores: np.ndarray) -> ScoreFunction:
    """Give ready-made scores block by block, in the order in which `rank` asks."""
    starts = iter(range(0, len(scores), SCORE_BLOCK))
    return lambda people, _: scores[(at := next(starts)) : at + people.num_rows]


IRSPACK = [  # (which ratings, alpha0, reg, lambda_user_feature)
    (favourites, 1.0, 0.01, 1000.0),
    (everything, 0.1, 0.015, 3000.0),
    (everything, 0.3, 0.01, 10000.0),
]


def irspack_ials(
    train: Dataset, people: People, pick: Pick, alpha0: float, reg: float, strength: float
) -> IALSRecommender:
    """Fit irspack's iALS with user features, 64 components."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        model = IALSRecommender(
            pick(train.ratings.matrix, train.ratings.scale[1]),
            n_components=64,
            alpha0=alpha0,
            reg=reg,
            user_features=people.train,
            lambda_user_feature=strength,
            n_threads=2,
            train_epochs=12,
        )
        model.learn()
    return model


class Ease:
    """EASE on events and features side by side (Steck 2019): closed form, no self-prediction.

    Beyond the most frequent `max_items` items, an item scores by its popularity, below all others.
    """

    def __init__(
        self, events: csr_matrix, features: np.ndarray, penalty: float, max_items: int = 4000
    ) -> None:
        counts = np.bincount(events.indices, minlength=events.shape[1])
        self.items = np.sort(np.argsort(-counts, kind="stable")[:max_items])
        self.rest = counts / (counts.max() + 1.0) - 1e6
        stacked = np.hstack([events[:, self.items].toarray(), features]).astype(np.float32)
        gram = stacked.T @ stacked
        gram[np.diag_indices_from(gram)] += penalty
        inverse = np.linalg.inv(gram)
        weights = -inverse / np.diag(inverse)
        weights[np.diag_indices_from(weights)] = 0.0
        self.weights = weights[:, : len(self.items)]

    def scores(self, given: csr_matrix, features: np.ndarray) -> np.ndarray:
        """Score all items for people with these events and features."""
        found = np.tile(self.rest.astype(np.float32), (given.shape[0], 1))
        known = np.hstack([given[:, self.items].toarray(), features])
        found[:, self.items] = known @ self.weights
        return found


def by_feature_weights(model: IALSRecommender, features: np.ndarray) -> np.ndarray:
    """Score strangers by irspack's feature weights alone.

    Its own way counts that a stranger rated nothing as evidence; this one it does not offer, but
    it is the stronger.
    """
    weights = np.asarray(model.trainer_as_ials.core_trainer.user_feature_weight)
    return np.asarray(features @ weights @ model.get_item_embedding().T, dtype=np.float32)


LIGHTFM = [  # (components, epochs, whether each training user has a vector beside the features')
    (10, 10, True),
    (10, 30, True),
    (10, 10, False),
    (32, 10, True),
]


def lightfm_warp(
    train: Dataset, people: People, components: int, epochs: int, own_vectors: bool
) -> Any:
    """Fit LightFM on favourites with the WARP loss; its other settings are its defaults."""
    from lightfm import LightFM  # built from source, so that it may be missing

    features = csr_matrix(people.train)
    if own_vectors:
        features = csr_matrix(hstack([features, identity(len(people.train))]))
    liked = favourites(train.ratings.matrix, train.ratings.scale[1])
    model = LightFM(no_components=components, loss="warp", random_state=0)
    return model.fit(liked.tocoo(), user_features=features, epochs=epochs, num_threads=2)
