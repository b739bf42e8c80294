"""BCCF: binary codes for collaborative filtering; known ratings only, bits balanced.

    min  Σ_known (s_ui - ½ - u_u·v_i / 2r)² + λ (‖Σ_u u_u‖² + ‖Σ_i v_i‖²),    -1 <= u, v <= 1   (1)

    here   paper   note
    s      R       ratings scaled to 0..1
    u, v   F, H    relaxed codes, the rows of U and V

Each number of each row is set to its exact best between -1 and 1, so (1) never rises. Then users
and items are rotated together towards codes that split every bit at its median:

    B = sgn(U R - median),  D = sgn(V R - median),  R = polar(U'B + V'D)

Codes of strangers need a map: "bccf+map". Who never rated is not in (1) but for the balance: left
at 0.

Zhou and Zha, "Learning binary codes for collaborative filtering", KDD 2012.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.arrays.codes import signs
from coldhash.arrays.compiled import compiled
from coldhash.baselines.itq import check_bits, mapped
from coldhash.baselines.shared import polar, random_rotation
from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError
from coldhash.features.fitting import fit_features
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_types


@dataclass(frozen=True, kw_only=True)
class BCCF:
    """Settings of the relaxation, the rotation and the map.

    Examples
    --------
    >>> from coldhash import read
    >>> model = BCCF(n_bits=32).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('bccf+map', 4)
    """

    n_bits: int = 64  # r
    balance_weight: float = 0.01  # λ
    n_rounds: int = 15
    n_sweeps: int = 1  # over the numbers of a row, in each round
    rotation_rounds: int = 50
    map_ridge: float = 100.0  # λ of the map from features

    def __post_init__(self) -> None:
        check_types(self)
        check_bits("BCCF", self.n_bits)
        if min(self.n_rounds, self.n_sweeps, self.rotation_rounds) < 1:
            raise SettingError("BCCF: n_rounds, n_sweeps and rotation_rounds are at least 1")
        if self.balance_weight <= 0 or self.map_ridge <= 0:
            raise SettingError(
                f"BCCF: balance_weight={self.balance_weight}, map_ridge={self.map_ridge}",
                hint="above 0",
            )

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Alternate users and items, rotate, split at the medians."""
        rng, ratings = np.random.default_rng(seed), data.ratings.matrix
        encoder = fit_features(data, seed)
        low, high = data.ratings.scale
        values = (ratings.data.astype(np.float64) - low) / max(high - low, 1e-9) - 0.5
        T = csr_array((values, ratings.indices, ratings.indptr), shape=ratings.shape)
        with threadpool_limits(1, "blas"):
            U, V, objective = self._alternate(T, rng, callback)
            R = random_rotation(self.n_bits, rng).astype(np.float64)
            for _ in range(self.rotation_rounds):
                R = polar(U.T @ split(U @ R)[1] + V.T @ split(V @ R)[1])
            return mapped(
                "bccf+map", self, data, encoder, split(U @ R)[0], split(V @ R)[0], objective
            )

    def _alternate(
        self, T: csr_array, rng: np.random.Generator, callback: Callback | None
    ) -> tuple[np.ndarray, np.ndarray, list[float]]:
        Tt, objective = csr_array(T.T.tocsr()), list[float]()
        U, V = (
            rng.uniform(-1, 1, (len(M.indptr) - 1, self.n_bits)) * (np.diff(M.indptr) > 0)[:, None]
            for M in (T, Tt)
        )
        for n in range(self.n_rounds):
            U = half(T, U, V, self.balance_weight, self.n_sweeps)
            V = half(Tt, V, U, self.balance_weight, self.n_sweeps)
            objective.append(loss(T, U, V, self.balance_weight))
            if callback is not None:
                callback(n, objective[-1])
        return U, V, objective


def split(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move the median of each bit to 0; gives the vectors and their codes."""
    centred = vectors - np.median(vectors, axis=0)
    return centred, signs(centred, np.float64)


def loss(T: csr_array, U: np.ndarray, V: np.ndarray, balance_weight: float) -> float:
    """Give (1); T holds s - ½."""
    owners = np.repeat(np.arange(T.shape[0]), np.diff(T.indptr))
    fitted = np.einsum("nk,nk->n", U[owners], V[T.indices]) / (2 * U.shape[1])
    balance = np.sum(U.sum(axis=0) ** 2) + np.sum(V.sum(axis=0) ** 2)
    return float(np.sum((T.data - fitted) ** 2) + balance_weight * balance)


def half(
    T: csr_array, U: np.ndarray, V: np.ndarray, balance_weight: float, n_sweeps: int
) -> np.ndarray:
    """Lower (1) over the rows' vectors, given the columns'; gives the new ones."""
    new = _half(T.indptr, T.indices, T.data, U.copy(), V, balance_weight, n_sweeps)
    return np.asarray(new)


@compiled()
def _half(indptr, indices, values, U, V, balance_weight, n_sweeps):  # type: ignore[no-untyped-def]
    """Go over the rows one after the other, as the balance ties them together.

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
        for _ in range(n_sweeps):
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
