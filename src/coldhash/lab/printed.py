"""MFDCF with the steps of the paper that do not work, as printed: to measure what they cost.

`rotation`: (9) with a rotation R is the same for (H, W, V, R) and (H R', W R', V R', I), so R is a
gauge and costs nothing to leave out. Here H, W and V are always those of the gauge I; a step for R
turns them. `alm` is the printed augmented Lagrangian; `mm` is a step that never raises (9).

`item_step`: `pinv-sign` rounds the least-squares solution, as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coldhash.arrays.codes import signs
from coldhash.baselines.shared import polar, random_rotation
from coldhash.mfdcf import equations
from coldhash.mfdcf.equations import FitState
from coldhash.mfdcf.items import descend
from coldhash.mfdcf.model import MFDCF, Rounds
from coldhash.mfdcf.problem import Problem
from coldhash.partitions import Partitions
from coldhash.registry import MODELS, Model

RotationKind = Literal["alm", "mm", "identity"]
ItemStepKind = Literal["pinv-sign", "descent"]
LAMBDA = 1.0  # λ of the printed steps (17), (24) and (25)


@dataclass(frozen=True, kw_only=True)
class PrintedMFDCF(MFDCF):
    """Settings of MFDCF with its printed steps; the other settings are those of `MFDCF`.

    The paper has also `target="share"`, `popularity_power=0`, `stranger_weight=0` and no ridge.

    Parameters
    ----------
    rotation
        The step for R: "alm" (printed), "mm", or "identity" (none).
    item_step
        The step for item codes: "pinv-sign" (printed), or "descent" (that of `MFDCF`).
    cold_rotation
        Whether maps for strangers are rotated with H; False as printed in (28).

    Examples
    --------
    >>> from coldhash import read
    >>> model = PrintedMFDCF(n_bits=32, n_rounds=3).fit(read("sample", n_users=300, n_items=100))
    >>> model.name, model.bytes_per_item
    ('mfdcf', 4)
    """

    level: bool = False
    rotation: RotationKind = "alm"
    item_step: ItemStepKind = "pinv-sign"
    cold_rotation: bool = False

    def _alternate(
        self, problem: Problem, D: np.ndarray, rounds: Rounds, rng: np.random.Generator
    ) -> tuple[Problem, FitState]:
        """Go round the steps as `MFDCF` does, with the printed ones between them."""
        state = equations.start(problem, D)
        rotation = Rotation(self.rotation, self.n_bits, rng)
        if self.ridge is None:
            problem = equations.choose_ridges(problem, state, rng)
        while not self._settled(rounds.objective):
            equations.update_maps(problem, state)
            equations.update_vectors(problem, state)
            rotation.update(problem, state)  # (17), (24), (25)
            L, G = equations.item_problem(problem, state)
            descent = self.item_step == "descent"
            D = descend(state.D, L, G, self.n_sweeps, rng) if descent else pinv_sign(L, G)
            equations.set_items(problem, state, D)  # (21)
            rounds.end(equations.objective(problem, state), state, rng)
        equations.update_maps(problem, state)
        equations.update_vectors(problem, state)
        if not self.cold_rotation:  # (28) as printed: maps to H before it is rotated
            state.W = {name: W @ rotation.R.astype(np.float32) for name, W in state.W.items()}
        return problem, state


class Rotation:
    """R and the variables of its steps.

    Over R, (9) is α tr(R'M R N) - 2 tr(R'K) with M = D'D, N = H'H and K = α D'S'H + β B'H, where H
    is the one before rotation.
    """

    def __init__(self, kind: RotationKind, n_bits: int, rng: np.random.Generator) -> None:
        self._kind = kind
        self.R = np.eye(n_bits) if kind == "identity" else random_rotation(n_bits, rng)
        self._Z, self._multiplier = self.R, np.zeros((n_bits, n_bits))

    def update(self, problem: Problem, state: FitState) -> None:
        """Take a step for R, and turn everything that is in its gauge."""
        if self._kind == "identity":
            return
        before = self.R
        HtH, K = _quadratic(problem, state)
        step = self._majorise if self._kind == "mm" else self._lagrange
        step(state.alpha, state.DtD, before.T @ HtH @ before, K @ before)
        turn(problem.users, state, before @ self.R.T)

    def _majorise(self, alpha: float, M: np.ndarray, N: np.ndarray, K: np.ndarray) -> None:
        """Lower the objective over R by a majorised step; R stays a rotation."""
        bound = alpha * np.linalg.eigvalsh(M)[-1] * np.linalg.eigvalsh(N)[-1]

        def value(R: np.ndarray) -> float:
            return float(alpha * np.sum((M @ R) * (R @ N)) - 2 * np.sum(R * K))

        R = min((self.R, polar(K)), key=value)
        self.R = polar(K - alpha * M @ R @ N + bound * R)

    def _lagrange(self, alpha: float, M: np.ndarray, N: np.ndarray, K: np.ndarray) -> None:
        """Update R, Z_R and G_R as printed: (17), (24), (25)."""
        Z = self._Z
        self.R = polar(2 * K - alpha * M @ Z @ N + LAMBDA * Z - self._multiplier)
        self._Z = polar(-alpha * M @ self.R @ N + LAMBDA * self.R + self._multiplier)
        self._multiplier = self._multiplier + LAMBDA * (self.R - self._Z)


def turn(users: Partitions, state: FitState, T: np.ndarray) -> None:
    """Multiply H and everything that follows its gauge by a rotation."""
    T32 = T.astype(np.float32)
    state.H, _ = users.update(lambda H: (H @ T32, None), state.H)
    state.W = {name: W @ T32 for name, W in state.W.items()}
    state.V = {name: None if V is None else T.T @ V for name, V in state.V.items()}
    state.average = state.average @ T32


def _quadratic(problem: Problem, state: FitState) -> tuple[np.ndarray, np.ndarray]:
    """Return H'H and α D'S'H + β B'H."""
    alpha, beta, length = state.alpha, problem.code_weight, state.length

    def products(
        H: np.ndarray, TD: np.ndarray, B: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        H = H.astype(np.float64)
        K = alpha * TD.T @ H
        if B is not None:
            K += beta * length * equations.unpack_codes(B, H.shape[1]).T @ H
        return H.T @ H, K

    return problem.users.sum(products, state.H, state.TD, state.B)


def pinv_sign(L: np.ndarray, G: np.ndarray) -> np.ndarray:
    """Round the least-squares solution, as printed in (21)."""
    relaxed = L @ np.linalg.pinv(G.astype(np.float64), hermitian=True)
    return signs(relaxed, np.float32)


# what experiments may name: the methods of the registry, and this one
METHODS: dict[str, type[Model]] = {**MODELS, "printed-mfdcf": PrintedMFDCF}
