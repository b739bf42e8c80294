"""One model takes the place of another."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from coldhash.errors import ChecksumError, ColdhashError, ModelFileError, SourceError
from coldhash.recommender import model_file
from coldhash.serve import create_app
from coldhash.serve.registry import ModelRegistry, PersonAnswer, ServedModel, copy_model

SOON = 0.01  # seconds between two looks at the file


@pytest.fixture
def served(model_files, tmp_path):
    return shutil.copy(model_files["a"], tmp_path / "served.coldhash")


def test_the_version_is_the_checksum_of_the_file(served, version_of):
    assert ModelRegistry(served).current.version == version_of(served)


def test_a_model_in_memory_has_a_version_too(model):
    assert ModelRegistry(model).current.version == "memory"


def test_a_new_file_is_served_and_the_old_model_still_works(
    served, model_files, put_file, version_of
):
    registry = ModelRegistry(served)
    old = registry.current
    registry.refresh()
    assert registry.current is old
    put_file(model_files["b"], served)
    registry.refresh()
    assert registry.current.version == version_of(model_files["b"])
    assert registry.current.model.item_ids[0] == "b0"
    assert old.model.recommend({}, k=1).item_ids[0][0].startswith("a")


def broken_files(content):
    middle = len(content) // 2
    yield "empty", b""
    yield "foreign", b"PK\x03\x04" + bytes(200)
    yield "cut off", content[:middle]
    yield "one bit", content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_broken_files_are_refused_once_each(served, model_files, put_file, version_of):
    registry = ModelRegistry(served)
    for _, content in broken_files(model_files["b"].read_bytes()):
        put_file(content, served)
        with pytest.raises(ColdhashError):
            registry.refresh()
        assert not registry.refresh()
        assert registry.current.model.item_ids[0] == "a0"
    with pytest.raises(ColdhashError):
        registry.refresh(force=True)
    put_file(model_files["b"], served)
    assert registry.refresh()
    assert registry.current.version == version_of(model_files["b"])


def test_a_file_that_is_gone_changes_nothing(served, model_files, put_file):
    registry = ModelRegistry(served)
    served.unlink()
    registry.refresh(force=True)
    assert registry.current.model.item_ids[0] == "a0"
    put_file(model_files["b"], served)
    registry.refresh()
    assert registry.current.model.item_ids[0] == "b0"


def overwrite(path, content):
    """Write over a file in place, and set its times back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    same = ("st_ino", "st_size", "st_mtime_ns")
    assert [getattr(before, name) for name in same] == [getattr(after, name) for name in same]


def test_a_change_in_place_of_the_same_size_and_time_is_another_model(
    served, model_files, version_of
):
    registry = ModelRegistry(served)
    old = registry.current
    overwrite(served, model_files["b"].read_bytes())
    assert {items[0][0] for items in old.model.recommend([{}], k=1).item_ids} == {"a"}
    registry.refresh()
    assert registry.current.version == version_of(model_files["b"])
    assert registry.current.model.item_ids[0] == "b0"


