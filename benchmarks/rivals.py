"""What a practitioner would use instead: implicit's ALS and irspack's feature-aware iALS.

Their settings were chosen on users held out of the training part (docs/paper.md says how); where
several settings are listed, the best on the test users counts, which favours the rival.
"""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
from implicit.als import AlternatingLeastSquares
from irspack import IALSRecommender
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from coldhash import Dataset
from coldhash.encoders.stack import stacked
from coldhash.features.fitting import fit_features
from coldhash.models.ridge import solve_ridge, stranger_groups
from coldhash.targets import RatingTarget


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
    matrix = as_implicit(ratings)
    matrix.data = RatingTarget("favourite", highest)(matrix.data)
    return matrix


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
        encoder = fit_features(train)
        groups = stranger_groups(encoder)
        self.train = stacked(encoder.apply(train.users), groups)
        self.cold = stacked(encoder.apply(cold.users), groups)

    def mapped(self, model: AlternatingLeastSquares, int8: bool = False) -> np.ndarray:
        """Score with user factors predicted from features by ridge regression."""
        items = model.item_factors
        if int8:
            scale = np.abs(items).max(axis=0) / 127
            items = np.rint(items / scale).astype(np.int8) * scale
        to_factors = solve_ridge(self.train, self.train.T @ model.user_factors, 30.0)
        return (self.cold @ to_factors).astype(np.float32) @ items.T.astype(np.float32)


IRSPACK = [  # (which ratings, alpha0, reg, lambda_user_feature)
    (everything, 0.1, 0.015, 3000.0),
    (favourites, 1.0, 0.01, 1000.0),
    (everything, 0.3, 0.01, 10000.0),
]


def irspack_models(train: Dataset, people: People) -> list[tuple[object, IALSRecommender]]:
    """Fit irspack's iALS with user features, 64 components, by each setting."""
    fitted = []
    highest = train.ratings.scale[1]
    for pick, alpha0, reg, strength in IRSPACK:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            model = IALSRecommender(
                pick(train.ratings.matrix, highest),
                n_components=64,
                alpha0=alpha0,
                reg=reg,
                user_features=people.train,
                lambda_user_feature=strength,
                n_threads=2,
                train_epochs=12,
            )
            model.learn()
        fitted.append((pick, model))
    return fitted
