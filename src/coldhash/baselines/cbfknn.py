"""CBFKNN: neighbours in what is known of users; and two ways from features to factors.

    score_i = Σ_v w_v f(s_vi) / Σ_v w_v,    w_v = max(cos(a_u, a_v), 0)  over the K nearest v

    here    paper   note
    a       a       a projection of the features onto their main directions (PCA), or all of them
    f       -       what a neighbour's rating is worth; an item not rated counts as 0

Everybody among the K votes on every item: to divide by those who rated it would rank noise. The
average counts as nothing: an unknown column neither likens nor parts two people.

`map-knn` takes the weighted mean of the neighbours' factors instead of their votes, `map-linear`
a ridge map from features to factors; the factors are those of `MF`.

Gantner, Drumond, Freudenthaler, Rendle and Schmidt-Thieme, "Learning attribute-to-feature mappings
for cold-start recommendations", ICDM 2010.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.baselines.mf import MF
from coldhash.baselines.ridge import stranger_groups
from coldhash.baselines.shared import make_recommender
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import RatingTarget, TargetKind
from coldhash.errors import DataError, SettingError
from coldhash.features.fitting import fit_features
from coldhash.features.groups import FeatureEncoder, Features
from coldhash.recommender.encoders.linear import stack_features
from coldhash.recommender.encoders.neighbours import NeighbourEncoder, average
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_types

Variant = Literal["votes", "map-knn", "map-linear"]

MOST_USERS = 30_000  # a training user's vector of weights is as long as there are training users


@dataclass(frozen=True, kw_only=True)
class CBFKNN:
    """Settings of the neighbourhood, and of the factors where the variant has them.

    Examples
    --------
    >>> from coldhash import read
    >>> model = CBFKNN(n_neighbours=20).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, len(model.recommend({"age": 30}, k=3))
    ('cbfknn', 3)
    """

    variant: Variant = "votes"
    n_neighbours: int = 500  # K
    n_dims: int | None = 16  # of the projection; None: the features as they are
    target: TargetKind = "favourite"  # f; "known": 1 for every rating, "share": the rating
    n_factors: int = 16
    map_ridge: float = 100.0  # λ of "map-linear"

    def __post_init__(self) -> None:
        check_types(self)
        if self.variant not in get_args(Variant):
            raise SettingError(
                f"CBFKNN: variant={self.variant!r}", hint=f"one of {', '.join(get_args(Variant))}"
            )
        if self.n_neighbours < 1 or self.n_factors < 1 or self.map_ridge <= 0:
            raise SettingError(
                f"CBFKNN: n_neighbours={self.n_neighbours}, n_factors={self.n_factors}, "
                f"map_ridge={self.map_ridge}",
                hint="counts from 1, map_ridge above 0",
            )
        if self.n_dims is not None and self.n_dims < 1:
            raise SettingError(f"CBFKNN: n_dims={self.n_dims}", hint="1 or more, or None for all")

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Remember everybody; for the maps, factorise first."""
        if self.variant == "votes":
            return self._votes(data, seed)
        mf = MF(n_factors=self.n_factors, map_ridge=self.map_ridge, target=self.target)
        model = mf.fit(data, seed, callback)
        if self.variant == "map-knn":
            with threadpool_limits(1, "blas"):
                features = model.features.apply(data.users)
                maps = self._maps(model.features, features)
                encoder = NeighbourEncoder.of(
                    features, maps, self.n_neighbours, factors=model.user_vectors
                )
            model = replace(model, encoder=encoder)
        return replace(model, name=self.variant, settings=asdict(self))

    def _votes(self, data: Dataset, seed: int) -> Recommender:
        check_size(len(data.ratings.users))
        with threadpool_limits(1, "blas"):
            features = fit_features(data, seed)
            people = features.apply(data.users)
            encoder = NeighbourEncoder.of(people, self._maps(features, people), self.n_neighbours)
            vectors = encoder.encode(people, None).vectors
        return make_recommender(
            data,
            name="cbfknn",
            settings=self,
            features=features,
            encoder=encoder,
            vectors=votes(data, self.target),
            user_vectors=vectors,
        )

    def _maps(self, encoder: FeatureEncoder, people: Features) -> dict[str, np.ndarray]:
        """Give the rows of the projection that belong to each group."""
        groups = stranger_groups(encoder)
        X = stack_features(people, groups).astype(np.float64)
        start, maps = 0, {}
        for name in groups:
            end = start + encoder.widths[name]
            X[:, start:end] -= people.has[name][:, None] * average(people, name)
            maps[name] = slice(start, end)
            start = end
        directions = np.eye(X.shape[1])
        if self.n_dims is not None:
            directions = np.linalg.eigh(X.T @ X)[1][:, ::-1][:, : self.n_dims]
        return {name: directions[rows].astype(np.float32) for name, rows in maps.items()}


def votes(data: Dataset, target: TargetKind) -> csr_array:
    """Give items x users: what each user's rating of an item is worth."""
    ratings = data.ratings.matrix
    values = RatingTarget(target, data.ratings.scale[1])(ratings.data)
    return csr_array((values, ratings.indices, ratings.indptr), shape=ratings.shape).T.tocsr()


def check_size(n_users: int) -> None:
    """Refuse what would not fit in memory."""
    if n_users > MOST_USERS:
        raise DataError(
            f"{n_users:,} users would have a weight for each other",
            hint=f"up to {MOST_USERS:,}; CBFKNN(variant='map-knn') takes more",
        )
