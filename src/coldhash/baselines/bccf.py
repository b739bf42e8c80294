"""BCCF: binary codes for collaborative filtering; known ratings only, bits balanced.

    min  Σ_known (s_ui - ½ - u_u·v_i / 2r)² + λ (‖Σ_u u_u‖² + ‖Σ_i v_i‖²),    -1 <= u, v <= 1   (1)

    here   paper   note
    s      R       ratings scaled to 0..1
    u, v   F, H    relaxed codes, the rows of U and V

Each number of each row is set to its exact best between -1 and 1, so (1) never rises. Then users
and items are rotated together towards codes that split every bit at its median:

    B = sgn(U R - median),  D = sgn(V R - median),  R = polar(U'B + V'D)

Codes of strangers need a map: "bccf+map". Users without ratings enter only the balance and stay 0.

Zhou and Zha, "Learning binary codes for collaborative filtering", KDD 2012.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import PositiveFloat, PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.codes import signs
from coldhash.arrays.compiled import compiled
from coldhash.baselines import shared
from coldhash.baselines.shared import Baseline, Bits, Training
from coldhash.data.ratings import row_of_entries, with_values
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class BCCF(Baseline):
    """Settings of the relaxation, the rotation and the map.

    Parameters
    ----------
    n_bits
        Length of codes (r).
    balance_weight
        How hard bits are balanced (λ).
    n_rounds
        Rounds of users and items.
    map_ridge
        Ridge of the map from features to user vectors.

    Examples
    --------
    >>> from coldhash import read
    >>> model = BCCF(n_bits=32).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('bccf+map', 4)
    """

    n_bits: Bits = 64
    balance_weight: PositiveFloat = 0.01
    n_rounds: PositiveInt = 15
    map_ridge: PositiveFloat = 100.0

    def _fit(self, training: Training) -> Recommender:
        """Alternate users and items, rotate, split at the medians."""
        ratings, (low, high) = training.ratings.matrix, training.ratings.scale
        values = (ratings.data.astype(np.float64) - low) / max(high - low, 1e-9) - 0.5
        T = with_values(ratings, values)
        U, V = (
            training.rng.uniform(-1, 1, (M.shape[0], self.n_bits))
            * (np.diff(M.indptr) > 0)[:, None]
            for M in (T, shared.transpose(T))
        )
        U, V = training.alternate(T, U, V, self.update_rows, self.loss, self.n_rounds)
        R = shared.random_rotation(self.n_bits, training.rng)
        for _ in range(shared.ROTATION_ROUNDS):
            codes = [signs(centre_at_median(M @ R), np.float64) for M in (U, V)]
            R = shared.polar(U.T @ codes[0] + V.T @ codes[1])
        users, items = centre_at_median(U @ R), centre_at_median(V @ R)
        return training.make_mapped_recommender("bccf+map", users, items, self.map_ridge)

    def loss(self, T: csr_array, U: np.ndarray, V: np.ndarray) -> float:
        """Compute (1); T holds s - ½."""
        fitted = np.einsum("nk,nk->n", U[row_of_entries(T)], V[T.indices]) / (2 * U.shape[1])
        balance = np.sum(U.sum(axis=0) ** 2) + np.sum(V.sum(axis=0) ** 2)
        return float(np.sum((T.data - fitted) ** 2) + self.balance_weight * balance)

    def update_rows(self, T: csr_array, U: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Lower (1) over the rows' vectors, given those of the columns; return the new ones."""
        entries = (T.indptr, T.indices, T.data)
        return np.asarray(_update_rows(*entries, U.copy(), V, self.balance_weight))


def centre_at_median(vectors: np.ndarray) -> np.ndarray:
    """Move the median of each bit to 0."""
    return np.asarray(vectors - np.median(vectors, axis=0))


@compiled()
def _update_rows(indptr, indices, values, U, V, balance_weight):  # type: ignore[no-untyped-def]
    """Update rows one after the other, as the balance ties them together.

    Over one number x of a row, (1) is  Σ (e_j - c x v_jk)² + λ (x + rest)², with c = 1/2r.
    """
    n_bits = U.shape[1]
    c = 1 / (2 * n_bits)
    totals = np.zeros(n_bits)
    for u in range(len(U)):
        for k in range(n_bits):
            totals[k] += U[u, k]
    for u in range(len(indptr) - 1):
        start, end = indptr[u], indptr[u + 1]
        if start == end:
            continue
        chosen, residual = np.empty((n_bits, end - start)), values[start:end].copy()
        for j in range(end - start):
            for k in range(n_bits):
                chosen[k, j] = V[indices[start + j], k]
                residual[j] -= c * U[u, k] * chosen[k, j]
        for k in range(n_bits):
            v, old = chosen[k], U[u, k]
            curve = c * c * np.dot(v, v)
            pull = c * np.dot(v, residual) + curve * old - balance_weight * (totals[k] - old)
            new = min(max(pull / (curve + balance_weight), -1.0), 1.0)
            for j in range(len(v)):
                residual[j] -= c * (new - old) * v[j]
            totals[k] += new - old
            U[u, k] = new
    return U
