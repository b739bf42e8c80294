"""CH: collaborative hashing of the whole matrix, the unknown ratings as 0.

    max  tr(U'S V)    with  U'U = n I  and  V'V = m I

    here   paper   note
    S      S       targets between 0 and 1
    U, V   B, D    relaxed codes of users and items, one a row; rounded to signs at the end

For V fixed the best U is √n polar(S V), and the other way round: orthogonal iteration, which finds
the space of the main singular vectors. Which rotation within it comes out is chance, as U R and V R
are as good for any R; `rotate` takes the one that is nearest to codes (see itq.py).

Codes of strangers need a map: "ch+map".

Liu, He, Deng and Lang, "Collaborative hashing", CVPR 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.arrays.products import times
from coldhash.baselines.itq import check_bits, mapped, rotation
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import RatingTarget, TargetKind
from coldhash.errors import SettingError
from coldhash.features.fitting import fit_features
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_types


@dataclass(frozen=True, kw_only=True)
class CH:
    """Settings of the iteration and of the map.

    Examples
    --------
    >>> from coldhash import read
    >>> model = CH(n_bits=32).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('ch+map', 4)
    """

    n_bits: int = 64  # r
    n_rounds: int = 15
    tolerance: float = 1e-5  # stop when a round gains less than this share
    rotate: bool = True  # False: the rotation that chance gave, as in the paper
    rotation_rounds: int = 50
    rotation_starts: int = 1  # the best of so many; short codes that are there need several
    target: TargetKind = "share"
    map_ridge: float = 7000.0  # λ of the map from features

    def __post_init__(self) -> None:
        check_types(self)
        check_bits("CH", self.n_bits)
        if min(self.n_rounds, self.rotation_rounds, self.rotation_starts) < 1:
            raise SettingError("CH: n_rounds, rotation_rounds and rotation_starts are at least 1")
        if self.tolerance < 0 or self.map_ridge <= 0:
            raise SettingError(
                f"CH: tolerance={self.tolerance}, map_ridge={self.map_ridge}",
                hint="tolerance 0 or more, map_ridge above 0",
            )

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Alternate users and items, rotate, round; the objective told is -tr(U'S V)."""
        rng, ratings = np.random.default_rng(seed), data.ratings.matrix
        encoder = fit_features(data, seed)
        values = RatingTarget(self.target, data.ratings.scale[1])(ratings.data)
        S = csr_array((values, ratings.indices, ratings.indptr), shape=ratings.shape)
        with threadpool_limits(1, "blas"):
            U, V, objective = self._alternate(S, rng, callback)
            if self.rotate:
                F = np.vstack([U, V])
                found = [
                    rotation(F, self.rotation_rounds, rng) for _ in range(self.rotation_starts)
                ]
                R, _ = min(found, key=lambda one: one[1][-1])
                U, V = U @ R, V @ R
            return mapped("ch+map", self, data, encoder, U, V, objective)

    def _alternate(
        self, S: csr_array, rng: np.random.Generator, callback: Callback | None
    ) -> tuple[np.ndarray, np.ndarray, list[float]]:
        St, objective = csr_array(S.T.tocsr()), list[float]()
        V = frame(rng.standard_normal((S.shape[1], self.n_bits)))
        for n in range(self.n_rounds):
            U = frame(times(S, V))
            StU = times(St, U)
            V = frame(StU)
            objective.append(-float(np.sum(StU * V)))
            if callback is not None:
                callback(n, objective[-1])
            if n and objective[-2] - objective[-1] <= -self.tolerance * objective[-2]:
                break
        return U, V, objective


def frame(M: np.ndarray) -> np.ndarray:
    """Find the matrix of orthogonal columns nearest to M, entries about 1: √n polar(M)."""
    P, _, Qt = np.linalg.svd(M, full_matrices=False)
    return np.sqrt(len(M)) * P @ Qt  # type: ignore[no-any-return]
