from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash import Ids
from coldhash.data.ids import _FEW, as_text
from coldhash.errors import DataError, UnknownId

fast = settings(max_examples=60, deadline=None)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
numbers = st.integers(-(2**63), 2**64 - 1)
distinct = st.lists(texts, unique=True, max_size=3 * _FEW)


@fast
@given(distinct)
def test_ids_find_their_own_rows(values):
    ids = Ids.of(values)
    assert list(ids) == values
    assert [ids[row] for row in range(len(ids))] == values
    np.testing.assert_array_equal(ids.rows(values), np.arange(len(values)))
    assert all(value in ids for value in values)


@fast
@given(st.lists(st.one_of(texts, numbers), unique_by=str, max_size=2 * _FEW))
def test_numbers_are_their_decimal_spelling(values):
    ids = Ids.of(values)
    assert list(ids) == [str(value) for value in values]
    np.testing.assert_array_equal(ids.rows(map(str, values)), ids.rows(values))


@fast
@given(distinct, st.lists(texts, max_size=2 * _FEW))
def test_one_by_one_and_in_bulk_agree(values, wanted):
    ids = Ids.of(values)
    row_of = {value: row for row, value in enumerate(values)}
    expected = [row_of.get(value, -1) for value in wanted]
    many = wanted * (_FEW // max(len(wanted), 1) + 1)  # more than _FEW: the other path
    assert ids.find(wanted).tolist() == expected
    assert ids.find(many).tolist() == [row_of.get(value, -1) for value in many]
    assert [value in ids for value in wanted] == [row >= 0 for row in expected]


@fast
@given(distinct, st.randoms())
def test_take_is_indexing(values, random):
    rows = random.sample(range(len(values)), random.randint(0, len(values)))
    assert list(Ids.of(values).take(np.array(rows, dtype=np.int64))) == [values[r] for r in rows]


def test_a_row_cannot_be_taken_twice():
    with pytest.raises(DataError, match="'b' is there already"):
        Ids.of(["a", "b"]).take(np.array([1, 0, 1]))


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 2],
        (n for n in (3, 1, 2)),
        np.array([3, 1, 2]),
        np.array([3, 1, 2], dtype=np.uint8),
        np.array([3.0, 1.0, 2.0]),
        np.array(["3", "1", "2"]),
        np.array(["3", 1, "2"], dtype=object),
        pa.array([3, 1, 2]),
        pa.array(["3", "1", "2"], pa.large_string()),
        pa.array(["3", "1", "2"], pa.string_view()),
        pa.array(["3", "1", "2"]).dictionary_encode(),
        pa.chunked_array([["3"], ["1", "2"]]),
    ],
    ids=lambda values: type(values).__name__,
)
def test_every_kind_of_column_gives_the_same_ids(values):
    assert Ids.of(values) == Ids.of(["3", "1", "2"])


def test_leading_zeros_and_spaces_are_part_of_an_id():
    ids = Ids.of(["7", "007", " 7", "7 "])
    np.testing.assert_array_equal(ids.rows([7, "007", " 7", "7 "]), [0, 1, 2, 3])


def test_the_largest_numbers_stay_exact():
    values = np.array([2**64 - 1, 2**63, 2**53 + 1], dtype=np.uint64)
    assert list(Ids.of(values)) == [str(2**64 - 1), str(2**63), str(2**53 + 1)]


@pytest.mark.parametrize("number", [2.0**53, -(2.0**60), 0.5, float("inf")])
def test_a_float_that_may_not_be_the_number_it_was_is_refused(number):
    with pytest.raises(DataError, match=r"row 1: .* is not a valid user id"):
        Ids.of(np.array([1.0, number]), "user")


@pytest.mark.parametrize(
    "values",
    [[1, None], ["a", ""], np.array([1.0, np.nan]), pa.array(["a", None]), pa.array([1.0, None])],
    ids=lambda values: " ".join(repr(values).partition(" object at ")[0].split()),
)
def test_a_missing_id_is_an_error(values):
    with pytest.raises(DataError, match=r"no user id|is not a valid user id"):
        Ids.of(values, "user")


@pytest.mark.parametrize(
    "values",
    [
        [True],
        [1.5],
        [b"x"],
        "abc",
        5,
        None,
        ["\ud800"],
        np.array([[1, 2]]),
        np.array(["2020-01-01"], dtype="datetime64[ns]"),
        np.array([True]),
        pa.array([b"x"]),
        pa.array([[1]]),
    ],
    ids=lambda values: " ".join(repr(values).partition(" object at ")[0].split()),
)
def test_what_is_no_id_is_a_data_error(values):
    with pytest.raises(DataError):
        Ids.of(values)
    with pytest.raises(DataError):
        Ids.of(["a"]).find(values)


def test_no_ids_are_fine_whatever_their_type():
    for values in ([], np.array([]), pa.array([], pa.list_(pa.int8())), pa.array([])):
        assert list(Ids.of(values)) == []
    assert Ids.of([]).find(["a"]).tolist() == [-1]


@fast
@given(st.lists(texts, min_size=1, max_size=9, unique=True), st.data())
def test_a_repeated_id_names_both_rows(values, data):
    first = data.draw(st.integers(0, len(values) - 1))
    again = data.draw(st.integers(first + 1, len(values)))
    repeated = [*values[:again], values[first], *values[again:]]
    with pytest.raises(DataError) as caught:
        Ids.of(repeated, "item", "line <{}>".format)
    assert caught.value.message.startswith(f"line <{again}>: item {values[first]!r}")
    assert caught.value.message.endswith(f"line <{first}>")


@pytest.mark.parametrize("n_wanted", [1, _FEW + 1])
def test_an_unknown_id_is_named(n_wanted):
    ids = Ids.of(range(2 * _FEW), "item")
    with pytest.raises(UnknownId, match="item '007' is not among the 128 known ones") as caught:
        ids.rows([*range(n_wanted - 1), "007"])
    assert isinstance(caught.value, KeyError)


def test_ids_are_equal_by_content_and_not_hashable():
    assert Ids.of([1, 2]) == Ids.of(["1", "2"])
    assert Ids.of([1, 2]) != Ids.of([2, 1])
    assert Ids.of([1]) != ["1"]
    with pytest.raises(TypeError):
        hash(Ids.of([1]))


def test_one_id_is_spelled():
    assert as_text(np.int32(-5)) == "-5"
    assert as_text(2**80) == str(2**80)
