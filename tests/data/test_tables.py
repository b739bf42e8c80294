"""Files in, tables out: formats, marks, encodings, and errors that know the line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldhash import Dataset, TableFile
from coldhash.data.tables import READ_BYTES, as_table, infer_types
from coldhash.errors import (
    ColdhashError,
    ColumnError,
    DataError,
    SettingError,
    SourceError,
    TableError,
)

fast = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
cells = st.text(st.characters(codec="utf-8", exclude_characters="\0\x1f"), max_size=6)
filled = cells.filter(bool)


@st.composite
def text_tables(draw):
    """Column names and rows of texts, of which the first column is never empty."""
    names = draw(st.lists(filled, min_size=1, max_size=4, unique=True))
    row = st.tuples(filled, *[cells] * (len(names) - 1)).map(list)
    return names, draw(st.lists(row, max_size=8))


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, **style):
    return TableFile(path=path, **style).read()


def as_rows(table):
    return [[value or "" for value in row.values()] for row in table.to_pylist()]


def as_csv(names, rows, separator=",", ending="\n"):
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator, lineterminator=ending, quoting=csv.QUOTE_ALL)
    writer.writerows([names, *rows])
    return out.getvalue()


# -- what is written is read ---------------------------------------------------------------------


@fast
@given(
    table=text_tables(),
    separator=st.sampled_from(",;\t|"),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.sampled_from(["", "\ufeff"]),
    last=st.booleans(),
)
def test_text_round_trip(tmp_path, table, separator, ending, mark, last):
    names, rows = table
    content = as_csv(names, rows, separator, ending)
    content = mark + (content if last else content.removesuffix(ending))
    got = read(written(tmp_path / "t.csv", content), separator=separator)
    assert got.column_names == names
    assert as_rows(got) == rows


@fast
@given(text_tables())
def test_json_and_parquet_round_trip(tmp_path, table):
    names, rows = table
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=bool(rows)))
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
    if rows:
        assert read(written(tmp_path / "t.jsonl", "\r\n".join(lines))).to_pydict() == columns
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").to_pydict() == columns


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_encodings(tmp_path, encoding, ending):
    text = 'né,ö\n"ß,\n",ü\n' if ending == "csv" else '{"né": "ß,\\n", "ö": "ü"}\n'
    path = written(tmp_path / f"t.{ending}", text.encode(encoding))
    assert read(path, encoding=encoding).to_pydict() == {"né": ["ß,\n"], "ö": ["ü"]}


TEXT = "user_id,item_id,rating\n1,x,5\n007,y,3\n"


def variants(tmp_path):
    """One small table in every format and packing."""
    parquet = io.BytesIO()
    pa.parquet.write_table(
        pa.table({"user_id": ["1", "007"], "item_id": ["x", "y"], "rating": [5, 3]}), parquet
    )
    lines = (
        '{"user_id": "1", "item_id": "x", "rating": 5}\n\n'
        '{"rating": 3, "item_id": "y", "user_id": "007"}\n'
    )
    contents = {
        "a.csv": TEXT.encode(),
        "a.tsv": TEXT.replace(",", "\t").encode(),
        "a.dat": TEXT.replace(",", "::").encode(),
        "a.txt": TEXT.replace(",", ";").encode(),
        "bar.csv": TEXT.replace(",", "|").encode(),
        "a.jsonl": lines.encode(),
        "a.ndjson": lines.encode(),
        "a.parquet": parquet.getvalue(),
    }
    contents |= {f"{name}.gz": gzip.compress(content) for name, content in contents.items()}
    contents |= {
        f"{name}.zst": pa.compress(content, codec="zstd", asbytes=True)
        for name, content in contents.items()
        if not name.endswith(".gz")
    }
    contents["B.CSV.GZ"] = contents["a.csv.gz"]
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"in/{name}", content)
    files = [TableFile(path=written(tmp_path / n, c)) for n, c in contents.items()]
    return files + [TableFile(path=tmp_path / "all.zip", member=f"in/{n}") for n in contents]


def test_every_format_gives_the_same_data(tmp_path):
    for file in variants(tmp_path):
        data = Dataset.from_tables(file)
        assert list(data.ratings.users) == ["1", "007"], file.title
        assert list(data.ratings.items) == ["x", "y"], file.title
        assert data.ratings.matrix.toarray().tolist() == [[5, 0], [0, 3]], file.title


@pytest.mark.parametrize(
    ("first", "separator"),
    [
        ("a,b,c", ","),
        ("a;b;c", ";"),
        ("a|b", "|"),
        ("a, b, c\td", "\t"),
        ("a::b", "::"),
        ('"a;b;c;d",e', ","),
        ('a;"x, y, z"', ";"),
    ],
)
def test_the_separator_is_found(tmp_path, first, separator):
    path = written(tmp_path / "t.txt", f"{first}\n")
    assert read(path) == read(path, separator=separator)
    assert len(read(path).column_names) > 1


def test_a_single_column_needs_no_separator(tmp_path):
    assert read(written(tmp_path / "t.csv", "a\n1\n\n2\n")).to_pydict() == {"a": ["1", "2"]}


def test_beside_double_colons_quotes_are_text(tmp_path):
    path = written(tmp_path / "t.dat", 'a::b\n"x"::say "y\n')
    assert read(path).to_pydict() == {"a": ['"x"'], "b": ['say "y']}


def test_quotes_can_be_letters(tmp_path):
    path = written(tmp_path / "t.csv", 'a,b\n5" disk,"x\n')
    assert read(path, quote=None).to_pydict() == {"a": ['5" disk'], "b": ['"x']}


def test_escapes(tmp_path):
    path = written(tmp_path / "t.csv", 'a,b\n"x\\"\n\\"y","z\\\\"\n"1","2\\",\n3"\n')
    assert read(path, escape="\\").to_pydict() == {"a": ['x"\n"y', "1"], "b": ["z\\", '2",\n3']}


def test_a_file_without_a_header_line(tmp_path):
    path = written(tmp_path / "t.csv", "1,x,5\n2,y,4\n")
    data = Dataset.from_tables(TableFile(path=path, names=["user_id", "item_id", "rating"]))
    assert list(data.ratings.users) == ["1", "2"]


def test_a_path_may_be_a_text(tmp_path):
    path = written(tmp_path / "t.csv", "a\n1\n")
    assert TableFile(path=str(path)) == TableFile(path=path)


@pytest.mark.parametrize("gap", [READ_BYTES - 3, READ_BYTES + 3])
def test_a_line_break_in_quotes_at_the_edge_of_a_block(tmp_path, gap):
    rows = [["x" * 997, "y"]] * (gap // 1000) + [["a\nb", "c"]] * 3
    path = written(tmp_path / "t.csv", as_csv(["p", "q"], rows))
    assert as_rows(read(path)) == rows


# -- errors know the place -----------------------------------------------------------------------


@fast
@given(
    rows=st.lists(st.tuples(filled, filled), max_size=5),
    blank=st.integers(0, 3),
    ending=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from(["", "\ufeff"]),
    fault=st.sampled_from(["ragged", "word", "negative", "empty"]),
)
def test_an_error_names_the_line(tmp_path, rows, blank, ending, mark, fault):
    good = [[f"{n}{user}", item, "3"] for n, (user, item) in enumerate(rows)]
    before = mark + as_csv(["user_id", "item_id", "rating"], good, ending=ending) + ending * blank
    bad = {"ragged": "a,b", "word": "a,b,good", "negative": "a,b,-1e7", "empty": "a,b,"}[fault]
    path = written(tmp_path / "r.csv", before + bad + ending + "c,d,3")
    with pytest.raises(DataError) as caught:
        Dataset.from_tables(path)
    line = len(io.StringIO(before, newline=None).read().split("\n"))  # quoted breaks count too
    assert str(caught.value).startswith(f"{path}, line {line}")
    assert caught.value.hint
    if fault in ("word", "empty"):
        assert "column 'rating'" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "place", "hint"),
    [
        (b"user_id,item_id,rating\n1,2,3\r\n1,\xe9,3\n", "line 3: byte 0xe9", "latin-1"),
        (b"us\xe9r_id,item_id,rating\n1,2,3\n", "line 1: byte 0xe9", "latin-1"),
        (TEXT.encode("utf-16"), "line 1: byte 0xff", "utf-16"),
        (TEXT.encode("utf-16-le"), "zero bytes", "utf-16-le"),
        (b'user_id,item_id,rating\n1,a,3\n2,"b,3\n4,d,5\n', "line 3: a quote", "double a quote"),
        (b'user_id,item_id,rating\n2,"b,3\n4,"d",5\n', "line 2: a quote", "double a quote"),
        (b"user_id;item_id;rating\n1;2;3,5\n", "line 2, column 'rating': ", "3.5"),
        (b"user_id::item_id::rating\n1::\x1f::3\n", "0x1f", "another separator"),
        (b"user_id,item_id,rating\n1,,3\n", "line 2: no item id", "remove the row"),
        (b"user_id,item_id,rating\n1,2,nan\n", "line 2: the rating is nan", "leave out"),
        (b"user_id,item_id,rating\n1,2,1e99\n", "line 2: the rating is inf", "leave out"),
        (b"user_id,item_id,rating\n1,2,978300760\n", "line 2: the rating", "a time"),
        (b"user_id,item_id,rating\n1,2,3\n1,3,4\n1,2,4\n", "line 4: user '1' rated", "'last'"),
        (b"user_id,item_id,rating", "no ratings", "right file"),
        (b"user_id,item_id,user_id\n1,2,3", "'user_id' is there twice", "rename"),
        (b"1,2,3\n4,5,6\n", "no column for user_id: it has '1', '2', '3'", "names=["),
        (b"user_id,item_id,x\n1,2,3", "no column for rating", "{'rating': None}"),
        (b"", "the file is empty", ""),
        (b"\xef\xbb\xbf\r\n \n", "the file is empty", ""),
    ],
)
def test_a_bad_text_file_is_told(tmp_path, content, place, hint):
    path = written(tmp_path / "bad.csv", content)
    with pytest.raises(DataError) as caught:
        Dataset.from_tables(path)
    assert str(caught.value).startswith(str(path))
    assert place in caught.value.message
    assert hint in (caught.value.hint or "")


JSON_ROW = b'{"user_id": "\xe2\x80\xa8", "item_id": 1, "rating": 3}\n'  # a line separator inside


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (JSON_ROW + b"\r\n{oops\n", "line 3: "),
        (JSON_ROW + b"\n[1]\n", "line 3: "),
        (JSON_ROW + b'{"user_id": 5}\n', "line 2, column 'user_id': "),
        (JSON_ROW + b'{"rating": null}\n{"rating": "x"}', "line 3, column 'rating': "),
        (JSON_ROW + b'{"rating": 1, "rating": 2}', "line 2, column 'rating': "),
        (JSON_ROW + b'{"user_id": "\xff"}', "line 2: byte 0xff is not utf-8"),
        (JSON_ROW + b'{"\xff": 1}', "line 2: byte 0xff is not utf-8"),
        (
            JSON_ROW + b'\n{"user_id": "a", "item_id": 1, "rating": -3e9}',
            "line 3: the rating is -3",
        ),
        (JSON_ROW + b'\n{"user_id": "a", "item_id": 1}', "line 3, column 'rating': no rating"),
        (JSON_ROW + b'{"user_id": "a", "item_id": 18446744073709551615}', "column 'rating'"),
        (b'{"user_id": 18446744073709551615, "item_id": 1, "rating": 1}', "line 1: 1.8"),
        (b'{"user_id": ' + b"[" * 50_000, "line 1: nested more than"),
        (b"{}\n", "no column for user_id"),
        (b" \n", "the file is empty"),
    ],
)
def test_a_bad_json_file_is_told(tmp_path, content, place):
    path = written(tmp_path / "bad.jsonl", content)
    with pytest.raises(DataError) as caught:
        Dataset.from_tables(path)
    assert str(caught.value).startswith(str(path))
    assert place in caught.value.message


def test_a_bad_row_of_a_parquet_file_is_told(tmp_path):
    columns = {"user_id": [1, 2], "item_id": [1, 2], "rating": [1.0, float("nan")]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "r.parquet")
    with pytest.raises(DataError, match=r"r\.parquet, row 1: the rating is nan"):
        Dataset.from_tables(tmp_path / "r.parquet")
    with pytest.raises(TableError, match="not a whole Parquet file"):
        read(written(tmp_path / "t.parquet", b""))


def test_a_row_of_text_may_be_long_but_not_endless(tmp_path):
    path = written(tmp_path / "t.csv", f"a\n1\n{'x' * (READ_BYTES // 2)}\n2\n")
    assert "x" * (READ_BYTES // 2) in read(path).column("a").to_pylist()
    with pytest.raises(TableError, match="a row may be 4 MiB long"):
        read(written(path, f"a\n1\n{'x' * 2 * READ_BYTES}\n2\n"))


def test_the_type_of_a_json_column_does_not_depend_on_the_length_of_the_file(tmp_path):
    many = b'{"a": "' + b"x" * 1000 + b'"}\n'
    for other in (b"5", b'{"b": 1}', b"[1]"):
        content = many * (2 * READ_BYTES // len(many)) + b'{"a": ' + other + b"}\n"
        with pytest.raises(TableError, match=r"line \d+, column 'a': ") as caught:
            read(written(tmp_path / "t.jsonl", content))
        assert caught.value.line == content.count(b"\n")


def test_json_texts_that_look_like_dates_stay_texts(tmp_path):
    path = written(tmp_path / "t.jsonl", '{"a": "2020-01-01", "b": ["1999-12-31"], "c": 9}\n')
    assert read(path).to_pylist() == [{"a": "2020-01-01", "b": ["1999-12-31"], "c": 9}]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("t.csv.gz", gzip.compress(b"a\n1\n", mtime=0)[:-9], "Truncated"),
        ("t.csv.gz", b"a\n1\n", "zlib"),
        ("t.csv.zst", b"a\n1\n", "ZSTD"),
        ("t.xlsx", b"a\n1\n", "unknown suffix 'xlsx'"),
        ("t", b"a\n1\n", "unknown suffix ''"),
        ("t.zip", b"a\n1\n", "unknown suffix 'zip'"),
    ],
)
def test_an_unusable_file_is_a_source_error(tmp_path, name, content, why):
    with pytest.raises(SourceError, match=why) as caught:
        read(written(tmp_path / name, content))
    assert str(caught.value).startswith(str(tmp_path / name))


def test_what_is_not_there_is_a_source_error(tmp_path):
    with pytest.raises(SourceError, match=r"gone\.csv: No such file"):
        read(tmp_path / "gone.csv")
    with pytest.raises(SourceError, match="No such file"):
        read(tmp_path / f"{'long' * 100}.csv")
    with pytest.raises(SourceError, match="not a zip file"):
        read(written(tmp_path / "t.zip", b"PK"), member="t.csv")
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("t.csv", "a\n1\n")
    with pytest.raises(SourceError, match=r"no item named 'u\.csv'"):
        read(tmp_path / "t.zip", member="u.csv")
    whole = (tmp_path / "t.zip").read_bytes()
    with pytest.raises(SourceError, match="Bad CRC"):
        read(written(tmp_path / "t.zip", whole.replace(b"a\n1\n", b"b\n1\n")), member="t.csv")


@pytest.mark.parametrize(
    "style",
    [
        {"separator": "ab"},
        {"separator": ""},
        {"separator": "é"},
        {"separator": "\n"},
        {"quote": "''"},
        {"quote": "::"},
        {"separator": '"'},
        {"escape": '"'},
        {"encoding": "klingon"},
        {"encoding": "hex"},
        {"encoding": "\0"},
    ],
    ids=repr,
)
def test_an_impossible_style_is_a_setting_error(tmp_path, style):
    path = written(tmp_path / "t.csv", "a,b\n1,2\n")
    with pytest.raises(SettingError):
        read(path, **style)


# -- line breaks within quotes -------------------------------------------------------------------


@fast
@given(st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1, max_size=6))
def test_a_line_break_in_quotes_is_never_overlooked(rows):
    file = TableFile(path="t.csv", separator=",")
    breaks = any("\n" in cell or "\r" in cell for row in rows for cell in row)
    assert file._spans_lines(as_csv(["p", "q"], rows).encode()) == breaks


# -- types of columns ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "-2", " 3 "], [1, -2, 3]),
        (["1", "2.5", "1e3"], [1.0, 2.5, 1000.0]),
        (["01234", "90210"], ["01234", "90210"]),
        (["00.5", "1"], ["00.5", "1"]),
        (["1", "NULL", "nan", "None", "\\N", "n/a", ""], [1, *[None] * 6]),
        (["NULL", "null"], [None, None]),
        (["NA", "x"], ["NA", "x"]),
        (["9223372036854775807"], [9223372036854775807]),
        (["9223372036854775808"], ["9223372036854775808"]),
        (["-", "."], ["-", "."]),
        ([" ", "1"], [" ", "1"]),
        (["1,5"], ["1,5"]),
        (["inf", "1"], ["inf", "1"]),
        (["１２"], ["１２"]),
        ([None, "4"], [None, 4]),
    ],
    ids=repr,
)
def test_numbers_become_numbers_and_codes_stay_codes(texts, expected):
    table = pa.table({"id": texts, "column": pa.array(texts, pa.string())})
    assert infer_types(table, keep="id").to_pydict() == {"id": texts, "column": expected}


@fast
@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_whole_numbers_survive_as_text(numbers):
    texts = pa.array([None if n is None else str(n) for n in numbers], pa.string())
    assert infer_types(pa.table({"n": texts}), keep="").column("n").to_pylist() == numbers


@fast
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_decimal_numbers_survive_as_text(numbers):
    texts = pa.table({"n": list(map(repr, numbers))})
    assert infer_types(texts, keep="").column("n").to_pylist() == numbers


def test_nan_is_null_and_other_types_stay():
    table = pa.table({"x": [1.5, float("nan")], "b": [True, None], "l": [["NULL"], None]})
    got = infer_types(table, keep="").to_pydict()
    assert got == {"x": [1.5, None], "b": [True, None], "l": [["NULL"], None]}


@pytest.mark.parametrize(
    "source",
    [
        {"a": [1, "x"]},
        {"a": [1, 2], "b": [1]},
        {"a": 5},
        {"a": [2**70]},
        {"a": ["\ud800"]},
        {1: [1]},
        [1, 2],
        5,
        b"x",
        {
            "a": pa.Array.from_buffers(
                pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
            )
        },
    ],
    ids=lambda source: type(source).__name__,
)
def test_what_is_no_table_is_a_data_error(source):
    with pytest.raises(DataError):
        as_table(source, "user")


def test_columns_of_one_name_are_an_error(tmp_path):
    twins = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pa.parquet.write_table(twins, tmp_path / "t.parquet")
    for source in (twins, tmp_path / "t.parquet"):
        with pytest.raises(ColdhashError, match="'a'"):
            as_table(source, "user")
    path = written(tmp_path / "t.csv", "1,2\n")
    with pytest.raises(ColumnError, match="'a' is there twice"):
        read(path, names=("a", "a"))


# -- mangled files -------------------------------------------------------------------------------

MARKS = st.sampled_from([b'"', b"\n", b"\r", b",", b":", b"\\", b"\0", b"\xff", b"{", b"[", b"-"])
damage = st.lists(
    st.tuples(
        st.sampled_from(["delete", "double", "insert", "flip", "cut"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 9),
        MARKS,
    ),
    min_size=1,
    max_size=5,
)


def mangled(content, damage):
    body = bytearray(content)
    for what, place, n, mark in damage:
        at = int(place * len(body))
        if what == "delete":
            del body[at : at + n]
        elif what == "double":
            body[at:at] = body[at : at + n]
        elif what == "insert":
            body[at:at] = mark
        elif what == "cut":
            del body[len(body) - n :]
        elif body:
            body[at] ^= 1 << (n % 8)
    return bytes(body)


def packed(ending, rows):
    names = ("user_id", "item_id", "rating", "timestamp")
    if ending == "csv":
        return as_csv(names, rows).encode()
    lines = [dict(zip(names, row, strict=True)) for row in rows]
    if ending == "jsonl":
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()
    out = io.BytesIO()
    pa.parquet.write_table(pa.Table.from_pylist(lines), out)
    return out.getvalue()


def data_or_error(*tables):
    try:
        return Dataset.from_tables(*tables, duplicates="last")
    except ColdhashError as error:
        return error


@pytest.mark.filterwarnings("ignore::coldhash.errors.UnlikelyData")
@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.tuples(filled, filled, st.integers(0, 10), st.integers(0, 2**40)),
        min_size=1,
        max_size=8,
        unique_by=lambda row: row[:2],
    ),
    damage=damage,
)
def test_a_mangled_file_gives_data_or_a_typed_error(tmp_path, ending, rows, damage):
    content = packed(ending, rows)
    path = written(tmp_path / f"r.{ending}", content)
    assert len(Dataset.from_tables(path).ratings) == len(rows)
    written(path, mangled(content, damage))
    users = written(tmp_path / f"u.{ending}", mangled(content, damage[::-1]))
    for tables in ((path,), (path, users)):
        outcome = data_or_error(*tables)
        if isinstance(outcome, ColdhashError):
            assert str(tmp_path) in str(outcome)
        else:
            assert len(outcome.ratings) > 0
            assert all(list(outcome.ratings.users))


# -- several files, lazy tables, and files of RecBole ----------------------------------------------

PARTS = [
    {"user_id": ["007", "1"], "item_id": ["a", "b"], "rating": [5, 3]},
    {"user_id": ["2", "007"], "item_id": ["a", "c"], "rating": [4, 1]},
]
WHOLE = {name: PARTS[0][name] + PARTS[1][name] for name in PARTS[0]}


def write_part(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.table(columns), path)
    else:
        rows = [columns, *zip(*columns.values(), strict=True)]
        path.write_text("\n".join(",".join(map(str, row)) for row in rows), encoding="utf-8")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_folder_and_a_glob_are_one_table(tmp_path, suffix):
    for at, part in enumerate(PARTS):
        write_part(tmp_path / "logs" / f"part-{at}.{suffix}", part)
    for name in ("_SUCCESS", ".part-0.crc"):
        (tmp_path / "logs" / name).write_text("", encoding="utf-8")
    for source in ("logs", f"logs/*.{suffix}", "l*s"):
        path = tmp_path / source
        if source == "l*s":
            path = path / f"part-*.{suffix}"
        numbers = {"rating": pa.int64()}
        assert as_table(str(path), "ratings", numbers).table.to_pydict() == WHOLE
        ratings = Dataset.from_tables(path).ratings
        assert list(ratings.users) == ["007", "1", "2"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_hive_partitions_are_columns(tmp_path, suffix):
    for at, part in enumerate(PARTS):
        folder = tmp_path / "outer=1" / "users" / f"country=n{at}" / f"year={2020 + at}"
        write_part(folder / f"x.{suffix}", part)
    for source in ("users", f"users/*/*/*.{suffix}"):
        table = as_table(tmp_path / "outer=1" / source, "user").table.to_pydict()
        assert table.keys() - WHOLE.keys() == {"country", "year"}  # not what lies above
        assert table["country"] == ["n0", "n0", "n1", "n1"]
        assert table["year"] == ["2020", "2020", "2021", "2021"]


def test_hive_values_are_decoded(tmp_path):
    for at, name in enumerate(("S%C3%A3o Paulo%2FRio", "__HIVE_DEFAULT_PARTITION__")):
        write_part(tmp_path / f"home%20town={name}" / "x.parquet", {"user_id": [str(at)]})
    table = as_table(tmp_path, "user").table
    assert table.column("home town").to_pylist() == ["São Paulo/Rio", None]


def test_a_column_that_some_files_lack_is_missing_there(tmp_path):
    write_part(tmp_path / "a.parquet", {"user_id": ["1"], "age": [5]})
    write_part(tmp_path / "b.parquet", {"user_id": ["2"]})
    table = as_table(tmp_path, "user").table
    assert table.to_pydict() == {"user_id": ["1", "2"], "age": [5, None]}


def test_an_error_names_the_file_within_a_folder(tmp_path):
    for at, part in enumerate(PARTS):
        write_part(tmp_path / f"part-{at}.csv", part | ({"item_id": ["a", ""]} if at else {}))
    with pytest.raises(DataError, match=r"part-1\.csv, line 3: no item id"):
        Dataset.from_tables(tmp_path)


def test_files_that_do_not_fit_together_are_told(tmp_path):
    write_part(tmp_path / "a.parquet", {"user_id": ["1"], "age": [5]})
    write_part(tmp_path / "b.parquet", {"user_id": ["2"], "age": ["old"]})
    with pytest.raises(TableError, match="age") as caught:
        as_table(tmp_path, "user")
    assert "one type" in caught.value.hint


@pytest.mark.parametrize("source", ["empty", "empty/*.csv", "gone/**/x-?.parquet"])
def test_a_folder_without_files_is_told(tmp_path, source):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no files") as caught:
        as_table(tmp_path / source, "user")
    assert "folder" in caught.value.hint


def test_a_name_with_brackets_is_a_file(tmp_path):
    write_part(tmp_path / "ratings[1].csv", WHOLE)
    assert as_table(tmp_path / "ratings[1].csv", "ratings").table.num_rows == 4


def test_datasets_lazy_frames_and_relations_are_tables(tmp_path):
    for at, part in enumerate(PARTS):
        write_part(tmp_path / f"part-{at}.parquet", part)
    duckdb = pytest.importorskip("duckdb")
    files = f"{tmp_path}/*.parquet"
    with duckdb.connect() as base:
        for source in (
            pyarrow.dataset.dataset(tmp_path),
            pl.scan_parquet(files),
            base.sql(f"select * from '{files}' order by filename"),
        ):
            assert as_table(source, "ratings").table.to_pydict() == WHOLE


def test_files_of_recbole_are_read(tmp_path):
    (tmp_path / "x.inter").write_text(
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n007\t1\t3\t10\n8\t1\t2.5\t9\n",
        encoding="utf-8",
    )
    (tmp_path / "x.user").write_text(
        "user_id:token\tage:float\tjob:token\n007\t20\tspy\n8\t31\tcook\n", encoding="utf-8"
    )
    (tmp_path / "x.item").write_text(
        "item_id:token\tgenre:token_seq\tplace:float_seq\n1\tdrama crime\t0.5 -1\n2\t\t\n",
        encoding="utf-8",
    )
    data = Dataset.from_tables(*(tmp_path / f"x.{kind}" for kind in ("inter", "user", "item")))
    assert data.ratings.matrix.toarray().tolist() == [[3, 0], [2.5, 0]]
    assert data.users.to_pydict() == {"age": [20, 31], "job": ["spy", "cook"]}
    assert data.items.to_pydict() == {
        "genre": [["drama", "crime"], None],
        "place": [[0.5, -1.0], None],
    }
    kinds = {name: spec.kind for name, spec in data.plan.items["content"].items()}
    assert kinds == {"genre": "multi-label", "place": "vector"}
