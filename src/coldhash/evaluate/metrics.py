"""Judge a model by every metric at once: accuracy, ranking, and the lists that users would get.

A test pair is a favourite item among a user's candidates. Two numbers describe it: `greater`, how
many candidates score higher, and `equal`, how many score the same. A list with one or several
favourites is therefore a sequence of groups of tied places: after a places, n tied ones, of which r
are favourites and n - r are candidates. If ties are broken at random, each order of a group is
equally likely, and of its r favourites

    r clip((k - a) / n, 0, 1)

are expected among the first k. Counting ties as hits ("optimistic") makes a constant score perfect;
counting them as misses ("pessimistic") penalises short codes. Both are reported with the expected
value. NDCG, reciprocal rank and average precision are expected values in the same sense.

McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in the
Presence of Tied Scores", ECIR 2008.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np
from scipy.sparse import csr_array

from coldhash.errors import SettingError, check_choice
from coldhash.evaluate.protocol import Average, Ranks, ScoreFunction, Ties, Trial, rank

KS = (*range(1, 21), 30, 40, 50, 100)


def accuracy_at(k: int, greater: np.ndarray, equal: np.ndarray, ties: Ties = "expected") -> float:
    """Compute Accuracy@k: the share of hits among all test pairs, pooled over users.

    Parameters
    ----------
    k
        Length of the list.
    greater, equal
        For each favourite, the number of candidates that score higher and the same.
    ties
        How ties count: by their "expected" value, as hits ("optimistic") or as misses
        ("pessimistic").

    Returns
    -------
    float
        nan if there is no test pair.

    Raises
    ------
    SettingError
        If k is below 1 or `ties` is unknown.

    Examples
    --------
    >>> accuracy_at(1, np.array([0, 3]), np.array([0, 0]))  # one favourite first, one fourth
    0.5
    >>> accuracy_at(10, np.zeros(5), np.full(5, 1000.0))  # a constant score: k / 1001
    0.00999000999000999
    """
    return _divide(group_hits(k, greater, equal + 1, 1, ties).sum(), len(greater))


def group_hits(
    k: int | np.ndarray,
    above: np.ndarray,
    places: np.ndarray,
    relevant: np.ndarray | int,
    ties: Ties = "expected",
) -> np.ndarray:
    """Count the favourites of each group among the first k; the arguments broadcast."""
    if np.min(k, initial=1) < 1:
        raise SettingError(f"k={np.min(k)}", hint="at least 1")
    check_choice("ties", ties, get_args(Ties))
    places_left = k - above
    if ties == "expected":
        return np.asarray(relevant * np.clip(places_left / places, 0.0, 1.0))
    if ties == "pessimistic":
        places_left = places_left - (places - relevant)
    return np.asarray(np.clip(places_left, 0, relevant), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class TieGroups:
    """Ranked lists as groups of tied places, from the top down. Lists may be empty."""

    indptr: np.ndarray  # where the groups of each list start
    above: np.ndarray  # a: places before the group
    places: np.ndarray  # n
    relevant: np.ndarray  # r: how many of them are favourites, at least 1

    @cached_property
    def totals(self) -> np.ndarray:
        """Number of favourites of each list (R)."""
        return sum_rows(self.relevant, self.indptr)

    def hits(self, ks: np.ndarray, ties: Ties = "expected") -> np.ndarray:
        """Count the favourites among the first k of each list: lists x ks."""
        columns = (self.above[:, None], self.places[:, None], self.relevant[:, None])
        return sum_rows(group_hits(ks, *columns, ties), self.indptr)

    def ndcg(self, ks: np.ndarray) -> np.ndarray:
        """Compute the expected NDCG@k, with gains 1 / log2(1 + place): lists x ks."""
        gains = _cumulate(1 / np.log2(1 + np.arange(1, self._longest + 1)))
        ends = (self.above + self.places)[:, None]
        worth = gains[np.minimum(ends, ks)] - gains[np.minimum(self.above[:, None], ks)]
        found = sum_rows((self.relevant / self.places)[:, None] * worth, self.indptr)
        ideal = gains[np.minimum(self.totals[:, None].astype(np.int64), ks)]
        return np.asarray(found / np.where(ideal > 0, ideal, 1.0))  # of no favourites, 0

    def reciprocal_ranks(self) -> np.ndarray:
        """Compute the expected 1 / place of the first favourite of each list, in its first group.

        It is at place j of the group with a chance of C(n-j, r-1) / C(n, r).
        """
        has_group = np.diff(self.indptr) > 0
        first = self.indptr[:-1][has_group]
        a, n, r = self.above[first], self.places[first], self.relevant[first]
        found, chance = np.zeros(len(has_group)), r / n
        for j in range(1, int(np.max(n - r, initial=0)) + 2):
            found[has_group] += chance / (a + j)
            chance *= np.maximum(n - j - r + 1, 0) / np.maximum(n - j, 1)
        return found

    def average_precisions(self) -> np.ndarray:
        """Compute the expected mean of the precision at the places of a list's favourites.

        Place i of a group is a favourite with probability r/n; then b + 1 + (i-1) c favourites are
        expected so far, b before the group and c = (r-1)/(n-1) at each place before i. Summed over
        i, with 1/(a+1) + .. + 1/(a+n) = h, the terms (b + 1 + (i-1) c) / (a+i) are
        n c + (b + 1 - (a+1) c) h.
        """
        harmonic = _cumulate(1 / np.arange(1, self._longest + 1))
        a, n, r = self.above, self.places, self.relevant
        c = (r - 1) / np.maximum(n - 1, 1)
        h = harmonic[a + n] - harmonic[a]
        before = _cumulate(r)
        b = before[:-1] - np.repeat(before[self.indptr[:-1]], np.diff(self.indptr))
        found = sum_rows(r / n * (n * c + (b + 1 - (a + 1) * c) * h), self.indptr)
        return np.asarray(found / np.maximum(self.totals, 1))

    @property
    def _longest(self) -> int:
        """Last place that counts."""
        return int(np.max(self.above + self.places, initial=1))


def make_lists(greater: np.ndarray, equal: np.ndarray, indptr: np.ndarray) -> TieGroups:
    """Make lists of test pairs; the favourites of a list compete with each other as well."""
    # A favourite that beats another with the same `greater` has no candidate between or tied with
    # it: its `equal` is 0. So the same `greater` and an `equal` above 0 mean the same score; those
    # with 0 come first, and whether they tie does not matter, as all are favourites.
    lists = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((equal, greater, lists))
    greater, equal = greater[order], equal[order]
    keys = np.stack([lists, greater, equal])
    starts = np.flatnonzero(np.any(np.diff(keys, axis=1, prepend=-1) != 0, axis=0))
    relevant = np.diff(starts, append=len(lists))
    earlier = starts - indptr[lists[starts]]
    return TieGroups(
        np.searchsorted(starts, indptr),
        greater[starts] + earlier,
        relevant + equal[starts],
        relevant,
    )


def sum_rows(values: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Sum the rows of each group; the sum of no rows is 0."""
    n_rows = len(values)
    ones = csr_array((np.ones(n_rows), np.arange(n_rows), indptr), (len(indptr) - 1, n_rows))
    return np.asarray(ones @ values)


