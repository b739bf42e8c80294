from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from coldhash import Ids
from coldhash.errors import DataError
from coldhash.features.people import as_columns, read_histories

ITEMS = Ids.of(["a", "b", "7"], "item")


def as_array(rows):
    return csr_array((rows.data, rows.indices, rows.indptr), rows.shape).toarray()


def test_histories_become_ratings_and_unknown_items_are_reported():
    found = read_histories([{"a": 5, 7: 1}, None, {"new": 3, "b": 2.5}], 3, ITEMS, (1, 5))
    np.testing.assert_array_equal(as_array(found.ratings), [[5, 0, 1], [0, 0, 0], [0, 2.5, 0]])
    assert found.ignored == [(2, "new")]


@pytest.mark.parametrize("nothing", [None, [], [None, {}]])
def test_no_history_at_all(nothing):
    assert read_histories(nothing, 2, ITEMS, (1, 5)).ratings is None


@pytest.mark.parametrize("value", [0, 5.5, float("nan"), float("inf"), "5", None, -1])
def test_a_rating_outside_the_scale_is_an_error(value):
    with pytest.raises(DataError, match=r"item 'a'.*from 1 to 5"):
        read_histories([{"a": value}], 1, ITEMS, (1, 5))


def test_histories_of_a_json_table():
    column = pa.chunked_array([pa.array([{"a": 5, "b": None}, None, {"a": None, "b": 2}])])
    found = read_histories(column, 3, ITEMS, (1, 5))
    np.testing.assert_array_equal(as_array(found.ratings), [[5, 0, 0], [0, 0, 0], [0, 2, 0]])


@pytest.mark.parametrize(
    "column",
    [
        [["b", 7, "b", "new"], None, {"a": 3}],
        [("b", "7", "new"), {}, {"a": 3}],
    ],
)
def test_an_item_of_a_list_has_no_rating(column):
    found = read_histories(column, 3, ITEMS, (1, 5))
    np.testing.assert_array_equal(found.ratings.indptr, [0, 2, 2, 3])
    assert sorted(found.ratings.indices[:2]) == [1, 2]
    np.testing.assert_array_equal(found.ratings.data, [np.nan, np.nan, 3])
    assert found.ignored == [(0, "new")]


def test_histories_of_a_table_may_be_lists():
    column = pa.chunked_array([pa.array([["a", "b"], None, []])])
    found = read_histories(column, 3, ITEMS, (1, 5))
    np.testing.assert_array_equal(found.ratings.indptr, [0, 2, 2, 2])
    assert np.isnan(found.ratings.data).all()


@pytest.mark.parametrize("history", ["a", 3, b"a"])
def test_something_else_is_no_history(history):
    with pytest.raises(DataError, match="history of type"):
        read_histories([history], 1, ITEMS, (1, 5))


def test_one_person_many_people_and_nobody():
    assert as_columns({"age": 3}) == ({"age": [3]}, 1)
    assert as_columns([{"age": 3}, {"town": "x"}]) == ({"age": [3, None], "town": [None, "x"]}, 2)
    assert as_columns([]) == ({}, 0)
    with pytest.raises(DataError, match="not a person"):
        as_columns([3])
