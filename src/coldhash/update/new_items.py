"""Levels and codes of new items: from their content, and from their first ratings.

A person is expected to make  p + √p (h·f)  of an item, f being what its code stands for. Of a new
item content says √p and f: a blend of a ridge regression on the columns of content and of the mean
of the most similar items. Ridges, neighbours and blend are those with the least leave-one-out error
on the items of the fit, so this needs the model alone and costs a fit nothing. For f an item counts
n / (n + 10), as its code is noise where few like it; for √p all items count alike.

First ratings move f as a posterior. Who rates an item is drawn from p + √p (h·f), so that the mean
vector z of n raters has the expectation  f Σ / √p  and the covariance  Σ / n,  Σ = H'H / users. Of
x = f Σ½, which content leaves open with the covariance R, the estimate is

    x + (√p z Σ^-½ - x) R (R + p/n I)⁻¹

The size of R is what two halves of the raters of an item of the fit have in common beyond what
content says of it. Its noise is not the same in both. What the item itself has added to the vectors
of its raters is: it is taken out first, as nothing of the kind helps a new item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array, issparse
from threadpoolctl import threadpool_limits

from coldhash.arrays.codes import signs
from coldhash.arrays.products import times
from coldhash.data.ratings import RatingTarget, as_ones, with_values
from coldhash.mfdcf.items import descend
from coldhash.mfdcf.problem import FEW_RATINGS
from coldhash.recommender.items import CodeItems, code_items
from coldhash.recommender.recommender import Recommender

RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4)
NEIGHBOURS = (3, 10, 30, 100)  # numbers to try
POWERS = (1, 2, 4)  # of the similarity, to try
MAX_COLUMNS = 1024  # of content in the ridge regression: the commonest
MAX_ITEMS = 1 << 16  # that the ridge regression is learned from
DENSE = 8  # content of which every eighth number is known is multiplied as dense
SAMPLE = 4000  # items that ridge and blend are chosen by, at most
MAX_PAIRS = 1 << 28  # similarities of these to all items
BLOCK = 1 << 24  # similarities at a time
MIN_MOVE = 0.1  # of what content explains: for less, rounding a code anew makes it worse
MIN_SPREAD = 0.2  # of expectations beside that of codes, where content says next to nothing
N_STARTS = 8  # codes that the descent starts from: the best end counts
MAX_SWEEPS = 20  # it stops when no bit changes


class _Prediction(NamedTuple):
    """What content says of new items, and how good that was for the items of the fit."""

    values: np.ndarray
    left_out: np.ndarray  # leave-one-out predictions of the chosen items
    left: np.ndarray  # covariance of their errors
    square: float  # mean squared length of the leave-one-out predictions


@dataclass(frozen=True, eq=False)
class _Fitted:
    """The items of the fit, in coordinates in which distances are those between scores."""

    rows: np.ndarray  # in the catalogue
    gains: np.ndarray  # √p, or the mean score in a model without levels
    weights: np.ndarray  # how much an item teaches: little, if few liked it
    x: np.ndarray  # f Σ½
    usual: np.ndarray  # mean vector of raters
    root: np.ndarray  # Σ½, lower triangular
    square: float  # mean squared length of codes


def estimate_items(
    model: Recommender,
    items: CodeItems,
    content: csr_array,
    ratings: csr_array,
    vectors: np.ndarray,
    target: RatingTarget,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Estimate codes (+1 and -1) and levels, which are None in a model without them.

    `ratings` are raters x new items, `vectors` those of raters.
    """
    with threadpool_limits(1, "blas"):  # the same sums in the same order on every machine
        fitted = _fitted_items(model, items)
        known = model.features.item_content(model.item_table, len(items))
        content_map = _ContentMap(known[fitted.rows], content)
        said = content_map.predict(fitted.x, fitted.weights)
        root = content_map.predict(fitted.gains[:, None], np.ones(len(fitted.gains)))
        roots = np.maximum(root.values[:, 0], fitted.gains.min())
        x, known_more = said.values, np.zeros(len(roots))
        informed = len(model.seen.indices) and ratings.nnz
        if informed:
            shown = _mean_vectors(target(ratings).T.tocsr(), vectors, roots, fitted)
            spread = _learn_spread(model, content_map.chosen, said.left_out, fitted)
            x, known_more = _posterior(said, roots, *shown, *spread)
        # expectations are shorter than codes, whose bits would then say little: stretch them, but
        # none beyond the length of codes
        square = np.maximum(said.square + known_more, MIN_SPREAD**2 * fitted.square)
        square = np.maximum(square, np.sum(x**2, axis=1, dtype=np.float64))
        x = x * np.sqrt(fitted.square / square)[:, None]
        f = times(x.astype(np.float32), np.linalg.inv(fitted.root).astype(np.float32))
        gram = model.user_vectors.T @ model.user_vectors
        codes = new_codes(gram, times(f, gram))
        gains = items.gains
        if gains is None:
            return codes, None
        roots = _lift_gains(roots, root, fitted.gains[content_map.chosen])
        if informed:
            roots = _observed_gains(model, roots, ratings, fitted)
        return codes, np.searchsorted(gains, roots).clip(1, len(gains) - 1).astype(np.uint8)


