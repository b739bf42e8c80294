"""The model file: what goes in comes out, and whatever else it may be is told, never guessed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from coldhash import Dataset, load, read
from coldhash.baselines.controls import Popularity, Ridge
from coldhash.baselines.mf import MF
from coldhash.errors import ChecksumError, ModelFileError, SourceError
from coldhash.mfdcf.model import MFDCF
from coldhash.recommender import model_file
from coldhash.recommender.recommender import Recommender

TYPED = (ModelFileError, SourceError)  # a ChecksumError is a SourceError
DRAFT = re.compile(r"\.model\.[0-9a-f]{8}\.part")
SETTINGS = {
    "mfdcf": MFDCF(n_bits=32),
    "mfdcf, 44 bits": MFDCF(n_bits=44),
    "mf": MF(n_factors=8, n_rounds=3),
    "popularity": Popularity(),
    "ridge": Ridge(),
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return read("sample", n_users=200, n_items=120)


@pytest.fixture(scope="module")
def models(data) -> dict[str, Recommender]:
    return {name: settings.fit(data) for name, settings in SETTINGS.items()}


@pytest.fixture(scope="module")
def model(models) -> Recommender:
    return models["mfdcf"]


@pytest.fixture
def path(model, tmp_path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="module")
def tiny() -> Recommender:
    return MFDCF(n_bits=16, n_rounds=2).fit(read("sample", n_users=20, n_items=20))


def answers(model: Recommender) -> dict:
    """All that a model says, to be compared digit by digit."""
    items, users = [model.item_ids[row] for row in (0, 3)], [model.user_ids[row] for row in (1, 2)]
    people = [{}, {"age": 31}, {"gender": "female", "history": {items[0]: 5, items[1]: 2}}]
    other = model.encode({"age": 40}, unknown="ignore")
    encoded, similar = model.encode(people, unknown="ignore"), model.similar_items(items[0], k=4)
    report = {name: value for name, value in model.report.items() if name != "seconds"}
    told = {
        "vectors": encoded.vectors,
        "weights": encoded.weights,
        "fallback": encoded.fallback,
        "scores": model.score(encoded),
        "similar items": similar.to_arrow().to_pydict(),
        "similar users": model.similar_users(other, k=4).ids,
        "explained": [model.explain(each, items[1], unknown="ignore") for each in people],
        "facts": json.loads(json.dumps([model.name, model.settings, model.scale, report])),
        "has codes": model.has_codes,
        "ids": [list(model.item_ids), list(model.user_ids)],
    }
    for score in ("real", "hamming") if model.has_codes else ("real",):
        for who in ({"users": encoded}, {"user_ids": users}):
            given = model.recommend(**who, k=6, score=score, candidates=None, exclude=[items[1]])
            told[f"{score} {list(who)}"] = (given.item_ids, given.scores, given.distances)
    return told


def same(one: Recommender, two: Recommender) -> None:
    np.testing.assert_equal(answers(one), answers(two))


def run(script: str, *arguments: object, **environment: str) -> str:
    """Run a script in a process of its own; gives what it printed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What goes in comes out


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("verify", [True, False])
def test_a_loaded_model_answers_as_the_saved_one(name, verify, models, tmp_path):
    fitted = models[name]
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model", verify=verify)
    same(fitted, loaded)
    assert loaded.item_table.equals(fitted.item_table)
    assert "title" in loaded.item_table.column_names


