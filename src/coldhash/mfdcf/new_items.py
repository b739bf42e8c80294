"""What MFDCF learns for items that nobody has rated: a map from content to the item step.

    min  ‖[L, M] - Y V‖² + λ‖V‖²

with L the sums of what an item's ratings show, M their averages, and Y the content of the items
with the products of common columns: genre and year say more together than one by one.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.products import times
from coldhash.data.dataset import UserRecords
from coldhash.data.ratings import RatingTarget
from coldhash.features.preference import choose_rows
from coldhash.mfdcf.equations import FitState, item_problem
from coldhash.mfdcf.problem import Problem
from coldhash.mfdcf.ridges import RIDGE_SAMPLE, best_ridge
from coldhash.partitions import Partitions
from coldhash.recommender.item_map import ItemMap, prepared

MAX_COLUMNS = 512  # columns of content that may count: the commonest
COMMON = 28  # columns, the commonest, whose products count too
TOGETHER = 5  # items in which a pair must occur


def fit_item_map(
    users: Partitions,
    problem: Problem,
    state: FitState,
    content: csr_array,
    target: RatingTarget,
    rng: np.random.Generator,
) -> ItemMap:
    """Learn the map from the training items; the ridge is chosen by leave-one-out error."""
    pulls, G = item_problem(users, problem, state)

    def show(records: UserRecords, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add up, and count, what the ratings of each item show."""
        S = target(records.ratings)
        return times(S.T.tocsr(), H), np.bincount(S.indices, minlength=S.shape[1])

    sums, n_ratings = users.sum(show, users.records, state.H)
    counts = n_ratings.astype(np.float64)
    L, M = sums / problem.level.gains, sums / np.maximum(counts, 1)[:, None].astype(np.float32)
    to_pulls = _least_squares(L, pulls)
    # in L C distances are distances between the scores that all users would give
    C = to_pulls @ _inverse_root(G.astype(np.float64))
    columns = _commonest(content, MAX_COLUMNS)
    pairs = _pairs(content[:, columns])
    Y = prepared(content, columns, pairs)
    weights, expected = _left_out(Y, np.hstack([L, M]), _main_part(L @ C), rng)
    left, shared, right = _evidence(users, state, target, counts, L, M, expected)
    return ItemMap(
        columns=columns,
        pairs=pairs,
        average=Y.mean(axis=0),
        weights=weights,
        shared=shared.astype(np.float32),
        left=left.astype(np.float32),
        right=right.astype(np.float32),
        to_pulls=to_pulls.astype(np.float32),
        gram=G.astype(np.float32),
        stretch=_stretch(L @ C, expected[:, : len(G)] @ C),
        plenty=max(float(counts.mean()), 1.0),
        target=target,
    )


def _least_squares(L: np.ndarray, pulls: np.ndarray) -> np.ndarray:
    """Find A with L A ~ pulls: what strangers do to the item step, from the raters alone."""
    LtL = (L.T @ L).astype(np.float64)
    lift = 1e-6 * max(np.trace(LtL) / len(LtL), 1e-12) * np.eye(len(LtL))
    return np.linalg.solve(LtL + lift, (L.T @ pulls).astype(np.float64))


def _inverse_root(G: np.ndarray) -> np.ndarray:
    """Find C with C C' = G⁻¹."""
    lift = 1e-6 * max(np.trace(G) / len(G), 1e-12) * np.eye(len(G))
    return np.asarray(np.linalg.inv(np.linalg.cholesky(G + lift)).T)


def _main_part(rows: np.ndarray, width: int = 16) -> np.ndarray:
    """Return the main directions of some rows: as good to choose a ridge by, and fewer."""
    _, U = np.linalg.eigh(rows.T @ rows)
    return np.asarray(rows @ U[:, -width:], dtype=np.float32)


