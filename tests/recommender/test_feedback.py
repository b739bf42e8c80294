"""Models of negative scales, of counts and of events, and histories without ratings."""

from __future__ import annotations

import numpy as np
import pytest

from coldhash import MFDCF, MODELS, Dataset, Ratings, load, read
from coldhash.data.feedback import Feedback
from coldhash.errors import DataError
from coldhash.evaluate import make_trial
from coldhash.recommender.recommender import Recommender
from coldhash.update import add_items, update_users

pytestmark = pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
BITS = {"n_bits": 16}


@pytest.fixture(scope="module")
def stars() -> Dataset:
    return read("sample", n_users=160, n_items=60)


def with_values(data: Dataset, values: np.ndarray) -> Dataset:
    """The same data with other ratings, nothing declared."""
    matrix = data.ratings.matrix.copy()
    matrix.data = values.astype(np.float32)
    return data.with_ratings(Ratings(matrix, data.user_ids, data.item_ids))


@pytest.fixture(scope="module")
def below_zero(stars) -> Dataset:
    return with_values(stars, stars.ratings.matrix.data * 5 - 15)  # -10 to 10


@pytest.fixture(scope="module")
def counts(stars) -> Dataset:
    return with_values(stars, np.random.default_rng(0).geometric(0.3, len(stars.ratings)))


def settings(name: str):
    return MODELS[name](**(BITS if "n_bits" in MODELS[name].__dataclass_fields__ else {}))


@pytest.mark.parametrize("name", MODELS)
def test_every_method_takes_a_negative_scale_and_items_without_ratings(name, below_zero):
    model = settings(name).fit(below_zero)
    assert model.scale == (-10, 10)
    person = below_zero.users.slice(0, 1).to_pylist()[0]
    first, second = model.item_ids[0], model.item_ids[1]
    for history in ({first: -9.5, second: 10}, [first, second], [first, "unknown"], []):
        found = model.recommend([person | {"history": history}, {"history": history}], k=5)
        assert np.isfinite(found.scores).all()
        assert first not in found.item_ids[0] or not history
    with pytest.raises(DataError, match="from -10 to 10"):
        model.recommend({"history": {first: -11}})


def test_favourites_do_not_depend_on_where_the_scale_begins(stars, below_zero):
    def popularity(data):
        return MODELS["popularity"]().fit(data).popularity

    shifted = below_zero.with_feedback(favourite=5)  # 4 stars
    np.testing.assert_array_equal(popularity(shifted), popularity(stars))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mfdcf"])
def test_how_often_does_not_matter_to_baselines(name, counts):
    once = with_values(counts, np.ones(len(counts.ratings)))
    one, two = (settings(name).fit(data) for data in (counts, once))
    people = [{"age": 31}, {"gender": "female", "occupation": "nurse"}]
    np.testing.assert_array_equal(one.score(one.encode(people)), two.score(two.encode(people)))


@pytest.mark.parametrize("level", [True, False])
def test_counts_are_all_favourites_and_say_nothing_about_dislikes(counts, level, tmp_path):
    assert counts.feedback.kind == "counts"
    model = MFDCF(n_bits=24, level=level).fit(counts)
    np.testing.assert_array_equal(model.popularity, counts.ratings.per_item)
    assert model.encoder.history.spread == 0
    first = model.item_ids[0]
    often, once, bought = (
        model.encode({"history": history}).vectors
        for history in ({first: 5000}, {first: 1}, [first])
    )
    np.testing.assert_array_equal(often, once)
    np.testing.assert_array_equal(bought, once)
    model.save(tmp_path / "m.coldhash")
    loaded = load(tmp_path / "m.coldhash")
    assert loaded.feedback == model.feedback == counts.feedback


def test_updates_follow_the_kind_and_the_rule_of_the_model(stars, counts):
    bought = {"user_id": ["new", "new"], "item_id": [1, 1]}
    _, change = update_users(MFDCF(n_bits=24).fit(counts), ratings=bought)
    assert change.users_added == ["new"]
    strict = MFDCF(n_bits=24).fit(stars.with_feedback(favourite=5))
    rated = {
        "user_id": list(strict.user_ids)[:3],
        "item_id": ["brand new"] * 3,
        "rating": [3, 4, 5],
    }
    more, _ = add_items(strict, {"item_id": ["brand new"]}, rated)
    assert more.popularity[-1] == 1


def test_the_rule_holds_for_training_and_for_evaluation(stars):
    data = stars.with_feedback(favourite=5)
    ratings = data.ratings
    above = ratings.matrix.data >= 5
    expected = np.bincount(ratings.matrix.indices[above], minlength=len(ratings.items))
    model: Recommender = MODELS["popularity"]().fit(data)
    np.testing.assert_array_equal(model.popularity, expected)
    assert model.feedback == Feedback("ratings", 5, data.scale)
    for n_given in (0, 5):
        trial = make_trial(data, data, n_given=n_given)
        assert (trial.given.nnz > 0) == (n_given > 0)
        for user in range(len(ratings.users)):
            own = set(trial.favourites[[user]].indices)
            liked = ratings.where(above).matrix[[user]].indices
            assert own == set(liked) - set(trial.given[[user]].indices)
