"""Files that would take all memory or all of the stack are refused."""

from __future__ import annotations

import gzip
import zipfile

import pytest

from coldhash.data.tables import EXPANSION, UNPACKED_BYTES, TableFile
from coldhash.errors import SourceError, TableError


def read(path, **options):
    return TableFile(path=path, **options).read()


@pytest.mark.slow
def test_a_gz_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "r.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(2 * UNPACKED_BYTES >> 24):
            file.write(bytes(1 << 24))
    with pytest.raises(SourceError, match=f"more than .* MiB, {EXPANSION} times"):
        read(path)


@pytest.mark.slow
def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "r.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("r.csv", mode="w") as file,
    ):
        for _ in range(2 * UNPACKED_BYTES >> 24):
            file.write(bytes(1 << 24))
    with pytest.raises(SourceError, match=f"more than .* MiB, {EXPANSION} times"):
        read(path, member="r.csv")


def test_a_packed_table_that_repeats_itself_is_read(tmp_path):
    path = tmp_path / "r.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 500_000))
    assert path.stat().st_size * EXPANSION < 2_000_000
    assert read(path).num_rows == 500_000


@pytest.mark.parametrize("depth", [1000, 100_000])
@pytest.mark.parametrize("marks", ["[]", ('{"a":', "}")], ids=["lists", "objects"])
def test_json_that_is_nested_too_deeply_is_refused(tmp_path, depth, marks):
    path = tmp_path / "u.jsonl"
    deep = marks[0] * depth + "1" + marks[1] * depth
    path.write_text(
        '{"user_id": 1, "x": [1]}\n' * 3 + f'{{"user_id": 2, "x": {deep}}}\n', encoding="utf-8"
    )
    with pytest.raises(TableError, match="line 4: nested more than"):
        read(path)


def test_brackets_in_texts_and_in_long_lists_are_not_nested(tmp_path):
    path = tmp_path / "u.jsonl"
    text = r"[" * 500 + r"\"{\\"
    pairs = ", ".join(["[1, 2]"] * 300)
    path.write_text(f'{{"user_id": 1, "x": "{text}", "y": [{pairs}]}}\n', encoding="utf-8")
    assert read(path).num_rows == 1
