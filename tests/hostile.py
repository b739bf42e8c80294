"""Requests that should not be: broken JSON, broken HTTP, too much of everything, and good ones.

All of it follows from a seed. A `Shot` is what is sent over one connection; `good` ones carry the
answer that must come back.
"""

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

POSTS = ("/v1/recommend", "/v1/recommend/batch", "/v1/encode", "/v1/explain")
KIND = "application/json"
BODY_LIMIT = 1_000_000  # bytes; the server's default
ODD_VALUES = (
    None, True, -1, 0, 1.5, 1e300, -1e308, 10**30, 2**63, "", " ", "x" * 300, "\0", "NaN", "inf",
    "\U0001f600", "' OR 1=1 --", "../../etc/passwd", "${jndi:ldap://x}", "<script>", [], [[]],
    [None], {}, {"": {}}, {"$gt": 0}, ["1"] * 50, {"a": [1, {"b": None}]},
)  # fmt: skip
ODD_TOKENS = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9" * 400, b"0x10", b"01", b"1.",
    b".5", b"+1", b"'x'", b"undefined", b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xff\xfe"',
    b'"\xc0\xaf"',
    b'"\xed\xa0\x80"', b'"\\x"', b'"\\u12"', b'"\t"', b"//", b"/**/1",
    b"1e-999", b"-0", b"1" + b"0" * 9,
)  # fmt: skip
ODD_PATHS = (
    "/", "//", "/nowhere", "/v1", "/v1/model/", "/page/../app.py", "/page/..%2f..%2fapp.py", "/%00",
    "/page/%2e%2e/%2e%2e/gate.py", "/v1/items/%ff%fe/similar", "/v1/items//similar", "/docs",
    "/v1/items/..%2f..%2fetc%2fpasswd/similar", "/v1/items?limit=0", "/v1/items?limit=-1",
    "/v1/items?limit=" + "9" * 400, "/v1/items?search=%00", "/v1/items?search=%ff%c0%af",
    "/v1/items?search=" + "%F0%9F%98%80" * 60, "/v1/items?search=(((((a*)*)*)*)*)b",
    "/?" + "&" * 900,
    "/v1/items/1/similar?k=x", "/v1/items/1/similar?k=0", "/v1/items/1/similar?k=1e9", "/readyz?%",
    "/v1/items?" + "a=b&" * 500, "http://elsewhere/v1/model", "*", "/v1/model;x=y",
    "/page/app.js%00",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW")
TYPES = (
    "text/plain", "application/xml", "application/x-www-form-urlencoded", "", "application/json;",
    "application/json; charset=utf-7", "application/json; charset=\"", "multipart/form-data",
    "multipart/form-data; boundary=x", "x" * 2000, "application/x-msgpack", "*/*",
    "APPLICATION/JSON",
)  # fmt: skip


@dataclass(frozen=True)
class Shot:
    """What is sent: in pieces, over a connection that is kept or one of its own."""

    kind: str
    pieces: tuple[bytes, ...]
    kept: bool = False  # well-formed HTTP that gets an answer of known length
    pause: float = 0.0  # seconds between pieces
    cut: bool = False  # leave without reading
    whole: bool = False  # the server ends the connection by itself
    items: tuple[str, ...] | None = None  # the right answer to a good request


Answers = list[tuple[dict[str, Any], tuple[str, ...]]]  # people, and the items they must get


def shots(n: int, seed: int, answers: Answers, item_ids: list[str]) -> Iterator[Shot]:
    """Make n shots; every fifth one is good."""
    draw = random.Random(seed)
    for place in range(n):
        if place % 5 == 0:
            person, items = draw.choice(answers)
            yield Shot("good", (post("/v1/recommend", {"user": person, "k": len(items)}),), True,
                       items=items)  # fmt: skip
        else:
            (make,) = draw.choices(list(MAKERS), list(MAKERS.values()))
            yield make(draw, item_ids)


def post(path: str, body: Any, kind: str = KIND, more: str = "") -> bytes:
    """Write a request with a body: bytes as they are, or a value as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\n{more}"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode("latin-1") + content


def usual(draw: random.Random, path: str, item_ids: list[str]) -> dict[str, Any]:
    """Make a body that the endpoint takes."""
    rated = {draw.choice(item_ids): draw.randint(1, 5) for _ in range(draw.randint(0, 4))}
    person = {"age": draw.randint(1, 90), "gender": "female", "history": rated}
    if path.endswith("batch"):
        return {"users": [person] * draw.randint(1, 4), "k": 3}
    if path.endswith("recommend"):
        return {"user": person, "k": draw.randint(1, 20), "exclude": [draw.choice(item_ids)]}
    return {"user": person} | ({"item_id": item_ids[0]} if path.endswith("explain") else {})


def broken_json(draw: random.Random, item_ids: list[str]) -> Shot:
    path = draw.choice(POSTS)
    body = bytearray(json.dumps(usual(draw, path, item_ids)).encode())
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(body) + 1)
        how = draw.randrange(4)
        if how == 0:
            del body[at : at + draw.randint(1, 9)]
        elif how == 1:
            body[at:at] = draw.randbytes(draw.randint(1, 3))
        elif how == 2:
            body[at : at + 1] = draw.choice(
                [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\0"]
            )
        else:
            del body[at:]
    return Shot("broken JSON", (post(path, bytes(body)),), True)


def odd_tokens(draw: random.Random, item_ids: list[str]) -> Shot:
    path = draw.choice(POSTS)
    text = json.dumps(_spoiled(draw, usual(draw, path, item_ids), "@@")).encode()
    return Shot("odd tokens", (post(path, text.replace(b'"@@"', draw.choice(ODD_TOKENS))),), True)


def wrong_types(draw: random.Random, item_ids: list[str]) -> Shot:
    path = draw.choice(POSTS)
    body = _spoiled(draw, usual(draw, path, item_ids), draw.choice(ODD_VALUES))
    return Shot("wrong types", (post(path, body),), True)


def _spoiled(draw: random.Random, value: Any, odd: Any) -> Any:
    """Put something odd somewhere: in place of a value, or beside it."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        name = draw.choice(list(value))
        if draw.random() < 0.15:
            return value | {draw.choice(["", "x" * 99, "\0", "__proto__", "user_id"]): odd}
        return value | {name: _spoiled(draw, value[name], odd)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        return [_spoiled(draw, value[0], odd), *value[1:]]
    return odd


def deep(draw: random.Random, item_ids: list[str]) -> Shot:
    del item_ids
    levels, (left, right) = draw.randint(50, 60_000), draw.choice(["[]", ('{"a":', "}")])
    closed = right * levels if draw.random() < 0.5 else ""
    inside = f'{{"user": {{"age": {left * levels}1{closed}}}}}'
    return Shot("deep nesting", (post(draw.choice(POSTS), inside.encode()),), True)


def wrong_kind(draw: random.Random, item_ids: list[str]) -> Shot:
    path = draw.choice(POSTS)
    return Shot(
        "content types", (post(path, usual(draw, path, item_ids), draw.choice(TYPES)),), True
    )


def encodings(draw: random.Random, item_ids: list[str]) -> Shot:
    path = draw.choice(POSTS)
    text = json.dumps(usual(draw, path, item_ids) | {"é\u6c49": "\U0001f600"}, ensure_ascii=False)
    body = text.encode(
        draw.choice(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7", "gb18030"])
    )
    return Shot("encodings", (post(path, body),), True)


def much(draw: random.Random, item_ids: list[str]) -> Shot:
    """Ask for as much as is allowed, or for a little more."""
    many = [draw.choice(item_ids) for _ in range(draw.choice([100, 1000, 5000]))]
    rated = {f"{item}{draw.choice(['', '?'])}{n}": 3 for n, item in enumerate(many)}
    body = draw.choice([
        {"user": {"history": rated}, "k": draw.choice([1000, 1001])},
        {"user": {}, "exclude": many}, {"user": {}, "candidates": many, "k": 1000},
        {"user": {"gender": "x" * draw.choice([600, 100_000])}}, {"user": {}, "k": 10**9},
        {"user": {f"field {n}": n for n in range(2000)}},
    ])  # fmt: skip
    if draw.random() < 0.1:
        people = {"users": [{"age": n % 90} for n in range(draw.choice([50, 1001]))], "k": 5}
        return Shot("much", (post("/v1/recommend/batch", people),), True)
    return Shot("much", (post("/v1/recommend", body),), True)


def odd_paths(draw: random.Random, item_ids: list[str]) -> Shot:
    del item_ids
    method, path = draw.choice(METHODS), draw.choice(ODD_PATHS)
    if draw.random() < 0.3:
        path = "/" + draw.randbytes(draw.randint(1, 40)).decode("latin-1")
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    return Shot("paths and methods", (head.encode("latin-1"),))


def framing(draw: random.Random, item_ids: list[str]) -> Shot:
    """HTTP that is none, or that can be read in two ways."""
    body = json.dumps(usual(draw, POSTS[0], item_ids)).encode()
    start = b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    close, n = b"connection: close\r\n", str(len(body)).encode()
    chunked = start + close + b"transfer-encoding: chunked\r\n\r\n"
    size = f"{len(body):x}\r\n".encode()
    raw = draw.choice([
        draw.randbytes(draw.randint(1, 500)),
        b"\r\n" * draw.randint(1, 50),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        b"GET /v1/model\r\n\r\n", b"GET  /v1/model  HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/model HTTP/9.9\r\nhost: x\r\n\r\n", b"GET /v1/model HTTP/1.1\n\n",
        b"GET /v1/model HTTP/1.0\r\n\r\n", b"GET /v1/model HTTP/1.1\r\n\r\n",
        b"GET /v1/model HTTP/1.1\r\nhost: x\r\nhost: y\r\n" + close + b"\r\n",
        b"GET /v1/model HTTP/1.1\r\nhost: x\r\n folded: y\r\n\r\n",
        b"GET /v1/model HTTP/1.1\r\nhost: x\r\nna me: y\r\n\r\n",
        b"GET /v1/model HTTP/1.1\r\nhost: x\r\nname: y\0z\r\n\r\n",
        b"GET /v1/model HTTP/1.1\r\nhost: x\r\n: y\r\n\r\n",
        start + b"content-length: -1\r\n\r\n" + body, start + b"content-length: x\r\n\r\n" + body,
        start + b"content-length: " + b"9" * 40 + b"\r\n\r\n" + body,
        start + b"content-length: " + n + b"\r\ncontent-length: 3\r\n\r\n" + body,
        start + close + b"content-length: " + n + b"\r\n\r\n" + body[: len(body) // 2],
        start + close + b"content-length: 3\r\n\r\n" + body,
        start + b"content-length: " + n + b"\r\ntransfer-encoding: chunked\r\n\r\n" + body,
        start + b"transfer-encoding: gzip, chunked\r\n\r\n" + body,
        chunked + size + body + b"\r\n0\r\n\r\n", chunked + size + body,
        chunked + b"zz\r\n" + body, chunked + b"-5\r\n" + body,
        chunked + b"f" * 30 + b"\r\n" + body,
        chunked + size + body + b"0\r\n\r\n", chunked + b"0\r\n\r\n",
        chunked + b"1;" + b"x" * 5000 + b"\r\n{\r\n0\r\n\r\n",
        start + close + b"expect: 100-continue\r\ncontent-length: " + n + b"\r\n\r\n" + body,
        start + b"content-length: " + n + b"\r\n\r\n" + body
        + b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
        + close + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n"
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n"
        b"http2-settings: AAMAAABkAAQAAP__\r\n\r\n",
    ])  # fmt: skip
    return Shot("HTTP framing", (raw,))


def long_heads(draw: random.Random, item_ids: list[str]) -> Shot:
    del item_ids
    size = draw.choice([5000, 20_000, 70_000, 200_000])
    raw = draw.choice([
        f"GET /{'x' * size} HTTP/1.1\r\nhost: x\r\n",
        f"GET /v1/items?search={'x' * size} HTTP/1.1\r\n",
        f"{'G' * size} / HTTP/1.1\r\nhost: x\r\n", f"GET / HTTP/1.1\r\nhost: {'x' * size}\r\n",
        f"GET / HTTP/1.1\r\nhost: x\r\nx-request-id: {'x' * size}\r\n",
        f"GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {'x' * size}\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\n" + "a: b\r\n" * (size // 6),
        f"GET / HTTP/1.1\r\nhost: x\r\n{'n' * size}: y\r\n",
    ])  # fmt: skip
    return Shot("long heads", (raw.encode() + b"connection: close\r\n\r\n",))


def oversize(draw: random.Random, item_ids: list[str]) -> Shot:
    del item_ids
    start = b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    start += b"content-type: application/json\r\n"
    if draw.random() < 0.7:  # claims much, sends little
        length = draw.choice([BODY_LIMIT + 1, 10**9, 10**15, 10**19])
        return Shot("oversize bodies", (start + b"content-length: %d\r\n\r\n{" % length,))
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    return Shot("oversize bodies", (start + b"transfer-encoding: chunked\r\n\r\n", *[piece] * 17))


@functools.cache
def bomb() -> bytes:
    return gzip.compress(bytes(50_000_000), 9)


def bombs(draw: random.Random, item_ids: list[str]) -> Shot:
    del item_ids
    coding = draw.choice(["gzip", "deflate", "br", "zstd", "gzip, gzip"])
    return Shot(
        "compressed bombs",
        (post(draw.choice(POSTS), bomb(), more=f"content-encoding: {coding}\r\n"),), True,
    )  # fmt: skip


def slow(draw: random.Random, item_ids: list[str]) -> Shot:
    path = draw.choice(POSTS)
    whole = post(path, usual(draw, path, item_ids), more="connection: close\r\n")
    step = len(whole) // 8 + 1
    pieces = tuple(whole[at : at + step] for at in range(0, len(whole), step))
    return Shot("slow", pieces, pause=draw.uniform(0.001, 0.02), whole=True)


def cut_off(draw: random.Random, item_ids: list[str]) -> Shot:
    path = draw.choice(POSTS)
    whole = post(path, usual(draw, path, item_ids))
    return Shot("cut off", (whole[: draw.randint(1, len(whole))],), cut=True)


Make = Callable[[random.Random, list[str]], Shot]
MAKERS: dict[Make, int] = {  # and how often
    broken_json: 20, odd_tokens: 12, wrong_types: 20, deep: 4, wrong_kind: 5, encodings: 5, much: 4,
    odd_paths: 10, framing: 10, long_heads: 3, oversize: 3, bombs: 1, slow: 2, cut_off: 6,
}  # fmt: skip