@pytest.mark.parametrize("name", SETTINGS)
def test_a_model_saved_again_is_the_same_file(name, models, tmp_path):
    models[name].save(tmp_path / "one")
    load(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_model_can_be_saved_over_the_file_that_it_serves(model, path):
    served = load(path)
    content = path.read_bytes()
    served.save(path)
    assert path.read_bytes() == content
    same(served, model)


def test_ids_are_texts_of_any_kind(tmp_path):
    users = ["zwölf", "o'neil", '"quoted"', " spaces ", "\u6c49\u5b57", "\U0001f600", "a\nb", "007"]
    items = ["7", "Ünï", "back\\slash", "{}", "null", "a,b;c\t", "é", "e\u0301"]
    pairs = [(u, i) for n, u in enumerate(users) for m, i in enumerate(items) if (n + m) % 3]
    data = Dataset.from_tables(
        {
            "user_id": [u for u, _ in pairs],
            "item_id": [i for _, i in pairs],
            "rating": [5.0] * len(pairs),
        },
        {"user_id": users, "kind": ["a", "b"] * 4},
        scale=(1.0, 5.0),
    )
    fitted = MFDCF(n_bits=16).fit(data)
    path = tmp_path / os.fsdecode("a model's \u6c49 file".encode())  # in any locale
    fitted.save(path)
    loaded = load(path)
    assert list(loaded.item_ids) == list(fitted.item_ids)
    assert [loaded.user_ids.row_of(user) for user in fitted.user_ids] == list(range(len(users)))
    person = {"kind": "a", "history": {items[1]: 5}}
    np.testing.assert_equal(
        list(loaded.recommend(person, k=9)), list(fitted.recommend(person, k=9))
    )


def test_a_model_without_user_groups(data, tmp_path):
    bare = replace(data, plan=data.plan.model_copy(update={"users": {}}))
    fitted = MFDCF(n_bits=32).fit(bare)
    assert not fitted.features.groups
    fitted.save(tmp_path / "model")
    same(load(tmp_path / "model"), fitted)


def test_a_model_by_cells(data, tmp_path):
    fitted = Popularity(cell=("age", "gender")).fit(data)
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    people = [{}, {"age": 31}, {"age": 64, "gender": "female"}]
    np.testing.assert_array_equal(loaded.encode(people).vectors, fitted.encode(people).vectors)
    np.testing.assert_equal(list(loaded.recommend(people)), list(fitted.recommend(people)))


def test_an_empty_item_table(model, tmp_path):
    fitted = replace(model, item_table=pa.table({}))
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    same(loaded, fitted)
    assert loaded.item_table.equals(fitted.item_table)


def test_arrays_of_every_kind_and_shape_are_kept_and_aligned(rng, tmp_path):
    shapes = [(), (0,), (1,), (7,), (0, 3), (3, 5), (2, 3, 64)]
    tensors = {
        f"{name}/{shape}": rng.integers(0, 2, shape).astype(form)
        for name, form in model_file.TYPES.items()
        for shape in shapes
    }
    tensors["transposed"] = np.arange(15, dtype=np.float32).reshape(3, 5).T
    model_file.write(tmp_path / "file", {"what": ["ever", None, 1.5]}, tensors)
    facts, found = model_file.read(tmp_path / "file")
    assert facts == {"what": ["ever", None, 1.5]}
    assert found.keys() == tensors.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, tensors[name], strict=True)
        at = array.__array_interface__["data"][0]
        assert (
            at % (model_file.LINE if array.nbytes % model_file.LINE == 0 else array.itemsize) == 0
        )


def test_any_safetensors_reader_opens_it(path):
    facts, tensors = model_file.read(path)
    with safe_open(path, "np") as opened:
        assert set(opened.keys()) == {*tensors, "checksum"}
        for name, array in tensors.items():
            np.testing.assert_array_equal(opened.get_tensor(name), array, strict=True)
        assert json.loads(opened.metadata()["facts"]) == facts
        assert opened.metadata()["version"] == str(model_file.FORMAT)


@pytest.mark.slow
def test_the_number_of_threads_does_not_matter(model, path):
    script = """
import sys
from coldhash import load
model = load(sys.argv[1])
many = model.recommend([{"age": age} for age in range(20, 60)], k=5)
print(many.item_ids, many.scores.tolist(), model.encode({"age": 30}).vectors.tolist())
"""
    one = run(script, path, NUMBA_NUM_THREADS="1")  # there are two or more in this process
    many = model.recommend([{"age": age} for age in range(20, 60)], k=5)
    vectors = model.encode({"age": 30}).vectors.tolist()
    assert one == f"{many.item_ids} {many.scores.tolist()} {vectors}\n"


# What is no model, or no longer one


def header_of(content: bytes) -> tuple[int, dict]:
    end = 8 + int.from_bytes(content[:8], "little")
    return end, json.loads(content[8:end])


def with_header(content: bytes, header: dict) -> bytes:
    """Put another header in, with the right checksum: as a mistaken or hostile writer would."""
    end, _ = header_of(content)
    text = json.dumps(header, separators=(",", ":")).encode()
    body = len(text).to_bytes(8, "little") + text + content[end:-32]
    return body + hashlib.sha256(body).digest()


def somebody_elses(folder: Path) -> bytes:
    save_file({"weight": np.ones((3, 3))}, folder / "theirs", {"format": "pt"})
    return (folder / "theirs").read_bytes()


