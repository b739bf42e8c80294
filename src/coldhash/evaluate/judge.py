"""Judge a model by every metric at once: accuracy, ranking, and the lists that users would get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coldhash.errors import SettingError
from coldhash.evaluate.metrics import make_lists, sum_rows
from coldhash.evaluate.protocol import LIST_LENGTH, Average, Ranks, ScoreFunction, Trial, rank

KS = (*range(1, 21), 30, 40, 50, 100)


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
    >>> from coldhash.evaluate.protocol import make_trial, scorer
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
        If `ks` is empty or holds a number below 1.
    DataError
        If a score is not finite.

    Examples
    --------
    >>> from coldhash import read, split_cold_users
    >>> from coldhash.evaluate.protocol import make_trial
    >>> train, cold = split_cold_users(read("sample", n_users=200, n_items=60))
    >>> trial = make_trial(train, cold)
    >>> constant = judge(lambda people, history: np.zeros((len(people), 60)), trial)
    >>> constant.metrics["accuracy@10 optimistic"]  # counting ties as hits is no measure
    1.0
    """
    if not len(ks) or min(ks) < 1:
        raise SettingError(f"ks={tuple(ks)}", hint="at least one k, each at least 1")
    ranks, columns, average = rank(score, trial), np.array(ks), trial.protocol.average
    # of lists over pairs, and of users over lists
    lists, indptr = ranks.indptr, np.arange(trial.n_users + 1)
    if trial.protocol.lists == "alone":
        lists, indptr = np.arange(len(ranks.greater) + 1), ranks.indptr
    groups = make_lists(ranks.greater, ranks.equal, lists)
    pairs = np.diff(ranks.indptr)
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
        "tied": float(np.mean(ranks.equal > 0)) if len(ranks.equal) else float("nan"),
    }
    hits, optimistic = found["accuracy@{}"], found["accuracy@{} optimistic"]
    return Judgement(metrics | _describe_lists(ranks, trial), hits, optimistic, pairs)


def _mean(totals: np.ndarray, counts: np.ndarray, average: Average) -> np.ndarray:
    """Average users' totals over all that was counted, or average the users' own means."""
    some = counts > 0
    if not some.any():
        return np.full(totals.shape[1], np.nan)
    if average == "pairs":
        return np.asarray(totals.sum(axis=0) / counts.sum())
    return np.asarray((totals[some] / counts[some, None]).mean(axis=0))


def _describe_lists(ranks: Ranks, trial: Trial) -> dict[str, float]:
    """Compute coverage, novelty, popularity bias and the share of distinct lists."""
    nan = float("nan")
    values: dict[str, float] = dict.fromkeys(
        ("coverage", "novelty", "popularity_bias", "distinct_lists"), nan
    )
    items = ranks.top_items[ranks.top_items >= 0]
    if len(items):
        raters = np.maximum(trial.popularity[items], 1)  # an unrated item counts as rated once
        liked = trial.popularity[trial.favourites.indices]
        n_rated, usual = trial.rated.sum(), liked.mean() if len(liked) else 0.0
        n_distinct = len(np.unique(np.sort(ranks.top_items, axis=1), axis=0))
        values = {
            "coverage": trial.rated[np.unique(items)].sum() / n_rated if n_rated else nan,
            "novelty": -np.log2(raters / max(trial.n_train_users, 1)).mean(),
            "popularity_bias": trial.popularity[items].mean() / usual if usual else nan,
            "distinct_lists": n_distinct / trial.n_users,
        }
    return {f"{name}@{LIST_LENGTH}": float(value) for name, value in values.items()}
