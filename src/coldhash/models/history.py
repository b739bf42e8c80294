"""What a few ratings say about somebody: learned from what ratings say of training users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from coldhash.encoders.history import HistoryPart, evidence
from coldhash.items import CodeItems
from coldhash.models.problem import Problem
from coldhash.models.steps import State, strangers
from coldhash.products import times
from coldhash.targets import RatingTarget

DISCOUNT = 0.5  # a rated item counts by its popularity to the power of minus this


def fit_history(
    problem: Problem,
    state: State,
    target: RatingTarget,
    ratings: csr_array,
    items: CodeItems,
    content: np.ndarray | None,
) -> HistoryPart:
    """Take the moments that `HistoryPart` needs from the training users' own ratings.

    For a user with N ratings, z̄ is the mean of the ξ. Averages over single ratings and over pairs
    of different ratings of a user follow from z̄ and the sum of squares, without any pair being
    formed. Users count by √N.
    """
    E = evidence(items, content, slice(None))
    targets = target(ratings.data)
    popularity = np.bincount(ratings.indices, targets, minlength=len(E)) + 1.0
    weights = ((popularity / popularity.mean()) ** -DISCOUNT).astype(np.float32)
    shown = np.sqrt(targets) * weights[ratings.indices]
    counts = np.maximum(np.diff(ratings.indptr), 1).astype(np.float64)
    others = np.maximum(counts - 1, 1)
    signals = csr_array((shown, ratings.indices, ratings.indptr), shape=ratings.shape)
    means = times(signals, E) / counts[:, None].astype(np.float32)  # z̄
    share = np.sqrt(counts) * (np.diff(ratings.indptr) > 0)
    share /= max(share.sum(), 1.0)

    expected = {name: group.map(means) for name, group in problem.groups.items()}
    fitted = strangers(problem, replace(state, H=means, W=expected))
    deviation = state.H - strangers(problem, state)
    owners = np.repeat(np.arange(len(counts)), np.diff(ratings.indptr))
    squares = shown.astype(np.float64) ** 2
    single = _weighted_gram(E, ratings.indices, squares * (share / counts)[owners])
    repeat = _weighted_gram(E, ratings.indices, squares * (share / (counts * others))[owners])
    centre = _centre(means, fitted, share)
    pairs = _moment(means, means, share * counts / others) - repeat
    left, shared = _diagonalise(single + centre, pairs + centre)
    covariance = _moment(means - fitted, deviation, share)
    return HistoryPart(
        codes=items,
        content=content,
        item_weights=weights,
        expected=expected,
        average=(share @ means).astype(np.float32),
        shared=shared.astype(np.float32),
        left=left.astype(np.float32),
        right=(left.T @ covariance).astype(np.float32),
        target=target,
    )


def _moment(one: np.ndarray, two: np.ndarray, share: np.ndarray) -> np.ndarray:
    return ((one * share[:, None].astype(np.float32)).T @ two).astype(np.float64)  # type: ignore[no-any-return]


def _weighted_gram(E: np.ndarray, items: np.ndarray, weights: np.ndarray) -> np.ndarray:
    per_item = np.bincount(items, weights, minlength=len(E)).astype(np.float32)
    return ((E * per_item[:, None]).T @ E).astype(np.float64)  # type: ignore[no-any-return]


def _centre(means: np.ndarray, fitted: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Turn a raw second moment into one around what the features say."""
    cross = _moment(means, fitted, share)
    return np.asarray(_moment(fitted, fitted, share) - cross - cross.T)


def _diagonalise(single: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find `left` with left' S₁ left = I and left' S₂ left = diag(shared), shared ≥ 0.

    Directions in which ratings show nothing are left out.
    """
    variances, U = np.linalg.eigh((single + single.T) / 2)
    seen = variances > 1e-6 * max(variances[-1], 1e-12)
    white = U[:, seen] / np.sqrt(variances[seen])
    shared, vectors = np.linalg.eigh(white.T @ ((pairs + pairs.T) / 2) @ white)
    return white @ vectors, np.maximum(shared, 0.0)
