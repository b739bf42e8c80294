"""Biased MF: factors and biases of the known ratings only, real-valued.

    min  Σ_known (s_ui - μ - b_u - c_i - p_u·q_i)²
         + λ Σ_u n_u (‖p_u‖² + b_u²) + λ Σ_i n_i (‖q_i‖² + c_i²)

with μ the mean rating and n the number of ratings. Alternating least squares over [p_u, b_u] and
[q_i, c_i]. Within one user's list μ and b_u change nothing, so the score is p_u·q_i + c_i, with c_i
as one more factor, for which users have a 1. Strangers get their factors by a ridge map.

It predicts how much somebody would like what they have picked, never whether they would pick it:
the reference for the methods that learn from known ratings alone.

Koren, Bell and Volinsky, "Matrix factorization techniques for recommender systems", Computer 2009;
the ridge by the number of ratings: Zhou, Wilkinson, Schreiber and Pan, AAIM 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.arrays.products import times
from coldhash.baselines.ridge import ridge_map, stranger_groups
from coldhash.baselines.shared import make_recommender
from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError
from coldhash.features.fitting import fit_features
from coldhash.recommender.encoders.linear import StackEncoder
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_types

BLOCK = 4096  # rows solved at a time
EXACT = 1e-3  # the ridge of the map to the users' 1, which needs no shrinking


@dataclass(frozen=True, kw_only=True)
class BiasedMF:
    """Settings of the factorisation and of the map.

    Examples
    --------
    >>> from coldhash import read
    >>> model = BiasedMF(n_factors=4, n_rounds=3).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.has_codes
    ('biased-mf', False)
    """

    n_factors: int = 16
    ridge: float = 0.05  # λ, for each rating
    n_rounds: int = 15
    map_ridge: float = 100.0  # λ of the map from features

    def __post_init__(self) -> None:
        check_types(self)
        if self.n_factors < 1 or self.n_rounds < 1:
            raise SettingError("BiasedMF: n_factors and n_rounds are at least 1")
        if self.ridge <= 0 or self.map_ridge <= 0:
            raise SettingError("BiasedMF: ridge and map_ridge are above 0")

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Alternate users and items, then learn the map."""
        rng, ratings = np.random.default_rng(seed), data.ratings.matrix
        encoder = fit_features(data, seed)
        groups = stranger_groups(encoder)
        values = ratings.data.astype(np.float64)
        values -= values.mean() if len(values) else 0
        T = csr_array((values, ratings.indices, ratings.indptr), shape=ratings.shape)
        with threadpool_limits(1, "blas"):
            P, Q, objective = self._alternate(T, rng, callback)
            ones = np.ones((len(P), 1), dtype=np.float32)
            features, factors = encoder.apply(data.users), P[:, :-1].astype(np.float32)
            W = np.hstack(
                [
                    ridge_map(features, groups, factors, self.map_ridge),
                    ridge_map(features, groups, ones, EXACT),
                ]
            )
        return make_recommender(
            data,
            name="biased-mf",
            settings=self,
            features=encoder,
            encoder=StackEncoder(groups, W),
            vectors=Q.astype(np.float32),
            user_vectors=np.hstack([factors, ones]),
            report={"objective": objective},
        )

    def _alternate(
        self, T: csr_array, rng: np.random.Generator, callback: Callback | None
    ) -> tuple[np.ndarray, np.ndarray, list[float]]:
        """Give [p, b] of the users and [q, c] of the items."""
        Tt, objective = csr_array(T.T.tocsr()), list[float]()
        Q = np.zeros((T.shape[1], self.n_factors + 1))
        Q[:, :-1] = 0.1 * rng.standard_normal((len(Q), self.n_factors))
        for n in range(self.n_rounds):
            P = half(T, Q, self.ridge)
            Q = half(Tt, P, self.ridge)
            objective.append(loss(T, P, Q, self.ridge))
            if callback is not None:
                callback(n, objective[-1])
        return P, Q, objective


def half(T: csr_array, Q: np.ndarray, ridge: float) -> np.ndarray:
    """Solve (A'A + λ n I) [p, b] = A'(t - c) with A = [q, 1], for each row."""
    A, c = Q.copy(), Q[:, -1:]
    A[:, -1] = 1
    pairs = (A[:, :, None] * A[:, None, :]).reshape(len(A), -1)
    P = np.empty((T.shape[0], A.shape[1]))
    for start in range(0, len(P), BLOCK):
        t = T[start : start + BLOCK]
        known = csr_array((np.ones(t.nnz), t.indices, t.indptr), shape=t.shape)
        grams = times(known, pairs).reshape(-1, A.shape[1], A.shape[1])
        n_known = np.diff(t.indptr)[:, None, None]
        shrinkage = np.where(n_known > 0, ridge * n_known, 1) * np.eye(A.shape[1])
        right = times(t, A) - times(known, c * A)
        P[start : start + BLOCK] = np.linalg.solve(grams + shrinkage, right[:, :, None])[:, :, 0]
    return P


def loss(T: csr_array, P: np.ndarray, Q: np.ndarray, ridge: float) -> float:
    """Give the objective; T holds s - μ."""
    n_rated, n_raters = np.diff(T.indptr), np.bincount(T.indices, minlength=T.shape[1])
    owners = np.repeat(np.arange(T.shape[0]), n_rated)
    fitted = np.einsum("nk,nk->n", P[owners, :-1], Q[T.indices, :-1])
    errors = T.data - P[owners, -1] - Q[T.indices, -1] - fitted
    shrinkage = n_rated @ np.sum(P**2, axis=1) + n_raters @ np.sum(Q**2, axis=1)
    return float(np.sum(errors**2) + ridge * shrinkage)
