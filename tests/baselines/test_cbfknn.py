"""Neighbours: whose votes count, and what is known of whom."""

from __future__ import annotations

import numpy as np
import pytest

import contract
import worlds
from coldhash import Dataset, read
from coldhash.baselines.cbfknn import CBFKNN, NeighbourEncoder, nearest
from coldhash.baselines.controls import Popularity
from coldhash.data.dataset import split_cold_users
from coldhash.data.plan import Category, FeaturePlan
from coldhash.errors import DataError, SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank

SETTINGS = {
    "votes": CBFKNN(),
    "votes, few": CBFKNN(n_neighbours=3, n_dims=99),
}


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SETTINGS)
def test_contract(name, check, small):
    check(SETTINGS[name], small)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_checkerboard_is_learned(name):
    model = SETTINGS[name].fit(worlds.checkerboard())
    for parity, own in (("even", 0), ("odd", 1)):
        scores = model.score(model.encode({"parity": parity}))[0]
        assert scores[own::2].min() > scores[1 - own :: 2].max()


def test_strangers_get_more_than_popularity():
    train, cold = split_cold_users(read("sample", n_users=1000), 0.2, seed=0)
    trial = make_trial(train, cold)

    def accuracy(settings):
        model = settings.fit(train)
        found = rank(lambda people, history: model.score(model.encode(people, history)), trial)
        return accuracy_at(10, found.greater, found.equal)

    assert accuracy(CBFKNN()) >= accuracy(Popularity())


def test_the_nearest_are_those_that_a_stable_sort_puts_first(rng):
    people = rng.standard_normal((7, 3)).astype(np.float32)
    known = rng.standard_normal((3, 12)).astype(np.float32)
    known[:, 6:] = known[:, :6]  # everybody twice: ties
    for row, alike in zip(nearest(people, known, 5), people @ known, strict=True):
        first = np.argsort(-alike.round(4), kind="stable")[:5]
        expected = np.zeros(12)
        expected[first] = np.maximum(alike[first], 0)
        np.testing.assert_allclose(row, expected / max(expected.sum(), 1e-9), atol=1e-5)


def test_weights_are_shares_of_at_most_k_neighbours(small):
    model = CBFKNN(n_neighbours=10).fit(small)
    weights = model.encode([{"age": 30, "gender": "male"}, {"city": "Elsk"}]).vectors
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    assert (weights >= 0).all()
    assert ((weights > 0).sum(axis=1) == 10).all()


def two_groups() -> Dataset:
    """Users of both sexes in two towns; the last two have no town."""
    users = {
        "user_id": np.arange(6),
        "sex": ["f", "f", "m", "m", "f", "m"],
        "town": ["A", "B", "A", "B", None, None],
    }
    plan = FeaturePlan(
        users={"one": {"sex": Category(min_count=1)}, "two": {"town": Category(min_count=1)}}
    )
    ratings = {"user_id": np.arange(6), "item_id": np.arange(6), "rating": np.full(6, 5.0)}
    return Dataset.from_tables(
        ratings, users, {"item_id": np.arange(6)}, plan=plan, scale=(0.0, 5.0), name="towns"
    )


def test_only_the_groups_somebody_has_are_compared():
    model = CBFKNN(n_dims=99).fit(two_groups())
    by_sex, by_town, by_both = model.encode(
        [{"sex": "f"}, {"town": "B"}, {"sex": "m", "town": "A"}]
    ).vectors
    np.testing.assert_allclose(by_sex, np.array([1, 1, 0, 0, 1, 0]) / 3, atol=1e-6)
    np.testing.assert_allclose(by_town, np.array([0, 1, 0, 1, 0, 0]) / 2, atol=1e-6)
    # the one who is the same has cosine 1, the one without a town the cosine of one of two
    assert by_both.argmax() == 2
    np.testing.assert_allclose(by_both[5] / by_both[2], np.sqrt(1 / 2), rtol=1e-5)


def test_a_stored_encoder_says_the_same(small):
    model = CBFKNN().fit(small)
    encoder = NeighbourEncoder.restore(model.encoder.state(), model.items, model.features)
    features = model.features.apply(contract.PEOPLE)
    before, after = model.encoder.encode(features, None), encoder.encode(features, None)
    np.testing.assert_array_equal(before.vectors, after.vectors)


@pytest.mark.parametrize("settings", [{"n_neighbours": 0}, {"n_dims": 0}], ids=str)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError, match="CBFKNN"):
        CBFKNN(**settings)


def test_too_many_users_are_refused_before_memory_is(small, monkeypatch):
    monkeypatch.setattr("coldhash.baselines.cbfknn._MAX_USERS", 100)
    with pytest.raises(DataError, match="240 users"):
        CBFKNN().fit(small)
