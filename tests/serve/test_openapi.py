"""The OpenAPI document is true; `make test-openapi` holds a server against it by schemathesis."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from coldhash import MFDCF, Dataset
from coldhash.registry import MODELS
from coldhash.serve import Limits, create_app
from worlds import checkerboard

OPERATIONS = {
    "/v1/recommend": "POST",
    "/v1/recommend/batch": "POST",
    "/v1/encode": "POST",
    "/v1/explain": "POST",
    "/v1/ask": "POST",
    "/v1/items": "GET",
    "/v1/items/{item_id}/similar": "GET",
    "/v1/model": "GET",
    "/healthz": "GET",
    "/readyz": "GET",
    "/metrics": "GET",
}
POSTS = [path for path, method in OPERATIONS.items() if method == "POST"]
LIMITS = Limits(max_k=50, max_batch_items=20, max_history=5)


def body_schema(document, path):
    """Return a validator of what may be posted to a path."""
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return Draft202012Validator(body["schema"] | {"components": document["components"]})


def document_of(model, token=None):
    with TestClient(create_app(model, token=token, log=lambda _: None)) as client:
        headers = {"Authorization": f"Bearer {token}"}
        return client.get("/openapi.json", headers=headers).json()


@pytest.fixture(scope="module")
def client(model):
    with TestClient(create_app(model, limits=LIMITS, log=lambda _: None)) as client:
        yield client


@pytest.fixture(scope="module")
def document(client):
    return client.get("/openapi.json").json()


def test_the_document_covers_the_service(document):
    assert {path: [*methods] for path, methods in document["paths"].items()} == {
        path: [method.lower()] for path, method in OPERATIONS.items()
    }


@pytest.mark.parametrize("path", POSTS)
def test_examples_work(client, document, path):
    validator = body_schema(document, path)
    name = validator.schema["$ref"].rsplit("/", 1)[1]
    (example,) = document["components"]["schemas"][name]["examples"]
    assert validator.is_valid(example)
    assert client.post(path, json=example).status_code == 200


PEOPLE = [
    {}, {"age": 3}, {"age": "3"}, {"age": " -3.5 "}, {"age": "1e3"}, {"age": "x"}, {"age": True},
    {"age": [3]}, {"age": 1e39}, {"age": None}, {"age": ""}, {"gender": "x"}, {"gender": 1},
    {"gender": ["x"]}, {"gender": {}}, {"agee": 1}, {"user_id": "x"}, {"user_id": ""},
    {"user_id": 0}, {"user_id": 1.0}, {"user_id": 1.5}, {"user_id": True}, {"user_id": 2**63},
    {"user_id": None}, {"user_id": []}, {"history": None}, {"history": {}}, {"history": {"1": 5}},
    {"history": {"1": 5.5}}, {"history": {"1": True}}, {"history": {"1": "5"}},
    {"history": {"": 5}}, {"history": []}, {"history": {str(n): 3 for n in range(5)}},
    {"history": {str(n): 3 for n in range(6)}}, {"history": ["1", 2]}, {"history": [3.0]},
    {"history": [""]}, {"history": [3.5]}, {"history": [True]}, {"history": [None]},
    {"history": [["1"]]}, {"history": "1"}, {"history": 1}, {"history": [1] * 5},
    {"history": [1] * 6},
]  # fmt: skip
OPTIONS = [
    {"popularity": 0}, {"popularity": 0.5}, {"popularity": 1}, {"popularity": 1.5},
    {"popularity": -0.1}, {"popularity": True}, {"popularity": "1"}, {"popularity": None},
    {"k": 50}, {"k": 51}, {"k": 0}, {"k": 1.0}, {"k": 1.5}, {"k": "1"}, {"k": True}, {"k": None},
    {"score": "hamming"}, {"score": "x"}, {"exclude": None}, {"exclude": []}, {"exclude": [""]},
    {"exclude": [1.5]}, {"exclude": "1"}, {"candidates": [True]}, {"exclude_seen": 1},
    {"exclude_seen": False}, {"user_id": None}, {"user_id": "1"}, {"unknown": 1},
]  # fmt: skip
ASKS = [
    *(("/v1/recommend", {"user": person}) for person in [*PEOPLE, [], "x", None]),
    *(("/v1/encode", {"user": person}) for person in [*PEOPLE, None]),
    *(("/v1/recommend", {"user": {}} | options) for options in OPTIONS),
    *(("/v1/encode", {"user": {}, "planes": n}) for n in (0, 1, 8, 8.0, 9, 1.5, "4", True, None)),
    *(("/v1/ask", {"user": {}, "n": n}) for n in (0, 1, 2.0, 50, 51, 1.5, "1", True, None)),
    ("/v1/recommend", {"user_id": "1"}), ("/v1/recommend", {"user_id": "1", "user": None}),
    ("/v1/recommend", {"user_id": None}), ("/v1/recommend", {}),
    ("/v1/recommend/batch", {"users": [{}] * 20}), ("/v1/recommend/batch", {"users": [{}] * 21}),
    ("/v1/recommend/batch", {"user_ids": ["1"] * 20}),
    ("/v1/recommend/batch", {"user_ids": ["1"] * 21}), ("/v1/recommend/batch", {"users": [None]}),
    ("/v1/recommend/batch", {"users": [], "user_ids": []}),
    ("/v1/explain", {"user": {}, "item_id": "1"}), ("/v1/explain", {"user": {}}),
    ("/v1/explain", {"user": {}, "item_id": ""}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), ASKS)
def test_the_document_allows_what_the_server_takes(client, document, path, body):
    allowed = body_schema(document, path).is_valid(body)
    assert allowed == (client.post(path, json=body).status_code != 422)


def test_parameters_have_the_limits_of_the_server(client, document):
    parameters = document["paths"]["/v1/items/{item_id}/similar"]["get"]["parameters"]
    limits = {each["name"]: each.get("schema") for each in parameters}
    assert (limits["k"]["minimum"], limits["k"]["maximum"]) == (1, 50)
    item_id = Draft202012Validator(limits["item_id"])
    assert item_id.is_valid("x")
    assert not item_id.is_valid("")


def test_fields_of_every_kind(kinds):
    people = [
        {"hobbies": value} for value in ("chess", ["chess", None], [["chess"]], {}, [], 1, True)
    ] + [
        {"picture": value}
        for value in ([1, 2, 3], [], [1, 2], [1, 2, "3"], [1, 2, 1e39], "", "x", None, 3)
    ]
    with TestClient(create_app(kinds, log=lambda _: None)) as client:
        document = client.get("/openapi.json").json()
        validator = body_schema(document, "/v1/encode")
        (example,) = document["components"]["schemas"]["EncodeRequest"]["examples"]
        for person in [*people, example["user"]]:
            status = client.post("/v1/encode", json={"user": person}).status_code
            assert validator.is_valid({"user": person}) == (status == 200), person


@pytest.fixture
def kinds():
    """A model that takes vectors and several labels."""
    n = 24
    ratings = checkerboard(n).ratings.matrix.tocoo()
    data = Dataset.from_tables(
        {"user_id": ratings.row, "item_id": ratings.col, "rating": ratings.data},
        {
            "user_id": list(range(n)),
            "hobbies": ["chess|go" if user % 2 else "running|go" for user in range(n)],
            "picture": [[float(user % 2), 0.5, -1.0] for user in range(n)],
        },
    )
    return MFDCF(n_bits=16).fit(data)


def test_a_model_without_codes_has_no_hamming_score_and_no_level():
    model = MODELS["ridge"]().fit(checkerboard())
    document = document_of(model)
    request = document["components"]["schemas"]["RecommendRequest"]
    assert request["properties"]["score"]["enum"] == ["real"]
    asked = body_schema(document, "/v1/recommend")
    assert asked.is_valid({"user": {}, "popularity": 1})
    assert not asked.is_valid({"user": {}, "popularity": 0.5})


def test_the_document_is_that_of_the_model_that_is_served(model_files, put_file, tmp_path):
    place = tmp_path / "m.coldhash"
    put_file(model_files["a"], place)
    with TestClient(create_app(place, log=lambda _: None, watch_seconds=0.01)) as client:
        for letter in "ab":
            put_file(model_files[letter], place)
            while client.get("/v1/items?limit=1").json()["items"][0]["item_id"][0] != letter:
                pass
            asks = client.get("/openapi.json").json()["components"]["schemas"]
            assert asks["ExplainRequest"]["examples"][0]["item_id"][0] == letter


@pytest.mark.parametrize("token", [None, "secret"])
def test_a_token_is_documented_where_it_is_needed(model, token):
    document = document_of(model, token)
    needed = {
        path
        for path, method in OPERATIONS.items()
        if document["paths"][path][method.lower()].get("security")
    }
    assert needed == (set() if token is None else {*OPERATIONS} - {"/healthz", "/readyz"})
