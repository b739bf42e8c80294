"""Search each export in its own engine: the distances and the order must equal ours."""

from __future__ import annotations

import csv
import io
import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from coldhash import MFDCF, Ids, load, read
from coldhash.arrays.codes import pack, signs
from coldhash.errors import DataError, SettingError, SourceError
from coldhash.recommender.export import EXPORTERS, CodeTable, bit_strings, code_bytes, export
from coldhash.recommender.items import CodeItems, RealItems

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:(faiss|duckdb).*")

K = 10
N_QUERIES = 4
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


@pytest.fixture(scope="module")
def fitted():
    data = read("sample", n_users=200, n_items=120)
    return {n_bits: MFDCF(n_bits=n_bits).fit(data) for n_bits in (48, 64)}


def with_random_codes(model, n_bits, most_steps=None):
    """Return a model of any code length, with hostile ids, ties, and the largest distance."""
    rng = np.random.default_rng(n_bits)
    n_items, n_users = len(model.item_ids), len(model.user_ids)
    users = rng.standard_normal((n_users, n_bits)).astype(np.float32)
    codes = rng.choice(np.array([-1, 1], dtype=np.int8), (n_items, n_bits))
    codes[: n_items // 2] = codes[n_items // 2 : 2 * (n_items // 2)]  # each code twice
    codes[0] = np.where(users[0] >= 0, -1, 1)
    popularity = rng.integers(0, 3, n_items).astype(np.float32)
    level = ()
    if most_steps is not None:
        steps = np.rint(np.linspace(0, most_steps, 256)).astype(np.int32)
        gains = np.linspace(0, 1, 256).astype(np.float32)
        level = (rng.choice(np.array([0, 1, 100, 128, 255], np.uint8), n_items), gains, steps)
    return replace(
        model,
        item_ids=Ids.of(HOSTILE + list(model.item_ids)[len(HOSTILE) :], "item"),
        items=CodeItems.of(codes, popularity, *level),
        popularity=popularity,
        user_vectors=users,
    )


# bits, and what the highest level is worth; fitted codes, unless it is None or a number
MODELS = {"48 fitted": (48, ...), "64 fitted": (64, ...), "13": (13, None), "200": (200, None)}
MODELS |= {"13, level of 9": (13, 9), "20, level of 300": (20, 300), "16, level of 0": (16, 0)}


@pytest.fixture(params=MODELS)
def model(request, fitted):
    """Fitted codes and levels; random ones that do not fill their bytes or words."""
    n_bits, most_steps = MODELS[request.param]
    if most_steps is ...:
        return fitted[n_bits]
    return with_random_codes(fitted[64], n_bits, most_steps)


def true_distances(model, most_level_bits=None, users=slice(N_QUERIES)):
    """Distances by arithmetic on +1 and -1, and by counting steps: users x items."""
    codes = np.where(model.user_vectors[users] >= 0, 1, -1)
    distances = (model.items.n_bits - codes @ model.items.rows().T.astype(int)) // 2
    if model.items.levels is None:
        return distances
    steps, most = model.items.index.steps[model.items.levels], model.items.index.steps[-1]
    if most_level_bits is not None and most > most_level_bits:
        steps, most = np.rint(steps * (most_level_bits / most)).astype(int), most_level_bits
    return distances + most - steps


def expected_top(model):
    """The items that our own search by code finds."""
    codes = pack(signs(model.user_vectors[:N_QUERIES]))
    rows, _ = model.items.index.hamming(codes, K)
    return [[model.item_ids[row] for row in each] for each in rows]


def sorted_top(model, most_level_bits=64):
    """The items that are best by distance with few bits for the level."""
    ids, ranked = list(model.item_ids), order_of(model)
    return [top_of(each, ids, *ranked) for each in true_distances(model, most_level_bits)]


def order_of(model):
    """What ties are ordered by: highest first."""
    return [each for each in (model.items.levels, model.popularity) if each is not None]


def test_without_a_level_the_order_is_that_of_recommend(fitted):
    model = with_random_codes(fitted[64], 13)
    names = [model.user_ids[row] for row in range(N_QUERIES)]
    found = model.recommend(user_ids=names, k=K, score="hamming", exclude_seen=False)
    assert found.item_ids == expected_top(model) == sorted_top(model)


def queries(model, with_level=False):
    n_level_bits = CodeTable.of(model, "items").n_level_bits if with_level else 0
    return code_bytes(model.user_vectors[:N_QUERIES], n_level_bits)


def top_of(distances, ids, *keys):
    """The k best by distance, by keys (highest first), and row, as a client of FAISS would."""
    keys = [-np.asarray(key, dtype=float) for key in keys]
    order = np.lexsort((np.arange(len(ids)), *reversed(keys), distances))[:K]
    return [ids[row] for row in order]


def bytes_of(column):
    return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(len(column), -1)


def test_parquet(model, tmp_path):
    table = parquet.read_table(export(model, "parquet", tmp_path / "items.parquet"))
    n_bytes = -(-model.items.n_bits // 8)
    of_items = ["popularity"] + ["level", "gain", "steps"] * (model.items.levels is not None)
    assert table.column_names == ["id", "code", *of_items]
    assert table.schema.types[:2] == [pa.string(), pa.binary(n_bytes)]
    assert table["id"].to_pylist() == list(model.item_ids)
    assert table.schema.metadata[b"n_bits"] == str(model.items.n_bits).encode()
    ours = queries(model)[:, None] ^ bytes_of(table["code"])
    distances = np.bitwise_count(ours).sum(axis=2, dtype=int)
    if "level" in of_items:
        assert table.schema.types[3:] == [pa.uint8(), pa.float32(), pa.int32()]
        np.testing.assert_array_equal(
            table["gain"].to_numpy(), model.items.index.gains[model.items.levels]
        )
        distances += int(table.schema.metadata[b"most_steps"]) - table["steps"].to_numpy()
    np.testing.assert_array_equal(distances, true_distances(model))
    ids = table["id"].to_pylist()
    keys = [table[key] for key in ("level", "popularity") if key in of_items]
    assert [top_of(each, ids, *keys) for each in distances] == expected_top(model)


def test_numpy(model, tmp_path):
    names = ["codes", "ids", "most_steps", "n_bits", "n_level_bits", "popularity"]
    names += ["gain", "level", "steps"] * (model.items.levels is not None)
    with np.load(export(model, "numpy", tmp_path / "items"), allow_pickle=False) as arrays:
        assert sorted(arrays) == sorted(names)
        assert arrays["ids"].tolist() == list(model.item_ids)
        bits = np.unpackbits(arrays["codes"], axis=1, count=arrays["n_bits"], bitorder="little")
        np.testing.assert_array_equal(2 * bits.astype(int) - 1, model.items.rows())
        np.testing.assert_array_equal(arrays["popularity"], model.popularity)
    assert [path.name for path in tmp_path.iterdir()] == ["items"]


def test_faiss(model, tmp_path):
    import faiss

    path = export(model, "faiss", tmp_path / "items.faiss")
    index = faiss.read_index_binary(str(path))
    names = parquet.read_table(f"{path}.ids.parquet")
    ids = names["id"].to_pylist()
    assert ids == list(model.item_ids)
    asked = code_bytes(model.user_vectors[:N_QUERIES], int(names.schema.metadata[b"n_level_bits"]))
    distances, rows = index.search(asked, len(ids))
    ours = true_distances(model, most_level_bits=64)
    np.testing.assert_array_equal(distances, np.take_along_axis(ours, rows, axis=1))
    np.testing.assert_array_equal(np.sort(rows), np.tile(np.arange(len(ids)), (N_QUERIES, 1)))
    for user, query in enumerate(asked):
        furthest = int(index.search(query[None], K)[0].max())
        _, near, which = index.range_search(query[None], furthest + 1)
        found = np.full(len(ids), np.inf)
        found[which] = near
        assert top_of(found, ids, *order_of(model)) == sorted_top(model)[user]


@pytest.mark.parametrize("most_steps", [9, 64])
def test_levels_up_to_64_bits_are_exact(fitted, most_steps):
    model = with_random_codes(fitted[64], 13, most_steps)
    assert CodeTable.of(model, "items").n_level_bits == most_steps
    np.testing.assert_array_equal(true_distances(model, 64), true_distances(model))
    assert sorted_top(model) == expected_top(model)


def test_duckdb(model, tmp_path):
    import duckdb

    path = export(model, "duckdb", tmp_path / "items.duckdb")
    users = export(model, "duckdb", tmp_path / "users.duckdb", what="users")
    ours, n_items = true_distances(model), len(model.item_ids)
    with duckdb.connect(str(path), read_only=True) as connection:
        for user, query in enumerate(queries(model)):
            asked = [query.tobytes(), n_items]
            everything = connection.execute("FROM nearest(?::BLOB, ?)", asked).fetchall()
            assert {(line[-1], line[1]) for line in everything} == set(enumerate(ours[user]))
            assert [line[0] for line in everything[:K]] == expected_top(model)[user]
        with pytest.raises(duckdb.Error, match="the query is not of"):
            connection.execute("FROM nearest(?::BLOB, 1)", [b"\0" * 100]).fetchall()
        connection.execute(f"ATTACH '{users}' AS other (READ_ONLY)")
        lists = connection.execute(
            f"SELECT list(id ORDER BY {CodeTable.of(model, 'items').order}) FROM "
            "(SELECT u.row AS place, best.* FROM other.users u, nearest(u.code, 10) best) "
            "WHERE place < ? GROUP BY place ORDER BY place",
            [N_QUERIES],
        ).fetchall()
        assert [each for (each,) in lists] == expected_top(model)


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
def test_postgres(model, postgres, tmp_path):
    folders = {
        what: export(model, "postgres", tmp_path / what, what=what) for what in ("items", "users")
    }
    for what, folder in folders.items():
        postgres.psql("-c", f"DROP TABLE IF EXISTS {what}")
        postgres.psql("-c", f"DROP FUNCTION IF EXISTS nearest_{what}")
        schema = (folder / "schema.sql").read_text(encoding="utf-8")
        command = re.search(r'psql (-f schema.sql) -c "(.*)"', schema)  # as the file says
        postgres.psql("-f", "schema.sql", "-c", command[2], cwd=folder)
    ours, n_items = true_distances(model, most_level_bits=64), len(model.item_ids)
    n_bits = model.items.n_bits + CodeTable.of(model, "items").n_level_bits
    for user, query in enumerate(bit_strings(queries(model, with_level=True), n_bits)):
        everything = postgres.rows("-c", f"SELECT * FROM nearest_items('{query}', {n_items})")
        found = {item: int(distance) for item, distance in everything}
        assert found == dict(zip(model.item_ids, ours[user].tolist(), strict=True))
        assert [line[0] for line in everything[:K]] == sorted_top(model)[user]
        nearest = postgres.rows("-c", f"SELECT * FROM nearest_users('{query}', 1)")
        assert nearest[0][1] == "0"
    refused = postgres.psql("-c", "SELECT * FROM nearest_items('01', 1)", check=False)
    assert b"cannot XOR bit strings of different sizes" in refused.stderr
    lists = {}
    for user, item in postgres.rows(
        "-c", f"SELECT u.id, best.id FROM users u, nearest_items(u.code, {K}) best"
    ):
        lists.setdefault(user, []).append(item)
    assert [lists[model.user_ids[row]] for row in range(N_QUERIES)] == sorted_top(model)


@pytest.mark.slow
@pytest.mark.parametrize("to", EXPORTERS)
def test_users(fitted, to, tmp_path):
    model = fitted[48]
    path = export(model, to, tmp_path / "users", what="users")
    n_level_bits = CodeTable.of(model, "users").n_level_bits
    if to in ("parquet", "numpy", "duckdb"):
        n_level_bits = 0
    ids, codes = list(model.user_ids), code_bytes(model.user_vectors, n_level_bits)
    if to == "parquet":
        table = parquet.read_table(path)
        assert table.column_names == ["id", "code"]
        found = table["id"].to_pylist(), bytes_of(table["code"])
    elif to == "numpy":
        with np.load(path, allow_pickle=False) as arrays:
            assert sorted(arrays) == ["codes", "ids", "most_steps", "n_bits", "n_level_bits"]
            found = arrays["ids"].tolist(), arrays["codes"]
    elif to == "faiss":
        import faiss

        index = faiss.read_index_binary(str(path))
        flat = faiss.vector_to_array(index.xb).reshape(index.ntotal, -1)
        found = parquet.read_table(f"{path}.ids.parquet")["id"].to_pylist(), flat
    elif to == "duckdb":
        import duckdb

        with duckdb.connect(str(path), read_only=True) as connection:
            lines = connection.execute("SELECT id, code FROM users ORDER BY row").fetchall()
            nearest = connection.execute("FROM nearest(?::BLOB, 1)", [codes[3].tobytes()])
            assert nearest.fetchone()[1] == 0
        found = [line[0] for line in lines], np.array([list(line[1]) for line in lines])
    else:
        lines = [
            line.split("\t")
            for line in (path / "users.copy").read_text(encoding="utf-8").splitlines()
        ]
        assert [int(line[0]) for line in lines] == list(range(len(ids)))
        assert [line[2] for line in lines] == bit_strings(codes, model.items.n_bits + n_level_bits)
        found = [line[1] for line in lines], codes
    assert found[0] == ids
    np.testing.assert_array_equal(found[1], codes)


def test_a_loaded_model_exports_the_same(fitted, tmp_path):
    fitted[48].save(tmp_path / "model")
    for name, model in {"fitted": fitted[48], "loaded": load(tmp_path / "model")}.items():
        export(model, "parquet", tmp_path / name)
    assert parquet.read_table(tmp_path / "fitted") == parquet.read_table(tmp_path / "loaded")


def test_bits_are_where_the_documentation_says():
    vectors = -np.ones((1, 20))
    vectors[0, 11] = 1
    codes = code_bytes(vectors)
    assert codes.tolist() == [[0, 1 << 11 % 8, 0]]
    assert bit_strings(codes, 20) == ["0" * 11 + "1" + "0" * 8]
    assert bit_strings(code_bytes(vectors, 5), 25) == ["0" * 11 + "1" + "0" * 8 + "1" * 5]


@pytest.mark.parametrize("to", EXPORTERS)
def test_models_without_codes_are_refused(fitted, to, tmp_path):
    vectors = np.ones((len(fitted[48].item_ids), 48), dtype=np.float32)
    real = replace(fitted[48], items=RealItems(vectors, fitted[48].popularity))
    with pytest.raises(SettingError, match="real-valued items, so there are no codes"):
        export(real, to, tmp_path / "out")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("to", "what", "message"),
    [("excel", "items", "to='excel'"), ("numpy", "all", "what=")],
)
def test_unknown_names_are_refused(fitted, to, what, message, tmp_path):
    with pytest.raises(SettingError, match=message):
        export(fitted[48], to, tmp_path / "out", what=what)


@pytest.mark.parametrize("engine", ["faiss", "duckdb"])
def test_a_missing_engine_is_named(fitted, engine, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, engine, None)
    with pytest.raises(SettingError, match=rf"{engine} is not .* pip install 'coldhash\[export\]'"):
        export(fitted[48], engine, tmp_path / "out")
    assert not any(tmp_path.iterdir())


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("to", EXPORTERS)
def test_what_exists_is_refused_or_replaced(fitted, to, tmp_path):
    path = tmp_path / "out"
    export(fitted[48], to, path)
    before, names = contents(tmp_path), sorted(os.listdir(tmp_path))
    with pytest.raises(SourceError, match="out exists already"):
        export(fitted[64], to, path)
    assert contents(tmp_path) == before
    assert export(fitted[64], to, path, overwrite=True) == path
    assert contents(tmp_path) != before
    assert sorted(os.listdir(tmp_path)) == names


@pytest.mark.parametrize(("to", "beside"), [("faiss", ".ids.parquet"), ("duckdb", ".wal")])
def test_files_beside_the_target_count_too(fitted, to, beside, tmp_path):
    (tmp_path / f"out{beside}").write_text("mine", encoding="utf-8")
    with pytest.raises(SourceError, match="exists already"):
        export(fitted[48], to, tmp_path / "out")
    assert os.listdir(tmp_path) == [f"out{beside}"]


def test_a_database_that_is_open_is_not_replaced(fitted, tmp_path):
    path = export(fitted[48], "duckdb", tmp_path / "out")
    (tmp_path / "out.wal").write_text("unfinished", encoding="utf-8")
    with pytest.raises(SourceError, match="was not closed properly"):
        export(fitted[48], "duckdb", path, overwrite=True)


@pytest.mark.parametrize("to", EXPORTERS)
def test_a_folder_of_other_things_is_never_replaced(fitted, to, tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "thesis").write_text("years of work", encoding="utf-8")
    with pytest.raises(SourceError, match=r"home"):
        export(fitted[48], to, folder, overwrite=True)
    assert (folder / "thesis").read_text(encoding="utf-8") == "years of work"
    assert [os.listdir(tmp_path), os.listdir(folder)] == [["home"], ["thesis"]]


def test_a_file_is_not_replaced_by_a_folder(fitted, tmp_path):
    (tmp_path / "thesis").write_text("years of work", encoding="utf-8")
    with pytest.raises(SourceError, match="thesis is a file"):
        export(fitted[48], "postgres", tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis").read_text(encoding="utf-8") == "years of work"
    assert os.listdir(tmp_path) == ["thesis"]


@pytest.mark.parametrize("to", EXPORTERS)
def test_a_folder_that_is_missing_is_named(fitted, to, tmp_path):
    with pytest.raises(SourceError, match=r"cannot write .*gone.*No such file"):
        export(fitted[48], to, tmp_path / "gone" / "out")


@pytest.mark.parametrize(("to", "text"), [("postgres", "a\0b"), ("numpy", "a\0")])
def test_an_id_that_a_format_cannot_hold_is_named_and_nothing_is_left(fitted, to, text, tmp_path):
    ids = Ids.of([text, *list(fitted[48].item_ids)[1:]], "item")
    with pytest.raises(DataError, match=r"id 'a\\x00"):
        export(replace(fitted[48], item_ids=ids), to, tmp_path / "out")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("to", EXPORTERS)
def test_nothing_is_left_when_the_disk_is_full(fitted, to, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))  # no file may grow beyond 512 bytes
    try:
        with pytest.raises(SourceError, match=r"cannot write .*out: .*what was there is untouched"):
            export(fitted[48], to, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("to", EXPORTERS)
def test_the_draft_of_a_killed_export_is_removed(fitted, to, tmp_path):
    left = tmp_path / ".out.0123abcd.part"
    (left / "new").mkdir(parents=True)
    os.utime(left, (0, 0))
    export(fitted[48], to, tmp_path / "out")
    assert not left.exists()
