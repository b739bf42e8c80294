"""What is fuzzed: each target takes any bytes, and may raise nothing.

A target allows the errors of the library's tree and swallows them; whatever else comes out of it is
a finding. The same targets run under hypothesis in the normal tests (`test_targets.py`) and under
atheris for as long as one likes (`make fuzz`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from typer.main import get_command

from coldhash import Dataset, FeaturePlan, Recommender, TableFile, load
from coldhash.baselines.controls import Popularity, Ridge
from coldhash.baselines.mf import MF
from coldhash.cli import app
from coldhash.errors import ColdhashError, UnlikelyData
from coldhash.features.fitting import fit_features
from coldhash.mfdcf.model import MFDCF
from coldhash.serve import Limits, create_app


@dataclass(frozen=True)
class Target:
    """Something that takes bytes, and bytes that get far into it."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


@cache
def folder() -> Path:
    """A place for files, removed at the end."""
    made = Path(tempfile.mkdtemp(prefix="coldhash-fuzz-"))
    atexit.register(shutil.rmtree, made)
    return made


def put(name: str, content: bytes) -> Path:
    path = folder() / name
    path.unlink(missing_ok=True)  # never over a file that is mapped
    path.write_bytes(content)
    return path


@cache
def world() -> Dataset:
    """A few users and items with a column of each kind."""
    users, items = range(12), range(10)
    pairs = [(user, item) for user in users for item in items if (user + item) % 3]
    return Dataset.from_tables(
        {
            "user_id": [user for user, _ in pairs],
            "item_id": [item for _, item in pairs],
            "rating": [1.0 + (user * item) % 5 for user, item in pairs],
        },
        {
            "user_id": list(users),
            "age": [20.0 + 3 * user for user in users],
            "gender": ["fm"[user % 2] for user in users],
            "bio": [f"word{user % 3} other{user % 2}" for user in users],
            "taste": [[float(user), 1.0] for user in users],
        },
        {
            "item_id": list(items),
            "title": [f"Title {item}" for item in items],
            "genres": ["a|b" if item % 2 else "b|c" for item in items],
        },
        scale=(1.0, 5.0),
        plan=FeaturePlan(
            users={
                "who": {"age": "number", "gender": {"kind": "category", "min_count": 1}},
                "told": {"bio": {"kind": "text", "min_count": 1}, "taste": "vector"},
            },
            items={"content": {"genres": "multi-label"}},
            preference={},
        ),
    )


# -- tables --------------------------------------------------------------------------------------

ENDINGS = ("csv", "tsv", "dat", "jsonl", "parquet", "csv.gz", "jsonl.zst", "zip")
STYLES = (
    {},
    {"quote": None},
    {"escape": "\\"},
    {"separator": ";"},
    {"separator": "::"},
    {"encoding": "utf-16"},
    {"encoding": "latin-1"},
    {"names": ("user_id", "item_id", "rating", "timestamp")},
)


def tables(data: bytes) -> None:
    """A byte for the format, one for the style, and a file of ratings, which are users as well."""
    form, style = ENDINGS[data[0] % len(ENDINGS)], STYLES[data[1] % len(STYLES)]
    path = put(f"table.{form}", data[2:])
    member = {"member": "r.csv"} if form == "zip" else {}
    file = TableFile(path=path, **member, **style)
    for sources in ((file,), (file, file, file)):
        with contextlib.suppress(ColdhashError, UnlikelyData):  # warnings are errors here
            Dataset.from_tables(*sources, duplicates="last")


ROWS = [
    {"user_id": "u1", "item_id": "i1", "rating": 4.0, "timestamp": 978300760, "age": "007"},
    {"user_id": "u2", "item_id": "i2", "rating": 2.5, "timestamp": 978302109, "age": 'a "b", c'},
    {"user_id": "é\u6c49", "item_id": "i1", "rating": 1.0, "timestamp": 0, "age": "x\ny"},
]


def table_seeds() -> list[bytes]:
    seeds = []
    for form, ending in enumerate(ENDINGS):
        for style, how in enumerate(STYLES):
            content = _packed(ending, how)
            if content is not None:
                seeds.append(bytes([form, style]) + content)
    return seeds


def _packed(ending: str, how: dict) -> bytes | None:
    if ending == "parquet":
        out = io.BytesIO()
        pa.parquet.write_table(pa.Table.from_pylist(ROWS), out)
        return None if how else out.getvalue()
    encoding = how.get("encoding", "utf-8")
    if ending.startswith("jsonl"):
        text = "\n".join(json.dumps(row) for row in ROWS)
    else:
        separator = how.get("separator", "\t" if ending == "tsv" else ",")
        out = io.StringIO(newline="")
        fields = how.get("names", tuple(ROWS[0]))
        mark = "|" if separator == "::" else separator
        writer = csv.DictWriter(out, fields, delimiter=mark, extrasaction="ignore")
        if "names" not in how:
            writer.writeheader()
        writer.writerows(ROWS[:2])
        text = out.getvalue().replace(mark, separator)
    content = text.encode(encoding)
    if ending.endswith(".gz"):
        return gzip.compress(content, mtime=0)
    if ending.endswith(".zst"):
        return pa.compress(content, "zstd", asbytes=True)
    if ending == "zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("r.csv"), content)
        return out.getvalue()
    return content


