"""Ridge: features -> a row of favourites, real-valued: what features alone predict.

    min  ‖Y - X W‖² + λ‖W‖²

with Y the favourites (1, or 0) and X the features of the groups that a stranger may have, side by
side. Items are the columns of W: as many floats an item as there are features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import PositiveFloat

from coldhash.baselines.shared import Baseline, StackEncoder, Training, solve_ridge
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class Ridge(Baseline):
    """Settings of the regression.

    Parameters
    ----------
    ridge
        Strength of the shrinkage (λ).

    Examples
    --------
    >>> from coldhash import read
    >>> model = Ridge(ridge=100.0).fit(read("sample", n_users=200, n_items=60))
    >>> model.has_codes, len(model.recommend({"age": 30}, k=3))
    (False, 3)
    """

    ridge: PositiveFloat = 400.0

    def _fit(self, training: Training) -> Recommender:
        """Solve one linear system for all items."""
        X, Y = training.stacked, training.favourites
        W = solve_ridge(X, np.asarray((Y.T @ X).T), self.ridge)
        items = np.ascontiguousarray(W.T, dtype=np.float32)
        return training.make_recommender("ridge", StackEncoder(training.groups), X, items)
