from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient

from coldhash import MFDCF, Dataset
from coldhash.arrays.codes import pack, signs
from coldhash.registry import MODELS
from coldhash.serve import create_app
from worlds import checkerboard

PERSON = {"age": 30, "gender": "female"}


def told(answer):
    return [(item["item_id"], item["rank"]) for item in answer["items"]]


def expected(found):
    return [(row["item_id"], row["rank"]) for row in found]


@pytest.mark.parametrize("score", ["real", "hamming"])
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_a_stranger_gets_what_the_library_gives(client, model, score, k):
    answer = client.post("/v1/recommend", json={"user": PERSON, "k": k, "score": score}).json()
    rows = list(model.recommend(PERSON, k=k, score=score))
    assert told(answer) == expected(rows)
    for key in ("score", "distance"):
        assert [each.get(key) for each in answer["items"]] == [row.get(key) for row in rows]
    encoded = model.encode(PERSON)
    assert answer["weights"] == {name: float(w[0]) for name, w in encoded.weights.items()}
    assert bytes.fromhex(answer["code"]) == pack(signs(encoded.vectors)).tobytes()[:3]
    assert (answer["n_bits"], answer["fallback"], answer["ignored"]) == (24, False, [])


def test_a_user_in_the_address_is_a_text(client, model):
    for user_id in ("1e0", "1.5", "null", "true", "007", '"1"', "9" * 30):
        answer = client.post("/v1/recommend", params={"user_id": user_id, "k": 1}, json={})
        assert answer.status_code == 404
        assert repr(user_id) in answer.json()["error"]["message"]
    answer = client.post("/v1/recommend", params={"user_id": model.user_ids[0], "k": 1}, json={})
    assert answer.json()["user_id"] == model.user_ids[0]


def test_titles_are_those_of_the_item_table(client, model):
    answer = client.post("/v1/recommend", json={"user": PERSON}).json()
    titles = model.item_table.column("title").to_pylist()
    for item in answer["items"]:
        assert item["title"] == titles[model.item_ids.row_of(item["item_id"])]


def test_a_history_counts_and_is_left_out(client, model):
    history = {model.item_ids[0]: 5, model.item_ids[1]: 1, "no such item": 3}
    ask = {"user": PERSON | {"history": history}, "k": 200}
    answer = client.post("/v1/recommend", json=ask).json()
    assert told(answer) == expected(model.recommend(ask["user"], k=200))
    assert answer["ignored"] == ["no such item"]
    assert len(answer["items"]) == len(model.item_ids) - 2
    kept = client.post("/v1/recommend", json=ask | {"exclude_seen": False}).json()
    assert len(kept["items"]) == len(model.item_ids)


def test_a_history_may_be_a_list(client, model):
    bought = [int(model.item_ids[0]), float(model.item_ids[1]), "no such item"]
    people = [PERSON | {"history": bought}, PERSON | {"history": []}, PERSON]
    one, empty, without = (
        client.post("/v1/recommend", json={"user": person, "k": 200}).json() for person in people
    )
    as_texts = [model.item_ids[0], model.item_ids[1], "no such item"]
    assert told(one) == expected(model.recommend(PERSON | {"history": as_texts}, k=200))
    assert one["ignored"] == ["no such item"]
    assert {item["item_id"] for item in one["items"]} == set(model.item_ids) - set(as_texts)
    assert empty == without
    batch = client.post("/v1/recommend/batch", json={"users": people, "k": 200}).json()
    assert batch["answers"] == [one, empty, without]
    ask = {"user": people[0], "item_id": model.item_ids[9]}
    why = client.post("/v1/explain", json=ask).json()
    assert {f"rated {item_id}" for item_id in as_texts[:2]} <= set(why["contributions"])


def test_counts_have_no_highest_value(model):
    counted = replace(model, feedback=replace(model.feedback, kind="counts"))
    for served, count, status in (
        (model, 6, 422), (counted, 6, 200), (counted, 0, 200), (counted, -1, 422)
    ):  # fmt: skip
        with TestClient(create_app(served, log=lambda _: None)) as client:
            ask = {"user": {"history": {model.item_ids[0]: count}}}
            assert client.post("/v1/recommend", json=ask).status_code == status


