from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from coldhash import MFDCF, FeaturePlan, read, split_by_time, split_cold_users
from coldhash.errors import DataError, SettingError
from coldhash.evaluate import protocol
from coldhash.evaluate.metrics import accuracy_at, judge
from coldhash.evaluate.protocol import (
    PROTOCOLS,
    Protocol,
    make_known_trial,
    make_trial,
    rank,
    scorer,
)


def sampled(n_candidates):
    return replace(PROTOCOLS["sampled-1000"], n_candidates=n_candidates)


def in_blocks(scores):
    scores = scores.astype(np.float32)
    starts = iter(range(0, len(scores), protocol.SCORE_BLOCK))
    return lambda people, _: scores[(at := next(starts)) : at + people.num_rows]


@pytest.fixture(scope="module")
def parts():
    return split_cold_users(read("sample", n_users=300, n_items=200), seed=0)


@pytest.fixture
def rated(parts):
    return parts[1].ratings.matrix.toarray()


def test_candidates_are_unrated_items_that_somebody_rated(parts, rated):
    train, cold = parts
    trial = make_trial(train, cold, protocol=sampled(50), seed=1)
    somebodys = (train.ratings.per_item + cold.ratings.per_item) > 0
    assert trial.candidates.shape == (60, 50)
    for user, row in enumerate(trial.candidates):
        assert len(set(row)) == 50
        assert not rated[user, row].any()
        assert somebodys[row].all()


def test_candidates_are_the_ones_of_all_published_figures(parts, rated):
    """One generator a user, spawned from the seed, chooses from the free rows in their order."""
    train, cold = parts
    trial = make_trial(train, cold, protocol=sampled(40))
    somebodys = (train.ratings.matrix.toarray() > 0).any(axis=0) | (rated > 0).any(axis=0)
    generators = np.random.SeedSequence(0).spawn(60)
    for user in range(60):
        free = [item for item in range(200) if somebodys[item] and rated[user, item] == 0]
        rng = np.random.Generator(np.random.PCG64(generators[user]))
        expected = rng.choice(np.array(free), 40, replace=False)
        np.testing.assert_array_equal(trial.candidates[user], expected)


def test_fewer_candidates_where_fewer_exist(parts):
    train, cold = parts
    trial = make_trial(train, cold)
    free = 200 - cold.ratings.per_user
    np.testing.assert_array_equal((trial.candidates >= 0).sum(axis=1), free)


def test_favourites_are_the_high_ratings(parts, rated):
    trial = make_trial(*parts)
    np.testing.assert_array_equal(trial.favourites.toarray(), np.where(rated > 3, rated, 0))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_given_ratings_are_seen_and_not_tested(parts, name):
    train, cold = parts
    trial = make_trial(train, cold, protocol=name, n_given=4, seed=2)
    seen, tested = trial.history.toarray() > 0, trial.favourites.toarray() > 0
    assert not (seen & tested).any()
    assert (seen.sum(axis=1) == np.minimum(cold.ratings.per_user, 4)).all()
    for user, row in enumerate(trial.candidates_of(slice(0, 60))):
        assert not (seen | tested)[user, row[row >= 0]].any()


def test_candidates_are_seeded_and_the_same_for_all(parts):
    first, again = (make_trial(*parts, seed=3, protocol=sampled(50)) for _ in range(2))
    other = make_trial(*parts, seed=4, protocol=sampled(50))
    np.testing.assert_array_equal(first.candidates, again.candidates)
    assert (first.candidates != other.candidates).any()
    with_history = make_trial(*parts, seed=3, protocol=sampled(50), n_given=5)
    np.testing.assert_array_equal(first.candidates, with_history.candidates)


def test_the_protocols():
    n_candidates = {name: one.n_candidates for name, one in PROTOCOLS.items()}
    assert n_candidates == {
        "sampled-1000": 1000,
        "full": None,
        "ddl": 1000,
        "du": None,
        "mdcf": 999,
    }
    assert [name for name, one in PROTOCOLS.items() if one.lists == "together"] == ["full", "du"]
    assert [name for name, one in PROTOCOLS.items() if one.average == "users"] == ["mdcf"]
    assert [name for name, one in PROTOCOLS.items() if one.ties != "expected"] == ["ddl"]


