"""Preparation: what comes out is what reading the same file into memory gives."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from coldhash import Dataset
from coldhash.errors import (
    ColumnError,
    DataError,
    SettingError,
    SourceError,
    TableError,
    UnlikelyData,
    UnlikelyFavourites,
)
from coldhash.scale import Prepared, prepare

USERS = {"user_id": ["u3", "u1", "idle"], "town": ["Oslo", "Bergen", None]}
ITEMS = {"item_id": ["b", "007"], "genres": ["x|y", "y"]}


def write(path, n=500, seed=0):
    """Ratings of 40 users for 30 items, each pair once, in random order."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(40 * 30)[:n]
    table = pa.table(
        {
            "user_id": [f"u{pair // 30}" for pair in pairs],
            "item_id": [f"{pair % 30:03}" for pair in pairs],
            "rating": rng.integers(1, 6, n).astype(float),
        }
    )
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)
    return path


def matrix_of(prepared: Prepared):
    parts = [part.load().ratings for part in prepared.records()]
    return np.vstack([part.toarray() for part in parts]), parts


def test_the_name_of_a_folder_is_no_value_of_a_column(tmp_path):
    path = write(tmp_path / "ratings.csv")
    prepared = prepare(path, tmp_path / "user_id=3", part_users=7)
    assert list(prepared.user_ids) == list(Dataset.from_tables(path).ratings.users)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("with_tables", [False, True])
def test_it_is_what_reading_into_memory_gives(tmp_path, ending, with_tables):
    path = write(tmp_path / f"r{ending}")
    tables = (USERS, ITEMS) if with_tables else (None, None)
    expected = Dataset.from_tables(path, *tables)
    prepared = prepare(path, tmp_path / "parts", *tables, part_users=7)
    assert list(prepared.user_ids) == list(expected.ratings.users)
    assert list(prepared.item_ids) == list(expected.ratings.items)
    matrix, parts = matrix_of(prepared)
    np.testing.assert_array_equal(matrix, expected.ratings.matrix.toarray())
    assert all(part.has_canonical_format for part in parts)
    assert prepared.scale == expected.ratings.scale
    assert prepared.plan == expected.plan
    assert prepared.items.equals(expected.items)
    columns = [part.load().table for part in prepared.records()]
    if with_tables:
        assert pa.concat_tables(columns).equals(expected.users)
    else:
        assert all(table.num_columns == 0 for table in columns)
    seen = prepared.seen(lambda _, shape, dtype: np.empty(shape, dtype))
    np.testing.assert_array_equal(seen.indices, expected.ratings.matrix.indices)
    np.testing.assert_array_equal(seen.indptr, expected.ratings.matrix.indptr)


TIMES = ["5", "", "2020-01-03", "3.5"]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".csv.zst", ".parquet", ".jsonl"])
@pytest.mark.parametrize("odd", TIMES)
def test_blocks_are_read_as_the_whole(tmp_path, ending, odd):
    """Ids, row numbers, the order of times and the guess of feedback are those of all blocks."""
    rng, n = np.random.default_rng(3), 200
    pairs = rng.permutation(20 * 30)[:n]
    table = pa.table(
        {
            "user_id": [f"u{pair // 30}" for pair in pairs],
            "item_id": [str(pair % 30) for pair in pairs],
            "n": rng.integers(1, 9, n) ** 2,
            "timestamp": [*map(str, rng.permutation(n - 1)), odd],
        }
    )
    path = tmp_path / f"r{ending}"
    if ending == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif ending == ".jsonl":
        path.write_text("\n".join(map(json.dumps, table.to_pylist())), encoding="utf-8")
    else:
        with pa.output_stream(str(path)) as stream:  # compresses by the suffix
            pyarrow.csv.write_csv(table, stream)
    columns = {"rating": "n"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlikelyData)  # of a day among numbers
        expected = Dataset.from_tables(path, columns=columns)
        prepared = prepare(path, tmp_path / "parts", columns=columns, memory=24 * 1000)
    assert list(prepared.user_ids) == list(expected.ratings.users)
    assert list(prepared.item_ids) == list(expected.ratings.items)
    assert prepared.feedback == expected.feedback
    found = prepared.records()[0].load()
    np.testing.assert_array_equal(found.ratings.toarray(), expected.ratings.matrix.toarray())
    np.testing.assert_array_equal(found.times, expected.ratings.times)


