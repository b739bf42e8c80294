from __future__ import annotations

import gzip
import shutil
import zipfile
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldhash import read
from coldhash.errors import SettingError, SourceError, TableError


def test_ml_1m_counts(ml_1m):
    ratings = ml_1m.ratings
    assert ratings.matrix.shape == (6040, 3952)
    assert len(ratings) == 1_000_209
    assert round(100 * ratings.sparsity, 2) == 95.81
    assert (ratings.per_item > 0).sum() == 3706
    assert ml_1m.items.column("title").null_count == 3952 - 3883
    assert list(ratings.items) == [str(n) for n in range(1, 3953)]
    assert ml_1m.items.slice(0, 1).to_pylist() == [
        {"title": "Toy Story", "genres": "Animation|Children's|Comedy", "year": 1995}
    ]
    user = ratings.users.rows(["1"])[0]
    assert ratings.matrix[user, ratings.items.rows(["1193"])[0]] == 5
    assert ml_1m.users.column("zip").to_pylist()[0] == "48067"


@pytest.mark.slow
def test_book_crossing_filter_gives_the_published_counts(data_folder):
    data = read("book-crossing", data_folder / "BX-CSV-Dump.zip")
    assert data.ratings.matrix.shape == (2151, 6830)
    assert len(data.ratings) == 180_595
    assert round(100 * data.ratings.sparsity, 2) == 98.77
    assert (data.ratings.matrix.data == 0).any()  # implicit ones are kept, as zeros
    assert data.users.column("age").null_count == data.users.column("country").null_count == 0
    assert data.items.column("title").null_count == 0


@pytest.mark.slow
def test_book_crossing_raw_keeps_everybody(data_folder):
    data = read("book-crossing", data_folder / "BX-CSV-Dump.zip", raw=True)
    assert len(data.ratings.users) == 278_858
    assert len(data.ratings) == 1_149_779


def write_ml_1m(folder):
    (folder / "ratings.dat").write_text(
        "1::1193::5::978300760\n1::661::3::978302109\n2::1::4::0\n", encoding="utf-8"
    )
    (folder / "users.dat").write_text("1::F::1::10::02139\n2::M::56::16::70072\n", encoding="utf-8")
    (folder / "movies.dat").write_bytes(
        "1::Toy Story (1995)::Animation|Comedy\n661::Am\xe9lie: a (fine) film::Drama\n"
        "1193::x (1975)::Drama\n".encode("latin-1")
    )


@pytest.mark.parametrize("how", ["folder", "parent", "zip", "folder with a zip"])
def test_a_folder_and_a_zip_are_the_same(tmp_path, how):
    inner = tmp_path / "ml-1m"
    inner.mkdir()
    write_ml_1m(inner)
    with zipfile.ZipFile(tmp_path / "ml.zip", "w") as archive:
        for file in inner.iterdir():
            archive.write(file, f"ml-1m/{file.name}")
    if how == "folder with a zip":
        shutil.rmtree(inner)
    path = {"folder": inner, "zip": tmp_path / "ml.zip"}.get(how, tmp_path)
    data = read("ml-1m", path)
    assert len(data.ratings) == 3
    assert data.items.column("title").to_pylist()[660] == "Amélie: a (fine) film"
    assert data.items.column("year").to_pylist()[660] is None
    assert data.ratings.times is not None


def test_ml_100k(tmp_path):
    (tmp_path / "u.data").write_text(
        "196\t242\t3\t881250949\n186\t302\t4\t891717742\n", encoding="utf-8"
    )
    (tmp_path / "u.user").write_text(
        "186|39|F|executive|00000\n196|49|M|writer|55105\n", encoding="utf-8"
    )
    flags = "|".join(["0"] * 5 + ["1"] + ["0"] * 2 + ["1"] + ["0"] * 10)
    none = "|".join(["0"] * 19)
    (tmp_path / "u.item").write_text(
        f"242|Kolya (1996)|24-Jan-1997||http://x|{flags}\n302|Odd|01-Jan-1997||http://y|{none}\n",
        encoding="utf-8",
    )
    data = read("ml-100k", tmp_path)
    assert data.items.to_pylist() == [
        {"title": "Kolya", "genres": "Comedy|Drama", "year": 1996},
        {"title": "Odd", "genres": None, "year": None},
    ]
    assert list(data.ratings.users) == ["186", "196"]
    np.testing.assert_array_equal(data.ratings.matrix.toarray(), [[0, 4], [3, 0]])


