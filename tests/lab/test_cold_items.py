from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

from coldhash import MFDCF, read, split_cold_items
from coldhash.baselines.shared import favourite_matrix
from coldhash.errors import DataError
from coldhash.lab.cold_items import (
    item_accuracy_at,
    model_scores,
    score_by_category,
    score_by_neighbours,
    score_by_ridge,
)
from coldhash.update import add_items


@pytest.fixture(scope="module")
def parts():
    return split_cold_items(read("sample", n_users=300, n_items=200), share=0.2, seed=0)


def test_accuracy_against_counting_by_hand(parts, rng):
    cold = parts[1]
    shape = cold.ratings.matrix.shape
    scores = rng.integers(0, 6, shape).astype(np.float32)  # many ties
    others = rng.integers(0, 6, (shape[0], 3)).astype(np.float32)
    others[:, 0] = -np.inf
    favourites = favourite_matrix(cold).toarray() > 0
    free = ~(cold.ratings.matrix.toarray() > 0)
    chances = []
    for user, item in zip(*np.nonzero(favourites), strict=True):
        rivals = np.concatenate([scores[user][free[user]], others[user]])
        above, tied = (rivals > scores[user, item]).sum(), (rivals == scores[user, item]).sum()
        chances.append(min(max((3 - above) / (tied + 1), 0), 1))
    assert item_accuracy_at(3, scores, cold, others) == pytest.approx(np.mean(chances))
    assert item_accuracy_at(1, favourites.astype(np.float32), cold) == 1
    with pytest.raises(DataError, match="finite"):
        item_accuracy_at(1, scores * np.nan, cold)
    with pytest.raises(DataError, match="shape"):
        item_accuracy_at(1, scores[:, 1:], cold)


def test_neighbours_by_hand():
    known = csr_array(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    wanted = csr_array(np.eye(2))
    liked = csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    for peer, expected in (
        (partial(score_by_neighbours, power=2.0), [[2, 0], [0, 1]]),
        (partial(score_by_neighbours, k=1, power=2.0, form="user"), [[1, 0], [0, 1]]),
        (partial(score_by_neighbours, k=2, power=2.0, form="mean"), [[1, 0], [0, 1]]),
        (score_by_category, [[1, 1], [1, 1]]),
    ):
        np.testing.assert_allclose(peer(liked, known, wanted), expected, atol=1e-6)


def test_ridge_is_that_of_the_normal_equations(rng):
    known, wanted = rng.random((30, 4)), rng.random((5, 4))
    liked = (rng.random((6, 30)) < 0.3).astype(np.float32)
    centred = known - known.mean(axis=0)
    weights = np.linalg.solve(centred.T @ centred + 2 * np.eye(4), centred.T @ liked.T)
    expected = (wanted - known.mean(axis=0)) @ weights + liked.mean(axis=1)
    scores = score_by_ridge(*map(csr_array, (liked, known, wanted)), 2.0)
    np.testing.assert_allclose(scores, expected.T, atol=1e-6)


@pytest.fixture(scope="module")
def more(parts):
    """A model that was told of the cold items."""
    train, cold = parts
    new = cold.items.append_column("item_id", cold.ratings.items.values)
    return add_items(MFDCF(n_bits=32).fit(train), new)[0]


@pytest.mark.parametrize(("by_code", "score"), [(False, "real"), (True, "hamming")])
def test_scores_are_those_by_which_the_model_recommends(parts, more, by_code, score):
    cold = parts[1]
    people = more.encode(user_ids=list(cold.ratings.users))
    expected = more.score(people, score)[:, more.item_ids.rows(list(cold.ratings.items))]
    found = model_scores(more, list(cold.ratings.users), list(cold.ratings.items), by_code)
    np.testing.assert_array_equal(found, expected)


def test_content_beats_chance(parts, more):
    cold = parts[1]
    users, items = list(cold.ratings.users), list(cold.ratings.items)
    chance = item_accuracy_at(5, np.zeros(cold.ratings.matrix.shape), cold)
    assert item_accuracy_at(5, model_scores(more, users, items), cold) > 1.2 * chance
    by_code = model_scores(more, users, items, by_code=True)
    assert item_accuracy_at(5, by_code, cold) > 1.1 * chance