def test_a_row_of_a_later_block_is_named(tmp_path):
    path = write(tmp_path / "r.csv")
    with path.open("a", encoding="utf-8") as file:
        file.write("u1,,3\n")
    with pytest.raises(DataError, match="line 502: no item id"):
        prepare(path, tmp_path / "parts", memory=24 * 1000)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(path), tmp_path / "r.parquet")
    with pytest.raises(DataError, match="row 500: no item id"):
        prepare(tmp_path / "r.parquet", tmp_path / "parts", memory=24 * 1000)


def test_files_with_other_columns_are_refused(tmp_path):
    for name, column in (("a", "rating"), ("b", "other")):
        table = pa.table({"user_id": [1], "item_id": [2], column: [3]})
        pyarrow.parquet.write_table(table.append_column("x", [[1]]), tmp_path / f"{name}.parquet")
    with pytest.raises(ColumnError, match=r"b\.parquet has .*other"):
        prepare(tmp_path / "*.parquet", tmp_path / "parts")


def test_a_folder_is_for_one_preparation(tmp_path):
    path = write(tmp_path / "r.csv")

    def prepare_again(*_):
        with pytest.raises(SettingError, match="another preparation works in"):
            prepare(path, tmp_path / "parts")

    prepare(path, tmp_path / "parts", progress=prepare_again)


def test_columns_may_have_any_name(tmp_path):
    names = {"user_id": 'the "user"', "item_id": "it's", "rating": 'my "rating"'}
    table = dict(zip(names.values(), (["a", "b"], ["x", "x"], [5, 1]), strict=True))
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "r.parquet")
    prepared = prepare(tmp_path / "r.parquet", tmp_path / "parts", columns=names)
    assert matrix_of(prepared)[0].tolist() == [[5], [1]]


@pytest.mark.parametrize("rule", ["last", "mean", "max", "sum"])
def test_duplicates_follow_the_same_rules(tmp_path, rule):
    path = tmp_path / "r.csv"
    path.write_text(
        "user,item,rating\na,x,5\nb,x,1\na,x,2\na,y,3\nb,x,4\na,x,3\n", encoding="utf-8"
    )
    expected = Dataset.from_tables(path, duplicates=rule).ratings.matrix.toarray()
    prepared = prepare(path, tmp_path / "parts", duplicates=rule, part_users=1)
    np.testing.assert_array_equal(matrix_of(prepared)[0], expected)
    assert prepared.n_ratings == 3


EVENTS = {"user": ["a", "b", "a", "a", "b"], "item": ["x", "x", "x", "y", "y"]}
DAYS = [3, 1, 2, 1, 9]


