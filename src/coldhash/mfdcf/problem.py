"""What the equations of MFDCF work on: targets, feature groups and settings, prepared once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.compiled import compiled
from coldhash.arrays.products import times
from coldhash.data.dataset import UserRecords
from coldhash.data.feedback import Scale
from coldhash.data.ratings import RatingTarget
from coldhash.features.groups import FeatureEncoder, Matrix, mix_bits
from coldhash.features.people import as_columns
from coldhash.partitions import Partitions, PerPartition, add_up

STRANGER_HAS = 0.7  # the share of a stranger's groups that are known, if there are several
HELD_OUT = 1000  # users wanted outside of the item step, to judge what histories say
HELD_SHARES = (0.1, 0.25)  # the least and the greatest share of users held out
FEW_RATINGS = 10  # with so many, a user's vector says about as much as the features
BY_ROW, BY_COLUMN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
MAX_STEPS = 1024  # bits that the highest level may be worth
REPORTED = 50_000  # entities that a report looks at
ToPreference = Callable[[csr_array], np.ndarray]  # users x items: users x width and a constant
PREFERENCE = "preference"  # the name of the group
_OVERSAMPLING = 16  # directions drawn beyond the ones wanted
_ITERATIONS = 3  # of the subspace: the spectrum of word counts decays slowly
_SAMPLE = 1 << 25  # numbers (users x width) that a projection is learned from


@dataclass(frozen=True, eq=False)
class UserBlock:
    """The users of one partition as the equations see them; nothing here changes in a fit."""

    first: int  # the row of the first user
    S: csr_array  # targets, users x items; what is unknown is 0
    St: csr_array  # its transpose, of the trained users only
    X: dict[str, Matrix]  # features by group; rows of zeros for users without the group
    has: dict[str, np.ndarray]  # users x 1: 1 for the users who have the group
    trained: np.ndarray  # which users the item step learns from

    def drawn(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Draw which groups (users x 1) each user would bring as a stranger, who has no ratings.

        Of several groups a random part is left out, so that every subset a stranger may have
        occurs.
        """
        if len(names) < 2:
            return {name: self.has[name] for name in names}
        has = np.hstack([self.has[name] for name in names])
        rows = self.first + np.arange(len(has))[:, None]
        kept = has * (uniform(rows, 2 + np.arange(len(names))) < STRANGER_HAS)
        has = np.where(kept.any(axis=1, keepdims=True), kept, has)
        return {name: has[:, at, None].astype(np.float32) for at, name in enumerate(names)}


