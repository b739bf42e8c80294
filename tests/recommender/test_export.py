"""Rank each exported database by its own SQL: lists must equal those of the rounded query."""

from __future__ import annotations

import csv
import io
import os
import pwd
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from coldhash import MFDCF, Ids, load, read
from coldhash.errors import DataError, SettingError, SourceError
from coldhash.recommender.export import EXPORTERS, Planes, export, query_sql
from coldhash.recommender.items import CodeItems, RealItems

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:duckdb.*")

K = 10
N_ITEMS = 120
HOSTILE = [
    "a\tb",
    "back\\slash",
    "\\N",
    "\\.",
    "line\nbreak",
    "\r",
    "it's",
    '"',
    " ",
    "{x}",
    "映画🎬",
]
PEOPLE = [{"age": 30}, {"age": 60, "gender": "male", "history": {"it's": 5, "40": 1}}, {}]


@pytest.fixture(scope="module")
def fitted():
    model = MFDCF(n_bits=72).fit(read("sample", n_users=200, n_items=N_ITEMS))  # codes of 64 bits
    rows = range(N_ITEMS)
    more = {
        "in stock": pa.array([row % 3 > 0 for row in rows]),
        "tags": pa.array([["new", "it's"] if row % 2 else None for row in rows]),
        "price": pa.array([None if row % 10 == 0 else row / 4 for row in rows]),
        "Base": pa.array([f"\\ \t{row}\n" for row in rows]),
        "added": pa.array([row * 86400 for row in rows], pa.timestamp("s")),
    }
    table = model.item_table
    for name, column in more.items():
        table = table.append_column(name, column)
    ids = Ids.of(HOSTILE + list(model.item_ids)[len(HOSTILE) :], "item")
    return replace(model, item_ids=ids, item_table=table)


def with_random_codes(model, n_bits, has_level):
    """Return a model of any code length, with ties: every code and level occurs twice."""
    rng = np.random.default_rng(n_bits)
    half = N_ITEMS // 2
    codes = np.tile(rng.choice(np.array([-1, 1], dtype=np.int8), (half, n_bits)), (2, 1))
    popularity = rng.integers(0, 3, N_ITEMS).astype(np.float32)
    level = ()
    if has_level:
        gains = np.linspace(0, 1, 256).astype(np.float32)
        levels = np.tile(rng.integers(0, 256, half).astype(np.uint8), 2)
        level = (levels, gains, np.arange(256, dtype=np.int32))
    weights = rng.standard_normal((model.items.width, n_bits)).astype(np.float32)
    users = model.user_vectors @ weights
    return replace(
        model, items=CodeItems.of_codes(codes, popularity, *level), popularity=popularity,
        encoder=Projected(model.encoder, weights), user_vectors=users,
    )  # fmt: skip


class Projected:
    """An encoder whose vectors have another length."""

    answers = None

    def __init__(self, encoder, weights):
        self.encoder, self.weights = encoder, weights

    def encode(self, features, ratings):
        encoded = self.encoder.encode(features, ratings)
        return replace(encoded, vectors=encoded.vectors @ self.weights)


MODELS = {"fitted": None, "13": (13, False), "70": (70, True), "128": (128, True)}


@pytest.fixture(scope="module", params=MODELS)
def model(request, fitted):
    """Fitted codes and levels; random ones that do not fill their bytes or words."""
    return (
        fitted
        if MODELS[request.param] is None
        else with_random_codes(fitted, *MODELS[request.param])
    )


def rounded(vector, n_planes):
    """The vector that planes stand for."""
    planes = Planes.of(vector, n_planes)
    return planes.scale * (2.0 ** np.arange(n_planes) @ planes.bits)


def expected(model, person, n_planes, allowed=None):
    """Ids and scores by arithmetic on +1 and -1."""
    encoded = model.encode([person])
    vector = rounded(encoded.vectors[0], n_planes)
    index = model.items
    levels = index.levels_of()
    base, gain = index.terms(1.0, by_code=False)
    scores = gain[levels] * (base[levels] + model.items.rows().astype(float) @ vector)
    order = np.lexsort((index.rank, -np.round(scores, 9)))
    seen = set() if encoded.history is None else set(encoded.history.indices.tolist())
    kept = [row for row in order if row not in seen and (allowed is None or allowed[row])]
    return [(model.item_ids[row], scores[row]) for row in kept[:K]]


def check(found, wanted):
    assert [item for item, _ in found] == [item for item, _ in wanted]
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted])


def check_queries(model, allowed, to, run):
    """Compare what queries find with what is expected, for people and conditions."""
    for n_planes, person in zip((4, 2, 1), PEOPLE, strict=True):
        for condition, mask in ((None, None), (CONDITION, allowed)):
            sql = query_sql(model, to, person, K, planes=n_planes, condition=condition)
            check(run(sql), expected(model, person, n_planes, mask))


CONDITION = '"in stock" AND price < 20'