@pytest.mark.parametrize("score", ["real", "hamming"])
def test_popularity_is_weighed(client, model, score):
    lists = []
    for popularity in (0, 0.5, 1):
        ask = {"user": PERSON, "k": 120, "score": score, "popularity": popularity}
        lists.append(told(client.post("/v1/recommend", json=ask).json()))
        ours = model.recommend(PERSON, k=120, score=score, popularity=popularity)
        assert lists[-1] == expected(ours)
        users = {"users": [PERSON, PERSON]} | {name: ask[name] for name in ask if name != "user"}
        batch = client.post("/v1/recommend/batch", json=users).json()["answers"]
        assert [told(answer) for answer in batch] == [lists[-1]] * 2
    assert lists[0] != lists[1] != lists[2]


def test_without_a_level_popularity_cannot_be_weighed():
    model = MODELS["ridge"]().fit(checkerboard())
    with TestClient(create_app(model, log=lambda _: None)) as client:
        assert client.get("/v1/model").json()["has_level"] is False
        for path, ask in {
            "/v1/recommend": {"user": {}},
            "/v1/recommend/batch": {"users": [{}]},
            "/v1/explain": {"user": {}, "item_id": model.item_ids[0]},
        }.items():
            assert client.post(path, json=ask | {"popularity": 1}).status_code == 200
            refused = client.post(path, json=ask | {"popularity": 0.5})
            error = refused.json()["error"]
            assert (refused.status_code, error["field"]) == (422, "popularity")
            assert "no level" in error["message"]


def test_a_training_user(client, model):
    answer = client.post("/v1/recommend", json={"user_id": model.user_ids[5], "k": 7}).json()
    assert told(answer) == expected(model.recommend(user_ids=[model.user_ids[5]], k=7))
    assert (answer["user_id"], answer["weights"]) == (model.user_ids[5], {})


def test_exclude_and_candidates(client, model):
    few = [model.item_ids[row] for row in range(5)]
    ask = {"user": PERSON, "candidates": few, "exclude": few[:2]}
    answer = client.post("/v1/recommend", json=ask).json()
    assert {item["item_id"] for item in answer["items"]} == set(few[2:])


def test_nothing_known_falls_back_to_popularity(client, model):
    answer = client.post("/v1/recommend", json={"user": {}, "k": 5}).json()
    assert answer["fallback"] is True
    levels = dict(zip(model.item_ids, model.items.levels_of().tolist(), strict=True))
    best = sorted(levels.values(), reverse=True)[:5]
    assert [levels[item["item_id"]] for item in answer["items"]] == best


def test_one_and_true_are_not_the_same_person():
    """A kept vector must be that of exactly what was said."""
    n = 24
    said = ["1" if user % 2 == 0 else "true" for user in range(n)]
    ratings = checkerboard(n).ratings.matrix.tocoo()
    data = Dataset.from_tables(
        {"user_id": ratings.row, "item_id": ratings.col, "rating": ratings.data},
        {"user_id": np.arange(n), "said": said},
    )
    model = MFDCF(n_bits=16).fit(data)
    answers = []
    with TestClient(create_app(model, log=lambda entry: None)) as client:
        for value in (1, True, 1.0, "1", "true"):
            answer = client.post("/v1/recommend", json={"user": {"said": value}, "k": 20}).json()
            assert told(answer) == expected(model.recommend({"said": value}, k=20))
            answers.append(told(answer))
    assert answers[0] != answers[1]
    assert answers[0] == answers[2] == answers[3]


def test_a_kept_vector_does_not_carry_the_name_of_another(client):
    for name in ("x", "y"):
        ask = {"user": PERSON | {"user_id": name}}
        assert client.post("/v1/recommend", json=ask).json()["user_id"] == name
    assert client.post("/v1/recommend", json={"user": PERSON}).json()["user_id"] is None


