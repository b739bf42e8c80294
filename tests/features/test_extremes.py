"""Numbers that arithmetic cannot hold are refused by the name of their column."""

from __future__ import annotations

import numpy as np
import pytest

from coldhash import MFDCF, Dataset, FeaturePlan
from coldhash.data.plan import Number, Vector
from coldhash.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
N = 40


def world(values, column) -> Dataset:
    ratings = {
        "user_id": np.repeat(np.arange(N), 3),
        "item_id": (np.arange(3 * N) * 7) % 20,
        "rating": np.tile([2.0, 4.0, 5.0], N),
    }
    users = {"user_id": np.arange(N), "it": values}
    return Dataset.from_tables(ratings, users, plan=FeaturePlan(users={"who": {"it": column}}))


@pytest.mark.parametrize("size", [1e20, 1e39, -1e20])
def test_a_huge_vector_is_refused_with_its_column(size):
    vectors = np.random.default_rng(0).normal(size=(N, 3)).tolist()
    model = MFDCF(n_bits=16).fit(world(vectors, Vector()))
    with pytest.raises(DataError, match="column 'it'"):
        model.recommend({"it": [0.0, size, 0.0]})
    vectors[3][1] = size
    with pytest.raises(DataError, match="column 'it'"):
        MFDCF(n_bits=16).fit(world(vectors, Vector()))


@pytest.mark.parametrize("value", [["a", "b", "c"], [[1], [2], [3]], [10**400, 0, 0]])
def test_a_vector_of_something_else_is_refused_with_its_column(value):
    vectors = np.random.default_rng(0).normal(size=(N, 3)).tolist()
    model = MFDCF(n_bits=16).fit(world(vectors, Vector()))
    with pytest.raises(DataError, match="column 'it'"):
        model.recommend({"it": value})


def test_a_large_vector_that_is_allowed_can_be_fitted():
    vectors = np.random.default_rng(0).normal(size=(N, 3)) * 9e8 / 4
    model = MFDCF(n_bits=16).fit(world(np.clip(vectors, -1e9, 1e9).tolist(), Vector()))
    assert np.isfinite(model.user_vectors).all()


def test_a_huge_number_is_one_more_number_or_refused():
    numbers = np.random.default_rng(0).normal(size=N)
    numbers[:2] = 1e20, -1e20
    model = MFDCF(n_bits=16).fit(world(numbers, Number()))
    assert np.isfinite(model.user_vectors).all()
    for value in (1e308, 10**400, float("-inf")):
        with pytest.raises(DataError, match=r"column 'it'.*not a finite number"):
            model.recommend({"it": value})
    numbers[0] = 1e308
    with pytest.raises(DataError, match=r"column 'it'.*not a finite number"):
        MFDCF(n_bits=16).fit(world(numbers, Number()))
