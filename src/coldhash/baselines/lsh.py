"""LSH: people in the same bucket vote. Nothing is learned.

A person is a set of tokens, the values that are known of them. The least hash of a set under a
random hash is the same for two sets with the probability of their Jaccard index J (min-hash), so

    P(same bucket in one of q tables of p min-hashes each) = J^p
    score_i = mean over the tables  (favourites of i in the bucket) / (members of the bucket)

Das, Datar, Garg and Rajaram, "Google news personalization: scalable online collaborative
filtering", WWW 2007.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt
from scipy.sparse import csr_array, hstack

from coldhash.baselines.shared import Baseline, Training
from coldhash.recommender.encoders.buckets import BucketEncoder, Tokens, bucket_keys
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class LSH(Baseline):
    """Settings of the tables.

    Parameters
    ----------
    n_tables
        Number of hash tables (q).
    n_hashes
        Min-hashes that make the key of a table (p).
    smoothing
        How many users' worth of overall popularity every bucket has.

    Examples
    --------
    >>> from coldhash import read
    >>> model = LSH(n_tables=4).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, len(model.recommend({"gender": "female"}, k=3))
    ('lsh', 3)
    """

    n_tables: PositiveInt = 10
    n_hashes: PositiveInt = 1
    smoothing: NonNegativeFloat = 140.0

    def _fit(self, training: Training) -> Recommender:
        """Fill the tables."""
        rng, people, liked = training.rng, training.people, training.favourites
        tokens = Tokens.of(training.features, training.groups)
        shape = (self.n_tables, self.n_hashes)
        multipliers = rng.integers(2**64, size=shape, dtype=np.uint64) | np.uint64(1)
        shifts = rng.integers(2**64, size=shape, dtype=np.uint64)
        keys, known = bucket_keys(tokens(people), multipliers, shifts)
        buckets, inside, sizes = np.unique(keys[known], return_inverse=True, return_counts=True)
        owners = np.repeat(np.flatnonzero(known), self.n_tables)
        ones = np.ones(inside.size, dtype=np.float32)
        members = csr_array((ones, (inside.ravel(), owners)), shape=(len(buckets), len(known)))
        encoder = BucketEncoder(
            tokens, multipliers, shifts, buckets, sizes.astype(np.float32), self.smoothing
        )
        popularity = np.asarray(liked.sum(axis=0), dtype=np.float32)
        overall = csr_array(popularity[:, None] / np.float32(max(len(known), 1)))
        return training.make_recommender(
            "lsh",
            encoder,
            encoder.encode(people, None).vectors,
            vectors=csr_array(hstack([(members @ liked).T, overall])),
            report={"buckets": len(buckets)},
        )
