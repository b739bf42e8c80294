"""The model file byte by byte: what is written where, and what is said of anything else."""

from __future__ import annotations

import hashlib
import json
import os
import re

import numpy as np
import pyarrow as pa
import pytest

from coldhash import files
from coldhash.errors import ChecksumError, ModelFileError, SourceError
from coldhash.recommender import model_file

FACTS = {"name": "é", "settings": [1, 2.5, None]}
TENSORS = {
    "short": np.array([1, 2, 3], dtype=np.uint8),
    "b": np.arange(5, dtype=np.float64),
    "a": np.arange(7, dtype=np.float64),
    "half": np.arange(3, dtype=np.float16),
    "bytes, one line": np.arange(64, dtype=np.uint8),
    "line": np.arange(16, dtype=np.float32).reshape(2, 8),
    "empty": np.zeros((0, 4), dtype=np.int64),
    "number": np.array(7, dtype=np.int32),
}
# whole cache lines before others, wide types before narrow ones, then by name
PLACED = ["empty", "line", "bytes, one line", "a", "b", "number", "half", "short"]


@pytest.fixture
def path(tmp_path):
    model_file.write(tmp_path / "file", FACTS, TENSORS)
    return tmp_path / "file"


def parts(content):
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def signed(header, body, length=None):
    """A file with this header and a right checksum."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":"))
    text = text.encode() if isinstance(text, str) else text
    length = len(text) if length is None else length
    content = length.to_bytes(8, "little") + text + body[:-32]
    return content + hashlib.sha256(content).digest()


def told(call, *arguments, **named):
    """The error of a call, whole."""
    with pytest.raises((ModelFileError, SourceError)) as raised:
        call(*arguments, **named)
    return raised.value


def test_the_layout_is_the_documented_one(path):
    content = path.read_bytes()
    header, body = parts(content)
    assert (len(content) - len(body)) % 64 == 0
    assert len(content) - len(body) - len(json.dumps(header, separators=(",", ":"))) - 8 < 64
    assert list(header) == ["__metadata__", *PLACED, "checksum"]
    metadata = header.pop("__metadata__")
    assert list(metadata.items()) == [
        ("format", "coldhash"),
        ("version", "4"),
        ("facts", json.dumps(FACTS)),
    ]
    end = 0
    for name in PLACED:
        begin, end = end, end + TENSORS[name].nbytes
        assert header[name]["shape"] == list(TENSORS[name].shape)
        assert header[name]["data_offsets"] == [begin, end]
        assert body[begin:end] == TENSORS[name].tobytes()
    assert [header[name]["dtype"] for name in PLACED] == "I64 F32 U8 F64 F64 I32 F16 U8".split()
    checksum = {"dtype": "U8", "shape": [32], "data_offsets": [end, end + 32]}
    assert header["checksum"] == checksum
    assert body[end:] == hashlib.sha256(content[:-32]).digest()


def test_what_was_written_is_read(path):
    for verify in (True, False):
        facts, tensors = model_file.read(path, verify)
        assert facts == FACTS
        assert list(tensors) == PLACED
        for name, array in tensors.items():
            np.testing.assert_array_equal(array, TENSORS[name], strict=True)


def test_columns_first_and_views_are_written_as_they_read(tmp_path):
    array = np.arange(24, dtype=np.int16).reshape(4, 6)
    model_file.write(tmp_path / "file", {}, {"turned": array.T, "cut": array[::2, 1:4]})
    _, tensors = model_file.read(tmp_path / "file")
    np.testing.assert_array_equal(tensors["turned"], array.T, strict=True)
    np.testing.assert_array_equal(tensors["cut"], array[::2, 1:4], strict=True)


def test_who_writes_into_an_array_does_not_change_the_file(path):
    content = path.read_bytes()
    _, tensors = model_file.read(path)
    tensors["a"][:] = 9
    assert path.read_bytes() == content
    np.testing.assert_array_equal(model_file.read(path)[1]["a"], TENSORS["a"])


def test_damage_is_seen_unless_trusted(path):
    content = bytearray(path.read_bytes())
    content[-33] ^= 1  # the last byte of the last tensor
    path.write_bytes(content)
    error = told(model_file.read, path)
    assert isinstance(error, ChecksumError)
    assert str(error) == (
        f"{path} is damaged: the checksum does not fit; "
        "hint: save the model again, or copy the file again"
    )
    assert model_file.read(path, verify=False)[1]["short"].tolist() == [1, 2, 2]


def test_what_is_no_file_of_ours_is_told(path):
    missing = told(model_file.read, path.with_name("missing"))
    assert isinstance(missing, SourceError)
    assert missing.message == f"cannot read {path.with_name('missing')}: No such file or directory"
    assert missing.__suppress_context__
    assert "null byte" in str(told(model_file.read, path.with_name("a\0b")))
    path.write_bytes(b"")
    assert str(told(model_file.read, path)) == f"{path} is empty: no model file"
    path.write_bytes(bytes(1000))
    assert str(told(model_file.read, path)) == f"{path} is not a model file of coldhash"


@pytest.mark.parametrize(
    ("version", "said", "hint"),
    [("3", "written by coldhash 0.1 (format 3,", "fit"), ("5", "is of format 5, newer", "upgrade")],
)
def test_other_formats_are_refused(path, version, said, hint):
    header, body = parts(path.read_bytes())
    header["__metadata__"]["version"] = version
    path.write_bytes(signed(header, body))
    error = told(model_file.read, path)
    assert said in error.message
    assert error.hint.startswith(hint)


def test_a_header_longer_than_the_file_is_told(path):
    content = path.read_bytes()
    most = len(content) - 8 - 32
    path.write_bytes((most + 1).to_bytes(8, "little") + content[8:])
    assert str(told(model_file.read, path, verify=False)) == (
        f"{path} is damaged: its header claims {most + 1:,} bytes; "
        "hint: save the model again, or copy the file again"
    )
    path.write_bytes(most.to_bytes(8, "little") + content[8:])  # possible, so it is looked at
    assert "its header cannot be read" in str(told(model_file.read, path, verify=False))


def test_a_header_has_a_largest_size(path, monkeypatch):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    monkeypatch.setattr(model_file, "LARGEST_HEADER", length - 1)
    assert "its header claims" in str(told(model_file.read, path))
    monkeypatch.setattr(model_file, "LARGEST_HEADER", length)
    assert model_file.read(path)[0] == FACTS
    full = 8 + length  # as it is written, its length included
    monkeypatch.setattr(model_file, "LARGEST_HEADER", full)
    model_file.write(path, FACTS, TENSORS)
    monkeypatch.setattr(model_file, "LARGEST_HEADER", full - 1)
    error = told(model_file.write, path, FACTS, TENSORS)
    assert isinstance(error, ModelFileError)
    assert str(error) == (
        f"{path}: {full:,} bytes of labels and settings are more than a file can hold; "
        "hint: a column has too many labels: give it a larger min_count"
    )
    assert path.read_bytes() == content


def odd_header(path, change):
    header, body = parts(path.read_bytes())
    change(header)
    path.write_bytes(signed(header, body))
    return str(told(model_file.read, path))


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("empty", {"shape": [-1, 4]}, "ValueError(\"'empty' has the shape [-1, 4]\")"),
        ("empty", {"shape": [False, 4]}, "ValueError(\"'empty' has the shape [False, 4]\")"),
        ("line", {"shape": [2.0, 8]}, "ValueError(\"'line' has the shape [2.0, 8]\")"),
        ("line", {"data_offsets": [0, 65]}, "ValueError(\"'line' is out of place\")"),
        ("line", {"shape": [2, 7]}, "ValueError(\"'line' is out of place\")"),
        ("line", {"dtype": "F64"}, "ValueError(\"'line' is out of place\")"),
        ("line", {"dtype": "F31"}, "KeyError('F31')"),
        ("checksum", {"shape": [33]}, "ValueError(\"'checksum' is out of place\")"),
    ],
)
def test_an_entry_that_does_not_fit_is_named(path, name, entry, message):
    said = odd_header(path, lambda header: header[name].update(entry))
    assert said == f"{path}: its header cannot be read: {message}"


def test_tensors_must_be_aligned_complete_and_all_there_is(path):
    end = sum(array.nbytes for array in TENSORS.values())

    def misaligned(header):
        header["checksum"] = {"dtype": "F64", "shape": [4], "data_offsets": [end, end + 32]}

    def cut_off(header):
        header["more"] = {"dtype": "U8", "shape": [1], "data_offsets": [end + 32, end + 33]}

    def short(header):
        header["checksum"] = {"dtype": "U8", "shape": [31], "data_offsets": [end, end + 31]}

    def split(header):
        header["rest"] = {"dtype": "U8", "shape": [31], "data_offsets": [end, end + 31]}
        del header["checksum"]
        header["checksum"] = {"dtype": "U8", "shape": [1], "data_offsets": [end + 31, end + 32]}

    def missing(header):
        header["other"] = header.pop("checksum")

    assert end % 8
    content = path.read_bytes()
    for change, message in (
        (misaligned, "ValueError(\"'checksum' is out of place\")"),
        (cut_off, "ValueError(\"'more' is cut off\")"),
        (short, "ValueError('the file does not end where the tensors do')"),
        (split, "ValueError('the file does not end where the tensors do')"),
        (missing, "KeyError('checksum')"),
    ):
        path.write_bytes(content)
        assert odd_header(path, change) == f"{path}: its header cannot be read: {message}"


def test_facts_that_are_no_json_are_told(path):
    said = odd_header(path, lambda header: header["__metadata__"].update(facts="{"))
    assert said.startswith(f"{path}: its header cannot be read: JSONDecodeError(")
    said = odd_header(path, lambda header: header["__metadata__"].pop("facts"))
    assert said == f"{path}: its header cannot be read: KeyError('facts')"


def test_a_file_is_on_the_disk_before_it_has_its_name(path, monkeypatch):
    """In this order: the draft is written and synced, renamed, and then its folder is synced."""
    done, sync, replace = [], os.fsync, os.replace

    def name_of(handle):
        return os.readlink(f"/proc/self/fd/{handle}")

    def noted_sync(handle):
        done.append(("sync", name_of(handle), os.fstat(handle).st_size))
        sync(handle)

    def noted_replace(draft, place):
        done.append(("replace", str(draft), str(place)))
        replace(draft, place)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    model_file.write(path, FACTS, TENSORS)
    monkeypatch.undo()
    folder = str(path.parent)
    assert [each[0] for each in done] == ["sync", "replace", "sync"]
    assert done[0][1] == done[1][1]
    assert re.fullmatch(rf"{re.escape(folder)}/\.file\.[0-9a-f]{{8}}\.part/new", done[0][1])
    assert done[0][2] == path.stat().st_size  # all of it, so nothing was left in a buffer
    assert done[1][2] == str(path)
    assert done[2][1] == folder
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_says_why_and_leaves_no_draft(path, monkeypatch):
    content = path.read_bytes()
    nowhere = path.parent / "nowhere" / "file"
    error = told(model_file.write, nowhere, FACTS, TENSORS)
    assert str(error) == (
        f"cannot write {nowhere}: No such file or directory; what was there is untouched; "
        "hint: make room, or name another folder"
    )
    assert isinstance(error.__cause__, FileNotFoundError)

    def full(handle):
        raise OSError("a reason without a number")

    monkeypatch.setattr(os, "fsync", full)
    assert ": a reason without a number; what" in str(told(model_file.write, path, {}, {}))
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_synced_is_no_failure(path, monkeypatch):
    sync = os.fsync

    def files_only(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError("not on this file system")
        sync(handle)

    monkeypatch.setattr(os, "fsync", files_only)
    model_file.write(path, {"new": 1}, {})
    assert model_file.read(path) == ({"new": 1}, {})


def test_only_old_drafts_of_the_same_file_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(files.time, "time", lambda: 1_000_000.0)
    path = tmp_path / "a[bc]*"  # no pattern
    old, hour = 1_000_000 - 3601, 1_000_000 - 3600
    drafts = {
        ".a[bc]*.01234567.part": old,  # the only one that nobody can be writing
        ".a[bc]*.89abcdef.part": hour,
        ".ab.01234567.part": old,
        ".a[bc]*.0123456.part": old,
        ".a[bc]*.0123456X.part": old,
        "a[bc]*.01234567.part": old,
        ".a[bc]*.01234567": old,
    }
    for name, written in drafts.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (written, written))
    model_file.write(path, FACTS, TENSORS)
    left = {*list(drafts)[1:], path.name}
    assert {each.name for each in tmp_path.iterdir()} == left


@pytest.mark.parametrize("n_rows", [0, 1, 1000])
def test_a_table_is_bytes_and_back_without_a_copy(n_rows):
    table = pa.table({"n": list(range(n_rows)), "text": ["x" * (n % 7) for n in range(n_rows)]})
    content = model_file.arrow_bytes(table)
    assert content.dtype == np.uint8
    assert len(content) % 64 == 0
    before = pa.total_allocated_bytes()
    found = model_file.arrow_table(content)
    assert pa.total_allocated_bytes() - before < 1024
    assert found.equals(table)


def test_padding_is_no_more_than_needed():
    table = pa.table({"n": [1]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    plain = sink.getvalue().to_pybytes()
    content = model_file.arrow_bytes(table).tobytes()
    assert content.startswith(plain)
    assert content[len(plain) :] == bytes(-len(plain) % 64)


def test_bytes_that_are_no_table_are_told():
    error = told(model_file.arrow_table, np.full(100, 7, dtype=np.uint8))
    assert str(error).startswith("the table cannot be read: ")
    assert len(str(error)) > len("the table cannot be read: None")
    assert error.__suppress_context__
