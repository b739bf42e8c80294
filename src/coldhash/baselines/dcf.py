"""Codes from the entries that are known: DCF, DCMF, and what they share with DDL and DFM.

    Σ_Ω (s - b·d)² + ρ Σ_rest (b·d)² - 2 Σ b·pull                                              (1)

over the codes b of the rows, those of the columns given; Ω are the stored entries of S, a stored 0
among them. Users and items are the same problem with S transposed. Rows do not depend on each
other, so the result is the same bit for bit at any number of threads.

DCF and DCMF are discrete collaborative filtering, without and with the content of users:

    min  Σ_Ω (s_ui - b_u·d_i)² + ρ Σ_rest (b_u·d_i)² + η (‖B - X W‖² + λ‖W‖²)
         - 2α tr(B'P) - 2β tr(D'Q)                                                             (2)
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

# annotations are evaluated here, as `DiscreteBaseline` has subclasses in other modules
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.codes import signs
from coldhash.arrays.compiled import compiled
from coldhash.arrays.threads import run_rows
from coldhash.baselines import shared
from coldhash.baselines.shared import Baseline, Bits, StackEncoder, Training, balance, transpose
from coldhash.data.ratings import Ratings, row_of_entries, with_values
from coldhash.errors import DataError
from coldhash.recommender.recommender import Recommender

N_SWEEPS = 3  # over the bits, in each step


@dataclass(frozen=True, kw_only=True)
class DiscreteBaseline(Baseline):
    """The settings that the four have in common; each documents its own."""

    n_bits: Bits = 64
    balance_weight: NonNegativeFloat
    n_rounds: PositiveInt = 10
    n_relaxed: PositiveInt = 3
    ridge: PositiveFloat = 0.1


def flip_bits(
    S: csr_array, B: np.ndarray, D: np.ndarray, pull: np.ndarray, rho: float = 0.0
) -> np.ndarray:
    """Flip each bit of B (rows x bits) whose flip lowers (1), in three sweeps; return new codes.

    D (columns x bits) may be any vectors, not only codes.
    """
    D, pull = (np.ascontiguousarray(each, dtype=np.float64) for each in (D, pull))
    new, rest, values = B.astype(np.float64), rho * (D.T @ D), S.data.astype(np.float64)
    given = (*layout(S), values, D, pull, rest, 1 - rho)
    run_rows(_flip_rows, S.indptr, *given, new)
    return new


@compiled(nogil=True)
def _flip_rows(indptr, indices, values, D, pull, gram, share, B, first, last):  # type: ignore[no-untyped-def]
    for u in range(first, last):
        own = slice(indptr[u], indptr[u + 1])
        flip_row(indices[own], values[own], B[u], D, pull[u], gram, share)


@compiled()
def flip_row(indices, values, b, D, pull, gram, share):  # type: ignore[no-untyped-def]
    """Update force = D_Ω's + pull - G b, with G = gram + share D_Ω'D_Ω, while bits of b flip.

    A flip of bit k adds 4 (b_k force_k + G_kk) to the sum. A tie keeps the bit.
    """
    n_bits = len(b)
    force, own = pull.copy(), np.zeros(n_bits)
    for k in range(n_bits):
        own[k] = gram[k, k]
        for l in range(n_bits):  # noqa: E741
            force[l] -= b[k] * gram[k, l]
    for j in range(len(indices)):
        d = D[indices[j]]
        fitted = 0.0
        for k in range(n_bits):
            fitted += b[k] * d[k]
        error = values[j] - share * fitted
        for k in range(n_bits):
            force[k] += error * d[k]
            own[k] += share * d[k] * d[k]
    for _ in range(N_SWEEPS):
        changed = False
        for k in range(n_bits):
            if b[k] * force[k] + own[k] < 0:
                changed = True
                step = -b[k] - b[k]
                b[k] = -b[k]
                for l in range(n_bits):  # noqa: E741
                    force[l] -= step * gram[k, l]
                for j in range(len(indices)):
                    d = D[indices[j]]
                    moved = step * share * d[k]
                    for l in range(n_bits):  # noqa: E741
                        force[l] -= moved * d[l]
        if not changed:
            break


def layout(S: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return row starts and columns of entries in the types that kernels are compiled for.

    These are copies: ratings are read-only, which to numba is another type.
    """
    return S.indptr.astype(np.int64), S.indices.astype(np.int32)


