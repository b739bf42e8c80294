from __future__ import annotations

import numpy as np
import pytest

from coldhash import read, split_cold_users
from coldhash.errors import DataError
from coldhash.evaluate import protocol
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank


@pytest.fixture(scope="module")
def parts():
    return split_cold_users(read("sample", n_users=300, n_items=200), seed=0)


def test_candidates_are_unrated_items_that_somebody_rated(parts):
    train, cold = parts
    trial = make_trial(train, cold, n_candidates=50, seed=1)
    rated = cold.ratings.matrix.toarray() > 0
    somebodys = (train.ratings.per_item + cold.ratings.per_item) > 0
    assert trial.candidates.shape == (60, 50)
    for user, row in enumerate(trial.candidates):
        assert len(set(row)) == 50
        assert not rated[user, row].any()
        assert somebodys[row].all()


def test_fewer_candidates_where_fewer_exist(parts):
    train, cold = parts
    trial = make_trial(train, cold, n_candidates=1000)
    free = 200 - cold.ratings.per_user
    np.testing.assert_array_equal((trial.candidates >= 0).sum(axis=1), free)


def test_favourites_are_the_high_ratings(parts):
    train, cold = parts
    trial = make_trial(train, cold)
    dense = cold.ratings.matrix.toarray()
    np.testing.assert_array_equal(trial.favourites.toarray(), np.where(dense > 3, dense, 0))


def test_given_ratings_are_shown_and_not_tested(parts):
    train, cold = parts
    trial = make_trial(train, cold, n_given=4, seed=2)
    shown, tested = trial.history.toarray() > 0, trial.favourites.toarray() > 0
    assert not (shown & tested).any()
    assert (shown.sum(axis=1) == np.minimum(cold.ratings.per_user, 4)).all()
    rated = cold.ratings.matrix.toarray() > 0
    for user, row in enumerate(trial.candidates):
        assert not rated[user, row[row >= 0]].any()


def test_candidates_are_seeded_and_the_same_for_all(parts):
    first, again = (make_trial(*parts, seed=3, n_candidates=50) for _ in range(2))
    other = make_trial(*parts, seed=4, n_candidates=50)
    np.testing.assert_array_equal(first.candidates, again.candidates)
    assert (first.candidates != other.candidates).any()
    with_history = make_trial(*parts, seed=3, n_candidates=50, n_given=5)
    np.testing.assert_array_equal(first.candidates, with_history.candidates)


def test_ranks_equal_brute_force(parts, rng, monkeypatch):
    monkeypatch.setattr(protocol, "BLOCK", 7)
    trial = make_trial(*parts, n_candidates=50)
    scores = rng.integers(0, 9, size=(60, 200)).astype(np.float32)
    start = iter(range(0, 60, 7))
    ranks = rank(lambda people, _: scores[(at := next(start)) : at + people.num_rows], trial)
    pair = 0
    for user in range(60):
        for item in trial.favourites[[user]].indices:
            others = scores[user, trial.candidates[user]]
            assert ranks.greater[pair] == (others > scores[user, item]).sum()
            assert ranks.equal[pair] == (others == scores[user, item]).sum()
            pair += 1
    assert pair == len(ranks.greater) == len(trial.users)


def test_the_counting_kernel_equals_its_plain_python(rng):
    scores = rng.integers(0, 4, size=(3, 20)).astype(np.float32)
    candidates = np.array([[0, 1, -1], [5, 6, 7], [19, 0, 3]], dtype=np.int32)
    indptr, indices = np.array([0, 2, 2, 3]), np.array([4, 9, 2], dtype=np.int32)
    compiled = protocol._count(scores, candidates, indptr, indices)
    plain = protocol._count.py_func(scores, candidates, indptr, indices)
    np.testing.assert_array_equal(compiled, plain)


def test_a_constant_score_is_worth_chance(parts):
    trial = make_trial(*parts, n_candidates=100)
    ranks = rank(lambda people, _: np.ones((people.num_rows, 200), dtype=np.float32), trial)
    assert accuracy_at(10, ranks.greater, ranks.equal) == pytest.approx(10 / 101)


def test_the_order_of_items_does_not_matter(parts, rng):
    train, cold = parts
    scores = rng.integers(0, 9, size=(60, 200)).astype(np.float32)
    order = rng.permutation(200)
    trial = make_trial(train, cold, n_candidates=1000)
    shuffled = make_trial(train.of_items(order), cold.of_items(order), n_candidates=1000)

    def accuracy(trial, scores):
        starts = iter(range(0, 60, protocol.BLOCK))
        ranks = rank(lambda people, _: scores[(at := next(starts)) : at + people.num_rows], trial)
        return accuracy_at(10, ranks.greater, ranks.equal)

    assert accuracy(trial, scores) == pytest.approx(accuracy(shuffled, scores[:, order]))


def test_mistakes_are_named(parts):
    train, cold = parts
    with pytest.raises(DataError, match="one split"):
        make_trial(train, cold.of_items(np.arange(5)))
    trial = make_trial(train, cold)
    with pytest.raises(DataError, match="finite"):
        rank(lambda people, _: np.full((people.num_rows, 200), np.nan), trial)
