"""Popularity and ridge: the controls that every table must show.

Popularity: items are ranked by how many favourites they have, for everybody alike.

Ridge: features -> a row of favourites, real-valued: what features alone predict.

    min  ‖Y - X W‖² + λ‖W‖²

with Y the favourites (1, or 0) and X the features of the groups that a stranger may have, side by
side. Items are the columns of W: as many floats an item as there are features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import PositiveFloat
from scipy.sparse import csr_array

from coldhash.baselines.shared import Baseline, StackEncoder, Training, solve_ridge
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders import Encoded, Encoder
from coldhash.recommender.items import Items
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class Popularity(Baseline):
    """Counts of favourites; there is nothing to set.

    Examples
    --------
    >>> from coldhash import read
    >>> model = Popularity().fit(read("sample", n_users=200, n_items=60))
    >>> model.recommend({"gender": "male"}, k=3).fallback.tolist()
    [True]
    """

    def _fit(self, training: Training) -> Recommender:
        """Count the favourites."""
        encoder, items = ConstantEncoder(), training.popularity[:, None]
        users = encoder.encode(training.people, None).vectors
        return training.make_recommender("popularity", encoder, users, items)


@dataclass(frozen=True, eq=False)
class ConstantEncoder(Encoder):
    """The same vector for everybody, a one."""

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; nothing that is known of them counts."""
        n = len(features)
        return Encoded(np.ones((n, 1), dtype=np.float32), {}, np.ones(n, dtype=bool))

    def state(self) -> State:
        """Return everything needed to rebuild the encoder: nothing."""
        return {}, {}

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        return cls()


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
