from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from coldhash import read, split_cold_users
from coldhash.errors import SettingError
from coldhash.evaluate.metrics import KS, accuracy_at, judge
from coldhash.evaluate.protocol import PROTOCOLS, make_trial, rank

ONCE = ("mrr", "map", "pairs", "users", "tied")
OF_LISTS = ("coverage@10", "novelty@10", "popularity_bias@10", "distinct_lists@10")


@pytest.fixture(scope="module")
def parts():
    return split_cold_users(read("sample", n_users=300, n_items=200), seed=0)


def always(scores):
    """Score few enough users to need one block only."""
    return lambda people, _: scores.astype(np.float32)


def constant(people, _):
    return np.ones((people.num_rows, 200), dtype=np.float32)


def test_what_is_in_a_judgement(parts, rng):
    found = judge(always(rng.random((60, 200))), make_trial(*parts))
    kinds = ("accuracy@{}", "accuracy@{} optimistic", "accuracy@{} pessimistic", "recall@{}",
             "ndcg@{}")  # fmt: skip
    assert list(KS) == [*range(1, 21), 30, 40, 50, 100]
    assert set(found.metrics) == {kind.format(k) for kind in kinds for k in KS} | {*ONCE, *OF_LISTS}
    assert json.loads(json.dumps(found.metrics)) == found.metrics
    assert found.hits.shape == found.hits_optimistic.shape == (60, len(KS))
    assert found.metrics["pairs"] == found.pairs.sum()
    assert set(judge(constant, make_trial(*parts), ks=[7]).metrics) == {
        *(kind.format(7) for kind in kinds), *ONCE, *OF_LISTS
    }  # fmt: skip


def test_a_constant_score_is_worth_chance(parts):
    trial = make_trial(*parts, protocol=replace(PROTOCOLS["sampled-1000"], n_candidates=100))
    metrics = judge(constant, trial).metrics
    assert metrics["accuracy@10"] == pytest.approx(10 / 101)
    assert metrics["accuracy@10 optimistic"] == 1.0
    assert metrics["accuracy@10 pessimistic"] == 0.0
    assert metrics["tied"] == 1.0
    assert metrics["mrr"] == pytest.approx(np.mean(1 / np.arange(1, 102)))
    assert metrics["distinct_lists@10"] == 1 / 60  # everybody gets the first ten rows


def test_favourites_first_is_perfect(parts):
    trial = make_trial(*parts, protocol="full")
    metrics = judge(always(trial.favourites.toarray()), trial).metrics
    assert {metrics[name] for name in ("mrr", "map", "ndcg@1", "ndcg@10", "recall@100")} == {1.0}
    alone = judge(always(trial.favourites.toarray()), make_trial(*parts)).metrics
    assert alone["accuracy@1"] == 1.0


def test_hits_of_users_make_the_accuracy(parts, rng):
    trial = make_trial(*parts)
    scores = rng.integers(0, 9, size=(60, 200))
    found, ranks = judge(always(scores), trial), rank(always(scores), trial)
    for column, k in enumerate(KS):
        pooled = found.hits[:, column].sum() / found.pairs.sum()
        assert found.metrics[f"accuracy@{k}"] == pytest.approx(pooled)
        assert pooled == pytest.approx(accuracy_at(k, ranks.greater, ranks.equal))
        high = accuracy_at(k, ranks.greater, ranks.equal, "optimistic")
        assert found.hits_optimistic[:, column].sum() / found.pairs.sum() == pytest.approx(high)
        assert found.metrics[f"accuracy@{k} optimistic"] == pytest.approx(high)


def test_a_mean_of_users_is_not_the_mean_of_pairs(parts):
    """All favourites of the user with the fewest are found, none of anybody else."""
    pooled, by_user = (make_trial(*parts, protocol=name) for name in ("sampled-1000", "mdcf"))
    dense = pooled.favourites.toarray()
    counts = (dense > 0).sum(axis=1)
    lucky = int(np.argmin(np.where(counts, counts, 999)))
    scores = -dense
    scores[lucky] = dense[lucky]
    n_users = (counts > 0).sum()
    assert judge(always(scores), by_user).metrics["accuracy@1"] == pytest.approx(1 / n_users)
    share = counts[lucky] / counts.sum()
    assert judge(always(scores), pooled).metrics["accuracy@1"] == pytest.approx(share)
    assert share < 0.9 / n_users
    metrics = judge(always(scores), by_user).metrics
    assert metrics["recall@1"] == pytest.approx(1 / n_users)


