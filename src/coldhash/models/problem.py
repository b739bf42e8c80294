"""What MFDCF's steps work on: the target matrix and the feature groups, prepared once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from coldhash.errors import DataError
from coldhash.features.groups import Features, Matrix
from coldhash.features.preference import PREFERENCE
from coldhash.products import times

RIDGES = (1.0, 3.0, 10.0, 30.0, 50.0, 100.0, 200.0, 300.0, 1000.0, 3000.0)
AS_GOOD = 1 + 5e-4  # an error up to this times the lowest is as good as it
ENOUGH = 20_000  # users that a ridge is chosen on


@dataclass(frozen=True, eq=False)
class SparseTarget:
    """The target matrix S as it is, and its transpose."""

    S: csr_array
    St: csr_array

    def times(self, D: np.ndarray) -> np.ndarray:
        """S D."""
        return times(self.S, D)

    def transposed_times(self, H: np.ndarray) -> np.ndarray:
        """S' H."""
        return times(self.St, H)

    def column_norms(self) -> np.ndarray:
        """Give the squared length of each column."""
        squares = self.S.data.astype(np.float64) ** 2
        return np.bincount(self.S.indices, squares, minlength=self.S.shape[1])


@dataclass(frozen=True, eq=False)
class LowRankTarget:
    """S replaced by its truncated SVD P Q, as printed before (18)."""

    P: np.ndarray
    Q: np.ndarray

    def times(self, D: np.ndarray) -> np.ndarray:
        """S D."""
        return self.P @ (self.Q @ D)  # type: ignore[no-any-return]

    def transposed_times(self, H: np.ndarray) -> np.ndarray:
        """S' H."""
        return self.Q.T @ (self.P.T @ H)  # type: ignore[no-any-return]

    def column_norms(self) -> np.ndarray:
        """Give the squared length of each column."""
        Q = self.Q.astype(np.float64)
        PtP = self.P.T.astype(np.float64) @ self.P
        return np.einsum("oi,op,pi->i", Q, PtP, Q)  # type: ignore[no-any-return]


Target = SparseTarget | LowRankTarget


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that stays fixed while the steps alternate."""

    target: Target
    known: float  # ‖S V½‖², which no step changes
    item_weights: np.ndarray  # items x 1, mean 1
    groups: dict[str, Group]
    strangers: dict[
        str, np.ndarray
    ]  # users x 1 by group: 1.0 where the user, as a stranger, has it
    fit_weight: float
    code_weight: float
    rank_weight: float
    retained_rank: int
    stranger_weight: float
    stranger_code_share: float

    def with_ridges(self, Y: np.ndarray, rng: np.random.Generator) -> Problem:
        """Give each group the ridge with which it predicts Y best."""
        groups = {
            name: replace(group, ridge=best_ridge(group, Y, rng))
            for name, group in self.groups.items()
        }
        return replace(self, groups=groups)


def make_groups(features: Features, ridge: float) -> dict[str, Group]:
    """Prepare the groups that at least one training user has."""
    groups = {
        name: make_group(features.matrices[name], has, ridge)
        for name, has in features.has.items()
        if has.any()
    }
    if not groups:
        raise DataError(
            "no training user has any feature",
            hint="give a user table, or an item table for the preference group",
        )
    return groups


def make_strangers(groups: dict[str, Group], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Say what each training user would bring as a stranger: no ratings, so no preference.

    Of several groups a random part is left out, so that every subset a stranger may have occurs.
    """
    names = [name for name in groups if name != PREFERENCE] or list(groups)
    has = np.hstack([groups[name].has for name in names])
    if len(names) > 1:
        kept = has * (rng.random(has.shape) < 0.7)
        has = np.where(kept.any(axis=1, keepdims=True), kept, has)
    return {name: has[:, at : at + 1].astype(np.float32) for at, name in enumerate(names)}


def item_weights(popularity: np.ndarray, power: float) -> np.ndarray:
    """Weigh items by popularity ** power, 1 on average (items x 1)."""
    weights = np.maximum(popularity.astype(np.float64), 1e-9) ** power
    return (weights / weights.mean()).astype(np.float32)[:, None]  # type: ignore[no-any-return]


def make_target(S: csr_array, svd_rank: int | None, rng: np.random.Generator) -> Target:
    """Take S as it is, or its truncated SVD."""
    if svd_rank is None:
        return SparseTarget(S, csr_array(S.T.tocsr()))
    rank = min(svd_rank, min(S.shape) - 1)
    P, sigma, Q = svds(S.astype(np.float64), k=rank, rng=rng)
    return LowRankTarget((P * sigma).astype(np.float32), Q.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Group:
    """One group's features X of the training users, with the eigen-decomposition of X'X."""

    X: Matrix
    has: np.ndarray  # users x 1, 1.0 for those who have the group; X is zero for the others
    eigenvalues: np.ndarray
    U: np.ndarray
    ridge: float

    def own(self, H: np.ndarray) -> np.ndarray:
        """Give H with zeros for the users without the group."""
        return H if self.has.all() else H * self.has

    def map(self, H: np.ndarray, extra: float = 0.0, V: np.ndarray | None = None) -> np.ndarray:
        """Solve (14): ridge regression of H on X, stiffer by `extra` along the directions V."""
        XtH = self.U.T @ (self.X.T @ self.own(H)).astype(np.float64)
        plain = XtH / (self.eigenvalues + self.ridge)[:, None]
        if V is not None and extra > 0:
            stiff = XtH / (self.eigenvalues + self.ridge + extra)[:, None]
            plain = plain + (stiff - plain) @ V @ V.T
        return (self.U @ plain).astype(np.float32)  # type: ignore[no-any-return]


def make_group(X: Matrix, has: np.ndarray, ridge: float) -> Group:
    """Decompose X'X once; every later map is two products."""
    XtX = X.T @ X
    gram = np.asarray(XtX.toarray() if hasattr(XtX, "toarray") else XtX, dtype=np.float64)
    eigenvalues, U = np.linalg.eigh(gram)
    column = has.astype(np.float32)[:, None]
    return Group(X, column, np.maximum(eigenvalues, 0.0), U, ridge)


def best_ridge(group: Group, Y: np.ndarray, rng: np.random.Generator) -> float:
    """Choose the least ridge whose leave-one-out error (PRESS) of X -> Y is as good as the best."""
    rows = np.flatnonzero(group.has[:, 0])
    if not len(rows):
        return RIDGES[0]
    some = np.sort(rng.permutation(rows)[:ENOUGH])
    Z = group.X[some] @ group.U.astype(np.float32)
    Y = Y[some]
    eigenvalues = np.maximum(np.einsum("nd,nd->d", Z, Z, dtype=np.float64), 0.0)
    ZtY, squares = (Z.T @ Y).astype(np.float64), Z.astype(np.float64) ** 2
    errors = []
    for ridge in RIDGES:
        shrink = 1.0 / (eigenvalues + ridge)
        residual = Y - Z @ (ZtY * shrink[:, None]).astype(np.float32)
        leverage = np.minimum(squares @ shrink, 1 - 1e-6)
        square = np.einsum("nr,nr->n", residual, residual, dtype=np.float64)
        errors.append(float(np.sum(square / (1 - leverage) ** 2)))
    return next(r for r, e in zip(RIDGES, errors, strict=True) if e <= min(errors) * AS_GOOD)
