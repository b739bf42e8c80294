"""The guide, run block by block on the real data, and what real columns become."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

from coldhash import Dataset, TableFile
from coldhash.errors import UnlikelyData
from coldhash.features.fitting import describe

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def without_figures(text):
    """Results may differ in their digits from one machine to the next."""
    return re.sub(r"\d\.\d{3,4}", "0.000", text)


def run_in_shell(code, folder):
    command = f'coldhash() {{ "{sys.executable}" -m coldhash "$@"; }}\n'
    command += f'python() {{ "{sys.executable}" "$@"; }}\n{code}'
    run = subprocess.run(
        ["bash", "-e", "-c", command], cwd=folder, capture_output=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.slow
def test_the_guide_runs_word_for_word(data_folder, tmp_path, monkeypatch):
    shutil.copy(data_folder / "complete-journey.zip", tmp_path)
    monkeypatch.chdir(tmp_path)
    names, output, ran = {}, "", []
    for language, code in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if language == "sh":
            output = run_in_shell(code, tmp_path)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, names)
            output = printed.getvalue()
        elif language == "text":
            lines = [line.rstrip() for line in without_figures(output).splitlines()]
            for line in without_figures(code).splitlines():
                assert line in lines
        ran.append(language)
    assert {"sh", "python", "text"} <= set(ran)
    assert len(output.splitlines()) == 3  # recommendations


GENRES = (
    "unknown Action Adventure Animation Children's Comedy Crime Documentary Drama Fantasy "
    "Film-Noir Horror Musical Mystery Romance Sci-Fi Thriller War Western"
).split()


def read_ml_100k(folder, _):
    def file(name, names, **style):
        member = {"path": folder / "ml-100k.zip", "member": f"ml-100k/{name}"}
        return TableFile(**member, names=names, quote=None, encoding="latin-1", **style)

    user = ("user_id", "age", "gender", "occupation", "zip_code")
    movie = ("item_id", "title", "released", "video", "address", *GENRES)
    return Dataset.from_tables(
        file("u.data", ("user_id", "item_id", "rating", "timestamp"), separator="\t"),
        file("u.user", user, separator="|"),
        file("u.item", movie, separator="|"),
    )


def read_book_crossing(folder, _):
    def table(name):
        place = {"path": folder / "BX-CSV-Dump.zip", "member": f"BX-{name}.csv"}
        return TableFile(**place, separator=";", escape="\\", encoding="latin-1").read()

    return Dataset.from_tables(
        table("Book-Ratings"),
        table("Users"),
        table("Books"),
        columns={"user_id": "User-ID", "rating": "Book-Rating"},
    )


def read_complete_journey(folder, _):
    names = ("transactions", "demographics", "products")
    zipped = {"path": folder / "complete-journey.zip"}
    return Dataset.from_tables(
        *(TableFile(**zipped, member=f"complete-journey/{name}.parquet") for name in names)
    )


def read_recbole(folder, tmp_path):
    """The first table again, in the layout of RecBole."""
    data = read_ml_100k(folder, tmp_path)
    entries = data.ratings.matrix.tocoo()
    tables = {
        "inter": {
            "user_id:token": data.user_ids.values.take(pa.array(entries.row)),
            "item_id:token": data.item_ids.values.take(pa.array(entries.col)),
            "rating:float": entries.data,
            "timestamp:float": data.ratings.times,
        },
        "user": {
            "user_id:token": data.user_ids.values,
            **{f"{name}:token": data.users.column(name) for name in data.users.column_names},
        },
        "item": {
            "item_id:token": data.item_ids.values,
            "movie_title:token_seq": data.items.column("title"),
            "release_year:token": pc.utf8_slice_codeunits(data.items.column("released"), -4),
            "class:token_seq": [
                " ".join(name for name in GENRES if movie[name]) for movie in data.items.to_pylist()
            ],
        },
    }
    for suffix, columns in tables.items():
        rows = zip(*(pa.array(column).to_pylist() for column in columns.values()), strict=True)
        lines = ["\t".join("" if x is None else str(x) for x in row) for row in [columns, *rows]]
        path = tmp_path / f"ml-100k.{suffix}"
        path.write_text("\n".join(lines).replace('"', ""), encoding="utf-8")
    return Dataset.from_tables(*(tmp_path / f"ml-100k.{suffix}" for suffix in tables))


def read_shop(_, tmp_path):
    """What a shop may export: nothing is named as this library would name it."""
    n, rng = 200, np.random.default_rng(0)

    def labels(separator, *words):
        return [separator.join(rng.permutation(words)[: 1 + k % 3]) for k in range(n)]

    days = np.datetime64("2023-01-01") + rng.integers(700, size=n)
    tables = {
        "orders": {
            "customer_id": rng.integers(n, size=4000),
            "sku": [f"S{k:03}" for k in rng.integers(n, size=4000)],
            "qty": rng.integers(1, 9, 4000),
            "purchased_at": np.datetime64("2024-06-01") + rng.integers(90, size=4000),
        },
        "customers": {
            "customer_id": np.arange(n),
            "signup_date": days,
            "last_login": days.astype("datetime64[s]").astype(str),
            "birthday": [int(str(day).replace("-", "")) for day in days - 9000],
            "newsletter": np.where(rng.random(n) < 0.5, "yes", "no"),
            "spent": np.round(rng.random(n) * 100, 2),
            "interests": labels(", ", "art", "food", "sport"),
            "email": [f"c{k}@example.org" for k in range(n)],
            "tenant": ["main"] * n,
            "fax": [""] * n,
        },
        "articles": {
            "sku": [f"S{k:03}" for k in range(n)],
            "tags": labels(";", "new", "sale", "eco"),
            "description": [f"a very fine thing, number {k}" for k in range(n)],
            "embedding": [f"[{a:.3f}, {b:.3f}]" for a, b in rng.normal(size=(n, 2))],
            "supplier_id": rng.integers(1000, 1050, n),
        },
    }
    for name, columns in tables.items():
        pyarrow.csv.write_csv(pa.table(columns), tmp_path / f"{name}.csv")
    with pytest.warns(UnlikelyData, match=r"user table, left out \(1\): 'tenant'$"):
        return Dataset.from_tables(*(tmp_path / f"{name}.csv" for name in tables))


AN_ID, MISSING = "left out: an id: most values occur once", "left out: all values are missing"
ROLES = {
    read_ml_100k: (
        "ratings",
        {"age": "number", "gender": "category", "occupation": "category", "zip_code": AN_ID},
        {"title": "text", "released": "date", "video": MISSING, "address": AN_ID}
        | dict.fromkeys(GENRES, "category"),
    ),
    read_book_crossing: (
        "ratings",
        {"Location": "multi-label", "Age": "number"},
        {
            "Book-Title": "text",
            "Book-Author": "category",
            "Year-Of-Publication": "number",
            "Publisher": "category",
        },
    ),
    read_complete_journey: (
        "counts",
        dict.fromkeys(
            (
                *("age", "income", "home_ownership", "marital_status"),
                *("household_size", "household_comp", "kids_count"),
            ),
            "category",
        ),
        dict.fromkeys(
            (
                *("manufacturer_id", "department", "brand"),
                *("product_category", "product_type", "package_size"),
            ),
            "category",
        ),
    ),
    read_shop: (
        "counts",
        {
            "signup_date": "date",
            "last_login": "date",
            "birthday": "date",
            "newsletter": "category",
            "spent": "number",
            "interests": "multi-label",
            "email": AN_ID,
            "tenant": "left out: constant",
            "fax": MISSING,
        },
        {
            "tags": "multi-label",
            "description": "text",
            "embedding": "vector",
            "supplier_id": "category",
        },
    ),
    read_recbole: (
        "ratings",
        {"age": "number", "gender": "category", "occupation": "category", "zip_code": AN_ID},
        {"movie_title": "multi-label", "release_year": "number", "class": "multi-label"},
    ),
}


@pytest.mark.parametrize(
    "reader",
    [pytest.param(r, marks=[pytest.mark.slow] * (r is read_book_crossing)) for r in ROLES],
    ids=lambda reader: reader.__name__,
)
def test_what_becomes_of_every_column(request, tmp_path, reader):
    folder = None if reader is read_shop else request.getfixturevalue("data_folder")
    facts = describe(reader(folder, tmp_path))
    kind, users, items = ROLES[reader]
    assert facts["feedback"] == kind
    assert facts["times"] is (reader is not read_book_crossing)
    found = [
        {name: column["becomes"] for name, column in facts[side].items()}
        for side in ("user_columns", "item_columns")
    ]
    assert found == [users, items]
