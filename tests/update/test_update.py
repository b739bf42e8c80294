from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from coldhash import MFDCF, MODELS, Dataset, load, read, split_cold_items
from coldhash.errors import DataError, SettingError, UnknownId
from coldhash.update import add_items, refresh, remove_items, update_users
from coldhash.update.new_items import (
    RIDGES,
    _ContentMap,
    _Fitted,
    _lift_gains,
    _mean_vectors,
    _posterior,
    _Prediction,
)

PEOPLE = [{"age": 30}, {"age": 55, "history": {"3": 5, "8": 1}}, {}]


@pytest.fixture(scope="module")
def parts():
    return split_cold_items(read("sample", n_users=400, n_items=150), share=0.1, seed=0)


@pytest.fixture(scope="module")
def model(parts):
    return MFDCF(n_bits=32).fit(parts[0])


def item_table(data, rows=slice(None)):
    ids = np.array(list(data.ratings.items))[rows]
    columns = {
        n: np.array(data.items[n].to_pylist(), object)[rows] for n in data.items.column_names
    }
    return {"item_id": ids.tolist()} | {n: c.tolist() for n, c in columns.items()}


def rating_table(data):
    matrix = data.ratings.matrix
    owners = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return {
        "user_id": [data.ratings.users[u] for u in owners],
        "item_id": [data.ratings.items[i] for i in matrix.indices],
        "rating": matrix.data,
    }


def codes(model, ids):
    return model.items.rows(model.item_ids.rows(list(ids)))


def same_answers(one, two):
    assert one.recommend(PEOPLE, k=20).item_ids == two.recommend(PEOPLE, k=20).item_ids
    np.testing.assert_array_equal(one.encode(PEOPLE).vectors, two.encode(PEOPLE).vectors)


def test_new_items_are_found_and_old_ones_stay(model, parts, tmp_path):
    cold = parts[1]
    more, change = add_items(model, item_table(cold))
    assert change.items_added == dict.fromkeys(cold.ratings.items, "content")
    np.testing.assert_array_equal(codes(more, model.item_ids), model.items.rows())
    new = list(cold.ratings.items)
    found = more.recommend(user_ids=[model.user_ids[0]], k=5, candidates=new)
    assert set(found.item_ids[0]) <= set(new)
    assert len(found.item_ids[0]) == 5
    assert len(more.similar_items(new[0], k=160)) == 149
    assert not more.popularity[-len(new) :].any()
    assert more.item_table.num_rows == len(more.item_ids) == 150
    rated_new = more.encode({"age": 30, "history": {new[0]: 5}})
    assert not rated_new.ignored
    more.save(tmp_path / "m")
    same_answers(more, load(tmp_path / "m"))
    again, _ = remove_items(load(tmp_path / "m"), new)  # a mapped model changes like another
    same_answers(again, model)


def test_codes_of_new_items_do_not_depend_on_each_other(model, parts):
    cold = parts[1]
    together, _ = add_items(model, item_table(cold))
    one_by_one = model
    for row in range(len(cold.ratings.items)):
        one_by_one, _ = add_items(one_by_one, item_table(cold, [row]))
    np.testing.assert_array_equal(
        codes(together, cold.ratings.items), codes(one_by_one, cold.ratings.items)
    )


def fit_of_codes(model, data, ids):
    """How much higher users score what they rated than the average of these items."""
    scores = model.user_vectors @ codes(model, ids).T.astype(np.float32)
    scores -= scores.mean(axis=1, keepdims=True)
    return scores[data.ratings.matrix.toarray() > 0].mean() / max(scores.std(), 1e-9)


def test_content_and_then_ratings_make_better_codes(model, parts):
    cold = parts[1]
    by_content, _ = add_items(model, item_table(cold))
    by_ratings, change = add_items(model, item_table(cold), rating_table(cold))
    nothing, unknown = add_items(model, {"item_id": list(cold.ratings.items)})
    assert set(unknown.items_added.values()) == {"average"}
    assert set(change.items_added.values()) <= {"ratings", "content"}
    fits = [fit_of_codes(m, cold, cold.ratings.items) for m in (by_content, by_ratings)]
    assert 0.05 < fits[0] <= fits[1]
    assert len(np.unique(codes(nothing, cold.ratings.items), axis=0)) == 1
    favourites = (cold.ratings.matrix.toarray() > 0.6 * cold.ratings.scale[1]).sum(axis=0)
    np.testing.assert_array_equal(by_ratings.popularity[-15:], favourites)


