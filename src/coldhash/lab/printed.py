"""The steps of the paper that the corrected solver does not need, as printed: to see their cost.

`rotation`: R is a gauge, so `identity` loses nothing. `alm` is the printed augmented Lagrangian;
`mm` is a step for R that, unlike it, never raises the objective.

`item_step`: `pinv-sign` rounds the least-squares solution, as printed; `guarded` keeps a rounded
code only where it lowers the objective.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coldhash.arrays.codes import signs
from coldhash.mfdcf.items import descend
from coldhash.mfdcf.local import ROTATION
from coldhash.mfdcf.problem import Problem
from coldhash.mfdcf.steps import State
from coldhash.partitions import Partitions, added

Rotate = Callable[[Problem, Partitions, State, float], None]
ItemStep = Callable[[np.ndarray, np.ndarray, np.ndarray, int, np.random.Generator], np.ndarray]


def keep(problem: Problem, users: Partitions, state: State, weight: float) -> None:
    """Leave R = I: the gauge."""
    del problem, users, state, weight


def majorise(problem: Problem, users: Partitions, state: State, weight: float) -> None:
    """Lower the objective over R by a majorised step; R stays a rotation."""
    del weight
    M, N, K = _quadratic(problem, users, state)
    alpha = problem.fit_weight
    bound = alpha * np.linalg.eigvalsh(M)[-1] * np.linalg.eigvalsh(N)[-1]

    def value(R: np.ndarray) -> float:
        return float(alpha * np.sum((M @ R) * (R @ N)) - 2 * np.sum(R * K))

    R = min((state.R.astype(np.float64), polar(K)), key=value)
    state.R = polar(K - alpha * M @ R @ N + bound * R).astype(np.float32)


def lagrange(problem: Problem, users: Partitions, state: State, weight: float) -> None:
    """Update R, Z_R and G_R as printed: (17), (24), (25)."""
    M, N, K = _quadratic(problem, users, state)
    alpha = problem.fit_weight
    Z = state.R.astype(np.float64) if state.Z is None else state.Z
    multiplier = np.zeros_like(Z) if state.multiplier is None else state.multiplier
    R = polar(2 * K - alpha * M @ Z @ N + weight * Z - multiplier)
    Z = polar(-alpha * M @ R @ N + weight * R + multiplier)
    state.R, state.Z = R.astype(np.float32), Z
    state.multiplier = multiplier + weight * (R - Z)


def _quadratic(
    problem: Problem, users: Partitions, state: State
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give D'D, H'H and α D'S'H + β B'H: over R, (9) is α tr(R'D'D R H'H) - 2 tr(R'K)."""
    sums = added(users.each(ROTATION, problem.fit_weight, problem.code_weight))
    return state.DtD, sums["HtH"], sums["K"]


def polar(matrix: np.ndarray) -> np.ndarray:
    """Find the rotation nearest to a matrix."""
    P, _, Qt = np.linalg.svd(matrix)
    return P @ Qt  # type: ignore[no-any-return]


def random_rotation(n_bits: int, rng: np.random.Generator) -> np.ndarray:
    """Draw where R starts."""
    return polar(rng.standard_normal((n_bits, n_bits))).astype(np.float32)


def pinv_sign(
    D: np.ndarray, L: np.ndarray, G: np.ndarray, n_sweeps: int, rng: np.random.Generator
) -> np.ndarray:
    """Round the least-squares solution, as printed in (21)."""
    del D, n_sweeps, rng
    relaxed = L @ np.linalg.pinv(G.astype(np.float64), hermitian=True)
    return signs(relaxed, np.float32)


def guarded(
    D: np.ndarray, L: np.ndarray, G: np.ndarray, n_sweeps: int, rng: np.random.Generator
) -> np.ndarray:
    """Round the least-squares solution, and keep the old code where that is no gain."""
    rounded = pinv_sign(D, L, G, n_sweeps, rng)
    better = energy(rounded, L, G) < energy(D, L, G)
    return np.where(better[:, None], rounded, D)


def energy(D: np.ndarray, L: np.ndarray, G: np.ndarray) -> np.ndarray:
    """Give d G d' - 2 d l' of each row."""
    D = D.astype(np.float64)
    return np.einsum("ik,ik->i", D, D @ G - 2 * L)  # type: ignore[no-any-return]


ROTATIONS: dict[str, Rotate] = {"identity": keep, "mm": majorise, "alm": lagrange}
ITEM_STEPS: dict[str, ItemStep] = {
    "descent": descend,
    "pinv-sign": pinv_sign,
    "guarded": guarded,
}
