from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from coldhash import (
    Dataset,
    cold_user_splits,
    fit_features,
    read,
    split_by_time,
    split_cold_items,
    split_cold_users,
    split_first_ratings,
)
from coldhash.errors import DataError, SettingError


@pytest.fixture(scope="module")
def small() -> Dataset:
    return read("sample", n_users=200, n_items=80)


def test_cold_users_share_nobody_with_the_rest(small):
    train, cold = split_cold_users(small, share=0.25, seed=1)
    assert len(cold.ratings.users) == 50
    assert set(train.ratings.users) | set(cold.ratings.users) == set(small.ratings.users)
    assert not set(train.ratings.users) & set(cold.ratings.users)
    assert len(train.ratings) + len(cold.ratings) == len(small.ratings)
    assert train.ratings.items == cold.ratings.items == small.ratings.items
    for part in (train, cold):
        rows = small.ratings.users.rows(part.ratings.users)
        assert part.users.equals(small.users.take(pa.array(rows)))


def test_cold_items_share_none_with_the_rest(small):
    train, cold = split_cold_items(small, share=0.25, seed=1)
    assert len(cold.ratings.items) == 20
    assert not set(train.ratings.items) & set(cold.ratings.items)
    assert train.ratings.users == cold.ratings.users
    dense = small.ratings.matrix.toarray()
    rows = small.ratings.items.rows(cold.ratings.items)
    np.testing.assert_array_equal(cold.ratings.matrix.toarray(), dense[:, rows])


def test_splits_are_seeded_and_differ(small):
    splits = list(cold_user_splits(small, repeats=3, seed=5))
    again = split_cold_users(small, seed=6)
    assert list(splits[1][1].ratings.users) == list(again[1].ratings.users)
    assert len({tuple(cold.ratings.users) for _, cold in splits}) == 3


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, 1e-9, float("nan")])
def test_an_empty_part_is_refused(small, share):
    with pytest.raises(SettingError, match="empty"):
        split_cold_users(small, share=share)


def test_first_ratings_by_time():
    data = Dataset.from_tables(
        {
            "user_id": ["a", "a", "a", "b"],
            "item_id": ["x", "y", "z", "x"],
            "rating": [1, 2, 3, 4],
            "timestamp": [30, 10, 20, 5],
        }
    )
    given, rest = split_first_ratings(data, 2)
    assert given.ratings.matrix.toarray().tolist() == [[0, 2, 3], [4, 0, 0]]
    assert rest.ratings.matrix.toarray().tolist() == [[1, 0, 0], [0, 0, 0]]


def test_first_ratings_without_times_are_a_seeded_choice(small):
    given, rest = split_first_ratings(small, 3, seed=2)
    again, _ = split_first_ratings(small, 3, seed=2)
    other, _ = split_first_ratings(small, 3, seed=3)
    assert (given.ratings.per_user == np.minimum(small.ratings.per_user, 3)).all()
    total = (given.ratings.matrix + rest.ratings.matrix).toarray()
    np.testing.assert_array_equal(total, small.ratings.matrix.toarray())
    np.testing.assert_array_equal(given.ratings.matrix.indices, again.ratings.matrix.indices)
    assert (given.ratings.matrix != other.ratings.matrix).nnz
    with pytest.raises(SettingError, match="n_given"):
        split_first_ratings(small, -1)


def with_marker(small: Dataset, cold_ids: set[str]) -> Dataset:
    """Let every cold user, and nobody else, rate one more item, described like no other."""
    ratings = small.ratings
    owners = np.repeat(np.arange(len(ratings.users)), ratings.per_user)
    cold_rows = [row for row, user in enumerate(ratings.users) if user in cold_ids]
    user_rows = np.append(owners, cold_rows)
    item_ids = [*(ratings.items[i] for i in ratings.matrix.indices), *["marker"] * len(cold_rows)]
    users = small.users.append_column("user_id", ratings.users.values)
    items = small.items.append_column("item_id", ratings.items.values)
    marker = pa.table(
        {"title": ["Zzyzx"], "genres": ["marker-genre"], "year": [2999], "item_id": ["marker"]}
    )
    return Dataset.from_tables(
        {
            "user_id": [ratings.users[row] for row in user_rows],
            "item_id": item_ids,
            "rating": np.append(ratings.matrix.data, np.full(len(cold_rows), 9.0)),
        },
        users,
        pa.concat_tables([items, marker.cast(items.schema)]),
        plan=small.plan,
    )


