"""What first ratings or purchases say about the rest: learned from the training users' own.

For several numbers t, every training user with more than t events is seen after t of them: the
first by time where times are known, otherwise a random choice. What these events show, the mean z̄
of the rows of `HistoryPart`, is regressed on what the *rest* of the events says beyond the
features, over the items that were not given:

    min  Σ_u Σ_{j not given} v_j (a s_uj / g_j - m_j / g_j - (p_u + z̄_u C)·d_j)²
         + λ_e ‖C_e‖² + λ_p ‖C_p‖²

with p_u what the features say, a > 1 for the events that are not left, and C_e, C_p the parts of C
for exposure and preference. The ridges and the length of C are chosen by the users whom the item
step has not seen: what says nothing about them gets no weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.compiled import compiled
from coldhash.arrays.threads import run_pieces
from coldhash.data.dataset import UserRecords
from coldhash.mfdcf.equations import FitState, mean_projection, stranger_vectors, vdot
from coldhash.mfdcf.problem import ItemSums, Problem, UserBlock, uniform
from coldhash.partitions import add_up
from coldhash.recommender.history import HistoryPart
from coldhash.recommender.items import CodeItems

COUNTS = (1, 3, 10, 30)  # events given; in between, maps are interpolated
MAX_DRAWS = 3  # choices of first events, where times are unknown: as many as ...
ENOUGH = 5_000  # ... give this many users
MIN_USERS = 50  # trained, and held out, that a map is learned from
DISCOUNT = 0.25  # an event counts by the popularity of its item to the power of minus this
PRIOR_RATINGS = 5  # of the average value: the mean rating of an item is shrunk by so many
RIDGES = np.logspace(-3, 4, 8)  # times the mean square of a channel
EVEN = 0.1  # of the mean eigenvalue of D'V D, added to all
LONGEST = 2.0  # times which C may be stretched for the users held out
FREE, FIXED = 1e-6, 1e9  # the ridge of an intercept, and of none


class Moments(NamedTuple):
    """Sums over the users who have more than t events."""

    n_users: float
    ZtZ: np.ndarray
    ZtY: np.ndarray  # Z' times what the rest says beyond the features, times V D
    given: np.ndarray  # how often each item was given


def fit_history(problem: Problem, state: FitState, items: CodeItems) -> HistoryPart:
    """Learn how a few events move a person, for several numbers of events.

    Unless events are ratings, their values say nothing about preference: somebody who bought an
    item once does not dislike it, however often others bought it.
    """
    users, part = problem.users, _without_maps(problem.sums, items, state)
    if problem.target.feedback.kind != "ratings":
        part = replace(part, spread=0.0)
    n_draws = max(1, min(MAX_DRAWS, ENOUGH // problem.n_users))
    maps, DtD = (state.W, state.mu, state.average), state.DtD.astype(np.float32)
    D, V, mean = state.D, problem.item_weights[:, 0], mean_projection(problem, state.D)
    gains, means = problem.level.gains[:, 0], problem.level.means[:, 0]
    scales = _scales(problem)

    def moments(
        records: UserRecords, block: UserBlock, TD: np.ndarray
    ) -> dict[int, tuple[Moments, Moments]]:
        """Add up trained and held-out users apart, for every number of events."""
        P = stranger_vectors(block, {name: block.has[name] for name in maps[0]}, *maps)
        found: dict[int, list[tuple[Moments, Moments]]] = {t: [] for t in COUNTS}
        for t, rows, entries in _first_events(records, n_draws):
            a = scales[t]
            given = _take(records.ratings, entries, t)
            Z, at = part.evidence(given), given.indices
            # all items, less those that were given
            Y = a * (TD[rows] + mean) - mean - P[rows] @ DtD
            targets = (a * block.S.data[entries] - means[at]) / gains[at]
            _leave_out(Y, P, rows, at.reshape(-1, t), targets.reshape(-1, t), D, V)
            trained = block.trained[rows]
            found[t].append((_add(Z, Y, at, trained, D), _add(Z, Y, at, ~trained, D)))
        return {t: add_up(draws) for t, draws in found.items()}

    timed = all(users.map(lambda records: records.times is not None, users.records))
    found = users.sum(moments, users.records, problem.blocks, state.TD)
    enough = {t: pair for t, pair in found.items() if min(m.n_users for m in pair) >= MIN_USERS}
    learned = run_pieces(lambda pair: _solve(*pair, problem, state, timed), enough.values())
    return part.with_maps(dict(zip(enough, learned, strict=True)))


def _add(Z: np.ndarray, Y: np.ndarray, at: np.ndarray, some: np.ndarray, D: np.ndarray) -> Moments:
    """Add up some of the users, each of them with as many given items."""
    t, Z, Y = len(at) // max(len(some), 1), Z[some], Y[some]
    given = np.bincount(at[np.repeat(some, t)], minlength=len(D))
    ZtZ, ZtY = (Z.T @ Z).astype(np.float64), (Z.T @ Y).astype(np.float64)
    return Moments(float(len(Z)), ZtZ, ZtY, given)


def _scales(problem: Problem) -> dict[int, np.float32]:
    """Return a for every number of events: targets of the rest are as large as all were, with it.

    Of users with n events, a share 1 - t/n of the targets is left, on average c of what users
    usually have. An item that was not given is one of fewer, the denser the ratings: of those that
    a share q of users has rated, 1 - q (1 - c) are.
    """
    counts = np.array(COUNTS)[:, None]

    def left(block: UserBlock) -> tuple[np.ndarray, np.ndarray]:
        whole = np.asarray(block.S.sum(axis=1), dtype=np.float64).ravel()
        n_events = np.diff(block.S.indptr)  # type: ignore[union-attr]
        more = n_events > counts
        shares = np.where(more, 1 - counts / np.maximum(n_events, 1), 0.0)
        return (whole * shares).sum(axis=1), more.sum(axis=1)

    sums, (targets, n_users) = problem.sums, problem.users.sum(left, problem.blocks)
    usual = float(sums.targets.sum()) / problem.n_users
    q = float(sums.ratings @ sums.ratings) / (problem.n_users * float(sums.ratings.sum()))
    c = targets / np.maximum(n_users * usual, 1e-12)
    scales = np.maximum(1 - q * (1 - c), 1e-3) / np.maximum(c, 1e-3)
    return dict(zip(COUNTS, scales.astype(np.float32), strict=True))


def _without_maps(sums: ItemSums, items: CodeItems, state: FitState) -> HistoryPart:
    """Return what evidence needs: the weight and the mean rating of items, and the usual event."""
    D, n_bits = state.D, state.D.shape[1]
    n_ratings, total = float(sums.ratings.sum()), float(sums.rated.sum())
    means = (sums.rated + PRIOR_RATINGS * total / n_ratings) / (sums.ratings + PRIOR_RATINGS)
    # not below what an item really gets: what is below that is a dislike
    means = np.maximum(means, sums.rated / np.maximum(sums.ratings, 1))
    # Σ (r - mean)² = Σ r² - 2 Σ mean r + Σ mean²
    squares = sums.squares - 2 * means @ sums.rated + means**2 @ sums.ratings
    spread = float(np.sqrt(max(squares / n_ratings, 0.0)))
    popularity = sums.favourites + 1.0
    weights = (popularity / popularity.mean()) ** -DISCOUNT
    expected = ((sums.ratings * weights) @ D) / n_ratings
    return HistoryPart(
        codes=items,
        weights=weights.astype(np.float32),
        means=means.astype(np.float32),
        spread=spread if spread > 1e-6 * max(abs(float(means.max())), 1.0) else 0.0,
        expected=expected.astype(np.float32),
        metric=_even_inverse(state.DtD).astype(np.float32),
        counts=np.zeros(0, np.int64),
        maps=np.zeros((0, 2 * n_bits + 1, n_bits), np.float32),
    )


def _first_events(
    records: UserRecords, n_draws: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Choose the first events of users: yield t, the users with more, and t entries of each."""
    ratings, times = records.ratings, records.times
    n_events = np.diff(ratings.indptr)
    owners = np.repeat(np.arange(len(n_events)), n_events)
    for draw in range(n_draws if times is None else 1):
        chance = uniform((records.first + owners) * MAX_DRAWS + draw, ratings.indices + 1)
        first = np.full((len(n_events), COUNTS[-1]), -1)
        _choose_first(
            ratings.indptr, np.zeros(0, np.int64) if times is None else times, chance, first
        )
        for t in COUNTS:
            rows = np.flatnonzero(n_events > t)
            yield t, rows, first[rows, :t].ravel()