@pytest.mark.parametrize("n_people", [0, 1, 200])
def test_batch_is_the_single_answers(client, n_people):
    people = [{"age": 10 + n % 60, "user_id": f"u{n}"} for n in range(n_people)]
    ask = {"users": people, "k": 3}
    whole = client.post("/v1/recommend/batch", json=ask).json()
    assert len(whole["answers"]) == n_people
    for person, answer in list(zip(people, whole["answers"], strict=True))[::40]:
        assert answer == client.post("/v1/recommend", json={"user": person, "k": 3}).json()
    lines = client.post("/v1/recommend/batch", json=ask, headers={"Accept": "application/x-ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in lines.text.splitlines()] == whole["answers"]


def test_batch_of_training_users(client, model):
    ids = [model.user_ids[row] for row in (3, 1, 2)]
    answers = client.post("/v1/recommend/batch", json={"user_ids": ids, "k": 4}).json()["answers"]
    assert [answer["user_id"] for answer in answers] == ids
    together = [item["item_id"] for answer in answers for item in answer["items"]]
    assert together == [row["item_id"] for row in model.recommend(user_ids=ids, k=4)]


def test_encode(client, model):
    answer = client.post("/v1/encode", json={"user": PERSON}).json()
    vector = model.encode(PERSON).vectors[0]
    np.testing.assert_array_equal(np.float32(answer["vector"]), vector)
    assert answer["planes"] is None


def test_planes_add_up_to_the_vector(client, model):
    by_body = client.post("/v1/encode", json={"user": PERSON, "planes": 4}).json()
    by_query = client.post("/v1/encode?planes=4", json={"user": PERSON}).json()
    assert by_body == by_query
    planes = by_body["planes"]
    bits = [np.frombuffer(bytes.fromhex(text), np.uint8) for text in planes["bits"]]
    signs_of = 2.0 * np.unpackbits(bits, axis=1, count=24, bitorder="little") - 1
    rounded = planes["scale"] * (2.0 ** np.arange(4) @ signs_of)
    assert np.abs(rounded - by_body["vector"]).max() <= 2 * planes["scale"]
    assert planes["offset"] == 24 * 15
    for wrong in ("planes=0", "planes=9", "planes=x", "plane=4", f"planes={'9' * 5000}"):
        refused = client.post(f"/v1/encode?{wrong}", json={"user": PERSON})
        assert (refused.status_code, refused.json()["error"]["field"]) == (422, wrong.split("=")[0])


def test_explain_adds_up(client, model):
    liked = model.item_ids[3]
    ask = {"user": PERSON | {"history": {liked: 5}}, "item_id": model.item_ids[9]}
    answer = client.post("/v1/explain", json=ask).json()
    assert answer["score"] == pytest.approx(sum(answer["contributions"].values()))
    assert f"rated {liked}" in answer["contributions"]
    assert "nearest_users" not in answer
    half = client.post("/v1/explain", json=ask | {"popularity": 0.5}).json()["contributions"]
    assert 0 < half["popularity"] < answer["contributions"]["popularity"]
    own = model.explain(ask["user"], ask["item_id"], popularity=0.5)["contributions"]
    assert half == pytest.approx(own)


def test_explain_says_of_whom_nothing_is_known(client, model):
    answer = client.post("/v1/explain", json={"user": {}, "item_id": model.item_ids[0]}).json()
    assert answer["fallback"] is True


def test_search_finds_by_title_and_id_in_any_case(client, model):
    titles = model.item_table.column("title").to_pylist()
    word = titles[7].split()[0]
    found = client.get("/v1/items", params={"search": word.upper(), "limit": 100}).json()["items"]
    wanted = {
        model.item_ids[row]
        for row, title in enumerate(titles)
        if word.lower() in title.lower() or word.lower() in model.item_ids[row].lower()
    }
    assert {item["item_id"] for item in found} == wanted
    begins = [item["title"].lower().startswith(word.lower()) for item in found]
    assert begins == sorted(begins, reverse=True)
    ids = client.get("/v1/items", params={"search": model.item_ids[11]}).json()["items"]
    assert model.item_ids[11] in [item["item_id"] for item in ids]


def test_search_for_nothing_gives_the_popular_items(client, model):
    found = client.get("/v1/items", params={"limit": 5}).json()["items"]
    popular = client.post("/v1/recommend", json={"user": {}, "k": 5}).json()["items"]
    assert [item["item_id"] for item in found] == [item["item_id"] for item in popular]


def test_similar_items(client, model):
    answer = client.get(f"/v1/items/{model.item_ids[4]}/similar", params={"k": 5}).json()
    assert told(answer) == expected(model.similar_items(model.item_ids[4], 5))


def test_ids_with_slashes_and_of_any_script(model):
    from dataclasses import replace
    from urllib.parse import quote

    from coldhash import Ids

    odd = ["a/b", "../x", "été", "a b?c#d", "100%", "/similar", "漢/字/similar", "\x00"]
    ids = Ids.of(odd + [str(row) for row in range(len(model.item_ids) - len(odd))], "item")
    with TestClient(create_app(replace(model, item_ids=ids), log=lambda _: None)) as client:
        for item_id in odd:
            answer = client.get(f"/v1/items/{quote(item_id, safe='')}/similar?k=200")
            assert answer.status_code == 200, item_id
            assert item_id not in {item["item_id"] for item in answer.json()["items"]}
            assert len(answer.json()["items"]) == len(ids) - 1


def test_the_model_says_what_a_form_needs(client, model):
    card = client.get("/v1/model").json()
    assert (card["n_items"], card["n_users"], card["n_bits"]) == (120, 300, 24)
    assert (card["method"], card["takes_history"], card["has_level"]) == ("mfdcf", True, True)
    assert (card["scale"], card["scores"]) == ([1.0, 5.0], ["real", "hamming"])
    fields = {field["name"]: field for field in card["fields"]}
    assert {"age", "gender", "occupation"} <= set(fields)
    assert fields["age"]["kind"] == "number"
    assert fields["age"]["min"] < fields["age"]["max"]
    assert fields["gender"]["kind"] == "category"
    assert {"female", "male"} <= set(fields["gender"]["choices"])
    assert {field["group"] for field in card["fields"]} <= set(card["groups"])


@pytest.mark.parametrize("name", ["popularity", "ridge", "cbfknn"])
def test_methods_without_codes_are_served_too(name):
    model = MODELS[name]().fit(checkerboard())
    with TestClient(create_app(model, log=lambda _: None)) as client:
        ask = {"user": {"parity": "odd"}, "k": 4}
        answer = client.post("/v1/recommend", json=ask).json()
        assert told(answer) == expected(model.recommend({"parity": "odd"}, k=4))
        if not model.has_codes:
            assert (answer["code"], answer["n_bits"]) == (None, None)
            refused = client.post("/v1/recommend", json=ask | {"score": "hamming"})
            assert (refused.status_code, refused.json()["error"]["field"]) == (422, "score")
        assert client.get("/v1/items?search=1").status_code == 200
        assert client.post("/v1/encode", json={"user": {}}).status_code == 200


def test_an_answer_that_overflows_is_an_error(log):
    model = MODELS["mf"](n_factors=4).fit(checkerboard())
    vectors = np.array(model.user_vectors)
    vectors[1] = np.finfo(vectors.dtype).max
    items = replace(model.items, vectors=np.full_like(model.items.vectors, 2))
    absurd = replace(model, user_vectors=vectors, items=items)
    with TestClient(create_app(absurd, log=log.append)) as client:
        ask = [{"user_id": user_id} for user_id in list(model.user_ids)[:2]]
        fine, refused = (client.post("/v1/recommend", json=json) for json in ask)
    assert fine.status_code == 200
    assert refused.status_code == 422
    assert refused.json()["error"]["field"] == "user_id"
    assert "not finite" in refused.json()["error"]["message"]


def test_server_timing_is_told(client):
    header = client.post("/v1/recommend", json={"user": PERSON}).headers["server-timing"]
    assert float(header.removeprefix("total;dur=")) > 0


def test_health_and_page(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    for path in ("/", "/page/index.html"):
        page = client.get(path)
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        again = client.get("/page/index.html", headers={"if-none-match": page.headers["etag"]})
        assert again.status_code == 304


def test_where_and_fields(client, model):
    where = {"genres": ["drama", "music"], "year": {"min": 2000}}
    ask = {"user": PERSON, "k": 5, "where": where, "fields": ["genres", "year"]}
    rows = list(model.recommend(PERSON, k=5, where=where, fields=["genres", "year"]))
    items = client.post("/v1/recommend", json=ask).json()["items"]
    names = ("item_id", "title", "genres", "year", "rank")
    assert [[item[name] for name in names] for item in items] == [
        [row[name] for name in names] for row in rows
    ]
    batch = {**ask, "users": [PERSON]}
    del batch["user"]
    assert client.post("/v1/recommend/batch", json=batch).json()["answers"][0]["items"] == items
    params = {"k": 5, "where": json.dumps(where), "fields": "genres,year"}
    near = client.get(f"/v1/items/{rows[0]['item_id']}/similar", params=params).json()["items"]
    ours = list(model.similar_items(rows[0]["item_id"], 5, where=where, fields=["genres", "year"]))
    assert [[item[name] for name in names] for item in near] == [
        [row[name] for name in names] for row in ours
    ]
    found = client.get("/v1/items", params={"search": "the", "fields": "year"}).json()["items"]
    assert all(item["year"] and item["title"] for item in found)
    for params in ({"where": "{"}, {"where": "[]"}, {"where": '{"x": 1}'}, {"wher": "{}"}):
        refused = client.get("/v1/items/5/similar", params=params)
        assert refused.status_code == 422
        assert refused.json()["error"]["field"] == next(iter(params))


def test_a_description_counts_for_an_unknown_id(client, model):
    known, stranger = model.user_ids[5], {"user_id": "nobody", "user": PERSON}
    alone = client.post("/v1/recommend", json={"user_id": known}).json()
    both = client.post("/v1/recommend", json={"user_id": known, "user": PERSON}).json()
    assert told(both) == told(alone)
    described = client.post("/v1/recommend", json={"user": PERSON}).json()
    answer = client.post("/v1/recommend", json=stranger).json()
    assert (told(answer), answer["user_id"]) == (told(described), "nobody")


BATCH = "/v1/recommend/batch"
BAD_PEOPLE = [{"age": "x"}, {"agee": 1}, 7, None, [], "x", {"history": {"1": 99}}]


@pytest.mark.parametrize("at", [0, 64, 70])
def test_a_bad_row_of_a_batch_is_an_error_of_that_row(client, model, at):
    people = [{"age": 20 + n} for n in range(71 - len(BAD_PEOPLE))]
    asked = people[:at] + BAD_PEOPLE + people[at:]
    where = {"genres": "drama"}
    good = client.post(BATCH, json={"users": people, "k": 2, "where": where}).json()
    whole = client.post(BATCH, json={"users": asked, "k": 2, "where": where}).json()
    at = min(at, len(people))
    wrong = range(at, at + len(BAD_PEOPLE))
    assert [row for row, each in enumerate(whole["answers"]) if "error" in each] == [*wrong]
    errors = [whole["answers"][row]["error"] for row in wrong]
    assert errors[0]["field"] == f"users.{at}.age"
    assert all(error["message"] and error["hint"] for error in errors)
    assert [each for each in whole["answers"] if "error" not in each] == good["answers"]
    lines = client.post(
        BATCH,
        json={"users": asked, "k": 2, "where": where},
        headers={"Accept": "application/x-ndjson"},
    ).text.splitlines()
    assert [json.loads(line) for line in lines] == whole["answers"]


def test_wrong_options_of_a_batch_are_found_before_its_first_block(client):
    nobody = {"user_ids": [None, None, "who", None], "exclude": ["nothing"], "k": 501}
    answer = client.post("/v1/recommend/batch", json=nobody)
    assert answer.status_code == 404
    assert answer.json()["error"]["field"] == "exclude"


def test_unknown_users_of_a_batch_are_errors_unless_they_are_described(client, model):
    ids = [model.user_ids[0], "nobody", 1.5, model.user_ids[1]]
    found = client.post(BATCH, json={"user_ids": ids, "k": 2}).json()
    fields = [each.get("error", {}).get("field") for each in found["answers"]]
    assert fields == [None, "user_ids.1", "user_ids.2", None]
    assert [each.get("user_id") for each in found["answers"]] == [ids[0], None, None, ids[3]]
    described = client.post(BATCH, json={"user_ids": ids[:2], "users": [{"age": 20}] * 2}).json()
    for answer, ask in zip(
        described["answers"], ({"user_id": ids[0]}, {"user": {"age": 20}}), strict=True
    ):
        alone = client.post("/v1/recommend", json=ask).json()
        assert answer["items"] == alone["items"]