@pytest.mark.parametrize(
    "times",
    [
        DAYS,
        [3.5, 1.5, 10.5, 1.5, 9.0],
        ["2020-01-03", "2019-12-31", "2020-01-01", "2019-12-31", "2021-01-01"],
        ["2020-01-03T10:00:00", "2020-01-03 09:00:00", "2020-01-01", "2020-01-01", "2020-01-02"],
        ["10.5", "9.5", "1", "1", "3"],
        ["2020-01-03T10:00+02:00", "2020-01-03T09:00Z", "2020-01-01T00:00Z"] + ["2020-02-01"] * 2,
        ["31-Jan-2020", "01-Feb-2020", "3-Jan-2020", "01-Feb-2020", "1-Mar-1999"],
        ["31.1.2020", "1.2.2020", "3.1.2020", "3.1.2020", "1.3.1999"],
        [5] * 5,
        [1, 2, None, 3, 4],
        [1.0, 2.0, float("nan"), 3.0, 4.0],
        ["1", "NULL", "2", "3", "4"],
        pa.array(DAYS, pa.int16()),
        pa.array(DAYS, pa.uint64()),
        pa.array(DAYS, pa.date32()),
        pa.array(DAYS, pa.timestamp("ns")),
        pa.array(DAYS, pa.timestamp("ms")),
        pa.array(DAYS, pa.timestamp("us", "Asia/Tokyo")),
    ],
    ids=lambda times: str(getattr(times, "type", times)),
)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("values", [{}, {"quantity": [1, 2, 3, 4, 5]}], ids=["events", "counts"])
def test_times_and_feedback_are_those_of_memory(tmp_path, ending, times, values):
    path = tmp_path / f"r{ending}"
    table = pa.table(EVENTS | values | {"created_at": times})
    writer = pyarrow.parquet.write_table if ending == ".parquet" else pyarrow.csv.write_csv
    writer(table, path)
    expected = Dataset.from_tables(path)
    prepared = prepare(path, tmp_path / "parts", part_users=1)
    matrix, _ = matrix_of(prepared)
    np.testing.assert_array_equal(matrix, expected.ratings.matrix.toarray())
    assert prepared.feedback == expected.feedback
    assert prepared.scale == expected.scale
    found = [part.load().times for part in prepared.records()]
    if expected.ratings.times is None:
        assert found == [None, None]
    else:
        found, wanted = np.concatenate(found), expected.ratings.times
        assert found.dtype == np.int64
        order = np.unique(found, return_inverse=True)[1]  # ranks need not be the same numbers
        np.testing.assert_array_equal(order, np.unique(wanted, return_inverse=True)[1])


def test_whole_numbers_of_many_digits_have_an_order(tmp_path):
    times = ["99999999999999999999", "1", "2", "3", "4"]
    pyarrow.csv.write_csv(pa.table(EVENTS | {"ts": times}), tmp_path / "r.csv")
    prepared = prepare(tmp_path / "r.csv", tmp_path / "parts", duplicates="last")
    assert np.argsort(prepared.records()[0].load().times).tolist() == [2, 0, 1, 3]
    expected = Dataset.from_tables(tmp_path / "r.csv", duplicates="last").ratings.times
    assert np.argsort(expected).tolist() == [2, 0, 1, 3]


