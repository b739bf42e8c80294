"""What users rated as one more group of a fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from coldhash import MFDCF, Dataset, fit_features, read
from coldhash.errors import DataError
from coldhash.mfdcf.problem import fit_preference
from coldhash.partitions import MemoryPartitions


@pytest.fixture(scope="module")
def small() -> Dataset:
    return read("sample", n_users=150, n_items=80)


def fitted(data, max_width=128):
    content = fit_features(data).item_content(data.items, len(data.item_ids))
    return fit_preference(MemoryPartitions(data.records()), content, data.scale, max_width, 0)


def test_preference_is_the_weighted_mean_of_item_content(small):
    history = csr_array(([5.0, 1.0, 5.0, 5.0], ([0, 0, 2, 3], [2, 6, 2, 6])), shape=(4, 80))
    found = fitted(small)(history)
    expected = (6 * found[2, :-1] + 2 * found[3, :-1]) / 8  # of users of one item each
    np.testing.assert_allclose(found[0, :-1], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[:, -1], [1, 0, 1, 1])
    assert not found[1].any()


def test_the_average_preference_of_training_users_is_zero(small):
    mean = fitted(small)(small.ratings.matrix)[:, :-1].mean(axis=0)
    np.testing.assert_allclose(mean, 0, atol=1e-5)


def test_a_wide_preference_is_reduced_and_keeps_most_of_the_variation(small):
    wide, narrow = fitted(small), fitted(small, max_width=10)
    full, some = (each(small.ratings.matrix)[:, :-1] for each in (wide, narrow))
    assert some.shape[1] == 10
    best = np.sum(np.linalg.svd(full, compute_uv=False)[:10] ** 2)
    assert np.sum(some.astype(float) ** 2) > 0.97 * best


def test_it_takes_part_without_levels_and_strangers_do_not_have_it(small):
    model = MFDCF(n_bits=16, level=False).fit(small)
    assert set(model.report["group_weights"]) == {"demographics", "preference"}
    assert set(model.features.widths) == set(model.encoder.maps) == {"demographics"}
    bare = Dataset.from_tables(
        {"user_id": [1, 2], "item_id": [1, 2], "rating": [1, 5]},
        items={"item_id": [1, 2], "kind": ["a", "b"]},
    )
    with pytest.raises(DataError, match=r"feature.*level=True"):
        MFDCF(n_bits=16, level=False).fit(bare)
