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

What answers to questions say is a Gaussian model of them, from the training users' own ratings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from coldhash.arrays.compiled import compiled
from coldhash.arrays.products import SparseRows
from coldhash.arrays.threads import run_pieces
from coldhash.data.dataset import UserRecords
from coldhash.features.groups import mix_bits
from coldhash.mfdcf.equations import FitState, mean_projection, stranger_vectors, vdot
from coldhash.mfdcf.problem import BY_COLUMN, BY_ROW, ItemSums, Problem, UserBlock, uniform
from coldhash.partitions import add_up
from coldhash.recommender.history import AnswerPart, HistoryPart
from coldhash.recommender.items import CodeItems

COUNTS = (1, 3, 10, 30)  # events given; in between, maps are interpolated
MAX_DRAWS = 3  # choices of first events, where times are unknown: as many as ...
ENOUGH = 5_000  # ... give this many users
MIN_USERS = 50  # trained, and held out, that a map is learned from
DISCOUNT = 0.25  # an event counts by the popularity of its item to the power of minus this
PRIOR_RATINGS = 5  # of the average value: the mean rating of an item is shrunk by so many
RIDGES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)  # times the mean square of a channel
MIDDLE = 3  # the ridge that is tried first
EVEN = 0.1  # of the mean eigenvalue of D'V D, added to all
LONGEST = 2.0  # times which C may be stretched for the users held out
FREE, FIXED = 1e-6, 1e9  # the ridge of an intercept, and of none
ANSWERED = 2_000  # users to learn from what answers to questions say
MOST_ASKED = 1000  # items to learn the answers of: those that are rated most
LEAST_NOISE = 0.2  # the share of the variance of knowing an item that is noise, at least
FLAT = 1e-3  # of the mean variance, added to all

_mix_bits = compiled()(mix_bits)


class Moments(NamedTuple):
    """Sums over the users who have more than t events."""

    n_users: int
    ZtZ: np.ndarray
    ZtY: np.ndarray  # Z' times what the rest says beyond the features, times V D

    @classmethod
    def of(cls, Z: np.ndarray, Y: np.ndarray) -> Moments:
        """Add up users, the rows of Z and Y."""
        return cls(len(Z), (Z.T @ Z).astype(np.float64), (Z.T @ Y).astype(np.float64))


# for one number of events: of trained users, of those whom the item step has not seen, and how
# often each item was given
Evidence = tuple[Moments, Moments, np.ndarray]


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

    def add_evidence(records: UserRecords, block: UserBlock, TD: np.ndarray) -> dict[int, Evidence]:
        P = stranger_vectors(block, {name: block.has[name] for name in maps[0]}, *maps)
        by_ratings, by_features = TD + mean, P @ DtD + mean
        found: dict[int, list[Evidence]] = {t: [] for t in COUNTS}
        for t, rows, entries in _first_events(records, n_draws):
            values, at = records.ratings.data[entries], records.ratings.indices[entries]
            starts, shape = np.arange(0, len(at) + 1, t), (len(rows), len(D))
            Z = part.evidence(part.above(SparseRows(values, at, starts, shape)))
            # all items, less those that were given
            Y = scales[t] * by_ratings[rows] - by_features[rows]
            targets = (scales[t] * block.S.data[entries] - means[at]) / gains[at]
            _leave_out(Y, P, rows, at.reshape(-1, t), targets.reshape(-1, t), D, V)
            trained, held = block.trained[rows], ~block.trained[rows]
            pair = Moments.of(Z[trained], Y[trained]), Moments.of(Z[held], Y[held])
            found[t].append((*pair, np.bincount(at, minlength=len(D))))
        return {t: add_up(draws) for t, draws in found.items()}

    timed = all(users.map(lambda records: records.times is not None, users.records))
    found = users.sum(add_evidence, users.records, problem.blocks, state.TD)
    learned = {
        t: evidence
        for t, evidence in found.items()
        if min(users.n_users for users in evidence[:2]) >= MIN_USERS
    }
    solved = run_pieces(lambda some: _solve(some, problem, state, timed), learned.values())
    stacked = np.array([*solved], np.float32).reshape(-1, *part.maps.shape[1:])
    return replace(part, counts=np.array([*learned], np.int64), maps=stacked)


