"""CBFKNN: the users with the most similar features vote; and two maps from features to factors.

    score_i = Σ_v w_v f(s_vi) / Σ_v w_v,    w_v = max(cos(a_u, a_v), 0)  over the K nearest v

    here    paper   note
    a       a       a projection of the features onto their main directions (PCA), or all of them
    f       -       what a neighbour's rating is worth; an item not rated counts as 0

All of the K vote on every item: to divide by those who rated it would rank noise. Features are
centred, so that an unknown column makes two people neither more nor less similar.

`map-knn` takes the weighted mean of the neighbours' factors instead of their votes, `map-linear`
a ridge map from features to factors; the factors are those of `MF`.

Gantner, Drumond, Freudenthaler, Rendle and Schmidt-Thieme, "Learning attribute-to-feature mappings
for cold-start recommendations", ICDM 2010.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from coldhash.baselines.mf import MF
from coldhash.baselines.shared import Baseline, Training
from coldhash.data.ratings import TargetKind
from coldhash.errors import DataError
from coldhash.recommender.encoders.linear import stack_features
from coldhash.recommender.encoders.neighbours import NeighbourEncoder, average
from coldhash.recommender.recommender import Recommender

_MAX_USERS = 30_000  # a training user's vector of weights is as long as there are training users


@dataclass(frozen=True, kw_only=True)
class CBFKNN(Baseline):
    """Settings of the neighbourhood, and of the factors where the variant has them.

    Parameters
    ----------
    variant
        "votes" of the neighbours, the mean of their factors ("map-knn"), or a linear map from
        features to factors ("map-linear").
    n_neighbours
        Number of neighbours (K).
    n_dims
        Dimensions of the projection of features; None: the features as they are.
    target
        What a rating is worth (f), as in `MFDCF`.
    n_factors
        Number of factors of the two maps.
    map_ridge
        Ridge of "map-linear".

    Examples
    --------
    >>> from coldhash import read
    >>> model = CBFKNN(n_neighbours=20).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, len(model.recommend({"age": 30}, k=3))
    ('cbfknn', 3)
    """

    variant: Literal["votes", "map-knn", "map-linear"] = "votes"
    n_neighbours: PositiveInt = 500
    n_dims: PositiveInt | None = 16
    target: TargetKind = "favourite"
    n_factors: PositiveInt = 16
    map_ridge: PositiveFloat = 100.0

    def _fit(self, training: Training) -> Recommender:
        """Store the training users; for the maps, factorise first."""
        if self.variant == "votes":
            return self._fit_votes(training)
        mf = MF(n_factors=self.n_factors, map_ridge=self.map_ridge, target=self.target)
        model = mf.fit(training.data, training.seed, training.callback)
        if self.variant == "map-knn":
            maps = self._maps(training)
            encoder = NeighbourEncoder.of(
                training.people, maps, self.n_neighbours, factors=model.user_vectors
            )
            model = replace(model, encoder=encoder)
        return replace(model, name=self.variant, settings=asdict(self))

    def _fit_votes(self, training: Training) -> Recommender:
        n_users = len(training.people)
        if n_users > _MAX_USERS:
            raise DataError(
                f"{n_users:,} users would have a weight for each other",
                hint=f"up to {_MAX_USERS:,}; CBFKNN(variant='map-knn') takes more",
            )
        maps = self._maps(training)
        encoder = NeighbourEncoder.of(training.people, maps, self.n_neighbours)
        users = encoder.encode(training.people, None).vectors
        votes = training.targets(self.target).T.tocsr()
        return training.make_recommender("cbfknn", encoder, users, vectors=votes)

    def _maps(self, training: Training) -> dict[str, np.ndarray]:
        """Return the rows of the projection that belong to each group."""
        groups, people = training.groups, training.people
        X = stack_features(people, groups).astype(np.float64)
        start, maps = 0, {}
        for name in groups:
            end = start + training.features.widths[name]
            X[:, start:end] -= people.has[name][:, None] * average(people, name)
            maps[name] = slice(start, end)
            start = end
        directions = np.eye(X.shape[1])
        if self.n_dims is not None:
            directions = np.linalg.eigh(X.T @ X)[1][:, ::-1][:, : self.n_dims]
        return {name: directions[rows].astype(np.float32) for name, rows in maps.items()}