def test_a_cold_users_ratings_leave_no_trace(small):
    """What is learned is the same, to the last bit, whether cold users rated the marker or not."""
    _, cold = split_cold_users(small, seed=0)
    marked = with_marker(small, set(cold.ratings.users))
    train, marked_cold = split_cold_users(marked, seed=0)
    assert set(marked_cold.ratings.users) == set(cold.ratings.users)
    marker = marked.ratings.items.rows(["marker"])[0]
    assert marked_cold.ratings.per_item[marker] == len(marked_cold.ratings.users)

    unrated = marked.with_ratings(marked.ratings.where(marked.ratings.matrix.indices != marker))
    clean, _ = split_cold_users(unrated, seed=0)
    assert train.ratings.per_item[marker] == 0
    assert train.ratings.scale == clean.ratings.scale == (1.0, 5.0)
    learned, expected = (fit_features(part).state() for part in (train, clean))
    assert learned[0] == expected[0]
    assert learned[1].keys() == expected[1].keys()
    for name, array in learned[1].items():
        np.testing.assert_array_equal(array, expected[1][name], err_msg=name)


@pytest.fixture(scope="module")
def timed(small) -> Dataset:
    times = np.random.default_rng(0).permutation(len(small.ratings))
    return small.with_ratings(replace(small.ratings, times=times))


def test_the_order_of_first_ratings_can_be_chosen(small, timed):
    by_time, rest = split_first_ratings(timed, 3, order="time")
    default, _ = split_first_ratings(timed, 3)
    random, _ = split_first_ratings(timed, 3, order="random")
    untimed, _ = split_first_ratings(small, 3)
    np.testing.assert_array_equal(by_time.ratings.times, default.ratings.times)
    np.testing.assert_array_equal(random.ratings.matrix.indices, untimed.ratings.matrix.indices)
    assert (random.ratings.matrix != by_time.ratings.matrix).nnz
    for user in range(len(timed.ratings.users)):
        row = np.array([user])
        first, later = (part.ratings.of_users(row).times for part in (by_time, rest))
        assert not len(later) or first.max() < later.min()
    with pytest.raises(DataError, match="times"):
        split_first_ratings(small, 3, order="time")
    with pytest.raises(SettingError, match="order"):
        split_first_ratings(timed, 3, order="backwards")


@pytest.mark.parametrize("at", [0.7, 1000])
def test_a_split_by_time_keeps_who_is_known(timed, at):
    train, later = split_by_time(timed, at)
    moment = at if at > 1 else later.ratings.times.min()
    assert train.ratings.times.max() < moment <= later.ratings.times.min()
    assert train.ratings.users == later.ratings.users
    assert train.ratings.per_user.min() > 0
    assert train.users.equals(later.users)
    assert len(train.ratings) == (timed.ratings.times < moment).sum()
    if at < 1:
        assert len(train.ratings) == pytest.approx(at * len(timed.ratings), rel=0.01)


@pytest.mark.parametrize("at", [0, 1e9, -5])
def test_a_split_by_time_needs_two_parts(timed, small, at):
    with pytest.raises(SettingError, match="empty"):
        split_by_time(timed, at)
    with pytest.raises(DataError, match="times"):
        split_by_time(small, 0.5)


def test_cold_users_can_be_drawn_from_those_described():
    users = {"user_id": list("abcd"), "city": ["Oslo", None, "Rome", "Oslo"]}
    rated = {"user_id": list("abcdefgh"), "item_id": ["x", "y"] * 4, "rating": [1] * 8}
    data = Dataset.from_tables(rated, users)
    drawn = set()
    for seed in range(10):
        train, cold = split_cold_users(data, share=0.34, seed=seed, described=True)
        assert len(cold.ratings.users) == 1
        assert len(train.ratings.users) == 7
        drawn |= set(cold.ratings.users)
    assert drawn == {"a", "c", "d"}