def solve_rows(
    S: csr_array, D: np.ndarray, pull: np.ndarray, ridge: float, rho: float = 0.0
) -> np.ndarray:
    """Lower (1) + ridge Σ |Ω_b| ‖b‖² over real b: one least-squares problem a row."""
    D = np.ascontiguousarray(D, dtype=np.float32)
    rest, new = rho * (D.T @ D).astype(np.float64), np.zeros((S.shape[0], D.shape[1]))
    given = (*layout(S), S.data.astype(np.float32), D, pull, rest, 1 - rho, ridge)
    run_rows(_solve_rows, S.indptr, *given, new)
    return new


@compiled(nogil=True)
def _solve_rows(indptr, indices, values, D, pull, rest, share, ridge, new, first, last):  # type: ignore[no-untyped-def]
    """Solve (rest + share D_Ω'D_Ω + ridge |Ω| I) b = D_Ω's + pull for each row."""
    n_bits = D.shape[1]
    for u in range(first, last):
        start, end = indptr[u], indptr[u + 1]
        chosen, b = D[indices[start:end]], new[u]
        G = rest + share * np.dot(chosen.T, chosen)
        b[:] = np.dot(values[start:end], chosen) + pull[u]
        for k in range(n_bits):
            G[k, k] += ridge * max(end - start, 1)
        for k in range(n_bits):  # eliminate; a positive definite matrix needs no pivots
            for i in range(k + 1, n_bits):
                row, pivots = G[i, i:], G[k, i:]
                factor = pivots[0] / G[k, k]
                b[i] -= factor * b[k]
                for j in range(len(row)):
                    row[j] -= factor * pivots[j]
        for k in range(n_bits - 1, -1, -1):
            for j in range(k + 1, n_bits):
                b[k] -= G[k, j] * b[j]
            b[k] /= G[k, k]


