from __future__ import annotations

import datetime
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash.data import as_days, plan
from coldhash.errors import DataError
from coldhash.features.columns import FORMS
from coldhash.features.fitting import count_values, fit_column, fit_mean


def fitted(spec, values, kind=None):
    counted = count_values(spec, pa.chunked_array([pa.array(values, kind)]), "c")
    return fit_mean(fit_column(spec, counted, "c"), counted, "c")


def dense(column, values, name="c"):
    return column.encode_sparse(values, name).toarray()


def is_known(column, value):
    return column.encode([value], "c")[0][0] > 0


MISSING = [None, float("nan"), ""]


def test_category_is_one_hot_and_rare_values_share_a_column():
    column = fitted(plan.Category(min_count=2), ["a", "b", "a", "b", "rare", "odd", None])
    block = dense(column, ["a", "b", "rare", "odd"])
    assert block.shape == (4, 3)
    assert (block.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(block[2], block[3])
    assert not (block[0] * block[1]).any()
    np.testing.assert_allclose(column.mean, (2 * block[0] + 2 * block[1] + 2 * block[2]) / 6)


@pytest.mark.parametrize("value", [*MISSING, "never seen"])
def test_a_missing_or_unseen_category_is_missing(value):
    column = fitted(plan.Category(min_count=1), ["a", "b"])
    assert not is_known(column, value)
    assert not dense(column, [value]).any()


def test_numbers_and_their_spellings_are_one_category():
    column = fitted(plan.Category(min_count=1), [1, 18, 25])
    block = dense(column, [25, 25.0, "25", np.int64(25), " 25 "])
    assert (block == block[0]).all()
    assert block[0].sum() == 1


def test_multi_label_takes_texts_and_lists():
    column = fitted(plan.MultiLabel(min_count=1), ["a|b", "b", "c|a|b"])
    block = dense(column, ["a|b", ["a", "b"], ("b", "a", "a"), "a||b", "a|new|b"])
    assert (block == block[0]).all()
    np.testing.assert_allclose(np.linalg.norm(block, axis=1), 1, rtol=1e-6)
    lists = fitted(plan.MultiLabel(min_count=1), [["a", "b"], None, ["c"]])
    assert lists.width == 3


def test_soft_buckets_interpolate_between_knots():
    column = fitted(plan.Number(n_knots=3), [0] * 5 + [10] * 90 + [20] * 5)
    np.testing.assert_array_equal(column.knots, [0, 10, 20])
    block = dense(column, [0, 5, 10, 17.5, 20, -100, 1e9])
    np.testing.assert_allclose(
        block,
        [[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0], [0, 0.25, 0.75], [0, 0, 1], [1, 0, 0], [0, 0, 1]],
    )
    np.testing.assert_allclose(block[:5] @ column.knots, [0, 5, 10, 17.5, 20])


def test_a_few_wild_values_do_not_stretch_the_buckets():
    column = fitted(plan.Number(n_knots=4), [*range(20, 60), *range(20, 60), *range(20, 60), 999])
    assert column.knots.max() < 61


def test_a_word_is_no_number():
    column = fitted(plan.Number(), [1, 2, 3])
    for value in MISSING:
        assert not is_known(column, value)
    with pytest.raises(DataError, match=r"column 'age', 'old'.*not a number.*hint"):
        dense(column, ["old"], "age")
    with pytest.raises(DataError, match="finite"):
        dense(column, [math.inf], "age")


def test_text_weighs_rare_words_more_and_has_length_one():
    column = fitted(plan.Text(min_count=1), ["the cat", "the dog", "the The bird"])
    block = dense(column, ["The cat!"])
    the, cat = column.columns["the"], column.columns["cat"]
    assert block[0, cat] > block[0, the] > 0
    np.testing.assert_allclose(np.linalg.norm(block), 1, rtol=1e-6)
    expected = (math.log(4 / 2) + 1) / (math.log(4 / 4) + 1)
    np.testing.assert_allclose(block[0, cat] / block[0, the], expected, rtol=1e-6)
    assert not is_known(column, "unheard of")


def test_text_keeps_the_most_frequent_words():
    column = fitted(plan.Text(min_count=2, max_words=1), ["a b", "a b", "a"])
    assert list(column.columns) == ["a"]


def test_vectors_pass_through():
    column = fitted(plan.Vector(), [[1.0, 2.0], None, [3.0, 4.0]])
    np.testing.assert_array_equal(dense(column, [[5, 6], np.ones(2)]), [[5, 6], [1, 1]])
    np.testing.assert_array_equal(column.mean, [2, 3])
    assert not is_known(column, None)
    with pytest.raises(DataError, match=r"column 'v'.*length 3 where 2"):
        dense(column, [[1, 2, 3]], "v")
    with pytest.raises(DataError, match="NaN"):
        dense(column, [[1, float("nan")]], "v")


SPECS = st.sampled_from(
    [
        (plan.Category(), st.text(max_size=3)),
        (plan.Category(min_count=1), st.integers(-3, 3)),
        (plan.MultiLabel(min_count=1), st.text("ab|c", max_size=5)),
        (plan.Number(), st.floats(-1e9, 1e9)),
        (plan.Number(n_knots=2), st.integers(-5, 5)),
        (plan.Text(min_count=1), st.text("ab c", max_size=6)),
    ]
)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.data())
def test_the_mean_is_of_known_values_and_state_restores_the_column(data):
    spec, values = data.draw(SPECS)
    column_values = data.draw(st.lists(st.none() | values, min_size=1, max_size=20))
    column = fitted(spec, column_values)
    block, known = dense(column, column_values), [is_known(column, v) for v in column_values]
    if any(known):
        np.testing.assert_allclose(column.mean, block[known].mean(axis=0), atol=1e-5)
    json, arrays = column.state()
    again = FORMS[json.pop("form")](**json, **arrays)
    np.testing.assert_array_equal(dense(again, column_values), block)


