from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash import read, split_cold_users
from coldhash.errors import DataError, SettingError, UnknownId
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank, scorer
from coldhash.mfdcf.model import MFDCF
from coldhash.registry import MODELS

PEOPLE = [
    {"age": 30, "gender": "female"},
    {"age": 55, "occupation": "driver", "history": {"3": 5, "8": 1}},
    {},
    {"city": "Elsk"},
]


@pytest.fixture(scope="module")
def data():
    return split_cold_users(read("sample", n_users=400, n_items=150), seed=0)[0]


@pytest.fixture(scope="module", params=["mfdcf", "ridge", "popularity", "mf"])
def model(request, data):
    return MODELS[request.param]().fit(data)


@pytest.fixture(scope="module")
def coded(data):
    return MFDCF(n_bits=32).fit(data)


def in_order(model, scores, allowed):
    """Rank by score, then popularity, then catalogue order: the documented rule, by brute force."""
    rows = np.flatnonzero(allowed)
    return rows[np.lexsort((rows, -model.popularity[rows], -scores[rows]))]


def test_lists_follow_the_scores_and_the_tie_rule(model):
    encoded = model.encode(PEOPLE)
    scores = model.score(encoded)
    found = model.recommend(PEOPLE, k=150, exclude_seen=False)
    for user in range(len(PEOPLE)):
        rows = model.item_ids.rows(found.item_ids[user])
        assert len(set(rows)) == 150
        # equal up to what rounding may swap
        np.testing.assert_allclose(
            scores[user, rows], -np.sort(-scores[user]), rtol=1e-4, atol=1e-4
        )
    assert found.fallback[2]
    popular = in_order(model, np.zeros(150), np.ones(150, dtype=bool))
    assert list(model.item_ids.rows(found.item_ids[2])) == list(popular)
    if model.items.levels is None:
        np.testing.assert_array_equal(found.scores[2], model.popularity[popular])
    else:  # the share of users whose favourite an item is, in steps
        share = model.popularity[popular] / len(model.user_ids)
        np.testing.assert_allclose(found.scores[2], share, atol=0.02)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_hamming_lists_follow_the_tie_rule_exactly(data):
    coded = MFDCF(n_bits=32, level=False).fit(data)
    scores = coded.score(coded.encode(PEOPLE[:2]), "hamming")
    found = coded.recommend(PEOPLE[:2], k=150, score="hamming", exclude_seen=False)
    disliked = {"8"}  # comes last
    for user in range(2):
        expected = in_order(coded, scores[user], np.ones(150, dtype=bool))
        np.testing.assert_array_equal(coded.item_ids.rows(found.item_ids[user]), expected)
        known = [item not in disliked for item in found.item_ids[user]]
        distances = (32 - scores[user, expected]) / 2
        np.testing.assert_array_equal(found.distances[user][known], distances[known])