def test_rated_new_items_are_not_recommended_back(model, parts):
    cold = parts[1]
    more, _ = add_items(model, item_table(cold), rating_table(cold))
    user = int(np.argmax(cold.ratings.per_user))
    rated = {cold.ratings.items[i] for i in cold.ratings.matrix[[user]].indices}
    assert rated
    answer = more.recommend(user_ids=[cold.ratings.users[user]], k=150).item_ids[0]
    assert not rated & set(answer)
    assert set(answer) & set(cold.ratings.items)


def test_strangers_may_rate_if_they_are_described(model, parts):
    table = item_table(parts[1], [0])
    ratings = {"user_id": ["nobody knows"], "item_id": table["item_id"], "rating": [5.0]}
    with pytest.raises(UnknownId, match=r"nobody knows.*hint: describe"):
        add_items(model, table, ratings)
    users = {"user_id": ["nobody knows"], "age": [30], "gender": ["female"]}
    more, change = add_items(model, table, ratings, users)
    assert list(change.items_added.values()) == ["ratings"]
    assert more.popularity[-1] == 1
    assert len(more.user_ids) == len(model.user_ids)


def test_mistakes_with_items_are_named(model, parts):
    own = model.item_ids[0]
    with pytest.raises(DataError, match=r"already.*hint"):
        add_items(model, {"item_id": [own]})
    with pytest.raises(DataError, match="there already"):
        add_items(model, {"item_id": ["x", "x"]})
    rated = {"user_id": [model.user_ids[0]], "item_id": [own], "rating": [5]}
    with pytest.raises(UnknownId, match="refresh"):
        add_items(model, {"item_id": ["x"]}, rated)
    with pytest.raises(UnknownId, match="to the item table"):
        add_items(model, {"item_id": ["x"]}, rated | {"item_id": ["y"]})
    with pytest.raises(UnknownId, match="no such item"):
        remove_items(model, ["no such item"])
    with pytest.raises(SettingError, match="no item would be left"):
        remove_items(model, list(model.item_ids))
    with pytest.raises(SettingError, match=r"popularity.*hint: fit MFDCF"):
        add_items(MODELS["popularity"]().fit(parts[0]), {"item_id": ["x"]})


def test_added_items_are_guesses_and_teach_nothing(model, parts, tmp_path):
    cold = parts[1]
    assert model.guessed is None
    assert not model.guesses.any()
    more, _ = add_items(model, item_table(cold, [0, 1, 2]))
    more.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    np.testing.assert_array_equal(
        np.flatnonzero(loaded.guesses), len(model.item_ids) + np.arange(3)
    )
    fewer, _ = remove_items(loaded, [model.item_ids[0], cold.ratings.items[1]])
    np.testing.assert_array_equal(
        np.flatnonzero(fewer.guesses), len(model.item_ids) - 1 + np.arange(2)
    )
    why = more.explain({"age": 30}, cold.ratings.items[0])
    assert "popularity (estimated)" in why["contributions"]
    assert "popularity" in more.explain({"age": 30}, model.item_ids[0])["contributions"]


def test_more_favourites_raise_a_level_and_fewer_lower_it(model, parts):
    table = item_table(parts[1], [0])
    users = [model.user_ids[row] for row in range(20)]

    def level(rating):
        given = {"user_id": users, "item_id": table["item_id"] * 20, "rating": [rating] * 20}
        return int(add_items(model, table, given)[0].items.levels_of()[-1])

    by_content = int(add_items(model, table)[0].items.levels_of()[-1])
    assert level(1.0) < by_content < level(5.0)


def test_levels_are_right_on_average_over_favourites(rng):
    guess = 0.1 + 0.1 * rng.random(500)
    truth = guess * rng.gamma(2, 0.5, 500) + 0.01
    lifted = {}
    for explained in (0, 0.3):
        left = np.array([[(1 - explained) * np.var(truth)]])
        lifted[explained] = _lift_gains(guess, _Prediction(guess, guess[:, None], left, 1.0), truth)
        means = [np.average(levels, weights=truth**2) for levels in (lifted[explained], truth)]
        np.testing.assert_allclose(*means)
    np.testing.assert_allclose(np.ptp(lifted[0] - guess), 0, atol=1e-12)  # the same for all
    assert np.ptp(lifted[0]) < np.ptp(lifted[0.3])