@dataclass(frozen=True, eq=False)
class Group:
    """What all users together say of one feature group.

    Features count by their relevance r: the ridge is ε‖R⁻¹W‖² with R = diag(r), 1 unless chosen.
    """

    gram: np.ndarray  # X'X
    relevance: np.ndarray  # r, features x 1
    ridge: float  # ε
    counts: list[int]  # users who have the group, by partition
    columns: np.ndarray | None  # which column each feature belongs to; None: all count alike

    @cached_property
    def decomposed(self) -> tuple[np.ndarray, np.ndarray]:
        """The eigenvalues of R X'X R = Q diag(e) Q', and R Q: in it the ridge is the identity."""
        eigenvalues, Q = np.linalg.eigh(self.relevance * self.gram * self.relevance.T)
        return np.maximum(eigenvalues, 0.0), self.relevance * Q

    def map(self, XtH: np.ndarray, extra: float = 0.0, V: np.ndarray | None = None) -> np.ndarray:
        """Solve (14): ridge regression of H on X, stiffer by `extra` along the directions V."""
        eigenvalues, U = self.decomposed
        rotated = U.T @ XtH
        plain = rotated / (eigenvalues + self.ridge)[:, None]
        if V is not None and extra > 0:
            stiff = rotated / (eigenvalues + self.ridge + extra)[:, None]
            plain = plain + (stiff - plain) @ V @ V.T
        return (U @ plain).astype(np.float32)  # type: ignore[no-any-return]

    def penalised(self, W: np.ndarray) -> np.ndarray:
        """Return R⁻¹W, which the ridge and the retained rank are about."""
        return np.asarray(W / self.relevance)


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that stays fixed while the steps alternate."""

    users: Partitions
    n_users: int
    blocks: PerPartition[UserBlock]
    target: RatingTarget  # what ratings are worth
    sums: ItemSums
    known: float  # ‖T V½‖², which no step changes
    item_weights: np.ndarray  # V: items x 1, mean 1
    level: Level  # what the average person makes of each item
    noise: np.ndarray  # mean square of the targets T of each item, items x 1
    groups: dict[str, Group]
    groups_of_strangers: tuple[str, ...]  # the groups that somebody without ratings may have
    fit_weight: float | None  # α; None: from the noise of user vectors
    code_weight: float  # β
    rank_weight: float  # γ
    retained_rank: int  # k
    stranger_weight: float
    stranger_code_share: float


class ItemSums(NamedTuple):
    """What is added up over users while their blocks are prepared, by item."""

    targets: np.ndarray  # sums of entries of S
    norms: np.ndarray  # sums of squared entries of S
    favourites: np.ndarray  # counts
    ratings: np.ndarray  # counts
    rated: np.ndarray  # sums of ratings
    squares: float  # the sum of all squared ratings
    known: float  # Σ_u n / (n + FEW_RATINGS), with n the number of ratings of a user


@dataclass(frozen=True, eq=False)
class Level:
    """What every item is worth to the average person, and the scale on which people differ.

    With a level, a person is expected to make  p + √p (h·d)  of an item: the fit is to the targets
    T = (S - 1m') / g  with m the mean of an item's targets and g = √p. Without, T = S.

    Parameters
    ----------
    gains
        g, items x 1: the root of the share p of users whose favourite the item is.
    means
        m, items x 1.
    bytes
        The level of each item in 8 bits: g in units of `unit`. None without a level.
    unit
        The step between two levels.
    """

    gains: np.ndarray
    means: np.ndarray
    bytes: np.ndarray | None = None
    unit: float = 0.0

    @classmethod
    def of(cls, sums: ItemSums, n_users: int) -> Level:
        """Compute levels; they are even in √p, on which scale counts have equal noise."""
        roots = np.sqrt((sums.favourites + 0.5) / (n_users + 1))
        unit = float(roots.max() / 255)
        levels = np.maximum(np.rint(roots / unit), 1).astype(np.uint8)
        gains = (levels * np.float32(unit)).astype(np.float32)
        means = (sums.targets / n_users).astype(np.float32)
        return cls(gains[:, None], means[:, None], levels, unit)

    def tables(self, length: float) -> tuple[np.ndarray | None, ...]:
        """Return levels, the gain of each, and how many bits each is worth.

        By the codes of people, √p + h·d/2 has the order of √p / s - (bits that differ),
        with s the length of a coordinate of h.
        """
        if self.bytes is None:
            return None, None, None
        gains = (np.arange(256) * self.unit).astype(np.float32)
        bits = np.rint(np.minimum(gains / max(length, 1e-12), MAX_STEPS * np.arange(256) / 255))
        return self.bytes, gains, bits.astype(np.int32)

    @classmethod
    def none(cls, n_items: int) -> Level:
        """Return the level of a fit to absolute targets: T = S."""
        ones = np.ones((n_items, 1), dtype=np.float32)
        return cls(ones, np.zeros_like(ones))


def make_blocks(
    users: Partitions,
    encoder: FeatureEncoder,
    preference: ToPreference | None,
    target: RatingTarget,
    n_users: int,
) -> tuple[PerPartition[UserBlock], ItemSums, dict[str, np.ndarray], dict[str, list[int]]]:
    """Turn ratings into targets and tables into features.

    Returns the blocks and, over all users, the sums by item, X'X of each group, and by partition
    how many users have it.
    """
    share = float(np.clip(HELD_OUT / n_users, *HELD_SHARES))

    def prepare(
        records: UserRecords,
    ) -> tuple[UserBlock, tuple[ItemSums, dict[str, np.ndarray], dict[str, int]]]:
        ratings, n_items = records.ratings, records.ratings.shape[1]
        S = target(ratings)
        features = encoder.encode(as_columns(records.table)[0], S.shape[0])
        X, has = features.matrices, features.has
        if preference is not None:
            X[PREFERENCE] = preference(ratings)
            has[PREFERENCE] = X[PREFERENCE][:, -1]
        indptr, indices = S.indptr.astype(np.int32), S.indices.astype(np.int32)
        S = csr_array((S.data, indices, indptr), shape=S.shape)
        trained = uniform(records.first + np.arange(S.shape[0]), 0) >= share
        St = csr_array(S[trained].T.tocsr())
        columns = {name: own.astype(np.float32)[:, None] for name, own in has.items()}
        block = UserBlock(records.first, S, St, X, columns, trained)
        liked = target.feedback.is_favourite(ratings)
        ratings64, n_ratings = ratings.data.astype(np.float64), np.diff(indptr)
        by_item = np.zeros((n_items, 5))
        _add_entries(indices, S.data, liked, ratings.data, by_item)
        targets, norms, favourites, n_raters, rated = by_item.T.copy()
        sums = ItemSums(
            targets=targets,
            norms=norms,
            favourites=favourites.astype(np.int64),
            ratings=n_raters.astype(np.int64),
            rated=rated,
            squares=float(ratings64 @ ratings64),
            known=float(np.sum(n_ratings / (n_ratings + FEW_RATINGS))),
        )
        grams = {name: dense(own.T @ own).astype(np.float64) for name, own in X.items()}
        return block, (sums, grams, {name: int(own.sum()) for name, own in has.items()})

    blocks, results = users.run(prepare, users.records)
    sums, grams, counts = zip(*results, strict=True)
    by_group = {name: [part[name] for part in counts] for name in counts[0]}
    return blocks, add_up(sums), add_up(grams), by_group


@compiled(nogil=True)
def _add_entries(items, targets, liked, ratings, sums):  # type: ignore[no-untyped-def]
    """Add the entries of S to what is known of each item, in the order of `ItemSums`."""
    for entry in range(len(items)):
        own, target = sums[np.uint64(items[entry])], np.float64(targets[entry])
        own[0] += target
        own[1] += target * target
        own[2] += liked[entry]
        own[3] += 1
        own[4] += ratings[entry]


def uniform(rows: np.ndarray, columns: np.ndarray | int) -> np.ndarray:
    """Return a number from 0 to 1 for each pair, the same wherever it is computed."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) * BY_ROW + np.asarray(columns).astype(np.uint64) * BY_COLUMN
        return (mix_bits(z) >> np.uint64(11)) / float(1 << 53)


def item_weights(popularity: np.ndarray, power: float) -> np.ndarray:
    """Return popularity ** power, scaled to mean 1 (items x 1)."""
    weights = np.maximum(popularity.astype(np.float64), 1e-9) ** power
    return (weights / weights.mean()).astype(np.float32)[:, None]  # type: ignore[no-any-return]


def dense(X: Matrix) -> np.ndarray:
    """Return features as a plain array."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def fit_preference(
    users: Partitions, content: csr_array, scale: Scale, max_width: int, seed: int
) -> ToPreference:
    """Return what turns ratings into the preference group: what users rated -> their average item.

        p_u = Σ_i w_ui c_i / Σ_i w_ui,   w_ui = (rating + 1) / (highest + 1)

    with c_i the content of item i, and ratings counted from the lowest possible one if that is
    below 0. Every rating counts for something, a better one for more. Where the content is wider
    than `max_width`, it is projected on the main directions in which the training users' averages
    differ (PCA, by a seeded randomised range finder). Users who rated an item that is described
    have the group, and 1 in its last column.

    It takes part in a fit without levels, as in the paper; strangers do not have it.
    """
    has_content, width = np.diff(content.indptr) > 0, content.shape[1]
    rng = np.random.default_rng(seed)
    scale = min(scale[0], 0.0), scale[1]

    def average_content(records: UserRecords, some: np.ndarray | slice) -> csr_array:
        """Average the content of what some of the users with a described item rated."""
        weights = _weights(records.ratings, has_content, scale)
        return weights[np.flatnonzero(np.diff(weights.indptr))[some]] @ content

    def sum_averages(records: UserRecords) -> tuple[np.ndarray, int]:
        averages = average_content(records, slice(None))
        return np.asarray(averages.sum(axis=0)).ravel(), averages.shape[0]

    def take_averages(records: UserRecords, some: np.ndarray) -> np.ndarray:
        return average_content(records, some).toarray().astype(np.float32)  # type: ignore[no-any-return]

    totals, counts = zip(*users.map(sum_averages, users.records), strict=True)
    n_users = sum(counts)
    centre = add_up(totals) / max(n_users, 1)
    if width <= max_width:
        vectors = content.toarray()
    else:
        some = users.scatter(choose_rows(counts, max(_SAMPLE // width, max_width), rng))
        rows = np.concatenate(list(users.map(take_averages, users.records, some)))
        directions = main_directions(rows - rows.mean(axis=0), max_width, rng)
        vectors, centre = content @ directions, centre @ directions
    vectors = (vectors - centre).astype(np.float32)

    def apply(ratings: csr_array) -> np.ndarray:
        weights = _weights(ratings, has_content, scale)
        has = np.diff(weights.indptr)[:, None] > 0
        return np.hstack([times(weights, vectors), has.astype(np.float32)])

    return apply


def choose_rows(counts: Sequence[int], limit: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Choose up to `limit` rows, ascending; every partition has so many, and counts them from 0."""
    ends = np.cumsum([0, *counts])
    n, few = int(ends[-1]), ends[-1] <= 1 << 24  # of more, some are drawn without shuffling all
    rows = rng.permutation(n)[:limit] if few else rng.choice(n, limit, False, shuffle=False)
    rows = np.sort(rows)
    places = np.searchsorted(rows, ends)
    pieces = zip(places, places[1:], ends, strict=False)
    return [rows[begin:end] - first for begin, end, first in pieces]


def main_directions(rows: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Find the `width` directions along which centred rows vary most (columns x width)."""
    n_columns = rows.shape[1]
    width = min(width, *rows.shape)
    shape = (n_columns, min(width + _OVERSAMPLING, n_columns))
    basis = rng.standard_normal(shape, dtype=np.float32)
    gram = rows.T @ rows if n_columns < len(rows) else None  # whichever is less work
    for _ in range(_ITERATIONS):
        image = rows.T @ (rows @ basis) if gram is None else gram @ basis
        basis, _ = np.linalg.qr(image)
    image = rows @ basis
    _, rotation = np.linalg.eigh(image.T @ image)
    directions: np.ndarray = basis @ rotation[:, ::-1][:, :width]
    # an eigenvector has no sign of its own: make the largest entry positive
    peaks = directions[np.abs(directions).argmax(axis=0), np.arange(width)]
    return directions * np.where(peaks < 0, -1.0, 1.0)


def _weights(ratings: csr_array, has_content: np.ndarray, scale: Scale) -> csr_array:
    """Return each user's weights of the described items they rated; they add up to 1."""
    keep = has_content[ratings.indices]
    lowest, highest = scale
    values = (ratings.data[keep] - np.float32(lowest) + 1) / np.float32(highest - lowest + 1)
    indptr = np.concatenate([[0], np.cumsum(keep)])[ratings.indptr]
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    totals = np.bincount(owners, values, minlength=len(indptr) - 1)
    shares = (values / totals[owners]).astype(np.float32)
    return csr_array((shares, ratings.indices[keep], indptr), shape=ratings.shape)