def test_a_file_that_is_damaged_in_place_is_refused(served):
    registry = ModelRegistry(served)
    expected = registry.current.model.recommend({}, k=3)
    content = bytearray(served.read_bytes())
    content[len(content) // 2] ^= 1
    overwrite(served, bytes(content))
    with pytest.raises(ChecksumError, match=re.escape(str(served))):
        registry.refresh()
    found = registry.current.model.recommend({}, k=3)
    assert found.item_ids == expected.item_ids
    assert np.array_equal(found.scores, expected.scores)


def test_registries_with_a_folder_share_one_copy_of_a_new_file(
    served, model_files, put_file, version_of, tmp_path
):
    copies = tmp_path / "copies"
    copies.mkdir()
    registries = [ModelRegistry(served, copies) for _ in range(2)]
    first = set(copies.glob("*.*"))
    put_file(model_files["b"], served)
    for registry in registries:
        registry.refresh()
    assert [registry.current.model.item_ids[0] for registry in registries] == ["b0", "b0"]
    (place,) = set(copies.glob("*.*")) - first  # and the first copy has no name any more
    assert not [each for each in first if each.exists()]
    content = served.read_bytes()
    assert place.read_bytes() == content
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    inode = str(place.stat().st_ino)
    assert len([line for line in maps if inode in line.split()]) == 2


def test_a_registry_with_a_folder_begins_with_the_copy_that_was_accepted_last(
    served, model_files, put_file, version_of, tmp_path
):
    copies = tmp_path / "copies"
    copies.mkdir()
    registry = ModelRegistry(served, copies)
    for content in (b"broken", b"broken again"):
        put_file(content, served)
        with pytest.raises(ModelFileError):
            registry.refresh()
        assert len(list(copies.glob("*.*"))) == 2  # the last one that was refused, and the good one
    later = ModelRegistry(served, copies)
    assert later.current.version == version_of(model_files["a"])
    with pytest.raises(ModelFileError):
        later.refresh()
    put_file(model_files["b"], served)
    later.refresh()
    served.unlink()
    assert ModelRegistry(served, copies).current.version == version_of(model_files["b"])
    assert registry.current.version == version_of(model_files["a"])


def test_without_a_temporary_folder_the_hint_is_to_name_one(served, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(served / "missing"))
    with pytest.raises(SourceError, match=r"cannot copy .*TMPDIR"):
        ModelRegistry(served)


@pytest.fixture
def no_room(served):
    """Limit the size of files that this process writes to half of a model file."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (served.stat().st_size // 2, most))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


@pytest.mark.parametrize("shared", [False, True])
def test_no_room_for_a_copy_is_an_error_with_a_hint(shared, served, no_room, tmp_path):
    folder = tmp_path / "copies" if shared else None
    if shared:
        folder.mkdir()
    with pytest.raises(SourceError, match=r"cannot copy .*served\.coldhash") as told:
        copy_model(served, folder)
    assert "TMPDIR" in told.value.hint
    assert not shared or not list(folder.glob("*.*"))


TRUNCATED = """
import os, sys
from coldhash.errors import ColdhashError
from coldhash.serve.registry import ModelRegistry
registry, refused = ModelRegistry(sys.argv[1]), []
os.truncate(sys.argv[1], 1)
try:
    registry.refresh()
except ColdhashError as error:
    refused.append(error)
model = registry.current.model
assert all(item[0] == "a" for item in model.recommend({}, k=3).item_ids[0])
assert model.similar_users(user_id=model.user_ids[0])
print(len(refused))
"""


@pytest.mark.slow
def test_a_file_cut_off_in_place_does_not_end_the_process(served):
    run = subprocess.run(
        [sys.executable, "-c", TRUNCATED, str(served)],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert (run.returncode, run.stdout.strip()) == (0, "1"), run.stderr


SEARCHED = """
import sys
from coldhash.serve.registry import ModelRegistry
served = ModelRegistry(sys.argv[1]).current
assert len(served.search_items("a", 5)) == 5
print("pandas" in sys.modules)
"""


@pytest.mark.slow
def test_a_model_is_loaded_and_searched_without_pandas(served):
    """To import it takes longer than to load most models."""
    run = subprocess.run(
        [sys.executable, "-c", SEARCHED, str(served)], capture_output=True, encoding="utf-8"
    )
    assert (run.returncode, run.stdout.strip()) == (0, "False"), run.stderr


def test_a_pipe_or_folder_in_the_place_is_refused(served, model_files, put_file):
    registry = ModelRegistry(served)
    served.unlink()
    for make in (os.mkfifo, os.mkdir):
        make(served)
        with pytest.raises(SourceError):
            registry.refresh()
        assert registry.current.model.item_ids[0] == "a0"
        served.unlink() if make is os.mkfifo else served.rmdir()
    put_file(model_files["b"], served)
    registry.refresh()
    assert registry.current.model.item_ids[0] == "b0"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_file_with_nan_in_a_map_is_refused(value, served, model_files, put_file, tmp_path):
    registry = ModelRegistry(served)
    facts, tensors = model_file.read(model_files["b"])
    tensors = {name: np.array(array) for name, array in tensors.items()}
    tensors["encoder/map/demographics"][0, 0] = value
    model_file.write(tmp_path / "odd", facts, tensors)
    put_file(tmp_path / "odd", served)
    with pytest.raises(ModelFileError):
        registry.refresh()
    assert registry.current.model.item_ids[0] == "a0"


def test_the_first_file_must_be_good(tmp_path):
    with pytest.raises(SourceError, match="cannot read"):
        create_app(tmp_path / "missing")
    (tmp_path / "odd").write_bytes(b"odd")
    with pytest.raises(ModelFileError, match="not a model file"):
        create_app(tmp_path / "odd")


def test_a_running_app_picks_files_up_and_counts_them(
    served, model_files, put_file, version_of, log
):
    app = create_app(served, log=log.append, watch_seconds=SOON)

    def until(event):
        while not any(entry.get("event") == event for entry in log):
            client.get("/healthz")

    with TestClient(app) as client:
        put_file(b"broken", served)
        until("model refused")
        assert client.get("/v1/model").json()["model"] == version_of(model_files["a"])
        put_file(model_files["b"], served)
        until("model swapped")
        assert client.get("/v1/model").json()["model"] == version_of(model_files["b"])
        lines = client.get("/metrics").text.splitlines()
    for result in ("ok", "refused"):
        assert f'coldhash_model_swaps_total{{result="{result}"}} 1.0' in lines
    for letter, workers in (("a", "0.0"), ("b", "1.0")):
        labels = f'method="mfdcf",version="{version_of(model_files[letter])}"'
        assert f"coldhash_model_workers{{{labels}}} {workers}" in lines


def test_a_cached_answer_is_what_would_be_computed(model):
    with TestClient(create_app(model, log=lambda entry: None)) as client:
        plain = create_app(model, log=lambda entry: None)
        for person in ({"age": 30}, {"age": 30.0}, {"age": 30, "user_id": "x"}, {}):
            asked = {"user": person, "k": 3}
            first, again = (client.post("/v1/recommend", json=asked) for _ in range(2))
            with TestClient(plain) as other:
                computed = other.post("/v1/recommend?k=3", json={"user": person})
            assert first.content == again.content == computed.content
        count = client.get("/metrics").text
    assert "coldhash_strangers_total 8.0" in count


def test_the_cache_is_bounded_and_keeps_no_history_and_no_ids(model, monkeypatch):
    monkeypatch.setattr("coldhash.serve.registry.MAX_CACHED", 3)
    served, answer = ServedModel(model, "version"), PersonAnswer(b"{}", False, [])
    for n in range(10):
        served.cache_answer(b"%d" % n, {"age": n}, answer)
    kept = [n for n in range(10) if b"%d" % n in served.answers]
    assert kept == [7, 8, 9]
    for person in ({"history": {"1": 5}}, {"user_id": "x"}, {"answers": {"1": None}}):
        served.cache_answer(b"private", person, answer)
    served.cache_answer(b"long", {}, PersonAnswer(b"x" * 5000, False, []))
    assert served.answers.keys() == {b"7", b"8", b"9"}
