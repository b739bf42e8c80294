"""Delegates: the real-valued stand-ins that keep codes balanced and bits apart.

    max  tr(B'X)   over   X'1 = 0,  X'X = n I

Exactly balanced and uncorrelated codes may not exist, so codes are only pulled towards the nearest
real matrix that is both. With the centred codes  B - 1b̄ = U Σ P',  it is  X = √n [U U*][P P*]',
where U* and P* complete the directions in which the codes do not vary.

Zhang, Shen, Liu, He, Luan and Chua, "Discrete collaborative filtering", SIGIR 2016.
"""

from __future__ import annotations

import numpy as np

from coldhash.errors import SettingError

FLAT = 1e-8  # of the greatest eigenvalue: below it codes do not vary in a direction


def delegate(B: np.ndarray) -> np.ndarray:
    """Give the balanced, uncorrelated matrix nearest to B (entities x bits), of the same shape."""
    n, n_bits = B.shape
    if n <= n_bits:
        raise SettingError(
            f"{n} codes of {n_bits} bits cannot be balanced and uncorrelated",
            hint=f"at most {max(n - 1, 0)} bits, or no balance",
        )
    centred = B - B.mean(axis=0, dtype=np.float64)
    values, P = np.linalg.eigh(centred.T @ centred)
    values, P = values[::-1], P[:, ::-1]  # descending, so that what is completed comes last
    rank = int(np.sum(values > FLAT * max(values[0], 1.0)))
    U = centred @ (P[:, :rank] / np.sqrt(values[:rank]))
    if rank < n_bits:
        U = np.hstack([U, _complement(U, n_bits - rank)])
    return np.asarray(np.sqrt(n) * (U @ P.T))


def balance(B: np.ndarray, weight: float) -> np.ndarray:
    """Give the pull of the delegate on each code; none at weight 0, however few the codes."""
    return weight * delegate(B) if weight else np.zeros(B.shape)


def _complement(U: np.ndarray, width: int) -> np.ndarray:
    """Give orthonormal columns that are orthogonal to those of U and to the constant."""
    n = len(U)
    basis = np.hstack([np.full((n, 1), 1 / np.sqrt(n)), U])
    free = np.random.default_rng(0).standard_normal((n, width))
    for _ in range(2):  # once leaves traces
        free -= basis @ (basis.T @ free)
    return np.linalg.qr(free)[0]
