"""LSH: people in the same bucket, or with nearly the same code, vote. Nothing is learned.

Min-hash (`LSH`): a person is a set of tokens, the things known of them. The least hash of a set
under a random hash is the same for two sets with a chance of their Jaccard index J, so

    P(same bucket in one of q tables of p min-hashes each) = J^p
    score_i = mean over the tables  (favourites of i in the bucket) / (members of the bucket)

Sign (`SignLSH`): the code of a person is sgn(x G) with a random G, the likeness of two people the
share of bits that agree beyond one half, and the nearest vote. The chance that a bit agrees is
1 - angle / π.

Das, Datar, Garg and Rajaram, "Google news personalization: scalable online collaborative
filtering", WWW 2007. Charikar, "Similarity estimation techniques from rounding algorithms",
STOC 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, hstack
from threadpoolctl import threadpool_limits

from coldhash.baselines.cbfknn import check_size, votes
from coldhash.baselines.ridge import stranger_groups
from coldhash.baselines.shared import favourite_matrix, make_recommender
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import TargetKind
from coldhash.errors import SettingError
from coldhash.features.fitting import fit_features
from coldhash.recommender.encoders.buckets import BucketEncoder, Tokens, bucket_keys
from coldhash.recommender.encoders.neighbours import NeighbourEncoder
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_types


@dataclass(frozen=True, kw_only=True)
class LSH:
    """Settings of the tables.

    Examples
    --------
    >>> from coldhash import read
    >>> model = LSH(n_tables=4).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, len(model.recommend({"gender": "female"}, k=3))
    ('lsh', 3)
    """

    n_tables: int = 10  # q
    n_hashes: int = 1  # p, to a table
    smoothing: float = 140.0  # members' worth of everybody's favourites in each bucket

    def __post_init__(self) -> None:
        check_types(self)
        if self.n_tables < 1 or self.n_hashes < 1 or self.smoothing < 0:
            raise SettingError(
                f"LSH: n_tables={self.n_tables}, n_hashes={self.n_hashes}, "
                f"smoothing={self.smoothing}",
                hint="counts from 1, smoothing 0 or more",
            )

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Fill the tables."""
        del callback
        rng = np.random.default_rng(seed)
        features = fit_features(data, seed)
        people = features.apply(data.users)
        tokens = Tokens.of(features, stranger_groups(features))
        shape = (self.n_tables, self.n_hashes)
        multipliers = rng.integers(2**64, size=shape, dtype=np.uint64) | np.uint64(1)
        shifts = rng.integers(2**64, size=shape, dtype=np.uint64)
        keys, told = bucket_keys(tokens(people), multipliers, shifts)
        buckets, inside, sizes = np.unique(keys[told], return_inverse=True, return_counts=True)
        owners = np.repeat(np.flatnonzero(told), self.n_tables)
        ones = np.ones(inside.size, dtype=np.float32)
        members = csr_array((ones, (inside.ravel(), owners)), shape=(len(buckets), len(told)))
        encoder = BucketEncoder(
            tokens, multipliers, shifts, buckets, sizes.astype(np.float32), self.smoothing
        )
        liked = favourite_matrix(data)
        popularity = np.asarray(liked.sum(axis=0), dtype=np.float32)
        overall = csr_array(popularity[:, None] / np.float32(max(len(told), 1)))
        return make_recommender(
            data,
            name="lsh",
            settings=self,
            features=features,
            encoder=encoder,
            vectors=csr_array(hstack([(members @ liked).T, overall])),
            user_vectors=encoder.encode(people, None).vectors,
            report={"buckets": len(buckets)},
        )


@dataclass(frozen=True, kw_only=True)
class SignLSH:
    """Settings of the codes of users, and of the vote.

    Examples
    --------
    >>> from coldhash import read
    >>> model = SignLSH(n_neighbours=20).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, len(model.recommend({"gender": "female"}, k=3))
    ('sign-lsh', 3)
    """

    n_bits: int = 64
    n_neighbours: int = 650
    target: TargetKind = "favourite"  # what a neighbour's rating is worth

    def __post_init__(self) -> None:
        check_types(self)
        if self.n_bits < 1 or self.n_neighbours < 1:
            raise SettingError(
                f"SignLSH: n_bits={self.n_bits}, n_neighbours={self.n_neighbours}", hint="from 1"
            )

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Draw the directions and remember everybody."""
        del callback
        check_size(len(data.ratings.users))
        rng = np.random.default_rng(seed)
        with threadpool_limits(1, "blas"):
            features = fit_features(data, seed)
            people = features.apply(data.users)
            maps = {
                name: rng.standard_normal((features.widths[name], self.n_bits)).astype(np.float32)
                for name in stranger_groups(features)
            }
            encoder = NeighbourEncoder.of(people, maps, self.n_neighbours, binary=True)
            vectors = encoder.encode(people, None).vectors
        return make_recommender(
            data,
            name="sign-lsh",
            settings=self,
            features=features,
            encoder=encoder,
            vectors=votes(data, self.target),
            user_vectors=vectors,
        )