def _scales(problem: Problem) -> dict[int, np.float32]:
    """Return a for every number of events: targets of the rest are as large as all were, with it.

    Of users with n events, a share 1 - t/n of the targets is left, on average c of what users
    usually have. An item that was not given is one of fewer, the denser the ratings: of those that
    a share q of users has rated, 1 - q (1 - c) are.
    """
    counts = np.array(COUNTS)[:, None]

    def left(block: UserBlock) -> tuple[np.ndarray, np.ndarray]:
        whole = np.asarray(block.S.sum(axis=1), dtype=np.float64).ravel()
        n_events = np.diff(block.S.indptr)
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
    known = np.zeros(1, np.int64) if times is None else times
    for draw in range(n_draws if times is None else 1):
        first = np.full((len(n_events), COUNTS[-1]), -1)
        seeds = ((records.first + np.arange(len(n_events))) * MAX_DRAWS + draw).astype(np.uint64)
        _choose_first(ratings.indptr, ratings.indices, known, seeds * BY_ROW, first)
        for t in COUNTS:
            rows = np.flatnonzero(n_events > t)
            yield t, rows, first[rows, :t].ravel()


@compiled(nogil=True)
def _choose_first(indptr, items, times, seeds, first):  # type: ignore[no-untyped-def]
    """Write the first events of each user into the rows of `first`, by time and then by chance."""
    length = first.shape[1]
    when, chances = np.empty(length, times.dtype), np.empty(length, np.uint64)
    for user in range(len(first)):
        n_chosen = 0
        for entry in range(indptr[user], indptr[user + 1]):
            time, at = times[entry if len(times) > 1 else 0], n_chosen
            if at == length and time > when[at - 1]:
                continue
            # what `uniform` draws for the pair, as a whole number
            chance = _mix_bits(seeds[user] + np.uint64(items[entry] + 1) * BY_COLUMN) >> np.uint64(
                11
            )
            while at > 0 and (time, chance) < (when[at - 1], chances[at - 1]):
                at -= 1
                if at + 1 < length:
                    when[at + 1], chances[at + 1] = when[at], chances[at]
                    first[user, at + 1] = first[user, at]
            if at < length:
                when[at], chances[at], first[user, at] = time, chance, entry
                n_chosen = min(n_chosen + 1, length)


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


def _solve(evidence: Evidence, problem: Problem, state: FitState, timed: bool) -> np.ndarray:
    """Solve for C; ridges and length are those with the least error for the users held out."""
    (trained, held, given), D, n_bits = evidence, state.D, state.D.shape[1]
    not_given = 1 - given / (trained.n_users + held.n_users)
    DtD = (D.T @ (D * (problem.item_weights[:, 0] * not_given)[:, None])).astype(np.float64)
    inverse = _even_inverse(DtD)
    diagonal = np.diag(trained.ZtZ)
    sizes = [float(diagonal[first : first + n_bits].mean()) for first in (0, n_bits)]
    intercept = (FREE if timed else FIXED) * trained.n_users

    def solve(e: float, p: float, ZtZ: np.ndarray, ZtY: np.ndarray) -> np.ndarray:
        """Solve with ridges of exposure and preference."""
        ridges = e * max(sizes[0], 1e-12), p * max(sizes[1], 1e-12), intercept
        return np.linalg.solve(ZtZ + np.diag(np.repeat(ridges, [n_bits, n_bits, 1])), ZtY) @ inverse  # type: ignore[no-any-return]

    @cache
    def products(e: int, p: int) -> tuple[float, float]:
        """Return <Z C, Y> and ‖Z C‖² over the users held out, in the metric D'V D."""
        C = solve(RIDGES[e], RIDGES[p], trained.ZtZ, trained.ZtY)
        return vdot(C, held.ZtY), vdot(C.T @ held.ZtZ @ C, DtD)

    def error(e: int, p: int) -> float:
        with_rest, squared = products(e, p)
        return squared - 2 * with_rest

    e, p = MIDDLE, len(RIDGES) - 1
    e = _descend(lambda at: error(at, p), e)
    p = _descend(lambda at: error(e, at), MIDDLE)
    e = _descend(lambda at: error(at, p), e)
    p = _descend(lambda at: error(e, at), p)
    with_rest, squared = products(e, p)
    length = float(np.clip(with_rest / max(squared, 1e-300), 0.0, LONGEST))
    both = trained.ZtZ + held.ZtZ, trained.ZtY + held.ZtY
    return solve(RIDGES[e], RIDGES[p], *both) * length


def _descend(error: Callable[[int], float], at: int) -> int:
    """Go from ridge to ridge while the error falls: it has one minimum."""
    for step in (-1, 1):
        while 0 <= at + step < len(RIDGES) and error(at + step) < error(at):
            at += step
    return at


def _even_inverse(DtD: np.ndarray) -> np.ndarray:
    """Return (D'V D)⁻¹; directions in which codes hardly differ are shrunk.

    By sign, they count like any other.
    """
    n_bits = len(DtD)
    return np.asarray(np.linalg.inv(DtD + EVEN * np.trace(DtD) / n_bits * np.eye(n_bits)))