def test_a_date_is_its_age_in_days_before_the_newest():
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=k) for k in range(101)]
    column = fitted(plan.Date(n_knots=3), days)
    np.testing.assert_allclose(column.knots, [1, 50, 99])
    assert column.newest == (days[-1] - datetime.date(1970, 1, 1)).days
    block = dense(column, ["2024-02-20", datetime.date(2024, 2, 20), "2024-02-20T00:00:00Z"])
    np.testing.assert_allclose(block, [[0, 1, 0]] * 3)
    later, earlier = dense(column, ["2030-01-01", "1999-01-01"])
    assert later.tolist() == [1, 0, 0]
    assert earlier.tolist() == [0, 0, 1]
    assert is_known(column, column.example())


@pytest.mark.parametrize(
    "value",
    [
        *(20240131, "20240131", 1706659200, 1706659200.0, 1706659200000, 1706659200 * 10**9),
        *("2024-01-31", "2024-01-31 00:00", "2024-01-31T01:00:00+01:00"),
    ],
)
def test_a_day_has_many_spellings(value):
    assert as_days(value) == 19753


@pytest.mark.parametrize("value", [*MISSING, pa.scalar(None).as_py()])
def test_a_missing_date_is_missing(value):
    assert not is_known(fitted(plan.Date(), ["2024-01-01", "2024-01-02"]), value)


@pytest.mark.parametrize("value", ["yesterday", "2024-02-31", True, [1], 20241399, 1e300, -5])
def test_what_is_no_date_is_an_error_with_a_hint(value):
    column = fitted(plan.Date(), ["2024-01-01", "2024-01-02"])
    with pytest.raises(DataError, match=r"'c'.* not a date") as caught:
        column.encode([value], "c")
    assert "2024-01-31" in caught.value.hint


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.timestamp("ns"), pa.timestamp("s", "America/Lima"), pa.string()]
)
def test_dates_of_every_type_give_the_same_column(kind):
    texts = pa.array([f"2024-01-{k:02}" for k in range(1, 29)])
    dates = texts if kind == pa.string() else texts.cast(pa.timestamp("s")).cast(kind)
    expected = fitted(plan.Date(), texts.to_pylist())
    column = fitted(plan.Date(), dates)
    assert column.newest == expected.newest
    np.testing.assert_array_equal(column.knots, expected.knots)


def test_truth_in_a_text_file_is_truth_in_a_request():
    column = fitted(plan.Category(min_count=1), ["True", "False"])
    block = dense(column, ["True", True, "true", "TRUE"])
    assert (block == block[0]).all()
    assert block[0].sum() == 1