def test_ddl_has_low_rated_candidates(parts, rated):
    trial = make_trial(*parts, protocol="ddl")  # fewer than 1000 items: all of them are drawn
    for user, row in enumerate(trial.candidates):
        drawn = rated[user, row[row >= 0]]
        assert drawn.max() <= 3
        assert (drawn > 0).sum() == ((rated[user] > 0) & (rated[user] <= 3)).sum()
    assert rated[0, make_trial(*parts).candidates[0]].max() == 0


def test_full_ranking_is_against_everything_else(parts, rated):
    train, cold = parts
    trial = make_trial(train, cold, protocol="full", n_given=3)
    given = trial.history.toarray() > 0
    favourite = trial.favourites.toarray() > 0
    somebodys = (train.ratings.per_item + cold.ratings.per_item) > 0
    for user, row in enumerate(trial.candidates_of(slice(10, 30)), start=10):
        expected = np.flatnonzero(somebodys & ~given[user] & ~favourite[user])
        np.testing.assert_array_equal(row[row >= 0], expected)


def test_full_ranking_against_the_unrated_only(parts, rated):
    trial = make_trial(*parts, protocol=replace(PROTOCOLS["full"], negatives="unrated"))
    for user, row in enumerate(trial.candidates_of(slice(0, 60))):
        assert rated[user, row[row >= 0]].max() == 0


def test_the_oracle_knows_the_answers(parts):
    train, cold = parts
    honest, leaking = make_trial(train, cold), make_trial(train, cold, oracle=True)
    assert honest.history is None
    np.testing.assert_array_equal(leaking.history.toarray(), cold.ratings.matrix.toarray())
    np.testing.assert_array_equal(leaking.favourites.toarray(), honest.favourites.toarray())
    np.testing.assert_array_equal(leaking.candidates, honest.candidates)
    model = MFDCF().fit(train)
    found = [judge(scorer(model), trial).metrics["accuracy@10"] for trial in (honest, leaking)]
    assert found[1] > 1.03 * found[0]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_ranks_equal_brute_force(parts, rng, monkeypatch, name):
    monkeypatch.setattr(protocol, "SCORE_BLOCK", 7)
    trial = make_trial(*parts, protocol=name)
    scores = rng.integers(0, 9, size=(60, 200))
    ranks = rank(in_blocks(scores), trial)
    candidates, pair = trial.candidates_of(slice(0, 60)), 0
    for user in range(60):
        assert trial.favourites.indptr[user] == pair
        others = scores[user, candidates[user][candidates[user] >= 0]]
        for item in trial.favourites[[user]].indices:
            assert ranks.greater[pair] == (others > scores[user, item]).sum()
            assert ranks.equal[pair] == (others == scores[user, item]).sum()
            pair += 1
    assert pair == len(ranks.greater) == trial.favourites.nnz


def test_top_items_are_the_best_items_but_the_given_in_a_stable_order(parts, rng, monkeypatch):
    monkeypatch.setattr(protocol, "SCORE_BLOCK", 7)
    trial = make_trial(*parts, protocol=sampled(20), n_given=5, oracle=True)
    scores = rng.integers(0, 30, size=(60, 200))
    seen = rank(in_blocks(scores), trial).top_items
    masked = np.where(trial.given.toarray() > 0, -1, scores)
    np.testing.assert_array_equal(seen, np.argsort(-masked, axis=1, kind="stable")[:, :10])


def test_top_items_are_padded_where_the_catalogue_is_small(parts):
    train, cold = (part.of_items(np.arange(6)) for part in parts)
    ranks = rank(lambda people, _: np.tile(np.arange(6, dtype=np.float32), (people.num_rows, 1)),
                 make_trial(train, cold))  # fmt: skip
    assert ranks.top_items[0].tolist() == [5, 4, 3, 2, 1, 0, -1, -1, -1, -1]


@pytest.mark.slow
@pytest.mark.compiled
def test_the_kernels_equal_their_plain_python(rng):
    scores = rng.integers(0, 4, size=(3, 20)).astype(np.float32)
    candidates = np.array([[0, 1, -1], [5, 6, 7], [19, 0, 3]], dtype=np.int32)
    indptr, indices = np.array([0, 2, 2, 3]), np.array([4, 9, 2])
    indices.setflags(write=False)  # as in a trial: one form to compile less
    results = []
    for kernels in (
        (protocol.count_candidates, protocol._find_best),
        (protocol.count_candidates.py_func, protocol._find_best.py_func),
    ):
        greater, equal, best = np.empty(3, int), np.empty(3, int), np.empty((3, 10), int)
        kernels[0](scores, candidates, indptr, indices, greater, equal, 0, 3)
        kernels[1](scores, indptr, indices, best, 0, 3)
        results.append((greater, equal, best))
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_array_equal(compiled, plain)


