"""Ids and titles of the caller's own tables come back in answers."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pytest

from coldhash import Dataset, load, read
from coldhash.data.plan import Category, FeaturePlan, Number
from coldhash.errors import ColumnError, SettingError
from coldhash.mfdcf.model import MFDCF
from coldhash.update import add_items

PLAN = FeaturePlan(users={"who": {"age": Number()}}, items={"what": {"kind": Category()}})


@pytest.fixture(scope="module")
def shop():
    """The sample as a shop calls it: customers, articles, product names and prices."""
    data = read("sample", n_users=200, n_items=60)
    rated, items = data.ratings.matrix.tocoo(), data.items
    return {
        "ratings": {
            "customer": [f"c{row:04}" for row in rated.row],
            "article": [f"a{row:04}" for row in rated.col],
            "rating": rated.data,
        },
        "users": {"customer": [f"c{n:04}" for n in range(200)], "age": data.users["age"]},
        "items": {
            "article": [f"a{n:04}" for n in range(60)],
            "Product Name": [f"article {n}" for n in range(60)],
            "label": items["title"],
            "price": [float(n) for n in range(60)],
            "rank": list(range(60)),
            "kind": ["odd", "even"] * 30,
        },
    }


def fitted(shop, **columns):
    columns = {"user_id": "customer", "item_id": "article", **columns}
    data = Dataset.from_tables(**shop, columns=columns, plan=PLAN)
    return MFDCF(n_bits=32, n_rounds=2).fit(data)


@pytest.fixture(scope="module")
def model(shop, tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "m.coldhash"
    fitted(shop).save(path)
    return load(path)


def test_the_file_remembers_the_columns(model, shop):
    assert model.columns == {"user_id": "customer", "item_id": "article"}
    assert fitted(shop, title="label").columns["title"] == "label"


@pytest.mark.parametrize("column", ["customer", "user_id", "userId", "id"])
def test_answers_carry_the_ids_of_the_caller(model, column):
    people = pd.DataFrame({column: ["x1", "007"], "age": [30, 40]})
    assert model.recommend(people, k=1).to_arrow()["user_id"].to_pylist() == ["x1", "007"]
    assert model.recommend([{column: "x1", "age": 3}], k=1).user_ids == ["x1"]


def test_whole_numbers_stay_whole(model):
    people = pd.DataFrame({"customer": [7, 8, None], "age": [30, 40, 50]})
    assert model.recommend(people, k=1).user_ids == ["7", "8", "2"]


def test_a_remembered_column_comes_before_the_usual_ones(model):
    people = pa.table({"user_id": ["no"], "customer": ["yes"], "age": [3]})
    assert model.recommend(people, k=1, unknown="ignore").user_ids == ["yes"]


def test_titles_are_guessed_or_said(model, shop):
    said = fitted(shop, title="label")
    for one, titles in ((model, shop["items"]["Product Name"]), (said, shop["items"]["label"])):
        titles = dict(zip(shop["items"]["article"], pa.array(titles).to_pylist(), strict=True))
        for answer in (one.recommend({"age": 30}, k=3), one.similar_items("a0003", k=3)):
            assert [row["title"] for row in answer] == [titles[row["item_id"]] for row in answer]
        assert one.explain({"age": 30}, "a0003")["title"] == titles["a0003"]
    row = next(iter(model.recommend({"age": 30}, k=1)))
    assert row["title"] in repr(model.recommend({"age": 30}, k=1))
    with pytest.raises(ColumnError, match="no column 'lable' for title"):
        fitted(shop, title="lable")


def test_chosen_columns_come_along(model, shop):
    found = model.recommend([{"age": 30}, {}], k=4, fields=["price", "rank"])
    assert found.to_arrow().column_names[-3:] == ["title", "price", "item_rank"]
    for row in found:
        at = shop["items"]["article"].index(row["item_id"])
        assert (row["price"], row["item_rank"]) == (float(at), at)
    table = model.recommend(user_ids=[model.user_ids[0]], k=2, fields=["kind"]).to_arrow()
    assert set(table["kind"].to_pylist()) <= {"odd", "even"}
    with pytest.raises(SettingError, match=r"'prise'; hint: did you mean price\?"):
        model.recommend({}, fields=["prise"])


@pytest.mark.parametrize("table", [pa.table({"title": [[1]] * 60}), pa.table({})])
def test_without_a_column_for_it_there_is_no_title(model, table):
    bare = replace(model, item_table=table)
    assert "title" not in bare.recommend({}, k=1).to_arrow().column_names
    assert bare.explain({}, "a0003")["title"] is None


def test_a_model_shows_itself_in_five_lines(model):
    lines = dict(line.split(": ", 1) for line in repr(model).splitlines())
    assert lines == {
        "method": "mfdcf, 32 bits",
        "items": "60",
        "users": "200",
        "person": "age, history, answers",
        "size": "4 bytes an item, 240 in all",
    }
    assert model._repr_html_().count("<tr>") == 5


def test_html_is_escaped(model):
    table = model.item_table.append_column("title", [["<script>alert(1)</script>"] * 60])
    evil = replace(model, item_table=table, name="<i>")
    shown = evil.recommend([{"user_id": "<b>"}], k=12)._repr_html_()
    assert "<script>" not in shown + evil._repr_html_()
    assert "<b>" not in shown
    assert "&lt;script&gt;" in shown
    assert shown.count("<tr>") == 11
    assert "2 more; the popular items" in shown
    assert "&lt;i&gt;" in evil._repr_html_()


def test_new_items_may_have_the_same_id_column(model):
    more, _ = add_items(model, {"article": ["new"], "kind": ["odd"], "Product Name": ["New"]})
    assert more.titles[more.item_ids.row_of("new")].as_py() == "New"