def _lift_gains(roots: np.ndarray, said: _Prediction, truth: np.ndarray) -> np.ndarray:
    """Raise √p by as much as content understates that of the favourites of people on average.

    Lists are made of what is liked, and expectations have fewer extremes. The lift is in proportion
    to √p as far as content explains it, and the same for all items beyond that.
    """
    guess = np.maximum(said.left_out[:, 0], truth.min())
    favourites = truth**2 / np.sum(truth**2)
    explained = 1 - said.left[0, 0] / max(np.var(truth, dtype=np.float64), 1e-12)
    in_proportion = roots / np.sum(favourites * guess)
    lift = float(np.sum(favourites * (truth - guess)))
    return np.asarray(roots + lift * (1 + explained * (in_proportion - 1)))


def _fitted_items(model: Recommender, items: CodeItems) -> _Fitted:
    """Take codes as they are and, beside them, what the vectors of the raters say."""
    rows = np.flatnonzero(~model.guesses)
    H = np.asarray(model.user_vectors, np.float32)
    activity = np.diff(model.seen.indptr) + 1e-3
    share = (activity / activity.sum()).astype(np.float32)[:, None]
    usual = np.sum(H * share, axis=0)
    sigma = ((H - usual).T @ ((H - usual) * share)).astype(np.float64)
    lift = 1e-6 * max(np.trace(sigma) / len(sigma), 1e-12) * np.eye(len(sigma))
    root = np.linalg.cholesky(sigma + lift)
    x = times(items.rows(rows).astype(np.float32), root.astype(np.float32))
    popularity = np.asarray(model.popularity, np.float32)[rows]
    if items.levels is None or items.gains is None:
        gains = np.sqrt((popularity + 0.5) / (len(H) + 1))
    else:
        gains = items.gains[items.levels_of(rows)].astype(np.float32)
    weights = (popularity + 1) / (popularity + 1 + FEW_RATINGS)
    square = float(np.mean(np.sum(x**2, axis=1, dtype=np.float64)))
    fitted = _Fitted(rows, gains, weights, x, usual, root, square)
    if not len(model.seen.indices):
        return fitted
    shown, _ = _mean_vectors(as_ones(model.seen)[:, rows].T.tocsr(), H, gains, fitted)
    length = float(np.linalg.norm(x)) / max(float(np.linalg.norm(shown)), 1e-12)
    return replace(fitted, x=(x + length * shown) / 2)


