"""ZSR: a low-rank linear auto-encoder between ratings and features of users.

    min  ‖S - X W‖² + λ‖Sₙ W' - X‖² + β Σ_{j>q} σ_j(W)² + ε‖W‖²                              (1)

    here   paper   note
    S, X   Yᵀ, Aᵀ  targets and features; our rows are the paper's columns
    Sₙ     Ŷᵀ      S with a share of its entries left out, so that W does not copy
    W      W       features x items: encodes a row of S, and decodes it transposed
    σ_j    σ_j     the singular values of W, of which those beyond rank q cost
    ε      -       one-hot features are collinear

With U the projection beyond the q main directions of W, (1) is solved over W by

    (X'X + βU + εI) W + λ W Sₙ'Sₙ = X'S + λ X'Sₙ                                             (2)

Both matrices are symmetric: in their eigenvectors (2) is a division. λ must be small, as there are
far more items than features. As λ -> 0, W is a ridge regression.

Li, Jing, Lu, Zhu, Yang and Huang, "From zero-shot learning to cold-start recommendation",
AAAI 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from scipy.sparse import csr_array

from coldhash.baselines.shared import Baseline, StackEncoder, Training
from coldhash.data.ratings import with_values
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class ZSR(Baseline):
    """Settings of the auto-encoder.

    Parameters
    ----------
    encode_weight
        How much a row of ratings must predict the features (λ).
    rank_weight
        How much singular values beyond the retained rank cost (β).
    retained_rank
        Rank of W that costs nothing (q).
    ridge
        Ridge of W (ε).
    left_out
        Share of the entries that Sₙ leaves out.
    n_rounds
        Rounds of (2).

    Examples
    --------
    >>> from coldhash import read
    >>> model = ZSR(n_rounds=2).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.has_codes
    ('zsr', False)
    """

    encode_weight: NonNegativeFloat = 0.0075
    rank_weight: NonNegativeFloat = 450.0
    retained_rank: PositiveInt = 10
    ridge: PositiveFloat = 4.4e-6
    left_out: Annotated[float, Field(ge=0, lt=1)] = 0.05
    n_rounds: PositiveInt = 5

    def _fit(self, training: Training) -> Recommender:
        """Alternate (2) and the main directions of W; (1) never rises."""
        X, S = training.stacked, training.targets("favourite")
        W = self.solve(X.astype(np.float64), S, training.rng, training.record)
        items = np.ascontiguousarray(W.T, dtype=np.float32)
        return training.make_recommender("zsr", StackEncoder(training.groups), X, items)

    def solve(
        self, X: np.ndarray, S: csr_array, rng: np.random.Generator, record: Callable[[float], None]
    ) -> np.ndarray:
        """Find W; called by `fit`.

        Parameters
        ----------
        X
            Features, users x features (float64).
        S
            Targets, users x items.
        rng
            Draws the entries that Sₙ leaves out.
        record
            Called with the value of (1) after each round.

        Returns
        -------
        array of float64
            W, features x items.
        """
        S = S.astype(np.float64)
        kept = (rng.random(S.nnz) >= self.left_out) * S.data
        Sn = with_values(S, kept)
        XtX, XtS, XtSn = X.T @ X, (S.T @ X).T, (Sn.T @ X).T
        b, N = decompose_gram(Sn)
        C, b = XtS + self.encode_weight * XtSn, self.encode_weight * b
        known = float(S.data @ S.data + self.encode_weight * np.sum(X**2))
        U = np.zeros_like(XtX)
        for _ in range(self.n_rounds):
            W = solve_sylvester(XtX + self.rank_weight * U + self.ridge * np.eye(len(XtX)), b, N, C)
            P, sigma, _ = np.linalg.svd(W, full_matrices=False)
            main = P[:, : self.retained_rank]
            U = np.eye(len(P)) - main @ main.T
            beyond = float(np.sum(sigma[self.retained_rank :] ** 2))
            encoded = float(np.sum((W @ N) ** 2 * b))  # λ‖Sₙ W'‖²
            decoded = float(np.sum((XtX @ W) * W) - 2 * np.sum(W * C) + self.ridge * np.sum(W**2))
            record(known + decoded + encoded + self.rank_weight * beyond)
        return W


def decompose_gram(S: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Compute the eigenvalues and eigenvectors of S'S that are not 0, from the smaller side."""
    if S.shape[0] >= S.shape[1]:
        values, vectors = np.linalg.eigh((S.T @ S).toarray())
        return np.maximum(values, 0), vectors
    values, vectors = np.linalg.eigh((S @ S.T).toarray())
    real = values > 1e-9 * max(values[-1], 1e-300)
    values, vectors = values[real], vectors[:, real]
    return values, np.asarray(S.T @ vectors) / np.sqrt(values)


def solve_sylvester(A: np.ndarray, b: np.ndarray, N: np.ndarray, C: np.ndarray) -> np.ndarray:
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
