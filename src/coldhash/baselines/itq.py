"""ITQ and CH: real-valued factors, rotated so that little is lost when they are rounded to signs.

    min  ‖C - F R‖²    over codes C and rotations R,    F = [P; Q]                            (ITQ)

    here   paper   note
    P, Q   -       factors of users and items from `MF`, one below the other: they share R
    C      B       C = sgn(F R), then R = polar(F'C), in turn; neither raises the loss
    F      V       not centred: that would change who is recommended what

    max  tr(U'S V)    with  U'U = n I  and  V'V = m I                                          (CH)

    here   paper   note
    S      S       targets between 0 and 1, the unknown ratings as 0
    U, V   B, D    relaxed codes of users and items, one a row; rounded to signs at the end

For V fixed the best U is √n polar(S V), and the other way round: orthogonal iteration, which finds
the space of the main singular vectors. Which rotation within it comes out is chance, as U R and V R
are as good for any R; CH takes that of ITQ.

Codes of items are signs. The methods have none for strangers, so they have a ridge map from their
features to the users' rotated factors: hence the names "itq+map" and "ch+map", and the same for the
other methods of this kind.

Gong and Lazebnik, "Iterative quantization: a Procrustean approach to learning binary codes",
CVPR 2011.
Liu, He, Deng and Lang, "Collaborative hashing", CVPR 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from coldhash.arrays.products import times
from coldhash.baselines import shared
from coldhash.baselines.mf import MF
from coldhash.baselines.shared import Baseline, Bits, Training, find_rotation, random_rotation
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class ITQ(Baseline):
    """Settings of the factors, the rotation and the map.

    Parameters
    ----------
    n_bits
        Length of codes, and the number of factors.
    n_rounds
        Rounds of the rotation.
    confidence, ridge
        Those of `MF`, which makes the factors.
    map_ridge
        Ridge of the map from features to user vectors.

    Examples
    --------
    >>> from coldhash import read
    >>> model = ITQ(n_bits=32).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('itq+map', 4)
    """

    n_bits: Bits = 64
    n_rounds: PositiveInt = 50
    confidence: float = 30.0
    ridge: PositiveFloat = 15.0
    map_ridge: PositiveFloat = 100.0

    def _fit(self, training: Training) -> Recommender:
        """Factorise, rotate and round."""
        mf = MF(n_factors=self.n_bits, confidence=self.confidence, ridge=self.ridge)
        factors = mf.fit(training.data, training.seed)
        P, Q = factors.user_vectors, factors.items.rows()
        F = np.vstack([P, Q]).astype(np.float64)
        R, losses = find_rotation(F, random_rotation(self.n_bits, training.rng), self.n_rounds)
        for loss in losses:
            training.record(loss)
        users, items = np.split(F @ R, [len(P)])
        return training.make_mapped_recommender("itq+map", users, items, self.map_ridge)


@dataclass(frozen=True, kw_only=True)
class CH(Baseline):
    """Settings of the iteration and of the map.

    Parameters
    ----------
    n_bits
        Length of codes (r).
    n_rounds
        Rounds.
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
    map_ridge: PositiveFloat = 7000.0

    def _fit(self, training: Training) -> Recommender:
        """Alternate users and items, rotate, round; the objective reported is -tr(U'S V)."""
        S = training.targets("share")
        St = shared.transpose(S)
        V = orthogonalise(training.rng.standard_normal((S.shape[1], self.n_bits)))
        for _ in range(self.n_rounds):
            U = orthogonalise(times(S, V))
            StU = times(St, U)
            V = orthogonalise(StU)
            training.record(-float(np.sum(StU * V)))
        start = random_rotation(self.n_bits, training.rng)
        R, _ = find_rotation(np.vstack([U, V]), start, shared.ROTATION_ROUNDS)
        return training.make_mapped_recommender("ch+map", U @ R, V @ R, self.map_ridge)


def orthogonalise(M: np.ndarray) -> np.ndarray:
    """Compute √n polar(M): the matrix of orthogonal columns nearest to M, entries about 1."""
    P, _, Qt = np.linalg.svd(M, full_matrices=False)
    return np.sqrt(len(M)) * P @ Qt  # type: ignore[no-any-return]