# -- plans ---------------------------------------------------------------------------------------


def plans(data: bytes) -> None:
    """A plan in TOML: read, written and read again, and learned on a small world."""
    try:
        plan = FeaturePlan.from_toml(put("plan.toml", data))
    except ColdhashError:
        return
    again = FeaturePlan.from_toml(put("again.toml", plan.to_toml().encode()))
    assert again == plan, "a plan that was written is another one"
    with contextlib.suppress(ColdhashError):
        fit_features(world().with_plan(plan))


def plan_seeds() -> list[bytes]:
    return [
        world().plan.to_toml().encode(),
        b'[users.a]\nage = {kind = "number", n_knots = 6}\ngender = "category"\n',
        b'[users.a]\nbio = {kind = "text", min_count = 1, max_words = 3}\n"taste" = "vector"\n',
        b'[users.a]\nage = "category"\nbio = "multi-label"\n[items."b c"]\ntitle = "text"\n',
        b'[items.c]\ngenres = {kind = "multi-label", separator = "|", min_count = 1}\n'
        b"[preference]\nmax_width = 2\n",
        b'users = {x = {gender = {kind = "category", min_count = 99}}}\n',
    ]


# -- model files ---------------------------------------------------------------------------------

LENGTH, CHECKSUM = 8, 32


@cache
def model_files() -> list[bytes]:
    methods = (MFDCF(n_bits=16, n_rounds=2), Ridge(), MF(n_factors=2, n_rounds=1), Popularity())
    files = []
    for method in methods:
        method.fit(world()).save(folder() / "seed")
        files.append((folder() / "seed").read_bytes())
    return files


