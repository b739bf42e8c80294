"""What values are, which of them make an item a favourite, and when that is unlikely."""

from __future__ import annotations

import warnings
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from coldhash import Dataset, Ratings, read, split_cold_users
from coldhash.data.feedback import Feedback
from coldhash.data.ratings import RatingTarget
from coldhash.errors import DataError, SettingError, UnlikelyFavourites


def table(values, name="rating", **more):
    n = len(values)
    ids = {"user_id": np.arange(n), "item_id": np.arange(n) % 7}
    return ids | {name: values} | more


STARS = [1, 2, 3, 4, 5] * 40
COUNTS = [1] * 150 + [2] * 30 + [7] * 15 + [40] * 5


@pytest.mark.parametrize(
    ("values", "name", "kind"),
    [
        (STARS, "rating", "ratings"),
        ([0, 1] * 100, "rating", "ratings"),
        ([-1, 1] * 100, "rating", "ratings"),
        ([0.5, 4.5] * 100, "rating", "ratings"),
        (list(range(1, 11)) * 20, "rating", "ratings"),
        (list(range(40, 101)) * 4, "rating", "ratings"),  # a scale of 100
        ([3] * 200, "rating", "events"),
        (COUNTS, "rating", "counts"),
        (COUNTS, "weight", "counts"),
        ([1, 2, 3] * 60, "quantity", "counts"),
        ([1, 2, 3] * 60, "Plays", None),  # not one of the names
        ([1.5, 2, 30] * 60, "plays", "ratings"),
        ([-40, *COUNTS], "rating", "ratings"),
    ],
)
def test_what_values_are_is_guessed(values, name, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlikelyFavourites)
        if kind is None:
            with pytest.raises(DataError, match="no column for rating"):
                Dataset.from_tables(table(values, name))
        else:
            data = Dataset.from_tables(table(values, name))
            assert data.feedback.kind == kind
            assert data.ratings.favourites.all() == (kind != "ratings")


def test_the_kind_can_be_given_and_a_declared_scale_means_ratings():
    assert Dataset.from_tables(table(STARS), feedback="counts").feedback.kind == "counts"
    assert Dataset.from_tables(table([4, 2] * 9), scale=(1, 5)).feedback.kind == "ratings"
    assert Dataset.from_tables(table([4] * 9), scale=(1, 5)).feedback.kind == "ratings"
    with pytest.raises(SettingError, match="feedback='stars'"):
        Dataset.from_tables(table(STARS), feedback="stars")


def test_a_table_of_ids_and_times_is_one_of_events():
    events = {"user_id": [1, 1, 2], "item_id": ["a", "a", "b"]}
    for more in ({}, {"date": [date(2020, 1, 2), date(2020, 1, 1), date(2020, 1, 3)]}):
        data = Dataset.from_tables(events | more)
        assert data.feedback.kind == "events"
        assert data.ratings.matrix.toarray().tolist() == [[2, 0], [0, 1]]
        assert (data.ratings.times is None) == (not more)
    assert repr(data) == "<Dataset 'data': 2 users, 2 items, 2 events>"


def test_events_do_not_read_values():
    data = Dataset.from_tables(table(["x", None, "y"]), feedback="events")
    assert data.ratings.matrix.data.tolist() == [1, 1, 1]


def test_repeated_counts_are_added_up_with_their_first_time():
    rows = {"user_id": [1, 1, 1, 2], "item_id": [1, 1, 2, 1], "quantity": [2, 3, 1, 4]}
    data = Dataset.from_tables(rows | {"timestamp": [30, 20, 10, 40]})
    assert data.ratings.matrix.toarray().tolist() == [[5, 1], [4, 0]]
    assert data.ratings.times.tolist() == [20, 10, 40]
    many = Dataset.from_tables(rows | {"quantity": [9e5, 9e5, 1, 2]})  # above what one may be
    assert many.ratings.matrix.toarray().tolist() == [[1e6, 1], [2, 0]]
    with pytest.raises(DataError, match="rated item '1' already"):
        Dataset.from_tables(rows, duplicates="error")
    with pytest.raises(DataError, match="rated item '1' already"):
        Dataset.from_tables(rows, feedback="ratings")
    last = Dataset.from_tables(rows, duplicates="last")
    assert last.ratings.matrix.toarray().tolist() == [[3, 1], [4, 0]]


ROWS = csr_array(np.array([[5, 4, 3], [1, 2, 0.0]], dtype=np.float32))


@pytest.mark.parametrize(
    ("favourite", "scale", "expected"),
    [
        (None, (1, 5), [1, 1, 0, 0, 0]),
        ("60%", (0, 5), [1, 1, 0, 0, 0]),
        ("80%", (1, 5), [1, 0, 0, 0, 0]),
        (4, (1, 5), [1, 1, 0, 0, 0]),
        ("2", (1, 5), [1, 1, 1, 0, 1]),
        ("user-mean", (1, 5), [1, 0, 0, 0, 1]),
        (None, (-5, 5), [1, 1, 1, 0, 1]),  # above 1
    ],
)
def test_the_rule_of_favourites(favourite, scale, expected):
    feedback = Feedback("ratings", favourite, scale)
    assert feedback.is_favourite(ROWS).astype(int).tolist() == expected
    target = RatingTarget("favourite", feedback)(ROWS)
    np.testing.assert_array_equal(target.data, np.where(expected, 1, np.float32(0.3)))


