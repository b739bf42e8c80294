"""DFM: discrete factorisation machine, in the form that ranks items for a user.

    ŷ_ui = w_0 + w_u + w_i + p_u·c_i,    p_u = a_u + Σ_f x_uf A_f
    min  Σ_Ω (y_ui - ŷ_ui)² + α (Σ w_u² + Σ w_i²) - 2β Σ_blocks tr(B'Z)                        (1)
    over codes a, A, c of ±1, biases w and delegates Z of the blocks

    here      paper    note
    a, A, c   B        a code for each feature: user ids, features of users, item ids
    w         w        of ids; a bias of a user's features would change no ranking
    y         y        scaled to -P n_bits .. P n_bits, P = 2 the pairs of blocks kept
    Z         D        a block with no more members than bits has none: it cannot be balanced
    x         x        between 0 and 1, and divided by their mean sum over users

Pairs within the user side change no ranking and are left out; so are features of items. Somebody
without ratings has no id: p = Σ_f x_f A_f. Items are real-valued: a code, and the bias w_i.

Liu, He, Feng, Nie, Zhang and Liu, "Discrete factorization machines for fast feature-based
recommendation", IJCAI 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt
from scipy.sparse import csc_array, csr_array

from coldhash.arrays.codes import signs
from coldhash.arrays.compiled import compiled
from coldhash.arrays.products import times
from coldhash.baselines import dcf, shared
from coldhash.baselines.dcf import DiscreteBaseline
from coldhash.baselines.ddl import NetworkEncoder, UnitScale
from coldhash.baselines.shared import Training
from coldhash.data.ratings import row_of_entries, with_values
from coldhash.recommender.recommender import Recommender

Codes = tuple[np.ndarray, np.ndarray, np.ndarray]  # a, A, c

_N_PAIRS = 2
_NO_ENTRIES = np.zeros(0, dtype=np.int32), np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class DFM(DiscreteBaseline):
    """Settings of the machine.

    Parameters
    ----------
    n_bits
        Length of codes (r).
    use_item_bias
        Whether the item bias counts in scores; it is learned in any case.
    n_negatives
        Unrated items for each rating, with the lowest target; 0 as in the paper.
    bias_ridge
        Ridge of the biases (α); with less, items of a few high ratings lead every list.
    balance_weight
        How hard codes are pulled to their delegates (β).
    n_rounds
        Rounds at most; it stops when no bit flips.
    n_relaxed
        Rounds of the real-valued start.
    ridge
        Ridge of the start, for each rating.

    Examples
    --------
    >>> from coldhash import read
    >>> model = DFM(n_bits=32, n_negatives=1).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, len(model.recommend({"age": 30}, k=3))
    ('dfm', 3)
    """

    use_item_bias: bool = True
    n_negatives: NonNegativeInt = 0
    bias_ridge: NonNegativeFloat = 50.0
    balance_weight: NonNegativeFloat = 0.004
    n_rounds: PositiveInt = 14

    def _fit(self, training: Training) -> Recommender:
        """Alternate biases and the three blocks of codes; (1) never rises."""
        S = dcf.code_targets(training.ratings, self.n_bits) * _N_PAIRS
        S = dcf.add_negatives(S, self.n_negatives, -self.n_bits * _N_PAIRS, training.rng)
        scale = UnitScale.of(training.people, training.groups)
        X = scale(training.people).astype(np.float64)
        one = max(float(X.sum(axis=1).mean()), 1e-9)
        (a, A, c), biases = self._alternate(S, X / one, training)
        P = a + (X / one) @ A
        W = np.hstack([A / one, np.zeros((X.shape[1], 1))])
        constant = np.append(np.zeros(self.n_bits), 1.0)  # meets the bias of the item
        layer = W.astype(np.float32), constant.astype(np.float32)
        bias = biases.items * self.use_item_bias
        users = np.column_stack([P, np.ones(len(P))]).astype(np.float32)
        items = np.column_stack([c, bias]).astype(np.float32)
        encoder = NetworkEncoder(scale, (layer,), "linear")
        return training.make_recommender("dfm", encoder, users, items)

    def _alternate(self, S: csr_array, X: np.ndarray, training: Training) -> tuple[Codes, Biases]:
        biases = fit_biases(S, S.data, self.bias_ridge)
        codes = self._start(biases.subtract_from(S), X, training.rng)
        for _ in range(self.n_rounds):
            old = codes
            a, A, c = codes = self._flip_blocks(codes, biases.subtract_from(S), X)
            fitted = dcf.fitted_entries(S, a + X @ A, c)
            biases = fit_biases(S, S.data - fitted, self.bias_ridge, biases)
            error = biases.subtract_from(S).data - fitted
            cost = self.bias_ridge * (np.sum(biases.users**2) + np.sum(biases.items**2))
            pulled = sum(np.sum(block * self._pull(block)) for block in codes)
            training.record(float(error @ error + cost - 2 * pulled))  # (1)
            if all(map(np.array_equal, codes, old)):
                break
        return codes, biases

    def _start(self, S: csr_array, X: np.ndarray, rng: np.random.Generator) -> Codes:
        """Return the signs of real factors, and of their map from features."""
        P, Q = dcf.relax(S, self, rng, 0.0)
        A = shared.solve_ridge(X, X.T @ P, 1.0)
        return signs(P, np.float64), signs(A, np.float64), signs(Q, np.float64)

    def _flip_blocks(self, codes: Codes, S: csr_array, X: np.ndarray) -> Codes:
        """Update the blocks one after the other, each given the others."""
        a, A, c = codes
        a = dcf.flip_bits(_residual(S, X @ A, c), a, c, self._pull(a))
        c = dcf.flip_bits(shared.transpose(S), c, a + X @ A, self._pull(c))
        A = flip_feature_bits(_residual(S, a, c), X, A, c, self._pull(A))
        return a, A, c

    def _pull(self, block: np.ndarray) -> np.ndarray:
        return shared.balance(block, self.balance_weight if len(block) > self.n_bits else 0.0)


@dataclass(frozen=True, eq=False)
class Biases:
    """w_0, w_u and w_i."""

    base: float
    users: np.ndarray
    items: np.ndarray

    def subtract_from(self, S: csr_array) -> csr_array:
        """Subtract the biases from the known entries."""
        users = self.users[row_of_entries(S)]
        return with_values(S, S.data - self.base - users - self.items[S.indices])


def fit_biases(
    S: csr_array, error: np.ndarray, ridge: float, start: Biases | None = None
) -> Biases:
    """Lower Σ (error - w_0 - w_u - w_i)² + ridge (Σ w_u² + Σ w_i²), each in turn."""
    owners, (n_users, n_items) = row_of_entries(S), S.shape
    base = start.base if start else float(error.mean())
    users = start.users if start else np.zeros(n_users)

    def shrink(left: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
        counts = np.bincount(rows, minlength=size) + ridge
        sums = np.bincount(rows, left, minlength=size)
        return np.asarray(sums / np.where(counts > 0, counts, 1))

    items = shrink(error - base - users[owners], S.indices, n_items)
    users = shrink(error - base - items[S.indices], owners, n_users)
    return Biases(float((error - users[owners] - items[S.indices]).mean()), users, items)


def flip_feature_bits(
    S: csr_array, X: np.ndarray, A: np.ndarray, c: np.ndarray, pull: np.ndarray
) -> np.ndarray:
    """Lower Σ_Ω (s - x A c')² - 2 Σ A·pull over the codes A of features, one after the other.

    For feature f the sum is  A_f H A_f' - 2 A_f·(Σ_u x_uf v_u + A_f H),  with v_u = Σ_i e_ui c_i
    of the errors e, and  H = Σ_ui x_uf² c_i'c_i: the items, weighed by who rated them.
    """
    A, P, columns = A.copy(), X @ A, csc_array(X)
    V, stale = times(S, c), np.ones(len(X), dtype=bool)
    known = V.copy()
    ones = with_values(S, np.ones(S.nnz))
    weights = csr_array((columns * columns).T @ ones)  # features x items
    indptr, indices = dcf.layout(S)
    for f in range(len(A)):
        at = slice(columns.indptr[f], columns.indptr[f + 1])
        users, x = columns.indices[at], columns.data[at]
        again = users[stale[users]]
        V[again] = known[again] - _sum_fitted(indptr, indices, P, c, again)
        stale[again] = False
        rated = slice(weights.indptr[f], weights.indptr[f + 1])
        some = c[weights.indices[rated]]
        H = (some.T * weights.data[rated]) @ some
        force = x @ V[users] + A[f] @ H + pull[f]
        new = A[f].copy()
        dcf.flip_row(*_NO_ENTRIES, new, c, force, H, 1.0)
        if not np.array_equal(new, A[f]):
            P[users] += np.outer(x, new - A[f])
            A[f], stale[users] = new, True
    return A


@compiled()
def _sum_fitted(indptr, indices, P, c, rows):  # type: ignore[no-untyped-def]
    """Compute Σ_i (p_u·c_i) c_i over the known entries of some rows."""
    found = np.zeros((len(rows), P.shape[1]))
    for position, u in enumerate(rows):
        for j in range(indptr[u], indptr[u + 1]):
            other, fitted = c[indices[j]], 0.0
            for k in range(len(other)):
                fitted += P[u, k] * other[k]
            for k in range(len(other)):
                found[position, k] += fitted * other[k]
    return found


def _residual(S: csr_array, P: np.ndarray, c: np.ndarray) -> csr_array:
    """Subtract p·c from the known entries."""
    return with_values(S, S.data - dcf.fitted_entries(S, P, c))
