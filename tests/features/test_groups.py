from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash import Dataset, FeatureEncoder, FeaturePlan, fit_features, read
from coldhash.data.plan import Text
from coldhash.errors import DataError
from coldhash.features import groups


@pytest.fixture(scope="module")
def small() -> Dataset:
    return read("sample", n_users=150, n_items=80)


@pytest.fixture(scope="module")
def encoder(small) -> FeatureEncoder:
    return fit_features(small)


def person(small, row):
    return {name: small.users.column(name)[row].as_py() for name in small.users.column_names}


def test_one_dict_a_list_and_tables_agree(small, encoder):
    table = encoder.apply(small.users)
    frames = [pd.DataFrame(small.users.to_pylist()), pl.from_arrow(small.users)]
    people = [person(small, row) for row in range(len(small.ratings.users))]
    for other in (encoder.apply(people), *map(encoder.apply, frames)):
        for group, matrix in table.matrices.items():
            np.testing.assert_array_equal(other.matrices[group], matrix)
            np.testing.assert_array_equal(other.has[group], table.has[group])
    for row in (0, 7, 149):
        one = encoder.apply(people[row])
        for group, matrix in table.matrices.items():
            np.testing.assert_array_equal(one.matrices[group], matrix[row : row + 1])


@settings(deadline=None, max_examples=60)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "age": st.sampled_from([None, float("nan"), "", 25, "25"]),
            "gender": st.sampled_from([None, "", "female", "never seen"]),
            "occupation": st.sampled_from([None, "nurse"]),
            "city": st.sampled_from([None, "Elsk"]),
            "shoe_size": st.integers(),
        },
    )
)
def test_any_subset_of_columns_works(someone):
    encoder = ENCODER
    features = encoder.apply(someone)
    values = {"age": (25, "25"), "gender": ("female",), "occupation": ("nurse",), "city": ("Elsk",)}
    known = [name for name in values if someone.get(name) in values[name]]
    assert features.has["demographics"][0] == bool(known)
    matrix = features.matrices["demographics"]
    if not known:
        assert not matrix.any()
        return
    assert matrix[0, -1] == 1
    end = 0
    for name, column in encoder.groups["demographics"].columns.items():
        start, end = end, end + column.width
        if name not in known:
            np.testing.assert_array_equal(matrix[0, start:end], column.mean)


ENCODER = fit_features(read("sample", n_users=150, n_items=80))


def test_every_group_ends_with_a_constant(small, encoder):
    features = encoder.apply(small.users)
    for group, matrix in features.matrices.items():
        assert matrix.shape == (150, encoder.widths[group])
        np.testing.assert_array_equal(matrix[:, -1], features.has[group])


def test_a_wide_group_is_sparse_and_equals_the_dense_one(small, monkeypatch, encoder):
    dense = encoder.apply(small.users)
    monkeypatch.setattr(groups, "NARROW", 3)
    sparse = fit_features(small).apply(small.users)
    assert hasattr(sparse.matrices["demographics"], "toarray")
    np.testing.assert_array_equal(
        sparse.matrices["demographics"].toarray(), dense.matrices["demographics"]
    )
    np.testing.assert_array_equal(sparse.has["demographics"], dense.has["demographics"])


def test_state_is_json_and_arrays_and_restores_the_encoder(small, encoder):
    facts, arrays = encoder.state()
    restored = FeatureEncoder.from_state(json.loads(json.dumps(facts)), arrays)
    before, after = encoder.apply(small.users), restored.apply(small.users)
    for group, matrix in before.matrices.items():
        np.testing.assert_array_equal(after.matrices[group], matrix)


def test_text_of_users_is_a_group_too():
    words = ["jazz fan", "jazz and tea", "tea only", None, "jazz"]
    data = Dataset.from_tables(
        {"user_id": range(5), "item_id": [0] * 5, "rating": [3] * 5},
        {"user_id": range(5), "bio": words},
        plan=FeaturePlan(users={"words": {"bio": Text(min_count=2)}}),
    )
    features = fit_features(data).apply(data.users)
    np.testing.assert_array_equal(features.has["words"], [True, True, True, False, True])


def test_wrong_people_are_named(encoder):
    with pytest.raises(DataError, match="not a person"):
        encoder.apply([3])
    with pytest.raises(DataError, match="age"):
        encoder.apply({"age": "old"})
    assert len(encoder.apply([])) == 0
