"""What answers to questions say: a Gaussian model of them, from the training users' own ratings."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from coldhash.arrays.compiled import compiled
from coldhash.arrays.products import SparseRows
from coldhash.data.dataset import UserRecords
from coldhash.mfdcf.equations import FitState, stranger_vectors
from coldhash.mfdcf.problem import Problem, UserBlock, uniform
from coldhash.recommender.history import AnswerPart, HistoryPart

ENOUGH = 2_000  # users to learn from
MOST_ASKED = 1000  # items to learn the answers of: those that are rated most
LEAST_NOISE = 0.2  # the share of the variance of knowing an item that is noise, at least
FLAT = 1e-3  # of the mean variance, added to all


class Moments(NamedTuple):
    """Sums over users: of x, what is known of them beyond the features, and of their answers."""

    n_users: float
    XtX: np.ndarray
    total: np.ndarray  # Σ x
    known: np.ndarray  # Σ x over the users who have rated each item
    liked: np.ndarray  # Σ δ x over the same
    counts: np.ndarray  # how many they are
    rated: float  # Σ δ (x·d) over the items that are rated
    expected: float  # Σ (x·d)² over the same
    squares: float  # Σ δ²
    n_ratings: float


def fit_answers(problem: Problem, state: FitState, history: HistoryPart) -> AnswerPart:
    """Learn how people vary around what their features say, and how answers depend on it.

    Everything is least squares in closed form, from the vectors of some thousand users.
    """
    users, D, W, mu, average = problem.users, state.D, state.W, state.mu, state.average
    q = ((problem.sums.ratings + 0.5) / (problem.n_users + 1)).astype(np.float32)
    share = ENOUGH / problem.n_users
    rows = np.sort(np.argsort(-q, kind="stable")[:MOST_ASKED]).astype(np.int32)
    places = np.full(len(q), -1)
    places[rows] = np.arange(len(rows))

    def moments(records: UserRecords, block: UserBlock, H: np.ndarray) -> Moments:
        some = np.flatnonzero(uniform(records.first + np.arange(len(H)), 1) < share)
        known = {name: has[some] for name, has in block.has.items() if name in W}
        features = {name: block.X[name][some] for name in known}
        own = replace(block, X=features, has=known, trained=block.trained[some])
        X = H[some] - stranger_vectors(own, known, W, mu, average)
        ratings = records.ratings[some]
        along = np.empty(ratings.nnz)
        known_by, liked_by = np.zeros((2, len(rows), D.shape[1]), np.float32)
        above = history.above(SparseRows.of(ratings)).data
        _add_raters(ratings.indptr, ratings.indices, above, X, D, places, along, known_by, liked_by)
        above = above.astype(np.float64)
        return Moments(
            float(len(some)),
            (X.T @ X).astype(np.float64),
            X.sum(axis=0, dtype=np.float64),
            known_by.astype(np.float64),
            liked_by.astype(np.float64),
            np.bincount(ratings.indices, minlength=len(q))[rows].astype(np.float64),
            float(above @ along),
            float(along @ along),
            float(above @ above),
            float(len(above)),
        )

    found = users.sum(moments, users.records, problem.blocks, state.H)
    n_users = max(found.n_users, 1.0)
    covariance = found.XtX / n_users
    slope = max(found.rated / max(found.expected, 1e-12), 0.0)
    noise = max((found.squares - slope * found.rated) / max(found.n_ratings, 1.0), 1e-6)
    flat = FLAT * np.trace(covariance) / len(covariance) + 1e-12
    inverse = np.linalg.inv(covariance + flat * np.eye(len(covariance)))
    a = (found.known - q[rows, None] * found.total) / n_users @ inverse  # by cov(k, x)
    variances = (q * (1 - q))[rows]
    explained = np.einsum("ir,ir->i", a @ covariance, a)
    deviations = np.sqrt(np.maximum(variances - explained, LEAST_NOISE * variances))
    # δ on x item by item, shrunk to what codes say by how much items differ from it. With n raters,
    # whose x vary as everybody's, the error of b has the covariance σ²/n Σ⁻¹; the rest of its
    # distance from the code is how much items differ
    n = np.maximum(found.counts, 1.0)[:, None]
    apart = found.liked @ inverse / n - slope * D[rows]
    distances = np.einsum("ir,ir->i", apart @ covariance, apart) / len(covariance)
    differ = max(float(np.mean(n[:, 0] * distances)) - noise, 0.0) / float(np.mean(n))
    b = slope * D[rows] + apart * (differ / (differ + noise / n))
    loadings = np.stack([a / deviations[:, None], b / np.sqrt(noise)])
    return AnswerPart(
        history=history,
        covariance=covariance.astype(np.float32),
        shares=q,
        rows=rows,
        deviations=deviations.astype(np.float32),
        loadings=loadings.astype(np.float32),
        slope=slope,
        noise=noise,
    )


@compiled(nogil=True, fastmath={"reassoc"})
def _add_raters(indptr, items, above, X, D, places, along, known, liked):  # type: ignore[no-untyped-def]
    """Compute x·d of every rating; add x and δ x to the sums of its item, if it has a place."""
    for user in range(len(X)):
        for entry in range(indptr[user], indptr[user + 1]):
            item, total = np.uint64(items[entry]), np.float32(0)
            for k in range(X.shape[1]):
                total += X[user, k] * D[item, k]
            along[entry] = total
            if places[item] >= 0:
                at, value = np.uint64(places[item]), above[entry]
                for k in range(X.shape[1]):
                    known[at, k] += X[user, k]
                    liked[at, k] += value * X[user, k]