def _mean_vectors(
    worth: csr_array, vectors: np.ndarray, gains: np.ndarray, fitted: _Fitted
) -> tuple[np.ndarray, np.ndarray]:
    """Return √p z Σ^-½ of items, and how many ratings of equal worth theirs count for."""
    total = np.asarray(worth.sum(axis=1), np.float64).ravel()
    squares = np.asarray((worth * worth).sum(axis=1), np.float64).ravel()
    whitened = np.linalg.inv(fitted.root).T.astype(np.float32)
    scale = gains / np.maximum(total, 1e-12)
    apart = (vectors - fitted.usual).astype(np.float32)
    shown = times(times(worth, apart), whitened) * scale[:, None]
    return shown.astype(np.float32), total**2 / np.maximum(squares, 1e-12)


def _learn_spread(
    model: Recommender, chosen: np.ndarray, said: np.ndarray, fitted: _Fitted
) -> tuple[float, float]:
    """Return what √p z Σ^-½ is to be multiplied by to have the length of x, and the trace of R."""
    seen, H = as_ones(model.seen)[:, fitted.rows], np.asarray(model.user_vectors, np.float32)
    gains, codes = fitted.gains[chosen], code_items(model.items).rows(fitted.rows)
    # what an item adds to the vectors of its raters is about √g d M
    pulls = (np.sqrt(fitted.gains)[:, None] * codes).astype(np.float32)
    sums = np.column_stack([times(seen, pulls), np.ones(len(H), np.float32)]).astype(np.float64)
    M = np.linalg.lstsq(sums.T @ sums, sums.T @ H, rcond=None)[0]
    own = pulls[chosen] @ M[:-1] @ np.linalg.inv(fitted.root).T * gains[:, None]
    of_items, halves, counts = seen[:, chosen].T.tocsr(), [], []
    for half in (0, 1):
        worth = with_values(of_items, (np.arange(of_items.nnz) % 2 == half).astype(np.float32))
        shown, count = _mean_vectors(worth, H, gains, fitted)
        halves.append(shown - own)
        counts.append(count)
    weights = fitted.weights[chosen] * (np.minimum(*counts) > 0)
    weights = (weights / max(weights.sum(dtype=np.float64), 1e-12))[:, None]
    told = np.sum(weights * said * (halves[0] + halves[1])) / 2
    common = np.sum(weights * halves[0] * halves[1])
    stretch = float(np.sum(weights * said**2) / max(told, 1e-12))
    stretch = min(stretch, np.sqrt(fitted.square / max(common, 1e-12)))  # the length of codes
    rest = [stretch * half - said for half in halves]
    return stretch, max(float(np.sum(weights * rest[0] * rest[1])), 0.0)


