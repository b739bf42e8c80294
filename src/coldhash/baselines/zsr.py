"""ZSR: a low-rank linear auto-encoder between what users do and what is known of them.

    min  ‖S - X W‖² + λ‖Sₙ W' - X‖² + β Σ_{j>q} σ_j(W)² + ε‖W‖²                              (1)

    here   paper   note
    S, X   Yᵀ, Aᵀ  targets and features; our rows are the paper's columns
    Sₙ     Ŷᵀ      S with a share of its entries left out, so that W does not copy
    W      W       features x items: encodes a row of S, and decodes it transposed
    σ_j    σ_j     the singular values of W, of which those beyond rank q cost
    ε      -       one-hot features are collinear

With U the projection beyond the q main directions of W, (1) is solved over W by

    (X'X + βU + εI) W + λ W Sₙ'Sₙ = X'S + λ X'Sₙ                                             (2)

Both matrices are symmetric: in their eigenvectors (2) is a division. λ must be small: what users
do is thousands of times as wide as what is known of them. As λ -> 0, W is a ridge regression.

Li, Jing, Lu, Zhu, Yang and Huang, "From zero-shot learning to cold-start recommendation",
AAAI 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.baselines.ridge import stranger_groups
from coldhash.baselines.shared import make_recommender
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import RatingTarget, TargetKind
from coldhash.features.fitting import fit_features
from coldhash.recommender.encoders.linear import StackEncoder, stack_features
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_settings, check_types


@dataclass(frozen=True, kw_only=True)
class ZSR:
    """Settings of the method; `fit` turns a data set into a `Recommender`.

    Examples
    --------
    >>> from coldhash import read
    >>> model = ZSR(n_rounds=2).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.has_codes
    ('zsr', False)
    """

    encode_weight: float = 0.0075  # λ: how much what users do must tell what is known of them
    rank_weight: float = 450.0  # β
    retained_rank: int = 10  # q
    ridge: float = 4.4e-6  # ε
    left_out: float = 0.05  # share of the entries
    n_rounds: int = 5
    target: TargetKind = "favourite"

    def __post_init__(self) -> None:
        check_types(self)
        check_settings(
            self,
            encode_weight=(self.encode_weight >= 0, "0 or more"),
            rank_weight=(self.rank_weight >= 0, "0 or more"),
            retained_rank=(self.retained_rank >= 1, "1 or more"),
            ridge=(self.ridge > 0, "above 0"),
            left_out=(0 <= self.left_out < 1, "from 0 to below 1"),
            n_rounds=(self.n_rounds >= 1, "1 or more"),
        )

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Alternate (2) and the main directions of W; (1) never rises."""
        rng = np.random.default_rng(seed)
        encoder = fit_features(data, seed)
        groups = stranger_groups(encoder)
        X = stack_features(encoder.apply(data.users), groups)
        ratings = data.ratings.matrix
        values = RatingTarget(self.target, data.ratings.scale[1])(ratings.data)
        S = csr_array((values, ratings.indices, ratings.indptr), shape=ratings.shape)
        with threadpool_limits(1, "blas"):
            W, objective = self.solve(X.astype(np.float64), S, rng, callback)
        return make_recommender(
            data,
            name="zsr",
            settings=self,
            features=encoder,
            encoder=StackEncoder(groups),
            vectors=np.ascontiguousarray(W.T, dtype=np.float32),
            user_vectors=X,
            report={"objective": objective},
        )

    def solve(
        self, X: np.ndarray, S: csr_array, rng: np.random.Generator, callback: Callback | None
    ) -> tuple[np.ndarray, list[float]]:
        """Find W; gives it with (1) after each round."""
        S = S.astype(np.float64)
        kept = (rng.random(S.nnz) >= self.left_out) * S.data
        Sn = csr_array((kept, S.indices, S.indptr), shape=S.shape)
        XtX, XtS, XtSn = X.T @ X, (S.T @ X).T, (Sn.T @ X).T
        b, N = principal(Sn)
        C, b = XtS + self.encode_weight * XtSn, self.encode_weight * b
        known = float(S.data @ S.data + self.encode_weight * np.sum(X**2))
        U, objective = np.zeros_like(XtX), list[float]()
        for n in range(self.n_rounds):
            W = sylvester(XtX + self.rank_weight * U + self.ridge * np.eye(len(XtX)), b, N, C)
            P, sigma, _ = np.linalg.svd(W, full_matrices=False)
            main = P[:, : self.retained_rank]
            U = np.eye(len(P)) - main @ main.T
            beyond = float(np.sum(sigma[self.retained_rank :] ** 2))
            encoded = float(np.sum((W @ N) ** 2 * b))  # λ‖Sₙ W'‖²
            objective.append(
                known
                + float(np.sum((XtX @ W) * W) - 2 * np.sum(W * C) + self.ridge * np.sum(W**2))
                + encoded
                + self.rank_weight * beyond
            )
            if callback is not None:
                callback(n, objective[-1])
        return W, objective


def principal(S: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Give the eigenvalues and eigenvectors of S'S that are not 0, from the smaller side."""
    if S.shape[0] >= S.shape[1]:
        values, vectors = np.linalg.eigh((S.T @ S).toarray())
        return np.maximum(values, 0), vectors
    values, vectors = np.linalg.eigh((S @ S.T).toarray())
    real = values > 1e-9 * max(values[-1], 1e-300)
    values, vectors = values[real], vectors[:, real]
    return values, np.asarray(S.T @ vectors) / np.sqrt(values)


def sylvester(A: np.ndarray, b: np.ndarray, N: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Solve A W + W N diag(b) N' = C for symmetric A and orthonormal columns N.

    On what is orthogonal to N the second term is 0, and A⁻¹C is left.
    """
    a, V = np.linalg.eigh(A)
    a = np.maximum(a, 1e-9)
    VtC = V.T @ C
    VtCN = VtC @ N
    inside = (VtCN / (a[:, None] + b)) @ N.T
    if N.shape[1] == C.shape[1]:
        return V @ inside  # type: ignore[no-any-return]
    return V @ (inside + (VtC - VtCN @ N.T) / a[:, None])  # type: ignore[no-any-return]
