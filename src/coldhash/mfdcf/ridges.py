"""How much each feature of a group counts, and how much all are shrunk: chosen on training users.

A column that says nothing about what people like must not cost what the others say, however many
such columns there are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coldhash.arrays.threads import run_pieces
from coldhash.errors import DataError
from coldhash.mfdcf.equations import FitState, inverse_gram
from coldhash.mfdcf.problem import Group, Problem, UserBlock, choose_rows, dense

FIRST_RIDGE = 30.0  # until it is chosen
RIDGES = (
    *(0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 50.0, 100.0, 200.0, 300.0),
    *(1e3, 3e3, 1e4, 3e4, 1e5, 1e6),
)
RIDGE_SAMPLE = 20_000  # users that a ridge is chosen on
COLUMN_WEIGHT = 56  # bits, with which a feature counts as much as its column on average
LEAST_SIGNAL = 1e-3  # of a feature, in terms of its noise


def choose_ridges(problem: Problem, state: FitState, rng: np.random.Generator) -> Problem:
    """Choose for each group the ridge with which it predicts what the ratings alone say.

    Codes must not have seen the ratings: others fit users so well that noise looks like something
    that features predict. Where columns are known, the relevance of
    features is learned, too: from half of the users while the ridge is judged by the others, then
    from all.
    """
    # of T V D (D'V D)⁻¹, in its own metric
    root = np.linalg.cholesky(inverse_gram(state)).astype(np.float32)
    users, groups = problem.users, {}
    for name, group in problem.groups.items():
        chosen = users.scatter(choose_rows(group.counts, RIDGE_SAMPLE, rng))

        def select(
            block: UserBlock, TD: np.ndarray, chosen: np.ndarray, name: str = name
        ) -> tuple[np.ndarray, np.ndarray]:
            """Return features and vectors of the chosen users who have the group."""
            rows = np.flatnonzero(block.has[name][:, 0])[chosen]
            return dense(block.X[name][rows]), (TD @ root)[rows]

        found = zip(*users.map(select, problem.blocks, state.TD, chosen), strict=True)
        X, Y = map(np.concatenate, found)
        groups[name] = _choose(group, X, Y, rng)
    return replace(problem, groups=groups)


def _choose(group: Group, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> Group:
    columns = group.columns
    if columns is None:
        return replace(group, ridge=best_ridge(X @ group.decomposed[1].astype(np.float32), Y))
    # somebody with many ratings counts no more than the usual user
    lengths = np.sqrt(np.einsum("nr,nr->n", Y, Y))[:, None]
    Y = Y * np.minimum(1, np.median(lengths) / np.maximum(lengths, 1e-12))
    half, others = np.array_split(rng.permutation(len(X)), 2)
    first = replace(group, relevance=relevance(X[half], Y[half], columns))
    ridge = best_ridge(X @ first.decomposed[1].astype(np.float32), Y, judged=others)
    return replace(group, relevance=relevance(X, Y, columns), ridge=ridge)


def relevance(X: np.ndarray, Y: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return how much each feature says of Y, as the scale of its weights (features x 1).

    If a feature x says nothing, ‖x'Y‖² is about Σ_u x_u² ‖y_u‖². What it is beyond that is signal,
    averaged with that of the whole column, the more so the fewer numbers Y has. With a ridge of 1,
    a feature alone would be shrunk as by James and Stein.
    """
    X = X.astype(np.float64)
    X[:, :-1] -= X[:, :-1].mean(axis=0)  # the last is constant
    XtY = X.T @ Y
    signal = np.einsum("dr,dr->d", XtY, XtY)
    noise = (X**2).T @ np.einsum("nr,nr->n", Y, Y, dtype=np.float64)
    noise = np.maximum(noise, max(float(noise.max()) * 1e-9, 1e-300))
    of_column = np.bincount(columns, signal) / np.bincount(columns, noise)
    own = Y.shape[1] / (Y.shape[1] + COLUMN_WEIGHT)
    ratio = own * signal / noise + (1 - own) * of_column[columns] - 1
    norms = np.einsum("nd,nd->d", X, X)
    norms = np.maximum(norms, max(float(norms.max()) * 1e-9, 1e-300))
    return np.asarray(np.sqrt(np.maximum(ratio, LEAST_SIGNAL) / norms))[:, None]


def best_ridge(Z: np.ndarray, Y: np.ndarray, judged: np.ndarray | None = None) -> float:
    """Return the ridge whose leave-one-out error (PRESS) of Z -> Y is lowest.

    Z are features along the eigenvectors of X'X; errors of the rows `judged` count, by default all.
    """
    eigenvalues = np.maximum(np.einsum("nd,nd->d", Z, Z, dtype=np.float64), 0.0)
    ZtY = (Z.T @ Y).astype(np.float64)
    if judged is not None:
        Z, Y = Z[judged], Y[judged]
    squares = Z.astype(np.float64) ** 2

    def error(ridge: float) -> float:
        shrink = 1.0 / (eigenvalues + ridge)
        residual = Y - Z @ (ZtY * shrink[:, None]).astype(np.float32)
        leverage = np.minimum(squares @ shrink, 1 - 1e-6)
        square = np.einsum("nr,nr->n", residual, residual, dtype=np.float64)
        return float(np.sum(square / (1 - leverage) ** 2))

    errors = list(run_pieces(error, RIDGES))
    if not np.isfinite(errors).all():
        raise DataError("features or settings are too large to fit", hint="scale them to about 1")
    return RIDGES[int(np.argmin(errors))]
