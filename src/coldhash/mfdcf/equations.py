"""The steps of MFDCF: each lowers the objective (9) over one block of variables, the rest fixed.

    (9)  Σ_g 1/μ_g (‖H - X_g W_g‖² + ε_g‖W_g‖²) + α‖(S - H D') V½‖² + β‖B - H‖² + γ Σ_g ‖W_g V_g‖²

Rows are entities. A step has two halves: a function of one block of users, which `Partitions`
applies to every partition, and what follows from the sums over all users.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coldhash.arrays.codes import signs
from coldhash.arrays.products import times
from coldhash.mfdcf.problem import Drawn, Problem, UserBlock
from coldhash.partitions import Partitions, PerPartition

FLOOR = 1e-6  # of μ: a group that fits perfectly must not weigh infinitely

Maps = dict[str, np.ndarray]  # W by group


@dataclass(eq=False)
class FitState:
    """The variables that the steps change."""

    D: np.ndarray  # item codes, items x bits
    DtD: np.ndarray  # D' V D
    SD: PerPartition[np.ndarray]  # S V D, users x bits
    H: PerPartition[np.ndarray]  # user vectors, users x bits
    B: PerPartition[np.ndarray | None]  # user codes, packed; None before the first round
    mu: dict[str, float]  # μ
    W: Maps = field(default_factory=dict)
    V: dict[str, np.ndarray | None] = field(default_factory=dict)  # directions beyond the rank
    XtH: Maps = field(default_factory=dict)  # X'H of each group
    average: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # row of H
    misfits: dict[str, float] = field(default_factory=dict)  # ‖H - X W‖² + ε‖W‖²


class UserSums(NamedTuple):
    """What (19) adds up over users."""

    XtH: Maps
    total: np.ndarray  # Σ_u h_u


class StrangerSums(NamedTuple):
    """What the item step adds up over users, as they are and as strangers."""

    HtH: np.ndarray
    PtP: np.ndarray  # of stranger vectors
    CtC: np.ndarray  # of stranger codes
    CSD: float  # <C, S V D>


class ObjectiveSums(NamedTuple):
    """What (9) adds up over users."""

    HtH: np.ndarray
    SDH: float  # <S V D, H>
    BH: float  # ‖B - H‖²


def start(
    users: Partitions, problem: Problem, D: np.ndarray, codes: list[np.ndarray] | None = None
) -> FitState:
    """Return the state that follows from item codes and, if a fit goes on, from user codes."""
    mu = dict.fromkeys(problem.groups, 1 / len(problem.groups))
    nothing = PerPartition[np.ndarray]([])
    B = users.scatter([None] * len(users) if codes is None else codes)
    state = FitState(D, np.zeros(0), SD=nothing, H=nothing, B=B, mu=mu)
    set_items(users, problem, state, D)
    return state


# (19)  H = argmin α‖(S - H D') V½‖² + β‖B - H‖² + Σ_g 1/μ_g ‖H - X_g W_g‖²
#         = (α S V D + β B + Σ_g 1/μ_g X_g W_g) (α D'V D + β I + Σ_g 1/μ_g I)⁻¹
# (21)  B = sgn(H)
def update_vectors(users: Partitions, problem: Problem, state: FitState) -> None:
    """Solve for all user vectors and codes; one eigendecomposition serves any set of groups."""
    alpha, beta = np.float32(problem.fit_weight), np.float32(problem.code_weight)
    values, vectors = np.linalg.eigh(state.DtD)
    eigenvalues, U = np.maximum(values, 0).astype(np.float32), vectors.astype(np.float32)
    W, mu, names = state.W, state.mu, tuple(problem.groups)

    def solve(
        block: UserBlock, SD: np.ndarray, B: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, UserSums]:
        right = alpha * SD
        weight = np.full((len(right), 1), 1e-6, dtype=np.float32)
        if B is not None:
            right += beta * unpack_codes(B, right.shape[1])
            weight += beta
        for name in W:
            inverse = np.float32(1 / mu[name])
            right += inverse * (block.X[name] @ W[name])
            weight += inverse * block.has[name]
        H = ((right @ U) / (weight + alpha * eigenvalues)) @ U.T
        XtH = {name: features_times(block, name, H) for name in names}
        return H, np.packbits(H >= 0, axis=1), UserSums(XtH, row_sum(H))

    state.H, state.B, sums = users.update(solve, problem.blocks, state.SD, state.B, n_kept=2)
    state.XtH = sums.XtH
    state.average = (sums.total / problem.n_users).astype(np.float32)


# (14)  W_g = argmin 1/μ_g (‖H - X_g W_g‖² + ε_g‖W_g‖²) + γ‖W_g V_g‖²
# (23)  V_g = the right singular vectors of W_g beyond the retained rank
# (12)  μ_g = √misfit_g / Σ_g' √misfit_g'
def update_maps(users: Partitions, problem: Problem, state: FitState) -> None:
    """Fit the map of every group to H, and weigh groups by how well they fit."""
    state.W = fit_maps(problem, state)
    state.V = {name: beyond_rank(W, problem.retained_rank) for name, W in state.W.items()}
    state.misfits = compute_misfits(users, problem, state)
    state.mu = group_weights(state.misfits)


def fit_maps(problem: Problem, state: FitState) -> Maps:
    """Solve (14) for every group: least squares, stiffer along the directions V."""
    return {
        name: group.map(state.XtH[name], problem.rank_weight * state.mu[name], state.V.get(name))
        for name, group in problem.groups.items()
    }


def beyond_rank(W: np.ndarray, retained_rank: int) -> np.ndarray | None:
    """Solve (23): the directions in which W has least, None if it has no more than the rank."""
    n_beyond = W.shape[1] - retained_rank
    if n_beyond <= 0 or W.shape[0] <= retained_rank:
        return None
    _, vectors = np.linalg.eigh((W.T @ W).astype(np.float64))
    return vectors[:, :n_beyond]


def compute_misfits(users: Partitions, problem: Problem, state: FitState) -> dict[str, float]:
    """Compute ‖H - X W‖² + ε‖W‖² of every group, over the users who have it."""
    W = state.W

    def distances(block: UserBlock, H: np.ndarray) -> dict[str, float]:
        return {name: square(_having(block, name, H) - block.X[name] @ W[name]) for name in W}

    found = users.sum(distances, problem.blocks, state.H)
    return {
        name: value + problem.groups[name].ridge * square(W[name]) for name, value in found.items()
    }


def group_weights(misfits: dict[str, float]) -> dict[str, float]:
    """Solve (12): μ in proportion to how badly a group fits."""
    distances = {name: np.sqrt(value) for name, value in misfits.items()}
    total = max(sum(distances.values()), 1e-12)
    floored = {name: max(float(d / total), FLOOR) for name, d in distances.items()}
    return {name: value / sum(floored.values()) for name, value in floored.items()}


# (21)  D = argmin Σ_i v_i (d_i G d_i' - 2 d_i l_i')  over codes, with G = H'H and L = S'H.
#       With a stranger weight ω, every user counts three times: as h with 1 - ω, and, with ω in
#       all, as the vector p and as the code c = sgn(p) that the user would have as a stranger.
def item_problem(
    users: Partitions, problem: Problem, state: FitState
) -> tuple[np.ndarray, np.ndarray]:
    """Return L (items x bits) and G (bits x bits) of the item step, solved by `items.descend`."""
    weight = problem.stranger_weight
    if weight == 0:
        G = users.sum(lambda H: (H.T @ H).astype(np.float64), state.H)
        L = users.sum(lambda block, H: times(block.St, H), problem.blocks, state.H)
        return L, G.astype(np.float32)
    W, mu, average = state.W, state.mu, state.average

    def as_strangers(
        block: UserBlock, drawn: Drawn, H: np.ndarray, SD: np.ndarray
    ) -> tuple[np.ndarray, StrangerSums]:
        P = stranger_vectors(block, drawn, W, mu, average)
        C = signs(P, np.float32)
        HtH, PtP, CtC = (gram.astype(np.float64) for gram in (H.T @ H, P.T @ P, C.T @ C))
        return P, StrangerSums(HtH, PtP, CtC, vdot(C, SD))

    P, sums = users.update(as_strangers, problem.blocks, problem.drawn, state.H, state.SD)
    # the length of stranger codes that fits the ratings best
    length = sums.CSD / max(vdot(sums.CtC, state.DtD), 1e-12)
    code = weight * problem.stranger_code_share
    own, real, code_length = 1 - weight, weight - code, code * length

    def pull(block: UserBlock, H: np.ndarray, P: np.ndarray) -> np.ndarray:
        mixture = own * H + real * P + code_length * signs(P, np.float32)
        return times(block.St, mixture.astype(np.float32))

    L = users.sum(pull, problem.blocks, state.H, P)
    HtH, PtP, CtC = (gram.astype(np.float32) for gram in (sums.HtH, sums.PtP, sums.CtC))
    return L, own * HtH + real * PtP + (code * length**2) * CtC


def set_items(users: Partitions, problem: Problem, state: FitState, D: np.ndarray) -> None:
    """Take new item codes, and what follows from them: D'V D, and S V D of every user."""
    VD = D * problem.item_weights
    state.D, state.DtD = D, (D.T @ VD).astype(np.float64)
    state.SD, _ = users.update(lambda block: (times(block.S, VD), None), problem.blocks)


