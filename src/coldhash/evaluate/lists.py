"""Judge a model by every metric at once: how well favourites are found, and what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coldhash.errors import SettingError
from coldhash.evaluate.metrics import Groups, lists_alone, lists_together, sums
from coldhash.evaluate.protocol import SHOWN, Average, Ranks, Score, Trial, rank

KS = (*range(1, 21), 30, 40, 50, 100)


@dataclass(frozen=True, eq=False)
class Judgement:
    """What `judge` found.

    `metrics` holds, for every k, "accuracy@k" (ties as expected, averaged as the protocol says),
    "accuracy@k optimistic", "accuracy@k pessimistic", "recall@k" and "ndcg@k"; "mrr" and "map"; of
    the ten items shown to each user "coverage@10", "novelty@10", "popularity_bias@10" and
    "distinct_lists@10"; the "pairs", the "users" with at least one, and the share of pairs "tied"
    with a candidate. What there is nothing to take a mean of is nan.

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
    hits: np.ndarray  # users x ks, expected
    hits_optimistic: np.ndarray  # users x ks, ties as hits
    pairs: np.ndarray  # favourites of each user


def judge(score: Score, trial: Trial, ks: Sequence[int] = KS) -> Judgement:
    """Score the users of a trial once, and take every metric from that.

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
    if trial.protocol.lists == "together":
        groups = lists_together(ranks.greater, ranks.equal, ranks.indptr)
        indptr = np.arange(trial.n_users + 1)  # of users over lists
    else:
        groups, indptr = lists_alone(ranks.greater, ranks.equal), ranks.indptr
    pairs = np.diff(ranks.indptr)
    hits = sums(groups.hits(columns), indptr)
    optimistic = sums(groups.hits(columns, "optimistic"), indptr)
    pessimistic = sums(groups.hits(columns, "pessimistic"), indptr)
    found = {
        "accuracy@{}": _mean(hits, pairs, average),
        "accuracy@{} optimistic": _mean(optimistic, pairs, average),
        "accuracy@{} pessimistic": _mean(pessimistic, pairs, average),
    }
    found |= _of_lists(groups, columns, indptr, average)
    metrics = {
        name.format(k): float(value)
        for name, values in found.items()
        for k, value in zip(ks, values, strict=False)  # "mrr" and "map" have one value
    }
    metrics |= {
        "pairs": float(pairs.sum()),
        "users": float((pairs > 0).sum()),
        "tied": float(np.mean(ranks.equal > 0)) if len(ranks.equal) else float("nan"),
    }
    return Judgement(metrics | _of_shown(ranks, trial), hits, optimistic, pairs)


def _of_lists(
    groups: Groups, ks: np.ndarray, indptr: np.ndarray, average: Average
) -> dict[str, np.ndarray]:
    """Average the metrics of single lists, over lists or over users."""
    n_filled = sums((groups.totals > 0).astype(np.float64), indptr)  # lists of each user
    values = {
        "recall@{}": groups.hits(ks) / np.maximum(groups.totals, 1)[:, None],
        "ndcg@{}": groups.ndcg(ks),
        "mrr": groups.reciprocal_ranks()[:, None],
        "map": groups.average_precisions()[:, None],
    }
    return {
        name: _mean(sums(of_list, indptr), n_filled, average) for name, of_list in values.items()
    }


def _mean(totals: np.ndarray, counts: np.ndarray, average: Average) -> np.ndarray:
    """Average users' totals over all that was counted, or over users of their own means."""
    some = counts > 0
    if not some.any():
        return np.full(totals.shape[1], np.nan)
    if average == "pairs":
        return np.asarray(totals.sum(axis=0) / counts.sum())
    return np.asarray((totals[some] / counts[some, None]).mean(axis=0))


def _of_shown(ranks: Ranks, trial: Trial) -> dict[str, float]:
    """Say how wide, how new, how popular and how personal the lists are that users are shown."""
    nan = float("nan")
    names = ("coverage", "novelty", "popularity_bias", "distinct_lists")
    items = ranks.shown[ranks.shown >= 0]
    if not len(items):
        return {f"{name}@{SHOWN}": nan for name in names}
    raters = np.maximum(trial.popularity[items], 1)  # an item without any counts as having one
    wanted = trial.popularity[trial.favourites.indices]
    n_rated = trial.rated.sum()
    usual = wanted.mean() if len(wanted) else 0.0
    values = (
        trial.rated[np.unique(items)].sum() / n_rated if n_rated else nan,
        -np.log2(raters / max(trial.n_train_users, 1)).mean(),
        trial.popularity[items].mean() / usual if usual else nan,
        len(np.unique(np.sort(ranks.shown, axis=1), axis=0)) / trial.n_users,
    )
    return {f"{name}@{SHOWN}": float(value) for name, value in zip(names, values, strict=True)}