FOREIGN = {
    "empty": lambda folder: b"",
    "one byte": lambda folder: b"\0",
    "zeros": lambda folder: bytes(10_000),
    "random": lambda folder: np.random.default_rng(0).bytes(10_000),
    "text": lambda folder: b"user_id,item_id,rating\n" * 100,
    "json": lambda folder: b'{"__metadata__":{"format":"coldhash","version":"1"}}' * 3,
    "somebody else's": somebody_elses,
    "largest length": lambda folder: b"\xff" * 8 + b"{}" * 100,
}


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_no_model(name, verify, tmp_path):
    (tmp_path / "file").write_bytes(FOREIGN[name](tmp_path))
    with pytest.raises(ModelFileError, match=r"no model file|not a model file"):
        load(tmp_path / "file", verify=verify)


@pytest.mark.parametrize("place", ["", "nowhere", "folder", "model/below", "nul\0byte"])
def test_what_cannot_be_opened_is_a_source_error(place, path):
    (path.parent / "folder").mkdir()
    with pytest.raises(SourceError, match="cannot read"):
        load(path.parent / place)


def test_a_damaged_file_is_named_as_such(path):
    content = path.read_bytes()
    end, _ = header_of(content)
    for at in (200, end - 1, end, (end + len(content)) // 2, len(content) - 33, len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(ChecksumError, match="damaged: the checksum does not fit"):
            load(path)


def test_a_file_cut_short_is_not_loaded(path):
    content = path.read_bytes()
    end, header = header_of(content)
    edges = [end + entry["data_offsets"][1] for n, entry in header.items() if n[0] != "_"]
    for at in {0, 1, 7, 8, 9, 40, 60, 100, end - 1, end, end + 1, *edges, *(e - 1 for e in edges)}:
        if at == len(content):
            continue
        path.write_bytes(content[:at])
        for verify in (True, False):
            with pytest.raises(TYPED):
                load(path, verify=verify)


def test_a_header_that_claims_too_much(path):
    content = path.read_bytes()
    for length in (len(content), 10**8, 10**8 + 1, 2**31, 2**63, 2**64 - 1):
        path.write_bytes(length.to_bytes(8, "little") + content[8:])
        with pytest.raises(ModelFileError, match="header claims"):
            load(path)


def test_a_newer_version_asks_for_an_upgrade(path):
    content = path.read_bytes()
    newer = content.replace(b'"version":"4"', b'"version":"5"', 1)
    path.write_bytes(newer)  # its checksum may be of another kind: the version is what counts
    with pytest.raises(ModelFileError, match=r"format 5, newer.*hint: upgrade"):
        load(path)
    path.write_bytes(content.replace(b'"version":"4"', b'"version":"3"', 1))
    with pytest.raises(ModelFileError, match=r"written by coldhash 0.1.*hint: fit the model again"):
        load(path)


def test_a_missing_part_is_named(path):
    facts, tensors = model_file.read(path)
    for name in tensors:
        if name != "item_table":
            rest = {other: array for other, array in tensors.items() if other != name}
            model_file.write(path.with_name("less"), facts, rest)
            with pytest.raises(ModelFileError, match="missing or odd"):
                load(path.with_name("less"))
    for name in facts:
        rest = {other: fact for other, fact in facts.items() if other != name}
        model_file.write(path.with_name("less"), rest, tensors)
        with pytest.raises(ModelFileError, match=name):
            load(path.with_name("less"))


@pytest.mark.parametrize(
    "odd", ["", None, [], {}, 1, -1, 1e400, "x", [1] * 5, [2**70], [[]], "[" * 9999]
)
@pytest.mark.parametrize("key", ["dtype", "shape", "data_offsets", None])
def test_a_header_with_a_right_checksum_is_not_trusted_either(odd, key, path):
    content = path.read_bytes()
    _, header = header_of(content)
    if key is None:
        header["items/order"] = odd
    else:
        header["items/order"][key] = odd
    path.write_bytes(with_header(content, header))
    with pytest.raises(ModelFileError):
        load(path)
    if key is None:
        header["__metadata__"]["facts"] = odd
        path.write_bytes(with_header(content, header))
        with pytest.raises(ModelFileError):
            load(path)


ELSEWHERE = [  # a part, what is done to it
    ("item_ids/offsets", lambda array: np.where(array == array[3], 10**6, array).astype(np.int32)),
    ("user_ids/offsets", lambda array: np.where(array == array[3], -7, array).astype(np.int32)),
    ("item_ids/offsets", lambda array: array + np.int32(1)),
    ("item_ids/offsets", lambda array: array.astype(np.float32)),
    ("item_ids/order", lambda array: array + np.uint32(1)),
    ("items/order", lambda array: array - np.int32(1)),
    ("items/rank", lambda array: array + np.int32(1)),
    ("items/rank", lambda array: array.astype(np.int64)),
    ("items/stripes", lambda array: array.astype(np.uint64)),
    ("seen/indices", lambda array: np.full_like(array, 10**6)),
    ("seen/indptr", lambda array: array[::-1].copy()),
]


@pytest.mark.parametrize(("name", "change"), ELSEWHERE)
def test_a_place_outside_is_refused_though_the_checksum_is_right(name, change, path):
    facts, tensors = model_file.read(path)
    spoilt = change(np.array(tensors[name]))
    assert not np.array_equal(spoilt, tensors[name]) or spoilt.dtype != tensors[name].dtype
    kept = {n: np.array(t) for n, t in tensors.items()}
    model_file.write(path, facts, kept | {name: spoilt})
    with pytest.raises(ModelFileError, match="missing or odd"):
        load(path)


# Mutations


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Change bytes somewhere, in every second case in the header."""
    end = 8 + int.from_bytes(content[:8], "little")
    at = int(rng.integers(end if rng.random() < 0.5 else len(content)))
    n = int(rng.integers(1, 65) if rng.random() < 0.8 else rng.integers(1, len(content)))
    kind = rng.integers(5)
    if kind == 0:
        changed = bytearray(content)
        for place in range(at, min(at + int(rng.integers(1, 9)), len(content))):
            changed[place] ^= int(rng.integers(256))
        return bytes(changed)
    if kind == 1:
        return content[:at] + content[at + n :]
    if kind == 2:
        return content[:at] + rng.bytes(n) + content[at:]
    if kind == 3:
        return content[: at + n] + content[at:]
    return content[:at]


def misspelt(content: bytes, rng: np.random.Generator) -> bytes:
    """Change one character of the header into one that may well stand there."""
    at = int(rng.integers(8, 8 + int.from_bytes(content[:8], "little")))
    return content[:at] + bytes([rng.choice(list(b'0123456789acefIFU"/'))]) + content[at + 1 :]


def put(path: Path, content: bytes) -> None:
    path.unlink()  # to write over a file is slow: some file systems wait for the disk then
    path.write_bytes(content)


def refused(path: Path) -> bool:
    """Whether a file is refused by an error of ours; any other error is a failure."""
    try:
        load(path)
    except TYPED:
        return True
    return False


@pytest.mark.slow
def test_of_ten_thousand_mutations_none_is_taken_for_the_model(tiny, tmp_path, rng):
    path = tmp_path / "model"
    tiny.save(path)
    content = path.read_bytes()
    n_same, peak = 0, 0
    tracemalloc.start()
    for n in range(10_000):
        change = mutated(content, rng)
        put(path, change)
        assert refused(path) == (change != content)
        n_same += change == content
        if n == 500:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert n_same < 100
    assert 0 < peak < 8 * len(content) + 2**20  # the copies made here, and no more
    path.write_bytes(content)
    same(load(path), tiny)


UNVERIFIED = """
import resource, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[2])
from test_saving import TYPED, load, misspelt, mutated, put
path, rng = Path(sys.argv[1]), np.random.default_rng(0)
content = path.read_bytes()
body = content[8 + int.from_bytes(content[:8], "little") : -32]
load(path).recommend([{}, {"age": 30}], k=3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
n_loaded = n_asked = 0
for n in range(4000):
    change = mutated(content, rng) if n % 2 else misspelt(content, rng)
    put(path, change)
    try:
        model = load(path, verify=False)
    except TYPED:
        continue
    n_loaded += 1
    assert len(change) == 8 + int.from_bytes(change[:8], "little") + len(body) + 32
    if change[-32 - len(body) : -32] == body:
        n_asked += 1
        try:
            model.recommend([{}, {"age": 30}], k=3)
        except Exception as error:
            print(repr(error), file=sys.stderr)
print(n_loaded, n_asked, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_without_the_checksum_a_mutation_is_still_refused_or_survived(tiny, tmp_path):
    """What tensors hold is taken on trust, but nothing of another length is loaded, and asking a
    model whose header is damaged does not bring the process down.
    """
    path = tmp_path / "model"
    tiny.save(path)
    n_loaded, n_asked, grown = map(int, run(UNVERIFIED, path, Path(__file__).parent).split())
    assert 100 < n_asked < n_loaded < 3000
    assert grown < 50_000  # kilobytes


# Saving


def test_a_save_that_fails_leaves_what_was_there(model, path):
    content = path.read_bytes()
    for place in ("model/below", "nowhere/model", ".", "", "nul\0byte"):
        with pytest.raises(SourceError, match=r"cannot write .* untouched"):
            model.save(path.parent / place if place else "")
    (path.parent / "folder").mkdir()
    with pytest.raises(SourceError, match="directory"):
        model.save(path.parent / "folder")
    assert path.read_bytes() == content
    assert sorted(each.name for each in path.parent.iterdir()) == ["folder", "model"]


FULL = """
import resource, signal, sys
from pathlib import Path
from coldhash import load
from coldhash.errors import SourceError
path = Path(sys.argv[1])
model = load(path)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for room in (0, 1, 100, 5_000, path.stat().st_size - 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        model.save(path)
    except SourceError as error:
        assert "File too large; what was there is untouched" in str(error), error
    else:
        sys.exit(f"{room} bytes were enough")
"""


@pytest.mark.slow
def test_a_full_disk_leaves_what_was_there(path):
    content = path.read_bytes()
    run(FULL, path)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_more_labels_than_a_header_can_hold_are_refused_at_once(model, path):
    content = path.read_bytes()
    with pytest.raises(ModelFileError, match="hint: a column has too many labels"):
        replace(model, report={"labels": "x" * model_file.LARGEST_HEADER}).save(path)
    assert path.read_bytes() == content


def test_drafts_of_the_dead_are_removed_after_an_hour(model, path):
    old, new, other = (
        path.with_name(name)
        for name in (".model.0123abcd.part", ".model.4567cdef.part", ".model.notours!.part")
    )
    for each in (old, new, other):
        each.mkdir()
        (each / "new").write_bytes(b"half a model")
    for each in (old, other):
        os.utime(each, (1e9, 1e9))
    model.save(path)
    assert sorted(path.parent.iterdir()) == sorted([path, new, other])


KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from coldhash import load
folder, n_kills = Path(sys.argv[1]), int(sys.argv[2])
contents = [(folder / name).read_bytes() for name in ("one", "two")]
models = [load(folder / name) for name in ("one", "two")]
path, draw, found = folder / "model", random.Random(0), []
models[0].save(path)
start = time.perf_counter()
for _ in range(5):
    models[1].save(path)
took = (time.perf_counter() - start) / 5
for _ in range(n_kills):
    child = os.fork()
    if child == 0:
        while True:
            for model in models:
                model.save(path)
    time.sleep(draw.uniform(0, 4 * took))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    load(path)
    found.append(contents.index(path.read_bytes()))
print(found.count(0), found.count(1))
"""


N_KILLS = 100


@pytest.mark.slow
def test_a_process_killed_while_it_saves_leaves_one_model_or_the_other(model, tmp_path):
    for name in ("one", "two"):
        replace(model, report={"filling": name * 300_000}).save(tmp_path / name)
    found = list(map(int, run(KILLS, tmp_path, N_KILLS).split()))
    assert sum(found) == N_KILLS
    left = [each for each in tmp_path.iterdir() if each.name not in ("one", "two", "model")]
    assert all(DRAFT.fullmatch(each.name) for each in left)
    assert min(found) > 0
    assert len(left) > N_KILLS // 10  # many were caught in the act
    for each in left:
        os.utime(each, (1e9, 1e9))
    load(tmp_path / "model").save(tmp_path / "model")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model", "one", "two"]


SAVES = """
import sys
from coldhash import load
model = load(sys.argv[1])
for _ in range(40):
    model.save(sys.argv[2])
"""


@pytest.mark.slow
def test_two_processes_may_save_to_one_place(model, tmp_path):
    path, names, contents = tmp_path / "model", ("one", "two"), []
    for name in names:
        replace(model, report={"filling": name * 300_000}).save(tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    model.save(path)
    first = path.read_bytes()
    writers = [
        subprocess.Popen([sys.executable, "-c", SAVES, str(tmp_path / name), str(path)])
        for name in names
    ]
    n_read = 0
    while any(writer.poll() is None for writer in writers):
        load(path)
        assert path.read_bytes() in (first, *contents)
        n_read += 1
    assert [writer.returncode for writer in writers] == [0, 0]
    assert n_read > 0
    assert path.read_bytes() in contents
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model", "one", "two"]


def test_popularity_of_ratings_alone_comes_back(tmp_path):
    """Without a user table, everybody is the same, and everybody is there."""
    ratings = {"user_id": [1, 1, 2, 3], "item_id": [7, 8, 7, 9], "rating": [5, 3, 4, 2]}
    model = Popularity().fit(Dataset.from_tables(ratings))
    model.save(tmp_path / "m")
    assert list(load(tmp_path / "m").recommend({}, k=1)) == list(model.recommend({}, k=1))