def test_a_constant_score_is_worth_chance(parts):
    trial = make_trial(*parts, protocol=sampled(100))
    ranks = rank(lambda people, _: np.ones((people.num_rows, 200), dtype=np.float32), trial)
    assert accuracy_at(10, ranks.greater, ranks.equal) == pytest.approx(10 / 101)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_order_of_items_does_not_matter(parts, rng, name):
    """With many ties; in the lists, tied items are in the order of rows."""
    train, cold = parts
    order = rng.permutation(200)
    trial = make_trial(train, cold, protocol=name)
    shuffled = make_trial(train.of_items(order), cold.of_items(order), protocol=name)
    level = rng.integers(0, 9, size=(60, 200))
    distinct = rng.permuted(np.tile(np.arange(200.0), (60, 1)), axis=1)
    for scores, left_out in ((level, "coverage novelty popularity_bias distinct"), (distinct, "")):
        first = judge(in_blocks(scores), trial).metrics
        second = judge(in_blocks(scores[:, order]), shuffled).metrics
        kept = [key for key in first if not key.startswith(tuple(left_out.split()))]
        assert {k: first[k] for k in kept} == pytest.approx({k: second[k] for k in kept})


def test_mistakes_are_named(parts):
    train, cold = parts
    with pytest.raises(DataError, match="one split"):
        make_trial(train, cold.of_items(np.arange(5)))
    trial = make_trial(train, cold)
    with pytest.raises(DataError, match="finite"):
        rank(lambda people, _: np.full((people.num_rows, 200), np.nan), trial)
    with pytest.raises(SettingError, match=r"'fool'.*sampled-1000, full, ddl, du, mdcf"):
        make_trial(train, cold, protocol="fool")
    with pytest.raises(SettingError, match="n_candidates=0"):
        sampled(0)
    with pytest.raises(SettingError, match=r"lists='apart'.*'alone' or 'together'"):
        Protocol(10, lists="apart")


def test_a_trial_says_in_which_order_ratings_were_given(parts):
    train, cold = parts
    times = np.random.default_rng(0).permutation(len(cold.ratings))
    timed = cold.with_ratings(replace(cold.ratings, times=times))
    assert make_trial(train, timed).order is None
    assert make_trial(train, timed, n_given=3).order == "time"
    assert make_trial(train, timed, n_given=3, order="random").order == "random"
    assert make_trial(train, cold, n_given=3).order == "random"
    first = times[: cold.ratings.per_user[0]].argsort()[:3]
    given = make_trial(train, timed, n_given=3).history
    assert set(given.indices[:3]) == set(cold.ratings.matrix.indices[first])


def test_known_users_are_judged_by_what_comes_later():
    data = read("sample", n_users=300, n_items=200)
    times = np.random.default_rng(0).permutation(len(data.ratings))
    train, later = split_by_time(data.with_ratings(replace(data.ratings, times=times)), 0.8)
    trial = make_known_trial(train, later, protocol=sampled(50))
    before = train.ratings.matrix.toarray() > 0
    for user, row in enumerate(trial.candidates):
        assert not before[user, row[row >= 0]].any()
    assert not (trial.favourites.toarray().astype(bool) & before).any()
    model = MFDCF(n_bits=32).fit(train)
    scores = scorer(model, known=True)(trial.people, None)
    np.testing.assert_array_equal(scores, model.score(model.encode(user_ids=list(train.user_ids))))
    known, stranger = (
        judge(scorer(model, known=flag), replace(trial, people=people)).metrics["accuracy@10"]
        for flag, people in ((True, trial.people), (False, later.users))
    )
    assert known > stranger
    with pytest.raises(DataError, match="users"):
        make_known_trial(train, later.of_users(np.arange(5)))


def test_people_without_columns_have_rows(parts):
    train, cold = (replace(part, users=pa.table({}), plan=FeaturePlan()) for part in parts)
    trial = make_trial(train, cold, n_given=5, protocol=sampled(50))
    found = judge(scorer(MFDCF(n_bits=32).fit(train)), trial).metrics
    assert 0 < found["accuracy@10"] < 1
