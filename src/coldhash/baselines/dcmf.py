"""DCMF: discrete content-aware matrix factorisation: DCF whose user codes follow the features.

    min  Σ_Ω (s_ui - b_u·d_i)² + ρ Σ_rest (b_u·d_i)² + η (‖B - X W‖² + λ‖W‖²)
         - 2α tr(B'P) - 2β tr(D'Q)                                                             (1)
    over B, D of ±1;  P'1 = 0, P'P = n I;  Q'1 = 0, Q'Q = m I

    here   paper    note
    s      R        ratings scaled to -n_bits .. n_bits; a scaled 0 is a rating, not a gap
    B, D   Φᵀ, Ψᵀ   our rows are the paper's columns
    X, W   Xᵀ, Uᵀ   features of users and the map to codes; items have no features here
    P, Q   Pᵀ, Qᵀ   delegates: balanced, uncorrelated stand-ins of B and D
    ρ      ρ        the interaction regulariser: unknown entries count as 0 with this weight

Somebody without ratings has the code sgn(x W): the method's own answer, nothing is added.

Lian, Liu, Ge, Zheng, Xie and Cao, "Discrete content-aware matrix factorization", KDD 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.arrays.codes import signs
from coldhash.baselines.dcf import reports
from coldhash.baselines.observed import code_targets, improve, loss, relaxed
from coldhash.baselines.ridge import solve_ridge, stranger_groups
from coldhash.baselines.shared import balance, make_recommender
from coldhash.data.dataset import Dataset
from coldhash.features.fitting import fit_features
from coldhash.recommender.encoders.linear import StackEncoder, stack_features
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_settings, check_types


@dataclass(frozen=True, kw_only=True)
class DCMF:
    """Settings of the method.

    Examples
    --------
    >>> from coldhash import read
    >>> model = DCMF(n_bits=32, rho=0.5).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('dcmf', 4)
    """

    n_bits: int = 64  # r
    content_weight: float = 0.5  # η: how hard features pull on a code
    map_ridge: float = 4.0  # λ
    rho: float = 0.0  # ρ: unknown entries; 0 leaves them out, as DCF does; 0.5 ranks far better
    balance_weight: float = 100.0  # α and β
    n_rounds: int = 10
    n_sweeps: int = 3  # over the bits, in each step
    n_relaxed: int = 3  # rounds of the real-valued start
    ridge: float = 0.05  # of the start, for each rating

    def __post_init__(self) -> None:
        check_types(self)
        check_settings(
            self,
            n_bits=(1 <= self.n_bits <= 1024, "1 to 1024"),
            content_weight=(self.content_weight >= 0, "0 or more"),
            map_ridge=(self.map_ridge > 0, "above 0"),
            rho=(0 <= self.rho <= 1, "from 0 to 1"),
            balance_weight=(self.balance_weight >= 0, "0 or more"),
            n_rounds=(self.n_rounds >= 1, "1 or more"),
            n_sweeps=(self.n_sweeps >= 1, "1 or more"),
            n_relaxed=(self.n_relaxed >= 1, "1 or more"),
            ridge=(self.ridge > 0, "above 0"),
        )

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Alternate users, items, the map and delegates until no bit flips."""
        rng = np.random.default_rng(seed)
        S = code_targets(data.ratings, self.n_bits)
        St = csr_array(S.T.tocsr())
        alpha, eta, rho = self.balance_weight, self.content_weight, self.rho
        with threadpool_limits(1, "blas"):
            encoder = fit_features(data, seed)
            groups = stranger_groups(encoder)
            X = stack_features(encoder.apply(data.users), groups).astype(np.float64)
            B, D = self._start(S, rng)
            W = solve_ridge(X, X.T @ B, self.map_ridge)
            P, Q = balance(B, alpha), balance(D, alpha)  # times α and β
            objective: list[float] = []
            for n in range(self.n_rounds):
                old = B, D
                B = improve(S, B, D, P + eta * (X @ W), self.n_sweeps, rho)
                D = improve(St, D, B, Q, self.n_sweeps, rho)
                W = solve_ridge(X, X.T @ B, self.map_ridge)
                P, Q = balance(B, alpha), balance(D, alpha)
                apart = np.sum((B - X @ W) ** 2) + self.map_ridge * np.sum(W**2)
                pulled = np.sum(B * P) + np.sum(D * Q)
                objective.append(float(loss(S, B, D, rho) + eta * apart - 2 * pulled))  # (1)
                if callback is not None:
                    callback(n, objective[-1])
                if np.array_equal(B, old[0]) and np.array_equal(D, old[1]):
                    break
            report = reports(B, D, X @ W)
        return make_recommender(
            data,
            name="dcmf",
            settings=self,
            features=encoder,
            encoder=StackEncoder(groups, W.astype(np.float32)),
            codes=signs(D),
            user_vectors=B.astype(np.float32),
            report={"objective": objective} | report,
        )

    def _start(self, S: csr_array, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Give the first codes of users and items."""
        factors = relaxed(
            S,
            self.n_bits,
            rng,
            ridge=self.ridge,
            weight=self.balance_weight,
            n_rounds=self.n_relaxed,
            rho=self.rho,
        )
        return signs(factors[0], np.float64), signs(factors[1], np.float64)