def test_hamming_beside_levels_weighs_codes_by_one_length(coded):
    encoded = coded.encode(PEOPLE[0])
    found = coded.recommend(PEOPLE[0], k=150, score="hamming", popularity=0.5)
    rows = coded.item_ids.rows(found.item_ids[0])
    codes, gains = coded.items.rows(rows).astype(float), coded.items.gains(rows)
    own = np.where(encoded.vectors[0] >= 0, 1.0, -1.0)
    length = np.abs(encoded.vectors[0]).mean()
    np.testing.assert_allclose(
        found.scores[0], 0.5 * gains + length / 2 * (codes @ own), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(found.distances[0], (codes.shape[1] - codes @ own) / 2)
    assert (np.diff(found.scores[0]) <= 0).all()


def test_popularity_goes_from_what_everybody_likes_to_what_sets_apart(coded):
    person = {"age": 30, "gender": "female"}
    favourites = [
        np.mean(coded.popularity[coded.item_ids.rows(lists.item_ids[0])])
        for lists in (coded.recommend(person, k=10, popularity=dial) for dial in (1.0, 0.5, 0.0))
    ]
    assert favourites[0] >= favourites[1] >= favourites[2]
    assert favourites[0] > favourites[2]
    for dial in (-0.1, 1.1, float("nan")):
        with pytest.raises(SettingError, match="popularity"):
            coded.recommend(person, popularity=dial)


def test_without_levels_popularity_cannot_be_weighed(data):
    model = MODELS["ridge"]().fit(data)
    assert len(model.recommend({"age": 30}, popularity=1.0)) == 10
    with pytest.raises(SettingError, match=r"level.*hint"):
        model.recommend({"age": 30}, popularity=0.5)


def test_what_is_disliked_comes_last(coded):
    """A rating below what an item gets on average: the item never rises, and seen ones may stay."""
    means = coded.encoder.history.means
    for item in coded.item_ids.texts(coded.items.order[None, :20])[0]:
        row = coded.item_ids.row_of(item)
        if means[row] <= 1.5:
            continue
        person = {"age": 30, "history": {item: 1}}
        found = coded.recommend(person, k=150, exclude_seen=False)
        assert found.item_ids[0][-1] == item
        assert (np.diff(found.scores[0]) <= 0).all()
        scores = coded.score(coded.encode(person))[0]
        assert scores[row] == scores.min()
        assert item not in coded.recommend(person, k=150).item_ids[0]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 150), max_size=149, unique=True),
    st.none() | st.lists(st.integers(1, 150), min_size=1, max_size=60, unique=True),
    st.integers(1, 20),
    st.sampled_from(["real", "hamming"]),
)
def test_filters_keep_exactly_k(exclude, candidates, k, score):
    model = CODED
    found = model.recommend(PEOPLE, k=k, exclude=exclude, candidates=candidates, score=score)
    scores = model.score(model.encode(PEOPLE), score)
    for user, items in enumerate(found.item_ids):
        allowed = np.zeros(150, dtype=bool)
        allowed[[int(i) - 1 for i in (range(1, 151) if candidates is None else candidates)]] = True
        allowed[[i - 1 for i in exclude]] = False
        if user == 1:
            allowed[[2, 7]] = False
        assert len(items) == min(k, allowed.sum())
        assert (str(user) in found.short) == (allowed.sum() < k)
        rows = model.item_ids.rows(items)
        assert allowed[rows].all()
        if len(rows) and not found.fallback[user]:
            worst = scores[user, rows].min()
            left = allowed.copy()
            left[rows] = False
            assert not left.any() or scores[user, left].max() <= worst + 1e-3


CODED = MFDCF(n_bits=32).fit(split_cold_users(read("sample", n_users=400, n_items=150))[0])


def test_lists_per_user(coded):
    found = coded.recommend(PEOPLE[:2], k=5, candidates=[[1, 2, 3], ["9"]])
    assert {len(items) for items in found.item_ids} == {3, 1}
    assert found.short == ["0", "1"]
    with pytest.raises(DataError, match="1 lists of items for 2 users"):
        coded.recommend(PEOPLE[:2], exclude=[["1"]])


def test_training_users_do_not_get_what_they_have_rated(model, data):
    user_ids = list(data.ratings.users)[:20]
    found = model.recommend(user_ids=user_ids, k=10)
    dense = data.ratings.matrix.toarray()
    for user, items in enumerate(found.item_ids):
        assert not dense[user, model.item_ids.rows(items)].any()
    assert found.user_ids == user_ids
    again = model.recommend(user_ids=user_ids, k=150, exclude_seen=False)
    assert all(len(items) == 150 for items in again.item_ids)


def test_a_history_is_not_recommended_back(coded):
    person = {"age": 30, "history": {str(item): 5 for item in range(1, 100)}}
    assert not set(coded.recommend(person, k=50).item_ids[0]) & set(person["history"])
    assert set(coded.recommend(person, k=150, exclude_seen=False).item_ids[0]) >= {"1", "2"}


def test_threads_do_not_matter(model):
    people = PEOPLE * 20
    one, two = (model.recommend(people, k=10, threads=n) for n in (1, 2))
    assert one.item_ids == two.item_ids
    np.testing.assert_array_equal(one.scores, two.scores)


