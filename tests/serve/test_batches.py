"""Batches: bounded, streamed as fast as the client reads, and finished in order of arrival."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial

import pytest
from starlette.testclient import TestClient

from coldhash.serve import Limits, create_app
from coldhash.serve.endpoints import Pool

BATCH = "/v1/recommend/batch"
LARGE = {"users": [{"age": age % 90} for age in range(1000)], "k": 20}


def scope(path, accept, method):
    headers = [(b"content-type", b"application/json"), (b"accept", accept.encode())]
    return {
        "type": "http", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": headers, "root_path": "",
        "http_version": "1.1", "scheme": "http", "server": ("x", 80), "client": ("y", 1),
    }  # fmt: skip


async def ask(app, path, send, body=None, accept="*/*", method="POST"):
    """Send a request to an app, and stay connected."""
    left = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive():
        if not left:
            await asyncio.Event().wait()
        return left.pop()

    await app(scope(path, accept, method), receive, send)


async def strangers(app):
    """Return how many people have been answered."""
    sent = []

    async def send(message):
        sent.append(message)

    await ask(app, "/metrics", send, method="GET")
    lines = sent[1]["body"].decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("coldhash_strangers_t"))


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_what_is_not_read_is_not_computed(model, accept):
    app = create_app(model, log=lambda _: None)
    sent = []

    async def scenario():
        stuck, go = asyncio.Event(), asyncio.Event()

        async def send(message):
            sent.append(message)
            if len(sent) == 2:  # the first part of the body
                stuck.set()
                await go.wait()

        asking = asyncio.create_task(ask(app, BATCH, send, LARGE, accept))
        await stuck.wait()
        for _ in range(20):  # whatever else could be done is done
            held_back = await strangers(app)
        go.set()
        await asking
        return held_back, await strangers(app)

    held_back, at_the_end = asyncio.run(scenario())
    assert held_back <= 100
    assert at_the_end == 1000
    body = b"".join(message["body"] for message in sent[1:])
    lines = body.splitlines() if "ndjson" in accept else json.loads(body)["answers"]
    assert len(lines) == 1000
    assert max(len(message["body"]) for message in sent[1:]) < len(body) / 5


def test_requests_that_come_in_together_get_the_answers_that_each_gets_alone(model):
    """Also beside one that cannot be answered."""
    known = model.user_ids[0]
    requests = [{"user": {"age": age}, "k": 3} for age in range(10, 40)]
    requests += [{"user_id": user_id, "k": 3} for user_id in (known, "nobody", model.user_ids[1])]
    requests += [{"user": {"age": 30}, "k": 5}, {"user": {"age": 30}, "user_id": known, "k": 5}]
    requests += [{"user": {"age": 30}, "exclude": ["nothing"]}, {"user": {"agee": 30}}]

    async def answers(app, requests):
        sent = [[] for _ in requests]

        async def asking(request, messages):
            async def send(message):
                messages.append(message)

            await ask(app, "/v1/recommend", send, request)

        await asyncio.gather(*map(asking, requests, sent))
        return [(messages[0]["status"], json.loads(messages[1]["body"])) for messages in sent]

    app = create_app(model, log=lambda _: None)
    together = asyncio.run(answers(app, requests))
    assert asyncio.run(strangers(app)) == 31
    apart = create_app(model, log=lambda _: None)
    assert together == [asyncio.run(answers(apart, [request]))[0] for request in requests]
    assert [status for status, _ in together[30:]] == [200, 404, 200, 200, 200, 404, 422]


def test_event_loops_do_not_wait_for_each_other(model):
    """As of clients of tests in several threads, each of which has a loop of its own."""
    app, request = create_app(model, log=lambda _: None), {"user": {}}
    first, second, sent = asyncio.new_event_loop(), asyncio.new_event_loop(), []

    async def send(message):
        sent.append(message.get("status"))

    waiting = first.create_task(ask(app, "/v1/recommend", send, request))
    first.stop()
    first.run_forever()  # one turn: the request has come in, and the next turn answers it
    assert not sent
    second.run_until_complete(ask(app, "/v1/recommend", send, request))
    first.run_until_complete(waiting)
    for loop in (first, second):
        loop.close()
    assert sent == [200, None, 200, None]


def test_a_batch_that_is_not_read_ends_at_the_time_limit(model, log):
    sent = []

    async def send(message):
        sent.append(message)
        if len(sent) > 1:
            await asyncio.Event().wait()

    for seconds in (1, 8, 64):
        sent.clear()
        app = create_app(model, limits=Limits(timeout=seconds), log=log.append)
        asyncio.run(ask(app, BATCH, send, LARGE))
        if sent[0]["status"] != 504:  # where a busy machine had not begun by then
            break
    assert len(sent) == 2
    assert sent[1]["more_body"]  # no end was sent, so the client sees that it is not whole
    assert log[-1]["route"] == BATCH


@pytest.mark.parametrize(("n_people", "k", "status"), [(20, 10, 200), (20, 11, 413), (11, 20, 413)])
@pytest.mark.parametrize("at", ["users", "user_ids"])
def test_people_times_k_is_limited(model, n_people, k, status, at):
    app = create_app(model, limits=Limits(max_batch_items=200), log=lambda _: None)
    people = [{}] * n_people if at == "users" else list(model.user_ids)[:n_people]
    with TestClient(app) as client:
        answer = client.post(BATCH, json={at: people, "k": k})
    assert answer.status_code == status
    if status == 413:
        assert answer.json()["error"]["field"] == at
        assert "200" in answer.json()["error"]["hint"]


def test_a_default_answer_is_limited(client):
    assert client.post(BATCH, json={"users": [{}] * 1000, "k": 21}).status_code == 413
    assert client.post(BATCH, json={"users": [{}] * 1000, "k": 20}).status_code == 200


@pytest.fixture
def pool(monkeypatch):
    """A pool of one thread, so that the order of the work can be seen."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    return Pool(max_waiting=20)


def test_single_requests_come_first_then_batches_in_order(pool):
    done, go = [], threading.Event()

    async def batch(name):
        order = next(pool.arrivals)
        for block in range(3):
            await pool.run(partial(done.append, name), order, is_new=block == 0)

    async def scenario():
        holding = asyncio.create_task(pool.run(go.wait))
        await asyncio.sleep(0)
        batches = [asyncio.create_task(batch(name)) for name in "abc"]
        await asyncio.sleep(0)
        single = asyncio.create_task(pool.run(partial(done.append, "single")))
        given_up = asyncio.create_task(pool.run(partial(done.append, "given up")))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(holding, single, *batches)

    asyncio.run(scenario())
    assert done == ["single", *"aaabbbccc"]


def test_a_batch_that_has_begun_is_not_refused(pool):
    done, go = [], threading.Event()

    async def scenario():
        tasks = [asyncio.create_task(pool.run(go.wait)) for _ in range(20)]
        await asyncio.sleep(0)
        with pytest.raises(Exception, match="waiting"):
            await pool.run(partial(done.append, 1))
        tasks.append(asyncio.create_task(pool.run(partial(done.append, 2), 1, is_new=False)))
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert done == [2]