def test_an_item_of_which_nothing_is_known_has_the_level_of_a_mean_favourite(parts):
    ratings, users = (
        parts[0].ratings,
        parts[0].users.append_column("user_id", parts[0].ratings.users.values),
    )
    bare = MFDCF(n_bits=32).fit(Dataset.from_tables(rating_table(parts[0]), users))
    assert len(bare.item_ids) == len(ratings.items)
    more, _ = add_items(bare, {"item_id": ["new"]})
    gains = more.items.gains[more.items.levels_of()].astype(np.float64)
    expected = np.average(gains[:-1], weights=gains[:-1] ** 2)
    np.testing.assert_allclose(gains[-1], expected, atol=gains[-1] / 50)


def test_first_ratings_move_a_code_as_a_posterior(rng):
    """Compare with Bayes' rule for normal distributions, item by item."""
    vectors = rng.standard_normal((9, 3)).astype(np.float32)
    worth = csr_array(np.array([[1, 1, 0, 1, 0, 0, 0, 1, 0], [0] * 9], np.float32))
    x, gains = rng.standard_normal((2, 3)).astype(np.float32), np.array([0.5, 0.2])
    left = np.cov(rng.standard_normal((3, 20)))
    fitted = _Fitted(
        np.arange(4), gains, np.ones(4), np.ones((4, 3)), np.zeros(3, np.float32), np.eye(3), 3.0
    )
    shown = _mean_vectors(worth, vectors, gains, fitted)
    said = _Prediction(x, x, 5 * left, 1.0)
    moved, known_more = _posterior(said, gains, *shown, 1.0, float(np.trace(left)))
    z = 0.5 * vectors[[0, 1, 3, 7]].mean(axis=0)
    expected = x[0] + left @ np.linalg.solve(left + 0.25 / 4 * np.eye(3), z - x[0])
    np.testing.assert_allclose(moved[0], expected, rtol=1e-4)
    np.testing.assert_allclose(moved[1], x[1], rtol=1e-6)
    after = np.linalg.inv(np.linalg.inv(left) + 4 / 0.25 * np.eye(3))
    np.testing.assert_allclose(known_more, [np.trace(left - after), 0], rtol=1e-4)


def test_the_ridge_on_content_is_weighted_and_leaves_one_out(rng):
    """Compare with the normal equations, with an intercept, of all items but one."""
    known, wanted = rng.random((40, 3)).astype(np.float32), rng.random((5, 3)).astype(np.float32)
    T = known @ rng.standard_normal((3, 2)) + 0.1 * rng.standard_normal((40, 2))
    weights = rng.random(40) + 0.2
    weights /= weights.mean()
    T = (T - np.average(T, axis=0, weights=weights)).astype(np.float32)

    def regress(rows, ridge, wanted):
        X, w = np.c_[np.ones(len(rows)), known[rows]], weights[rows, None]
        solved = np.linalg.solve(X.T @ (X * w) + np.diag([0, *[ridge] * 3]), X.T @ (T[rows] * w))
        return np.c_[np.ones(len(wanted)), wanted] @ solved

    def leave_out(ridge):
        every = np.arange(40)
        return np.vstack([regress(np.delete(every, i), ridge, known[[i]]) for i in every])

    found, left_out = _ContentMap(csr_array(known), csr_array(wanted))._ridge(T, weights)
    best = min(RIDGES, key=lambda ridge: ((leave_out(ridge) - T) ** 2).sum(axis=1) @ weights)
    np.testing.assert_allclose(left_out, leave_out(best), atol=1e-4)
    np.testing.assert_allclose(found, regress(np.arange(40), best, wanted), atol=1e-4)


