"""CBFKNN: the users with the most similar features vote.

    score_i = Σ_v w_v f(s_vi) / Σ_v w_v,    w_v = max(cos(a_u, a_v), 0)  over the K nearest v

    here    paper   note
    a       a       a projection of the features onto their main directions (PCA)
    f       -       1 for a favourite of a neighbour, 0 for every other item

All of the K vote on every item: to divide by those who rated it would rank noise. Features are
centred, so that an unknown column makes two people neither more nor less similar.

Gantner, Drumond, Freudenthaler, Rendle and Schmidt-Thieme, "Learning attribute-to-feature mappings
for cold-start recommendations", ICDM 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.baselines.shared import Baseline, Training, group_shares
from coldhash.errors import DataError
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders import Encoded, Encoder, scale_rows
from coldhash.recommender.items import Items
from coldhash.recommender.recommender import Recommender

_MAX_USERS = 30_000  # a training user's vector of weights is as long as there are training users


@dataclass(frozen=True, kw_only=True)
class CBFKNN(Baseline):
    """Settings of the neighbourhood.

    Parameters
    ----------
    n_neighbours
        Number of neighbours (K).
    n_dims
        Dimensions of the projection of features, at most.

    Examples
    --------
    >>> from coldhash import read
    >>> model = CBFKNN(n_neighbours=20).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, len(model.recommend({"age": 30}, k=3))
    ('cbfknn', 3)
    """

    n_neighbours: PositiveInt = 500
    n_dims: PositiveInt = 16

    def _fit(self, training: Training) -> Recommender:
        """Store the training users."""
        people, groups = training.people, training.groups
        if len(people) > _MAX_USERS:
            raise DataError(
                f"{len(people):,} users would have a weight for each other",
                hint=f"up to {_MAX_USERS:,}; MF takes more",
            )
        means = {name: average(people, name) for name in groups}
        maps = self._maps(training, means)
        averages = {name: times(mean[None, :], maps[name])[0] for name, mean in means.items()}
        known = _parts(people, maps, averages)
        encoder = NeighbourEncoder(maps, averages, known, self.n_neighbours)
        users = encoder.encode(people, None).vectors
        votes = training.targets("favourite").T.tocsr()
        return training.make_recommender("cbfknn", encoder, users, votes)

    def _maps(self, training: Training, means: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the rows of the projection that belong to each group."""
        widths = [len(mean) for mean in means.values()]
        has = np.column_stack([training.people.has[name] for name in means])
        centre = np.concatenate(list(means.values()))
        X = training.stacked.astype(np.float64) - np.repeat(has, widths, axis=1) * centre
        directions = np.linalg.eigh(X.T @ X)[1][:, ::-1][:, : self.n_dims]
        parts = np.split(directions, np.cumsum(widths)[:-1])
        return {name: part.astype(np.float32) for name, part in zip(means, parts, strict=True)}


PEOPLE_COMPARED = 256  # people compared at a time
NOTHING = 1e-6  # a profile shorter than this is the average one, and has no direction


@dataclass(frozen=True, eq=False)
class NeighbourEncoder(Encoder):
    """Weights over the training users.

    A profile is the sum of what each group adds to it: its features, less their average, through a
    map. The likeness of two people is the cosine of their profiles, both made of the groups that
    the first one has. The `n_neighbours` most alike weigh what they are alike, if that is above 0;
    weights add up to 1. Ties go to the first in row order.
    """

    maps: dict[str, np.ndarray]
    averages: dict[str, np.ndarray]  # of the mapped features
    known: np.ndarray  # groups x training users x dimensions: what the groups add
    n_neighbours: int

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        has = np.column_stack([features.has[name] for name in self.maps])
        parts = _parts(features, self.maps, self.averages)
        vectors = np.zeros((len(features), self.known.shape[1]), dtype=np.float32)
        for seen in np.unique(has, axis=0):
            rows = np.flatnonzero((has == seen).all(axis=1))
            people = self._directions(parts[seen][:, rows])
            known = np.ascontiguousarray(self._directions(self.known[seen]).T)
            vectors[rows] = nearest(people, known, self.n_neighbours)
        fallback = np.asarray(~vectors.any(axis=1))
        return Encoded(vectors, group_shares(features, tuple(self.maps)), fallback)

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
        return {"groups": list(self.maps), "n_neighbours": self.n_neighbours}, arrays

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        json, arrays = state
        groups, widths = json["groups"], features.widths
        forms: Forms = {f"map/{name}": ("f", widths[name], "dimensions") for name in groups}
        forms |= {f"average/{name}": ("f", "dimensions") for name in groups}
        forms |= {"known": ("f", len(groups), items.width, "dimensions")}
        own = take(arrays, forms)
        return cls(
            {name: own[f"map/{name}"] for name in groups},
            {name: own[f"average/{name}"] for name in groups},
            own["known"],
            json["n_neighbours"],
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
        rows = slice(start, start + PEOPLE_COMPARED)
        alike = times(people[rows], known)
        least = np.partition(alike, place, axis=1)[:, place : place + 1]
        above, tied = alike > least, alike == least
        n_tied = known.shape[1] - place - above.sum(axis=1, keepdims=True)
        kept = above | (tied & (np.cumsum(tied, axis=1) <= n_tied))
        weights[rows] = scale_rows(np.where(kept, np.maximum(alike, 0), 0))
    return weights