@pytest.fixture(scope="module")
def allowed(fitted):
    rows = fitted.item_table.to_pylist()
    return [row["in stock"] and row["price"] is not None and row["price"] < 20 for row in rows]


def test_duckdb(model, allowed, tmp_path):
    import duckdb

    path = export(model, "duckdb", tmp_path / "items.duckdb")
    with duckdb.connect(str(path), read_only=True) as connection:
        check_queries(model, allowed, "duckdb", lambda sql: connection.execute(sql).fetchall())
        count = connection.execute("SELECT count(*) FROM items WHERE list_contains(tags, 'new')")
        assert count.fetchone() == (N_ITEMS // 2,)


def test_sqlite(model, allowed, tmp_path):
    path = export(model, "sqlite", tmp_path / "items.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.create_function("bit_count", 1, lambda word: (word % 2**64).bit_count())
        check_queries(model, allowed, "sqlite", lambda sql: connection.execute(sql).fetchall())
        rows = connection.execute("SELECT id, item_Base, tags FROM items ORDER BY rowid").fetchall()
    table = model.item_table.to_pylist()
    assert [row[0] for row in rows] == list(model.item_ids)
    assert [row[1] for row in rows] == [row["Base"] for row in table]
    assert [row[2] for row in rows[:2]] == [None, '["new", "it\'s"]']


def server_programs():
    """The folder of the newest PostgreSQL server here."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name)
    )
    on_path = shutil.which("postgres")
    found = [path for path in folders if (path / "postgres").exists()]
    found += [Path(on_path).resolve().parent] if on_path else []
    if not found or not shutil.which("psql"):
        pytest.skip("no PostgreSQL server and psql on this machine")
    return found[-1]


class Postgres:
    """A server of its own in a folder of its own, reached by a socket in it and by no port."""

    def __init__(self, programs, folder):
        self.folder = folder
        self.owner = {}
        if os.geteuid() == 0:  # the server does not run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self.owner = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        create = [programs / "initdb", "-D", folder / "data", "-U", "tester", "-A", "trust"]
        create += ["-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(create, check=True, capture_output=True, cwd=folder, **self.owner)
        serve = [programs / "postgres", "-D", folder / "data", "-k", folder, "-F"]
        serve += ["-c", "listen_addresses="]
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            serve, stdout=self.log, stderr=self.log, cwd=folder, **self.owner
        )

    def wait(self):
        deadline = time.monotonic() + 120  # a busy machine is no failure
        while self.psql("-c", "SELECT 1", check=False).returncode:
            log = (self.folder / "log").read_text(encoding="utf-8")
            assert self.process.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.05)

    def psql(self, *arguments, check=True, cwd=None):
        base = ["psql", "-X", "-q", "--csv", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.folder]
        base += ["-U", "tester", "-d", "postgres"]
        env = os.environ | {"PGCLIENTENCODING": "UTF8"}
        run = subprocess.run([*base, *arguments], capture_output=True, cwd=cwd, env=env)
        assert not (check and run.returncode), run.stderr.decode()
        return run

    def rows(self, *arguments, cwd=None):
        answer = self.psql(*arguments, cwd=cwd).stdout.decode()
        return list(csv.reader(io.StringIO(answer, newline="")))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=20)
        self.log.close()


@pytest.fixture(scope="module")
def postgres():
    programs = server_programs()
    version = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, encoding="utf-8"
    )
    if int(re.search(r"\d+", version.stdout)[0]) < 14:
        pytest.skip(f"bit_count needs PostgreSQL 14, here is {version.stdout.strip()}")
    folder = Path(tempfile.mkdtemp(prefix="coldhash-", dir="/tmp"))  # sockets want short paths
    try:
        server = Postgres(programs, folder)
        try:
            server.wait()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
def test_postgres(model, allowed, postgres, tmp_path):
    path = export(model, "postgres", tmp_path / "items.sql")
    postgres.psql("-c", "DROP TABLE IF EXISTS items")
    postgres.psql("-f", path)

    def run(sql):
        return [(item, float(score)) for item, score in postgres.rows("-c", sql)]

    check_queries(model, allowed, "postgres", run)
    rows = postgres.rows("-c", 'SELECT id, "item_Base", price FROM items')
    wanted = zip(model.item_ids, model.item_table.to_pylist(), strict=True)
    assert {tuple(row) for row in rows} == {
        (item, row["Base"], "" if row["price"] is None else f"{row['price']:g}")
        for item, row in wanted
    }


def test_parquet(model, tmp_path):
    table = parquet.read_table(export(model, "parquet", tmp_path / "items.parquet"))
    own = ["id", "place", "popularity", "base", "gain", "code"]
    assert table.column_names[:6] == own
    assert table["id"].to_pylist() == list(model.item_ids)
    codes = np.frombuffer(b"".join(table["code"].to_pylist()), np.uint8).reshape(N_ITEMS, -1)
    bits = np.unpackbits(codes, axis=1, count=model.items.n_bits, bitorder="little")
    np.testing.assert_array_equal(2 * bits.astype(int) - 1, model.items.rows())
    vectors = model.encode(PEOPLE[:1]).vectors
    scores = table["gain"].to_numpy() * (
        table["base"].to_numpy() + model.items.rows().astype(float) @ vectors[0]
    )
    np.testing.assert_allclose(scores, model.score(PEOPLE[0])[0], rtol=1e-4, atol=1e-5)
    order = np.lexsort((table["place"].to_numpy(), -scores))[:K]
    best = model.recommend(PEOPLE[0], k=K).scores[0]
    np.testing.assert_allclose(scores[order], best, rtol=1e-4, atol=1e-5)


def test_more_planes_are_nearer_to_the_vector(fitted):
    vector = fitted.encode(PEOPLE[0]).vectors[0]
    errors = [np.linalg.norm(rounded(vector, n) - vector) for n in range(1, 9)]
    assert errors == sorted(errors, reverse=True)
    assert errors[3] < 0.15 * np.linalg.norm(vector)
    assert errors[7] < 0.01 * np.linalg.norm(vector)


def test_a_vector_of_zeros_leaves_the_order_of_places(fitted):
    assert Planes.of(np.zeros(20), 4).scale == 0.0
    assert rounded(np.zeros(20), 4).tolist() == [0.0] * 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"planes": 0}, "planes=0"),
        ({"planes": 9}, "planes=9"),
        ({"k": 0}, "k=0"),
        ({"to": "parquet"}, "to="),
    ],
)
def test_queries_that_cannot_be_are_refused(fitted, options, message):
    with pytest.raises(SettingError, match=message):
        query_sql(fitted, **{"to": "duckdb", "person": {}, **options})


def test_a_loaded_model_exports_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    for name, model in {"fitted": fitted, "loaded": load(tmp_path / "model")}.items():
        export(model, "parquet", tmp_path / name)
    assert parquet.read_table(tmp_path / "fitted") == parquet.read_table(tmp_path / "loaded")


@pytest.mark.parametrize("to", EXPORTERS)
def test_models_without_codes_are_refused(fitted, to, tmp_path):
    real = replace(fitted, items=RealItems(np.ones((N_ITEMS, 8), np.float32), fitted.popularity))
    with pytest.raises(SettingError, match="real-valued items, so there are no codes"):
        export(real, to, tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_an_unknown_database_is_refused(fitted, tmp_path):
    with pytest.raises(SettingError, match="to='excel'"):
        export(fitted, "excel", tmp_path / "out")


def test_a_missing_package_is_named(fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(SettingError, match=r"duckdb is not .* pip install 'coldhash\[export\]'"):
        export(fitted, "duckdb", tmp_path / "out")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("to", EXPORTERS)
def test_what_exists_is_not_replaced(fitted, to, tmp_path):
    path = tmp_path / "out"
    export(fitted, to, path)
    before = path.read_bytes()
    other = with_random_codes(fitted, 64, True)
    with pytest.raises(SourceError, match="out exists already"):
        export(other, to, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["out"]


def test_a_database_that_is_open_is_not_replaced(fitted, tmp_path):
    (tmp_path / "out.wal").write_text("unfinished", encoding="utf-8")
    with pytest.raises(SourceError, match=r"out\.wal exists already"):
        export(fitted, "duckdb", tmp_path / "out")


@pytest.mark.parametrize("to", EXPORTERS)
def test_a_folder_is_never_replaced(fitted, to, tmp_path):
    (tmp_path / "home").mkdir()
    with pytest.raises(SourceError, match="home exists already"):
        export(fitted, to, tmp_path / "home")
    with pytest.raises(SourceError, match=r"cannot write .*gone.*No such file"):
        export(fitted, to, tmp_path / "gone" / "out")
    assert os.listdir(tmp_path) == ["home"]


def test_a_text_that_a_database_cannot_hold_is_named_and_nothing_is_left(fitted, tmp_path):
    ids = Ids.of(["a\0b", *list(fitted.item_ids)[1:]], "item")
    with pytest.raises(DataError, match=r"'a\\x00b'"):
        export(replace(fitted, item_ids=ids), "postgres", tmp_path / "out")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("to", EXPORTERS)
def test_nothing_is_left_when_the_disk_is_full(fitted, to, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))  # no file may grow beyond 512 bytes
    try:
        with pytest.raises(SourceError, match=r"cannot write .*out: .*what was there is untouched"):
            export(fitted, to, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not any(tmp_path.iterdir())


def test_the_draft_of_a_killed_export_is_removed(fitted, tmp_path):
    left = tmp_path / ".out.0123abcd.part"
    (left / "new").mkdir(parents=True)
    os.utime(left, (0, 0))
    export(fitted, "parquet", tmp_path / "out")
    assert not left.exists()