@pytest.mark.parametrize(
    "times",
    [
        ["b", "a", "c", "a", "d"],
        ["01/02/2020"] * 4 + ["03/04/2020"],
        ["[1.5, 2]"] * 5,
    ],
)
def test_times_that_are_no_dates_are_told(tmp_path, times):
    pyarrow.csv.write_csv(pa.table(EVENTS | {"ts": times}), tmp_path / "r.csv")
    with pytest.warns(UnlikelyData, match=re.escape(f"times such as '{times[0]}' are not")):
        assert Dataset.from_tables(tmp_path / "r.csv").ratings.times is None
    with pytest.warns(UnlikelyData, match="are not clear"):
        prepared = prepare(tmp_path / "r.csv", tmp_path / "parts")
    assert prepared.records()[0].load().times is None


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_folders_and_types_of_events_are_those_of_memory(tmp_path, ending):
    kinds = {"event": ["view", "buy", "it's", "view", "buy"]}
    writer = pyarrow.parquet.write_table if ending == ".parquet" else pyarrow.csv.write_csv
    table = pa.table(EVENTS | kinds)
    for name, first, last in (("b", 2, 5), ("a", 0, 2)):
        folder = tmp_path / "logs" / f"part={name}"
        folder.mkdir(parents=True)
        writer(table.slice(first, last - first), folder / f"x{ending}")
    weights = {"view": 1, "buy": 2.5, "it's": 0}
    for source in (tmp_path / "logs", tmp_path / "logs" / "*" / f"*{ending}"):
        expected = Dataset.from_tables(source, event_weights=weights)
        prepared = prepare(source, tmp_path / "parts", event_weights=weights, part_users=1)
        np.testing.assert_array_equal(matrix_of(prepared)[0], expected.ratings.matrix.toarray())
        assert prepared.feedback == expected.feedback
    with pytest.raises(DataError, match="no weight for"):
        prepare(tmp_path / "logs", tmp_path / "parts", event_weights={"view": 1, "buy": 2})
    with pytest.raises(ColumnError, match="no column for event"):
        prepare(
            tmp_path / "logs",
            tmp_path / "parts",
            event_weights={"view": 1},
            columns={"event": None},
        )


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ([-9.5, 4.25, 9.75], {}),
        ([1, 2, 50], {}),
        ([3, 3, 3], {}),
        ([3, 3, 3], {"scale": (1.0, 5.0)}),
        ([3, 4, 5], {"favourite": "user-mean"}),
        ([3, 4, 5], {"favourite": 4, "feedback": "counts"}),
        ([3, 4, 5], {"feedback": "events"}),
    ],
)
def test_the_rule_of_favourites_is_that_of_memory(tmp_path, values, settings):
    path = tmp_path / "r.parquet"
    table = {"user": np.arange(3), "item": np.arange(3), "rating": values}
    pyarrow.parquet.write_table(pa.table(table), path)
    expected = Dataset.from_tables(path, **settings)
    prepared = prepare(path, tmp_path / "parts", **settings)
    assert prepared.feedback == expected.feedback
    assert Prepared.open(tmp_path / "parts").feedback == expected.feedback
    assert prepared.scale == expected.scale


def test_unlikely_favourites_are_told(tmp_path):
    table = {"user": np.arange(200), "item": np.arange(200) % 9, "rating": [1, 2] * 100}
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "r.parquet")
    with pytest.warns(UnlikelyFavourites, match="0 of 200 ratings"):
        prepare(tmp_path / "r.parquet", tmp_path / "parts", scale=(1.0, 5.0))


def test_a_repetition_is_an_error_that_names_both_rows(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\na,x,5\nb,x,1\na,x,2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2: user 'a' rated item 'x' already, in .*row 0"):
        prepare(path, tmp_path / "parts")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,rating\na,x,5\n,x,1\n", "line 3: no user id"),
        ("user,item,rating\na,x,5\nb,,1\n", "line 3: no item id"),
        ("user,item,rating\na,x,5\nb,x,much\n", "line 3, column 'rating': .* 'much'"),
        ("user,item,rating\na,x,-5e7\n", "line 2: the rating is -5e.*, outside the scale -1e"),
        ("user,item,rating\na,x,nan\n", "line 2: the rating is nan"),
        ("user,item,rating\na,x,5\nb,x,1\nb,\xff,1\n", "line 4: byte 0xff is not utf-8"),
        ("user,thing,rating\na,x,1\n", "no column for item_id"),
    ],
)
@pytest.mark.parametrize("memory", ["2GB", 24 * 30])
def test_what_cannot_be_right_is_named_as_in_memory(tmp_path, text, message, memory):
    path = tmp_path / "r.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message) as expected:
        Dataset.from_tables(path)
    with pytest.raises(DataError) as found:
        prepare(path, tmp_path / "parts", memory=memory)
    assert str(found.value) == str(expected.value)
    with pytest.raises(SourceError, match="holds no prepared data"):
        Prepared.open(tmp_path / "parts")


@pytest.mark.parametrize("text", ["user,item,rating\n", "", "\n"])
def test_no_ratings_are_an_error(tmp_path, text):
    path = tmp_path / "r.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"no rows|is empty"):
        prepare(path, tmp_path / "parts")
    with pytest.raises(SourceError, match="holds no prepared data"):
        Prepared.open(tmp_path / "parts")


