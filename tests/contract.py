"""What every model promises: `check_*` functions, applied to all of MODELS by one test."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numba import set_num_threads
from threadpoolctl import threadpool_limits

from coldhash import Dataset, load
from coldhash.recommender.recommender import Recommender

PEOPLE = [
    {},
    {"age": 31},
    {"gender": "female", "occupation": "nurse"},
    {"age": 62, "gender": "male", "occupation": "driver", "city": "Elsk"},
    {"age": None, "gender": "", "city": float("nan"), "occupation": "never heard of"},
]


def vectors(model: Recommender) -> np.ndarray:
    """The items' codes or vectors, dense."""
    if model.has_codes:
        return model.items.rows()
    held = model.items.vectors
    return held if isinstance(held, np.ndarray) else held.toarray()


def same(one: Recommender, two: Recommender) -> None:
    np.testing.assert_array_equal(vectors(one), vectors(two))
    np.testing.assert_array_equal(one.user_vectors, two.user_vectors)
    np.testing.assert_array_equal(one.encode(PEOPLE).vectors, two.encode(PEOPLE).vectors)


_FITTED: dict[tuple[str, int], tuple[Dataset, Recommender]] = {}


def fitted(settings, data: Dataset) -> Recommender:
    """Fit once for all checks that only look at the model."""
    key = (repr(settings), id(data))
    if key not in _FITTED:
        _FITTED[key] = (data, settings.fit(data, seed=0))  # the data are held: ids are not reused
    return _FITTED[key][1]


def saved(model: Recommender) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.coldhash")
        return Path(f"{folder}/m.coldhash").read_bytes()


def check_same_seed_same_model(settings, data: Dataset) -> None:
    one, two = settings.fit(data, seed=5), settings.fit(data, seed=5)
    same(one, two)
    assert saved(one) == saved(two)


def check_threads_do_not_matter(settings, data: Dataset) -> None:
    set_num_threads(1)
    with threadpool_limits(1, "blas"):
        alone = settings.fit(data, seed=1)
    set_num_threads(2)
    with threadpool_limits(2, "blas"):
        together = settings.fit(data, seed=1)
    same(alone, together)
    assert saved(alone) == saved(together)


def check_the_data_is_left_alone(settings, data: Dataset) -> None:
    before = data.ratings.matrix.copy()
    settings.fit(data, seed=0)
    assert (before != data.ratings.matrix).nnz == 0
    assert before.nnz == data.ratings.matrix.nnz


def check_codes_are_plus_and_minus_one(settings, data: Dataset) -> None:
    model = fitted(settings, data)
    if model.has_codes:
        assert set(np.unique(vectors(model))) == {-1, 1}
    assert len(model.items) == len(data.ratings.items)
    assert model.user_vectors.shape[0] == len(data.ratings.users)


def check_nobody_depends_on_the_batch(settings, data: Dataset) -> None:
    model = fitted(settings, data)
    people = [dict(person, history={"3": 5, "9": 2}) for person in PEOPLE] + PEOPLE
    together = model.encode(people)
    scores = model.score(together)
    for row, person in enumerate(people):
        alone = model.encode(person)
        np.testing.assert_array_equal(alone.vectors[0], together.vectors[row])
        assert alone.fallback[0] == together.fallback[row]
        np.testing.assert_array_equal(model.score(alone)[0], scores[row])


def check_what_is_missing_might_as_well_not_be_there(settings, data: Dataset) -> None:
    model = fitted(settings, data)
    for person in PEOPLE:
        padded = {"age": None, "gender": None, "occupation": "", "city": None} | person
        np.testing.assert_array_equal(model.encode(person).vectors, model.encode(padded).vectors)


def check_nobody_gets_popularity(settings, data: Dataset) -> None:
    model = fitted(settings, data)
    for nobody in ({}, {"age": None, "gender": "", "history": {}}, {"occupation": "unheard of"}):
        encoded = model.encode(nobody)
        assert encoded.fallback.all()
        np.testing.assert_array_equal(model.score(encoded)[0], model.popularity)


def check_scores_are_finite_numbers(settings, data: Dataset) -> None:
    model = fitted(settings, data)
    scores = model.score(model.encode(PEOPLE))
    assert scores.shape == (len(PEOPLE), len(data.ratings.items))
    assert np.isfinite(scores).all()


def check_progress_is_told(settings, data: Dataset) -> None:
    told: list[tuple[int, float]] = []
    settings.fit(data, seed=0, callback=lambda n, objective: told.append((n, objective)))
    assert [n for n, _ in told] == list(range(len(told)))
    assert all(np.isfinite(objective) for _, objective in told)


def check_a_saved_model_is_the_same_model(settings, data: Dataset) -> None:
    model = fitted(settings, data)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.coldhash")
        loaded = load(f"{folder}/m.coldhash")
        same(model, loaded)
        people = [dict(person, history={"3": 5, "9": 2}) for person in PEOPLE] + PEOPLE
        before, after = model.recommend(people, k=5), loaded.recommend(people, k=5)
        assert before.item_ids == after.item_ids
        np.testing.assert_array_equal(before.scores, after.scores)
        user_id = data.ratings.users[7]
        known = loaded.recommend(user_ids=[user_id], k=5).item_ids[0]
        assert known == model.recommend(user_ids=[user_id], k=5).item_ids[0]
        rated = data.ratings.matrix[[7]].indices
        assert not set(loaded.item_ids.rows(known)) & set(rated)


CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]
