"""The item side: codes with levels, their scores, and what a model file keeps of them."""

from __future__ import annotations

import numpy as np
import pytest

from coldhash.arrays.codes import signs
from coldhash.errors import DataError, ModelFileError
from coldhash.recommender.items import CodeItems, RealItems, Search, restore_items

N = 300


@pytest.fixture
def counts(rng):
    return rng.integers(20, size=N)


@pytest.fixture
def items(rng, counts):
    codes = signs(rng.standard_normal((N, 24)))
    levels = rng.integers(256, size=N).astype(np.uint8)
    gains = np.linspace(0, 1, 256, dtype=np.float32)
    return CodeItems.of_codes(codes, counts, levels, gains, np.arange(256, dtype=np.int32) // 16)


@pytest.fixture
def vectors(rng):
    return rng.standard_normal((7, 24)).astype(np.float32)


@pytest.mark.parametrize("popularity", [0, 0.3, 1])
@pytest.mark.parametrize("by_code", [False, True])
def test_scores_are_those_of_the_best(items, vectors, popularity, by_code):
    rows, best = items.best(vectors, N, Search(by_code=by_code, popularity=popularity))
    scores = items.scores(vectors, popularity, by_code)
    np.testing.assert_allclose(np.take_along_axis(scores, rows, axis=1), best, atol=1e-5)
    gains = items.levels_of() / 255
    if by_code:
        vectors = signs(vectors) * np.abs(vectors).mean(axis=1, keepdims=True) / 2
        expected = popularity * gains + vectors @ items.rows().T
    else:
        power = popularity / 2
        base = 2 * popularity / (1 + power) * gains
        expected = gains**power * (base + vectors @ items.rows().T)
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_the_popular_go_by_level_then_by_count(items, counts):
    expected = np.lexsort((np.arange(N), -counts, -items.levels_of().astype(int)))
    rows, _ = items.best(np.zeros((2, items.width), np.float32), N)
    np.testing.assert_array_equal(rows, [expected] * 2)
    np.testing.assert_array_equal(items.order, expected)


def test_a_level_takes_a_byte(items, counts):
    assert items.bytes_per_item == 4
    assert CodeItems.of_codes(items.rows(), counts).bytes_per_item == 3
    assert CodeItems.of_codes(items.rows(), counts).levels is None


def test_some_rows_and_more_rows_keep_their_levels(items, counts, rng):
    rows = rng.permutation(N)[:50]
    some = items.select(rows, counts[rows])
    np.testing.assert_array_equal(some.levels_of(), items.levels_of(rows))
    rest = np.setdiff1d(np.arange(N), rows)
    both = np.concatenate([rows, rest])
    again = some.select(np.arange(50), counts[both], items.rows(rest), items.levels_of(rest))
    np.testing.assert_array_equal(again.levels_of(), items.levels_of(both))
    np.testing.assert_array_equal(again.rows(), items.rows(both))


def test_items_come_back_from_their_arrays(items, counts, vectors):
    again = restore_items(items.arrays(), items.n_bits, True, counts)
    np.testing.assert_array_equal(again.levels_of(), items.levels_of())
    for by_code in (False, True):
        for mine, theirs in zip(
            items.best(vectors, 20, Search(by_code=by_code, popularity=0.5)),
            again.best(vectors, 20, Search(by_code=by_code, popularity=0.5)),
            strict=True,
        ):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("levels", lambda array: array[1:]),
        ("levels", lambda array: array.astype(np.int64)),
        ("gains", lambda array: array[::-1].copy()),
        ("gains", lambda array: array - 1),
        ("gains", lambda array: array * np.float32(np.nan)),
        ("gains", lambda array: array.astype(np.float64)),
        ("gains", lambda array: array[:255]),
        ("steps", lambda array: array[::-1].copy()),
        ("steps", lambda array: array - 1),
        ("steps", lambda array: array + 10_000),
        ("steps", lambda array: array.astype(np.float32)),
    ],
)
def test_levels_of_a_wrong_form_are_refused(items, counts, name, spoil):
    arrays = items.arrays()
    arrays[name] = spoil(arrays[name])
    with pytest.raises((DataError, ModelFileError), match=name):
        restore_items(arrays, items.n_bits, True, counts)


def test_a_missing_table_is_refused(items, counts):
    for name in ("gains", "steps"):
        arrays = items.arrays()
        del arrays[name]
        with pytest.raises(ModelFileError, match=name):
            restore_items(arrays, items.n_bits, True, counts)


def test_real_vectors_have_no_level(rng, counts, vectors):
    items = RealItems(rng.standard_normal((N, 24)), counts)
    np.testing.assert_array_equal(items.scores(vectors, 0.5), items.scores(vectors))
    np.testing.assert_array_equal(
        items.best(vectors, 5, Search(popularity=0.5))[0], items.best(vectors, 5)[0]
    )