@compiled(nogil=True)
def _choose_first(indptr, times, chance, first):  # type: ignore[no-untyped-def]
    """Write the first events of each user into the rows of `first`, by time and then by chance."""
    for user in range(len(first)):
        n_chosen = 0
        for entry in range(indptr[user], indptr[user + 1]):
            time = times[entry] if len(times) else 0
            at = n_chosen
            while at > 0:
                other = first[user, at - 1]
                other_time = times[other] if len(times) else 0
                if other_time < time or (other_time == time and chance[other] <= chance[entry]):
                    break
                if at < first.shape[1]:
                    first[user, at] = other
                at -= 1
            if at < first.shape[1]:
                first[user, at] = entry
                n_chosen = min(n_chosen + 1, first.shape[1])


@compiled(nogil=True, fastmath={"reassoc"})
def _leave_out(Y, P, rows, given, targets, D, V):  # type: ignore[no-untyped-def]
    """Subtract what the given items add to Y: v (target - p·d) d of each."""
    for n in range(len(Y)):
        for e in range(given.shape[1]):
            item = given[n, e]
            expected = np.float32(0)
            for k in range(Y.shape[1]):
                expected += P[rows[n], k] * D[item, k]
            share = V[item] * (targets[n, e] - expected)
            for k in range(Y.shape[1]):
                Y[n, k] -= share * D[item, k]