def test_full_ranking_equals_scikit_learn_user_by_user(parts, rng):
    from sklearn.metrics import ndcg_score

    trial = make_trial(*parts, protocol="full", n_given=2)
    scores = rng.integers(0, 40, size=(60, 200))
    liked, rows, expected = trial.favourites.toarray() > 0, trial.candidates_of(slice(0, 60)), []
    for user in np.flatnonzero(liked.any(axis=1)):
        items = np.r_[rows[user][rows[user] >= 0], np.flatnonzero(liked[user])]
        expected.append(ndcg_score([liked[user, items]], [scores[user, items]], k=10))
    metrics = judge(always(scores), trial).metrics
    assert metrics["ndcg@10"] == pytest.approx(np.mean(expected))
    assert metrics["users"] == len(expected)


def test_metrics_of_lists_by_hand(parts):
    """Two kinds of users: one gets the rows 0 to 9, the other 5 to 14."""
    train, cold = parts
    trial = make_trial(train, cold)
    scores = np.zeros((60, 200))
    scores[:20, :10], scores[20:, 5:15] = 1, 1
    scores[0, :10] = np.arange(1, 11)  # another order, the same list
    metrics = judge(always(scores), trial).metrics
    raters = train.ratings.per_item.astype(float)
    listed = np.r_[np.tile(np.arange(10), 20), np.tile(np.arange(5, 15), 40)]
    assert trial.rated.all()
    assert metrics["coverage@10"] == 15 / 200
    assert metrics["distinct_lists@10"] == 2 / 60
    novelty = np.mean(-np.log2(np.maximum(raters[listed], 1) / 240))
    assert metrics["novelty@10"] == pytest.approx(novelty)
    bias = raters[listed].mean() / raters[trial.favourites.indices].mean()
    assert metrics["popularity_bias@10"] == pytest.approx(bias)


def test_users_without_favourites_count_only_in_metrics_of_lists(parts):
    train, cold = parts
    keep = cold.ratings.matrix.data <= 3
    keep[cold.ratings.matrix.indptr[30] :] = True  # the first thirty like nothing
    cold = cold.with_ratings(cold.ratings.where(keep))
    trial = make_trial(train, cold, protocol="full")
    found = judge(constant, trial)
    assert found.pairs[:30].sum() == found.hits[:30].sum() == 0
    assert found.metrics["users"] == (found.pairs > 0).sum() <= 30
    assert found.metrics["distinct_lists@10"] == 1 / 60
    perfect = judge(always(trial.favourites.toarray()), trial).metrics
    assert perfect["map"] == perfect["ndcg@10"] == 1.0


@pytest.mark.parametrize("name", PROTOCOLS)
def test_of_nothing_there_is_no_mean(parts, name):
    train, cold = parts
    nothing = cold.with_ratings(cold.ratings.where(cold.ratings.matrix.data <= 3))
    metrics = judge(constant, make_trial(train, nothing, protocol=name)).metrics
    assert metrics.pop("pairs") == metrics.pop("users") == 0
    numbers = {key for key, value in metrics.items() if not np.isnan(value)}
    assert numbers == {"coverage@10", "novelty@10", "distinct_lists@10"}
    nobody = make_trial(train, cold.of_users(np.arange(0)), protocol=name)
    metrics = judge(constant, nobody).metrics
    assert metrics.pop("pairs") == metrics.pop("users") == 0
    assert np.isnan(list(metrics.values())).all()


def test_wrong_ks_are_named(parts):
    with pytest.raises(SettingError, match="k=0"):
        judge(constant, make_trial(*parts), (5, 0))
