"""Ridge: features -> a row of favourites, real-valued. The control for what features can say.

    min  ‖Y - X W‖² + λ‖W‖²

with Y the favourites (1, or 0) and X the features of the groups that a stranger may have, side by
side. Items are the columns of W: as many floats an item as there are features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from coldhash.baselines.shared import favourite_matrix, make_recommender
from coldhash.data.dataset import Dataset
from coldhash.errors import DataError, SettingError
from coldhash.features.fitting import fit_features
from coldhash.features.groups import FeatureEncoder, Features
from coldhash.features.preference import PREFERENCE
from coldhash.recommender.encoders.linear import StackEncoder, stack_features
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_types


@dataclass(frozen=True, kw_only=True)
class Ridge:
    """Settings: the strength of the shrinkage.

    Examples
    --------
    >>> from coldhash import read
    >>> model = Ridge(ridge=100.0).fit(read("sample", n_users=200, n_items=60))
    >>> model.has_codes, len(model.recommend({"age": 30}, k=3))
    (False, 3)
    """

    ridge: float = 400.0  # λ

    def __post_init__(self) -> None:
        check_types(self)
        if not self.ridge > 0:
            raise SettingError(f"Ridge: ridge={self.ridge}", hint="above 0")

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Solve one linear system for all items."""
        del callback
        encoder = fit_features(data, seed)
        features = encoder.apply(data.users)
        groups = stranger_groups(encoder)
        X, Y = stack_features(features, groups), favourite_matrix(data)
        with threadpool_limits(1, "blas"):
            W = solve_ridge(X, np.asarray((Y.T @ X).T), self.ridge)
        return make_recommender(
            data,
            name="ridge",
            settings=self,
            features=encoder,
            encoder=StackEncoder(groups),
            vectors=np.ascontiguousarray(W.T, dtype=np.float32),
            user_vectors=X,
        )


def stranger_groups(encoder: FeatureEncoder) -> tuple[str, ...]:
    """Name the groups that somebody without ratings may have."""
    groups = tuple(name for name in encoder.widths if name != PREFERENCE)
    if not groups:
        raise DataError(
            "there are no user features to predict from",
            hint="give a user table whose plan has at least one group",
        )
    return groups


def solve_ridge(X: np.ndarray, XtY: np.ndarray, ridge: float) -> np.ndarray:
    """Give (X'X + λI)⁻¹ X'Y, in double precision."""
    gram = X.T.astype(np.float64) @ X + ridge * np.eye(X.shape[1])
    return np.linalg.solve(gram, XtY.astype(np.float64))


def ridge_map(
    features: Features, groups: tuple[str, ...], Y: np.ndarray, ridge: float
) -> np.ndarray:
    """Learn a map from the groups' features to the rows of Y."""
    X = stack_features(features, groups)
    return solve_ridge(X, X.T @ Y, ridge).astype(np.float32)