def fit_answers(problem: Problem, state: FitState, history: HistoryPart) -> AnswerPart:
    """Learn how people vary around what their features say, and how answers depend on it.

    Everything is least squares in closed form, from the vectors of some thousand users.
    """
    users, D, W, mu, average = problem.users, state.D, state.W, state.mu, state.average
    q = ((problem.sums.ratings + 0.5) / (problem.n_users + 1)).astype(np.float32)
    share = ANSWERED / problem.n_users
    rows = np.sort(np.argsort(-q, kind="stable")[:MOST_ASKED]).astype(np.int32)
    places = np.full(len(q), -1)
    places[rows] = np.arange(len(rows))

    def moments(records: UserRecords, block: UserBlock, H: np.ndarray) -> tuple[np.ndarray, ...]:
        some = np.flatnonzero(uniform(records.first + np.arange(len(H)), 1) < share)
        known = {name: has[some] for name, has in block.has.items() if name in W}
        features = {name: block.X[name][some] for name in known}
        own = replace(block, X=features, has=known, trained=block.trained[some])
        X = H[some] - stranger_vectors(own, known, W, mu, average)
        ratings = records.ratings[some]
        along = np.empty(ratings.nnz)
        known_by, liked_by = np.zeros((2, len(rows), D.shape[1]), np.float32)
        above = history.above(SparseRows.of(ratings)).data
        _add_raters(ratings.indptr, ratings.indices, above, X, D, places, along, known_by, liked_by)
        above, counts = above.astype(np.float64), np.bincount(ratings.indices, minlength=len(q))
        # with x what is known of a user beyond the features: Σ x, and over the raters of each item
        # Σ x and Σ δ x; over the ratings Σ δ (x·d), Σ (x·d)² and Σ δ²
        sums = X.T @ X, X.sum(axis=0, dtype=np.float64), known_by, liked_by, counts[rows]
        numbers = np.array([len(some), len(above), above @ along, along @ along, above @ above])
        return numbers, *(each.astype(np.float64) for each in sums)

    found = users.sum(moments, users.records, problem.blocks, state.H)
    numbers, XtX, of_X, known_by, liked_by, counts = found
    n_users, n_ratings, rated, expected, squares = numbers.tolist()
    n_users = max(n_users, 1.0)
    covariance = XtX / n_users
    slope = max(rated / max(expected, 1e-12), 0.0)
    noise = max((squares - slope * rated) / max(n_ratings, 1.0), 1e-6)
    flat = FLAT * np.trace(covariance) / len(covariance) + 1e-12
    inverse = np.linalg.inv(covariance + flat * np.eye(len(covariance)))
    a = (known_by - q[rows, None] * of_X) / n_users @ inverse  # by cov(k, x)
    variances = (q * (1 - q))[rows]
    explained = np.einsum("ir,ir->i", a @ covariance, a)
    deviations = np.sqrt(np.maximum(variances - explained, LEAST_NOISE * variances))
    # δ on x item by item, shrunk to what codes say by how much items differ from it. With n raters,
    # whose x vary as everybody's, the error of b has the covariance σ²/n Σ⁻¹; the rest of its
    # distance from the code is how much items differ
    n = np.maximum(counts, 1.0)[:, None]
    apart = liked_by @ inverse / n - slope * D[rows]
    distances = np.einsum("ir,ir->i", apart @ covariance, apart) / len(covariance)
    differ = max(float(np.mean(n[:, 0] * distances)) - noise, 0.0) / float(np.mean(n))
    b = slope * D[rows] + apart * (differ / (differ + noise / n))
    loadings = np.stack([a / deviations[:, None], b / np.sqrt(noise)])
    return AnswerPart(
        history=history,
        covariance=covariance.astype(np.float32),
        shares=q,
        rows=rows,
        deviations=deviations.astype(np.float32),
        loadings=loadings.astype(np.float32),
        slope=slope,
        noise=noise,
    )


@compiled(nogil=True, fastmath={"reassoc"})
def _add_raters(indptr, items, above, X, D, places, along, known, liked):  # type: ignore[no-untyped-def]
    """Compute x·d of every rating; add x and δ x to the sums of its item, if it has a place."""
    for user in range(len(X)):
        for entry in range(indptr[user], indptr[user + 1]):
            item, total = np.uint64(items[entry]), np.float32(0)
            for k in range(X.shape[1]):
                total += X[user, k] * D[item, k]
            along[entry] = total
            if places[item] >= 0:
                at, value = np.uint64(places[item]), above[entry]
                for k in range(X.shape[1]):
                    known[at, k] += X[user, k]
                    liked[at, k] += value * X[user, k]