@pytest.mark.parametrize("favourite", ["60", 60.0, "5%", "100%"])
def test_a_rule_may_be_written_as_a_text(favourite):
    assert Feedback("ratings", favourite).favourite == (
        favourite if "%" in str(favourite) else 60.0
    )


@pytest.mark.parametrize("favourite", ["best", "120%", "%", float("nan"), [4], "inf"])
def test_another_rule_is_an_error(favourite):
    with pytest.raises(SettingError, match="favourite="):
        Dataset.from_tables(table(STARS), favourite=favourite)


def test_a_rating_at_the_bound_is_on_its_side_in_single_precision():
    tenths = csr_array(np.array([[0.6, 0.7]], dtype=np.float32))
    assert Feedback("ratings", None, (0, 1)).is_favourite(tenths).tolist() == [False, True]
    assert Feedback("ratings", 0.7, (0, 1)).is_favourite(tenths).tolist() == [False, True]


def test_the_rule_of_all_data_holds_in_every_part():
    data = Dataset.from_tables(table([*STARS, 8]))
    few = data.of_users(np.arange(5)).of_items(np.arange(4))
    assert few.feedback == data.feedback
    assert few.feedback.scale == (1, 8)
    assert few.ratings.where(few.ratings.matrix.data > 1).feedback == data.feedback
    for part in split_cold_users(data.with_feedback(favourite=3)):
        assert part.feedback == Feedback("ratings", 3, (1, 8))


@pytest.mark.parametrize(
    ("values", "settings", "warned"),
    [
        (STARS, {}, False),
        ([1] * 500 + [2] * 400 + [9] * 5, {}, True),  # purchases in a column of ratings
        ([4, 5] * 100, {"scale": (1, 5)}, True),
        ([4, 5] * 100, {"favourite": 5}, False),
        ([4, 5] * 100, {"feedback": "counts"}, False),
        ([4, 5] * 10, {}, False),  # too few to tell
        (COUNTS, {}, False),
        (COUNTS * 10, {"feedback": "ratings", "favourite": 41}, True),
    ],
)
def test_unlikely_shares_of_favourites_are_told(values, settings, warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Dataset.from_tables(table(values), **settings)
    assert [each.category for each in caught] == [UnlikelyFavourites] * warned
    for each in caught:
        assert "favourite=" in str(each.message)
        assert "feedback=" in str(each.message)
        assert each.filename == __file__


def test_known_data_take_a_rule_too():
    data = read("sample", n_users=200, n_items=60, favourite=5)
    np.testing.assert_array_equal(data.ratings.favourites, data.ratings.matrix.data >= 5)
    assert read("sample", n_users=50, n_items=20, feedback="events").ratings.favourites.all()


def test_a_scale_may_be_below_zero():
    values = np.linspace(-9.95, 9.9, 200)
    ratings = Dataset.from_tables(table(values)).ratings
    assert ratings.scale == pytest.approx((-9.95, 9.9))
    bound = -9.95 + 0.6 * (9.9 + 9.95)
    np.testing.assert_array_equal(ratings.favourites, ratings.matrix.data > bound)
    share = RatingTarget("share", ratings.feedback)(ratings.matrix).data
    assert (share.min(), share.max()) == (0, 1)


def test_ratings_without_tables_are_guessed_too():
    assert Ratings.from_columns(range(200), [0] * 200, COUNTS).feedback.kind == "counts"
    assert Ratings.from_columns(range(3), range(3), np.ones(3)).feedback.kind == "events"
    empty = Ratings.from_columns([], [], [])
    assert empty.feedback == Feedback("ratings", None, (0, 1))


@pytest.mark.parametrize(
    "name", "event_time event_timestamp transaction_timestamp created_at ts date time".split()
)
def test_more_names_of_times_are_understood(name):
    data = Dataset.from_tables(table([3, 4, 5], **{name: [3, 1, 2]}))
    assert data.ratings.times.tolist() == [3, 1, 2]
    both = Dataset.from_tables(table([3, 4, 5], **{name: [3, 1, 2], "timestamp": [1, 2, 3]}))
    assert both.ratings.times.tolist() == [1, 2, 3]


DAY = 86_400_000_000


@pytest.mark.parametrize(
    "times",
    [
        ["1970-01-03", "1970-01-01", "1970-01-02"],
        ["1970-01-03 00:00:00", "1970-01-01T00:00:00", "1970-01-02"],
        pa.array([2, 0, 1], pa.date32()),
        pa.array([2 * DAY, 0, DAY], pa.timestamp("us")),
        pa.array([2 * DAY, 0, DAY], pa.timestamp("us", "Asia/Tokyo")),
        pa.array([2 * DAY // 1000, 0, DAY // 1000], pa.timestamp("ms")),
    ],
    ids=str,
)
def test_dates_become_microseconds(times):
    data = Dataset.from_tables(table([3, 4, 5], timestamp=times))
    assert data.ratings.times.tolist() == [2 * DAY, 0, DAY]
