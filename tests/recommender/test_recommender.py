from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array

from coldhash import read, split_cold_users
from coldhash.errors import DataError, SettingError, UnknownColumns, UnknownId
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
    else:  # of the share of users whose favourite an item is, in steps
        share = model.popularity[popular] / len(model.user_ids)
        np.testing.assert_allclose(found.scores[2], 4 / 3 * share**0.75, atol=0.02)


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
    codes = coded.items.rows(rows).astype(float)
    gains = coded.items.gains[coded.items.levels_of(rows)]
    own = np.where(encoded.vectors[0] >= 0, 1.0, -1.0)
    length = np.abs(encoded.vectors[0]).mean()
    np.testing.assert_allclose(
        found.scores[0], 0.125 * gains + length / 2 * (codes @ own), rtol=1e-4, atol=1e-6
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


def test_a_dislike_does_not_raise_the_items_most_like_it(coded):
    """Not on average over them; neither alone nor after other ratings, each event by itself."""
    history, rng = coded.encoder.history, np.random.default_rng(0)
    items = np.flatnonzero(history.means > 1.5)
    others = {coded.item_ids[row]: 5.0 for row in items[:3]}
    alone = coded.score(coded.encode({"age": 30}))[0]
    for row in rng.choice(items[3:], 40, replace=False):
        item = coded.item_ids[row]
        near = coded.item_ids.rows(coded.similar_items(item, 10).ids)
        rating = float(rng.uniform(1, history.means[row]))
        after = coded.score(coded.encode({"age": 30, "history": {item: rating}}))[0]
        assert after[near].mean() <= alone[near].mean()
        given = coded.encode({"history": others | {item: rating}}).history
        place = np.flatnonzero(given.indices == row)[0]
        added = coded.items.level_terms(near)[1] * (
            coded.items.rows(near) @ history.split(given)[place]
        )
        assert added.mean() <= 0


def test_what_single_events_add_is_what_the_history_adds(coded):
    history = coded.encoder.history
    for n, n_stars in ((1, 1), (3, 1), (2, 5), (7, 5), (20, 5)):
        ratings = {coded.item_ids[row]: 5.0 - row % n_stars for row in range(n)}
        given = coded.encode({"history": ratings}).history
        np.testing.assert_allclose(
            history.split(given).sum(axis=0), history.apply(given)[0][0], atol=1e-5
        )


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
    with pytest.raises(DataError, match="1 lists of items for 2 users"):
        coded.recommend(PEOPLE[:2], exclude=[["1"]])


@pytest.mark.parametrize("wrong", [5, "12", [None], [1.5], ["1", []], [["1"], None], [["1"], "2"]])
@pytest.mark.parametrize("argument", ["exclude", "candidates"])
def test_what_is_no_list_of_items_is_refused(coded, argument, wrong):
    with pytest.raises(DataError, match=r"is not a valid item id|a list of item ids") as caught:
        coded.recommend(PEOPLE[:2], **{argument: wrong})
    assert caught.value.argument == argument


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
    own = ["user_id", "item_id", "score", "rank", "distance", "fallback", "title"]
    assert list(frame.columns) == own
    assert frame["item_id"].tolist() == [row["item_id"] for row in rows]
    assert frame["distance"].isna().tolist() == [False] * 3 + [True] * 3
    assert found.to_polars().equals(pl.from_arrow(found.to_arrow()))
    assert isinstance(frame, pd.DataFrame)
    assert "ann" in repr(found)


def test_a_misspelled_field_of_a_person_is_an_error(coded):
    for ask in (coded.encode, coded.recommend, coded.score, lambda who: coded.explain(who, "7")):
        with pytest.raises(DataError, match=r"'gendr'; hint: did you mean gender\?"):
            ask({"gendr": "female", "age": 30})
    with pytest.raises(DataError, match=r"one of age, .*, history"):
        coded.recommend([{}, {"shoes": 44}])
    with pytest.raises(SettingError, match="one of error, ignore"):
        coded.encode({}, unknown="warn")


def test_a_misspelled_field_can_be_ignored(coded):
    person, more = {"age": 30}, {"age": 30, "gendr": "female"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = coded.recommend(more, k=5, unknown="ignore")
        coded.recommend(pa.Table.from_pylist([more]), unknown="ignore")
    assert found.item_ids == coded.recommend(person, k=5).item_ids
    scores = coded.score(coded.encode(more, unknown="ignore"))
    assert np.array_equal(scores, coded.score(person))
    why = coded.explain(more, "7", unknown="ignore")
    assert why == coded.explain(person, "7")


def test_one_warning_names_the_extra_columns_of_a_table(coded):
    table = pa.table({"user_id": ["a", "b"], "gendr": ["f", "m"], "shoes": [1, 2], "age": [3, 4]})
    with pytest.warns(UnknownColumns) as caught:
        coded.recommend(table, k=2)
    assert len(caught) == 1
    assert "'gendr' (did you mean gender?), 'shoes'" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_who_got_popular_items_is_in_the_answer(coded):
    found = coded.recommend([{"user_id": "ann"}, {"user_id": "bob", "age": 3}], k=2)
    assert [row["fallback"] for row in found] == [True, True, False, False]
    assert repr(found).endswith("as nothing usable is known: user ann")
    found = coded.recommend({"age": 3, "history": dict.fromkeys(map(str, range(9000, 9007)), 5)})
    assert found.notes == [
        "not known to the model, so ignored: item 9000, 9001, 9002, 9003, 9004 and 2 more"
    ]


def test_features_are_the_fallback_for_unknown_ids(model, data):
    known, people = data.ratings.users[4], [{"age": 30}, {"age": 50, "history": ["3"]}, {}]
    mixed = model.recommend(people, 6, user_ids=[known, "nobody", "no one"])
    assert mixed.user_ids == [known, "nobody", "no one"]
    alone = [model.recommend(user_ids=[known], k=6), model.recommend(people[1:], k=6)]
    assert mixed.item_ids == [*alone[0].item_ids, *alone[1].item_ids]
    assert mixed.fallback.tolist() == [False, *alone[1].fallback]
    with pytest.raises(DataError, match="1 user_ids for 3 people"):
        model.encode(people, user_ids=[known])


def test_what_a_known_user_has_just_rated_is_left_out_as_well(coded, data):
    user_id = data.ratings.users[4]
    best = coded.recommend(user_ids=[user_id], k=3).item_ids[0]
    found = coded.recommend({"history": {best[0]: 3}}, k=2, user_ids=[user_id])
    assert found.item_ids == [best[1:]]
    assert best[0] in coded.recommend(
        {"history": {best[0]: 5}}, k=150, user_ids=[user_id], exclude_seen=False
    ).item_ids[0]  # fmt: skip


@pytest.mark.parametrize(
    "matrix",
    [np.ones((2, 150), np.float32), csc_array((2, 150)), csr_array((2, 149)), csr_array((1, 150))],
)
def test_ratings_are_a_matrix_of_people_and_items(coded, matrix):
    with pytest.raises(DataError, match="matrix"):
        coded.encode([{}, {"age": 30}], matrix)


def test_a_history_moves_people_alike_without_compiled_code(coded, monkeypatch):
    rated = [{}, {"7": 5, "12": 1, "30": 3}, {"3": 1}, ["5", "6"]]
    rated += [{str(item): 1 + item % 5 for item in range(1, n)} for n in (5, 12, 40)]
    people = [{"age": 30, "history": each} for each in rated]
    compiled = coded.encode(people).vectors
    monkeypatch.setattr("coldhash.recommender.history.load_kernels", lambda *_: None)
    np.testing.assert_array_equal(coded.encode(people).vectors, compiled)


def test_similar_items_are_the_nearest_codes(coded):
    near = coded.similar_items("5", k=149)
    codes = coded.items.rows().astype(int)
    distances = (codes.shape[1] - codes @ codes[4]) // 2
    assert "5" not in near.ids
    np.testing.assert_array_equal(near.to_arrow()["distance"], np.sort(np.delete(distances, 4)))
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
    with pytest.raises(SettingError, match="k=0"):
        coded.recommend({}, k=0)
    with pytest.raises(SettingError, match="k='3'"):
        coded.recommend({}, k="3")
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