def test_a_bad_row_is_named(tmp_path):
    write_ml_1m(tmp_path)
    with (tmp_path / "ratings.dat").open("a", encoding="utf-8") as file:
        file.write("3::7::nice::1\n")
    with pytest.raises(TableError, match=r"ratings\.dat, line 4, column 'rating'.*'nice'"):
        read("ml-1m", tmp_path)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingError, match="movielens"):
        read("movielens")
    with pytest.raises(SettingError, match="coldhash fetch ml-1m"):
        read("ml-1m")
    with pytest.raises(SourceError, match="does not exist"):
        read("ml-1m", tmp_path / "nowhere")
    with pytest.raises(SourceError, match="holds no"):
        read("ml-1m", tmp_path)
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(SourceError, match=r"broken\.zip"):
        read("ml-1m", tmp_path / "broken.zip")
    with pytest.raises(SettingError, match=r"colour.* it takes seed, n_users, n_items"):
        read("sample", colour="blue")


def test_archives_of_other_data_sets_in_the_folder_do_not_matter(tmp_path):
    """users.dat is a file of several data sets; the first archive by name is not this one."""
    import zipfile

    with zipfile.ZipFile(tmp_path / "a-other.zip", "w") as other:
        other.writestr("other/users.dat", "3 1 2 3\n")
    with zipfile.ZipFile(tmp_path / "ml-1m.zip", "w") as own:
        own.writestr("ml-1m/users.dat", "1::F::25::3::1\n")
        own.writestr("ml-1m/movies.dat", "1::Film (1999)::Drama\n")
        own.writestr("ml-1m/ratings.dat", "1::1::5::0\n")
    (tmp_path / "b-broken.zip").write_bytes(b"not an archive")
    data = read("ml-1m", tmp_path)
    assert list(data.ratings.users) == ["1"]
    assert len(data.ratings) == 1


def test_complete_journey_keeps_the_first_purchase(tmp_path):
    days = [datetime(2017, 1, day) for day in (3, 1, 2)]
    columns = ("age", "income", "home_ownership", "marital_status", "household_size",
               "household_comp", "kids_count")  # fmt: skip
    tables = {
        "transactions": {
            "household_id": [7, 7, 8],
            "product_id": [1, 1, 2],
            "quantity": [1, 3, 1],
            "transaction_timestamp": days,
        },
        "demographics": {"household_id": [7], **{name: ["25-34"] for name in columns}},
        "products": {
            "product_id": [1, 2, 3],
            **dict.fromkeys(("department", "brand", "product_category", "product_type"), ["a"] * 3),
        },
    }
    for name, table in tables.items():
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    data = read("complete-journey", tmp_path)
    assert list(data.ratings.items) == ["1", "2"]  # nobody bought 3
    assert data.ratings.matrix.toarray().tolist() == [[1, 0], [0, 1]]
    assert data.ratings.times[0] < data.ratings.times[1]
    assert data.users.column("age").to_pylist() == ["25-34", None]


def test_jester_has_favourites_from_5_upwards(tmp_path):
    text = "user_id,item_id,rating\nu1,j1,-9.95\nu1,j2,5.0\nu2,j1,4.95\nu2,j2,9.9\n"
    (tmp_path / "ratings.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "jokes.csv.gz").write_bytes(gzip.compress(b"item_id,text\nj1,one\nj2,two\n"))
    data = read("jester", tmp_path)
    assert data.users.num_columns == 0
    assert data.ratings.favourites.tolist() == [False, True, False, True]
