"""DCF and DCMF: discrete collaborative filtering, without and with the content of users.

    min  Σ_Ω (s_ui - b_u·d_i)² + ρ Σ_rest (b_u·d_i)² + η (‖B - X W‖² + λ‖W‖²)
         - 2α tr(B'P) - 2β tr(D'Q)                                                             (1)
    over B, D of ±1;  P'1 = 0, P'P = n I;  Q'1 = 0, Q'Q = m I

    here   DCF      DCMF     note
    s      S        R        ratings scaled to -n_bits .. n_bits; a scaled 0 is a rating, not a gap
    B, D   Bᵀ, Dᵀ   Φᵀ, Ψᵀ   our rows are the papers' columns
    X, W   -        Xᵀ, Uᵀ   features of users and the map to codes; items have no features here
    P, Q   Xᵀ, Yᵀ   Pᵀ, Qᵀ   delegates: balanced, uncorrelated stand-ins of B and D
    α, β   α, β     α, β     one setting
    ρ      -        ρ        interaction regulariser: the weight of unknown entries, as 0

In DCMF somebody without ratings has the code sgn(x W). DCF has none for them; they have a ridge map
from features to the users' codes, fitted afterwards: "dcf+map".

Zhang, Shen, Liu, He, Luan and Chua, "Discrete collaborative filtering", SIGIR 2016.
Lian, Liu, Ge, Zheng, Xie and Cao, "Discrete content-aware matrix factorization", KDD 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from coldhash.arrays.codes import signs
from coldhash.baselines import observed, shared
from coldhash.baselines.observed import DiscreteBaseline, flip_bits
from coldhash.baselines.shared import StackEncoder, Training, balance
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class DCF(DiscreteBaseline):
    """Settings of DCF and of the map for strangers.

    Parameters
    ----------
    n_bits
        Length of codes (r).
    balance_weight
        How hard codes are pulled to their delegates (α and β).
    n_rounds
        Rounds at most; it stops when no bit flips.
    n_relaxed
        Rounds of the real-valued start.
    ridge
        Ridge of the start, for each rating.
    map_ridge
        Ridge of the map from features to the users' codes.

    Examples
    --------
    >>> from coldhash import read
    >>> model = DCF(n_bits=32).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('dcf+map', 4)
    """

    balance_weight: NonNegativeFloat = 20.0
    ridge: PositiveFloat = 0.05
    map_ridge: PositiveFloat = 1.0

    def _fit(self, training: Training) -> Recommender:
        """Alternate users, items and delegates until no bit flips; then fit the map."""
        B, D = _fit_codes(self, training)
        encoder = training.fit_map(B, self.map_ridge)
        return training.make_code_recommender("dcf+map", encoder, B, D)


@dataclass(frozen=True, kw_only=True)
class DCMF(DiscreteBaseline):
    """Settings of DCMF.

    Parameters
    ----------
    n_bits
        Length of codes (r).
    content_weight
        How hard features pull on a code (η).
    map_ridge
        Ridge of the map from features to codes (λ).
    rho
        Weight of unknown entries (ρ); 0 leaves them out, as DCF does; 0.5 ranks far better.
    balance_weight
        How hard codes are pulled to their delegates (α and β).
    n_rounds
        Rounds at most; it stops when no bit flips.
    n_relaxed
        Rounds of the real-valued start.
    ridge
        Ridge of the start, for each rating.

    Examples
    --------
    >>> from coldhash import read
    >>> model = DCMF(n_bits=32, rho=0.5).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('dcmf', 4)
    """

    content_weight: NonNegativeFloat = 0.5
    map_ridge: PositiveFloat = 4.0
    rho: Annotated[float, Field(ge=0, le=1)] = 0.0
    balance_weight: NonNegativeFloat = 100.0
    ridge: PositiveFloat = 0.05

    def _fit(self, training: Training) -> Recommender:
        """Alternate users, items, the map and delegates until no bit flips."""
        eta, ridge = self.content_weight, self.map_ridge
        X = training.stacked.astype(np.float64)

        def content(B: np.ndarray) -> tuple[np.ndarray, float]:
            W = shared.solve_ridge(X, X.T @ B, ridge)
            XW = X @ W
            return eta * XW, eta * (np.sum((B - XW) ** 2) + ridge * np.sum(W**2))

        B, D = _fit_codes(self, training, self.rho, content)
        W = shared.solve_ridge(X, X.T @ B, ridge).astype(np.float32)
        return training.make_code_recommender("dcmf", StackEncoder(training.groups, W), B, D)


def _no_content(B: np.ndarray) -> tuple[np.ndarray, float]:
    return np.zeros(B.shape), 0.0


def _fit_codes(
    settings: DiscreteBaseline,
    training: Training,
    rho: float = 0.0,
    content: Callable[[np.ndarray], tuple[np.ndarray, float]] = _no_content,
) -> tuple[np.ndarray, np.ndarray]:
    """Lower (1); return the codes of users and items.

    `content` returns the pull of features on the users' codes, and their term in (1).
    """
    S, alpha = observed.code_targets(training.ratings, settings.n_bits), settings.balance_weight
    P, Q = observed.relax(S, settings, training.rng, alpha, rho)
    St = shared.transpose(S)
    B, D = signs(P, np.float64), signs(Q, np.float64)
    pull_B, pull_D = balance(B, alpha), balance(D, alpha)
    pull_X, _ = content(B)
    for _ in range(settings.n_rounds):
        old = B, D
        B = flip_bits(S, B, D, pull_B + pull_X, rho)
        D = flip_bits(St, D, B, pull_D, rho)  # the same step, transposed
        pull_X, apart = content(B)
        pull_B, pull_D = balance(B, alpha), balance(D, alpha)
        pulled = np.sum(B * pull_B) + np.sum(D * pull_D)
        training.record(float(observed.loss(S, B, D, rho) + apart - 2 * pulled))  # (1)
        if np.array_equal(B, old[0]) and np.array_equal(D, old[1]):
            break
    return B, D
