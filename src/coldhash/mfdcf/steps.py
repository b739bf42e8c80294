"""The steps of MFDCF: each lowers the objective (9) over one block of variables, the rest fixed.

Letters as in `mfdcf.py`. Rows are entities: the paper's R H is our H R'. What is about single users
is done by `local.py`, partition by partition; what follows from its sums is here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from coldhash.mfdcf import local
from coldhash.mfdcf.local import square, vdot
from coldhash.mfdcf.problem import Problem
from coldhash.partitions import Partitions, added

FLOOR = 1e-6  # of μ: a group that fits perfectly must not weigh infinitely


@dataclass(eq=False)
class State:
    """The variables that the steps change and that are not about single users."""

    D: np.ndarray  # items x bits
    DtD: np.ndarray  # D' V D
    R: np.ndarray  # bits x bits
    mu: dict[str, float]
    W: dict[str, np.ndarray] = field(default_factory=dict)
    V: dict[str, np.ndarray | None] = field(default_factory=dict)
    XtH: dict[str, np.ndarray] = field(default_factory=dict)  # follows from H
    average: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # row of H
    Z: np.ndarray | None = None  # Z_R and G_R of the printed steps for R
    multiplier: np.ndarray | None = None


def start(
    problem: Problem,
    users: Partitions,
    n_bits: int,
    rng: np.random.Generator,
    D: np.ndarray | None = None,
) -> State:
    """Start from item codes, random unless given; everything else follows from them."""
    n_items = len(problem.item_weights)
    if D is None:
        D = rng.integers(0, 2, size=(n_items, n_bits)).astype(np.float32) * 2 - 1
    mu = dict.fromkeys(problem.groups, 1 / len(problem.groups))
    state = State(D, np.zeros(0), np.eye(n_bits, dtype=np.float32), mu)
    users.put("B", [np.zeros((0, 0), dtype=np.uint8)] * len(users))
    set_items(problem, users, state, D)
    return state


def set_items(problem: Problem, users: Partitions, state: State, D: np.ndarray) -> None:
    """Take new item codes, and what follows from them: D' V D, and S V D of every user."""
    weighed = D * problem.item_weights
    state.D, state.DtD = D, (D.T @ weighed).astype(np.float64)
    list(users.each(local.MULTIPLY, weighed))


def consensus(problem: Problem, users: Partitions, state: State, with_codes: bool = True) -> None:
    """H, exactly (19), and with it B = sgn(H R'), exactly (21)."""
    eigenvalues, U = np.linalg.eigh(state.R.T @ state.DtD @ state.R)
    view = local.View(
        problem.fit_weight,
        problem.code_weight,
        state.R,
        state.W,
        state.mu,
        np.maximum(eigenvalues, 0).astype(np.float32),
        U.astype(np.float32),
    )
    step = local.CONSENSUS_AND_CODES if with_codes else local.CONSENSUS
    sums = added(users.each(step, view))
    state.XtH, state.average = sums["XtH"], _mean(problem, sums["H"])


def fold(problem: Problem, users: Partitions, state: State, cold_rotation: bool) -> State:
    """Put the rotation into H and W, where it belongs: the gauge R = I.

    Without `cold_rotation` the maps stay as they are: strangers' codes as printed in (28).
    """
    average = _mean(problem, added(users.each(local.FOLD, state.R)))
    W = {name: W @ state.R.T for name, W in state.W.items()} if cold_rotation else state.W
    return replace(state, R=np.eye(len(state.R), dtype=np.float32), W=W, average=average)


def _mean(problem: Problem, total: np.ndarray) -> np.ndarray:
    return (total / problem.n_users).astype(np.float32)


def maps(problem: Problem, state: State) -> dict[str, np.ndarray]:
    """W of every group, exactly (14): least squares on the retained directions, stiffer beyond."""
    return {
        name: group.map(state.XtH[name], problem.rank_weight * state.mu[name], state.V.get(name))
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


def misfits(problem: Problem, users: Partitions, state: State) -> dict[str, float]:
    """‖H - X W‖² + ε‖W‖² of every group, over the users who have it."""
    found = added(users.each(local.MISFITS, state.W))
    return {
        name: value + problem.groups[name].ridge * square(state.W[name])
        for name, value in found.items()
    }


def item_side(
    problem: Problem, users: Partitions, state: State
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give what the item step needs: D, the pulls L and the Gram G of Σ d G d' - 2 d l'.

    With a stranger weight, every user stands there a second and a third time: as the vector and as
    the code that the user would have had as a stranger.
    """
    weight = problem.stranger_weight
    if weight == 0:
        G = added(users.each(local.GRAM, state.R)).astype(np.float32)
        return state.D, added(users.each(local.PULLS, state.R)), G
    sums = added(users.each(local.STRANGERS, state.R, state.W, state.mu, state.average))
    HtH, PtP, CtC = (sums[name].astype(np.float32) for name in ("HtH", "PtP", "CtC"))
    # the length of strangers' codes that fits the ratings best
    length = sums["CSD"] / max(vdot(sums["CtC"], state.DtD), 1e-12)
    code = weight * problem.stranger_code_share
    own, real = 1 - weight, weight - code
    G = own * HtH + real * PtP + (code * length**2) * CtC
    return state.D, added(users.each(local.MIXED_PULLS, state.R, own, real, code * length)), G


def loss(
    problem: Problem,
    users: Partitions,
    state: State,
    found: dict[str, float] | None = None,
) -> float:
    """Give the objective (9); the misfits, if `found` already, are not worked out again."""
    found = misfits(problem, users, state) if found is None else found
    sums = added(users.each(local.LOSSES, state.R))
    every = vdot(state.DtD, sums["QtQ"])
    total = problem.fit_weight * (problem.known - 2 * sums["SDQ"] + every)
    total += problem.code_weight * sums["BQ"]
    for name in state.W:
        total += found[name] / state.mu[name]
        V = state.V.get(name)
        if V is not None:
            total += problem.rank_weight * square(state.W[name] @ V)
    return float(total)