def test_a_torn_line_is_an_error(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\na,x,5\nb,x\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"r\.csv"):
        prepare(path, tmp_path / "parts")


class Stopped(Exception):
    pass


def test_stopped_half_way_and_started_again_it_is_the_same(tmp_path):
    path, out = write(tmp_path / "r.csv"), tmp_path / "parts"

    def stop(what, done, of):
        if what == "writing partitions" and done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        prepare(path, out, part_users=7, progress=stop)
    with pytest.raises(SourceError, match="only a part"):
        Prepared.open(out)
    (out / ".runs.0123abcd.part").mkdir()  # of one that was killed
    prepared = prepare(path, out, part_users=7)
    whole = prepare(path, tmp_path / "whole", part_users=7)
    np.testing.assert_array_equal(matrix_of(prepared)[0], matrix_of(whole)[0])
    assert not list(out.glob("*runs*"))


def test_another_preparation_replaces_what_is_in_the_folder(tmp_path):
    one, two = write(tmp_path / "one.csv"), write(tmp_path / "two.csv", n=300, seed=1)
    assert prepare(one, tmp_path / "parts").n_ratings == 500
    (tmp_path / "parts" / "mine.txt").write_text("not yours", encoding="utf-8")
    assert prepare(two, tmp_path / "parts").n_ratings == 300
    assert (tmp_path / "parts" / "mine.txt").exists()


def test_a_preparation_that_fails_leaves_the_last_one(tmp_path):
    prepare(write(tmp_path / "r.csv"), tmp_path / "parts", part_users=7)
    before = {path.name: path.read_bytes() for path in (tmp_path / "parts").glob("*.*")}
    (tmp_path / "bad.csv").write_text("user_id,item_id,rating\na,b,x\n", encoding="utf-8")
    with pytest.raises(TableError, match="line 2, column 'rating'"):
        prepare(tmp_path / "bad.csv", tmp_path / "parts")
    assert {path.name: path.read_bytes() for path in (tmp_path / "parts").glob("*.*")} == before


def test_a_damaged_parquet_file_is_told(tmp_path):
    path = write(tmp_path / "r.parquet")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"r\.parquet"):
        prepare(path, tmp_path / "parts")


def test_files_with_times_of_several_units_are_one_order(tmp_path):
    (tmp_path / "logs").mkdir()
    units = [pa.timestamp(unit) for unit in ("us", "ms", "ns", "s")]
    for n, unit in enumerate(units):
        days = pa.array([(7 * n) % 5, n + 9], pa.int32()).cast(pa.date32())
        table = {"user_id": [1, 2], "item_id": [n, n], "timestamp": days.cast(unit)}
        pyarrow.parquet.write_table(pa.table(table), tmp_path / "logs" / f"{n}.parquet")
    expected = Dataset.from_tables(tmp_path / "logs").ratings.times
    prepared = prepare(tmp_path / "logs", tmp_path / "parts", part_users=1)
    found = np.concatenate([part.load().times for part in prepared.records()])
    np.testing.assert_array_equal(np.argsort(found[:4]), np.argsort(expected[:4]))


def test_odd_arguments_are_named(tmp_path):
    path = write(tmp_path / "r.csv")
    with pytest.raises(SettingError, match="duplicates='first'"):
        prepare(path, tmp_path / "parts", duplicates="first")
    with pytest.raises(SettingError, match="'much' is not a size"):
        prepare(path, tmp_path / "parts", memory="much")
    with pytest.raises(SourceError, match="No such file"):
        prepare(tmp_path / "none.csv", tmp_path / "parts")
    prepare(path, tmp_path / "parts")
    manifest = tmp_path / "parts" / "manifest.json"
    manifest.write_text(
        json.dumps(json.loads(manifest.read_text(encoding="utf-8")) | {"format": 99}),
        encoding="utf-8",
    )
    with pytest.raises(SourceError, match="newer version"):
        Prepared.open(tmp_path / "parts")
