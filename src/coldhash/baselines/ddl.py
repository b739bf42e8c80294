"""DDL: discrete deep learning, roles swapped: here users have content, and strangers are users.

    min  Σ_Ω (s_ui - b_u·d_i)² + λ Σ_u ‖b_u - f(x_u)‖² - 2α tr(B'P) - 2β tr(D'Q)               (1)
    over B, D of ±1 and the weights of f;  P'1 = 0, P'P = n I;  Q'1 = 0, Q'Q = m I

    here   paper    note
    s      R        2 n_bits (rating / highest) - n_bits: a 1 of 5 is -0.6 n_bits, as in the paper
    B, D   D, B     the paper's items have content; our users have
    f      DBN      machines (RBM) stack_features by pre-training, a tanh layer on top
    λ      λ        in the units of codes: 4 n_bits² times the paper's
    P, Q   Y, X     delegates: balanced, uncorrelated stand-ins

The network is fitted to the codes by back-propagation, so (1) may rise in its step: it is told
round by round, not promised to fall. Somebody without ratings has the code sgn(f(x)).

Zhang, Yin, Huang, Du, Yang and Lian, "Discrete deep learning for fast content-aware
recommendation", WSDM 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.arrays.codes import signs
from coldhash.baselines.dcf import reports
from coldhash.baselines.observed import code_targets, improve, loss, relaxed, with_negatives
from coldhash.baselines.rbm import Tuner, fit_stack, output_layer
from coldhash.baselines.ridge import stranger_groups
from coldhash.baselines.shared import balance, make_recommender
from coldhash.data.dataset import Dataset
from coldhash.features.fitting import fit_features
from coldhash.recommender.encoders.network import NetworkEncoder, UnitScale
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_settings, check_types


@dataclass(frozen=True, kw_only=True)
class DDL:
    """Settings of the codes and of the network.

    Examples
    --------
    >>> from coldhash import read
    >>> model = DDL(n_bits=32, hidden=(20,)).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('ddl', 4)
    """

    n_bits: int = 64  # r
    content_weight: float = 1.0  # λ: how hard the network pulls on a code
    n_negatives: int = 0  # unrated items for each rating, as the lowest; 0 as in the paper
    hidden: tuple[int, ...] = (200,)  # units of the machines, from below
    n_pretrain: int = 20  # epochs of each machine
    n_epochs: int = 3  # of back-propagation, in each round
    rate: float = 0.01  # of Adam
    masked: float = 0.2  # share of inputs hidden from the network while it learns
    balance_weight: float = 0.001  # α and β
    n_rounds: int = 15
    n_sweeps: int = 3  # over the bits, in each step
    n_relaxed: int = 3  # rounds of the real-valued start
    ridge: float = 0.1  # of the start, for each rating

    def __post_init__(self) -> None:
        check_types(self)
        check_settings(
            self,
            n_bits=(1 <= self.n_bits <= 1024, "1 to 1024"),
            content_weight=(self.content_weight >= 0, "0 or more"),
            n_negatives=(self.n_negatives >= 0, "0 or more"),
            hidden=(
                len(self.hidden) > 0 and min(self.hidden) >= 1,
                "one size or more, each at least 1",
            ),
            n_pretrain=(self.n_pretrain >= 0, "0 or more"),
            n_epochs=(self.n_epochs >= 1, "1 or more"),
            rate=(self.rate > 0, "above 0"),
            masked=(0 <= self.masked < 1, "from 0 to below 1"),
            balance_weight=(self.balance_weight >= 0, "0 or more"),
            n_rounds=(self.n_rounds >= 1, "1 or more"),
            n_sweeps=(self.n_sweeps >= 1, "1 or more"),
            n_relaxed=(self.n_relaxed >= 1, "1 or more"),
            ridge=(self.ridge > 0, "above 0"),
        )

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Pre-train the network; then alternate users, items, delegates and the network."""
        rng = np.random.default_rng(seed)
        S = code_targets(data.ratings, self.n_bits, lowest=0.0)
        S = with_negatives(S, self.n_negatives, -self.n_bits, rng)
        St = csr_array(S.T.tocsr())
        alpha, weight, objective = self.balance_weight, self.content_weight, []
        with threadpool_limits(1, "blas"):
            encoder = fit_features(data, seed)
            features = encoder.apply(data.users)
            scale = UnitScale.of(features, stranger_groups(encoder))
            X = scale(features).astype(np.float64)
            network = self._network(X, rng)
            D, F = self._start(S, rng), network(X)
            B = signs(F, np.float64)
            P, Q = balance(B, alpha), balance(D, alpha)  # times α and β
            for n in range(self.n_rounds):
                B = improve(S, B, D, P + weight * F, self.n_sweeps)
                D = improve(St, D, B, Q, self.n_sweeps)
                P, Q = balance(B, alpha), balance(D, alpha)
                for _ in range(self.n_epochs):
                    network.epoch(X, B, rng)
                F = network(X)
                pulled = np.sum(B * P) + np.sum(D * Q)
                apart = np.sum((B - F) ** 2)
                objective.append(float(loss(S, B, D) + weight * apart - 2 * pulled))  # (1)
                if callback is not None:
                    callback(n, objective[-1])
            report = reports(B, D, F)
        layers = tuple((W.astype(np.float32), c.astype(np.float32)) for W, c in network.layers)
        return make_recommender(
            data,
            name="ddl",
            settings=self,
            features=encoder,
            encoder=NetworkEncoder(scale, layers),
            codes=signs(D),
            user_vectors=B.astype(np.float32),
            report={"objective": objective} | report,
        )

    def _network(self, X: np.ndarray, rng: np.random.Generator) -> Tuner:
        stack = fit_stack(X, self.hidden, rng, self.n_pretrain)
        top = output_layer(self.hidden[-1], self.n_bits, rng)
        return Tuner([*stack, top], self.rate, self.masked)

    def _start(self, S: csr_array, rng: np.random.Generator) -> np.ndarray:
        """Give the first codes of items; those of users are the network's signs."""
        _, factors = relaxed(
            S,
            self.n_bits,
            rng,
            ridge=self.ridge,
            weight=self.balance_weight,
            n_rounds=self.n_relaxed,
        )
        return signs(factors, np.float64)