@pytest.mark.parametrize("name", ["mfdcf", "ridge", "popularity", "cbfknn"])
def test_removed_items_are_gone(name, parts, tmp_path):
    model = MODELS[name]().fit(parts[0])
    gone = [model.item_ids[0], model.item_ids[7]]
    less, change = remove_items(model, gone)
    assert change.items_removed == gone
    assert len(less.item_ids) == 133
    before = model.recommend(user_ids=[model.user_ids[3]], k=130, exclude=gone).item_ids
    assert less.recommend(user_ids=[model.user_ids[3]], k=130).item_ids == before
    less.save(tmp_path / "m")
    same_answers(less, load(tmp_path / "m"))


def test_users_change_and_come(model, parts, tmp_path):
    data = parts[0]
    known, item = data.ratings.users[0], model.item_ids[5]
    users = {"user_id": [known, "new"], "age": [70, 20], "gender": ["male", "female"]}
    ratings = {"user_id": ["new", "new"], "item_id": [item, model.item_ids[6]], "rating": [5, 4]}
    changed, change = update_users(model, users, ratings)
    assert (change.users_changed, change.users_added) == ([known], ["new"])
    expected = model.encode(
        [
            {"age": 70, "gender": "male"},
            {"age": 20, "gender": "female", "history": {item: 5, model.item_ids[6]: 4}},
        ]
    ).vectors
    rows = changed.user_ids.rows([known, "new"])
    np.testing.assert_array_equal(changed.user_vectors[rows], expected)
    np.testing.assert_array_equal(changed.user_vectors[1:-1], model.user_vectors[1:])
    answer = changed.recommend(user_ids=["new", known], k=135).item_ids
    assert not {item, model.item_ids[6]} & set(answer[0])
    rated = {model.item_ids[i] for i in data.ratings.matrix[[0]].indices}
    assert not rated & set(answer[1])
    changed.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.recommend(user_ids=["new"], k=9).item_ids[0] == answer[0][:9]
    twice, _ = update_users(loaded, users, ratings)
    np.testing.assert_array_equal(twice.user_vectors, changed.user_vectors)


def test_mistakes_with_users_are_named(model):
    with pytest.raises(SettingError, match="nothing to update"):
        update_users(model)
    with pytest.raises(UnknownId, match=r"'x' is rated.*add_items"):
        update_users(model, ratings={"user_id": ["a"], "item_id": ["x"], "rating": [3]})


def test_refresh_starts_from_the_present_codes(parts):
    whole = read("sample", n_users=400, n_items=150)
    settings = MFDCF(n_bits=40, ridge=30.0, fit_weight=1.0, tolerance=0.0)
    model = settings.fit(parts[0])
    fresh, change = refresh(model, whole)
    assert set(change.items_added) == set(parts[1].ratings.items)
    assert list(fresh.item_ids)[:135] == list(model.item_ids)
    assert list(fresh.user_ids) == list(model.user_ids)
    assert fresh.settings == model.settings
    flipped = (fresh.items.rows(np.arange(135)) != model.items.rows()).sum()
    assert change.bits_changed == flipped
    assert flipped < 0.25 * 135 * 32  # a fit from the start shares no bits but by chance: a half
    start = replace(settings, n_rounds=3).fit(whole)
    assert fresh.report["objective"][0] < start.report["objective"][0]
    assert len(fresh.report["objective"]) == 3


def test_refresh_drops_what_is_no_longer_there(model, parts):
    data = parts[0].of_users(np.arange(10, 380)[::-1]).of_items(np.arange(100))
    fresh, change = refresh(model, data, n_rounds=1)
    assert list(fresh.item_ids) == list(model.item_ids)[:100]
    assert list(fresh.user_ids) == [model.user_ids[row] for row in range(10, 380)]
    assert change.items_removed == list(model.item_ids)[100:]
    assert len(change.users_removed) == 30
    with pytest.raises(SettingError, match="fit again"):
        refresh(MODELS["ridge"]().fit(parts[0]), data)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_codes_of_other_methods_take_no_new_items(parts):
    model = MODELS["itq"](n_bits=8).fit(parts[0])
    assert model.has_codes
    with pytest.raises(SettingError, match=r"itq\+map.*hint: fit MFDCF"):
        add_items(model, {"item_id": ["x"]})
    with pytest.raises(SettingError, match=r"itq\+map.*hint: fit MFDCF"):
        refresh(model, parts[0])
