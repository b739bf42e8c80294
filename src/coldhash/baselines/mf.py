"""MF: weighted matrix factorisation of implicit feedback, with a map from features to factors.

    min  Σ_ui c_ui (s_ui - p_u·q_i)² + λ (Σ_u ‖p_u‖² + Σ_i ‖q_i‖²),   c = 1 + α s,  s = target

over all entries, the unknown ones as 0 with weight 1; alternating least squares, users and items in
turn. A stranger's factors come from a ridge map of the features ("map-lin", Gantner et al. 2010).
Item factors may be stored in 8 or 4 bits: 8 factors in int8 are 8 bytes an item, as 64 bits are.

Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import PositiveFloat, PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.compiled import compiled
from coldhash.arrays.threads import run_rows
from coldhash.baselines.shared import Baseline, Training, transpose
from coldhash.data.ratings import row_of_entries
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class MF(Baseline):
    """Settings of the factorisation and of the map.

    Parameters
    ----------
    n_factors
        Number of factors.
    confidence
        How much more a rated entry weighs than an unknown one (α).
    ridge
        Ridge of the factors (λ).
    map_ridge
        Ridge of the map from features to factors.
    n_rounds
        Rounds of users and items.
    bits_per_factor
        Precision of item factors: 32 (float), 8 or 4.

    Examples
    --------
    >>> from coldhash import read
    >>> model = MF(n_factors=8, bits_per_factor=8).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.has_codes
    ('mf', False)
    """

    n_factors: PositiveInt = 16
    confidence: float = 5.0
    ridge: PositiveFloat = 1.0
    map_ridge: PositiveFloat = 100.0
    n_rounds: PositiveInt = 15
    bits_per_factor: Literal[32, 8, 4] = 32

    def _fit(self, training: Training) -> Recommender:
        """Alternate users and items, then fit the map."""
        S = training.targets("favourite")
        St, shape = transpose(S), (S.shape[1], self.n_factors)
        Q = training.rng.standard_normal(shape).astype(np.float32) * 0.01
        for n in range(self.n_rounds):
            P = self._solve_rows(S, Q)
            Q = self._solve_rows(St, P)
            if training.callback is not None:
                training.callback(n, loss(S, P, Q, self.confidence, self.ridge))
        encoder = training.fit_map(P, self.map_ridge)
        return training.make_recommender("mf", encoder, P, quantize(Q, self.bits_per_factor))

    def _solve_rows(self, S: csr_array, Q: np.ndarray) -> np.ndarray:
        """Solve for the factors of rows, given those of columns."""
        gram = (Q.T @ Q).astype(np.float64) + self.ridge * np.eye(Q.shape[1])
        Q, P = Q.astype(np.float64), np.zeros((S.shape[0], Q.shape[1]))
        entries = (S.indptr, S.indices, S.data)
        run_rows(_solve_rows, S.indptr, *entries, Q, gram, self.confidence, P)
        return P.astype(np.float32)


@compiled(nogil=True)
def _solve_rows(indptr, indices, values, Q, gram, confidence, P, first, last):  # type: ignore[no-untyped-def]
    """Solve (Q'Q + λI + Σ α s q q') p = Σ (1 + α s) s q for each row."""
    for u in range(first, last):
        start, end = indptr[u], indptr[u + 1]
        if start == end:
            continue
        chosen = Q[indices[start:end]]
        s = values[start:end].astype(np.float64)
        extra = confidence * s
        weighed = np.ascontiguousarray(chosen.T * extra)
        P[u] = np.linalg.solve(gram + weighed @ chosen, chosen.T @ ((1 + extra) * s))


def loss(S: csr_array, P: np.ndarray, Q: np.ndarray, confidence: float, ridge: float) -> float:
    """Compute the objective."""
    P, Q = P.astype(np.float64), Q.astype(np.float64)
    fitted = np.einsum("nk,nk->n", P[row_of_entries(S)], Q[S.indices])
    everywhere = np.sum((P.T @ P) * (Q.T @ Q))
    known = (1 + confidence * S.data) * (S.data - fitted) ** 2 - fitted**2
    return float(everywhere + known.sum() + ridge * (np.sum(P**2) + np.sum(Q**2)))


def quantize(Q: np.ndarray, bits: int) -> np.ndarray:
    """Round factors to few bits, one scale a factor; return the values of the rounded numbers."""
    if bits == 32:
        return Q
    steps = 2 ** (bits - 1) - 1
    scale = np.maximum(np.abs(Q).max(axis=0), 1e-12) / steps
    return (np.rint(Q / scale) * scale).astype(np.float32)  # type: ignore[no-any-return]
