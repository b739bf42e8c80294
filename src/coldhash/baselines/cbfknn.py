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
from typing import Literal, Self

import numpy as np
from pydantic import PositiveFloat, PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.baselines.mf import MF
from coldhash.baselines.shared import Baseline, Training, stack_features
from coldhash.data.ratings import TargetKind
from coldhash.errors import DataError
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders import Encoded, Encoder, group_shares, scale_rows
from coldhash.recommender.items import Items
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


PEOPLE_COMPARED = 256  # people compared at a time
NOTHING = 1e-6  # a profile shorter than this is the average one, and has no direction


@dataclass(frozen=True, eq=False)
class NeighbourEncoder(Encoder):
    """Weights over the training users, or the weighted mean of their factors.

    A profile is the sum of what each group adds to it: its features, less their average, through a
    map. The likeness of two people is the cosine of their profiles, both made of the groups that
    the first one has. The `n_neighbours` most alike weigh what
    they are alike, if that is above 0; weights add up to 1. Ties go to the first in row order.
    """

    maps: dict[str, np.ndarray]
    averages: dict[str, np.ndarray]  # of the mapped features
    known: np.ndarray  # groups x training users x dimensions: what the groups add
    n_neighbours: int
    factors: np.ndarray | None = None  # of the training users

    @classmethod
    def of(
        cls,
        features: Features,
        maps: dict[str, np.ndarray],
        n_neighbours: int,
        factors: np.ndarray | None = None,
    ) -> NeighbourEncoder:
        """Remember the training users."""
        averages = {
            name: times(average(features, name)[None, :], matrix)[0]
            for name, matrix in maps.items()
        }
        known = _parts(features, maps, averages)
        return cls(maps, averages, known, n_neighbours, factors)

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        del history
        has = np.column_stack([features.has[name] for name in self.maps])
        parts = _parts(features, self.maps, self.averages)
        vectors = np.zeros((len(features), self.known.shape[1]), dtype=np.float32)
        for seen in np.unique(has, axis=0):
            rows = np.flatnonzero((has == seen).all(axis=1))
            people = self._directions(parts[seen][:, rows])
            known = np.ascontiguousarray(self._directions(self.known[seen]).T)
            vectors[rows] = nearest(people, known, self.n_neighbours)
        fallback = ~vectors.any(axis=1)
        if self.factors is not None:
            vectors = times(vectors, self.factors)
        return Encoded(vectors, group_shares(features, tuple(self.maps)), np.asarray(fallback))

    def _directions(self, parts: np.ndarray) -> np.ndarray:
        """Add the groups up and scale to length 1; who is average in all of them stays 0."""
        profiles = parts.sum(axis=0)
        lengths = np.linalg.norm(profiles, axis=1, keepdims=True)
        return np.where(lengths > NOTHING, profiles / np.maximum(lengths, NOTHING), np.float32(0))

    def state(self) -> State:
        """Return everything needed to rebuild the encoder."""
        arrays = {f"map/{name}": matrix for name, matrix in self.maps.items()}
        arrays |= {f"average/{name}": row for name, row in self.averages.items()}
        arrays["known"] = self.known
        if self.factors is not None:
            arrays["factors"] = self.factors
        return {"groups": list(self.maps), "n_neighbours": self.n_neighbours}, arrays

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        json, arrays = state
        groups, widths = json["groups"], features.widths
        forms: Forms = {f"map/{name}": ("f", widths[name], "dimensions") for name in groups}
        forms |= {f"average/{name}": ("f", "dimensions") for name in groups}
        n_users: int | str = items.width  # without factors, a vector is weights of users
        if "factors" in arrays:
            n_users = "users"
            forms["factors"] = ("f", n_users, items.width)
        own = take(arrays, forms | {"known": ("f", len(groups), n_users, "dimensions")})
        return cls(
            {name: own[f"map/{name}"] for name in groups},
            {name: own[f"average/{name}"] for name in groups},
            own["known"],
            json["n_neighbours"],
            own.get("factors"),
        )


def average(features: Features, name: str) -> np.ndarray:
    """Return the average features of those who have a group."""
    total = np.asarray(features.matrices[name].sum(axis=0, dtype=np.float64))
    return np.asarray(total / max(features.has[name].sum(), 1), dtype=np.float32)


def _parts(
    features: Features, maps: dict[str, np.ndarray], averages: dict[str, np.ndarray]
) -> np.ndarray:
    """Return what each group adds to each profile; nothing where a person does not have it."""
    parts = [
        (times(features.matrices[name], matrix) - averages[name]) * features.has[name][:, None]
        for name, matrix in maps.items()
    ]
    return np.stack(parts).astype(np.float32)


def nearest(people: np.ndarray, known: np.ndarray, n_neighbours: int) -> np.ndarray:
    """Weigh the columns of `known` for each row of `people` by their product, the best alone."""
    place = known.shape[1] - min(n_neighbours, known.shape[1])
    weights = np.empty((len(people), known.shape[1]), dtype=np.float32)
    for start in range(0, len(people), PEOPLE_COMPARED):
        alike = times(people[start : start + PEOPLE_COMPARED], known)
        least = np.partition(alike, place, axis=1)[:, place : place + 1]
        above, level = alike > least, alike == least
        n_level = known.shape[1] - place - above.sum(axis=1, keepdims=True)
        kept = above | (level & (np.cumsum(level, axis=1) <= n_level))
        weights[start : start + PEOPLE_COMPARED] = scale_rows(
            np.where(kept, np.maximum(alike, 0), 0)
        )
    return weights
