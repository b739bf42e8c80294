"""Tables in, one data set out: roles of columns, users without features, any kind of frame."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldhash import Dataset, FeaturePlan, Ids, Ratings, TableFile
from coldhash.data.tables import as_table
from coldhash.errors import ColumnError, DataError, SettingError, UnknownId, UnlikelyData

fast = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
RATINGS = {
    "user_id": ["1", "007", 'né "x"', "null", "1"],
    "item_id": ["9223372036854775807", "NA", "nan", "NA", "NA"],
    "rating": [5.0, 0.0, 2.5, 3.0, 1.0],
    "timestamp": [9, 8, 7, 6, 5],
}
USERS = {
    "user_id": ["null", "1", "unseen"],
    "zip": ["01234", "90210", None],
    "age": [31, None, 54],
    "about": ['says "hi",\nthen leaves', None, "—"],
}


def same(a, b):
    """Whether two data sets hold the same, row by row."""
    parts = [(part.ratings.users, part.ratings.items) for part in (a, b)]
    assert parts[0] == parts[1]
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(
            getattr(a.ratings.matrix, name), getattr(b.ratings.matrix, name)
        )
    np.testing.assert_array_equal(a.ratings.times, b.ratings.times)
    assert a.users.to_pydict() == b.users.to_pydict()
    assert a.items.to_pydict() == b.items.to_pydict()
    assert a.plan == b.plan
    return True


def as_lines(columns):
    rows = pa.table(columns).to_pylist()
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def sources(tmp_path):
    """Give the same two tables in every form there is."""
    for at, columns in enumerate((RATINGS, USERS)):
        frame = pl.DataFrame(columns)
        frame.write_csv(tmp_path / f"{at}.csv")
        frame.write_csv(tmp_path / f"{at}.tsv", separator="\t", quote_style="always")
        (tmp_path / f"{at}.jsonl").write_text(as_lines(columns), encoding="utf-8")
        pa.parquet.write_table(pa.table(columns), tmp_path / f"{at}.parquet")
        odd = range(1, 2 * len(columns["user_id"]), 2)
        pd.DataFrame(columns, index=list(odd)).to_parquet(tmp_path / f"{at}.pq")
    for ending in ("csv", "tsv", "jsonl", "parquet", "pq"):
        yield ending, *(tmp_path / f"{at}.{ending}" for at in range(2))
    large = pa.schema([("user_id", pa.large_string()), ("item_id", pa.large_string())])
    wide = pa.table(RATINGS).cast(
        pa.schema([*large, ("rating", pa.float32()), ("timestamp", pa.int32())])
    )
    yield "dict", RATINGS, USERS
    yield "pyarrow", wide, pa.table(USERS)
    yield "pandas", pd.DataFrame(RATINGS), pd.DataFrame(USERS)
    yield "polars", pl.DataFrame(RATINGS), pl.DataFrame(USERS)
    ids = ["user_id", "item_id"]
    yield "categories", pd.DataFrame(RATINGS).astype(dict.fromkeys(ids, "category")), USERS
    yield (
        "polars categories",
        pl.DataFrame(RATINGS).with_columns(pl.col(ids).cast(pl.Categorical)),
        USERS,
    )


def test_every_source_gives_the_same_data(tmp_path):
    expected = Dataset.from_tables(RATINGS, USERS)
    assert list(expected.ratings.users) == ["null", "1", "unseen", "007", 'né "x"']
    assert expected.users.column("zip").to_pylist() == ["01234", "90210", None, None, None]
    assert expected.users.column("age").to_pylist() == [31, None, 54, None, None]
    assert expected.users.column("about")[0].as_py() == 'says "hi",\nthen leaves'
    for name, ratings, users in sources(tmp_path):
        assert same(Dataset.from_tables(ratings, users), expected), name


def test_frames_with_other_layouts_give_the_same_features():
    columns = {
        "id": ["a", "b", "c"],
        "tags": [["x", "y"], [], ["x"]],
        "size": [1.5, None, 2.0],
        "word": ["s", "", "NULL"],
    }
    expected = Dataset.from_tables(RATINGS, items=columns)
    assert expected.items.column("word").to_pylist()[:3] == ["s", None, None]
    assert "tags" in expected.plan.items["content"]
    nan = {**columns, "size": np.array([1.5, np.nan, 2.0])}
    for other in (pl.DataFrame(columns), pd.DataFrame(columns), pl.DataFrame(nan), nan):
        assert same(Dataset.from_tables(RATINGS, items=other), expected)


ids = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\x1f"), min_size=1, max_size=5),
    st.sampled_from(["null", "NA", "nan", "007", "7", " 7", '"', "a,b", "::", "a\nb", "\r"]),
)


@pytest.mark.slow
@fast
@given(
    cells=st.dictionaries(st.tuples(ids, ids), st.integers(0, 10), min_size=1, max_size=12),
    listed=st.lists(ids, max_size=6, unique=True),
    separator=st.sampled_from([",", ";", "\t"]),
)
def test_no_rating_and_no_user_is_lost_in_a_file(tmp_path, cells, listed, separator):
    def quoted(*row):
        return separator.join('"' + str(field).replace('"', '""') + '"' for field in row)

    rows = [quoted(user, item, stars) for (user, item), stars in cells.items()]
    ratings = tmp_path / "ratings.csv"
    ratings.write_text(
        "\r\n".join([quoted("user_id", "item_id", "rating"), *rows]), encoding="utf-8", newline=""
    )
    users = tmp_path / "users.csv"
    users.write_text(
        "\n".join([quoted("id", "n"), *(quoted(user, n) for n, user in enumerate(listed))]),
        encoding="utf-8",
        newline="",
    )
    data = Dataset.from_tables(
        TableFile(path=ratings, separator=separator), TableFile(path=users, separator=separator)
    )
    stored = data.ratings.matrix.tocoo()
    assert {
        (data.ratings.users[u], data.ratings.items[i]): stars
        for u, i, stars in zip(stored.row, stored.col, stored.data, strict=True)
    } == cells
    rated = dict.fromkeys(user for user, _ in cells)
    assert list(data.ratings.users) == listed + [user for user in rated if user not in listed]
    numbers = [*range(len(listed)), *[None] * (len(data.ratings.users) - len(listed))]
    assert data.users.column("n").to_pylist() == numbers


# -- roles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["user_id", "user", "userID", "userId"])
@pytest.mark.parametrize("item", ["item_id", "item", "itemID", "itemId", "movieId"])
@pytest.mark.parametrize("rating", ["rating", "weight"])
@pytest.mark.parametrize("time", ["timestamp", "datetime"])
def test_usual_names_are_understood(user, item, rating, time):
    named = {user: ["a", "b"], item: [1, 2], rating: [3, 4], time: [5, 6]}
    data = Dataset.from_tables(named, {user: ["b"], "x": [1]}, {item: [2], "y": [1]})
    assert list(data.ratings.users) == ["b", "a"]
    assert list(data.ratings.items) == ["2", "1"]
    assert data.ratings.matrix.toarray().tolist() == [[4, 0], [0, 3]]
    assert data.ratings.times.tolist() == [6, 5]


def test_columns_can_be_mapped():
    table = {"who": ["a", "b"], "what": [1, 2], "stars": [3, 4], "when": [6, 5], "user": [0, 0]}
    mapping = {"user_id": "who", "item_id": "what", "rating": "stars", "timestamp": "when"}
    data = Dataset.from_tables(
        table, {"who": ["b"], "x": ["y"]}, {"id": [2], "z": ["w"]}, columns=mapping
    )
    assert list(data.ratings.users) == ["b", "a"]
    assert data.ratings.matrix.toarray().tolist() == [[4, 0], [0, 3]]
    assert data.ratings.times.tolist() == [5, 6]


def test_of_several_usual_names_the_first_counts():
    table = {"userId": [8, 8], "user_id": ["a", "b"], "id": [3, 4], "item": [1, 2], "sku": [7, 7]}
    data = Dataset.from_tables(table | {"weight": [9, 9], "rating": [3, 4]})
    assert (list(data.user_ids), list(data.item_ids)) == (["a", "b"], ["1", "2"])
    assert data.ratings.matrix.data.tolist() == [3, 4]


def test_the_number_of_a_row_is_no_id_of_a_user():
    with pytest.raises(ColumnError, match="no column for user_id"):
        Dataset.from_tables({"id": [1, 2], "item": [1, 2], "rating": [3, 4]})
    assert Dataset.from_tables({"id": [1, 2], "user": [1, 1], "item": [1, 2]}).n_ratings == 2
    mapped = Dataset.from_tables({"id": [1, 2], "item": [1, 2]}, columns={"user_id": "id"})
    assert list(mapped.user_ids) == ["1", "2"]


def test_without_a_rating_each_row_counts_one():
    for table in (
        {"user": [1, 2], "item": [3, 4]},
        {"user": [1, 2], "item": [3, 4], "rating": [5, 5]},
    ):
        data = Dataset.from_tables(table, columns={"rating": None})
        assert data.ratings.matrix.data.tolist() == [1, 1]


def test_a_time_can_be_left_out():
    assert Dataset.from_tables(RATINGS).ratings.times is not None
    assert Dataset.from_tables(RATINGS, columns={"timestamp": None}).ratings.times is None


ROW = {"user": [1], "item": [1], "rating": [1]}


@pytest.mark.parametrize(
    ("change", "columns", "error", "why"),
    [
        ({"rating": None, "grade": [1]}, {}, ColumnError, "no column for rating"),
        ({"item": None}, {}, ColumnError, "no column for item_id"),
        ({}, {"rating": "stars"}, ColumnError, "no column 'stars'"),
        ({}, {"user_id": None}, ColumnError, "no column for user_id"),
        ({}, {"item_id": "user"}, ColumnError, "two roles"),
        ({}, {"users": "user"}, SettingError, "columns={'users': 'user'}"),
        ({}, "user", SettingError, "columns='user'"),
        ({"rating": [b"5"]}, {}, DataError, "of type binary"),
        ({"rating": [[1]]}, {}, DataError, "of type list"),
        ({"rating": [None]}, {}, DataError, "row 0 of the ratings table, column 'rating'"),
        ({"rating": ["x"]}, {}, DataError, "column 'rating': 'x' is not a number"),
        ({"user": [1.5]}, {}, DataError, "row 0 of the ratings table: 1.5 is not a valid user id"),
        ({"user": [b"x"]}, {}, DataError, "user ids are of type binary"),
        ({"timestamp": [[1]]}, {}, DataError, "times are of type list"),
        ({"rating": pa.array([1], pa.duration("s"))}, {}, DataError, "of type duration"),
        ({"rating": pa.array([1], pa.time64("ns"))}, {}, DataError, "of type time64"),
        ({"user": [], "item": [], "rating": []}, {}, DataError, "no ratings"),
    ],
)
def test_what_is_missing_or_unclear_is_an_error(change, columns, error, why):
    table = {name: column for name, column in (ROW | change).items() if column is not None}
    with pytest.raises(error) as caught:
        Dataset.from_tables(table, columns=columns)
    assert why in caught.value.message
    assert caught.value.hint


def test_a_rating_that_is_not_a_number_is_named_with_its_row(tmp_path):
    table = pa.table({"user": ["a", "b", "c"], "item": [1, 2, 3], "rating": ["05", "3", " much "]})
    path = tmp_path / "ratings.parquet"
    pa.parquet.write_table(table, path)
    place = "row 2 of the ratings table"
    for source, row in ((table.to_pandas(), place), (table, place), (path, f"{path}, row 2")):
        with pytest.raises(DataError) as caught:
            Dataset.from_tables(source)
        assert caught.value.message == f"{row}, column 'rating': 'much' is not a number"


@pytest.mark.parametrize("stars", [[" 2.5", "3"], [Decimal("2.5"), Decimal(3)]])
def test_numbers_in_texts_and_decimals_are_ratings(stars):
    data = Dataset.from_tables({"user": [1, 2], "item": [1, 2], "rating": stars})
    assert data.ratings.matrix.data.tolist() == [2.5, 3]


@pytest.mark.parametrize(
    "times",
    [
        [3, 1, 2],
        [0.3, 0.1, 0.2],
        ["2021-01-02", "2020-12-31", "2021-01-01"],
        ["30", "1", "2"],
        pd.to_datetime(["2020-01-03", "2020-01-01", "2020-01-02"]),
        pd.to_datetime([3, 1, 2], unit="ns"),
        pa.array([3, 1, 2], pa.uint64()),
        pa.array([3, 1, 2], pa.date32()),
        pa.array([3, 1, 2], pa.duration("s")),
    ],
    ids=lambda times: str(getattr(times, "dtype", getattr(times, "type", type(times[0]).__name__))),
)
def test_times_sort_whatever_their_type(times):
    table = {"user": [1, 2, 3], "item": [1, 1, 1], "rating": [1, 1, 1], "timestamp": times}
    assert np.argsort(Dataset.from_tables(table).ratings.times).tolist() == [1, 2, 0]


@pytest.mark.parametrize("times", [[5, 5], [1, None], [None, None], ["", "2020"]], ids=repr)
def test_times_that_say_nothing_are_left_out(times):
    table = {"user": [1, 2], "item": [1, 1], "rating": [1, 1], "timestamp": times}
    assert Dataset.from_tables(table).ratings.times is None


# -- users and items -----------------------------------------------------------------------------


def test_ids_of_different_types_meet():
    data = Dataset.from_tables(
        {"user": ["1", "2"], "item": [10, 20], "rating": [1, 2]},
        {"user": np.array([2.0, 1.0]), "age": [20, 10]},
        {"item": ["20", "10"], "n": [2, 1]},
    )
    assert list(data.ratings.users) == ["2", "1"]
    assert data.ratings.matrix.toarray().tolist() == [[2, 0], [0, 1]]
    with pytest.raises(UnknownId):
        data.ratings.users.rows(["01"])


def test_who_is_in_one_table_only_is_kept():
    data = Dataset.from_tables(
        {"user": ["b", "c"], "item": ["x", "x"], "rating": [1, 2]},
        {"user": ["a", "b"], "age": [1, 2]},
    )
    assert list(data.ratings.users) == ["a", "b", "c"]
    assert data.ratings.per_user.tolist() == [0, 1, 1]
    assert data.users.to_pydict() == {"age": [1, 2, None]}
    assert data.items.num_columns == 0


def test_a_repeated_user_names_both_lines(tmp_path):
    users = tmp_path / "users.csv"
    users.write_text('user_id,about\n1,"two\nlines"\n\n2,x\n1,y\n', newline="", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        Dataset.from_tables(RATINGS, users)
    assert caught.value.message == (
        f"{users}, line 6: user '1' is there already, in {users}, line 2"
    )


@pytest.mark.parametrize("content", ["user_id,age\n", "user_id,age", "user_id\n1\n", "id\n"])
def test_a_table_without_rows_or_features_is_fine(tmp_path, content):
    (tmp_path / "users.csv").write_text(content, encoding="utf-8")
    data = Dataset.from_tables(RATINGS, tmp_path / "users.csv")
    assert len(data.ratings) == len(RATINGS["rating"])
    assert all(column.null_count == len(column) for column in data.users.columns)
    assert data.plan == FeaturePlan()


def test_a_bad_user_table_is_told(tmp_path):
    users = tmp_path / "users.csv"
    for content, why in (
        ("name,age\nx,1\n", f"{users} has no column for user_id"),
        ("user_id,age\n1,2\n,3\n", f"{users}, line 3: no user id"),
        ("user_id,age\n1,2\n2\n", f"{users}, line 3: "),
    ):
        users.write_text(content, encoding="utf-8")
        with pytest.raises(DataError) as caught:
            Dataset.from_tables(RATINGS, users)
        assert caught.value.message.startswith(why)


def test_parts_take_their_rows_of_the_tables():
    data = Dataset.from_tables(RATINGS, USERS, {"item_id": ["NA", "x"], "n": [1, 2]})
    some = data.of_users(np.array([4, 0]))
    assert list(some.ratings.users) == ['né "x"', "null"]
    assert some.users.column("zip").to_pylist() == [None, "01234"]
    assert same(some.of_items(np.arange(4)), some)
    few = data.of_items(np.array([1, 0]))
    assert few.items.to_pydict() == {"n": [2, 1]}
    assert few.users.equals(data.users)
    no_items = Dataset.from_tables(RATINGS).of_items(np.array([0]))
    assert no_items.ratings.matrix.shape[1] == 1


def test_rating_rules_reach_the_ratings():
    twice = {"user": [1, 1], "item": [2, 2], "rating": [4, 2]}
    with pytest.raises(DataError, match="row 1 of the ratings table: user '1' rated item '2'"):
        Dataset.from_tables(twice)
    assert Dataset.from_tables(twice, duplicates="mean").ratings.matrix.data.tolist() == [3]
    with pytest.raises(DataError, match="outside the scale"):
        Dataset.from_tables(twice, duplicates="last", scale=(3, 5))
    with pytest.raises(SettingError):
        Dataset.from_tables(twice, duplicates="first")


def test_a_plan_must_fit_the_tables():
    data = Dataset.from_tables(RATINGS, USERS)
    fitting = FeaturePlan(users={"who": {"age": "number"}})
    assert data.with_plan(fitting).plan == fitting
    for side in ("users", "items"):
        with pytest.raises(ColumnError, match="group 'who' needs column 'height'"):
            data.with_plan(FeaturePlan(**{side: {"who": {"height": "number"}}}))


def test_tables_must_have_a_row_for_each_id():
    ratings = Ratings.from_columns(["a"], ["x"], [1], users=Ids.of(["a", "b"]))
    with pytest.raises(DataError, match="1 rows of users for 2 ids"):
        Dataset(ratings, pa.table({"age": [1]}), pa.table({}), FeaturePlan())
    other = Ratings.from_columns(["a"], ["x"], [1])
    data = Dataset(ratings, pa.table({"age": [1, 2]}), pa.table({}), FeaturePlan())
    with pytest.raises(DataError):
        data.with_ratings(other)
    assert data.with_ratings(ratings).ratings is ratings


def grid(n_users=30, n_items=20):
    users, items = np.indices((n_users, n_items)).reshape(2, -1)
    return {"user_id": users, "item_id": items, "rating": 1 + (users + items) % 5}


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([f"{k:04}" for k in range(30)], "none of the 30 users .* '0000' in the table, '0' in the"),
        ([f"u{k}" for k in range(30)], "none of the 30 users .* 'u0' in the table, '0' in the"),
    ],
)
def test_users_who_match_no_rating_are_told(ids, said):
    users = {"user_id": [str(id_) for id_ in ids], "age": list(range(30))}
    with pytest.warns(UnlikelyData, match=said):
        Dataset.from_tables(grid(), users)


def test_items_that_differ_by_case_are_told():
    table = grid()
    table["item_id"] = [f"Item-{item}" for item in table["item_id"]]
    items = {"item_id": [f"ITEM-{k}" for k in range(20)], "price": list(range(20))}
    with pytest.warns(UnlikelyData, match="20 items .* 'ITEM-0' in the table, 'Item-0' in"):
        Dataset.from_tables(table, items=items)


@pytest.mark.parametrize("sides", [["users"], ["items"], ["users", "items"]])
@pytest.mark.parametrize("prefix", ["", "u"])
def test_swapped_columns_are_told(sides, prefix):
    table = grid(n_users=50)
    users = [f"{prefix}{user}" for user in table["user_id"]]
    tables = {
        "users": {"user_id": [f"{prefix}{k}" for k in range(50)], "age": list(range(50))},
        "items": {"item_id": list(range(20)), "price": list(range(20))},
    }
    given = {side: tables[side] for side in sides}
    swapped = {"user_id": table["item_id"], "item_id": users, "rating": table["rating"]}
    with pytest.warns(UnlikelyData, match="look swapped"):
        Dataset.from_tables(swapped, **given)
    Dataset.from_tables(table | {"user_id": users}, **given)  # no warning


def test_tables_that_list_fewer_or_more_are_usual():
    some = {"user_id": list(range(12)), "age": list(range(12))}
    more = {"item_id": list(range(500)), "price": list(range(500))}
    Dataset.from_tables(grid(), some, more)


EVENTS = {
    "visitor_id": ["ann", "ann", "ann", "bob", "bob"],
    "sku": ["x", "x", "y", "x", "y"],
    "event": ["view", "purchase", "view", "view", "remove"],
    "session": [1, 1, 2, 3, 3],
    "ts": [5, 6, 7, 8, 9],
}


def test_events_of_every_type_count_one_without_weights():
    ratings = Dataset.from_tables(EVENTS).ratings
    assert ratings.feedback.kind == "events"
    assert ratings.matrix.toarray().tolist() == [[2, 1], [1, 1]]


def test_events_are_weighed_by_type_and_added_up():
    weights = {"view": 1, "purchase": 5, "remove": 0}
    ratings = Dataset.from_tables(EVENTS, event_weights=weights).ratings
    assert ratings.feedback.kind == "counts"
    assert ratings.matrix.toarray().tolist() == [[6, 1], [1, 0]]
    assert len(ratings) == 3  # what was removed is not a rating
    assert ratings.times.tolist() == [5, 7, 8]


def test_weights_take_the_place_of_values():
    table = EVENTS | {"quantity": [1, None, 1, 1, 1], "kind": EVENTS["event"]}
    del table["event"]
    weights = {"view": 0.5, "purchase": 5, "remove": 1}
    data = Dataset.from_tables(table, columns={"event": "kind"}, event_weights=weights)
    assert data.ratings.matrix.toarray().tolist() == [[5.5, 0.5], [0.5, 1]]


@pytest.mark.parametrize(
    ("change", "weights", "error", "why", "way_out"),
    [
        ({}, {"view": 1, "purchase": 5}, DataError, "no weight for 'remove'", "view, purchase"),
        ({"event": [None] * 5}, {"view": 1}, DataError, "no event id", "remove the row"),
        ({"event": ["view"] * 5}, {"view": 0}, DataError, "no ratings", "right file"),
        ({"event": None}, {"view": 1}, ColumnError, "no column for event", "columns="),
        ({}, {"view": -1}, SettingError, "event_weights={'view': -1}", "a number for each type"),
        ({}, {"view": "x"}, SettingError, "event_weights={'view': 'x'}", "a number for each type"),
        ({}, ["view"], SettingError, "event_weights=['view']", "a number for each type"),
        ({}, {}, SettingError, "event_weights={}", "a number for each type"),
        ({"event": [["view"]] * 5}, {"view": 1}, DataError, "event ids are of type list", "texts"),
        ({"event": [b"\xff"] * 5}, {"view": 1}, DataError, "of type binary", "texts"),
        ({"sku": ["x", None, "x", "x", "x"]}, {"view": 0, "purchase": 1, "remove": 1}, DataError,
         "row 1 of the ratings table: no item id", "remove the row"),
    ],
)  # fmt: skip
def test_wrong_weights_are_an_error_with_a_hint(change, weights, error, why, way_out):
    table = {name: column for name, column in (EVENTS | change).items() if column is not None}
    with pytest.raises(error) as caught:
        Dataset.from_tables(table, event_weights=weights)
    assert why in caught.value.message
    assert way_out in caught.value.hint


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"a", b"b"]).cast(pa.binary_view()),
        pc.run_end_encode(pa.array(["a", "a"])),
        pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
        pa.array([1.5, 2.5], pa.float16()),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("name", ["user", "item", "rating", "timestamp", "x"])
def test_rare_types_give_data_or_a_typed_error(column, name):
    table = pa.table({"user": [1, 2], "item": [1, 2], "rating": [1, 2]} | {name: column})
    users = table.select(["user"]).append_column("x", column)
    for tables in ((table,), (RATINGS, users)):
        with suppress(DataError):
            assert Dataset.from_tables(*tables).n_ratings > 0


def test_one_described_user_is_no_reason_to_warn():
    data = Dataset.from_tables(grid(), {"user_id": [3], "age": [20]})
    assert data.plan.users == {}


def test_a_data_set_shows_its_columns_in_a_notebook():
    users = {"user_id": [1, 2], "<b>": ["x", "y"]}
    shown = Dataset.from_tables({"user_id": [1], "item_id": [2]}, users)._repr_html_()
    assert "<td>&lt;b&gt;</td><td>string</td><td>0</td><td>2</td><td>category</td>" in shown


def test_the_index_of_a_filtered_frame_is_no_column():
    frame = pd.DataFrame({"user_id": [1, 2, 3], "item_id": [7, 8, 9], "rating": [5, 0, 3]})
    filtered = frame[frame.rating > 0]
    assert as_table(filtered, "ratings").table.column_names == ["user_id", "item_id", "rating"]
    events = Dataset.from_tables(ratings=filtered[["user_id", "item_id"]])
    assert (events.n_ratings, events.feedback.kind) == (2, "events")