def test_the_answer_turns_into_any_table(coded):
    found = coded.recommend([{"user_id": "ann", "age": 3}, {}], k=3, score="hamming")
    rows = list(found)
    assert [row["user_id"] for row in rows] == ["ann"] * 3 + ["1"] * 3
    frame = found.to_pandas()
    assert list(frame.columns) == ["user_id", "item_id", "score", "rank", "distance"]
    assert frame["item_id"].tolist() == [row["item_id"] for row in rows]
    assert frame["distance"].isna().tolist() == [False] * 3 + [True] * 3
    assert found.to_polars().equals(pl.from_arrow(found.to_arrow()))
    assert isinstance(frame, pd.DataFrame)
    assert "ann" in repr(found)
    ids, scores = coded.recommend([{"age": 3}], k=3, candidates=["1", "2"], as_arrays=True)
    assert ids.shape == scores.shape == (1, 3)
    assert ids[0, 2] is None
    assert scores[0, 2] == -np.inf


def test_everybody_block_by_block(coded, data, monkeypatch):
    monkeypatch.setattr("coldhash.recommender.recommender.PEOPLE_AT_A_TIME", 100)
    told = []
    tables = list(coded.recommend_all(4, progress=lambda done, total: told.append((done, total))))
    assert told == [(100, 320), (200, 320), (300, 320), (320, 320)]
    assert sum(table.num_rows for table in tables) == 4 * 320
    whole = coded.recommend(user_ids=list(data.ratings.users), k=4).to_arrow()
    assert whole.column("item_id").to_pylist() == [
        item for table in tables for item in table.column("item_id").to_pylist()
    ]


def test_similar_items_are_the_nearest_codes(coded):
    near = coded.similar_items("5", k=149)
    codes = coded.items.rows().astype(int)
    distances = (codes.shape[1] - codes @ codes[4]) // 2
    assert "5" not in near.ids
    np.testing.assert_array_equal(near.distances, np.sort(np.delete(distances, 4)))
    with pytest.raises(UnknownId, match="no such item"):
        coded.similar_items("no such item")


def test_similar_users(model):
    assert len(model.similar_users({"age": 30}, k=5).ids) == 5
    own = model.user_ids[3]
    assert own not in model.similar_users(user_id=own, k=20).ids


@pytest.mark.parametrize("person", PEOPLE, ids=["features", "both", "nothing", "one"])
def test_contributions_add_up_to_the_score(coded, person):
    expected = coded.items.scores(coded.encode(person).vectors)[0]
    for item in ("1", "77"):
        why = coded.explain(person, item)
        assert why["score"] == pytest.approx(expected[int(item) - 1], rel=1e-4, abs=1e-5)
        assert sum(why["contributions"].values()) == pytest.approx(why["score"])
        assert len(why["nearest_users"]) == 3
    if "history" in person:
        assert {"popularity", "rated 3", "rated 8", "demographics"} == set(why["contributions"])


def test_mistakes_are_named(coded, data):
    with pytest.raises(SettingError, match="for whom"):
        coded.recommend()
    with pytest.raises(SettingError, match="for whom"):
        coded.recommend({}, user_ids=["1"])
    with pytest.raises(SettingError, match="k=0"):
        coded.recommend({}, k=0)
    with pytest.raises(SettingError, match="threads=0"):
        coded.recommend({}, threads=0)
    with pytest.raises(UnknownId, match="'nobody'"):
        coded.recommend(user_ids=["nobody"])
    with pytest.raises(UnknownId, match="'no such item'"):
        coded.recommend({}, exclude=["no such item"])
    ridge = MODELS["ridge"]().fit(data)
    with pytest.raises(SettingError, match=r"real-valued.*score='real'"):
        ridge.recommend({"age": 3}, score="hamming")


@pytest.mark.slow
def test_the_rounding_of_the_search_leaves_accuracy_alone():
    """Accuracy@10 from the order of the lists equals the one from exact scores to 0.1%."""
    train, cold = split_cold_users(read("sample"), seed=0)
    model = MFDCF().fit(train)
    trial = make_trial(train, cold)

    def by_place(people, _):
        found = model.recommend(people, k=1000, exclude_seen=False)
        scores = np.empty((people.num_rows, 1000))
        for user, items in enumerate(found.item_ids):
            scores[user, model.item_ids.rows(items)] = -np.arange(1000)
        return scores

    exact, listed = rank(scorer(model), trial), rank(by_place, trial)
    expected = accuracy_at(10, exact.greater, exact.equal)
    assert accuracy_at(10, listed.greater, listed.equal) == pytest.approx(expected, rel=1e-3)