def _posterior(
    said: _Prediction,
    gains: np.ndarray,
    shown: np.ndarray,
    counts: np.ndarray,
    stretch: float,
    spread: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Move x by first ratings; return also by how much its squared length is expected to grow."""
    variances, Q = np.linalg.eigh(said.left * (spread / max(np.trace(said.left), 1e-12)))
    variances = np.maximum(variances, 1e-12)
    noise = (stretch * gains) ** 2 / np.maximum(counts, 1e-12)
    gain = np.where(counts[:, None] > 0, variances / (variances + noise[:, None]), 0.0)
    gain[gain @ variances < MIN_MOVE * said.square] = 0.0
    surprise = times((stretch * shown - said.values).astype(np.float32), Q.astype(np.float32))
    moved = said.values + times((gain * surprise).astype(np.float32), Q.T.astype(np.float32))
    return moved, gain @ variances


def _observed_gains(
    model: Recommender, roots: np.ndarray, ratings: csr_array, fitted: _Fitted
) -> np.ndarray:
    """Correct √p by the share of favourites among the first ratings, and by their number."""
    n = np.bincount(model.seen.indices, minlength=len(model.popularity))[fitted.rows]
    k = np.asarray(model.popularity, np.float64)[fitted.rows]
    share = float(k.sum() / n.sum())
    # how much the share differs from item to item, beyond the noise of counts
    noise = share * (1 - share)
    between = np.sum((k - share * n) ** 2 / np.maximum(n, 1)) - noise * np.count_nonzero(n)
    prior = max(noise, 1e-9) / max(between / n.sum(), 1e-9)
    counts = np.bincount(ratings.indices, minlength=len(roots))
    liked = ratings.indices[model.feedback.is_favourite(ratings)]
    favourites = np.bincount(liked, minlength=len(roots))
    liking = (favourites + prior * share) / (counts + prior)
    own = np.sqrt((counts * liking + 0.5) / (len(model.user_ids) + 1))
    expected = roots * np.sqrt(liking / max(share, 1e-9))
    return np.where(counts > 0, np.maximum(expected, own), roots)


class _ContentMap:
    """Predictions of new items from content, by what is known of the items of the fit."""

    def __init__(self, known: csr_array, content: csr_array) -> None:
        n, rng = known.shape[0], np.random.default_rng(0)
        counts = np.bincount(known.indices, minlength=known.shape[1])
        columns = np.sort(np.argsort(-counts, kind="stable")[:MAX_COLUMNS])
        self.some = np.sort(rng.permutation(n)[:MAX_ITEMS])
        self.known, self.content = known[:, columns], content[:, columns]
        self.described = np.diff(known.indptr) > 0
        self.described_new = np.diff(content.indptr) > 0
        n_chosen = min(SAMPLE, max(MAX_PAIRS // n, 50))
        self.chosen = np.sort(rng.permutation(self.some)[:n_chosen])
        rarity = np.log((n + 1) / (counts + 1))
        rows = _unit_rows(known, rarity)
        self.near = _nearest(rows[self.chosen], rows, self.chosen)
        self.near_new = _nearest(_unit_rows(content, rarity), rows)

    def predict(self, T: np.ndarray, weights: np.ndarray) -> _Prediction:
        """Predict rows of T; items count by weights."""
        from scipy.optimize import nnls  # slow to import

        weights = (weights / weights.mean(dtype=np.float64)).astype(np.float32)
        mean = np.average(T, axis=0, weights=weights).astype(np.float32)
        T = (T - mean).astype(np.float32)
        by_ridge, left_out = self._ridge(T, weights)
        truth, shares = T[self.chosen], weights[self.chosen, None]
        roots, fits = np.sqrt(shares), {}
        for form in product(NEIGHBOURS, POWERS):
            pair = [left_out, self.near.mean(T, weights, *form)]
            columns = np.array([(roots * each).ravel() for each in pair], np.float64).T
            fits[form] = nnls(columns, (roots * truth).ravel())
        form = min(fits, key=lambda each: float(fits[each][1]))
        blend = fits[form][0]
        said = blend[0] * left_out + blend[1] * self.near.mean(T, weights, *form)
        rest = (truth - said).astype(np.float64)
        square = np.average(np.sum((said + mean) ** 2, axis=1), weights=shares[:, 0])
        values = blend[0] * by_ridge + blend[1] * self.near_new.mean(T, weights, *form) + mean
        left = rest.T @ (rest * shares) / shares.sum()
        return _Prediction(values, said + mean, left, float(square))

    def _ridge(self, T: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Regress T on content; return what it says of new items, and of chosen items left out.

        The ridge is the one with the least leave-one-out error.
        """
        known = self.known[self.some].astype(np.float64)
        if known.nnz * DENSE > known.shape[0] * known.shape[1]:  # as of vectors
            known = known.toarray()
        counted = (weights * self.described)[self.some].astype(np.float64)
        total = max(float(counted.sum()), 1e-12)
        centre = known.T @ counted / total
        weighted = diags_array(counted) @ known
        gram = weighted.T @ known
        gram = (gram.toarray() if issparse(gram) else gram) - total * np.outer(centre, centre)
        right = weighted.T @ T[self.some] - np.outer(centre, counted @ T[self.some])

        def centred(content: csr_array, described: np.ndarray) -> np.ndarray:
            """Return columns; of an item without content, those of the average item."""
            return np.asarray((content.toarray() - centre) * described[:, None], np.float32)

        values, vectors = np.linalg.eigh(gram)
        values, U = np.maximum(values, 0.0), vectors.astype(np.float32)
        turned, truth, shares = vectors.T @ right, T[self.chosen], weights[self.chosen]
        Z = centred(self.known[self.chosen], self.described[self.chosen]) @ U

        def left_out(ridge: float) -> np.ndarray:
            said = Z @ (turned / (values + ridge)[:, None]).astype(np.float32)
            leverage = shares * (Z**2 @ (1 / (values + ridge)) + 1 / len(self.some))
            leverage = np.minimum(leverage, 1 - 1e-4)[:, None]
            return np.asarray((said - leverage * truth) / (1 - leverage), np.float32)

        def error(ridge: float) -> float:
            return float(np.sum((left_out(ridge) - truth) ** 2, axis=1) @ shares)

        ridge = min(RIDGES, key=error)
        by_map = U @ (turned / (values + ridge)[:, None]).astype(np.float32)
        return times(centred(self.content, self.described_new), by_map), left_out(ridge)


class _Near(NamedTuple):
    """The most similar items of each of some rows, the most similar one first."""

    places: np.ndarray
    similarity: np.ndarray

    def mean(self, T: np.ndarray, worth: np.ndarray, k: int, power: int) -> np.ndarray:
        """Average the rows of T of the k nearest, by worth and their similarity to a power."""
        weights = self.similarity[:, :k] ** power * worth[self.places[:, :k]]
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
        starts = np.arange(len(weights) + 1) * weights.shape[1]
        shape = (len(weights), len(T))
        return times(
            csr_array((weights.ravel(), self.places[:, :k].ravel(), starts), shape=shape), T
        )


def _nearest(wanted: csr_array, rows: csr_array, own: np.ndarray | None = None) -> _Near:
    """Find the rows with the greatest cosine; `own` are the places of the wanted themselves."""
    k, step = min(NEIGHBOURS[-1], rows.shape[0]), max(BLOCK // rows.shape[0], 1)
    found = []
    for begin in range(0, max(wanted.shape[0], 1), step):
        block = (wanted[begin : begin + step] @ rows.T).toarray().astype(np.float32)
        if own is not None:
            block[np.arange(len(block)), own[begin : begin + step]] = 0
        places = np.argpartition(-block, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(block, places, 1), axis=1, kind="stable")
        places = np.take_along_axis(places, order, 1)
        found.append((places, np.maximum(np.take_along_axis(block, places, 1), 0)))
    return _Near(*map(np.concatenate, zip(*found, strict=True)))


def _unit_rows(content: csr_array, rarity: np.ndarray) -> csr_array:
    """Weigh columns by how rare they are, and scale rows to length 1."""
    weighted = csr_array(content @ diags_array(rarity.astype(np.float32)))
    lengths = np.sqrt(np.asarray((weighted * weighted).sum(axis=1)).ravel())
    return csr_array(diags_array((1 / np.maximum(lengths, 1e-9)).astype(np.float32)) @ weighted)


def new_codes(gram: np.ndarray, pulls: np.ndarray) -> np.ndarray:
    """Find the codes of new items, each on its own: the item step of the fit."""
    gram = gram.astype(np.float32)
    free = np.linalg.solve(gram.astype(np.float64), pulls.T.astype(np.float64)).T
    spread = np.sqrt(np.mean(free**2, axis=1, keepdims=True))
    rng = np.random.default_rng(0)
    best, lowest = np.ones_like(pulls), np.full(len(pulls), np.inf)
    for n in range(N_STARTS):
        push = rng.standard_normal(gram.shape[0]) if n else np.zeros(gram.shape[0])
        codes = descend(signs(free + spread * push, np.float32), pulls, gram, MAX_SWEEPS, rng)
        energy = np.einsum("ik,ik->i", codes @ gram - 2 * pulls, codes, dtype=np.float64)
        better = energy < lowest
        best[better], lowest[better] = codes[better], energy[better]
    return best.astype(np.int8)