def _commonest(content: csr_array, n: int) -> np.ndarray:
    """Return the columns that occur in most items, in their order."""
    counts = np.bincount(content.indices, minlength=content.shape[1])
    return np.sort(np.argsort(-counts, kind="stable")[:n])


def _pairs(content: csr_array) -> np.ndarray:
    """Find the pairs of common columns that occur together often enough."""
    common = _commonest(content, COMMON)
    has = (content[:, common].toarray() != 0).astype(np.float32)
    first, second = np.nonzero(np.triu(has.T @ has >= TOGETHER, 1))
    return np.column_stack([common[first], common[second]])


def _left_out(
    Y: np.ndarray, Z: np.ndarray, main: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Solve the ridge; gives the map, and what it says of each item when learned without it.

    The ridge is the one with which Y predicts `main` best.
    """
    eigenvalues, vectors = np.linalg.eigh((Y.T @ Y).astype(np.float64))
    U = vectors.astype(np.float32)
    turned = Y @ U
    some = choose_rows(len(Y), RIDGE_SAMPLE, rng)
    ridge = best_ridge(turned[some], main[some])
    shrink = (1 / (np.maximum(eigenvalues, 0.0) + ridge)).astype(np.float32)
    inner = shrink[:, None] * (turned.T @ Z)
    leverage = np.minimum((turned**2) @ shrink, 1 - 1e-4)[:, None]
    return U @ inner, Z - (Z - turned @ inner) / (1 - leverage)


def _stretch(actual: np.ndarray, expected: np.ndarray) -> float:
    """By how much items differ more from each other than their expectations do."""
    spread = np.sum((expected - expected.mean(axis=0)) ** 2)
    if spread <= 1e-9 * np.sum(actual**2):
        return 1.0
    return max(1.0, float(np.sqrt(np.sum((actual - actual.mean(axis=0)) ** 2) / spread)))


def _evidence(
    users: Partitions,
    state: FitState,
    target: RatingTarget,
    counts: np.ndarray,
    L: np.ndarray,
    M: np.ndarray,
    expected: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take the moments of `ItemMap` from the training items, which count by √n.

    Averages over pairs of ratings of an item follow from its average and its sum of squares.
    """
    n_bits, n, others = L.shape[1], np.maximum(counts, 1), np.maximum(counts - 1, 1)
    share = np.sqrt(counts) * (counts > 1)
    share /= max(share.sum(), 1.0)
    says_L, says_M = expected[:, :n_bits], expected[:, n_bits:]
    by_item = (share / n, share / (n * others))

    def square_moments(records: UserRecords, H: np.ndarray) -> tuple[np.ndarray, ...]:
        """Add up squares of what single ratings show, which count by their items."""
        S = target(records.ratings)
        squares = csr_array((S.data**2, S.indices, S.indptr), shape=S.shape)
        return tuple(moment(H, H, squares @ each) for each in by_item)

    single, repeat = users.sum(square_moments, users.records, state.H)
    cross = moment(M, says_M, share)
    centre = moment(says_M, says_M, share) - cross - cross.T
    pairs = moment(M, M, share * counts / others) - repeat
    left, shared = diagonalise(single + centre, pairs + centre)
    return left, shared, left.T @ moment(M - says_M, L - says_L, share)


def moment(one: np.ndarray, two: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Add up products of rows, which count by their share."""
    return ((one * share[:, None].astype(np.float32)).T @ two).astype(np.float64)  # type: ignore[no-any-return]


def diagonalise(single: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find `left` with left' S₁ left = I and left' S₂ left = diag(shared), shared ≥ 0.

    Directions in which ratings show nothing are left out.
    """
    variances, U = np.linalg.eigh((single + single.T) / 2)
    seen = variances > 1e-6 * max(variances[-1], 1e-12)
    white = U[:, seen] / np.sqrt(variances[seen])
    shared, vectors = np.linalg.eigh(white.T @ ((pairs + pairs.T) / 2) @ white)
    return white @ vectors, np.maximum(shared, 0.0)