def models(data: bytes) -> None:
    """A byte for how, then a file: as it is, with the checksum put right, or a header alone."""
    how, body = data[0] % 3, data[1:]
    if how == 1:  # somebody who means harm knows how to make a checksum
        body = body[:-CHECKSUM]
        body += hashlib.sha256(body).digest()
    elif how == 2:
        whole = model_files()[data[0] // 3 % len(model_files())]
        tensors = whole[LENGTH + int.from_bytes(whole[:LENGTH], "little") : -CHECKSUM]
        body = len(body).to_bytes(LENGTH, "little") + body + tensors
        body += hashlib.sha256(body).digest()
    try:
        model = load(put("model", body))
    except ColdhashError:
        return
    with contextlib.suppress(Exception):  # a wrong answer or an error, but the process lives
        _ask(model)


def _ask(model: Recommender) -> None:
    first = model.item_ids[0]
    people = [{}, {"age": 30, "gender": "f", "bio": "word1"}, {"history": {first: model.scale[1]}}]
    model.recommend(people, k=3)
    model.recommend(user_ids=[model.user_ids[0]], k=3)
    model.similar_items(first, k=2)
    model.explain(people[1], first)


def model_seeds() -> list[bytes]:
    seeds = []
    for place, whole in enumerate(model_files()):
        end = LENGTH + int.from_bytes(whole[:LENGTH], "little")
        seeds += [b"\0" + whole, b"\1" + whole, bytes([2 + 3 * place]) + whole[LENGTH:end]]
    return seeds


# -- the command line ----------------------------------------------------------------------------

# these wait, take long, or go out on a network
NOT_RUN = ("serve", "demo", "fetch", "tune", "experiment", "reproduce", "evaluate", "dask")
KNOWN = ("sample", "ml-1m", "ml-100k", "book-crossing")  # data sets take long


def commands(data: bytes) -> None:
    """Arguments, one a line; none that would write outside of the folder."""
    arguments = [os.fsdecode(line) for line in data.split(b"\n")]
    if any("/" in each or ".." in each or "\0" in each for each in arguments):
        return
    if any(word in each for word in NOT_RUN + KNOWN for each in arguments):
        return
    place = folder() / "cli"
    if not place.exists():
        _furnish(place)
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape")
    talk = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace")
    with (
        contextlib.chdir(place),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(talk),
    ):
        code = _exit_code(arguments)
    assert code in (None, 0, 2), f"exit code {code}"


def _exit_code(arguments: list[str]) -> object:
    try:
        return command()(arguments, "coldhash")
    except SystemExit as end:
        return end.code
    except ColdhashError:  # which `main` tells in one line, and ends with 2
        return 2


@cache
def command() -> Callable[[list[str], str], object]:
    """The whole command line; to build it takes longer than most commands do."""
    return get_command(app)


def _furnish(place: Path) -> None:
    place.mkdir()
    (place / "m").write_bytes(model_files()[0])
    (place / "r.csv").write_text(
        "user_id,item_id,rating\n" + "1,1,5\n1,2,3\n2,2,4\n3,1,1\n", encoding="utf-8"
    )
    (place / "u.csv").write_text("user_id,age\n1,30\n2,40\n3,50\n", encoding="utf-8")
    (place / "p.toml").write_text('[users.a]\nage = "number"\n', encoding="utf-8")
    (place / "ids.txt").write_text("1\n2\n", encoding="utf-8")


def command_seeds() -> list[bytes]:
    lines = [
        'recommend m --user {"age":30,"history":{"1":5}} -k 3 --json',
        "recommend m --user-id 1 -k 2 --score hamming --exclude 3",
        "recommend m --users u.csv --out o.csv",
        "recommend m --all --out o.parquet",
        "similar m --item 1 -k 2 --json",
        "inspect m --json",
        "inspect m",
        "export m --to parquet --out e.parquet",
        "export m --to sqlite --out e.sqlite",
        "describe --ratings r.csv --users u.csv --plan p.toml --json",
        "describe --ratings r.csv --column user_id=item_id --column item_id=user_id",
        "describe --ratings r.csv --encoding latin-1 --duplicates mean",
        "fit --ratings r.csv --users u.csv --out f --bits 8 --set n_rounds=1 --json",
        "fit --ratings r.csv --out f --model popularity --seed 1",
        'fit --ratings r.csv --out f --model ridge --set target="share"',
        "update m --remove-items ids.txt --out n --json",
        "update m --users u.csv --out n",
        "--version",
        "--help",
        "recommend --help",
    ]
    return [line.replace(" ", "\n").encode() for line in lines]


# -- HTTP ----------------------------------------------------------------------------------------

ASKED = (
    ("POST", "/v1/recommend"),
    ("POST", "/v1/recommend/batch"),
    ("POST", "/v1/encode"),
    ("POST", "/v1/explain"),
    ("GET", "/v1/items"),
    ("GET", "/v1/items/1/similar"),
    ("PUT", "/v1/recommend"),
)
KINDS = (b"application/json", b"application/json; charset=latin-1", b"text/plain", b"")
SHAPE = {"field", "message", "hint"}


@cache
def service():
    put("served", model_files()[0])
    limits = Limits(max_body=20_000, max_k=50, max_batch_items=200, max_history=10)
    app = create_app(load(folder() / "served"), limits=limits, log=lambda _: None)
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return app, loop


def bodies(data: bytes) -> None:
    """A byte for the endpoint, one for the content type, and a body (or query, for GET)."""
    (method, path), kind = ASKED[data[0] % len(ASKED)], KINDS[data[1] % len(KINDS)]
    content = data[2:]
    app, loop = service()
    status, answer = loop.run_until_complete(_answer(app, method, path, kind, content))
    assert 200 <= status < 500, f"status {status}: {answer!r}"
    told = [json.loads(answer)]
    if status != 200:
        assert told[0].keys() == {"error"}, answer
        assert told[0]["error"].keys() == SHAPE, answer


async def _answer(app, method: str, path: str, kind: bytes, content: bytes) -> tuple[int, bytes]:
    body, sent = b"" if method == "GET" else content, []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": content if method == "GET" else b"",
        "headers": [(b"host", b"x"), (b"content-type", kind)],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: dict) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def body_seeds() -> list[bytes]:
    person = {"age": 30, "gender": "f", "bio": "word1", "taste": [1.0, 2.0], "history": {"1": 5}}
    asked = [
        (0, {"user": person, "k": 3, "score": "hamming", "exclude": ["2"], "exclude_seen": False}),
        (0, {"user_id": "1", "candidates": ["1", 2]}),
        (1, {"users": [person, {}], "k": 2}),
        (1, {"user_ids": [1, "2"], "score": "real"}),
        (2, {"user": person}),
        (3, {"user": person, "item_id": "1"}),
        (6, {}),
    ]
    queries = [(4, b"search=title&limit=3"), (4, b"search=%e6%b1%89+%ff&limit=1"), (5, b"k=2")]
    return [
        *(bytes([place, 0]) + json.dumps(body).encode() for place, body in asked),
        *(bytes([place, 0]) + query for place, query in queries),
    ]


TARGETS = {
    "tables": Target(tables, table_seeds),
    "plans": Target(plans, plan_seeds),
    "models": Target(models, model_seeds),
    "commands": Target(commands, command_seeds),
    "bodies": Target(bodies, body_seeds),
}
LEAST = 2  # bytes: the first ones choose a format or an endpoint
