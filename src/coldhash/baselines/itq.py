"""ITQ: factors rotated so that little is lost when they are rounded to signs.

    min  ‖C - F R‖²    over codes C and rotations R,    F = [P; Q]

    here   paper   note
    P, Q   -       factors of users and items from `MF`, one below the other: they share R
    C      B       C = sgn(F R), then R = polar(F'C), in turn; neither raises the loss
    F      V       not centred: that would change who is recommended what

Codes of items are sgn(Q R). The method has none for strangers, so they have a ridge map from their
features to P R: hence the name "itq+map", and the same for the other methods of this kind.

Gong and Lazebnik, "Iterative quantization: a Procrustean approach to learning binary codes",
CVPR 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from coldhash.arrays.codes import signs
from coldhash.baselines.mf import MF
from coldhash.baselines.shared import Baseline, Bits, Training, polar, random_rotation
from coldhash.data.ratings import TargetKind
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
    confidence, ridge, factor_rounds, target
        `confidence`, `ridge`, `n_rounds` and `target` of `MF`, which makes the factors.
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
    factor_rounds: PositiveInt = 15
    target: TargetKind = "favourite"
    map_ridge: PositiveFloat = 100.0

    def _fit(self, training: Training) -> Recommender:
        """Factorise, rotate and round."""
        factors = MF(
            n_factors=self.n_bits,
            confidence=self.confidence,
            ridge=self.ridge,
            n_rounds=self.factor_rounds,
            target=self.target,
        ).fit(training.data, training.seed)
        P, Q = factors.user_vectors, factors.items.rows()
        F = np.vstack([P, Q]).astype(np.float64)
        R, losses = find_rotation(F, self.n_rounds, training.rng)
        for loss in losses:
            training.record(loss)
        FR = F @ R
        users, items = FR[: len(P)], FR[len(P) :]
        return training.make_mapped_recommender("itq+map", users, items, self.map_ridge)


def find_rotation(
    F: np.ndarray, n_rounds: int, rng: np.random.Generator
) -> tuple[np.ndarray, list[float]]:
    """Find the rotation that brings rows of F near codes; return also the loss of each round."""
    R, losses = random_rotation(F.shape[1], rng).astype(np.float64), list[float]()
    for _ in range(n_rounds):
        C = signs(F @ R, np.float64)
        R = polar(F.T @ C)
        losses.append(float(np.sum((C - F @ R) ** 2)))
    return R, losses
