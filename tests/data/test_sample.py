from __future__ import annotations

import numpy as np
import pytest

from coldhash import read
from coldhash.errors import SettingError


def test_same_seed_same_world():
    one, two = (read("sample", n_users=100, n_items=60, seed=3) for _ in range(2))
    other = read("sample", n_users=100, n_items=60, seed=4)
    np.testing.assert_array_equal(one.ratings.matrix.data, two.ratings.matrix.data)
    np.testing.assert_array_equal(one.ratings.matrix.indices, two.ratings.matrix.indices)
    assert one.users.equals(two.users)
    assert one.items.equals(two.items)
    assert not one.users.equals(other.users)


def test_shape_and_scale(sample):
    ratings = sample.ratings
    assert ratings.matrix.shape == (2000, 1000)
    assert set(np.unique(ratings.matrix.data)) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert ratings.per_user.min() >= 1
    for name, share in (("age", 0.1), ("gender", 0.05), ("occupation", 0.15), ("city", 0.3)):
        missing = sample.users.column(name).null_count / 2000
        assert share / 2 < missing < share * 2, name


def test_popularity_is_zipf_like(sample):
    counts = np.sort(sample.ratings.per_item)[::-1]
    assert counts[:100].sum() > 0.3 * counts.sum()
    assert counts[-500:].sum() < 0.25 * counts.sum()


def test_tastes_depend_on_demographics(sample):
    """Within a genre, the share of ratings differs between occupations far beyond chance."""
    occupations = np.array(sample.users.column("occupation").to_pylist(), dtype=object)
    genres = np.array(sample.items.column("genres").to_pylist(), dtype=object)
    drama = np.array(["drama" in text for text in genres])
    shares, errors = [], []
    for occupation in set(occupations) - {None}:
        part = sample.ratings.of_users(np.flatnonzero(occupations == occupation)).matrix
        share = drama[part.indices].mean()
        shares.append(share)
        errors.append(share * (1 - share) / part.nnz)
    assert np.var(shares) > 10 * np.mean(errors)


def test_cities_say_nothing_that_a_check_of_occupations_would_see(sample):
    """The spread over cities of the mean rating is as small as luck makes it."""
    cities = np.array(sample.users.column("city").to_pylist(), dtype=object)
    per_user = sample.ratings.matrix.sum(axis=1) / sample.ratings.per_user
    groups = [per_user[cities == city] for city in set(cities) - {None}]
    between = np.var([group.mean() for group in groups])
    expected = np.mean([group.var() / len(group) for group in groups])
    assert between < 4 * expected


def test_settings_are_checked():
    with pytest.raises(SettingError, match="n_users=1"):
        read("sample", n_users=1)
