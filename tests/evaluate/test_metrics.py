from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash.errors import SettingError
from coldhash.evaluate.metrics import (
    accuracy_at,
    group_hits,
    make_lists,
    sum_rows,
)

KS = np.arange(1, 8)
SCORES = st.lists(st.integers(0, 2), min_size=0, max_size=4)


def counts(candidates, favourites):
    """How many candidates score higher than each favourite, and how many the same."""
    others, own = np.array(candidates, dtype=int), np.array(favourites, dtype=int)[:, None]
    return (others > own).sum(axis=1), (others == own).sum(axis=1)


def orders(candidates, favourites):
    """Every order in which the items may stand, as marks of favourites: order -> how often."""
    items = [(-score, False) for score in candidates] + [(-score, True) for score in favourites]
    return Counter(
        tuple(liked for _, liked in sorted(shuffled, key=lambda item: item[0]))
        for shuffled in permutations(items)
    )


def mean_over(orders, metric):
    return sum(times * metric(marks) for marks, times in orders.items()) / orders.total()


def ndcg(marks, k):
    gain = sum(1 / np.log2(place + 1) for place, liked in enumerate(marks[:k], 1) if liked)
    return gain / sum(1 / np.log2(place + 1) for place in range(1, min(sum(marks), k) + 1))


def reciprocal_rank(marks):
    return 1 / (marks.index(True) + 1)


def average_precision(marks):
    places = [place for place, liked in enumerate(marks, 1) if liked]
    return sum(found / place for found, place in enumerate(places, 1)) / len(places)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 3), st.integers(1, 7))