def objective(users: Partitions, problem: Problem, state: FitState) -> float:
    """Compute (9); the misfits are those of the last `update_maps`."""

    def terms(H: np.ndarray, SD: np.ndarray, B: np.ndarray | None) -> ObjectiveSums:
        to_codes = 0.0 if B is None else square(unpack_codes(B, H.shape[1]) - H)
        return ObjectiveSums((H.T @ H).astype(np.float64), vdot(SD, H), to_codes)

    sums = users.sum(terms, state.H, state.SD, state.B)
    fit = problem.known - 2 * sums.SDH + vdot(state.DtD, sums.HtH)
    total = problem.fit_weight * fit
    total += problem.code_weight * sums.BH
    for name, W in state.W.items():
        total += state.misfits[name] / state.mu[name]
        V = state.V.get(name)
        if V is not None:
            total += problem.rank_weight * square(W @ V)
    return float(total)


# (28)  p = Σ_g 1/μ_g x_g W_g / Σ_g 1/μ_g  over the groups that a stranger brings
def stranger_vectors(
    block: UserBlock, drawn: Drawn, W: Maps, mu: dict[str, float], average: np.ndarray
) -> np.ndarray:
    """Return the vectors that users would have as strangers; without groups, the average one."""
    n_users = len(next(iter(drawn.values())))
    total = np.zeros((n_users, len(average)), dtype=np.float32)
    weight = np.zeros((n_users, 1), dtype=np.float32)
    for name, has in drawn.items():
        inverse = np.float32(1 / mu[name]) * has
        total += inverse * (block.X[name] @ W[name])
        weight += inverse
    return np.where(weight > 0, total / np.maximum(weight, 1e-12), average)


def features_times(block: UserBlock, name: str, H: np.ndarray) -> np.ndarray:
    """Return X'H over the users who have the group."""
    return (block.X[name].T @ _having(block, name, H)).astype(np.float64)  # type: ignore[no-any-return]


def _having(block: UserBlock, name: str, H: np.ndarray) -> np.ndarray:
    """Return H with zeros for the users without the group."""
    has = block.has[name]
    return H if has.all() else H * has


def unpack_codes(B: np.ndarray, n_bits: int) -> np.ndarray:
    """Return packed user codes as +1 and -1."""
    bits = np.unpackbits(B, axis=1, count=n_bits)
    return bits.astype(np.float32) * np.float32(2) - np.float32(1)


def row_sum(H: np.ndarray) -> np.ndarray:
    """Add up the rows."""
    return H.sum(axis=0).astype(np.float64)  # type: ignore[no-any-return]


def square(matrix: np.ndarray) -> float:
    """Add up squares in double precision."""
    return vdot(matrix, matrix)


def vdot(one: np.ndarray, two: np.ndarray) -> float:
    """Add up products in double precision."""
    return float(np.einsum("ij,ij->", one, two, dtype=np.float64))
