"""The steps of MFDCF: each lowers the objective (9) over one block of variables, the rest fixed.

Letters as in `mfdcf.py`. Rows are entities: the paper's R H is our H R'.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from coldhash.codes import signs
from coldhash.models.problem import Problem

FLOOR = 1e-6  # of μ: a group that fits perfectly must not weigh infinitely


@dataclass(eq=False)
class State:
    """The variables that the steps change."""

    D: np.ndarray  # items x bits
    SD: np.ndarray  # S V D, users x bits: follows from D, and three steps need it
    DtD: np.ndarray  # D' V D
    R: np.ndarray  # bits x bits
    mu: dict[str, float]
    H: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    B: np.ndarray | None = None
    W: dict[str, np.ndarray] = field(default_factory=dict)
    V: dict[str, np.ndarray | None] = field(default_factory=dict)
    Z: np.ndarray | None = None  # Z_R and G_R of the printed steps for R
    multiplier: np.ndarray | None = None

    def folded(self, cold_rotation: bool) -> State:
        """Put the rotation into H and W, where it belongs: the gauge R = I.

        Without `cold_rotation` the maps stay as they are: strangers' codes as printed in (28).
        """
        W = {name: W @ self.R.T for name, W in self.W.items()} if cold_rotation else self.W
        identity = np.eye(len(self.R), dtype=np.float32)
        return replace(self, R=identity, H=self.H @ self.R.T, W=W)


def start(
    problem: Problem, n_bits: int, rng: np.random.Generator, D: np.ndarray | None = None
) -> State:
    """Start from item codes, random unless given; everything else follows from them."""
    n_items = len(problem.item_weights)
    if D is None:
        D = rng.integers(0, 2, size=(n_items, n_bits)).astype(np.float32) * 2 - 1
    mu = dict.fromkeys(problem.groups, 1 / len(problem.groups))
    return State(D, *products(problem, D), np.eye(n_bits, dtype=np.float32), mu)


def products(problem: Problem, D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """S V D and D' V D, with V the weights of the items."""
    weighed = D * problem.item_weights
    return problem.target.times(weighed), (D.T @ weighed).astype(np.float64)


def set_items(problem: Problem, state: State, D: np.ndarray) -> None:
    """Take new item codes, and what follows from them."""
    state.D = D
    state.SD, state.DtD = products(problem, D)


def consensus(problem: Problem, state: State) -> np.ndarray:
    """H, exactly (19): one eigen-decomposition serves users with any set of groups."""
    alpha, beta = np.float32(problem.fit_weight), np.float32(problem.code_weight)
    right = alpha * (state.SD @ state.R)
    weight = np.full((len(right), 1), 1e-6, dtype=np.float32)
    if state.B is not None:
        right += beta * (state.B @ state.R)
        weight += beta
    for name, W in state.W.items():
        group, inverse = problem.groups[name], np.float32(1 / state.mu[name])
        right += inverse * (group.X @ W)
        weight += inverse * group.has
    eigenvalues, U = np.linalg.eigh(state.R.T @ state.DtD @ state.R)
    U = U.astype(np.float32)
    scale = weight + alpha * np.maximum(eigenvalues, 0).astype(np.float32)
    return ((right @ U) / scale) @ U.T  # type: ignore[no-any-return]


def codes(state: State) -> np.ndarray:
    """B = sgn(H R'), exactly (21)."""
    return signs(state.H @ state.R.T, np.float32)


def maps(problem: Problem, state: State) -> dict[str, np.ndarray]:
    """W of every group, exactly (14): least squares on the retained directions, stiffer beyond."""
    return {
        name: group.map(state.H, problem.rank_weight * state.mu[name], state.V.get(name))
        for name, group in problem.groups.items()
    }


def beyond_rank(problem: Problem, state: State) -> dict[str, np.ndarray | None]:
    """V of every group, exactly (23): the directions in which W has least; None where it has none.

    A map of no more rows than the retained rank has nothing beyond it.
    """
    found: dict[str, np.ndarray | None] = {}
    for name, W in state.W.items():
        n_beyond = W.shape[1] - problem.retained_rank
        if n_beyond <= 0 or W.shape[0] <= problem.retained_rank:
            found[name] = None
            continue
        _, vectors = np.linalg.eigh((W.T @ W).astype(np.float64))
        found[name] = vectors[:, :n_beyond]
    return found


def group_weights(misfits: dict[str, float]) -> dict[str, float]:
    """μ of every group, exactly (12): in proportion to how badly it fits."""
    distances = {name: np.sqrt(value) for name, value in misfits.items()}
    total = max(sum(distances.values()), 1e-12)
    floored = {name: max(float(d / total), FLOOR) for name, d in distances.items()}
    return {name: value / sum(floored.values()) for name, value in floored.items()}


def misfit(problem: Problem, state: State, name: str) -> float:
    """‖H - X W‖² + ε‖W‖² over the users who have the group."""
    group, W = problem.groups[name], state.W[name]
    return square(group.own(state.H) - group.X @ W) + group.ridge * square(W)


def item_side(problem: Problem, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give what the item step needs: D, the pulls L and the Gram G of Σ d G d' - 2 d l'.

    With a stranger weight, every user stands there a second and a third time: as the vector and as
    the code that the user would have had as a stranger.
    """
    H = state.H @ state.R.T
    weight = problem.stranger_weight
    if weight == 0:
        return state.D, problem.target.transposed_times(H), H.T @ H
    P = strangers(problem, state) @ state.R.T
    C = signs(P, np.float32)
    CtC = C.T @ C
    # the length of strangers' codes that fits the ratings best
    length = vdot(C, state.SD) / max(vdot(CtC, state.DtD), 1e-12)
    code = weight * problem.stranger_code_share
    own, real = 1 - weight, weight - code
    mixture = own * H + real * P + (code * length) * C
    G = own * (H.T @ H) + real * (P.T @ P) + (code * length**2) * CtC
    return state.D, problem.target.transposed_times(mixture.astype(np.float32)), G


def strangers(problem: Problem, state: State) -> np.ndarray:
    """Give the vectors that the training users would have had as strangers.

    Somebody with no group at all is taken for the average user.
    """
    total = np.zeros_like(state.H)
    weight = np.zeros((len(total), 1), dtype=np.float32)
    for name, has in problem.strangers.items():
        inverse = np.float32(1 / state.mu[name]) * has
        total += inverse * (problem.groups[name].X @ state.W[name])
        weight += inverse
    return np.where(weight > 0, total / np.maximum(weight, 1e-12), state.H.mean(axis=0))


def loss(problem: Problem, state: State, misfits: dict[str, float] | None = None) -> float:
    """Give the objective (9); `misfits`, if known, are not worked out again."""
    if misfits is None:
        misfits = {name: misfit(problem, state, name) for name in state.W}
    Q = state.H @ state.R.T
    every = vdot(state.DtD, (Q.T @ Q).astype(np.float64))
    total = problem.fit_weight * (problem.known - 2 * vdot(state.SD, Q) + every)
    if state.B is not None:
        total += problem.code_weight * square(state.B - Q)
    for name in state.W:
        total += misfits[name] / state.mu[name]
        V = state.V.get(name)
        if V is not None:
            total += problem.rank_weight * square(state.W[name] @ V)
    return total


def square(matrix: np.ndarray) -> float:
    """Add up squares in double precision."""
    return vdot(matrix, matrix)


def vdot(one: np.ndarray, two: np.ndarray) -> float:
    """Add up products in double precision."""
    return float(np.einsum("ij,ij->", one, two, dtype=np.float64))