def _cumulate(values: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, 2, ... values."""
    return np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])


@dataclass(frozen=True, eq=False)
class Judgement:
    """What `judge` found.

    Parameters
    ----------
    metrics
        For every k "accuracy@k" (ties by their expected value, averaged as the protocol says),
        "accuracy@k optimistic", "accuracy@k pessimistic", "recall@k" and "ndcg@k"; "mrr" and "map";
        of each user's list of ten "coverage@10", "novelty@10", "popularity_bias@10" and
        "distinct_lists@10"; the number of "pairs", of "users" with at least one, and the share of
        pairs "tied" with a candidate. A mean over nothing is nan.
    hits
        Expected hits, users x ks.
    hits_optimistic
        Hits with ties counted as hits, users x ks.
    pairs
        Number of favourites of each user.

    Examples
    --------
    >>> from coldhash import MFDCF, read, split_cold_users
    >>> from coldhash.evaluate import make_trial, scorer
    >>> train, cold = split_cold_users(read("sample", n_users=200, n_items=60))
    >>> found = judge(scorer(MFDCF(n_bits=32).fit(train)), make_trial(train, cold), ks=[5, 10])
    >>> found.hits.shape, found.metrics["accuracy@5"] < found.metrics["accuracy@10"]
    ((40, 2), True)
    """

    metrics: dict[str, float]
    hits: np.ndarray
    hits_optimistic: np.ndarray
    pairs: np.ndarray


def judge(score: ScoreFunction, trial: Trial, ks: Sequence[int] = KS) -> Judgement:
    """Score the users of a trial once and compute every metric.

    Parameters
    ----------
    score
        Returns the scores of all items for a table of people; see `scorer`.
    trial
        Users, candidates and favourites.
    ks
        Lengths of lists.

    Returns
    -------
    Judgement

    Raises
    ------
    SettingError
        If `ks` holds a number below 1.
    DataError
        If a score is not finite.

    Examples
    --------
    >>> from coldhash import read, split_cold_users
    >>> from coldhash.evaluate import make_trial
    >>> train, cold = split_cold_users(read("sample", n_users=200, n_items=60))
    >>> trial = make_trial(train, cold)
    >>> constant = judge(lambda people, history: np.zeros((len(people), 60)), trial)
    >>> constant.metrics["accuracy@10 optimistic"]  # counting ties as hits is no measure
    1.0
    """
    ranks, columns, average = rank(score, trial), np.array(ks), trial.protocol.average
    # of lists over pairs, and of users over lists
    lists, indptr = trial.favourites.indptr.astype(np.int64), np.arange(trial.n_users + 1)
    pairs = np.diff(lists)
    if trial.protocol.lists == "alone":
        lists, indptr = np.arange(len(ranks.greater) + 1), lists
    groups = make_lists(ranks.greater, ranks.equal, lists)
    n_lists = sum_rows((groups.totals > 0).astype(np.float64), indptr)  # of each user
    hits = groups.hits(columns)
    by_list = {
        "accuracy@{}": hits,
        "accuracy@{} optimistic": groups.hits(columns, "optimistic"),
        "accuracy@{} pessimistic": groups.hits(columns, "pessimistic"),
        "recall@{}": hits / np.maximum(groups.totals, 1)[:, None],
        "ndcg@{}": groups.ndcg(columns),
        "mrr": groups.reciprocal_ranks()[:, None],
        "map": groups.average_precisions()[:, None],
    }
    found = {name: sum_rows(values, indptr) for name, values in by_list.items()}  # of each user
    metrics: dict[str, float] = {}
    for name, values in found.items():
        means = _mean(values, pairs if name.startswith("accuracy") else n_lists, average)
        for k, mean in zip(ks, means, strict=False):  # "mrr" and "map" have one value
            metrics[name.format(k)] = float(mean)
    metrics |= {
        "pairs": float(pairs.sum()),
        "users": float((pairs > 0).sum()),
        "tied": _divide((ranks.equal > 0).sum(), len(ranks.equal)),
    }
    hits, optimistic = found["accuracy@{}"], found["accuracy@{} optimistic"]
    return Judgement(metrics | _describe_lists(ranks, trial), hits, optimistic, pairs)


def _mean(totals: np.ndarray, counts: np.ndarray, average: Average) -> np.ndarray:
    """Average users' totals over all that was counted, or average the users' own means."""
    if average == "users":
        counted = counts > 0
        totals, counts = totals[counted] / counts[counted, None], counted
    return np.asarray(totals.sum(axis=0) / (counts.sum() or np.nan))


def _describe_lists(ranks: Ranks, trial: Trial) -> dict[str, float]:
    """Compute coverage, novelty, popularity bias and the share of distinct lists."""
    items, k = ranks.top_items[ranks.top_items >= 0], ranks.top_items.shape[1]
    raters = np.maximum(trial.popularity[items], 1)  # an unrated item counts as rated once
    novelty = -np.log2(raters / max(trial.n_train_users, 1)).sum()
    liked = trial.popularity[trial.favourites.indices]
    usual = _divide(liked.sum(), len(liked))
    n_distinct = len(np.unique(np.sort(ranks.top_items, axis=1), axis=0))
    n_rated, n_users = (trial.rated.sum(), trial.n_users) if len(items) else (0, 0)
    return {
        f"coverage@{k}": _divide(trial.rated[np.unique(items)].sum(), n_rated),
        f"novelty@{k}": _divide(novelty, len(items)),
        f"popularity_bias@{k}": _divide(_divide(trial.popularity[items].sum(), len(items)), usual),
        f"distinct_lists@{k}": _divide(n_distinct, n_users),
    }


def _divide(total: float, n: float) -> float:
    """Return a mean or a share; NaN of nothing."""
    return float(total / n) if n else float("nan")
