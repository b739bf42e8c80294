from __future__ import annotations

import numpy as np
import pytest

from coldhash import MFDCF, Dataset, read, split_cold_items
from coldhash.errors import DataError, SettingError
from coldhash.lab.cold_items import (
    ContentNeighbours,
    choose_neighbours,
    content_similarity,
    item_accuracy_at,
    make_item_trial,
    model_scores,
)
from coldhash.update import add_items


@pytest.fixture(scope="module")
def parts():
    return split_cold_items(read("sample", n_users=300, n_items=200), share=0.2, seed=0)


def test_candidates_are_rated_by_others_only(parts):
    cold = parts[1]
    trial = make_item_trial(cold)
    rated = cold.ratings.matrix.toarray() > 0
    free = ~rated & rated.any(axis=0)
    few = make_item_trial(cold, n_candidates=5, seed=1)
    assert few.candidates.shape == (300, 5)
    for own, drawn, some in zip(free, trial.candidates, few.candidates, strict=True):
        assert sorted(drawn[drawn >= 0]) == list(np.flatnonzero(own))
        assert own[some[some >= 0]].all()
    again = make_item_trial(cold, n_candidates=5, seed=1)
    np.testing.assert_array_equal(few.candidates, again.candidates)
    with pytest.raises(SettingError, match="n_candidates"):
        make_item_trial(cold, n_candidates=0)


def test_accuracy_against_counting_by_hand(parts, rng):
    cold = parts[1]
    trial = make_item_trial(cold)
    scores = rng.integers(0, 6, trial.favourites.shape).astype(np.float32)  # many ties
    chances = []
    for user in range(len(scores)):
        for item in trial.favourites[[user]].indices:
            others = scores[user][trial.candidates[user][trial.candidates[user] >= 0]]
            above, tied = (others > scores[user, item]).sum(), (others == scores[user, item]).sum()
            chances.append(min(max((3 - above) / (tied + 1), 0), 1))
    assert item_accuracy_at(3, scores, trial) == pytest.approx(np.mean(chances))
    perfect = np.zeros_like(scores)
    owners = np.repeat(np.arange(len(scores)), np.diff(trial.favourites.indptr))
    perfect[owners, trial.favourites.indices] = 1
    assert item_accuracy_at(1, perfect, trial) == 1
    with pytest.raises(DataError, match="finite"):
        item_accuracy_at(1, perfect * np.nan, trial)
    with pytest.raises(DataError, match="shape"):
        item_accuracy_at(1, perfect[:, 1:], trial)


def small(items, ratings):
    users, rated = zip(*ratings, strict=True)
    return Dataset.from_tables(
        {"user_id": users, "item_id": rated, "rating": np.full(len(rated), 5.0)},
        None,
        {"item_id": list(items), "genres": list(items.values())},
        scale=(0.0, 5.0),
    )


def test_neighbours_by_hand():
    genres = {"a": "x", "b": "x", "c": "y", "new x": "x", "new y": "y"}
    given = [("u", "a"), ("u", "b"), ("v", "c"), ("u", "new y"), ("v", "new x")]
    data = small({name: f"{g}|{g}" for name, g in genres.items()}, given)
    train, cold = data.of_items(np.arange(3)), data.of_items(np.array([3, 4]))
    similarity = content_similarity(train, cold)
    for k, of_user, expected in (
        (None, False, [[2, 0], [0, 1]]),
        (1, True, [[1, 0], [0, 1]]),
        (2, False, [[2, 0], [0, 1]]),
    ):
        scores = ContentNeighbours(k, 2.0, of_user).scores(train, cold)
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert similarity.shape == (2, 3)


def test_no_rating_of_a_cold_item_is_needed(parts):
    train, cold = parts
    chosen = choose_neighbours(train)
    empty = cold.with_ratings(cold.ratings.where(np.zeros(len(cold.ratings), dtype=bool)))
    np.testing.assert_array_equal(chosen.scores(train, cold), chosen.scores(train, empty))


@pytest.fixture(scope="module")
def more(parts):
    """A model that was told of the cold items."""
    train, cold = parts
    new = cold.items.append_column("item_id", cold.ratings.items.values)
    return add_items(MFDCF(n_bits=32, new_items=True).fit(train), new)[0]


@pytest.mark.parametrize(("by_code", "score"), [(False, "real"), (True, "hamming")])
def test_scores_are_those_by_which_the_model_recommends(parts, more, by_code, score):
    cold = parts[1]
    people = more.encode(user_ids=list(cold.ratings.users))
    expected = more.score(people, score)[:, more.item_ids.rows(list(cold.ratings.items))]
    np.testing.assert_array_equal(model_scores(more, cold, by_code), expected)


def test_content_beats_chance(parts, more):
    cold = parts[1]
    trial = make_item_trial(cold)
    chance = item_accuracy_at(5, np.zeros(trial.favourites.shape), trial)
    assert item_accuracy_at(5, model_scores(more, cold), trial) > 1.2 * chance
    assert item_accuracy_at(5, model_scores(more, cold, by_code=True), trial) > 1.1 * chance
