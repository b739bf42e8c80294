"""What every request passes: ids, token, limits of time and load, metrics, logs."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from coldhash.errors import SettingError
from coldhash.serve import Limits, create_app, endpoints
from coldhash.serve.monitoring import to_stderr
from coldhash.serve.server import Serving

PERSON = {"age": 30, "gender": "female"}


def test_a_sane_request_id_is_kept_and_another_is_replaced(client, log):
    kept = client.get("/healthz", headers={"X-Request-ID": "abc-1.2_3"})
    assert kept.headers["x-request-id"] == "abc-1.2_3"
    for odd in ("", "a b", "x" * 65, "a\tb", '"}', "é".encode()):
        made = client.get("/healthz", headers={"X-Request-ID": odd}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{16}", made)
    assert log[0]["request_id"] == "abc-1.2_3"


@pytest.fixture
def guarded(model):
    with TestClient(create_app(model, token="secret", log=lambda _: None)) as client:
        yield client


@pytest.mark.parametrize(
    "header", [None, "", "secret", "Bearer", "Bearer ", "Bearer wrong", "Basic secret",
               "Bearer secret2", "Bearer secre"]
)  # fmt: skip
@pytest.mark.parametrize(
    "path", ["/v1/model", "/metrics", "/openapi.json", "/nowhere", "/v1/page/"]
)
def test_without_the_token_nothing_is_told(guarded, path, header):
    headers = {} if header is None else {"Authorization": header}
    answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert set(answer.json()["error"]) == {"field", "message", "hint"}


def test_with_the_token_all_is_open_and_health_always_is(guarded):
    for scheme in ("Bearer", "bearer"):
        headers = {"Authorization": f"{scheme} secret"}
        assert guarded.get("/v1/model", headers=headers).status_code == 200
        assert guarded.get("/metrics", headers=headers).status_code == 200
    for path in ("/healthz", "/readyz", "/", "/page/index.html"):
        assert guarded.get(path).status_code == 200


@pytest.mark.parametrize("token", ["", " ", "\n", "é"])
def test_a_token_that_cannot_work_is_refused(model, token):
    with pytest.raises(SettingError, match="token"):
        create_app(model, token=token)
    with pytest.raises(SettingError, match="token"):
        Serving(file=Path("m.coldhash"), token=token)


def test_white_space_around_a_token_does_not_count(model):
    with TestClient(create_app(model, token="secret\n", log=lambda _: None)) as client:
        headers = {"Authorization": "Bearer secret"}
        assert client.get("/v1/model", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("localhost:8000", 200), ("LOCALHOST:1", 200), ("127.0.0.1:80", 200),
     ("[::1]:8000", 200), ("[::1]", 200), ("films.example", 200), ("evil.example", 421),
     ("evil.example:8000", 421), ("localhost.evil.example", 421), ("localhost@evil", 421),
     ("", 421), ("xlocalhost", 421), ("[::2]:8000", 421)],
)  # fmt: skip
def test_only_known_hosts_are_answered(model, host, status):
    hosts = Serving(file=Path("m"), allowed_hosts=("Films.example",)).hosts
    app = create_app(model, allowed_hosts=hosts, log=lambda _: None)
    with TestClient(app) as client:
        answer = client.get("/v1/model", headers={"Host": host})
        assert answer.status_code == status
        assert status == 200 or answer.json()["error"]["field"] == "host"
        assert client.get("/healthz", headers={"Host": host}).status_code == 200


def test_an_empty_list_of_hosts_allows_none(model):
    with TestClient(create_app(model, allowed_hosts=(), log=lambda _: None)) as client:
        assert client.get("/v1/model").status_code == 421


@pytest.mark.parametrize(
    ("settings", "limited"),
    [({}, True), ({"host": "::1"}, True), ({"host": "127.0.0.9"}, True), ({"token": "x"}, False),
     ({"host": "0.0.0.0"}, False), ({"allowed_hosts": ("*",)}, False),
     ({"host": "0.0.0.0", "allowed_hosts": ("a.example",)}, True),
     ({"token": "x", "allowed_hosts": ("a.example",)}, True)],
)  # fmt: skip
def test_hosts_are_limited_where_a_page_elsewhere_could_reach_the_server(settings, limited):
    hosts = Serving(file=Path("m.coldhash"), **settings).hosts
    assert (hosts is not None) == limited
    assert hosts is None or {"localhost", *settings.get("allowed_hosts", ())} <= set(hosts)


@pytest.mark.parametrize("path", ["/page/../v1/model", "/page/%2e%2e/v1/model"])
def test_the_page_is_no_way_around_the_token(guarded, path):
    assert guarded.get(path).status_code in (401, 404)


ORIGIN = "https://shop.example"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type",
}


def test_pages_of_other_origins_are_refused_unless_they_are_allowed(guarded, model):
    asked = guarded.options("/v1/recommend", headers={"Origin": ORIGIN, **PREFLIGHT})
    assert asked.status_code == 401
    assert not [name for name in asked.headers if name.startswith("access-control")]
    app = create_app(model, token="secret", allowed_origins=[ORIGIN], log=lambda _: None)
    with TestClient(app) as client:
        asked = client.options("/v1/recommend", headers={"Origin": ORIGIN, **PREFLIGHT})
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, ORIGIN)
        allowed = asked.headers["access-control-allow-headers"].lower()
        assert {"authorization", "content-type"} <= set(allowed.split(", "))
        assert "POST" in asked.headers["access-control-allow-methods"]
        for token, status in (("secret", 200), ("wrong", 401)):  # a page can read errors, too
            headers = {"Origin": ORIGIN, "Authorization": f"Bearer {token}"}
            answer = client.post("/v1/recommend", json={"user": {}}, headers=headers)
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert answer.headers["vary"] == "Origin"
        other = client.get("/v1/model", headers={"Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers


def test_a_request_that_takes_too_long_gets_a_504(model, log):
    people = [{"age": age % 90} for age in range(1000)]
    limits = Limits(timeout=1e-6, max_batch_items=100_000)
    with TestClient(create_app(model, limits=limits, log=log.append)) as client:
        answer = client.post("/v1/recommend/batch", json={"users": people, "k": 100})
        assert answer.status_code == 504
        assert answer.json()["error"]["hint"]
        assert log[-1]["status"] == 504
        assert client.get("/healthz").status_code == 200


def test_a_body_that_never_comes_gets_a_504(model):
    app = create_app(model, limits=Limits(timeout=0.05), log=lambda _: None)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"10")]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/recommend", "raw_path": b"/v1/recommend",
        "query_string": b"", "headers": headers, "root_path": "", "http_version": "1.1",
        "scheme": "http", "server": ("x", 80), "client": ("y", 1),
    }  # fmt: skip
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 504


@pytest.mark.slow
def test_too_much_at_a_time_gets_a_503_and_the_rest_an_answer(model):
    app = create_app(
        model,
        limits=Limits(max_waiting=2, max_batch_items=100_000, timeout=600),
        log=lambda _: None,
    )
    ask = {"users": [{"age": age % 90} for age in range(1000)], "k": 100}

    async def all_at_once():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            asked = (client.post("/v1/recommend/batch", json=ask) for _ in range(12))
            return await asyncio.gather(*asked)

    answers = asyncio.run(all_at_once())
    assert {answer.status_code for answer in answers} == {200, 503}
    for answer in answers:
        if answer.status_code == 503:
            assert answer.headers["retry-after"] == "1"
        else:
            assert len(answer.json()["answers"]) == 1000


SECRETS = ("secretvalue", "73.125", "secretfield", "secretitem", "secretuser", "secretsearch")


def test_logs_hold_nothing_that_anybody_sent(client, log, capfd):
    person = {"gender": "secretvalue", "age": 73.125, "history": {"secretitem": 5}}
    history = {"history": {"secretitem": 73.125}}
    for path, body in (
        ("/v1/recommend", {"user": person}),
        ("/v1/recommend", {"user": person | {"user_id": "secretuser"}}),
        ("/v1/recommend", {"user": person | {"secretfield": 1}}),
        ("/v1/recommend", {"user": history}),
        ("/v1/recommend", {"user_id": "secretuser"}),
        ("/v1/recommend", {"user": {}, "exclude": ["secretitem"]}),
        ("/v1/recommend", {"secretfield": 1}),
        ("/v1/recommend/batch", {"users": [person, history]}),
        ("/v1/encode", {"user": person}),
        ("/v1/explain", {"user": person, "item_id": "secretitem"}),
    ):
        client.post(path, json=body)
    client.post(
        "/v1/recommend", content=b'{"secretvalue": ', headers={"X-Request-ID": "secret item"}
    )
    client.get("/v1/items?search=secretsearch")
    client.get("/v1/items/secretitem/similar")
    client.get("/secretitem?secretsearch")
    client.request("SECRETVALUE", "/v1/model")
    assert len(log) == 15
    written = json.dumps(log) + "".join(capfd.readouterr())
    for secret in (*SECRETS, "SECRETVALUE"):
        assert secret not in written
    keys = {"time", "request_id", "method", "route", "status", "ms", "model"}
    assert all(set(entry) == keys for entry in log)
    assert {entry["route"] for entry in log} == {
        "/v1/recommend", "/v1/recommend/batch", "/v1/encode", "/v1/explain", "/v1/items",
        "/v1/items/{item_id:path}/similar", "/v1/model", "other",
    }  # fmt: skip


def test_an_internal_error_is_one_line_in_the_log_without_its_text(client, log, capfd, monkeypatch):
    def fail(*_):
        raise RuntimeError("secretvalue")

    monkeypatch.setattr(endpoints, "answer_people", fail)
    answer = client.post("/v1/recommend", json={"user": {}})
    assert answer.status_code == 500
    assert set(answer.json()["error"]) == {"field", "message", "hint"}
    assert log[-1]["error"].startswith("RuntimeError ")
    assert __file__.rsplit("/", 1)[1] in log[-1]["error"]
    assert "secretvalue" not in json.dumps(log) + answer.text + "".join(capfd.readouterr())


def test_the_log_goes_to_stderr_as_lines_of_json(model, capfd):
    with TestClient(create_app(model)) as client:
        client.post("/v1/recommend", json={"user": PERSON})
        client.get("/nowhere")
    to_stderr.flush(60)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/v1/recommend", 200),
        ("other", 404),
    ]


def figures(client):
    rows = (line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines()
            if not line.startswith("#"))  # fmt: skip
    return {name: float(value) for name, value in rows}


def test_metrics_count_requests_fallbacks_and_missing_groups(client):
    for person in (PERSON, {}, {"gender": "never seen"}, {"age": 3}):
        client.post("/v1/recommend", json={"user": person})
    client.post("/v1/recommend/batch", json={"users": [{}, PERSON]})
    client.post("/v1/recommend", json={"user": {"agee": 1}})
    client.post("/v1/recommend", json={"user_id": "1"})
    found = figures(client)
    model = client.get("/v1/model").json()
    assert found["coldhash_strangers_total"] == 6
    assert found["coldhash_fallbacks_total"] == 3
    for group in model["groups"]:
        assert found[f'coldhash_missing_groups_total{{group="{group}"}}'] == 3
    route = 'method="POST",route="/v1/recommend"'
    assert found[f'coldhash_requests_total{{{route},status="422"}}'] == 1
    assert found['coldhash_request_seconds_count{route="/v1/recommend"}'] == 6
    version = f'{{method="mfdcf",version="{model["model"]}"}}'
    assert found[f"coldhash_model_workers{version}"] == 1


def test_two_apps_do_not_share_figures(model, client):
    client.post("/v1/recommend", json={"user": {}})
    with TestClient(create_app(model, log=lambda _: None)) as other:
        assert figures(other)["coldhash_strangers_total"] == 0


def test_an_app_can_be_stopped_and_started_again(model):
    app = create_app(model, log=lambda _: None)
    for _ in range(2):
        with TestClient(app) as client:
            assert client.post("/v1/encode", json={"user": PERSON}).status_code == 200


@pytest.mark.parametrize(
    "setting", ["max_body", "max_k", "max_batch_items", "max_history", "timeout"]
)
def test_limits_are_more_than_nothing(setting):
    with pytest.raises(SettingError, match=setting):
        Limits(**{setting: 0})
