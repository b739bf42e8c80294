"""What every model promises: `check_*` functions, applied to all of MODELS by one test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Fit:
    """A model, what its callback was told, and whether the ratings were changed."""

    model: Recommender
    told: list[tuple[int, float]]
    data: Dataset  # held: ids are not reused
    left_alone: bool


_FITS: dict[tuple[str, int], Fit] = {}


def fit_once(settings, data: Dataset) -> Fit:
    """Fit with two threads, once for all checks."""
    key = (repr(settings), id(data))
    if key not in _FITS:
        told: list[tuple[int, float]] = []
        before = data.ratings.matrix.copy()
        with threads(2):
            model = settings.fit(data, seed=0, callback=lambda *progress: told.append(progress))
        after = data.ratings.matrix
        left_alone = (before != after).nnz == 0 and before.nnz == after.nnz
        _FITS[key] = Fit(model, told, data, left_alone)
    return _FITS[key]


def fitted(settings, data: Dataset) -> Recommender:
    return fit_once(settings, data).model


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Compute with a number of threads; with two afterwards."""
    set_num_threads(n)
    try:
        with threadpool_limits(n, "blas"):
            yield
    finally:
        set_num_threads(2)


def saved(model: Recommender) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.coldhash")
        return Path(f"{folder}/m.coldhash").read_bytes()


def check_same_seed_same_model(settings, data: Dataset) -> None:
    one = fitted(settings, data)
    with threads(2):
        two = settings.fit(data, seed=0)
    same(one, two)
    assert saved(one) == saved(two)


def check_threads_do_not_matter(settings, data: Dataset) -> None:
    together = fitted(settings, data)
    with threads(1):
        alone = settings.fit(data, seed=0)
    same(alone, together)
    assert saved(alone) == saved(together)


def check_the_data_is_left_alone(settings, data: Dataset) -> None:
    assert fit_once(settings, data).left_alone


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
        scores = model.score(encoded)[0]
        order = np.argsort(-model.popularity, kind="stable")
        assert (np.diff(scores[order]) <= 0).all()  # in the order of popularity
        found = model.recommend(nobody, k=len(order))
        np.testing.assert_array_equal(model.item_ids.rows(found.item_ids[0]), order)


def check_scores_are_finite_numbers(settings, data: Dataset) -> None:
    model = fitted(settings, data)
    scores = model.score(model.encode(PEOPLE))
    assert scores.shape == (len(PEOPLE), len(data.ratings.items))
    assert np.isfinite(scores).all()


def check_progress_is_told(settings, data: Dataset) -> None:
    told = fit_once(settings, data).told
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
