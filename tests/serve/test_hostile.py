"""Inputs that should not be, each with the status it gets; none of them is a 500."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from coldhash.serve import Limits, create_app

BODY = 10_000  # bytes that the server under test takes
RECOMMEND, BATCH = "/v1/recommend", "/v1/recommend/batch"


@pytest.fixture(scope="module")
def client(model):
    limits = Limits(max_body=BODY, max_k=50, max_batch_items=200, max_history=5)
    with TestClient(create_app(model, limits=limits, log=lambda _: None)) as client:
        yield client


def deep(levels):
    return '{"user": {"age": ' + "[" * levels + "]" * levels + "}}"


RAW = [  # bodies for /v1/recommend as they are, the status, and the field that is blamed
    ("nothing", "", 422, "body"),
    ("not JSON", "{", 422, "body"),
    ("not an object", "[]", 422, "body"),
    ("null", "null", 422, "body"),
    ("deep", deep(100), 422, "user.age"),
    ("deeper than any parser should go", deep(4000), 422, "body"),
    ("NaN", '{"user": {"age": NaN}}', 422, "body"),
    ("Infinity", '{"user": {"age": -Infinity}}', 422, "body"),
    ("a number beyond floats", '{"user": {"age": 1e999}}', 422, "body"),
    ("a lone surrogate", '{"user": {"gender": "\\ud800"}}', 422, "body"),
    ("not UTF-8", b'{"user": {"gender": "\xff\xfe"}}', 422, "body"),
    ("a byte order mark", b"\xef\xbb\xbf{}", 422, "body"),
    ("a huge int as age", '{"user": {"age": ' + "9" * 300 + "}}", 422, "user.age"),
    ("a huge int as k", '{"user": {}, "k": ' + "9" * 300 + "}", 422, "k"),
    ("a huge int as id", '{"user_id": ' + "9" * 30 + "}", 422, "user_id"),
    ("a null byte in a value", '{"user": {"gender": "\\u0000"}}', 200, None),
    ("a null byte in a name", '{"user": {"\\u0000": 1}}', 422, "user.\0"),
    ("a key twice: the last one counts", '{"user": {"age": "x", "age": 3}}', 200, None),
    ("more than a megabyte", json.dumps({"user": {"gender": "x" * 10_000_000}}), 413, None),
]


@pytest.mark.parametrize(("body", "status", "field"), [row[1:] for row in RAW],
                         ids=[row[0] for row in RAW])  # fmt: skip
def test_bodies(client, body, status, field):
    answer = client.post(RECOMMEND, content=body, headers={"Content-Type": "application/json"})
    check(answer, status, field)


def check(answer, status, field):
    assert answer.status_code == status, answer.text
    if status != 200:
        error = answer.json()["error"]
        assert set(answer.json()) == {"error"}
        assert set(error) == {"field", "message", "hint"}
        assert error["message"]
        assert error["field"] == field
        assert "Traceback" not in answer.text


def user(**fields):
    return {"user": fields}


PARSED = [  # path, body, status, field
    (RECOMMEND, {}, 422, "user"),
    (RECOMMEND, {"user": {}, "user_id": "1"}, 200, None),
    (RECOMMEND, {"user": []}, 422, "user"),
    (RECOMMEND, {"user": "x"}, 422, "user"),
    (RECOMMEND, {"usr": {}}, 422, "usr"),
    (RECOMMEND, user(agee=3), 422, "user.agee"),
    (RECOMMEND, user(age="old"), 422, "user.age"),
    (RECOMMEND, user(age=True), 422, "user.age"),
    (RECOMMEND, user(age=[3]), 422, "user.age"),
    (RECOMMEND, user(age={"$gt": 0}), 422, "user.age"),
    (RECOMMEND, user(age="inf"), 422, "user.age"),
    (RECOMMEND, user(age="30"), 200, None),
    (RECOMMEND, user(age=" -3.5 "), 200, None),
    (RECOMMEND, user(age="1e3"), 422, "user.age"),
    (RECOMMEND, user(age="nan"), 422, "user.age"),
    (RECOMMEND, user(age=""), 200, None),
    (RECOMMEND, user(age=None), 200, None),
    (RECOMMEND, user(age=1e300), 422, "user.age"),
    (RECOMMEND, user(age=-5), 200, None),
    (RECOMMEND, user(gender={}), 422, "user.gender"),
    (RECOMMEND, user(gender=["female"]), 422, "user.gender"),
    (RECOMMEND, user(gender="never seen"), 200, None),
    (RECOMMEND, user(gender="\U0001f600' OR 1=1 --"), 200, None),
    (RECOMMEND, user(user_id=[]), 422, "user.user_id"),
    (RECOMMEND, user(user_id=True), 422, "user.user_id"),
    (RECOMMEND, user(user_id=2**63), 422, "user.user_id"),
    (RECOMMEND, user(user_id=0), 200, None),
    (RECOMMEND, user(user_id=""), 422, "user.user_id"),
    (RECOMMEND, user(history=[1, "2", 3.0]), 200, None),
    (RECOMMEND, user(history=[1.5]), 422, "user.history.0"),
    (RECOMMEND, user(history=["1", {}]), 422, "user.history.1"),
    (RECOMMEND, user(history=[2**63]), 422, "user.history.0"),
    (RECOMMEND, user(history=list(range(6))), 422, "user.history"),
    (RECOMMEND, user(history="1"), 422, "user.history"),
    (RECOMMEND, user(history={"": 3}), 422, "user.history"),
    (RECOMMEND, user(history={"1": 99}), 422, "user.history.1"),
    (RECOMMEND, user(history={"1": "5"}), 422, "user.history.1"),
    (RECOMMEND, user(history={"1": True}), 422, "user.history.1"),
    (RECOMMEND, user(history={"1": None}), 422, "user.history.1"),
    (RECOMMEND, user(history={"unknown \u00e9": 3}), 200, None),
    (RECOMMEND, user(history={str(n): 3 for n in range(6)}), 422, "user.history"),
    (RECOMMEND, user(history=None), 200, None),
    (RECOMMEND, user() | {"k": 0}, 422, "k"),
    (RECOMMEND, user() | {"k": -1}, 422, "k"),
    (RECOMMEND, user() | {"k": 51}, 422, "k"),
    (RECOMMEND, user() | {"k": 1.5}, 422, "k"),
    (RECOMMEND, user() | {"k": 10.0}, 200, None),
    (RECOMMEND, user() | {"k": "10"}, 422, "k"),
    (RECOMMEND, user() | {"k": True}, 422, "k"),
    (RECOMMEND, user() | {"k": None}, 422, "k"),
    (RECOMMEND, user() | {"score": "best"}, 422, "score"),
    (RECOMMEND, user() | {"popularity": 1.01}, 422, "popularity"),
    (RECOMMEND, user() | {"popularity": -1e-9}, 422, "popularity"),
    (RECOMMEND, user() | {"popularity": "1"}, 422, "popularity"),
    (RECOMMEND, user() | {"popularity": True}, 422, "popularity"),
    (RECOMMEND, user() | {"popularity": None}, 422, "popularity"),
    (RECOMMEND, user() | {"popularity": 0}, 200, None),
    (RECOMMEND, user() | {"exclude_seen": 1}, 422, "exclude_seen"),
    (RECOMMEND, user() | {"exclude": "1"}, 422, "exclude"),
    (RECOMMEND, user() | {"exclude": [[1]]}, 422, "exclude.0"),
    (RECOMMEND, user() | {"exclude": [""]}, 422, "exclude.0"),
    (RECOMMEND, user() | {"exclude": [True]}, 422, "exclude.0"),
    (RECOMMEND, user() | {"exclude": ["no such item"]}, 404, "exclude"),
    (RECOMMEND, user() | {"exclude": []}, 200, None),
    (RECOMMEND, user() | {"candidates": []}, 200, None),
    (RECOMMEND, user() | {"candidates": [-1]}, 404, "candidates"),
    (RECOMMEND, {"user_id": "nobody"}, 404, "user_id"),
    (RECOMMEND, {"user_id": ""}, 422, "user_id"),
    (RECOMMEND, {"user_id": "\0"}, 404, "user_id"),
    (RECOMMEND, {"user_id": 1.5}, 422, "user_id"),
    (RECOMMEND, {"user_id": 1.0}, 200, None),
    (RECOMMEND, {"user_id": {"$ne": 1}}, 422, "user_id"),
    (BATCH, {}, 422, "users"),
    (BATCH, {"users": {}}, 422, "users"),
    (BATCH, {"users": [{}] * 201}, 422, "users"),
    (BATCH, {"users": []}, 200, None),
    (BATCH, {"users": [{}], "user_ids": []}, 400, "user_ids"),
    (BATCH, {"users": [{}], "exclude": ["nothing"]}, 404, "exclude"),
    (BATCH, {"users": [{}], "where": {"genre": "x"}}, 422, "where"),
    (BATCH, {"users": [{}], "fields": ["genre"]}, 422, "fields"),
    (BATCH, {"users": [{}], "k": 51}, 422, "k"),
    ("/v1/encode", {}, 422, "user"),
    ("/v1/encode", {"user": None}, 422, "user"),
    ("/v1/encode", user(agee=1), 422, "user.agee"),
    ("/v1/explain", user(), 422, "item_id"),
    ("/v1/explain", user() | {"item_id": "no such item"}, 404, "item_id"),
    ("/v1/explain", user(history={"1": 99}) | {"item_id": "1"}, 422, "user.history.1"),
]


@pytest.mark.parametrize(("path", "body", "status", "field"), PARSED)
def test_parsed_bodies(client, path, body, status, field):
    check(client.post(path, json=body), status, field)


@pytest.mark.parametrize(
    ("path", "body", "limit"),
    [
        (RECOMMEND, user() | {"k": 51}, "50"),
        (RECOMMEND, user() | {"k": 0}, "1"),
        (RECOMMEND, user(history=list(range(6))), "5"),
        (RECOMMEND, user(history={str(n): 3 for n in range(6)}), "5"),
        (BATCH, {"users": [{}] * 201, "k": 1}, "200"),
        ("/v1/ask", user() | {"n": 51}, "50"),
    ],
)
def test_an_answer_beyond_a_limit_names_the_limit(client, path, body, limit):
    assert client.post(path, json=body).json()["error"]["hint"].split()[-1] == limit


PATHS = [
    ("GET", "/nowhere", 404),
    ("GET", "/v1/recommend", 405),
    ("POST", "/", 405),
    ("DELETE", "/v1/model", 405),
    ("PUT", "/v1/recommend", 405),
    ("GET", "/docs", 404),
    ("GET", "/v1/model/", 404),
    ("GET", "/page/", 404),
    ("GET", "/page/../app.py", 404),
    ("GET", "/page/..%2fapp.py", 404),
    ("GET", "/page/%2e%2e/%2e%2e/app.py", 404),
    ("GET", "/page/%00", 404),
    ("GET", "/v1/items//similar", 422),
    ("GET", "/v1/items/no such item/similar", 404),
    ("GET", "/v1/items/..%2f..%2fetc%2fpasswd/similar", 404),
    ("GET", "/v1/items/%ff%fe/similar", 404),
    ("GET", "/v1/items/%00/similar", 404),
    ("GET", "/v1/items/" + "x" * 5000 + "/similar", 404),
    ("GET", "/v1/items/1/similar?k=51", 422),
    ("GET", "/v1/items/1/similar?k=0", 422),
    ("GET", "/v1/items/1/similar?k=x", 422),
    ("GET", "/v1/items/1/similar?k=" + "9" * 5000, 422),
    ("GET", "/v1/items?limit=0", 422),
    ("GET", "/v1/items?limit=101", 422),
    ("GET", "/v1/items?search=" + "x" * 201, 422),
    ("GET", "/v1/items?search=%00", 200),
    ("GET", "/v1/items?search=%ff", 200),
    ("GET", "/v1/items?search=.*%5C", 200),
    ("GET", "/v1/items?search=%F0%9F%98%80", 200),
    ("GET", "/v1/items?search=a&search=b", 200),
]


@pytest.mark.parametrize(("method", "path", "status"), PATHS)
def test_paths(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    if status != 200:
        assert set(answer.json()["error"]) == {"field", "message", "hint"}
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "x" * 99])
def test_another_content_type_is_refused(client, kind):
    answer = client.post(RECOMMEND, content=b'{"user": {}}', headers={"Content-Type": kind})
    check(answer, 422, "body")


def test_a_body_is_counted_as_it_comes_in(client):
    def chunks():
        for _ in range(20):
            yield b" " * (BODY // 10)

    answer = client.post(RECOMMEND, content=chunks(), headers={"Content-Type": "application/json"})
    check(answer, 413, None)


def test_a_body_of_just_the_limit_is_taken(client):
    body = b'{"user": {}}'.ljust(BODY)
    headers = {"Content-Type": "application/json"}
    assert client.post(RECOMMEND, content=body, headers=headers).status_code == 200
    assert client.post(RECOMMEND, content=body + b" ", headers=headers).status_code == 413
