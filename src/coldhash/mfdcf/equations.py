"""The steps of MFDCF: each lowers the objective (9) over one block of variables, the rest fixed.

    (9)  Σ_g 1/μ_g (‖H - X_g W_g‖² + ε_g‖W_g‖²) + α‖(T - H D') V½‖² + β‖s B - H‖² + γ Σ_g ‖W_g V_g‖²

with  T = (S - 1m') G⁻¹,  G = diag(g):  the targets S, less the mean m of each item, on the scale g
on which people differ (see `Level`; without a level T = S). T is never formed: S is sparse, and the
mean adds a term of rank one to every product.

Rows are entities. A step has two halves: a function of one block of users, which `Partitions`
applies to every partition, and what follows from the sums over all users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coldhash.arrays.codes import pack, signs
from coldhash.arrays.products import times, times_codes
from coldhash.arrays.threads import run_pieces
from coldhash.errors import DataError
from coldhash.mfdcf.problem import REPORTED, Group, Problem, UserBlock, choose_rows, dense
from coldhash.partitions import PerPartition, add_up

FLOOR = 1e-6  # of μ: a group that fits perfectly must not weigh infinitely
MOST_SHRUNK = 10  # times as much as the ratings of a user, what is expected may weigh at most
FLAT = 1e-3  # share of the mean eigenvalue of D'V D below which codes say nothing
FIRST_RIDGE = 30.0  # until it is chosen
RIDGES = (
    *(0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 50.0, 100.0, 200.0, 300.0),
    *(1e3, 3e3, 1e4, 3e4, 1e5, 1e6),
)
RIDGE_SAMPLE = 20_000  # users that a ridge is chosen on
COLUMN_WEIGHT = 56  # bits, with which a feature counts as much as its column on average
LEAST_SIGNAL = 1e-3  # of a feature, in terms of its noise

Maps = dict[str, np.ndarray]  # W by group


@dataclass(eq=False)
class FitState:
    """The variables that the steps change."""

    B: PerPartition[np.ndarray | None]  # user codes, packed; None before the first round
    mu: dict[str, float]  # μ
    alpha: float  # α
    average: np.ndarray  # row of H
    length: float = 0.0  # s: the length of a coordinate of H
    V: dict[str, np.ndarray | None] = field(default_factory=dict)  # directions beyond the rank
    # set by `set_items`
    D: np.ndarray = field(init=False)  # item codes, items x bits
    DtD: np.ndarray = field(init=False)  # D' V D
    noise: np.ndarray = field(init=False)  # D' V² diag(noise) D
    eigenvalues: np.ndarray = field(init=False)  # of D'V D; where codes do not differ, a little
    U: np.ndarray = field(init=False)  # its eigenvectors
    TD: PerPartition[np.ndarray] = field(init=False)  # T V D, users x bits
    XtT: Maps = field(init=False)  # X'T V D of each group
    # set by `update_maps` and `update_vectors`
    W: Maps = field(init=False)
    H: PerPartition[np.ndarray] = field(init=False)  # user vectors, users x bits
    codes: tuple[np.ndarray, ...] = field(init=False)  # what is in B
    misfits: dict[str, float] = field(init=False)  # ‖H - X W‖² + ε‖W‖²


def start(problem: Problem, D: np.ndarray) -> FitState:
    """Return the state that follows from item codes alone."""
    state = FitState(
        B=problem.users.scatter([None] * len(problem.users)),
        mu=dict.fromkeys(problem.groups, 1 / max(len(problem.groups), 1)),
        alpha=np.inf if problem.fit_weight is None else problem.fit_weight,
        average=np.zeros(D.shape[1], np.float32),
    )
    set_items(problem, state, D)
    return state


# (14)  W_g = argmin 1/μ_g (‖Ĥ - X_g W_g‖² + ε_g‖W_g‖²) + γ‖W_g V_g‖²
# (23)  V_g = the right singular vectors of W_g beyond the retained rank
#       Ĥ = T V D (D'V D)⁻¹ is what the ratings alone say. For one group and β = 0, this W and the
#       H of (19) that follows from it minimise (9) over both, up to the ridge.
def update_maps(problem: Problem, state: FitState) -> None:
    """Fit the map of every group: least squares, stiffer along the directions V."""
    inverse = inverse_gram(state)
    state.W = {
        name: group.map(
            state.XtT[name] @ inverse, problem.rank_weight * state.mu[name], state.V.get(name)
        )
        for name, group in problem.groups.items()
    }
    state.V = {
        name: beyond_rank(problem.groups[name].penalised(W), problem.retained_rank)
        for name, W in state.W.items()
    }


def inverse_gram(state: FitState) -> np.ndarray:
    """Return (D'V D)⁻¹."""
    return np.asarray((state.U / state.eigenvalues) @ state.U.T)


# (19)  H = argmin α‖(T - H D') V½‖² + β‖s B - H‖² + Σ_g 1/μ_g ‖H - X_g W_g‖²
#         = (α T V D + β s B + Σ_g 1/μ_g X_g W_g) (α D'V D + β I + Σ_g 1/μ_g I)⁻¹
# (21)  B = sgn(H),  s = mean |H|
# (12)  μ_g = √misfit_g / Σ_g' √misfit_g'
def update_vectors(problem: Problem, state: FitState) -> None:
    """Solve for all user vectors and codes; one eigendecomposition serves any set of groups."""
    beta, length = np.float32(problem.code_weight), np.float32(state.length)
    eigenvalues, U = state.eigenvalues.astype(np.float32), state.U.astype(np.float32)
    W, mu, average = state.W, state.mu, state.average
    WU = {name: each @ U for name, each in W.items()}
    # before the noise is known, α = ∞: what the ratings alone say
    pull = np.float32(0 if np.isinf(state.alpha) else 1 / state.alpha)

    def solve(
        block: UserBlock, TD: np.ndarray, B: np.ndarray | None
    ) -> tuple[np.ndarray, tuple[np.ndarray, tuple[Any, ...]]]:
        TDU, says = TD @ U, {name: block.X[name] @ WU[name] for name in W}  # all times U
        right, prior = np.zeros_like(TD), np.zeros((len(TD), 1), dtype=np.float32)
        for name, say in says.items():
            right += np.float32(1 / mu[name]) * say
            prior += np.float32(1 / mu[name]) * block.has[name]
        if not prior.all():  # no features: the average user is expected
            unknown = prior == 0
            right, prior = right + unknown * (average @ U), prior + unknown
        apart, weight = square(TDU / eigenvalues - right / prior), prior
        if B is not None:
            right += unpack_codes(B, TD.shape[1]) @ (beta * length * U)
            weight = prior + beta
        HU = (TDU + pull * right) / (eigenvalues + pull * weight)
        H = HU @ U.T
        total, lengths = H.sum(axis=0).astype(np.float64), float(np.abs(H).sum(dtype=np.float64))
        misfits = {name: square(block.has[name] * HU - say) for name, say in says.items()}
        sums = total, lengths, misfits, apart, float(prior.sum())
        return H, (np.packbits(H >= 0, axis=1), sums)

    state.H, results = problem.users.run(solve, problem.blocks, state.TD, state.B)
    # all that the next round needs of this one: codes leave their partitions and come back, so
    # that a lost worker costs one round
    state.codes, found = zip(*results, strict=True)
    state.B = problem.users.scatter(state.codes)
    total, lengths, misfits, apart, prior = add_up(found)  # apart: ‖Ĥ - P‖²
    n_values = problem.n_users * len(U)
    state.length = lengths / n_values
    if problem.level.bytes is None:  # beside a level, the average user is 0
        state.average = (total / problem.n_users).astype(np.float32)
    state.misfits = {
        name: misfits[name] + group.ridge * square(group.penalised(W[name]))
        for name, group in problem.groups.items()
    }
    state.mu = group_weights(state.misfits)
    if problem.fit_weight is None:
        prior = prior / problem.n_users + problem.code_weight
        state.alpha = prior / shrinkage(state, apart / n_values)


def shrinkage(state: FitState, variance: float) -> float:
    """Return the weight of what is expected beside D'V D, from the noise of Ĥ.

    The targets of different items are independent given a user, so Ĥ has the noise
    (D'V D)⁻¹ D'V² diag(noise) D (D'V D)⁻¹; the rest of its variance around what the features say is
    how users differ. Weights in proportion give the vectors of least expected error.
    """
    inverse = inverse_gram(state)
    noise = np.trace(inverse @ state.noise @ inverse) / len(inverse)
    ratio = noise / max(variance - noise, noise / MOST_SHRUNK, 1e-12)
    return float(state.eigenvalues.mean() * max(ratio, 1e-6))


def beyond_rank(W: np.ndarray, retained_rank: int) -> np.ndarray | None:
    """Solve (23): the directions in which W has least, None if it has no more than the rank."""
    n_beyond = W.shape[1] - retained_rank
    if n_beyond <= 0 or W.shape[0] <= retained_rank:
        return None
    _, vectors = np.linalg.eigh((W.T @ W).astype(np.float64))
    return vectors[:, :n_beyond]


def group_weights(misfits: dict[str, float]) -> dict[str, float]:
    """Solve (12): μ in proportion to how badly a group fits."""
    distances = {name: np.sqrt(value) for name, value in misfits.items()}
    total = max(sum(distances.values()), 1e-12)
    floored = {name: max(float(d / total), FLOOR) for name, d in distances.items()}
    return {name: value / sum(floored.values()) for name, value in floored.items()}


# (21)  D = argmin Σ_i v_i (d_i G d_i' - 2 d_i l_i')  over codes, with G = H'H and L = T'H.
#       With a stranger weight ω, every user counts three times: as h with 1 - ω, and, with ω in
#       all, as the vector p and as the code c = sgn(p) that the user would have as a stranger.
#       Users who are held out do not count: by them the histories are judged.
def item_problem(problem: Problem, state: FitState) -> tuple[np.ndarray, np.ndarray]:
    """Return L (items x bits) and G (bits x bits) of the item step, solved by `items.descend`."""
    names, maps = problem.groups_of_strangers, (state.W, state.mu, state.average)
    weight = problem.stranger_weight if names else 0.0
    code = weight * problem.stranger_code_share
    own, real = 1 - weight, weight - code

    def as_strangers(block: UserBlock, H: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        P = stranger_vectors(block, block.drawn(names), *maps) if weight else np.zeros_like(H)
        H, P = H[block.trained], P[block.trained]
        C = signs(P, np.float32)
        R = P if real else P[:0]  # not needed where strangers count by their codes alone
        sums = (H.T @ H, R.T @ R, C.T @ C, C.T @ P, H.sum(axis=0), P.sum(axis=0), C.sum(axis=0))
        return P, tuple(each.astype(np.float64) for each in sums)

    P, sums = problem.users.update(as_strangers, problem.blocks, state.H)
    HtH, PtP, CtC, CtP, of_H, of_P, of_C = sums
    # the length with which the codes of strangers come nearest to their vectors
    length = vdot(CtP, state.DtD) / max(vdot(CtC, state.DtD), 1e-12)
    code_length = code * length

    def pull(block: UserBlock, H: np.ndarray, P: np.ndarray) -> np.ndarray:
        mixture = own * H[block.trained]
        if real:
            mixture += real * P
        mixture += code_length * signs(P, np.float32)
        return times(block.St, mixture)

    L, level = problem.users.sum(pull, problem.blocks, state.H, P), problem.level
    total = own * of_H + real * of_P + code_length * of_C
    L -= level.means * total.astype(np.float32)
    L /= level.gains
    HtH, PtP, CtC = (gram.astype(np.float32) for gram in (HtH, PtP, CtC))
    return L, own * HtH + real * PtP + (code * length**2) * CtC


def set_items(problem: Problem, state: FitState, D: np.ndarray) -> None:
    """Take new item codes, and what follows from them: D'V D, T V D of every user, and X'T V D."""
    weights, noise = problem.item_weights, problem.item_weights**2 * problem.noise
    state.D = D
    state.DtD, state.noise = run_pieces(
        lambda diagonal: (D.T @ (D * diagonal)).astype(np.float64), (weights, noise)
    )
    values, state.U = np.linalg.eigh(state.DtD)
    state.eigenvalues = np.maximum(values, FLAT * values.mean())
    weights, mean = entry_weights(problem), mean_projection(problem, D)
    words, n_bits, names = pack(D), D.shape[1], tuple(problem.groups)

    def project(block: UserBlock) -> tuple[np.ndarray, Maps]:
        TD = times_codes(block.S, words, weights, n_bits) - mean
        return TD, {name: (block.X[name].T @ TD).astype(np.float64) for name in names}

    state.TD, state.XtT = problem.users.update(project, problem.blocks)


def entry_weights(problem: Problem) -> np.ndarray:
    """Return V G⁻¹: an entry of S adds so much of its item's code to T V D."""
    return (problem.item_weights / problem.level.gains)[:, 0]  # type: ignore[no-any-return]


def mean_projection(problem: Problem, D: np.ndarray) -> np.ndarray:
    """Return m' G⁻¹ V D, which every row of T V D is less by."""
    weights = problem.level.means[:, 0] * entry_weights(problem)
    return (weights @ D).astype(np.float32)  # type: ignore[no-any-return]


def objective(problem: Problem, state: FitState) -> float:
    """Compute (9) / α, which rounds with different α have in common.

    The misfits are those of the last `update_vectors`.
    """
    length = np.float32(state.length)

    def terms(
        H: np.ndarray, TD: np.ndarray, B: np.ndarray | None
    ) -> tuple[np.ndarray, float, float]:
        to_codes = 0.0 if B is None else square(length * unpack_codes(B, H.shape[1]) - H)
        return (H.T @ H).astype(np.float64), vdot(TD, H), to_codes

    HtH, TDH, to_codes = problem.users.sum(terms, state.H, state.TD, state.B)
    fit = problem.known - 2 * TDH + vdot(state.DtD, HtH)
    others = problem.code_weight * to_codes
    for name, W in state.W.items():
        others += state.misfits[name] / state.mu[name]
        if (V := state.V[name]) is not None:
            others += problem.rank_weight * square(problem.groups[name].penalised(W) @ V)
    return float(fit + others / state.alpha)


# (28)  p = Σ_g 1/μ_g x_g W_g / Σ_g 1/μ_g  over the groups that a stranger brings
def stranger_vectors(
    block: UserBlock,
    brought: Mapping[str, np.ndarray],
    W: Maps,
    mu: Mapping[str, float],
    average: np.ndarray,
) -> np.ndarray:
    """Return the vectors that users would have as strangers; without groups, the average one."""
    n_users = len(block.trained)
    total = np.zeros((n_users, len(average)), dtype=np.float32)
    weight = np.zeros((n_users, 1), dtype=np.float32)
    for name, has in brought.items():
        inverse = np.float32(1 / mu[name]) * has
        total += inverse * (block.X[name] @ W[name])
        weight += inverse
    total /= np.maximum(weight, np.float32(1e-12))
    return total if weight.all() else np.where(weight > 0, total, average)


def summarise_strangers(problem: Problem, state: FitState) -> tuple[float, np.ndarray]:
    """Return the mean length of a coordinate of stranger vectors, and the first of them."""
    names, maps = problem.groups_of_strangers, (state.W, state.mu, state.average)

    def summarise(block: UserBlock) -> tuple[float, np.ndarray]:
        P = stranger_vectors(block, block.drawn(names), *maps)
        return float(np.abs(P).sum(dtype=np.float64)), P[: max(REPORTED - block.first, 0)]

    lengths, firsts = zip(*problem.users.map(summarise, problem.blocks), strict=True)
    return add_up(lengths) / (problem.n_users * len(state.average)), np.concatenate(firsts)


def unpack_codes(B: np.ndarray, n_bits: int) -> np.ndarray:
    """Return packed user codes as +1 and -1."""
    bits = np.unpackbits(B, axis=1, count=n_bits)
    return bits.astype(np.float32) * np.float32(2) - np.float32(1)


def square(matrix: np.ndarray) -> float:
    """Add up squares."""
    return vdot(matrix, matrix)


def vdot(one: np.ndarray, two: np.ndarray) -> float:
    """Add up products: rows as they are, their sums in double precision."""
    return float(np.einsum("ij,ij->i", one, two).sum(dtype=np.float64))


# How much each feature of a group counts, and how much all are shrunk, is chosen on training users:
# a column that says nothing about what people like must not cost what the others say, however many
# such columns there are.
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