def _take(matrix: csr_array, entries: np.ndarray, t: int) -> csr_array:
    """Return a matrix of t entries a row of another one."""
    shape = (len(entries) // t, matrix.shape[1])
    starts = np.arange(0, len(entries) + 1, t)
    return csr_array((matrix.data[entries], matrix.indices[entries], starts), shape=shape)


def _solve(
    trained: Moments, held: Moments, problem: Problem, state: FitState, timed: bool
) -> np.ndarray:
    """Solve for C; ridges and length are those with the least error for the users held out."""
    D, n_bits = state.D, state.D.shape[1]
    n_users = trained.n_users + held.n_users
    not_given = 1 - (trained.given + held.given) / n_users
    DtD = (D.T @ (D * (problem.item_weights[:, 0] * not_given)[:, None])).astype(np.float64)
    inverse = _even_inverse(DtD)
    exposure, preference = slice(0, n_bits), slice(n_bits, 2 * n_bits)
    diagonal = np.diag(trained.ZtZ)
    scale = np.ones(len(diagonal))
    for part in (exposure, preference):
        scale[part] = max(float(diagonal[part].mean()), 1e-12)
    ridges = np.empty(len(diagonal))
    ridges[-1] = (FREE if timed else FIXED) * max(trained.n_users, 1.0)

    def solve(
        of_exposure: float, of_preference: float, ZtZ: np.ndarray, ZtY: np.ndarray
    ) -> np.ndarray:
        ridges[exposure] = of_exposure * scale[exposure]
        ridges[preference] = of_preference * scale[preference]
        return np.asarray(np.linalg.solve(ZtZ + np.diag(ridges), ZtY) @ inverse)

    def products(C: np.ndarray) -> tuple[float, float]:
        """Return <Z C, Y> and ‖Z C‖² over the users held out, in the metric D'V D."""
        return vdot(C, held.ZtY), vdot(C.T @ held.ZtZ @ C, DtD)

    @cache
    def error(of_exposure: float, of_preference: float) -> float:
        with_rest, squared = products(solve(of_exposure, of_preference, trained.ZtZ, trained.ZtY))
        return squared - 2 * with_rest

    e = p = float(RIDGES[-1])
    for _ in range(2):
        e = min(RIDGES, key=lambda ridge: error(ridge, p))
        p = min(RIDGES, key=lambda ridge: error(e, ridge))
    with_rest, squared = products(solve(e, p, trained.ZtZ, trained.ZtY))
    length = float(np.clip(with_rest / max(squared, 1e-300), 0.0, LONGEST))
    return solve(e, p, trained.ZtZ + held.ZtZ, trained.ZtY + held.ZtY) * length


def _even_inverse(DtD: np.ndarray) -> np.ndarray:
    """Return (D'V D)⁻¹; directions in which codes hardly differ are shrunk.

    By sign, they count like any other.
    """
    n_bits = len(DtD)
    return np.asarray(np.linalg.inv(DtD + EVEN * np.trace(DtD) / n_bits * np.eye(n_bits)))
