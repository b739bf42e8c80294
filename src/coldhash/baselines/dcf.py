"""DCF: discrete collaborative filtering, with a map from features for those without ratings.

    min  Σ_Ω (s_ui - b_u·d_i)² - 2α tr(B'P) - 2β tr(D'Q)                                       (1)
    over B, D of ±1;  P'1 = 0, P'P = n I;  Q'1 = 0, Q'Q = m I

    here   paper    note
    s      S        ratings scaled to -n_bits .. n_bits; only known ones enter
    B, D   Bᵀ, Dᵀ   our rows are the paper's columns
    P, Q   Xᵀ, Yᵀ   delegates: balanced, uncorrelated stand-ins of B and D
    α, β   α, β     one setting

The method knows nothing of people without ratings. They get "+map": a ridge map, learned afterwards
from features to the users' relaxed factors or codes. It is ours, and named in the model's name.

Zhang, Shen, Liu, He, Luan and Chua, "Discrete collaborative filtering", SIGIR 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.arrays.codes import signs
from coldhash.baselines.observed import code_targets, improve, loss, relaxed
from coldhash.baselines.ridge import ridge_map, stranger_groups
from coldhash.baselines.shared import balance, make_recommender
from coldhash.data.dataset import Dataset
from coldhash.features.fitting import fit_features
from coldhash.mfdcf.report import code_report, warn_of_collapse
from coldhash.recommender.encoders.linear import StackEncoder, stack_features
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_settings, check_types


@dataclass(frozen=True, kw_only=True)
class DCF:
    """Settings of the method and of the map for strangers.

    Examples
    --------
    >>> from coldhash import read
    >>> model = DCF(n_bits=32).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('dcf+map', 4)
    """

    n_bits: int = 64  # r
    balance_weight: float = 20.0  # α and β
    n_rounds: int = 10
    n_sweeps: int = 3  # over the bits, in each step
    n_relaxed: int = 3  # rounds of the real-valued start
    ridge: float = 0.05  # of the start, for each rating
    map_to: Literal["factors", "codes"] = "codes"  # what features are mapped to
    map_ridge: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        check_settings(
            self,
            n_bits=(1 <= self.n_bits <= 1024, "1 to 1024"),
            balance_weight=(self.balance_weight >= 0, "0 or more"),
            n_rounds=(self.n_rounds >= 1, "1 or more"),
            n_sweeps=(self.n_sweeps >= 1, "1 or more"),
            n_relaxed=(self.n_relaxed >= 1, "1 or more"),
            ridge=(self.ridge > 0, "above 0"),
            map_to=(self.map_to in ("factors", "codes"), "'factors' or 'codes'"),
            map_ridge=(self.map_ridge > 0, "above 0"),
        )

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Alternate users, items and delegates until no bit flips; then learn the map."""
        rng = np.random.default_rng(seed)
        S = code_targets(data.ratings, self.n_bits)
        St = csr_array(S.T.tocsr())
        with threadpool_limits(1, "blas"):
            encoder = fit_features(data, seed)
            groups = stranger_groups(encoder)
            factors, B, D = self._start(S, rng)
            alpha, objective = self.balance_weight, []
            P, Q = balance(B, alpha), balance(D, alpha)  # times α and β
            for n in range(self.n_rounds):
                old = B, D
                B = improve(S, B, D, P, self.n_sweeps)
                D = improve(St, D, B, Q, self.n_sweeps)  # the same step, transposed
                P, Q = balance(B, alpha), balance(D, alpha)
                objective.append(loss(S, B, D) - 2 * float(np.sum(B * P) + np.sum(D * Q)))
                if callback is not None:
                    callback(n, objective[-1])
                if np.array_equal(B, old[0]) and np.array_equal(D, old[1]):
                    break
            features = encoder.apply(data.users)
            known = B if self.map_to == "codes" else factors
            W = ridge_map(features, groups, known, self.map_ridge)
            report = reports(B, D, stack_features(features, groups) @ W)
        return make_recommender(
            data,
            name="dcf+map",
            settings=self,
            features=encoder,
            encoder=StackEncoder(groups, W),
            codes=signs(D),
            user_vectors=B.astype(np.float32),
            report={"objective": objective} | report,
        )

    def _start(
        self, S: csr_array, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Give relaxed factors of users, and the first codes of users and items."""
        factors, others = relaxed(
            S,
            self.n_bits,
            rng,
            ridge=self.ridge,
            weight=self.balance_weight,
            n_rounds=self.n_relaxed,
        )
        return factors, signs(factors, np.float64), signs(others, np.float64)


def reports(B: np.ndarray, D: np.ndarray, strangers: np.ndarray) -> dict[str, Any]:
    """Describe the codes of users, items, and users taken for strangers; warn if these collapse."""
    return {
        "user_codes": code_report(B),
        "item_codes": code_report(D),
        "stranger_codes": code_report(strangers),
        "warning": warn_of_collapse(strangers),
    }
