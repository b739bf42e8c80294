"""ITQ: factors rotated so that their signs say as much as can be; relax, then round.

    min  ‖C - F R‖²    over codes C and rotations R,    F = [P; Q]

    here   paper   note
    P, Q   -       factors of users and items from `MF`, one below the other: they share R
    C      B       C = sgn(F R), then R = polar(F'C), in turn; neither raises the loss
    F      V       not centred: that would change who is recommended what

Codes of items are sgn(Q R). The method has none for strangers, so they get a ridge map from their
features to P R: hence the name "itq+map". The same is done for the other methods of this kind.

Gong and Lazebnik, "Iterative quantization: a Procrustean approach to learning binary codes",
CVPR 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from coldhash.arrays.codes import signs
from coldhash.baselines.mf import MF
from coldhash.baselines.ridge import ridge_map, stranger_groups
from coldhash.baselines.shared import make_recommender, polar, random_rotation
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import TargetKind
from coldhash.errors import SettingError
from coldhash.features.groups import FeatureEncoder
from coldhash.mfdcf.report import code_report, warn_of_collapse
from coldhash.recommender.encoders.linear import StackEncoder
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_types


class Mapped(Protocol):
    """The settings of a method that strangers reach by a map."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def map_ridge(self) -> float:
        """The strength of the map's shrinkage."""
        ...


@dataclass(frozen=True, kw_only=True)
class ITQ:
    """Settings of the factors, the rotation and the map.

    Examples
    --------
    >>> from coldhash import read
    >>> model = ITQ(n_bits=32).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('itq+map', 4)
    """

    n_bits: int = 64
    n_rounds: int = 50  # of the rotation
    confidence: float = 30.0  # of the factors, as in MF
    ridge: float = 15.0
    factor_rounds: int = 15
    target: TargetKind = "favourite"
    map_ridge: float = 100.0  # λ of the map from features

    def __post_init__(self) -> None:
        check_types(self)
        check_bits("ITQ", self.n_bits)
        if self.n_rounds < 1 or self.map_ridge <= 0:
            raise SettingError(
                f"ITQ: n_rounds={self.n_rounds}, map_ridge={self.map_ridge}",
                hint="n_rounds from 1, map_ridge above 0",
            )
        self._factors()

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Factorise, rotate, round."""
        model = self._factors().fit(data, seed)
        P, Q = model.user_vectors, model.items.rows()
        with threadpool_limits(1, "blas"):
            F = np.vstack([P, Q]).astype(np.float64)
            R, losses = rotation(F, self.n_rounds, np.random.default_rng(seed), callback)
            FR = F @ R
            return mapped("itq+map", self, data, model.features, FR[: len(P)], FR[len(P) :], losses)

    def _factors(self) -> MF:
        return MF(
            n_factors=self.n_bits,
            confidence=self.confidence,
            ridge=self.ridge,
            n_rounds=self.factor_rounds,
            target=self.target,
        )


def rotation(
    F: np.ndarray, n_rounds: int, rng: np.random.Generator, callback: Callback | None = None
) -> tuple[np.ndarray, list[float]]:
    """Find the rotation that brings rows of F near codes; gives it with the loss of each round."""
    R, losses = random_rotation(F.shape[1], rng).astype(np.float64), list[float]()
    for n in range(n_rounds):
        C = signs(F @ R, np.float64)
        R = polar(F.T @ C)
        losses.append(float(np.sum((C - F @ R) ** 2)))
        if callback is not None:
            callback(n, losses[-1])
    return R, losses


def mapped(
    name: str,
    settings: Mapped,
    data: Dataset,
    encoder: FeatureEncoder,
    users: np.ndarray,
    items: np.ndarray,
    objective: list[float],
) -> Recommender:
    """Give items the signs of their vectors, and strangers a map to the users' vectors."""
    groups = stranger_groups(encoder)
    users = users.astype(np.float32)
    features = encoder.apply(data.users)
    strangers = StackEncoder(groups, ridge_map(features, groups, users, settings.map_ridge))
    unseen = strangers.encode(features, None).vectors
    return make_recommender(
        data,
        name=name,
        settings=settings,
        features=encoder,
        encoder=strangers,
        codes=signs(items),
        user_vectors=users,
        report={
            "objective": objective,
            "user_codes": code_report(users),
            "item_codes": code_report(items),
            "stranger_codes": code_report(unseen),
            "warning": warn_of_collapse(unseen),
        },
    )


def check_bits(method: str, n_bits: int) -> None:
    """Refuse codes of no length."""
    if not 1 <= n_bits <= 1024:
        raise SettingError(f"{method}: n_bits={n_bits}", hint="1 to 1024")
