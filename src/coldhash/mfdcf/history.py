"""What a few ratings say about somebody: learned from what ratings say of training users."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.products import times
from coldhash.data.targets import RatingTarget
from coldhash.mfdcf.local import Maps, features_times, row_sum, stranger_vectors
from coldhash.mfdcf.problem import Problem
from coldhash.mfdcf.steps import State
from coldhash.partitions import Changes, Part, Partitions, Step, added
from coldhash.recommender.encoders.history import HistoryPart, evidence
from coldhash.recommender.items import CodeItems

DISCOUNT = 0.5  # a rated item counts by its popularity to the power of minus this


def fit_history(
    problem: Problem,
    users: Partitions,
    state: State,
    target: RatingTarget,
    sums: dict[str, Any],
    items: CodeItems,
    content: np.ndarray | None,
) -> HistoryPart:
    """Take the moments that `HistoryPart` needs from the training users' own ratings.

    For a user with N ratings, z̄ is the mean of the ξ. Averages over single ratings and over pairs
    of different ratings of a user follow from z̄ and the sum of squares, without any pair being
    formed. Users count by √N. `sums` are those of the preparation.
    """
    E = evidence(items, content, slice(None))
    popularity = sums["popularity"] + 1.0
    weights = ((popularity / popularity.mean()) ** -DISCOUNT).astype(np.float32)
    total = max(sums["root_counts"], 1.0)
    shown = added(users.each(SHOWN, target, E, weights, total, tuple(problem.groups)))
    expected = {name: group.map(shown["XtH"][name]) for name, group in problem.groups.items()}
    average = (shown["rows"] / problem.n_users).astype(np.float32)
    both = ((expected, average), (state.W, state.average))
    moments = added(users.each(MOMENTS, *both, state.mu, total))
    users.drop("means")
    single, repeat = (_weighted_gram(E, shown[name]) for name in ("single", "repeat"))
    centre = moments["fitted"] - moments["cross"] - moments["cross"].T
    left, shared = diagonalise(single + centre, moments["means"] - repeat + centre)
    return HistoryPart(
        codes=items,
        content=content,
        item_weights=weights,
        expected=expected,
        average=shown["average"].astype(np.float32),
        shared=shared.astype(np.float32),
        left=left.astype(np.float32),
        right=(left.T @ moments["covariance"]).astype(np.float32),
        target=target,
    )


def _shown(
    part: Part,
    target: RatingTarget,
    E: np.ndarray,
    weights: np.ndarray,
    total: float,
    groups: tuple[str, ...],
) -> tuple[Changes, dict[str, Any]]:
    """Give each user the mean z̄ of what the ratings show, and add up what features say of it."""
    ratings = part["ratings"]
    shown = np.sqrt(target(ratings.data)) * weights[ratings.indices]
    counts, others, share = _counts(ratings, total)
    signals = csr_array((shown, ratings.indices, ratings.indptr), shape=ratings.shape)
    means = times(signals, E) / counts[:, None].astype(np.float32)
    owners = np.repeat(np.arange(len(counts)), np.diff(ratings.indptr))
    squares = shown.astype(np.float64) ** 2

    def per_item(by_user: np.ndarray) -> np.ndarray:
        return np.bincount(ratings.indices, squares * by_user[owners], minlength=len(E))

    return {"means": means}, {
        "XtH": {name: features_times(part, name, means) for name in groups},
        "rows": row_sum(means),
        "average": share @ means,
        "single": per_item(share / counts),
        "repeat": per_item(share / (counts * others)),
    }


def _moments(
    part: Part,
    shown: tuple[Maps, np.ndarray],
    vectors: tuple[Maps, np.ndarray],
    mu: dict[str, float],
    total: float,
) -> tuple[Changes, dict[str, np.ndarray]]:
    """Add up second moments of z̄, of what features say of it, and of how far users are from it."""
    means = part["means"]
    counts, others, share = _counts(part["ratings"], total)
    fitted = stranger_vectors(part, shown[0], mu, shown[1])
    deviation = part["H"] - stranger_vectors(part, vectors[0], mu, vectors[1])
    return {}, {
        "means": moment(means, means, share * counts / others),
        "cross": moment(means, fitted, share),
        "fitted": moment(fitted, fitted, share),
        "covariance": moment(means - fitted, deviation, share),
    }


SHOWN = Step(_shown, reads=("ratings", "X", "has"), writes=("means",))
MOMENTS = Step(_moments, reads=("ratings", "means", "H", "X", "strangers"))


def _counts(ratings: csr_array, total: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count each user's ratings, and the others beside one; and say what the user counts."""
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
