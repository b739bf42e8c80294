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
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.products import times
from coldhash.baselines.itq import find_rotation
from coldhash.baselines.shared import Baseline, Bits, Training
from coldhash.data.ratings import TargetKind
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class CH(Baseline):
    """Settings of the iteration and of the map.

    Parameters
    ----------
    n_bits
        Length of codes (r).
    n_rounds
        Rounds at most.
    tolerance
        Stop when a round gains less than this share of the objective.
    rotation_rounds
        Rounds of the rotation.
    rotation_starts
        Random starts of the rotation, of which the best counts.
    target
        What a rating is worth, as in `MFDCF`.
    map_ridge
        Ridge of the map from features to user vectors.

    Examples
    --------
    >>> from coldhash import read
    >>> model = CH(n_bits=32).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('ch+map', 4)
    """

    n_bits: Bits = 64
    n_rounds: PositiveInt = 15
    tolerance: NonNegativeFloat = 1e-5
    rotation_rounds: PositiveInt = 50
    rotation_starts: PositiveInt = 1
    target: TargetKind = "share"
    map_ridge: PositiveFloat = 7000.0

    def _fit(self, training: Training) -> Recommender:
        """Alternate users and items, rotate, round; the objective reported is -tr(U'S V)."""
        U, V = self._alternate(training.targets(self.target), training)
        F, starts = np.vstack([U, V]), range(self.rotation_starts)
        found = [find_rotation(F, self.rotation_rounds, training.rng) for _ in starts]
        R, _ = min(found, key=lambda one: one[1][-1])
        return training.make_mapped_recommender("ch+map", U @ R, V @ R, self.map_ridge)

    def _alternate(self, S: csr_array, training: Training) -> tuple[np.ndarray, np.ndarray]:
        St, objective = csr_array(S.T.tocsr()), training.objective
        V = orthogonalise(training.rng.standard_normal((S.shape[1], self.n_bits)))
        for n in range(self.n_rounds):
            U = orthogonalise(times(S, V))
            StU = times(St, U)
            V = orthogonalise(StU)
            training.record(-float(np.sum(StU * V)))
            if n and objective[-2] - objective[-1] <= -self.tolerance * objective[-2]:
                break
        return U, V


def orthogonalise(M: np.ndarray) -> np.ndarray:
    """Compute √n polar(M): the matrix of orthogonal columns nearest to M, entries about 1."""
    P, _, Qt = np.linalg.svd(M, full_matrices=False)
    return np.sqrt(len(M)) * P @ Qt  # type: ignore[no-any-return]
