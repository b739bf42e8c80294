"""MF: weighted matrix factorisation of implicit feedback, with a map from features to factors.

    min  Σ_ui c_ui (s_ui - p_u·q_i)² + λ (Σ_u ‖p_u‖² + Σ_i ‖q_i‖²),   c = 1 + α s,  s = target

over all entries, the unknown ones as 0 with weight 1; alternating least squares, users and items in
turn. A stranger's factors come from a ridge map of the features ("map-lin", Gantner et al. 2010).
Item factors may be stored in 8 or 4 bits: 8 factors in int8 are 8 bytes an item, as 64 bits are.

Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import prange
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.arrays.compiled import compiled
from coldhash.arrays.products import even_order
from coldhash.baselines.ridge import ridge_map, stranger_groups
from coldhash.baselines.shared import make_recommender
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import RatingTarget, TargetKind
from coldhash.errors import SettingError
from coldhash.features.fitting import fit_features
from coldhash.recommender.encoders.linear import StackEncoder
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_types


@dataclass(frozen=True, kw_only=True)
class MF:
    """Settings of the factorisation and of the map.

    Examples
    --------
    >>> from coldhash import read
    >>> model = MF(n_factors=8, bits_per_factor=8).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.has_codes
    ('mf', False)
    """

    n_factors: int = 16
    confidence: float = 5.0  # α
    ridge: float = 1.0  # λ of the factors
    map_ridge: float = 100.0  # λ of the map from features
    n_rounds: int = 15
    target: TargetKind = "favourite"
    bits_per_factor: int = 32  # of an item: 32 (float), 8 or 4

    def __post_init__(self) -> None:
        check_types(self)
        if self.n_factors < 1 or self.n_rounds < 1:
            raise SettingError("MF: n_factors and n_rounds are at least 1")
        if self.ridge <= 0 or self.map_ridge <= 0:
            raise SettingError("MF: ridge and map_ridge are above 0")
        if self.bits_per_factor not in (32, 8, 4):
            raise SettingError(f"MF: bits_per_factor={self.bits_per_factor}", hint="32, 8 or 4")

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Alternate users and items, then learn the map."""
        rng = np.random.default_rng(seed)
        encoder = fit_features(data, seed)
        groups = stranger_groups(encoder)
        ratings = data.ratings.matrix
        values = RatingTarget(self.target, data.ratings.scale[1])(ratings.data)
        S = csr_array((values, ratings.indices, ratings.indptr), shape=ratings.shape)
        St = csr_array(S.T.tocsr())
        with threadpool_limits(1, "blas"):
            Q = rng.standard_normal((S.shape[1], self.n_factors)).astype(np.float32) * 0.01
            for n in range(self.n_rounds):
                P = self.half(S, Q)
                Q = self.half(St, P)
                if callback is not None:
                    callback(n, loss(S, P, Q, self.confidence, self.ridge))
            W = ridge_map(encoder.apply(data.users), groups, P, self.map_ridge)
        return make_recommender(
            data,
            name="mf",
            settings=self,
            features=encoder,
            encoder=StackEncoder(groups, W),
            vectors=rounded(Q, self.bits_per_factor),
            user_vectors=P,
        )

    def half(self, S: csr_array, Q: np.ndarray) -> np.ndarray:
        """Solve for the rows' factors, given the columns'."""
        gram = (Q.T @ Q).astype(np.float64) + self.ridge * np.eye(Q.shape[1])
        order = even_order(S.indptr)
        factors = _half(
            S.indptr, S.indices, S.data, Q.astype(np.float64), gram, order, self.confidence
        )
        return np.asarray(factors, dtype=np.float32)


@compiled(parallel=True)
def _half(indptr, indices, values, Q, gram, order, confidence):  # type: ignore[no-untyped-def]
    """Solve (Q'Q + λI + Σ α s q q') p = Σ (1 + α s) s q for each row."""
    P = np.zeros((len(indptr) - 1, Q.shape[1]))
    for position in prange(len(order)):
        u = order[position]
        start, end = indptr[u], indptr[u + 1]
        if start == end:
            continue
        chosen = Q[indices[start:end]]
        s = values[start:end].astype(np.float64)
        extra = confidence * s
        weighed = np.ascontiguousarray(chosen.T * extra)
        P[u] = np.linalg.solve(gram + weighed @ chosen, chosen.T @ ((1 + extra) * s))
    return P


def loss(S: csr_array, P: np.ndarray, Q: np.ndarray, confidence: float, ridge: float) -> float:
    """Give the objective."""
    P, Q = P.astype(np.float64), Q.astype(np.float64)
    owners = np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))
    fitted = np.einsum("nk,nk->n", P[owners], Q[S.indices])
    everywhere = np.sum((P.T @ P) * (Q.T @ Q))
    known = (1 + confidence * S.data) * (S.data - fitted) ** 2 - fitted**2
    return float(everywhere + known.sum() + ridge * (np.sum(P**2) + np.sum(Q**2)))


def rounded(Q: np.ndarray, bits: int) -> np.ndarray:
    """Round factors to few bits, one scale a factor; gives what the stored numbers stand for."""
    if bits == 32:
        return Q
    steps = 2 ** (bits - 1) - 1
    scale = np.maximum(np.abs(Q).max(axis=0), 1e-12) / steps
    return (np.rint(Q / scale) * scale).astype(np.float32)  # type: ignore[no-any-return]
