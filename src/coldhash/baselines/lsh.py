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
from typing import Self

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt
from scipy.sparse import csr_array, hstack

from coldhash.arrays.checks import Forms, take
from coldhash.baselines.shared import Baseline, Training, group_shares, stack_features
from coldhash.features.groups import FeatureEncoder, Features, GroupEncoder, State
from coldhash.recommender.encoders import Encoded, Encoder
from coldhash.recommender.items import Items
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
        rng, liked = training.rng, training.favourites
        tokens = Tokens.of(training.features, training.groups)
        shape = (self.n_tables, self.n_hashes)
        multipliers = rng.integers(2**64, size=shape, dtype=np.uint64) | np.uint64(1)
        shifts = rng.integers(2**64, size=shape, dtype=np.uint64)
        keys, known = bucket_keys(tokens(training.people), multipliers, shifts)
        buckets, inside, sizes = np.unique(keys[known], return_inverse=True, return_counts=True)
        owners = np.repeat(np.flatnonzero(known), self.n_tables)
        ones = np.ones(inside.size, dtype=np.float32)
        members = csr_array((ones, (inside.ravel(), owners)), shape=(len(buckets), len(known)))
        encoder = BucketEncoder(
            tokens, multipliers, shifts, buckets, sizes.astype(np.float32), self.smoothing
        )
        overall = csr_array(training.popularity[:, None] / np.float32(max(len(known), 1)))
        votes = csr_array(hstack([(members @ liked).T, overall]))
        training.report["buckets"] = len(buckets)
        users = encoder.encode(training.people, None).vectors
        return training.make_recommender("lsh", encoder, users, votes)


NO_TOKEN = np.uint64(np.iinfo(np.uint64).max)
NO_BUCKET = np.uint64(0)
AS_LARGE = 1 - 1e-6


def _means(group: GroupEncoder) -> list[np.ndarray]:
    """Return what replaces an unknown value, by block of numbers: a column, or all if folded."""
    if not group.folded:
        return [column.mean for column in group.columns.values()]
    total = np.zeros(group.width - 1, dtype=np.float32)
    for places, numbers in group.means.values():
        total[places] += numbers
    return [total]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Where the blocks of the columns are in the features side by side."""

    groups: tuple[str, ...]
    blocks: tuple[tuple[int, np.ndarray], ...]  # start, and what an unknown value is filled with

    @classmethod
    def of(cls, features: FeatureEncoder, groups: tuple[str, ...]) -> Tokens:
        """Find the blocks; the constant behind each group is none."""
        blocks, start = [], 0
        for name in groups:
            for mean in _means(features.groups[name]):
                blocks.append((start, mean))
                start += len(mean)
            start += 1
        return cls(groups, tuple(blocks))

    def __call__(self, features: Features) -> csr_array:
        """Mark the tokens of people: a sparse matrix of ones."""
        matrix = stack_features(features, self.groups)
        marked = np.zeros(matrix.shape, dtype=bool)
        for start, mean in self.blocks:
            block = matrix[:, start : start + len(mean)]
            true = block > 0.5
            if len(mean) > 1:
                true |= (block > 0) & (block >= AS_LARGE * block.max(axis=1, keepdims=True))
            marked[:, start : start + len(mean)] = true & (block != mean).any(axis=1, keepdims=True)
        return csr_array(marked)


@dataclass(frozen=True, eq=False)
class BucketEncoder(Encoder):
    """The buckets a person falls into, one a table, and last what is left to popularity.

    In each table a bucket of n members has the weight 1 / (n + smoothing), so that it adds up
    shares of its members, and smoothing / (n + smoothing) goes to everybody's favourites.
    """

    tokens: Tokens
    multipliers: np.ndarray  # tables x hashes, odd
    shifts: np.ndarray
    keys: np.ndarray  # of the buckets, sorted
    sizes: np.ndarray
    smoothing: float

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        keys, known = bucket_keys(self.tokens(features), self.multipliers, self.shifts)
        at = np.searchsorted(self.keys, keys)
        found = (np.append(self.keys, NO_BUCKET)[at] == keys) & (at < len(self.keys))
        found &= known[:, None]
        sizes = np.where(found, np.append(self.sizes, 0)[at], 0) + self.smoothing
        weights = 1 / np.maximum(sizes, 1e-9) / len(self.multipliers)
        vectors = np.zeros((len(features), len(self.keys) + 1), dtype=np.float32)
        rows, _ = np.nonzero(found)
        vectors[rows, at[found]] = weights[found]
        vectors[:, -1] = (self.smoothing * weights).sum(axis=1) * known
        shares = group_shares(features, self.tokens.groups)
        return Encoded(vectors, shares, np.asarray(~found.any(axis=1)))

    def state(self) -> State:
        """Return what only the encoder knows."""
        names = ("multipliers", "shifts", "keys", "sizes")
        json = {"groups": list(self.tokens.groups), "smoothing": self.smoothing}
        return json, {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        json, arrays = state
        tokens = Tokens.of(features, tuple(json["groups"]))
        forms: Forms = {name: ("u8", "tables", "hashes") for name in ("multipliers", "shifts")}
        forms |= {"keys": ("u8", items.width - 1), "sizes": ("f", items.width - 1)}
        return cls(tokens, smoothing=json["smoothing"], **take(arrays, forms))


def bucket_keys(
    tokens: csr_array, multipliers: np.ndarray, shifts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the key of each row in each table, and which rows have any token."""
    n_rows, n_tokens = tokens.shape
    n_tables, n_hashes = multipliers.shape
    names = np.arange(n_tokens, dtype=np.uint64)[:, None]
    hashes = mixed(names * multipliers.ravel() + shifts.ravel())
    least = np.full((n_rows, hashes.shape[1]), NO_TOKEN)  # of each row, for every hash
    known = np.diff(tokens.indptr) > 0
    if known.any():
        starts = tokens.indptr[:-1][known]
        least[known] = np.minimum.reduceat(hashes[tokens.indices], starts, axis=0)
    keys = np.broadcast_to(mixed(np.arange(1, n_tables + 1, dtype=np.uint64)), (n_rows, n_tables))
    for one in range(n_hashes):
        keys = mixed(keys ^ least[:, one::n_hashes])
    return keys, known


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Scatter 64-bit numbers: the last steps of the generator splitmix64 (Steele et al. 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))
