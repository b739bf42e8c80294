"""What a few ratings say about somebody: learned from what ratings say of training users."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.products import times
from coldhash.data.dataset import UserRecords
from coldhash.data.ratings import RatingTarget
from coldhash.mfdcf.equations import FitState, Maps, features_times, row_sum, stranger_vectors
from coldhash.mfdcf.problem import Drawn, ItemSums, Problem, UserBlock
from coldhash.partitions import Partitions
from coldhash.recommender.encoders import HistoryPart, evidence
from coldhash.recommender.items import CodeItems

DISCOUNT = 0.5  # a rated item counts by its popularity to the power of minus this


class ShownSums(NamedTuple):
    """What is added up of the means z̄ over users."""

    XtZ: Maps  # X' z̄ of each group
    total: np.ndarray  # Σ z̄
    average: np.ndarray  # Σ share z̄
    single: np.ndarray  # squares of single ratings, by item
    repeat: np.ndarray  # ... that pairs of a rating with itself would add


class Moments(NamedTuple):
    """Second moments over users, who count by their share."""

    means: np.ndarray
    cross: np.ndarray
    fitted: np.ndarray
    covariance: np.ndarray


def fit_history(
    users: Partitions,
    problem: Problem,
    state: FitState,
    target: RatingTarget,
    sums: ItemSums,
    items: CodeItems,
    content: np.ndarray | None,
) -> HistoryPart:
    """Take the moments that `HistoryPart` needs from the training users' own ratings.

    For a user with N ratings, z̄ is the mean of the ξ. Averages over single ratings and over pairs
    of different ratings of a user follow from z̄ and the sum of squares, without any pair being
    formed. Users count by √N.
    """
    E = evidence(items, content, slice(None))
    popularity = sums.popularity + 1.0
    weights = ((popularity / popularity.mean()) ** -DISCOUNT).astype(np.float32)
    total, groups = max(sums.root_counts, 1.0), tuple(problem.groups)

    def average_evidence(records: UserRecords, block: UserBlock) -> tuple[np.ndarray, ShownSums]:
        """Average what each user's ratings show, and add up what features say of it."""
        ratings = records.ratings
        shown = np.sqrt(target(ratings.data)) * weights[ratings.indices]
        counts, others, share = _counts(ratings, total)
        signals = csr_array((shown, ratings.indices, ratings.indptr), shape=ratings.shape)
        means = times(signals, E) / counts[:, None].astype(np.float32)
        owners = np.repeat(np.arange(len(counts)), np.diff(ratings.indptr))
        squares = shown.astype(np.float64) ** 2

        def per_item(by_user: np.ndarray) -> np.ndarray:
            return np.bincount(ratings.indices, squares * by_user[owners], minlength=len(E))

        return means, ShownSums(
            XtZ={name: features_times(block, name, means) for name in groups},
            total=row_sum(means),
            average=share @ means,
            single=per_item(share / counts),
            repeat=per_item(share / (counts * others)),
        )

    means, shown = users.update(average_evidence, users.records, problem.blocks)
    expected = {name: group.map(shown.XtZ[name]) for name, group in problem.groups.items()}
    average = (shown.total / problem.n_users).astype(np.float32)
    W, mu, average_vector = state.W, state.mu, state.average

    def second_moments(
        records: UserRecords, block: UserBlock, drawn: Drawn, H: np.ndarray, means: np.ndarray
    ) -> Moments:
        counts, others, share = _counts(records.ratings, total)
        fitted = stranger_vectors(block, drawn, expected, mu, average)
        deviation = H - stranger_vectors(block, drawn, W, mu, average_vector)
        return Moments(
            means=moment(means, means, share * counts / others),
            cross=moment(means, fitted, share),
            fitted=moment(fitted, fitted, share),
            covariance=moment(means - fitted, deviation, share),
        )

    moments = users.sum(
        second_moments, users.records, problem.blocks, problem.drawn, state.H, means
    )
    single, repeat = (_weighted_gram(E, squares) for squares in (shown.single, shown.repeat))
    centre = moments.fitted - moments.cross - moments.cross.T
    left, shared = diagonalise(single + centre, moments.means - repeat + centre)
    return HistoryPart(
        codes=items,
        content=content,
        item_weights=weights,
        expected=expected,
        average=shown.average.astype(np.float32),
        shared=shared.astype(np.float32),
        left=left.astype(np.float32),
        right=(left.T @ moments.covariance).astype(np.float32),
        target=target,
    )


def _counts(ratings: csr_array, total: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each user's number of ratings, of others beside one, and share in averages."""
    n_ratings = np.diff(ratings.indptr)
    counts = np.maximum(n_ratings, 1).astype(np.float64)
    share = np.sqrt(counts) * (n_ratings > 0) / total
    return counts, np.maximum(counts - 1, 1), share


def moment(one: np.ndarray, two: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Add up products of rows, which count by their share."""
    return ((one * share[:, None].astype(np.float32)).T @ two).astype(np.float64)  # type: ignore[no-any-return]


def _weighted_gram(E: np.ndarray, per_item: np.ndarray) -> np.ndarray:
    return ((E * per_item.astype(np.float32)[:, None]).T @ E).astype(np.float64)  # type: ignore[no-any-return]


def diagonalise(single: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find `left` with left' S₁ left = I and left' S₂ left = diag(shared), shared ≥ 0.

    Directions in which ratings show nothing are left out.
    """
    variances, U = np.linalg.eigh((single + single.T) / 2)
    seen = variances > 1e-6 * max(variances[-1], 1e-12)
    white = U[:, seen] / np.sqrt(variances[seen])
    shared, vectors = np.linalg.eigh(white.T @ ((pairs + pairs.T) / 2) @ white)
    return white @ vectors, np.maximum(shared, 0.0)
