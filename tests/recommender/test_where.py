"""Filters by attributes of items: exact, and by the types of the columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from coldhash import load, read
from coldhash.errors import SettingError
from coldhash.registry import MODELS

PEOPLE = [{"age": 30, "history": {"3": 5, "8": 1}}, {}]
N = 120


@pytest.fixture(scope="module", params=["mfdcf", "ridge"])
def model(request):
    fitted = MODELS[request.param]().fit(read("sample", n_users=200, n_items=N))
    rng = np.random.default_rng(0)
    price = rng.integers(1, 40, N) / 2
    table = fitted.item_table.append_column("price", pa.array(price, mask=price > 18))
    table = table.append_column("in_stock", pa.array(rng.random(N) < 0.5))
    table = table.append_column("barcode", pa.array(2**60 + np.arange(N)))
    table = table.append_column(
        "tags", pa.array([[f"t{row % 7}", f"t{row % 5}"] for row in range(N)])
    )
    table = table.append_column("code", pa.array([f"{row % 3:02}" for row in range(N)]))
    table = table.append_column("shape", pa.array([{"x": 1}] * N))
    return replace(fitted, item_table=table)


def matching(model, test):
    return {
        model.item_ids[row] for row, item in enumerate(model.item_table.to_pylist()) if test(item)
    }


def labels(item):
    return item["genres"].split("|")


CONDITIONS = [
    ({}, lambda item: True),
    ({"genres": "drama"}, lambda item: "drama" in labels(item)),
    ({"genres": ["drama", "music"]}, lambda item: {"drama", "music"} & {*labels(item)}),
    ({"genres": "comedy|music"}, lambda item: item["genres"] == "comedy|music"),
    ({"genres": []}, lambda item: False),
    ({"genres": ["", "no such"]}, lambda item: False),
    ({"in_stock": True}, lambda item: item["in_stock"]),
    ({"in_stock": [True, False]}, lambda item: True),
    ({"price": 7}, lambda item: item["price"] == 7),
    ({"price": [7.5, np.float32(8)]}, lambda item: item["price"] in (7.5, 8)),
    ({"price": {"max": 5}}, lambda item: item["price"] is not None and item["price"] <= 5),
    ({"price": {"min": 5, "max": 9.5}}, lambda item: 5 <= (item["price"] or 0) <= 9.5),
    ({"price": {"min": 9, "max": 5}}, lambda item: False),
    ({"price": 10**400}, lambda item: False),
    ({"price": {"min": -(10**400)}}, lambda item: item["price"] is not None),
    ({"barcode": 2**60 + 1}, lambda item: item["barcode"] == 2**60 + 1),
    ({"barcode": [10**30, -1]}, lambda item: False),
    ({"tags": ["t6"]}, lambda item: "t6" in item["tags"]),
    ({"code": "01"}, lambda item: item["code"] == "01"),
    ({"code": 1}, lambda item: False),
    (
        {"genres": ("drama",), "in_stock": True, "year": {"min": 2000}},
        lambda item: "drama" in item["genres"] and item["in_stock"] and item["year"] >= 2000,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("where", "test"), CONDITIONS)
def test_lists_are_those_of_the_items_that_match(model, where, test):
    allowed = matching(model, test)
    for k in (3, N):
        found = model.recommend(PEOPLE, k=k, where=where)
        listed = model.recommend(PEOPLE, k=k, candidates=sorted(allowed))
        assert found.item_ids == listed.item_ids
    assert set(found.item_ids[1]) == allowed
    assert set(found.item_ids[0]) == allowed - {"3", "8"}
    kept = model.recommend(PEOPLE, k=N, where=where, exclude_seen=False)
    assert set(kept.item_ids[0]) == allowed
    some = [model.item_ids[row] for row in range(0, N, 3)]
    both = model.recommend(PEOPLE, k=N, where=where, candidates=some)
    assert set(both.item_ids[1]) == allowed & set(some)
    near = model.similar_items("5", k=N, where=where)
    assert set(near.ids) == allowed - {"5"}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"genre": "drama"}, "no column 'genre'; hint: did you mean genres?"),
        ({"price": "7"}, "'price': '7' is not a number"),
        ({"price": True}, "True is not a number"),
        ({"price": None}, "None is not a number"),
        ({"price": {"below": 3}}, "no range"),
        ({"price": {}}, "no range"),
        ({"genres": {"min": 3}}, "no range"),
        ({"genres": True}, "True is not a text"),
        ({"in_stock": 1}, "1 is not true or false"),
        ({"shape": "x"}, "column 'shape' holds struct"),
        ("drama", "where='drama'; hint: columns and values"),
        ({1: "drama", None: 2}, "no column"),
    ],
)
def test_what_cannot_match_is_an_error(model, where, message):
    for ask in (
        lambda: model.recommend({}, where=where),
        lambda: model.similar_items("5", where=where),
    ):
        with pytest.raises(SettingError) as raised:
            ask()
        assert message in str(raised.value)
        assert raised.value.argument == "where"


def test_a_model_without_an_item_table_has_no_columns(model, tmp_path):
    bare = replace(model, item_table=pa.table({}))
    assert bare.recommend({}, k=2, where={}).item_ids == bare.recommend({}, k=2).item_ids
    with pytest.raises(SettingError, match="no column 'genres'"):
        bare.recommend({}, where={"genres": "drama"})


def test_a_loaded_model_filters_the_same(model, tmp_path):
    model.save(tmp_path / "m.coldhash")
    where = {"genres": "drama", "price": {"max": 10}}
    both = [
        each.recommend({}, k=N, where=where).item_ids
        for each in (model, load(tmp_path / "m.coldhash"))
    ]
    assert both[0] == both[1] != [[]]


def test_similar_items_show_the_fields_that_are_asked_for(model):
    rows = list(
        model.similar_items("5", k=4, where={"in_stock": True}, fields=["in_stock", "year"])
    )
    assert [row["in_stock"] for row in rows] == [True] * 4
    assert all(row["title"] and row["year"] for row in rows)
