"""All kinds of fields: told for a form, taken as they should be, refused by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from coldhash import MFDCF, Dataset, FeaturePlan
from coldhash.serve import create_app

N = 40


@pytest.fixture(scope="module")
def every_kind():
    users, items = np.indices((N, 20)).reshape(2, -1)
    keep = (users % 2 == items % 2) & ((users + items) % 5 > 0)
    plan = FeaturePlan(
        users={
            "all": {
                "hobbies": {"kind": "multi-label", "min_count": 1},
                "about": {"kind": "text", "min_count": 1},
                "height": {"kind": "number", "n_knots": 2},
                "weight": "number",
                "picture": "vector",
                "colour": {"kind": "category", "min_count": 1},
                "joined": "date",
            }
        }
    )
    return Dataset.from_tables(
        {"user_id": users[keep], "item_id": items[keep], "rating": 1.0 + users[keep] % 5},
        {
            "user_id": np.arange(N),
            "hobbies": ["chess|go" if user % 2 else "running" for user in range(N)],
            "about": [f"likes {'odd' if user % 2 else 'even'} things" for user in range(N)],
            "height": 150.0 + np.arange(N),
            "weight": 50.0 + np.arange(N),
            "picture": [[float(user % 2), 0.5, -1.0] for user in range(N)],
            "colour": ["red" if user % 4 else "blue" for user in range(N)],
            "joined": np.datetime64("2024-01-01", "s") + np.arange(N) * np.timedelta64(1, "D"),
        },
        {"item_id": np.arange(20), "title": [f"Title {item}" for item in range(20)]},
        plan=plan,
    )


@pytest.fixture(scope="module")
def kinds_model(every_kind):
    return MFDCF(n_bits=16).fit(every_kind)


@pytest.fixture(scope="module")
def kinds_client(kinds_model):
    with TestClient(create_app(kinds_model, log=lambda _: None)) as client:
        yield client


def test_fields_are_told(kinds_client):
    told = {field.pop("name"): field for field in kinds_client.get("/v1/model").json()["fields"]}
    empty = {"group": "all", "choices": [], "min": None, "max": None, "length": None}
    height = 150 + np.arange(N)
    assert told.pop("height") == empty | {
        "kind": "number",
        "min": pytest.approx(np.quantile(height, 0.01)),
        "max": pytest.approx(np.quantile(height, 0.99)),
    }
    weight = told.pop("weight")
    assert (weight["kind"], 50 <= weight["min"] < weight["max"] < 50 + N) == ("number", True)
    assert told == {
        "hobbies": empty | {"kind": "multi-label", "choices": ["chess", "go", "running"]},
        "about": empty | {"kind": "text"},
        "picture": empty | {"kind": "vector", "length": 3},
        "colour": empty | {"kind": "category", "choices": ["red", "blue"]},
        "joined": empty | {"kind": "date"},
    }


@pytest.mark.parametrize(
    ("person", "status"),
    [
        ({"hobbies": ["chess", "go"]}, 200),
        ({"hobbies": "chess|unheard of"}, 200),
        ({"hobbies": []}, 200),
        ({"hobbies": [["chess"]]}, 422),
        ({"hobbies": {"chess": 1}}, 422),
        ({"about": "odd"}, 200),
        ({"about": 7}, 200),
        ({"about": ["odd"]}, 422),
        ({"height": 1e30}, 200),
        ({"height": -1e30}, 200),
        ({"height": "tall"}, 422),
        ({"joined": "2024-01-20"}, 200),
        ({"joined": 20240120}, 200),
        ({"joined": ""}, 200),
        ({"joined": "soon"}, 422),
        ({"joined": True}, 422),
        ({"picture": [1, 0.5, -1]}, 200),
        ({"picture": []}, 200),
        ({"picture": None}, 200),
        ({"picture": [1, 2]}, 422),
        ({"picture": [1, 2, None]}, 422),
        ({"picture": [1, 2, "3"]}, 422),
        ({"picture": [1, 2, True]}, 422),
        ({"picture": [1, 2, 1e39]}, 422),
        ({"picture": "abc"}, 422),
        ({"picture": 3}, 422),
        ({"picture": {"0": 1}}, 422),
    ],
)
def test_values_are_taken_or_refused_by_name(kinds_client, kinds_model, person, status):
    answer = kinds_client.post("/v1/recommend", json={"user": person, "k": 20})
    assert answer.status_code == status, answer.text
    if status == 422:
        assert answer.json()["error"]["field"] == f"user.{next(iter(person))}"
    else:
        rows = kinds_model.recommend(person, k=20)
        told = [item["item_id"] for item in answer.json()["items"]]
        assert told == [row["item_id"] for row in rows]


@pytest.mark.parametrize("titles", [None, [["x"]] * 120, [b"\xff"] * 120, list(range(120))])
def test_titles_of_any_type(model, titles):
    from dataclasses import replace

    table = pa.table({} if titles is None else {"title": titles})
    with TestClient(create_app(replace(model, item_table=table), log=lambda _: None)) as client:
        item = client.post("/v1/recommend", json={"user": {}, "k": 1}).json()["items"][0]
        row = model.item_ids.row_of(item["item_id"])
        assert item["title"] == (str(row) if titles == list(range(120)) else None)
        assert client.get("/v1/items?search=1").json()["items"]


def test_long_titles_are_cut_and_found_by_all_of_their_letters(model):
    from dataclasses import replace

    titles = [f"{row} {'é' * 100_000} end{row}." for row in range(len(model.item_ids))]
    table = pa.table({"title": titles})
    with TestClient(create_app(replace(model, item_table=table), log=lambda _: None)) as client:
        answers = [
            client.post("/v1/recommend", json={"user": {}, "k": 3}).json(),
            client.get(f"/v1/items/{model.item_ids[0]}/similar").json(),
            client.get("/v1/items?search=end7.").json(),
        ]
        for answer in answers:
            assert all(len(item["title"]) <= 300 for item in answer["items"])
            assert all(item["title"].endswith("é…") for item in answer["items"])
        assert [item["title"][:2] for item in answers[-1]["items"]] == ["7 "]


def test_columns_of_any_name(every_kind):
    names = ("model_config", "_hidden", "class", "a b", "é", "copy", "field_0")
    ratings = every_kind.ratings.matrix.tocoo()
    columns = {name: ["x" if user % 2 else "y" for user in range(N)] for name in names}
    data = Dataset.from_tables(
        {"user_id": ratings.row, "item_id": ratings.col, "rating": ratings.data},
        {"user_id": np.arange(N), **columns},
    )
    with TestClient(create_app(MFDCF(n_bits=16).fit(data), log=lambda _: None)) as client:
        document = client.get("/openapi.json").json()
        assert set(names) <= set(document["components"]["schemas"]["Person"]["properties"])
        for name in names:
            assert client.post("/v1/encode", json={"user": {name: "x"}}).status_code == 200
            refused = client.post("/v1/encode", json={"user": {name: ["x"]}})
            assert refused.json()["error"]["field"] == f"user.{name}"
        assert client.post("/v1/encode", json={"user": {"field_1": "x"}}).status_code == 422