def test_expected_ties_equal_random_tie_breaking(candidates, own, k):
    """Against the average over every place at which the favourite may stand."""
    greater, equal = counts(candidates, [own])
    expected = np.mean([greater[0] + place < k for place in range(equal[0] + 1)])
    (hit,) = group_hits(k, greater, equal + 1, 1)
    assert hit == pytest.approx(expected)
    (low,) = group_hits(k, greater, equal + 1, 1, "pessimistic")
    (high,) = group_hits(k, greater, equal + 1, 1, "optimistic")
    assert low <= hit <= high


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(SCORES, st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_a_list_of_favourites_equals_every_way_to_break_its_ties(candidates, favourites):
    found = orders(candidates, favourites)
    greater, equal = counts(candidates, favourites)
    groups = make_lists(greater, equal, np.array([0, len(favourites)]))
    for column, k in enumerate(KS):
        hits = [sum(marks[:k]) for marks in found]
        assert groups.hits(KS)[0, column] == pytest.approx(mean_over(found, lambda m: sum(m[:k])))  # noqa: B023
        assert groups.hits(KS, "optimistic")[0, column] == max(hits)
        assert groups.hits(KS, "pessimistic")[0, column] == min(hits)
        assert groups.ndcg(KS)[0, column] == pytest.approx(mean_over(found, lambda m: ndcg(m, k)))  # noqa: B023
    assert groups.reciprocal_ranks() == pytest.approx(mean_over(found, reciprocal_rank))
    assert groups.average_precisions() == pytest.approx(mean_over(found, average_precision))


@settings(deadline=None, max_examples=40)
@given(SCORES, st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_favourites_alone_are_lists_of_one(candidates, favourites):
    indptr = np.arange(len(favourites) + 1)
    groups = make_lists(*counts(candidates, favourites), indptr)
    for row, favourite in enumerate(favourites):
        found = orders(candidates, [favourite])
        for column, k in enumerate(KS):
            hit = mean_over(found, lambda marks: sum(marks[:k]))  # noqa: B023
            assert groups.hits(KS)[row, column] == pytest.approx(hit)
            gain = mean_over(found, lambda marks: ndcg(marks, k))  # noqa: B023
            assert groups.ndcg(KS)[row, column] == pytest.approx(gain)
        expected = mean_over(found, reciprocal_rank)
        assert groups.reciprocal_ranks()[row] == pytest.approx(expected)
        assert groups.average_precisions()[row] == pytest.approx(expected)


def test_larger_lists_equal_random_tie_breaking(rng):
    """Groups too large to write out every order, against many random ones."""
    candidates, favourites = rng.integers(0, 4, 60), rng.integers(0, 4, 9)
    groups = make_lists(*counts(candidates, favourites), np.array([0, 9]))
    scores, liked = np.r_[candidates, favourites], np.arange(69) >= 60
    marks = [
        tuple(liked[np.lexsort((rng.random(69), -scores))].tolist()) for _ in range(4000)
    ]  # fmt: skip
    for found, metric in (
        (groups.ndcg(np.array([10]))[0, 0], lambda m: ndcg(m, 10)),
        (groups.hits(np.array([10]))[0, 0] / 9, lambda m: sum(m[:10]) / 9),
        (groups.reciprocal_ranks()[0], reciprocal_rank),
        (groups.average_precisions()[0], average_precision),
    ):
        values = [metric(each) for each in marks]
        assert abs(found - np.mean(values)) < 5 * np.std(values) / np.sqrt(len(values))


def several_lists(rng, n_lists=20, level=True):
    """Lists of 30 candidates and up to 6 favourites: scores, marks, and where each ends."""
    sizes = rng.integers(1, 7, n_lists)
    scores = [
        rng.integers(0, 8, 30 + n) if level else rng.permutation(30 + n) for n in sizes
    ]  # fmt: skip
    pairs = [counts(row[:30], row[30:]) for row in scores]
    greater, equal = (np.concatenate(column) for column in zip(*pairs, strict=True))
    groups = make_lists(greater, equal, np.r_[0, np.cumsum(sizes)])
    return scores, [np.arange(len(row)) >= 30 for row in scores], groups


def test_ndcg_equals_scikit_learns_with_ties(rng):
    from sklearn.metrics import ndcg_score

    scores, marks, groups = several_lists(rng)
    for k in (1, 5, 10, 100):
        theirs = [ndcg_score([m], [s], k=k) for m, s in zip(marks, scores, strict=True)]
        np.testing.assert_allclose(groups.ndcg(np.array([k]))[:, 0], theirs, atol=1e-12)


def test_average_precision_equals_scikit_learns_without_ties(rng):
    from sklearn.metrics import average_precision_score

    scores, marks, groups = several_lists(rng, level=False)
    theirs = [average_precision_score(m, s) for m, s in zip(marks, scores, strict=True)]
    np.testing.assert_allclose(groups.average_precisions(), theirs, atol=1e-12)


def test_every_list_equals_trec_evals_without_ties(rng):
    from pytrec_eval import RelevanceEvaluator

    scores, marks, groups = several_lists(rng, level=False)
    liked = {str(u): {str(i): 1 for i in np.flatnonzero(row)} for u, row in enumerate(marks)}
    ranked = {
        str(u): {str(i): float(score) for i, score in enumerate(row)}
        for u, row in enumerate(scores)
    }
    names = {"ndcg_cut.5", "recall.5", "recip_rank", "map"}
    theirs = RelevanceEvaluator(liked, names).evaluate(ranked)
    five = np.array([5])
    ours = {
        "ndcg_cut_5": groups.ndcg(five)[:, 0],
        "recall_5": groups.hits(five)[:, 0] / groups.totals,
        "recip_rank": groups.reciprocal_ranks(),
        "map": groups.average_precisions(),
    }
    for name, values in ours.items():
        expected = [theirs[str(u)][name] for u in range(len(scores))]
        np.testing.assert_allclose(values, expected, atol=1e-12)


def test_lists_do_not_touch_each_other(rng):
    """Several lists at once, empty ones among them, are what each is by itself."""
    pairs = [counts(rng.integers(0, 3, 8), rng.integers(0, 3, n)) for n in (3, 0, 5, 0, 0, 1)]
    greater, equal = (np.concatenate(column) for column in zip(*pairs, strict=True))
    indptr = np.r_[0, np.cumsum([len(each) for each, _ in pairs])]
    groups = make_lists(greater, equal, indptr)
    for row, (own_greater, own_equal) in enumerate(pairs):
        own = make_lists(own_greater, own_equal, np.array([0, len(own_greater)]))
        np.testing.assert_allclose(groups.hits(KS)[row], own.hits(KS)[0], atol=1e-12)
        np.testing.assert_allclose(groups.ndcg(KS)[row], own.ndcg(KS)[0], atol=1e-12)
        assert groups.reciprocal_ranks()[row] == pytest.approx(own.reciprocal_ranks()[0])
        assert groups.average_precisions()[row] == pytest.approx(own.average_precisions()[0])
    assert groups.totals.tolist() == [3, 0, 5, 0, 0, 1]
    assert groups.ndcg(KS)[1].tolist() == [0] * len(KS)


def test_sums_of_rows_that_belong_together():
    found = sum_rows(np.array([1.0, 2, 4]), np.array([0, 2, 2, 3]))
    np.testing.assert_array_equal(found, [3, 0, 4])


def test_the_trap_a_constant_score():
    greater, equal = np.zeros(50), np.full(50, 1000)
    assert accuracy_at(10, greater, equal) == pytest.approx(10 / 1001)
    assert accuracy_at(10, greater, equal, "optimistic") == 1.0
    assert accuracy_at(10, greater, equal, "pessimistic") == 0.0


@pytest.mark.parametrize("ties", ["expected", "optimistic", "pessimistic"])
def test_hits_are_real_numbers_and_ties_are_expected_unless_said(ties):
    whole = np.array([0, 2]), np.array([1, 4]), np.array([1, 2])
    assert group_hits(3, *whole, ties).dtype == np.float64
    np.testing.assert_array_equal(group_hits(3, *whole), [1.0, 0.5])


def test_pooled_over_pairs():
    greater, equal = np.array([0, 4, 5, 99]), np.array([0, 0, 0, 0])
    assert accuracy_at(5, greater, equal) == 2 / 4


def test_wrong_settings_are_named():
    with pytest.raises(SettingError, match=r"^k=0; hint: at least 1$"):
        accuracy_at(0, np.zeros(1), np.zeros(1))
    with pytest.raises(SettingError, match="k=-1"):
        group_hits(np.array([3, -1]), np.zeros(1), np.ones(1), 1)
    ways = "expected, optimistic, pessimistic"
    with pytest.raises(SettingError, match=rf"^ties='hopeful'; hint: one of {ways}$"):
        accuracy_at(1, np.zeros(1), np.zeros(1), "hopeful")
    assert np.isnan(accuracy_at(1, np.zeros(0), np.zeros(0)))