def relax(
    S: csr_array, given: DiscreteBaseline, rng: np.random.Generator, weight: float, rho: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Fit real factors of rows and columns, pulled to their delegates; codes start as their signs.

    `weight` is that of the delegates.

    Both are rotated alike, which changes no product, to where signs lose little.
    """
    St, n_bits, ridge = transpose(S), given.n_bits, given.ridge
    P = np.zeros((S.shape[0], n_bits))
    Q = rng.standard_normal((S.shape[1], n_bits))
    pull_P, pull_Q = P, np.zeros(Q.shape)
    for _ in range(given.n_relaxed):
        P = solve_rows(S, Q, pull_P, ridge, rho)
        Q = solve_rows(St, P, pull_Q, ridge, rho)
        pull_P, pull_Q = balance(P, weight), balance(Q, weight)
    F = np.vstack([M / max(float(np.linalg.norm(M)), 1e-300) for M in (P, Q)])  # 0 where S is
    R, _ = shared.find_rotation(F, np.eye(n_bits), shared.ROTATION_ROUNDS)
    return P @ R, Q @ R


def fitted_entries(S: csr_array, B: np.ndarray, D: np.ndarray) -> np.ndarray:
    """Compute b·d for each stored entry, in the order of S.data."""
    B, D = (np.ascontiguousarray(each, dtype=np.float64) for each in (B, D))
    found = np.zeros(S.nnz)
    run_rows(_fitted_entries, S.indptr, *layout(S), B, D, found)
    return found


@compiled(nogil=True)
def _fitted_entries(indptr, indices, B, D, found, first, last):  # type: ignore[no-untyped-def]
    for u in range(first, last):
        for j in range(indptr[u], indptr[u + 1]):
            for k in range(B.shape[1]):
                found[j] += B[u, k] * D[indices[j], k]


def loss(S: csr_array, B: np.ndarray, D: np.ndarray, rho: float = 0.0) -> float:
    """Compute (1) without pulls."""
    fitted = fitted_entries(S, B, D)
    rest = float(np.sum((B.T @ B) * (D.T @ D)) - fitted @ fitted) if rho else 0.0
    return float(np.sum((S.data - fitted) ** 2)) + rho * rest


def code_targets(ratings: Ratings, n_bits: int, lowest: float | None = None) -> csr_array:
    """Scale ratings to -n_bits .. n_bits, the range of b·d; all to n_bits if they are all the same.

    `lowest` is the rating that becomes -n_bits; None: the lowest of the scale.
    """
    if not len(ratings):
        raise DataError("there are no ratings to learn from")
    low, high = ratings.scale
    low = low if lowest is None else lowest
    matrix = ratings.matrix
    height = (matrix.data.astype(np.float64) - low) / (high - low) if high > low else 1.0
    values = np.broadcast_to(n_bits * (2.0 * height - 1.0), matrix.data.shape)
    return with_values(matrix, values.copy())


def add_negatives(
    S: csr_array, n_negatives: int, value: float, rng: np.random.Generator
) -> csr_array:
    """Add unknown entries with one value, `n_negatives` drawn at random for each known one.

    A draw that meets a known entry, or an earlier draw, is dropped.
    """
    if not n_negatives:
        return S
    n_columns, owners = S.shape[1], row_of_entries(S)
    known = owners * np.int64(n_columns) + S.indices
    drawn = np.repeat(owners, n_negatives) * np.int64(n_columns)
    drawn = np.setdiff1d(drawn + rng.integers(n_columns, size=len(drawn)), known)
    rows, columns = np.divmod(np.concatenate([known, drawn]), n_columns)
    values = np.concatenate([S.data, np.full(len(drawn), value)])
    return csr_array((values, (rows, columns)), shape=S.shape)


def alternate(
    settings: DiscreteBaseline,
    training: Training,
    S: csr_array,
    P: np.ndarray,
    Q: np.ndarray,
    pull_X: np.ndarray | float = 0.0,
    content: Callable[[np.ndarray], tuple[np.ndarray, float]] | None = None,
    rho: float = 0.0,
    until_settled: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Lower (2) from the signs of P and Q; return the codes of users and items.

    `content` returns the pull of features on the users' codes, `pull_X` at the start, and their
    term in (2).
    """
    St, alpha = transpose(S), settings.balance_weight
    B, D = signs(P, np.float64), signs(Q, np.float64)
    pull_B, pull_D = balance(B, alpha), balance(D, alpha)
    for _ in range(settings.n_rounds):
        old = B, D
        B = flip_bits(S, B, D, pull_B + pull_X, rho)
        D = flip_bits(St, D, B, pull_D, rho)  # the same step, transposed
        pull_X, apart = content(B) if content else (0.0, 0.0)
        pull_B, pull_D = balance(B, alpha), balance(D, alpha)
        pulled = np.sum(B * pull_B) + np.sum(D * pull_D)
        training.record(float(loss(S, B, D, rho) + apart - 2 * pulled))  # (2)
        if until_settled and all(map(np.array_equal, (B, D), old)):
            break
    return B, D


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
        S = code_targets(training.ratings, self.n_bits)
        P, Q = relax(S, self, training.rng, self.balance_weight)
        B, D = alternate(self, training, S, P, Q)
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

        S = code_targets(training.ratings, self.n_bits)
        P, Q = relax(S, self, training.rng, self.balance_weight, self.rho)
        pull, _ = content(signs(P, np.float64))
        B, D = alternate(self, training, S, P, Q, pull, content, self.rho)
        W = shared.solve_ridge(X, X.T @ B, ridge).astype(np.float32)
        return training.make_code_recommender("dcmf", StackEncoder(training.groups, W), B, D)
